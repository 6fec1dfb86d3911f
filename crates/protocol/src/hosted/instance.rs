//! One instance behind its lock, and the mailbox in which threads leave what is for it.
//!
//! A thread that holds the instance's state steps it. Others put packets into the mailbox, whose lock is held for moments. A
//! thread that finds the state held notes in the mailbox that something is due, and tries once more. If the state is held
//! still, its holder has yet to look into the mailbox, since every holder does so after it has let go: so nothing that is due
//! is forgotten.

use super::{Environment, Holdings, LogWork, Turn};
use crate::contract::{Input, Now, Protocol};
use crate::gate::{Durable, Gate};
use crate::replica::{Packet, Replica};
use crate::request::Request;
use parking_lot::{Mutex, MutexGuard};
use std::time::Duration;
use types::{Instant, KeyspaceId, NodeId, ProcessId, RequestId, Slot};

/// How much from other processes waits for one instance, in bytes. More is dropped, as a network may.
const MOST_WAITING_BYTES: usize = 64 << 20;

/// See the module.
pub(super) struct Instance<P: Protocol> {
    pub(super) slot: Slot,
    state: Mutex<State<P>>,
    mailbox: Mutex<Mailbox<P>>,
}

/// What a thread holds that steps the instance.
pub(super) struct State<P: Protocol> {
    pub(super) replica: Replica<P>,
    /// The first instance of the process, which alone replies to clients.
    serves_clients: bool,
    /// The latest time of a step: threads that read the clock before they hold the instance take it no further back.
    now: Now,
    /// While the log refuses records: the newest group that it has written.
    refused_after: Option<u64>,
    /// What came and is being served.
    inbox: Vec<(NodeId, Packet<P>)>,
}

struct Mailbox<P: Protocol> {
    /// What came and waits to be served, with its sender.
    inbox: Vec<(NodeId, Packet<P>)>,
    /// The size of packets from other processes in the inbox.
    bytes: usize,
    /// Something is due although the inbox may be empty.
    is_stirred: bool,
    noted: Noted,
    /// As it was looked at last.
    holdings: Holdings,
}

/// What the last thread that held the instance noted when it let go.
#[derive(Clone, Copy, Default)]
struct Noted {
    deadline: Option<Instant>,
    /// What messages and replies to clients wait for.
    gates: [Gate; 2],
    log: LogState,
}

/// How far the log is durable, and whether it refuses records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// How far it is durable.
    pub durable: Durable,
    /// It refuses records.
    pub is_suspended: bool,
}

impl LogState {
    fn of(environment: &dyn Environment) -> Self {
        LogState { durable: environment.durable(), is_suspended: environment.is_suspended() }
    }
}

/// What instances wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// When a pump is due at the latest.
    pub deadline: Option<Instant>,
    /// What the log has to do for messages and replies to leave.
    pub work: LogWork,
    /// How far the log was durable when the instance that waits for it was visited; of several the least.
    waits_since: Option<Durable>,
    /// Some instance has not heard that the log refuses records; some has not heard that it takes them.
    pub(super) unaware: [bool; 2],
    /// Something is due that no other thread sees to.
    pub is_left: bool,
}

impl Pending {
    /// Nothing but this deadline.
    pub fn until(deadline: Option<Instant>) -> Self {
        Pending { deadline, ..Pending::default() }
    }

    /// True if an instance is to hear of the log.
    pub fn awaits(&self, log: LogState) -> bool {
        self.unaware[usize::from(!log.is_suspended)]
            || self.waits_since.is_some_and(|durable| durable != log.durable)
    }

    /// Both.
    #[must_use]
    pub(super) fn and(self, other: Pending) -> Self {
        let least = |one: Durable, other: Durable| Durable {
            written: one.written.min(other.written),
            synced: one.synced.min(other.synced),
        };
        Pending {
            deadline: self.deadline.into_iter().chain(other.deadline).min(),
            work: self.work.and(other.work),
            waits_since: self.waits_since.into_iter().chain(other.waits_since).reduce(least),
            unaware: [self.unaware[0] | other.unaware[0], self.unaware[1] | other.unaware[1]],
            is_left: self.is_left | other.is_left,
        }
    }
}

/// What came of a look at an instance.
pub(super) enum Visited {
    /// Nothing was due.
    Idle,
    /// Everything was done that was due. What replies wait for.
    Served(Gate),
    /// Another thread holds it.
    Busy,
}

impl<P: Protocol> Instance<P> {
    pub(super) fn new(node: NodeId, protocol: P, serves_clients: bool) -> Self {
        let state = State {
            replica: Replica::new(node, protocol),
            serves_clients,
            now: Now::default(),
            refused_after: None,
            inbox: Vec::new(),
        };
        let mailbox = Mailbox {
            inbox: Vec::new(),
            bytes: 0,
            is_stirred: true,
            noted: Noted::default(),
            holdings: Holdings::default(),
        };
        Instance { slot: node.slot, state: Mutex::new(state), mailbox: Mutex::new(mailbox) }
    }

    /// Leaves a packet of an instance of this process.
    pub(super) fn leave(&self, from: NodeId, packet: Packet<P>) {
        self.mailbox.lock().inbox.push((from, packet));
    }

    /// Leaves a packet of another process, of so many bytes.
    pub(super) fn leave_remote(&self, from: NodeId, packet: Packet<P>, bytes: usize) {
        let mut mailbox = self.mailbox.lock();
        if mailbox.bytes <= MOST_WAITING_BYTES {
            mailbox.bytes += bytes;
            mailbox.inbox.push((from, packet));
        }
    }

    /// The state, as soon as no other thread holds it.
    pub(super) fn hold(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock()
    }

    /// The same, unless another thread holds it for longer than this.
    pub(super) fn hold_within(&self, patience: Duration) -> Option<MutexGuard<'_, State<P>>> {
        self.state.try_lock_for(patience)
    }

    /// The instance of a keyspace that nobody else uses.
    pub(super) fn state_mut(&mut self) -> &mut State<P> {
        self.mailbox.get_mut().is_stirred = true;
        self.state.get_mut()
    }

    /// The next visit finds something to do.
    pub(super) fn stir(&self) {
        self.mailbox.lock().is_stirred = true;
    }

    /// Hands requests to the instance and logs what it persisted. Returns what replies wait for.
    pub(super) fn submit(
        &self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        (keyspace, environment): (KeyspaceId, &mut dyn Environment),
        turn: &mut Turn<'_>,
    ) -> Gate {
        let mut batch: Vec<_> =
            requests.drain(..).map(|(id, request)| Input::Request { id, request }).collect();
        let mut state = self.hold();
        let log = LogState::of(environment);
        state.begin(log, turn.now);
        let now = state.now;
        state.replica.step(now, &mut batch, turn.random, turn.replies);
        state.append(keyspace, environment);
        self.let_go(state, log, true)
    }

    /// Does everything that is due. A packet for an instance of this process goes through `route`. With patience it waits so
    /// long for another thread that holds the instance.
    pub(super) fn visit(
        &self,
        (keyspace, environment): (KeyspaceId, &mut dyn Environment),
        turn: &mut Turn<'_>,
        patience: Option<Duration>,
        route: &dyn Fn(Slot, NodeId, Packet<P>),
    ) -> Visited {
        if !self.mailbox.lock().is_due(turn.now.instant, LogState::of(environment)) {
            return Visited::Idle;
        }
        let Some(mut state) = self.try_hold(patience) else { return Visited::Busy };
        let log = LogState::of(environment);
        state.begin(log, turn.now);
        self.mailbox.lock().empty(&mut state.inbox);
        let State { replica, now, .. } = &mut *state;
        let mut turn = Turn { now: *now, random: turn.random, replies: turn.replies };
        let process = replica.node().process;
        let is_time = replica.deadline().is_some_and(|deadline| deadline <= turn.now.instant);
        if is_time && state.keeps_time() {
            state.replica.fire(turn.now, turn.random, turn.replies);
        }
        state.serve(environment, &mut turn);
        loop {
            state.append(keyspace, environment);
            state.release(log.durable, process, environment, route);
            if !state.spool(keyspace, environment, &mut turn) {
                break;
            }
        }
        Visited::Served(self.let_go(state, log, false))
    }

    /// The state, unless another thread has it: that one looks into the mailbox afterwards.
    fn try_hold(&self, patience: Option<Duration>) -> Option<MutexGuard<'_, State<P>>> {
        let held = self.state.try_lock();
        if held.is_some() {
            return held;
        }
        self.stir();
        match patience {
            Some(patience) => self.hold_within(patience),
            None => self.state.try_lock(),
        }
    }

    /// What it holds, or held when no other thread had it.
    pub(super) fn holdings(&self, of: impl FnOnce(&P) -> Holdings) -> Holdings {
        let fresh = self.state.try_lock().map(|state| of(state.replica.protocol()));
        let mut mailbox = self.mailbox.lock();
        mailbox.holdings = fresh.unwrap_or(mailbox.holdings);
        mailbox.holdings
    }

    /// Notes what the instance waits for, and ends a turn with it. Returns what its replies wait for.
    fn let_go(&self, state: MutexGuard<'_, State<P>>, log: LogState, is_stirred: bool) -> Gate {
        let noted = Noted {
            deadline: state.replica.deadline().filter(|_| state.keeps_time()),
            gates: [
                state.replica.gate(),
                if state.serves_clients { state.replica.reply_gate() } else { Gate::OPEN },
            ],
            log,
        };
        let gate = if state.serves_clients { state.replica.turn_gate() } else { Gate::OPEN };
        let mut mailbox = self.mailbox.lock();
        mailbox.noted = noted;
        mailbox.is_stirred |= is_stirred;
        gate
    }

    /// The next piece of its checkpoint, in which nothing is that is not in the log. `seal` is called before anything else is.
    pub(super) fn checkpoint(
        &self,
        cursor: u64,
        chunk: &mut Vec<u8>,
        (keyspace, environment): (KeyspaceId, &mut dyn Environment),
        seal: &mut dyn FnMut(),
    ) -> Option<u64> {
        let mut state = self.hold();
        // What the process told the instance may not be appended yet; all else is.
        state.append(keyspace, environment);
        let next = state.replica.protocol_mut().checkpoint(cursor, chunk);
        seal();
        next
    }

    /// What it waits for.
    pub(super) fn pending(&self) -> Pending {
        let is_held = self.state.is_locked();
        let mailbox = self.mailbox.lock();
        let Noted { deadline, gates, log } = mailbox.noted;
        // Whoever holds it has yet to look.
        let is_seen_to = mailbox.is_stirred && is_held;
        Pending {
            deadline: deadline.filter(|_| !is_seen_to),
            work: LogWork::of(gates[0], log.durable).and(LogWork::of(gates[1], log.durable)),
            waits_since: (gates != [Gate::OPEN; 2]).then_some(log.durable),
            unaware: [!log.is_suspended, log.is_suspended],
            is_left: !is_held && (mailbox.is_stirred || !mailbox.inbox.is_empty()),
        }
    }
}

impl<P: Protocol> Mailbox<P> {
    fn is_due(&self, now: Instant, log: LogState) -> bool {
        let Noted { deadline, gates, log: heard } = self.noted;
        let is_log = heard.is_suspended != log.is_suspended
            || (gates != [Gate::OPEN; 2] && heard.durable != log.durable);
        self.is_stirred
            || !self.inbox.is_empty()
            || is_log
            || deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Hands out what came.
    fn empty(&mut self, inbox: &mut Vec<(NodeId, Packet<P>)>) {
        std::mem::swap(&mut self.inbox, inbox);
        (self.bytes, self.is_stirred) = (0, false);
    }
}

impl<P: Protocol> State<P> {
    /// A turn begins.
    fn begin(&mut self, log: LogState, now: Now) {
        if now.instant >= self.now.instant {
            self.now = now;
        }
        self.hear_of_log(log);
        if self.serves_clients {
            self.replica.begin_turn();
        }
    }

    /// Tells the instance when the log begins to refuse records, and when it takes them again.
    fn hear_of_log(&mut self, log: LogState) {
        let refused_after = log.is_suspended.then_some(log.durable.written);
        let did_refuse = std::mem::replace(&mut self.refused_after, refused_after).is_some();
        match refused_after {
            Some(written) if !did_refuse => {
                self.replica.logged(written);
                self.replica.protocol_mut().log_refuses();
            }
            None if did_refuse => self.replica.protocol_mut().log_healed(),
            Some(_) | None => {}
        }
    }

    /// True while the log refuses what the replica has persisted. It says nothing until the log has it, so it hears
    /// nothing either but what asks for reads, and its timers wait: for the others it is as if its process paused, and nothing
    /// piles up.
    fn is_silent(&self) -> bool {
        self.refused_after.is_some_and(|written| !self.replica.is_logged(written))
    }

    /// False while the replica's timers wait. What serves clients itself has to tell them when something takes too long.
    fn keeps_time(&self) -> bool {
        let is_alone = P::READS_ALONE && !self.serves_clients && self.refused_after.is_some();
        !is_alone && !self.is_silent()
    }

    /// Drops what came if the instance does not hear it because the log refuses records, as a network may.
    fn drop_unheard(&mut self) {
        if self.refused_after.is_none() {
            return;
        }
        let (NodeId { process, slot, .. }, is_silent) = (self.replica.node(), self.is_silent());
        if P::READS_ALONE && slot.partition.is_some() {
            let is_heard = |packet: &Packet<P>| !is_silent || packet.is_read();
            self.inbox.retain(|(from, packet)| from.process == process && is_heard(packet));
        } else if is_silent {
            self.inbox.clear();
        }
    }

    /// Hears what came, all at once.
    fn serve(&mut self, environment: &mut dyn Environment, turn: &mut Turn<'_>) {
        self.drop_unheard();
        if self.inbox.is_empty() {
            return;
        }
        let came = self.inbox.drain(..);
        if let Err(error) = self.replica.receive_all(turn.now, came, turn.random, turn.replies) {
            environment.malformed(error);
        }
    }

    /// Logs what the replica persisted.
    fn append(&mut self, keyspace: KeyspaceId, environment: &mut dyn Environment) {
        if self.replica.records().is_empty() {
            return;
        }
        let group = match self.replica.node().slot.partition {
            Some(partition) => environment.append(keyspace, partition, self.replica.records()),
            None => 0,
        };
        self.replica.appended(group);
    }

    /// Routes what may leave.
    fn release(
        &mut self,
        durable: Durable,
        process: ProcessId,
        environment: &mut dyn Environment,
        route: &dyn Fn(Slot, NodeId, Packet<P>),
    ) {
        let (from, now) = (self.replica.node(), self.now.instant);
        self.replica.logged(durable.written);
        self.replica.release(now, durable);
        for (to, packet) in self.replica.packets() {
            if to.process == process {
                route(to.slot, from, packet);
            } else {
                let can_wait = packet.can_wait().then_some(now);
                environment.send(to.process, from, to.slot, &packet, can_wait);
            }
        }
    }

    /// Stores the chunks that the replica spills, and hands it the chunks that it fetches; false if there was none to
    /// hand out.
    fn spool(
        &mut self,
        keyspace: KeyspaceId,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some(partition) = self.replica.node().slot.partition else { return false };
        let mut is_served = false;
        for request in self.replica.spool_requests() {
            if let Some((chunk, bytes)) = environment.spool(keyspace, partition, request) {
                self.replica.spooled(turn.now, chunk, bytes.as_deref(), turn.replies);
                is_served = true;
            }
        }
        is_served
    }
}
