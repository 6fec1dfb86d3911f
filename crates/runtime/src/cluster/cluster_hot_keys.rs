//! `KEYSPACE HOTKEYS` asks every process of the cluster what its replicas have counted.
//!
//! ```text
//!   client -> this process  -- Ask --> each other process that is connected
//!                           <- Tell --                      (its sketches; forgotten there if that was wanted)
//!          <- all sketches as one, and who has not sent
//! ```
//!
//! No client waits for longer than [`PATIENCE`]. A question may be lost, and is not repeated: the reply names the
//! processes that have not answered, and those that are not connected. `LOCAL` asks nobody.

use crate::cluster::Cluster;
use crate::cluster::hosting::KeyspaceHosting;
use crate::cluster::hot_keys::write_hot_keys;
use protocol::{Now, Replies, Sketch, merged};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{
    Error, Incarnation, Instant, KeyspaceId, ProcessId, Reader, ReplySink, RequestId, Slot, Wire, wire_enum,
    wire_struct,
};

/// For how long others may keep a client waiting.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where processes ask each other: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: None };

/// What a client wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotKeysQuestion<'a> {
    /// The keyspace's name.
    pub(crate) name: &'a [u8],
    /// At most so many keys.
    pub(crate) count: usize,
    /// Forget them then.
    pub(crate) reset: bool,
    /// Of this process only.
    pub(crate) local: bool,
}

/// A question of one life of a process, so that no answer to an earlier one is taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    life: Incarnation,
    number: u64,
}
wire_struct!(Number { life, number });

/// The messages between processes.
#[derive(Debug)]
enum HotKeysMessage {
    /// What have your replicas counted?
    Ask { question: Number, keyspace: KeyspaceId, reset: bool },
    /// This.
    Tell { question: Number, sketches: Vec<Sketch> },
}
wire_enum!(HotKeysMessage {
    0 => Ask { question, keyspace, reset },
    1 => Tell { question, sketches },
});

/// A client that waits for the answers of other processes.
#[derive(Debug)]
struct OpenQuestion {
    question: Number,
    request: RequestId,
    count: usize,
    sketches: Vec<Sketch>,
    awaited: BTreeSet<ProcessId>,
    /// The processes that are not connected.
    absent: Vec<ProcessId>,
    until: Instant,
}

/// The questions of this process's clients.
#[derive(Debug, Default)]
pub(super) struct Questions {
    last_number: u64,
    open: Vec<OpenQuestion>,
}

impl Cluster {
    /// Answers a client, or asks the others, whose answers [`Cluster::tell_hot_keys`] hands on.
    pub(crate) fn ask_hot_keys(
        &mut self,
        request: RequestId,
        wanted: HotKeysQuestion<'_>,
        now: Now,
        replies: &mut dyn Replies,
    ) {
        let keyspace = match self.counting_keyspace(wanted.name) {
            Ok(keyspace) => keyspace,
            Err(error) => return replies.reply(request).error(&error),
        };
        let sketches = self.sketches(keyspace, wanted.reset);
        self.questions.last_number += 1;
        let question = Number { life: self.life.incarnation, number: self.questions.last_number };
        let (awaited, absent) = match wanted.local {
            true => Default::default(),
            false => self.ask_others(&HotKeysMessage::Ask { question, keyspace, reset: wanted.reset }),
        };
        let (count, until) = (wanted.count, now.instant + PATIENCE);
        let open = OpenQuestion { question, request, count, sketches, awaited, absent, until };
        if open.awaited.is_empty() {
            return open.write(replies.reply(request));
        }
        self.questions.open.push(open);
    }

    /// The keyspace of this name, if its transactions meet on keys.
    fn counting_keyspace(&self, name: &[u8]) -> Result<KeyspaceId, Error> {
        let text = String::from_utf8_lossy(name);
        let id = self.keyspace_of_name(name).ok_or_else(|| gateway::missing_keyspace(name))?;
        let hosting = self.hostings.of(id);
        let hosted = hosting.as_ref().and_then(KeyspaceHosting::hosted);
        if hosted.and_then(|keyspace| keyspace.with(|hosted| hosted.counts_meetings())) == Some(true) {
            return Ok(id);
        }
        if matches!(hosting, Some(KeyspaceHosting::Solo | KeyspaceHosting::Elsewhere(_))) {
            return Err(Error::err(format!(
                "keyspace '{text}' is served by one process, which runs transactions serially: none waits for another"
            )));
        }
        Err(Error::err(format!(
            "keyspace '{text}' is not strict: its transactions do not wait for each other; CONFLICTS LIST and BRANCH STATE \
             tell what they do instead"
        )))
    }

    /// What is counted here of a keyspace, which is forgotten then if that is wanted.
    fn sketches(&self, keyspace: KeyspaceId, reset: bool) -> Vec<Sketch> {
        let hosted = self.hostings.hosted_of(keyspace);
        hosted.and_then(|keyspace| keyspace.with(|hosted| hosted.sketches(reset))).unwrap_or_default()
    }

    /// Sends the question: returns the processes that got it, and those that are not connected.
    fn ask_others(&self, ask: &HotKeysMessage) -> (BTreeSet<ProcessId>, Vec<ProcessId>) {
        let (queried, absent): (Vec<ProcessId>, Vec<ProcessId>) =
            self.peers.all().partition(|process| self.peers.is_connected(*process));
        queried.iter().for_each(|process| self.say(*process, ask));
        (queried.into_iter().collect(), absent)
    }

    fn say(&self, to: ProcessId, said: &HotKeysMessage) {
        self.peers.send(to, self.peers.node(SLOT), SLOT, said, None);
    }

    /// Another process has said something to this one.
    pub(super) fn hear_hot_keys(&mut self, from: ProcessId, packet: &[u8]) {
        match HotKeysMessage::decode(&mut Reader::new(packet)) {
            Ok(HotKeysMessage::Ask { question, keyspace, reset }) => {
                if usize::from(keyspace.0) >= self.hostings.count() {
                    self.refresh();
                }
                let sketches = self.sketches(keyspace, reset);
                self.say(from, &HotKeysMessage::Tell { question, sketches });
            }
            Ok(HotKeysMessage::Tell { question, sketches }) => {
                let open = self.questions.open.iter_mut().find(|open| open.question == question);
                if let Some(open) = open
                    && open.awaited.remove(&from)
                {
                    open.sketches.extend(sketches);
                }
            }
            Err(error) => tracing::warn!(%from, %error, "what a process said makes no sense and was dropped"),
        }
    }

    /// Answers the clients whose questions are complete.
    pub(super) fn tell_hot_keys(&mut self, now: Instant, replies: &mut dyn Replies) {
        let waits = |open: &mut OpenQuestion| !open.awaited.is_empty() && open.until > now;
        for open in self.questions.open.extract_if(.., |open| !waits(open)) {
            open.write(replies.reply(open.request));
        }
    }
}

impl OpenQuestion {
    fn write(&self, sink: &mut dyn ReplySink) {
        let mut keys = merged(&self.sketches);
        keys.truncate(self.count);
        let mut unanswered: Vec<ProcessId> = self.absent.iter().chain(&self.awaited).copied().collect();
        unanswered.sort_unstable();
        write_hot_keys(&keys, &unanswered, sink);
    }
}
