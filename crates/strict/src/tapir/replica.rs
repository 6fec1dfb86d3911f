//! A TAPIR replica: reads, IR below, and the suspicion of coordinators that do not come back.

use super::lag::Lag;
use super::message::{Message, Timer};
use super::node::{IrMessage, Node};
use super::operation::{Decision, Transactions};
use super::options::{Clocks, Options};
use super::reads::{BlockedReads, Reads};
use super::record::Record;
use super::recovery::{Recovery, Verdict};
use super::reservations::Reservations;
use super::shard::{Question, Shard};
use super::state::Checkpoint;
use super::suspicion::Suspicion;
use super::transfer::{Fetching, Lease};
use super::waiting::Waiting;
use crate::caching;
use crate::coordinator::draw_from;
use crate::ir::{self, Change, Port, Status};
use crate::validation::Stamp;
use crate::{Decided, Mutant, Topology};
use mvcc::Tracked;
use protocol::eviction::Cache;
use protocol::hosted::{Holdings, MaintenanceTask};
use protocol::{ContentionStats, Input, Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Incarnation, Instant, NodeId, ReplyBuf, Rng, Timestamp, TransactionId, WallTime};

/// How soon a replica goes on to forget what it could not in one step.
const FORGET_ON: Duration = Duration::from_millis(10);
/// How many intervals are closed in the time of one lag, at most.
const ROUNDS_PER_LAG: u32 = 8;
/// After a round the leader waits for so many times what it took: every round makes each replica write its log twice,
/// and on slow disks what clients ask for stands in line behind that.
const ROUND_SHARE: u32 = 8;
/// A round that took longer waited for another transaction.
const LONGEST_ROUND: Duration = Duration::from_secs(1);
/// How many histories are folded, and records of a replaced state freed, with every synchronization.
const TIDIED: usize = 2_000;

/// See the module's documentation.
pub struct Replica {
    pub(super) topology: Topology,
    pub(super) shard: u16,
    pub(super) address: Address,
    pub(super) incarnation: Incarnation,
    pub(super) options: Options,
    pub(super) ir: ir::Replica<Transactions>,
    pub(super) state: Shard,
    pub(super) suspicion: Suspicion,
    pub(super) recoveries: BTreeMap<TransactionId, Recovery>,
    pub(super) waiting: Waiting,
    pub(super) reservations: Reservations,
    pub(super) late_reads: Vec<BlockedReads>,
    /// The stable bases of the other shards, as far as they have reported.
    bases: BTreeMap<u16, Timestamp>,
    lag: Lag,
    /// When the present round of synchronization began, and the base then; when the next one may.
    round: Option<(Instant, Timestamp)>,
    next_round: Instant,
    /// The base at a time, to be taken anew when that is long ago; and the one before, which is old enough.
    aging: (Instant, Timestamp),
    aged: Timestamp,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) fetching: Option<Fetching>,
    /// What has been fetched so far.
    pub(super) aside: Option<Shard>,
    pub(super) lease: Option<Lease>,
    /// A state that was replaced.
    pub(super) retired: Option<mvcc::DeferredDrop<Stamp>>,
}

/// IR speaks through the outputs of the step.
pub(super) struct Wires<'w, 'o> {
    pub(super) out: &'w mut Outputs<'o, Node>,
    pub(super) options: &'w Options,
    pub(super) now: Instant,
}

impl Port<Transactions> for Wires<'_, '_> {
    fn send(&mut self, to: Address, message: ir::Message<Transactions>) {
        self.out.send(to, Message::Ir { message });
    }

    fn persist(&mut self, change: &Change<'_, Transactions>) {
        if self.options.durability > protocol::Durability::Volatile {
            let record = match change {
                Change::Group { id, group } => Change::Group { id: *id, group },
                Change::View { view, last_normal } => Change::View { view: *view, last_normal: *last_normal },
                Change::Membership(membership) => Change::Membership(membership),
                Change::Points(points) => Change::Points(*points),
            };
            self.out.persist(&Record::Ir(record), self.options.durability);
        }
    }

    fn arm_view_timer(&mut self, after: Duration) {
        self.out.arm(Timer::View, self.now + after);
    }
}

impl Replica {
    /// The replica at an address, which may join the shard later.
    pub(super) fn new(
        topology: Topology,
        shard: u16,
        address: Address,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        let mut state = Shard::new(topology.seed, options.isolation, options.mutants);
        state.set_members(topology.replicas(shard).len());
        Replica {
            ir: ir::Replica::new(topology.configuration(shard), address, options.mutants),
            state,
            topology,
            shard,
            address,
            incarnation,
            options,
            suspicion: Suspicion::default(),
            recoveries: BTreeMap::new(),
            waiting: Waiting::default(),
            reservations: Reservations::default(),
            late_reads: Vec::new(),
            bases: BTreeMap::new(),
            lag: Lag::default(),
            round: None,
            next_round: Instant::default(),
            aging: Default::default(),
            aged: Timestamp::ZERO,
            checkpoint: None,
            fetching: None,
            aside: None,
            lease: None,
            retired: None,
        }
    }

    /// An empty state.
    pub(super) fn fresh_state(&self) -> Shard {
        Shard::new(self.topology.seed, self.options.isolation, self.options.mutants)
    }

    pub(super) fn persist(&self, record: &Record<'_>, out: &mut Outputs<'_, Node>) {
        if self.options.durability > protocol::Durability::Volatile {
            out.persist(record, self.options.durability);
        }
    }

    /// Which shard it holds.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// What it does at present.
    pub fn status(&self) -> Status {
        self.ir.status()
    }

    /// The highest view it has entered.
    pub fn view(&self) -> u64 {
        self.ir.view()
    }

    /// Who the shard's replicas are, as far as it knows, and who is about to be.
    pub fn membership(&self) -> &ir::Membership {
        self.ir.membership()
    }

    /// True while it may have forgotten what it said in an earlier life, and has not learned it again.
    pub fn is_forgetful(&self) -> bool {
        self.ir.is_forgetful()
    }

    /// The last view in which it was NORMAL.
    pub fn last_normal(&self) -> u64 {
        self.ir.last_normal()
    }

    /// The transactions that have not ended here, and whether they hold locks.
    pub fn undecided(&self) -> impl Iterator<Item = (TransactionId, bool)> + '_ {
        self.ir.undecided().map(|(id, held)| (id, held.is_some()))
    }

    /// The transactions that it holds prepared and undecided, and at which timestamps.
    pub fn voted(&self) -> impl Iterator<Item = (TransactionId, Timestamp)> + '_ {
        self.state.prepared().iter().map(|(id, prepare)| (*id, prepare.at))
    }

    /// How many transactions it holds prepared and undecided.
    pub fn prepared(&self) -> usize {
        self.state.prepared().len()
    }

    /// How far synchronization is.
    pub fn points(&self) -> ir::Points {
        self.ir.points()
    }

    /// Which keys transactions meet on here.
    pub fn contention(&self) -> &ContentionStats {
        self.state.contention()
    }

    /// Forgets which.
    pub fn reset_contention(&mut self) {
        self.state.contention_mut().reset();
    }

    /// How many groups the record has.
    pub fn recorded(&self) -> usize {
        self.ir.groups().len()
    }

    /// About how many bytes the state occupies, histories included.
    pub fn memory(&self) -> usize {
        self.state.store().memory()
    }

    /// What it holds.
    pub(crate) fn holdings(&self, cache: Option<Cache>) -> Holdings {
        caching::holdings(self.state.store(), cache)
    }

    /// Adds maintenance tasks: there is no leader, so the first replica does them, and the next ones if it is late.
    pub(crate) fn add_chores(
        &self,
        cache: Option<Cache>,
        now_millis: u64,
        random: &mut Rng,
        maintenance: &mut Vec<MaintenanceTask>,
    ) {
        let members = &self.membership().present.members;
        let index = members.iter().position(|member| *member == self.address);
        let Some(index) = index.filter(|_| self.status() == Status::Normal) else { return };
        caching::add_chores(self.state.store(), cache, (now_millis, index as u64), random, maintenance);
    }

    /// Tracks the use of keys, or no more.
    pub(crate) fn track(&mut self, tracked: Option<Tracked>) {
        self.state.track(tracked);
    }

    /// The newest state of a key, in its binary form, for comparisons.
    pub fn cell(&self, key: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.state.store().cell(self.state.store().hash(key), key, 0).encode(&mut bytes);
        bytes
    }

    /// Every transaction that it knows to have ended and has not forgotten, so that checkers can resolve unknown outcomes.
    pub fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_ {
        self.ir.groups().iter().filter_map(|(id, group)| {
            let decided = match group.outcome.as_ref()? {
                Decision::Commit { at, part } => {
                    Decided::Committed { stamp: Stamp { at: *at, transaction: *id }, effects: part.effects() }
                }
                Decision::Abort => Decided::Aborted,
            };
            Some((*id, decided))
        })
    }

    /// The transactions that it knows to have committed and has not forgotten, with their births.
    pub fn committed(&self) -> impl Iterator<Item = (TransactionId, Timestamp)> + '_ {
        let ended = self.ir.groups().iter();
        let committed = ended.filter(|(_, group)| matches!(group.outcome, Some(Decision::Commit { .. })));
        committed.map(|(id, group)| (*id, group.born))
    }

    pub(super) fn on_input(
        &mut self,
        now: Now,
        input: Input<'_, Node>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        match input {
            Input::Snapshot(chunk) => {
                let outcome = self.recover_chunk(chunk);
                debug_assert!(outcome.is_ok(), "checkpoints are checksummed");
            }
            Input::Recover(bytes) => {
                let outcome = self.recover_record(bytes);
                debug_assert!(outcome.is_ok(), "log records are checksummed");
            }
            Input::Recovered { complete } => {
                self.aside = None;
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.recovered(self.incarnation, complete, &mut self.state, &mut port);
                self.follow_group();
                self.arm_suspicion(now, random, out);
                self.arm_sync(now, random, out);
            }
            Input::Message { from, message } => {
                self.state.set_latest(latest(now.wall, &self.options));
                self.on_message(now, from, message, random, out);
            }
            Input::Timer(Timer::Sync) => {
                let more = self.on_sync_timer(now, out);
                self.arm_sync(now, random, out);
                if more {
                    out.arm(Timer::Sync, now.instant + FORGET_ON);
                }
                self.continue_fetching(now, out);
            }
            Input::Timer(Timer::SkewWait) => {
                self.state.set_latest(latest(now.wall, &self.options));
                self.on_skew_wait(now, out);
                self.answer_late(now, random, out);
                self.arm_skew_wait(now, out);
            }
            Input::Timer(Timer::View) => {
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.on_view_timer(&mut port);
            }
            Input::Timer(Timer::Suspicion) => {
                self.on_suspicion(now, out);
                self.arm_suspicion(now, random, out);
            }
            Input::Timer(_) | Input::PeerStarted { .. } => {}
            Input::Request { id, .. } => {
                out.reply(id).error(&types::Error::err("requests go to a coordinator, not to a replica"));
            }
        }
    }

    fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        self.coordinator_lives(now.instant, from);
        let asks = matches!(
            message,
            Message::Read { .. }
                | Message::Check { .. }
                | Message::Count { .. }
                | Message::Scan { .. }
                | Message::Draw { .. }
                | Message::Suspect { .. }
        );
        if asks && self.ir.status() == Status::Outside {
            let mut port = Wires { out, options: &self.options, now: now.instant };
            return self.ir.turn_away(from.address(), &mut port);
        }
        match message {
            Message::Read { transaction, now_millis, patience_micros, readings } => {
                let reads = Reads { from, transaction, now_millis, readings };
                self.on_read(now, reads, Duration::from_micros(patience_micros.into()), random, out);
            }
            Message::Check { transaction, part } if self.ir.status() == Status::Normal => {
                let (vote, hint) = self.state.check(transaction, &part);
                let view = self.ir.view();
                out.send(from.address(), Message::CheckReply { transaction, view, vote, hint });
            }
            Message::KeysetRead { transaction, step, question } if self.ir.status() == Status::Normal => {
                if let Ok(look) = self.state.look(&question) {
                    out.send(from.address(), Message::LookReply { transaction, step, look });
                }
            }
            Message::Count { transaction } if self.ir.status() == Status::Normal => {
                let keys = self.state.store().len() as u64;
                out.send(from.address(), Message::CountReply { transaction, keys });
            }
            Message::Scan { transaction, cursor, count, now_millis }
                if self.ir.status() == Status::Normal =>
            {
                let (cursor, keys) = self.scan(cursor, count, now_millis);
                out.send(from.address(), Message::ScanReply { transaction, cursor, keys });
            }
            Message::Draw { transaction, except, now_millis } if self.ir.status() == Status::Normal => {
                let (keys, key) = draw_from(self.state.store(), &except, now_millis, random);
                out.send(from.address(), Message::DrawReply { transaction, keys, key });
            }
            Message::Suspect { transaction, born, participants } => {
                self.recover(now, (transaction, born), participants, out)
            }
            Message::Base { base, view } => {
                if let Some(shard) = self.topology.shard_of_node(from).filter(|shard| *shard != self.shard) {
                    let known = self.bases.entry(shard).or_default();
                    *known = base.max(*known);
                    self.is_of_epoch(from, shard, view, out);
                }
            }
            Message::FetchState { place } => self.on_fetch_state(now, from, place, out),
            Message::State { base, place, next, piece } => {
                self.on_state(now, from, base, (place, next), &piece, out);
            }
            Message::Ir { message } => {
                self.on_ir(now, from, message, out);
                self.answer_late(now, random, out);
            }
            _ => {}
        }
    }

    fn scan(&self, mut cursor: u64, count: u32, now_millis: u64) -> (u64, Vec<Box<[u8]>>) {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        for _ in 0..count.max(1).saturating_mul(10) {
            cursor = self.state.store().scan(cursor, |key, record| {
                if !record.cell().is_expired(now_millis) {
                    keys.push(key.into());
                }
            });
            if cursor == 0 || keys.len() >= count as usize {
                break;
            }
        }
        (cursor, keys)
    }

    /// Answers to a recovery are its own; everything else is for the IR replica.
    fn on_ir(
        &mut self,
        now: Now,
        from: NodeId,
        message: ir::Message<Transactions>,
        out: &mut Outputs<'_, Node>,
    ) {
        let place = self.topology.find(from.address());
        // Answers speak of their sender's shard; requests speak of this replica's own shard, which IR checks.
        let answers = matches!(message, ir::Message::CoordinatorPromise { .. } | ir::Message::Confirm { .. });
        if let (true, Some((shard, _)), Some(view)) = (answers, place, message.view())
            && !self.is_of_epoch(from, shard, view, out)
        {
            return;
        }
        match (message, place) {
            (ir::Message::Epoch { configuration, .. }, _)
                if self.topology.shard_of_node(from).is_some_and(|shard| shard != self.shard) =>
            {
                let shard = self.topology.shard_of_node(from).unwrap_or_default();
                self.learn(shard, &configuration);
            }
            (ir::Message::CoordinatorPromise { group, ballot, view, entry }, Some((shard, member))) => {
                let Some(recovery) = self.recoveries.get_mut(&group) else { return };
                recovery.promise(shard, member, ballot, view, entry);
                self.carry_on(group, out);
            }
            (ir::Message::Confirm { group, attempt, view, ballot, result }, Some((shard, member))) => {
                let Some(recovery) = self.recoveries.get_mut(&group) else { return };
                recovery.confirm(shard, member, ballot, view, attempt, result);
                self.carry_on(group, out);
            }
            (ir::Message::Outcome { group, operation }, Some((shard, _))) => {
                let Some(recovery) = self.recoveries.get_mut(&group) else { return };
                recovery.outcome(shard, operation);
                self.carry_on(group, out);
            }
            (ir::Message::Superseded { group, promised }, _) => {
                if self.recoveries.get(&group).is_some_and(|recovery| recovery.ballot() < promised) {
                    self.recoveries.remove(&group);
                    self.suspicion.superseded(group, promised, now.instant);
                }
            }
            (ir::Message::Forgotten { group }, Some(_)) => {
                // It has ended in every shard; whoever still holds it prepared is behind, and catches up.
                self.recoveries.remove(&group);
            }
            // A leader whose clock is far ahead may not close what is yet to come (Corrections 85).
            (ir::Message::Sync { at, .. }, _) if at > latest(now.wall, &self.options) => {}
            (message, _) => {
                self.suspicion.heard(&message, now.instant);
                if let (ir::Message::Propose { group, born, .. }, Some(_)) =
                    (&message, self.options.sync_every)
                    && self.ir.get(*group).is_none()
                    && !self.waiting.holds(*group)
                {
                    self.lag.proposed(*born, now.wall, now.instant, &self.options);
                    self.suspicion.proposed(*group, *born, now.wall);
                }
                if let Some(message) = self.set_aside(now, from, message, out) {
                    self.serve_ir(now, from, message, out);
                }
            }
        }
    }

    /// Hands a message to IR.
    pub(super) fn serve_ir(
        &mut self,
        now: Now,
        from: NodeId,
        message: IrMessage,
        out: &mut Outputs<'_, Node>,
    ) {
        let mut port = Wires { out, options: &self.options, now: now.instant };
        self.ir.on_message(from, message, &mut self.state, &mut port);
        self.follow_group();
        self.resume(now, out);
        if self.ir.behind().is_some() != self.fetching.is_some() {
            self.continue_fetching(now, out);
        }
        if let Some((begun, _)) = self.round.take_if(|(_, base)| *base < self.ir.points().base) {
            let pause = (now.instant - begun).min(LONGEST_ROUND) * ROUND_SHARE;
            self.next_round = self.next_round.max(now.instant + pause);
        }
    }

    /// Trusts clocks so far from now on.
    pub(super) fn set_clocks(&mut self, clocks: Clocks) {
        (self.options.clock_bound, self.options.skew_wait) = (clocks.bound, clocks.wait);
    }

    /// True if a replica of another shard speaks in the epoch that is known of it; of a later one this replica asks
    /// for the configuration, and what is of an earlier one does not count (Corrections 83).
    fn is_of_epoch(&self, from: NodeId, shard: u16, view: u64, out: &mut Outputs<'_, Node>) -> bool {
        let epoch = self.topology.epoch(shard);
        if ir::epoch_of(view) > epoch {
            out.send(from.address(), Message::Ir { message: ir::Message::WhichEpoch { epoch } });
        }
        ir::epoch_of(view) == epoch || self.options.mutants.has(Mutant::CountTwoEpochs)
    }

    /// A shard is of a later epoch. What its earlier replicas said counts with nothing that the present ones say, so
    /// recoveries that queried them begin anew, under another coordinator view.
    fn learn(&mut self, shard: u16, configuration: &ir::Configuration) {
        if self.topology.learn(shard, configuration) {
            self.recoveries.retain(|_, recovery| !recovery.asks(shard));
        }
    }

    /// The same of this replica's own shard.
    fn follow_group(&mut self) {
        if self.ir.membership().present.epoch > self.topology.epoch(self.shard) {
            let present = self.ir.membership().present.clone();
            self.state.set_members(present.members.len());
            self.learn(self.shard, &present);
        }
    }

    fn arm_sync(&self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let Some(every) = self.options.sync_every else { return };
        let half = (every.as_micros() as u64 / 2).max(1);
        let wait = Duration::from_micros(half + random.u64(0..=half));
        out.arm(Timer::Sync, now.instant + wait);
    }

    /// Tells the other shards this shard's base, lets a leader synchronize, and discards outcomes that no coordinator
    /// asks for any more. Says whether there is more to forget.
    fn on_sync_timer(&mut self, now: Now, out: &mut Outputs<'_, Node>) -> bool {
        self.state.tidy(TIDIED);
        if self.retired.as_mut().is_some_and(|remains| !remains.free_some(TIDIED)) {
            self.retired = None;
        }
        if self.ir.status() != Status::Normal {
            return false;
        }
        let base = self.ir.points().base;
        let others = (0..self.topology.shards.len() as u16).filter(|shard| *shard != self.shard);
        for shard in others.clone() {
            let replicas = self.topology.replicas(shard);
            if let Some(to) = replicas.get(self.ir.me().unwrap_or(0) % replicas.len().max(1)) {
                out.send(*to, Message::Base { base, view: self.ir.view() });
            }
        }
        let lag = self.lag.now(&self.options);
        let aged = Timestamp::from_wall(WallTime(now.wall.0.saturating_sub(lag.as_micros() as u64)));
        // Time passes here with transactions, not with a clock that may be wrong.
        let elsewhere = self.bases.values().copied().max().unwrap_or_default();
        let limit = aged.min(self.ir.youngest().max(elsewhere));
        let limit = if now.instant < self.next_round { base } else { limit };
        let base_of = |shard: u16| self.bases.get(&shard).copied().unwrap_or_default();
        if now.instant - self.aging.0 >= lag {
            (self.aged, self.aging) = (self.aging.1, (now.instant, base));
        }
        let forgettable = others.map(base_of).min().unwrap_or(Timestamp::MAX).min(self.aged);
        let alone = self.options.mutants.has(Mutant::ForgetAlone);
        let forgettable = if alone { self.aged } else { forgettable };
        let still = self.stands_still(now.instant);
        self.ir.give_up_round(latest(now.wall, &self.options));
        let mut port = Wires { out, options: &self.options, now: now.instant };
        if self.ir.on_sync_timer(limit, self.options.sync_patience, &mut self.state, &mut port) {
            (self.round, self.next_round) = (Some((now.instant, base)), now.instant + lag / ROUNDS_PER_LAG);
        }
        !still && self.ir.trim(forgettable, &mut self.state, &mut port)
    }

    pub(super) fn tell(&self, shard: u16, message: ir::Message<Transactions>, out: &mut Outputs<'_, Node>) {
        for replica in self.topology.replicas(shard) {
            out.send(*replica, Message::Ir { message: message.clone() });
        }
    }

    /// Takes the next step of a recovery that learned something.
    fn carry_on(&mut self, group: TransactionId, out: &mut Outputs<'_, Node>) {
        let Some(recovery) = self.recoveries.get_mut(&group) else { return };
        match recovery.next(self.options.mutants) {
            Verdict::Wait => {}
            Verdict::Finalize(messages) => {
                for (shard, message) in messages {
                    self.tell(shard, message, out);
                }
            }
            Verdict::Decided(decisions) => {
                let born = recovery.born();
                self.recoveries.remove(&group);
                for (shard, operation) in decisions {
                    let operation = ir::Ending::Whole(operation);
                    self.tell(shard, ir::Message::Execute { group, born, operation }, out);
                }
            }
        }
    }

    /// The result of an operation on the newest state; for tests that compare replicas.
    pub fn peek(&mut self, key: &[u8], operation: &datatypes::Operation<'_>, random: &mut Rng) -> ReplyBuf {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        let transaction = TransactionId::default();
        let question = Question { transaction, key, operation: &bytes, own: &[], now_millis: 0 };
        let evaluated = self.state.read(&question, std::iter::empty(), random).unwrap_or_default();
        evaluated.into_iter().next().map(|evaluation| evaluation.result).unwrap_or_default()
    }
}

/// The greatest timestamp that is believed at this wall time.
fn latest(wall: WallTime, options: &Options) -> Timestamp {
    Timestamp::from_wall(WallTime(wall.0.saturating_add(options.clock_bound.as_micros() as u64)))
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Everything that changes: model checking takes two replicas that print alike for the same.
        f.debug_struct("Replica")
            .field("shard", &self.shard)
            .field("incarnation", &self.incarnation)
            .field("ir", &self.ir)
            .field("state", &self.state)
            .field("suspicion", &self.suspicion)
            .field("recoveries", &self.recoveries)
            .field("waiting", &self.waiting)
            .field("reservations", &self.reservations)
            .field("late_reads", &self.late_reads)
            .field("bases", &self.bases)
            .field("checkpoint", &self.checkpoint)
            .field("fetching", &self.fetching)
            .field("aside", &self.aside)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
