//! Blocking commands: a client waits until there is something for it.
//!
//! An attempt is the command without the wait, an ordinary operation or transaction at the keyspace. If it finds nothing, the
//! connection enters the lines of its keys ([`crate::Waiters`]) and attempts again when it has the turn of one. So nothing
//! is taken twice, or lost, for which the keyspace's model has a word, and no model has to know of it.
//!
//! ```text
//!   command --> attempt --found--> reply
//!                  | nothing
//!                  v
//!               Blocked --turn--> attempt --found--> leave the lines, reply
//!                  ^   |             | nothing
//!                  +---|-------------+
//!                      +-- time is up, CLIENT UNBLOCK, keyspace dropped --> leave the lines, reply
//! ```
//!
//! In a cluster, what processes tell each other may be lost, so a blocked client enters again now and then. The line's home
//! answers. A client whose home is silent attempts without a turn, and so does one of a keyspace that shows clients different
//! states. Every other client that has entered takes nothing without a turn, so that clients of a line are served in the order
//! in which they came: an attempt without a turn finds out whether streams are still there.

use crate::commands::{pops, streams};
use crate::engine::Engine;
use crate::gateway::{ConnectionId, Gateway};
use crate::host::{Host, Lines};
use crate::news::{Audience, LineNews, News};
use crate::plan::Call;
use crate::sequence::{Commands, Sequence, Wrapper, append_command};
use crate::session::{Activity, Connection, Mode};
use crate::waiters::{ATTEMPTS_PER_SECOND, Place, Sought, Turn, UNTIL_NOTHING, Waiter, Waiters};
use datatypes::{Operation, key, list, register, scored_set, stream};
use protocol::{Request, Step};
use std::mem;
use std::time::Duration;
use types::{Error, ErrorCode, Instant, KeyspaceId, ProcessId, Reply, ReplyBuf, ReplySink};

/// How often a blocked client of a cluster, or one that awaits entries of streams, looks without a turn;
/// [`ATTEMPTS_PER_SECOND`] for those of a gateway.
const ATTEMPT_EVERY: Duration = Duration::from_secs(1);
/// It says more often than that that it waits.
const LATEST_REFRESH: Duration = Duration::from_secs(4);
/// A home that has left so many notices of a waiting client unanswered is silent.
const SILENT_AFTER: u32 = 2;
/// How soon an attempt that failed is made again where no other turn comes.
const ATTEMPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Whoever waits for longer waits for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(u32::MAX as u64);
/// How many turns are taken before others are served.
const TURNS_AT_ONCE: usize = 64;

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Blocked {
    /// The command in RESP.
    source: Box<[u8]>,
    /// Its keys' lines.
    lines: Box<[Standing]>,
    /// It is one transaction.
    is_atomic: bool,
    /// Others wait in front of it, or may: its attempt takes nothing, and only finds out what is wrong with the keys.
    only_looks: bool,
    /// It waits in the lines.
    is_entered: bool,
    /// When it has waited for long enough.
    until: Option<Instant>,
    /// When it says again that it waits, and when it attempts on its own: in a cluster, or when an attempt has failed.
    refresh_at: Option<Instant>,
    attempt_at: Instant,
    /// When the gateway looks at it, while it does not attempt.
    alarm: Option<Instant>,
    /// The lines whose turn it has.
    turns: Vec<Place>,
    /// A turn came during an attempt, which may have been too early.
    once_more: bool,
    /// Why it is to wait no longer.
    end: Option<End>,
}

/// The processes whose clients wait in the same lines; see [`Lines`].
struct OwnGroup {
    processes: Vec<ProcessId>,
    lags: bool,
}

/// A client in a line.
#[derive(Debug)]
struct Standing {
    place: Place,
    /// The process that keeps the line.
    home: ProcessId,
    /// How often the client has said that it waits since the home last answered.
    unanswered: u32,
}

/// Why a wait ends without anything found.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// Its time is up.
    Timeout,
    /// This went wrong.
    Error(Error),
}

/// A write that a client may wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Woken {
    list: bool,
    scored_set: bool,
    stream: bool,
    /// All keys of the keyspace.
    everywhere: bool,
    /// How many elements, at most.
    elements: u64,
}

impl Woken {
    const NOTHING: Woken =
        Woken { list: false, scored_set: false, stream: false, everywhere: false, elements: UNTIL_NOTHING };
    const ANYTHING: Woken = Woken { list: true, scored_set: true, stream: true, ..Woken::NOTHING };
    pub(crate) const STREAM: Woken = Woken { stream: true, ..Woken::NOTHING };

    /// What an operation writes, if it may create something that clients wait for, or add to it. If they wait for streams,
    /// they are to hear of one that is gone, too.
    #[inline]
    fn by(operation: &Operation<'_>, awaits_streams: bool) -> Option<Self> {
        Some(match operation {
            Operation::List(list::Operation::Push { values, .. }) => {
                Woken { list: true, elements: values.len() as u64, ..Woken::NOTHING }
            }
            Operation::ScoredSet(scored_set::Operation::Add { items, .. }) => {
                Woken { scored_set: true, elements: items.len() as u64, ..Woken::NOTHING }
            }
            Operation::ScoredSet(scored_set::Operation::Increment { .. }) => {
                Woken { scored_set: true, elements: 1, ..Woken::NOTHING }
            }
            Operation::Stream(stream::Operation::Add { .. }) => Woken::STREAM,
            Operation::Key(key::Operation::Restore(_) | key::Operation::RestoreAbsent(_)) => Woken::ANYTHING,
            Operation::Stream(
                stream::Operation::SetGroup { .. } | stream::Operation::DestroyGroup { .. },
            )
            | Operation::Key(
                key::Operation::Delete | key::Operation::Take | key::Operation::ExpireAt { .. },
            )
            | Operation::Register(register::Operation::Set { .. })
                if awaits_streams =>
            {
                Woken::STREAM
            }
            _ => return None,
        })
    }

    /// The key that one operation of a batch writes, if a client may wait for it.
    #[inline]
    pub(crate) fn key_of<'r>(request: &Request<'r>, awaits_streams: bool) -> Option<(&'r [u8], Woken)> {
        let Request::One { operation, .. } = request else { return None };
        Woken::by(&operation.operation, awaits_streams).map(|what| (operation.key, what))
    }

    /// The same of the steps of a transaction.
    pub(crate) fn keys_of<'r>(
        request: &Request<'r>,
        awaits_streams: bool,
    ) -> impl Iterator<Item = (&'r [u8], Woken)> + use<'r> {
        let steps = match request {
            Request::Many { steps, .. } | Request::Operate { steps, .. } => *steps,
            _ => &[],
        };
        steps.iter().filter_map(move |step| match step {
            Step::Key(keyed) => Woken::by(&keyed.operation, awaits_streams).map(|what| (keyed.key, what)),
            Step::Flush if awaits_streams => Some((&[][..], Woken { everywhere: true, ..Woken::NOTHING })),
            _ => None,
        })
    }

    /// The key that a client may wait for.
    fn places(self, keyspace: KeyspaceId, key: &[u8]) -> impl Iterator<Item = Place> {
        let sought = [
            (self.list, Sought::List),
            (self.scored_set, Sought::ScoredSet),
            (self.stream, Sought::Entries { line: 0 }),
        ];
        let wanted = sought.into_iter().filter(|(is_written, _)| *is_written);
        wanted.map(move |(_, sought)| Place { keyspace, sought, key: key.into() })
    }
}

impl Blocked {
    /// True if it waits; false while its first attempt is under way.
    pub(crate) fn is_entered(&self) -> bool {
        self.is_entered
    }

    /// True if its attempt is to take nothing.
    pub(crate) fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// It goes on with this command, in RESP.
    pub(crate) fn go_on_with(&mut self, source: Vec<u8>) {
        self.source = source.into();
    }

    fn awaits_entries(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.place.sought, Sought::Entries { .. }))
    }

    /// True if it may take something: it has a turn, or the home of a line is silent.
    fn may_take(&self) -> bool {
        !self.turns.is_empty() || self.lines.iter().any(|line| line.unanswered >= SILENT_AFTER)
    }

    /// True if its time is up.
    fn is_over(&self, now: Instant) -> bool {
        self.end.is_some() || self.until.is_some_and(|until| until <= now)
    }
}

/// True for what a command replies that has found nothing.
fn is_nothing(reply: &ReplyBuf) -> bool {
    matches!(reply.first(), Some(Reply::Null | Reply::NullArray))
}

/// The key that something was taken from, as the reply tells: of a move, which does not tell, there is one.
fn served_key(reply: &ReplyBuf) -> Option<&[u8]> {
    let mut elements = reply.elements();
    match (elements.next(), elements.next()) {
        (Some(Reply::Array(_)), Some(Reply::Bulk(key))) => Some(key),
        _ => None,
    }
}

impl<H: Host> Engine<'_, H> {
    /// Carries out a blocking command outside of a transaction.
    pub(crate) fn begin_wait(&mut self, call: Call<'_>, is_atomic: bool) -> Result<(), Error> {
        let (timeout, sought) = self.terms(&call)?;
        // What the client has written before is there for others first.
        self.gateway.wake(self.connection, self.host);
        let keyspace = self.connection.session.keyspace;
        let moves = matches!(call.command.name, "blmove" | "brpoplpush");
        let indices = call.command.key_indices(call.arguments).take(if moves { 1 } else { usize::MAX });
        let mut lines: Vec<Standing> = Vec::new();
        let group = self.own_group(keyspace);
        for index in indices {
            let place = Place { keyspace, sought, key: call.bytes(index).into() };
            if lines.iter().all(|known| known.place != place) {
                let home = self.home(&place, &group.processes);
                lines.push(Standing { place, home, unanswered: 0 });
            }
        }
        let mut source = Vec::new();
        append_command(call.arguments, &mut source);
        let blocked = Box::new(Blocked {
            source: source.into(),
            is_atomic,
            only_looks: false,
            is_entered: false,
            until: timeout.map(|timeout| self.now.instant + timeout.min(LONGEST_WAIT)),
            refresh_at: None,
            attempt_at: self.now.instant,
            alarm: None,
            turns: Vec::new(),
            once_more: false,
            end: None,
            lines: lines.into(),
        });
        // A new client queues behind those that wait already.
        let only_looks = self.host.has_waiters() && self.are_all_lines_taken(&blocked);
        self.attempt(blocked, only_looks);
        Ok(())
    }

    /// How long a command waits, and for what at each of its keys.
    fn terms(&self, call: &Call<'_>) -> Result<(Option<Duration>, Sought), Error> {
        let name = call.command.name;
        if !name.starts_with('x') {
            let sought = if name.starts_with("bz") { Sought::ScoredSet } else { Sought::List };
            return Ok((pops::timeout(call)?, sought));
        }
        let (timeout, group) = streams::waits_for(call)?;
        let Waiter { process, client, .. } = self.waiter();
        let own = [&process.0.to_le_bytes()[..], &client.to_le_bytes()[..]].concat();
        let line = self.gateway.config.hash_seed.hash(group.unwrap_or(&own)).0;
        Ok((timeout, Sought::Entries { line }))
    }

    fn own_group(&self, keyspace: KeyspaceId) -> OwnGroup {
        let Lines { lags, groups, .. } = self.host.lines(keyspace);
        OwnGroup { processes: groups.into_iter().next().unwrap_or_default(), lags }
    }

    fn home(&self, place: &Place, group: &[ProcessId]) -> ProcessId {
        place.home(group, self.gateway.config.hash_seed).unwrap_or_else(|| self.host.process())
    }

    /// True if others wait for each of the keys already.
    fn are_all_lines_taken(&self, blocked: &Blocked) -> bool {
        let mut taken = true;
        self.host
            .waiters(&mut |waiters| taken = blocked.lines.iter().all(|line| waiters.has_line(&line.place)));
        taken
    }

    /// Tries to take something, or looks what is wrong with the keys.
    fn attempt(&mut self, mut blocked: Box<Blocked>, only_looks: bool) {
        (blocked.once_more, blocked.only_looks) = (false, only_looks);
        let wrapper = if blocked.is_atomic { Wrapper::Transaction } else { Wrapper::Loose };
        let commands = Commands::new(blocked.source.to_vec());
        let mut sequence = Box::new(Sequence::new(commands, wrapper, self.now, 0));
        sequence.blocked = Some(blocked);
        self.run_sequence(sequence);
    }

    /// An attempt is over.
    pub(crate) fn finish_attempt(&mut self, mut blocked: Box<Blocked>, reply: &ReplyBuf) {
        if !is_nothing(reply) {
            let served = match (reply.as_error(), &*blocked.lines) {
                (Some(_), _) => None,
                (None, [line]) => Some(line.place.key.clone()),
                (None, _) => served_key(reply).map(Into::into),
            };
            self.leave(&mut blocked, served.as_deref());
            return reply.replay(&mut self.connection.encoder());
        }
        if !blocked.is_entered {
            self.enter(&mut blocked);
            return self.wait_on(blocked);
        }
        if blocked.once_more && !blocked.is_over(self.now.instant) {
            return self.attempt(blocked, false);
        }
        self.give_turns_back(&mut blocked);
        self.wait_on(blocked);
    }

    /// An attempt has failed.
    pub(crate) fn fail_attempt(&mut self, mut blocked: Box<Blocked>, error: &Error) {
        // Nothing happened, and a client that waits for long need not know.
        let may_wait =
            matches!(error.code, ErrorCode::Unavailable | ErrorCode::Conflict | ErrorCode::Degraded);
        if blocked.is_entered && may_wait {
            if self.host.lines(self.connection.session.keyspace).lags {
                // Others follow.
                self.give_turns_back(&mut blocked);
            } else {
                // What it had the turns for may be there, and nobody signals it again.
                let now = self.now.instant;
                blocked.refresh_at = Some(now + ATTEMPT_AGAIN_AFTER);
                blocked.attempt_at = now;
            }
            return self.wait_on(blocked);
        }
        self.leave(&mut blocked, None);
        self.connection.encoder().error(error);
    }

    fn waiter(&self) -> Waiter {
        let (process, worker) = (self.host.process(), self.gateway.config.worker);
        Waiter { process, worker, client: self.connection.session.peer.client }
    }

    /// Enters the lines, or says again that it is there. Where a line is empty this gives the turn.
    fn enter(&mut self, blocked: &mut Blocked) {
        let waiter = self.waiter();
        let keyspace = self.connection.session.keyspace;
        let OwnGroup { processes, lags, .. } = self.own_group(keyspace);
        let now = self.now.instant;
        let is_new = !mem::replace(&mut blocked.is_entered, true);
        if is_new {
            self.gateway.blocked.insert(waiter.client, self.connection.id);
        }
        let mut lines = mem::take(&mut blocked.lines);
        for line in &mut lines {
            let present = self.home(&line.place, &processes);
            if !is_new && present != line.home {
                self.tell_line(
                    &line.place,
                    line.home,
                    LineNews::Leave { worker: waiter.worker, client: waiter.client, served: false },
                );
                (line.home, line.unanswered) = (present, 0);
            }
        }
        let (own, mut sought) = (waiter.process, Vec::new());
        self.gateway.at_lines(self.host, &mut |waiters| {
            if is_new {
                waiters.begin(waiter.client, waiter.worker);
            }
            for Standing { place, home, .. } in &lines {
                if *home == own {
                    waiters.enter(place, waiter, lags, now);
                }
                let signalled = place.signalled();
                if lags && waiters.must_tell(&signalled, now) {
                    sought.push(signalled);
                }
            }
        });
        for place in sought {
            self.host.tell(Audience::Elsewhere, News::Line { place, what: LineNews::Sought });
        }
        for Standing { place, home, unanswered } in lines.iter_mut().filter(|line| line.home != own) {
            *unanswered += 1;
            self.tell_line(place, *home, LineNews::Enter { worker: waiter.worker, client: waiter.client });
        }
        blocked.lines = lines;
        if lags || blocked.awaits_entries() {
            let sharing = self.gateway.blocked.len() as u64 / ATTEMPTS_PER_SECOND;
            let every = ATTEMPT_EVERY * u32::try_from(sharing.max(1)).unwrap_or(u32::MAX);
            // Not all at once.
            let share = self.gateway.config.hash_seed.hash(&waiter.client.to_le_bytes()).0 % 1000;
            let factor = 0.5 + share as f64 / 1000.0;
            if !lags {
                // A stream may have been deleted while no client waited, and no gateway reports that one has expired.
                let pause = if is_new { ATTEMPT_AGAIN_AFTER } else { every.mul_f64(factor) };
                blocked.refresh_at = Some(now + pause);
                return;
            }
            blocked.refresh_at = Some(now + every.min(LATEST_REFRESH).mul_f64(factor));
            if is_new || blocked.attempt_at <= now {
                blocked.attempt_at = now + every.mul_f64(factor);
            }
        }
    }

    fn tell_line(&mut self, place: &Place, home: ProcessId, what: LineNews) {
        self.gateway.tell_line(self.host, place, home, what);
    }

    /// It found nothing: the next one of each line that it had the turn of may look when there is more.
    fn give_turns_back(&mut self, blocked: &mut Blocked) {
        let (waiter, now, turns) = (self.waiter(), self.now.instant, mem::take(&mut blocked.turns));
        if turns.is_empty() {
            return;
        }
        let lines = mem::take(&mut blocked.lines);
        let had = lines.iter().filter(|line| turns.contains(&line.place));
        self.gateway.at_lines(self.host, &mut |waiters| {
            for line in had.clone().filter(|line| line.home == waiter.process) {
                waiters.missed(&line.place, waiter, now);
            }
        });
        for line in had.filter(|line| line.home != waiter.process) {
            let what = LineNews::Missed { worker: waiter.worker, client: waiter.client };
            self.tell_line(&line.place, line.home, what);
        }
        blocked.lines = lines;
    }

    /// Leaves the lines.
    fn leave(&mut self, blocked: &mut Blocked, served: Option<&[u8]>) {
        if !mem::take(&mut blocked.is_entered) {
            return;
        }
        let (waiter, now) = (self.waiter(), self.now.instant);
        let (id, client, worker) = (self.connection.id, waiter.client, waiter.worker);
        if let Some(at) = blocked.alarm.take() {
            self.gateway.alarms.remove(&(at, id));
        }
        self.gateway.blocked.remove(&client);
        let is_served = |place: &Place| served == Some(&*place.key);
        self.gateway.at_lines(self.host, &mut |waiters| {
            waiters.end(client);
            for line in blocked.lines.iter().filter(|line| line.home == waiter.process) {
                waiters.leave(&line.place, waiter, is_served(&line.place), now);
            }
        });
        for Standing { place, home, .. } in blocked.lines.iter().filter(|line| line.home != waiter.process) {
            self.tell_line(place, *home, LineNews::Leave { worker, client, served: is_served(place) });
        }
    }

    /// Waits until something happens, unless it is over.
    fn wait_on(&mut self, mut blocked: Box<Blocked>) {
        if blocked.is_over(self.now.instant) {
            self.leave(&mut blocked, None);
            return match blocked.end {
                None | Some(End::Timeout) => self.connection.encoder().null_array(),
                Some(End::Error(error)) => self.connection.encoder().error(&error),
            };
        }
        blocked.alarm = blocked.until.into_iter().chain(blocked.refresh_at).min();
        self.gateway.alarms.extend(blocked.alarm.map(|at| (at, self.connection.id)));
        self.connection.activity = Activity::Blocked(blocked);
    }

    /// The client is gone: others are served before it.
    pub(crate) fn abandon_wait(&mut self) {
        let mut activity = mem::replace(&mut self.connection.activity, Activity::Idle);
        if let Some(blocked) = activity.blocked() {
            self.leave(blocked, None);
        }
        self.connection.activity = activity;
    }

    /// It has the turn of a line, or something is due.
    fn go_on_waiting(&mut self, turn: Option<Place>, now: Instant) {
        match mem::replace(&mut self.connection.activity, Activity::Idle) {
            Activity::Blocked(mut blocked) => {
                let began = self.host.clock();
                if let Some(at) = blocked.alarm.take() {
                    self.gateway.alarms.remove(&(at, self.connection.id));
                }
                let is_due = blocked.refresh_at.is_some_and(|at| at <= now);
                let pause = self.host.pause();
                let looks = is_due && blocked.attempt_at <= now && !pause.is_on(now);
                let tries = turn.is_some() || looks;
                blocked.turns.extend(turn);
                let keyspace = self.connection.session.keyspace;
                let may_take = tries && (blocked.may_take() || !self.host.lines(keyspace).is_strict);
                if is_due {
                    // Entering sets it again where the line lags.
                    blocked.refresh_at = pause.is_on(now).then_some(pause.until);
                    self.enter(&mut blocked);
                }
                match tries && (may_take || blocked.awaits_entries()) && !blocked.is_over(now) {
                    true => self.attempt(blocked, !may_take),
                    false => self.wait_on(blocked),
                }
                self.count_waiting(began);
                self.send_published();
            }
            mut other => {
                if let (Some(blocked), Some(place)) = (other.blocked(), turn) {
                    blocked.once_more = true;
                    blocked.turns.push(place);
                }
                self.connection.activity = other;
            }
        }
    }
}

impl Gateway {
    /// Works on the lines of the process, and hands out the turns that this gives.
    fn at_lines<H: Host>(&mut self, host: &mut H, work: &mut dyn FnMut(&mut Waiters)) {
        let mut turns = Vec::new();
        host.waiters(&mut |waiters| {
            work(waiters);
            turns = waiters.take_turns();
            self.look_at_lines = waiters.deadline();
        });
        for Turn { place, waiter } in turns {
            let Waiter { process, worker, client } = waiter;
            if process == host.process() && worker == self.config.worker {
                self.turns.push_back((place, client));
            } else {
                let whom = if process == host.process() {
                    Audience::Worker(worker)
                } else {
                    Audience::Process(process)
                };
                host.tell(whom, News::Line { place, what: LineNews::Turn { worker, client } });
            }
        }
    }

    /// What was taken may be there again, which nobody has signalled: the first of each line of the process looks.
    pub fn look_at_all_lines<H: Host>(&mut self, host: &mut H) {
        let now = host.now().instant;
        self.at_lines(host, &mut |waiters| waiters.signal_all(None, now));
    }

    /// Sends news to the home of a line, which may be this process.
    fn tell_line<H: Host>(&mut self, host: &mut H, place: &Place, home: ProcessId, what: LineNews) {
        if home == host.process() {
            return self.hear_line(home, place, &what, host);
        }
        host.tell(Audience::Process(home), News::Line { place: place.clone(), what });
    }

    /// A process tells something of a line.
    pub(crate) fn hear_line<H: Host>(
        &mut self,
        from: ProcessId,
        place: &Place,
        what: &LineNews,
        host: &mut H,
    ) {
        let now = host.now().instant;
        let named = |worker, client| Waiter { process: from, worker, client };
        let own = host.process();
        let mut work: Box<dyn FnMut(&mut Waiters) + '_> = match *what {
            LineNews::Turn { worker, client } => {
                if worker == self.config.worker {
                    self.take_turn_of(from, place, client, host);
                }
                return;
            }
            LineNews::Entered { worker, client } => {
                if worker == self.config.worker {
                    self.note_answer(from, place, client);
                }
                return;
            }
            // One of the gateways hears it for the process.
            _ if from != own && self.config.worker != 0 => return,
            LineNews::Sought => Box::new(move |waiters| waiters.note_elsewhere(place, now)),
            LineNews::Enter { worker, client } => {
                let what = LineNews::Entered { worker, client };
                host.tell(Audience::Process(from), News::Line { place: place.clone(), what });
                Box::new(move |waiters| waiters.enter(place, named(worker, client), true, now))
            }
            LineNews::Leave { worker, client, served } => {
                Box::new(move |waiters| waiters.leave(place, named(worker, client), served, now))
            }
            LineNews::Missed { worker, client } => {
                Box::new(move |waiters| waiters.missed(place, named(worker, client), now))
            }
            LineNews::Signal { elements } => Box::new(move |waiters| waiters.signal(place, elements, now)),
        };
        self.at_lines(host, &mut work);
    }

    /// A client of this gateway has the turn of a line that `from` keeps.
    fn take_turn_of<H: Host>(&mut self, from: ProcessId, place: &Place, client: u64, host: &mut H) {
        if self.blocked.contains_key(&client) {
            return self.turns.push_back((place.clone(), client));
        }
        // The notice of its end was lost.
        if from != host.process() {
            let what = LineNews::Leave { worker: self.config.worker, client, served: false };
            self.tell_line(host, place, from, what);
        }
    }

    /// The home of a line knows that a client of this gateway waits there.
    fn note_answer(&mut self, from: ProcessId, place: &Place, client: u64) {
        let Some(id) = self.blocked.get(&client).copied() else { return };
        if let Some(blocked) = self.connection_mut(id).and_then(|connection| connection.activity.blocked()) {
            let line = blocked.lines.iter_mut().find(|line| line.home == from && line.place == *place);
            line.into_iter().for_each(|line| line.unanswered = 0);
        }
    }

    /// Signals what the connection's commands have written, once they are done.
    pub(crate) fn wake<H: Host>(&mut self, connection: &mut Connection, host: &mut H) {
        let is_done =
            matches!(connection.activity, Activity::Idle | Activity::Held { .. } | Activity::Blocked(_));
        if is_done && !matches!(connection.session.mode, Mode::Interactive { .. }) {
            self.wake_now(connection, host);
        }
    }

    /// Signals what the connection's commands have written, or will have if at all.
    pub(crate) fn wake_now<H: Host>(&mut self, connection: &mut Connection, host: &mut H) {
        if connection.woken.is_empty() {
            return;
        }
        let woken = mem::take(&mut connection.woken);
        if !host.has_waiters() {
            return;
        }
        for (keyspace, key, what) in woken {
            if what.everywhere {
                let now = host.now().instant;
                self.at_lines(host, &mut |waiters| waiters.signal_all(Some(keyspace), now));
            }
            self.wake_for(keyspace, &key, what, host);
        }
    }

    /// Signals what was written to one key.
    pub(crate) fn wake_for<H: Host>(&mut self, keyspace: KeyspaceId, key: &[u8], what: Woken, host: &mut H) {
        what.places(keyspace, key).for_each(|place| self.signal(&place, what.elements, host));
    }

    fn signal<H: Host>(&mut self, place: &Place, elements: u64, host: &mut H) {
        let mut is_sought = false;
        host.waiters(&mut |waiters| is_sought = waiters.is_sought(place));
        if !is_sought {
            return;
        }
        for group in host.lines(place.keyspace).groups {
            if let Some(home) = place.home(&group, self.config.hash_seed) {
                self.tell_line(host, place, home, LineNews::Signal { elements });
            }
        }
    }

    /// Serves those that wait: whose time is up, or whose turn has come.
    pub(crate) fn serve_waits<H: Host>(&mut self, host: &mut H) {
        (self.has_departures, self.paused_until) = (false, None);
        let now = host.now().instant;
        if self.look_at_lines.is_some_and(|at| at <= now) {
            self.at_lines(host, &mut |waiters| waiters.tick(now));
        }
        while let Some((at, id)) = self.alarms.first().copied()
            && at <= now
        {
            self.alarms.pop_first();
            self.go_on_with_wait(id, None, now, host);
        }
        for id in mem::take(&mut self.ending) {
            self.go_on_with_wait(id, None, now, host);
        }
        // What is paused may not take anything.
        let pause = host.pause();
        if pause.is_on(now) {
            self.paused_until = Some(pause.until);
            return;
        }
        for _ in 0..TURNS_AT_ONCE {
            let Some((place, client)) = self.turns.pop_front() else { return };
            if let Some(id) = self.blocked.get(&client).copied() {
                self.go_on_with_wait(id, Some(place), now, host);
            }
        }
    }

    fn go_on_with_wait<H: Host>(
        &mut self,
        id: ConnectionId,
        turn: Option<Place>,
        now: Instant,
        host: &mut H,
    ) {
        let Some(mut connection) = self.take(id) else { return };
        // Who is killed takes nothing any more.
        if !connection.closing {
            Engine::new(self, &mut connection, host).go_on_waiting(turn, now);
        }
        self.put_back(connection, host);
        self.news.push(id);
    }

    /// True if a waiting client can be served at once, or others must learn that a client is gone.
    pub(crate) fn has_waits_to_serve(&self) -> bool {
        let has_turns = !self.turns.is_empty() && self.paused_until.is_none();
        !self.ending.is_empty() || has_turns || self.has_departures
    }

    /// When somebody who waits, or a line, is to be looked at.
    pub(crate) fn wait_deadline(&self) -> Option<Instant> {
        let pause = self.paused_until.filter(|_| !self.turns.is_empty());
        let alarm = self.alarms.first().map(|(at, _)| *at);
        alarm.into_iter().chain(self.look_at_lines).chain(pause).min()
    }

    /// Nothing of this keyspace is there any more: who waits in it gets the error.
    pub(crate) fn give_up_waits(&mut self, keyspace: KeyspaceId, error: &Error) {
        for id in self.blocked.values().copied().collect::<Vec<_>>() {
            let connection = self.connection_mut(id);
            let is_of =
                |blocked: &mut Blocked| blocked.lines.iter().any(|line| line.place.keyspace == keyspace);
            if connection.and_then(|connection| connection.activity.blocked()).is_some_and(is_of) {
                self.end_wait(id, End::Error(error.clone()));
            }
        }
    }

    /// Ends the wait of a client; false if it does not wait here.
    pub(crate) fn unblock(&mut self, client: u64, with_error: bool) -> bool {
        let Some(id) = self.blocked.get(&client).copied() else { return false };
        // A word of Redis that nothing else says.
        let error = || Error::new(ErrorCode::Scripted, "UNBLOCKED client unblocked via CLIENT UNBLOCK");
        self.end_wait(id, if with_error { End::Error(error()) } else { End::Timeout });
        true
    }

    /// Ends a wait when the next round settles.
    pub(crate) fn end_wait(&mut self, id: ConnectionId, end: End) {
        if let Some(blocked) = self.connection_mut(id).and_then(|connection| connection.activity.blocked()) {
            blocked.end = Some(end);
            self.ending.push(id);
        }
    }
}
