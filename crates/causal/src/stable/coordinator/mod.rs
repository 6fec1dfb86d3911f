//! The coordinator: hosted by a gateway, it is the paper's client library and the coordinator half of its servers
//! (Wren, Algorithms 4 and 5). It keeps nothing that must survive (Corrections 73).
//!
//! `ask` copies and classifies requests, `session` is the state of a client, `thread` a causal thread with its cache,
//! `routes` the ways to partitions, `running` a transaction under way; `slices` reads, `votes` commits, `finish`
//! answers and claims, `rerun` what becomes of a pipeline's commands that ran as one in vain, `lost` of what regions
//! that are gone for good took part in, `optimistic` of sessions that know what they depend on, `pessimistic` of those
//! whose region is cut off from that.
//!
//! Its snapshot is the latest stable times that it has received, so that a transaction begins without a message: while
//! clients send requests, the coordinator subscribes to the stable times at one partition. Requests of one session run
//! serially; sessions run concurrently.

mod ask;
mod context;
mod draw;
mod finish;
mod lost;
mod optimistic;
mod pessimistic;
mod replies;
mod rerun;
mod routes;
mod running;
mod session;
mod slices;
mod thread;
mod votes;

pub(crate) use ask::{Ask, KeyAction, PlannedStep};
pub(crate) use replies::{Replies, keyspace_work_of, known_reply};
pub(crate) use slices::work_of;

use super::message::Message;
use super::setup::{Options, Scope, Topology};
use super::token::Token;
use super::{Mutant, Node, Timer, Times};
use lost::LostRegions;
use protocol::{Claim, Input, Now, Outputs};
use routes::Routes;
use running::{Phase, Running, UnconfirmedDecision};
use session::{Open, Session, Waiting, Watch};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use thread::Thread;
use types::{
    Address, Error, ErrorCode, Incarnation, Instant, NodeId, ProcessId, RegionId, RequestId, Rng, SessionId,
    Timestamp, TransactionId,
};

/// How many ticks of a partition there are between two questions for the stable times. Subscribers get them sooner.
const TICKS: u32 = 4;
/// After how many unanswered queries for the stable times the coordinator turns to another partition.
const PATIENCE: u32 = 5;
/// The same for one in another region, from where the first answer takes its time.
const FAR_PATIENCE: u32 = 50;
/// For how long after the last request of a client it subscribes to the stable times.
const ATTENTION: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Coordinator<S: Times> {
    topology: Topology,
    region: RegionId,
    process: ProcessId,
    incarnation: Incarnation,
    options: Options,
    /// The number of the next transaction.
    next: u64,
    /// The numbers of transactions that have not ended everywhere.
    unsettled: BTreeSet<u64>,
    /// By replica the stable times that it was sent last.
    settled: BTreeMap<Address, u64>,
    /// The newest stable times that it knows.
    stable: S,
    /// The log of this process refuses records.
    is_refusing: bool,
    /// The partitions that serve the stable times, in turn.
    homes: Vec<Address>,
    /// Which of them the coordinator queries.
    home: usize,
    routes: Routes,
    unanswered: u32,
    /// When a client last sent a request.
    last_request: Instant,
    /// What the partitions of the region have received, where snapshots show that, and the time of their last report.
    received: BTreeMap<u16, (S, Instant)>,
    /// The regions from which partitions are declared cut off, with what these had received of them then.
    declared: BTreeMap<(u16, RegionId), Timestamp>,
    /// How often a session became pessimistic.
    degraded: u64,
    threads: BTreeMap<Option<SessionId>, Thread<S>>,
    /// Sessions with a thread of their own where the others share one.
    private: BTreeSet<SessionId>,
    sessions: BTreeMap<SessionId, Session<S>>,
    /// The region was evicted: nothing is served any more (Corrections 36).
    is_evicted: bool,
    /// Other regions that are gone for good.
    losses: LostRegions,
    running: BTreeMap<u64, Running<S>>,
    unconfirmed: BTreeMap<u64, UnconfirmedDecision>,
    /// The newest life of each partition that was heard.
    lives: BTreeMap<Address, Incarnation>,
    /// Sessions whose transaction has ended in this step and that may go on.
    free: VecDeque<SessionId>,
    claims: Vec<Claim>,
    /// The latest time of a snapshot that it has given.
    given: Timestamp,
}

impl<S: Times> Coordinator<S> {
    pub(super) fn new(
        topology: Topology,
        region: RegionId,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        let here: Vec<Address> = topology.held(region).map(|(_, replica)| replica).collect();
        let elsewhere = topology.others(region).filter(|_| S::UNIVERSAL);
        let elsewhere: Vec<Address> =
            elsewhere.flat_map(|other| topology.held(other)).map(|(_, replica)| replica).collect();
        // Where snapshots have an entry for each region, none is left out: it counts as zero.
        let nothing = topology.others(region).map(|other| (other, Timestamp::ZERO));
        let stable = match S::OPTIMISTIC {
            true => S::of_partition(region, Timestamp::ZERO, nothing),
            false => S::default(),
        };
        Coordinator {
            home: usize::from(process.0) % here.len().max(1),
            homes: here.into_iter().chain(elsewhere).collect(),
            routes: Routes::new(&topology, region, S::UNIVERSAL, options.copied),
            topology,
            region,
            process,
            incarnation,
            options,
            next: 0,
            unsettled: BTreeSet::new(),
            settled: BTreeMap::new(),
            stable,
            is_refusing: false,
            unanswered: 0,
            last_request: Instant::default(),
            received: BTreeMap::new(),
            declared: BTreeMap::new(),
            degraded: 0,
            threads: BTreeMap::new(),
            private: BTreeSet::new(),
            sessions: BTreeMap::new(),
            is_evicted: false,
            losses: LostRegions::default(),
            running: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            lives: BTreeMap::new(),
            free: VecDeque::new(),
            claims: Vec::new(),
            given: Timestamp::ZERO,
        }
    }

    /// A coordinator like this one without requests.
    pub(in crate::stable) fn fresh(&self) -> Self {
        Coordinator::new(self.topology.clone(), self.region, self.process, self.incarnation, self.options)
    }

    /// The stable times that it knows.
    pub fn stable(&self) -> S {
        self.stable
    }

    /// Where it stands.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// How many transactions are under way or not confirmed by all their participants.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// How many transactions the caches of its threads hold.
    pub fn cached(&self) -> usize {
        self.threads.values().map(Thread::len).sum()
    }

    /// Of how many sessions it keeps anything.
    pub fn retained_sessions(&self) -> usize {
        self.sessions.keys().map(|session| Some(*session)).chain(self.threads.keys().copied()).count()
    }

    /// True once it knows that its region was evicted.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted
    }

    pub(super) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// Requests that come together are all queued before one of them begins: those of a session may run as one.
    pub(super) fn step<'i>(
        &mut self,
        now: Now,
        inputs: impl Iterator<Item = Input<'i, Node<S>>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        for input in inputs {
            let may_wait = matches!(input, Input::Request { .. });
            self.step_one(now, input, random, out);
            if !may_wait {
                self.go_on_all(now, out);
            }
        }
        self.go_on_all(now, out);
    }

    fn go_on_all(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        while let Some(session) = self.free.pop_front() {
            self.go_on(now, session, out);
        }
    }

    fn step_one(
        &mut self,
        now: Now,
        input: Input<'_, Node<S>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        match input {
            Input::Recovered { .. } => self.on_start_tx(now, out),
            Input::Timer(Timer::StartTx) => self.on_start_tx(now, out),
            Input::Timer(Timer::Retry(number)) => self.on_retry(now, number, random, out),
            Input::Request { id, request } => {
                let was_idle = !self.is_attentive(now);
                self.last_request = now.instant;
                if was_idle {
                    self.ask_homes(now, self.oldest(now), out);
                }
                let (session, ask) = (request.session(), Ask::new(&request, &self.topology, Token::open));
                let waiting = Waiting { id, ask, since: now.instant, alone: false };
                self.sessions.entry(session).or_default().queue.push_back(waiting);
                self.free.push_back(session);
            }
            Input::Message { from, message } => {
                let life = self.lives.entry(from.address()).or_insert(from.incarnation);
                *life = from.incarnation.max(*life);
                self.on_message(now, from, message, random, out);
            }
            Input::Snapshot(_) | Input::Recover(_) | Input::PeerStarted { .. } | Input::Timer(_) => {}
        }
    }

    fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message<S>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        match message {
            Message::StartTxResp { stable, received } => {
                self.on_start_tx_resp(now, from.address(), stable, received, out);
            }
            Message::SliceResp { id, round, outcome, received } => {
                self.note_received(now, from.address(), received);
                self.on_slice_resp(now, from.address(), id, round, outcome, random, out);
            }
            Message::PrepareResp { id, vote } => self.on_prepare_resp(now, from, id, vote, random, out),
            Message::CommitResp { id, at } => {
                self.on_commit_resp(now, from.address(), id, at, random, out);
            }
            Message::Evict { regions } if regions.contains(&self.region) => {
                self.is_evicted = true;
                self.free.extend(self.sessions.keys());
            }
            Message::Evict { regions } if S::UNIVERSAL => {
                regions.into_iter().for_each(|region| self.lose(now, region, out));
            }
            Message::Lost { gone } => self.on_lost(now, &gone, random, out),
            _ => {}
        }
    }

    /// Asks for the stable times and leases the oldest snapshot that is still read.
    fn on_start_tx(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        self.unanswered += 1;
        let (home, here) = (self.homes[self.home], self.region);
        let is_near = self.topology.locate(home).is_some_and(|(region, _)| region == here);
        let patience = if is_near { PATIENCE } else { FAR_PATIENCE };
        if self.unanswered > patience {
            (self.unanswered, self.home) = (0, (self.home + 1) % self.homes.len());
        }
        let oldest = self.oldest(now);
        self.probe(now, oldest, out);
        let ticks = match self.follows_all(now) {
            true => 1,
            false => TICKS,
        };
        self.ask_homes(now, oldest, out);
        self.prune(oldest);
        self.give_up_waiting(now, out);
        out.arm(Timer::StartTx, now.instant + self.options.tick_every * ticks * S::GOSSIP_RARER);
    }

    /// Where snapshots show what has been received, each partition tells that, at every tick, while anybody waits for it. One that has
    /// answered reads since the last tick has told it with those.
    fn follows_all(&self, now: Now) -> bool {
        S::OPTIMISTIC && (self.is_attentive(now) || !self.running.is_empty() || self.has_abandoned())
    }

    fn ask_homes(&self, now: Now, oldest: S, out: &mut Outputs<'_, Node<S>>) {
        let (home, follows_all) = (self.homes[self.home], self.follows_all(now));
        let has_reported = |partition: u16| {
            let report = self.received.get(&partition);
            report.is_some_and(|(_, heard_at)| now.instant - *heard_at < self.options.tick_every)
        };
        let is_due = |other: &&Address| follows_all && !self.partition_at(**other).is_some_and(has_reported);
        for to_query in self.homes.iter().filter(|other| **other == home || is_due(other)) {
            self.ask(now, *to_query, oldest, out);
        }
    }

    /// Asks a partition for the stable times; at the one that it asks regularly it also subscribes to them.
    fn ask(&self, now: Now, partition: Address, oldest: S, out: &mut Outputs<'_, Node<S>>) {
        let subscribes = partition == self.homes[self.home] && self.is_attentive(now);
        out.send(partition, Message::StartTx { stable: self.stable, oldest, gone: self.gone(), subscribes });
    }

    /// True while clients ask for something.
    fn is_attentive(&self, now: Now) -> bool {
        now.instant - self.last_request < ATTENTION
    }

    /// Drops from the caches what every snapshot from this one on shows.
    fn prune(&mut self, oldest: S) {
        let shown = if self.options.mutants.has(Mutant::PrunedForNewest) { self.stable } else { oldest };
        self.threads.values_mut().for_each(|thread| thread.prune(shown.reach()));
    }

    fn on_start_tx_resp(
        &mut self,
        now: Now,
        from: Address,
        stable: S,
        received: Option<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.routes.heard(from, now.instant);
        if from == self.homes[self.home] {
            self.unanswered = 0;
        }
        let ready = self.is_ready();
        self.note_received(now, from, received);
        if self.options.mutants.has(Mutant::NonMonotoneSnapshot) {
            self.stable = stable;
        } else {
            self.stable = self.stable.newest(stable);
        }
        if !S::OPTIMISTIC {
            self.prune(self.oldest(now));
        }
        self.release_held(now, out);
        let begins = !ready && self.is_ready();
        if begins || !S::OPTIMISTIC {
            let restores = |state: &Session<S>| state.queue.front().is_some_and(Waiting::restores);
            let freed = self.sessions.iter().filter(|(_, state)| begins || restores(state));
            self.free.extend(freed.map(|(session, _)| *session));
        }
    }

    /// True once there is a stable snapshot to read.
    fn is_ready(&self) -> bool {
        match S::OPTIMISTIC {
            true => !self.received.is_empty(),
            false => self.stable.reach() > Timestamp::ZERO,
        }
    }

    fn note_received(&mut self, now: Now, from: Address, received: Option<S>) {
        if let Some((partition, received)) = self.partition_at(from).zip(received) {
            let known = self.received.get(&partition).map_or(S::default(), |(known, _)| *known);
            let received = known.newest(self.without_lost(received));
            self.received.insert(partition, (received, now.instant));
        }
    }

    /// The snapshot of a transaction that begins now.
    fn snapshot(&mut self, now: Now, session: SessionId) -> S {
        if S::OPTIMISTIC {
            return self.open_snapshot(now, session);
        }
        let clock = Timestamp::from_wall(now.wall);
        if self.options.mutants.has(Mutant::ReadAboveStable) {
            return self.stable.reaching(self.region, clock).readable();
        }
        if self.options.mutants.has(Mutant::RemoteNotBelowLocal) {
            return self.stable;
        }
        let newest = clock.max(self.thread(session).highest).max(self.given);
        let snapshot = self.stable.begin(self.region, newest);
        self.given = self.given.max(snapshot.reach());
        snapshot
    }

    /// The oldest snapshot that something still reads, or else the one that would be given now.
    fn oldest(&self, now: Now) -> S {
        let current = self.stable.readable();
        let reads = |running: &&Running<S>| {
            running.request.is_some()
                && !matches!(running.phase, Phase::Holding { .. } | Phase::Deciding { .. })
        };
        let running = self.running.values().filter(reads).map(|running| running.snapshot);
        let open = self.sessions.values().filter_map(|session| Some(session.open.as_ref()?.snapshot));
        let watches = self.sessions.values().flat_map(|session| &session.watches);
        let watched = watches.filter(|(_, watch)| watch.deadline > now.instant).map(|(_, watch)| watch.since);
        running.chain(open).chain(watched).fold(current, |oldest, read| {
            match self.options.mutants.has(Mutant::HorizonByMaximum) {
                true => oldest.newest(read),
                false => oldest.oldest(read),
            }
        })
    }

    fn thread_key(&self, session: SessionId) -> Option<SessionId> {
        match self.options.scope {
            Scope::Process if !self.private.contains(&session) => None,
            Scope::Process | Scope::Session => Some(session),
        }
    }

    fn thread(&mut self, session: SessionId) -> &mut Thread<S> {
        let key = self.thread_key(session);
        self.threads.entry(key).or_default()
    }

    fn id(&self, number: u64) -> TransactionId {
        TransactionId { process: self.process, incarnation: self.incarnation, number }
    }

    /// A transaction of this life by its id.
    fn number(&self, id: TransactionId) -> Option<u64> {
        (id.process == self.process && id.incarnation == self.incarnation).then_some(id.number)
    }

    /// The partition that has a replica at an address.
    fn partition_at(&self, address: Address) -> Option<u16> {
        self.topology.locate(address).map(|(_, partition)| partition)
    }

    /// A partition in words, and where it is.
    fn whereabouts(&self, partition: u16) -> String {
        match S::UNIVERSAL {
            true => format!("partition {partition} (in the regions {})", self.topology.names(partition)),
            false => format!("partition {partition} of the region"),
        }
    }

    fn new_number(&mut self) -> u64 {
        self.next += 1;
        self.unsettled.insert(self.next);
        self.next
    }

    /// Every transaction with a lower number that a replica had a part in has ended everywhere.
    fn settled(&mut self, replica: Address) -> u64 {
        let before = self.settled.get(&replica).copied().unwrap_or_default();
        let mut unsettled = self.unsettled.range(before..).copied();
        let settled = unsettled.find(|number| self.may_concern(*number, replica)).unwrap_or(self.next + 1);
        self.settled.insert(replica, settled);
        settled
    }

    /// False if it was sent to other participants: another attempt has another number.
    fn may_concern(&self, number: u64, replica: Address) -> bool {
        match self.running.get(&number).map(|running| &running.phase) {
            Some(Phase::Preparing(prepared) | Phase::Deciding { prepared, .. }) => {
                prepared.participants.values().any(|participant| *participant == replica)
            }
            _ => true,
        }
    }

    /// Starts the session's requests until one of them has to wait.
    fn go_on(&mut self, now: Now, session: SessionId, out: &mut Outputs<'_, Node<S>>) {
        while self.is_ready() || self.is_evicted {
            let Some(state) = self.sessions.get_mut(&session).filter(|state| state.running.is_none()) else {
                return;
            };
            let (snapshot, region, mutants) = (self.stable.readable(), self.region, self.options.mutants);
            let ahead = |waiting: &Waiting| waiting.ask.is_ahead_of(snapshot, region, mutants);
            let waits = state.open.is_none() && !self.is_evicted;
            if waits && state.queue.front().is_some_and(ahead) {
                return;
            }
            let Some(Waiting { id, mut ask, alone, .. }) = state.queue.pop_front() else { break };
            if self.is_evicted && !matches!(ask, Ask::Close) {
                let error = Error::new(ErrorCode::Unavailable, self.topology.why_evicted(self.region));
                out.reply(id).error(&error);
                state.fail_open(error);
                continue;
            }
            if let Some(error) = self.losses.losing_sessions.remove(&session)
                && !matches!(ask, Ask::Close)
            {
                out.reply(id).error(&error);
                if matches!(ask, Ask::Abort) {
                    // Its transaction has ended before.
                    state.failed = None;
                }
                continue;
            }
            let most = if alone { 1 } else { self.options.pipelined };
            let riders = state.join_riders(&mut ask, S::OBSERVES, most);
            self.start(now, session, id, riders, ask, out);
        }
        if let Some(state) = self.sessions.get(&session).filter(|state| state.is_idle()) {
            if state.closed {
                // What was under way may have written.
                self.threads.remove(&Some(session));
            }
            self.sessions.remove(&session);
        }
    }

    fn start(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        riders: Vec<RequestId>,
        ask: Ask,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        match ask {
            Ask::Steps { steps, watched } => {
                self.start_steps(now, session, id, riders, steps, watched, out);
            }
            Ask::Refused(error) => out.reply(id).error(&error),
            Ask::Watch { keys } if S::OPTIMISTIC => self.watch_decided(now, session, id, keys, out),
            Ask::Watch { keys } => {
                self.watch(now, session, keys);
                out.reply(id).simple("OK");
            }
            Ask::Unwatch => {
                self.sessions.entry(session).or_default().watches.clear();
                out.reply(id).simple("OK");
            }
            Ask::Begin { read_only, watched } => self.begin(now, session, id, read_only, watched, out),
            Ask::Operate { steps } => self.operate(now, session, id, steps, out),
            Ask::Commit => self.commit(now, session, id, out),
            Ask::Abort => {
                let state = self.sessions.entry(session).or_default();
                (state.open, state.failed) = (None, None);
                out.reply(id).simple("OK");
            }
            Ask::Token => self.tell_context(session, id, out),
            Ask::Restore { token, .. } => self.restored(session, id, token, out),
            Ask::Scope { private } => self.set_scope(session, id, private, out),
            Ask::NewContext | Ask::UseContext(_) | Ask::DropContext(_) => {
                out.reply(id).error(&context::of_another_protocol());
            }
            Ask::Close => {
                let state = self.sessions.entry(session).or_default();
                (state.open, state.failed) = (None, None);
                state.watches.clear();
                self.private.remove(&session);
                self.threads.remove(&Some(session));
            }
        }
    }

    fn watch(&mut self, now: Now, session: SessionId, keys: Vec<(Box<[u8]>, u16)>) {
        let (since, deadline) = (self.snapshot(now, session), now.instant + self.options.open_for);
        for (key, partition) in keys {
            let thread = self.thread(session);
            let at_millis = millis(now, thread.highest);
            let (_, own) = thread.overlay(&key, since.reach(), thread.epoch);
            let watches = &mut self.sessions.entry(session).or_default().watches;
            watches.entry(key).or_insert(Watch { partition, since, at_millis, own, deadline });
        }
    }

    fn begin(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        read_only: bool,
        watched: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let snapshot = self.snapshot(now, session);
        let (epoch, highest) = (self.thread(session).epoch, self.thread(session).highest);
        let now_millis = millis(now, highest);
        let deadline = now.instant + self.options.open_for;
        let state = self.sessions.entry(session).or_default();
        if state.open.is_some() {
            let text = "a transaction is already open in this session; commit or abort it first";
            return out.reply(id).error(&Error::err(text));
        }
        state.failed = None;
        state.open =
            Some(Open { snapshot, epoch, now_millis, read_only, watched, deadline, done: Vec::new() });
        out.reply(id).simple("OK");
    }

    /// Why the session has no open transaction.
    fn missing(&self, session: SessionId) -> Error {
        let failed = self.sessions.get(&session).and_then(|state| state.failed.clone());
        failed.unwrap_or_else(|| Error::refused("no transaction is open in this session"))
    }

    /// Gives up what has waited too long for its turn, and what has been open for too long.
    fn give_up_waiting(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let (patience, ready) = (self.options.give_up_after, self.is_ready());
        // What is under way is given up first: that decides on what waits behind it.
        let goes_on = |number: &u64| self.running.get(number).is_some_and(|ahead| ahead.request.is_some());
        let seconds = self.options.open_for.as_secs();
        for (session, state) in &mut self.sessions {
            if state.open.as_ref().is_some_and(|open| open.deadline <= now.instant) {
                let text = format!(
                    "the transaction was open for more than {seconds} seconds and was given up; begin it again"
                );
                state.fail_open(Error::new(ErrorCode::SnapshotTooOld, text));
            }
            let is_late = |waiting: &Waiting| match waiting.ask {
                Ask::Restore { timeout, .. } => now.instant - waiting.since >= timeout,
                _ => now.instant - waiting.since >= patience,
            };
            while !state.running.as_ref().is_some_and(goes_on) && state.queue.front().is_some_and(is_late) {
                let Some(waiting) = state.queue.pop_front() else { break };
                if matches!(waiting.ask, Ask::Close) {
                    (state.open, state.failed) = (None, None);
                    state.watches.clear();
                    state.closed = true;
                    self.private.remove(session);
                    self.threads.remove(&Some(*session));
                    continue;
                }
                let text = if ready && state.running.is_none() && waiting.restores() {
                    "this region does not show yet all that the context has seen; nothing was done; try again, with a \
                     longer TIMEOUT if regions are far from one another or cut off"
                } else if ready {
                    "an earlier transaction of this session is not resolved yet; nothing was done"
                } else if S::UNIVERSAL {
                    "no stable snapshot is known yet: it takes reports of all regions; nothing was done"
                } else {
                    "no partition of this region has reported a stable snapshot yet; nothing was done"
                };
                let error = Error::new(ErrorCode::Unavailable, text);
                out.reply(waiting.id).error(&error);
                if waiting.restores() {
                    // What came after it has waited for it, not for its own turn.
                    state.queue.iter_mut().for_each(|behind| behind.since = now.instant);
                }
                match waiting.ask {
                    Ask::Operate { .. } => state.fail_open(error),
                    Ask::Commit => (state.open, state.failed) = (None, None),
                    _ => {}
                }
            }
        }
        self.sessions.retain(|_, state| !state.is_idle());
    }
}

/// The time that deadlines compare with: the wall clock, or the session's last write if that is later.
pub(crate) fn millis(now: Now, highest: Timestamp) -> u64 {
    now.wall.max(highest.wall()).as_millis()
}

/// Until a question is repeated: the longer it is overdue, the more rarely.
pub(crate) fn retry_in(every: Duration, overdue: Duration) -> Duration {
    overdue.clamp(every, every * 10)
}

/// How long to wait before the attempt after this many.
fn backoff(attempts: u32, random: &mut Rng) -> Duration {
    Duration::from_micros(random.u64(200..1000 << attempts.min(6)))
}
