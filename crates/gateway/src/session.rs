//! What one connection is: its session, what it waits for, and what it has to say.

use crate::acl::User;
use crate::blocking::{Blocked, Woken};
use crate::client::{ClientInfo, Peer};
use crate::gateway::ConnectionId;
use crate::pubsub::Outbox;
use crate::sequence::Sequence;
use crate::tally::{Tally, Writer};
use crate::task::{After, Task};
use crate::tracking::{Pushed, Touched, Tracking};
use resp::{Parser, ProtocolVersion};
use std::ops::Range;
use std::sync::Arc;
use types::{Instant, KeyspaceId, SessionId};

/// A connection as its gateway keeps it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) parser: Parser,
    pub(crate) session: Session,
    /// Encoded replies that the runtime has not taken.
    pub(crate) output: Vec<u8>,
    /// See [`crate::Gateway::take_own_replies`].
    pub(crate) own_replies: Vec<Range<usize>>,
    pub(crate) activity: Activity,
    /// No further command is executed; once the output is sent the connection ends.
    pub(crate) closing: bool,
    /// It is closed without being sent what waits for it.
    pub(crate) cut: bool,
    /// What statistics and the log of slow commands need of its commands.
    pub(crate) tally: Tally,
    /// Replies that the client does not want.
    pub(crate) discarded: Vec<u8>,
    /// It has authenticated once, or did not have to: it counts among the clients that are served.
    pub(crate) admitted: bool,
    /// Messages that it has published and that are not sent yet.
    pub(crate) outbox: Outbox,
    /// The turn of its gateway in which it was sent a message last.
    pub(crate) pushed_in: u64,
    /// Since when more messages wait for a subscriber than may for long.
    pub(crate) long_since: Option<Instant>,
    /// How many operations are submitted together, so that their replies hardly exceed the limit of the output.
    pub(crate) piece: usize,
    /// What its commands have written, or will have when they are done, that somebody may wait for.
    pub(crate) woken: Vec<(KeyspaceId, Box<[u8]>, Woken)>,
    /// What its commands have changed, or will have when they are done, of which tracked clients are to be notified;
    /// by the number of the reply that comes with it.
    pub(crate) touched: Vec<(u64, Touched)>,
    /// It has sent a request while no client was tracked.
    pub(crate) wrote_untracked: bool,
    /// Its invalidations, which wait behind the reply to the command under way.
    pub(crate) invalid: Vec<Pushed>,
}

/// What a connection is doing. Unless it is idle, its next command waits.
#[derive(Debug)]
pub(crate) enum Activity {
    /// Nothing: it may execute commands.
    Idle,
    /// It waits for the replies `next..end`, each of which is passed on.
    Batch {
        /// The number of the next reply.
        next: u64,
        /// The number after the last.
        end: u64,
    },
    /// It waits for one reply that a task makes something of.
    Task {
        /// The number of the reply.
        awaiting: u64,
        /// What to do with it.
        task: Task,
    },
    /// It has more to ask, and lets others go first.
    Interrupted(Box<Sequence>),
    /// It waits for a time.
    Held {
        /// The time.
        until: Instant,
        /// Why.
        hold: Hold,
    },
    /// Its command waits until there is something for it.
    Blocked(Box<Blocked>),
}

/// Why a connection waits for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A command itself takes so long, and replies `OK` then.
    Sleep,
    /// Commands are paused until then, unless the pause ends before.
    Pause,
    /// Other gateways are to catch up with what it has published.
    Congestion,
}

impl Activity {
    /// The command that waits until there is something for it, whether it tries just now or not.
    pub(crate) fn blocked(&mut self) -> Option<&mut Blocked> {
        match self {
            Activity::Blocked(blocked) => Some(blocked),
            Activity::Interrupted(sequence) | Activity::Task { task: Task::Sequence(sequence), .. } => {
                sequence.blocked.as_deref_mut().filter(|blocked| blocked.is_entered())
            }
            _ => None,
        }
    }

    /// The numbers of the replies it waits for.
    pub(crate) fn awaited(&self) -> Range<u64> {
        match self {
            Activity::Idle | Activity::Interrupted(_) | Activity::Held { .. } | Activity::Blocked(_) => 0..0,
            Activity::Batch { next, end } => *next..*end,
            Activity::Task { awaiting, .. } => *awaiting..*awaiting + 1,
        }
    }

    /// The number of the last of them.
    pub(crate) fn last_awaited(&self) -> Option<u64> {
        self.awaited().last()
    }

    /// True if what it waits for is the outcome of a transaction.
    pub(crate) fn ends_transaction(&self) -> bool {
        matches!(self, Activity::Task { task: Task::Exec(_) | Task::Forward(After::Ended), .. })
    }
}

/// A client's state between commands.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) peer: Peer,
    pub(crate) version: ProtocolVersion,
    pub(crate) authenticated: bool,
    pub(crate) user: Arc<User>,
    /// The user may do everything: nothing has to be checked.
    pub(crate) may_all: bool,
    /// The user may use the selected keyspace.
    pub(crate) keyspace_is_open: bool,
    /// It has authenticated, and may have to choose a keyspace that its user may use.
    pub(crate) seeks_keyspace: bool,
    /// How often it gave a wrong password.
    pub(crate) wrong_passwords: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    /// The selected keyspace.
    pub(crate) keyspace: KeyspaceId,
    /// The number it was selected by; 0 when it was selected by name.
    pub(crate) database: u64,
    /// Every keyspace it has used, to close the session there in the end.
    pub(crate) used: Vec<KeyspaceId>,
    pub(crate) mode: Mode,
    /// What it watches.
    pub(crate) watching: Option<Watching>,
    /// To how many channels, patterns and shard channels it has subscribed.
    pub(crate) subscriptions: [usize; 3],
    pub(crate) opened_at: Instant,
    pub(crate) active_at: Instant,
    pub(crate) last_command: &'static str,
    /// It is shown the commands of all clients.
    pub(crate) monitoring: bool,
    /// How the client tracks changes to what it has read, if it does.
    pub(crate) tracking: Option<Box<Tracking>>,
    /// The client chose to read writes of others only when they are stable.
    pub(crate) reads_stable_only: bool,
}

/// A session's watches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watching {
    /// The keyspace of all of them.
    pub(crate) keyspace: KeyspaceId,
    /// How many keys, each time it was named.
    pub(crate) keys: usize,
}

/// What becomes of a command.
#[derive(Debug)]
pub(crate) enum Mode {
    /// It is executed as a transaction of its own.
    Plain,
    /// It is queued until EXEC.
    Queueing(Queue),
    /// It is part of an open transaction (`TXN BEGIN`).
    Interactive {
        /// It may not write.
        read_only: bool,
        /// The rules of its user have changed since it began: what it has written may not be allowed any more.
        rules_changed: bool,
    },
}

/// The commands between MULTI and EXEC, encoded as they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The commands in RESP.
    pub(crate) source: Vec<u8>,
    /// How many there are.
    pub(crate) len: usize,
    /// One of them was refused: EXEC will be refused too.
    pub(crate) refused: bool,
    /// One of them may need more memory.
    pub(crate) grows: bool,
}

/// The operations of a connection's first piece, of whose replies nothing is known yet.
pub(crate) const FIRST_PIECE: usize = 8;
/// The most operations of a piece: enough to hide the time that memory takes.
const MAX_PIECE: usize = 64;
/// So much memory is retained for replies that the client does not want.
const RETAINED_BYTES: usize = 1 << 20;

impl Connection {
    /// The numbers of the replies of a keyspace that it waits for.
    pub(crate) fn due_of(&self, keyspace: KeyspaceId) -> Range<u64> {
        match &self.activity {
            Activity::Batch { next, end } if self.session.keyspace == keyspace => *next..*end,
            Activity::Task { awaiting, task } if task.keyspace(&self.session) == keyspace => {
                *awaiting..*awaiting + 1
            }
            _ => 0..0,
        }
    }

    /// Its line in `CLIENT LIST`.
    pub(crate) fn info(&self) -> ClientInfo {
        self.session.info(self.output.len(), self.is_blocked())
    }

    /// True if its command waits until there is something for it.
    pub(crate) fn is_blocked(&self) -> bool {
        match &self.activity {
            Activity::Blocked(_) => true,
            Activity::Interrupted(sequence) | Activity::Task { task: Task::Sequence(sequence), .. } => {
                sequence.blocked.as_ref().is_some_and(|blocked| blocked.is_entered())
            }
            _ => false,
        }
    }

    /// Replies to `commands` operations took `bytes` bytes: how many the next piece may have.
    #[inline]
    pub(crate) fn plan_piece(&mut self, commands: usize, bytes: usize, max_output_bytes: usize) {
        let fitting = max_output_bytes * commands / bytes.max(1);
        self.piece = fitting.clamp(1, MAX_PIECE.min(self.piece * 2));
    }

    /// What was written from `start` on tells of the session only.
    #[inline]
    pub(crate) fn note_own_reply(&mut self, start: usize) {
        let end = self.output.len();
        match self.own_replies.last_mut() {
            _ if end == start => {}
            Some(last) if last.end == start => last.end = end,
            _ => self.own_replies.push(start..end),
        }
    }

    /// Writes what the client is sent whether it wants replies or not.
    pub(crate) fn pushing_encoder(&mut self) -> Writer<'_> {
        Writer::unmuted(&mut self.output, self.session.version, &mut self.tally)
    }

    /// Writes replies behind those that wait to be sent.
    #[inline]
    pub(crate) fn encoder(&mut self) -> Writer<'_> {
        self.discarded.clear();
        self.discarded.shrink_to(RETAINED_BYTES);
        Writer::new((&mut self.output, &mut self.discarded), self.session.version, &mut self.tally)
    }
}

impl Session {
    /// A new client's session.
    pub(crate) fn new(
        peer: Peer,
        keyspace: KeyspaceId,
        user: Arc<User>,
        authenticated: bool,
        now: Instant,
    ) -> Self {
        Session {
            peer,
            version: ProtocolVersion::Resp2,
            authenticated,
            may_all: user.may_all(),
            keyspace_is_open: true,
            seeks_keyspace: true,
            user,
            wrong_passwords: 0,
            name: Vec::new(),
            library: Vec::new(),
            library_version: Vec::new(),
            keyspace,
            database: 0,
            used: vec![keyspace],
            mode: Mode::Plain,
            watching: None,
            subscriptions: [0; 3],
            opened_at: now,
            active_at: now,
            last_command: "NULL",
            monitoring: false,
            tracking: None,
            reads_stable_only: false,
        }
    }

    /// True if it has subscribed to something.
    #[inline]
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions != [0; 3]
    }

    /// True if it may only subscribe and unsubscribe: in RESP2 nothing else tells messages from replies.
    #[inline]
    pub(crate) fn is_confined(&self) -> bool {
        self.is_subscriber() && self.version == ProtocolVersion::Resp2
    }

    /// Its identity towards keyspaces.
    pub(crate) fn id(&self) -> SessionId {
        SessionId(self.peer.client)
    }

    /// Selects a keyspace.
    pub(crate) fn select(&mut self, keyspace: KeyspaceId, database: u64) {
        (self.keyspace, self.database) = (keyspace, database);
        // Who may not choose it does not get here.
        self.keyspace_is_open = true;
        if !self.used.contains(&keyspace) {
            self.used.push(keyspace);
        }
    }

    /// True when its commands belong to one transaction, which has one keyspace (Corrections 77).
    pub(crate) fn in_transaction(&self) -> bool {
        !matches!(self.mode, Mode::Plain)
    }

    fn info(&self, output_bytes: usize, blocked: bool) -> ClientInfo {
        let queue = match &self.mode {
            Mode::Queueing(queue) => Some(queue),
            _ => None,
        };
        ClientInfo {
            peer: self.peer.clone(),
            user: Arc::clone(&self.user.name),
            name: self.name.clone(),
            library: self.library.clone(),
            library_version: self.library_version.clone(),
            opened_at: self.opened_at,
            active_at: self.active_at,
            database: self.database,
            queued: queue.map(|queue| queue.len),
            queued_bytes: queue.map_or(0, |queue| queue.source.len()),
            output_bytes,
            subscriptions: self.subscriptions,
            blocked,
            last_command: self.last_command,
            version: self.version,
            monitoring: self.monitoring,
            redirection: self.tracking.as_ref().map(|tracking| tracking.redirect),
            is_redirection_broken: self.tracking.as_ref().is_some_and(|tracking| tracking.is_broken),
            is_broadcast: self.tracking.as_ref().is_some_and(|tracking| tracking.broadcast),
        }
    }
}
