//! The coordinator, which the paper calls the client: runs the transactions of many sessions at once.
//!
//! ```text
//!  request --> evaluate the steps (Read at the closest replica; nothing for blind ones)
//!          --> Prepare at every participant --> every shard PREPARE-OK --> reply, then Commit
//!                                           \-> RETRY: next attempt at a later timestamp
//!                                            \-> refused, and the refusal finalized: Abort, wait, run again
//! ```
//!
//! Sessions, pipelines and the evaluation of steps are as in [`crate::coordinator`]. Here is what TAPIR does between
//! Read and Commit.

mod check;
mod epochs;
mod execute;
mod hot_keys;
mod prepare;
mod replicas;
mod settle;
mod transaction;
mod windowed_minimum;

use super::message::{Message, Timer};
use super::node::IrMessage;
use super::options::{Isolation, Options};
use super::record::Record;
use super::replica::Replica;
use crate::Mutant;
use crate::coordinator::{CommitProtocol, Question, Settings, Wake};
use crate::ir::{first_view, quorum};
use hot_keys::HotKeys;
use protocol::Now;
use replicas::Replicas;
use settle::Settlement;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::time::Duration;
use transaction::{Own, Phase, Transaction};
use types::{HybridClock, Instant, NodeId, Timestamp, WallTime};
use windowed_minimum::WindowedMinimum;

/// How far ahead of the own clock a replica's timestamp may be before it is no longer believed.
const CLOCK_BOUND: Duration = Duration::from_secs(60);
/// For how long reads go to the replica that knew of a conflict instead of the closest one.
const PREFER_FOR: Duration = Duration::from_secs(1);
/// How many operations of a pipeline become one transaction. More would save little and conflict with more.
const TURN: usize = 64;

/// See the module's documentation.
pub type Coordinator = crate::coordinator::Coordinator<Tapir>;
type Step<'s, 'o> = crate::coordinator::Step<'s, 'o, Tapir>;

/// TAPIR's part of the coordinator's state.
pub struct Tapir {
    clock: HybridClock,
    /// By how many microseconds the own clock is ahead of what a quorum of replicas believes; taken off it.
    ahead: u64,
    /// The own clock when that was found. If it is below this again, it was set right since.
    found_at: WallTime,
    /// The greatest timestamp that was committed at.
    committed: Timestamp,
    settlements: BTreeMap<u64, Settlement>,
    /// By shard: a replica that knew more than the closest one, and until when it is read from.
    preferred: BTreeMap<u16, (usize, Instant)>,
    hot: HotKeys,
    windowed_minimum: WindowedMinimum,
    /// How the replicas answer.
    replicas: Replicas,
    /// By shard: the highest view heard of.
    views: BTreeMap<u16, u64>,
    /// By shard: where it is to move.
    replica_move: BTreeMap<u16, epochs::ReplicaMove>,
}

impl CommitProtocol for Tapir {
    type Options = Options;
    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record<'a>;
    type Replica = Replica;
    type Phase = Phase;
    type Own = Own;

    const TURN: usize = TURN;
    /// Nobody waits for locks.
    const AT_ONCE: usize = usize::MAX;
    /// The replicas validate what was seen when the watch began, like any other observation.
    const REREADS_WATCHES: bool = false;

    fn new(_: &Options) -> Self {
        Tapir {
            clock: HybridClock::new(CLOCK_BOUND),
            ahead: 0,
            found_at: WallTime(0),
            committed: Timestamp::ZERO,
            settlements: BTreeMap::new(),
            preferred: BTreeMap::new(),
            hot: HotKeys::default(),
            windowed_minimum: WindowedMinimum::default(),
            replicas: Replicas::default(),
            views: BTreeMap::new(),
            replica_move: BTreeMap::new(),
        }
    }

    fn settings(options: &Options) -> Settings {
        let Options { region, request_timeout, read_timeout, .. } = *options;
        Settings { region, request_timeout, ask_again: read_timeout }
    }

    fn settling(&self) -> usize {
        self.settlements.len()
    }

    fn on_message(
        coordinator: &mut Coordinator,
        from: (u16, usize),
        message: Message,
        step: &mut Step<'_, '_>,
    ) {
        coordinator.on_message(from, message, step);
    }

    fn on_stranger(coordinator: &mut Coordinator, from: NodeId, message: Message, step: &mut Step<'_, '_>) {
        coordinator.on_stranger(from, message, step);
    }

    fn on_timer(coordinator: &mut Coordinator, timer: Timer, step: &mut Step<'_, '_>) {
        match timer {
            Timer::Transaction { number } => coordinator.on_transaction_timer(number, step),
            Timer::Settlement { number } => coordinator.on_settlement_timer(number, step),
            Timer::KeyspaceQuery { number } => coordinator.on_browse_timer(number, step),
            Timer::ReplicaMove { shard } => coordinator.on_placing_timer(shard, step),
            Timer::View | Timer::Suspicion | Timer::Sync | Timer::SkewWait => {}
        }
    }

    fn run_ready(coordinator: &mut Coordinator, step: &mut Step<'_, '_>) -> bool {
        coordinator.run_ready(step)
    }

    fn time(coordinator: &Coordinator, now: Now) -> WallTime {
        coordinator.protocol.wall(now.wall).max(coordinator.protocol.clock.last().wall())
    }

    fn replica_for(coordinator: &Coordinator, shard: u16, tries: u32, now: Instant) -> Option<usize> {
        coordinator.replica_for(shard, tries, now)
    }

    fn begin(coordinator: &mut Coordinator, transaction: Transaction, step: &mut Step<'_, '_>) {
        coordinator.begin(transaction, step);
    }

    fn read(
        coordinator: &mut Coordinator,
        transaction: &Transaction,
        index: usize,
        tries: u32,
        step: &mut Step<'_, '_>,
    ) {
        let shard = transaction.steps.list()[index].call.shard;
        if let Some(member) = coordinator.replica_for(shard, tries, step.now.instant) {
            coordinator.read(transaction, &[index], member, step);
        }
    }

    fn chains(_: &Transaction) -> bool {
        true
    }

    fn read_first(
        coordinator: &mut Coordinator,
        transaction: &Transaction,
        indices: &[usize],
        step: &mut Step<'_, '_>,
    ) {
        coordinator.read_first(transaction, indices, step);
    }

    fn commit(coordinator: &mut Coordinator, transaction: Transaction, step: &mut Step<'_, '_>) {
        coordinator.conclude(transaction, step);
    }

    fn is_committing(phase: &Phase) -> bool {
        matches!(phase, Phase::Preparing(_))
    }

    fn wake(coordinator: &Coordinator, transaction: &Transaction, now: Instant) -> Option<Instant> {
        coordinator.wake(transaction, now)
    }

    fn on_wake(coordinator: &mut Coordinator, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        match &mut transaction.phase {
            Phase::Executing => coordinator.ask_again(transaction, step),
            Phase::QuorumRead(_) => coordinator.on_quorum_read_timer(transaction, step),
            Phase::Checking(_) => coordinator.on_check_timer(transaction, step),
            Phase::Preparing(_) => coordinator.on_prepare_timer(transaction, step),
            Phase::BackingOff { until } if *until > step.now.instant => coordinator.keep(transaction, step),
            Phase::BackingOff { .. } => coordinator.run(transaction, step),
            Phase::InLine => coordinator.keep(transaction, step),
        }
    }

    fn give_up(coordinator: &mut Coordinator, transaction: Transaction, step: &mut Step<'_, '_>) {
        coordinator.give_up(transaction, step);
    }

    /// An acknowledgement of a decision only keeps it from being sent again.
    fn can_wait(message: &Message) -> bool {
        matches!(message, Message::Ir { message: IrMessage::Executed { .. } })
    }

    fn ended(coordinator: &mut Coordinator, transaction: &Transaction) {
        coordinator.leave_hot_keys(transaction);
    }
}

impl Tapir {
    /// The own clock, corrected where replicas have found it too far ahead.
    fn wall(&self, wall: WallTime) -> WallTime {
        let ahead = if wall < self.found_at { 0 } else { self.ahead };
        WallTime(wall.0.saturating_sub(ahead))
    }

    /// A timestamp above every one given before, by the corrected clock.
    fn tick(&mut self, wall: WallTime) -> Timestamp {
        if wall < self.found_at {
            (self.ahead, self.found_at) = (0, WallTime(0));
        }
        self.clock.tick(self.wall(wall))
    }

    /// A quorum of replicas believes no timestamp above `latest`, which is their clock and the bound: from now on stamps
    /// are near their clock (Corrections 85). Where only the order of stamps counts they stay above what was committed
    /// at, for the sake of sessions; elsewhere validation alone decides, and another shard may have believed more.
    fn correct_clock(&mut self, latest: Timestamp, options: &Options, wall: WallTime) {
        let theirs = latest.wall().0.saturating_sub(options.clock_bound.as_micros() as u64);
        (self.ahead, self.found_at) = (wall.0.saturating_sub(theirs), wall);
        self.clock = HybridClock::new(CLOCK_BOUND);
        if options.isolation == Isolation::Serializable {
            self.clock.recover(self.committed);
        }
    }

    /// A quorum of replicas accepts nothing that is born at or below a floor: from now on births are where the leader's
    /// clock is by now, or the floor would soon pass them again. If the own clock was set right meanwhile, less is taken
    /// off it.
    fn follow_floor(&mut self, floor: Timestamp, options: &Options, wall: WallTime) {
        let theirs = WallTime(floor.wall().0 + options.sync_lag.as_micros() as u64);
        self.ahead = self.ahead.min(wall.0.saturating_sub(theirs.0));
        self.clock.recover(Timestamp::from_wall(theirs));
    }
}

impl From<Wake> for Timer {
    fn from(wake: Wake) -> Self {
        match wake {
            Wake::Transaction { number } => Timer::Transaction { number },
            Wake::KeyspaceQuery { number } => Timer::KeyspaceQuery { number },
        }
    }
}

impl From<Question> for Message {
    fn from(question: Question) -> Self {
        match question {
            Question::Count { transaction } => Message::Count { transaction },
            Question::Scan { transaction, cursor, count, now_millis } => {
                Message::Scan { transaction, cursor, count, now_millis }
            }
            Question::Draw { transaction, except, now_millis } => {
                Message::Draw { transaction, except, now_millis }
            }
        }
    }
}

impl Coordinator {
    fn on_message(&mut self, (shard, member): (u16, usize), message: Message, step: &mut Step<'_, '_>) {
        self.protocol.replicas.answered(shard, member);
        if !self.is_of_epoch((shard, member), &message, step) {
            return;
        }
        match message {
            Message::ReadReply { transaction, view, answers } if self.is_mine(transaction) => {
                self.on_read_reply((shard, member), transaction.number, view, answers, step);
            }
            Message::LookReply { transaction, step: index, look } if self.is_mine(transaction) => {
                self.on_look_reply(shard, transaction.number, index, look, step);
            }
            Message::CheckReply { transaction, view, vote, hint } if self.is_mine(transaction) => {
                self.on_check_reply((shard, member), transaction.number, view, (vote, hint), step);
            }
            Message::CountReply { transaction, keys } if self.is_mine(transaction) => {
                self.on_count_reply(transaction.number, shard, keys, step);
            }
            Message::ScanReply { transaction, cursor, keys } if self.is_mine(transaction) => {
                self.on_scan_reply(transaction.number, shard, cursor, &keys, step);
            }
            Message::DrawReply { transaction, keys, key } if self.is_mine(transaction) => {
                self.on_draw_reply(transaction.number, shard, (keys, key), step);
            }
            Message::Ir { message } => self.on_ir(shard, member, message, step),
            _ => {}
        }
    }

    fn on_ir(&mut self, shard: u16, member: usize, message: IrMessage, step: &mut Step<'_, '_>) {
        match message {
            IrMessage::Reply { group, attempt, view, result, finalized, hint } if self.is_mine(group) => {
                self.see_view(shard, view);
                let reply = prepare::Reply { attempt, view, result, finalized, hint };
                self.on_reply(shard, member, group.number, &reply, step);
            }
            IrMessage::Confirm { group, attempt, view, ballot, result } if self.is_mine(group) => {
                self.see_view(shard, view);
                if ballot.round == 0 {
                    self.on_confirm(shard, member, group.number, (attempt, view, result), step);
                }
            }
            IrMessage::Executed { group, view } if self.is_mine(group) => {
                self.see_view(shard, view);
                self.on_executed(shard, member, group.number, step);
            }
            IrMessage::Outcome { group, operation } if self.is_mine(group) => {
                self.on_outcome(group.number, &operation, step);
            }
            IrMessage::Forgotten { group } if self.is_mine(group) => self.on_forgotten(group.number, step),
            IrMessage::Epoch { configuration, .. } => self.on_epoch(shard, &configuration, step),
            // A backup coordinator has taken over: the next retry learns the outcome.
            _ => {}
        }
    }

    /// The highest view of a shard that was heard of.
    fn view(&self, shard: u16) -> u64 {
        let heard = self.protocol.views.get(&shard).copied();
        heard.unwrap_or_else(|| first_view(self.topology.epoch(shard)))
    }

    fn see_view(&mut self, shard: u16, view: u64) {
        let seen = self.protocol.views.entry(shard).or_default();
        *seen = view.max(*seen);
    }

    fn send_ir(&mut self, shard: u16, message: &IrMessage, step: &mut Step<'_, '_>) {
        for (member, replica) in self.topology.replicas(shard).iter().enumerate() {
            self.protocol.replicas.queried(shard, member, step.now.instant);
            step.out.send(*replica, Message::Ir { message: message.clone() });
        }
    }

    /// The replica of a shard to ask at the given try: the preferred or the closest first, then the others; those
    /// that are silent last.
    fn replica_for(&self, shard: u16, tries: u32, now: Instant) -> Option<usize> {
        let members = self.by_distance(shard, now);
        (!members.is_empty()).then(|| members[tries as usize % members.len()])
    }

    /// The replicas of a shard, in the order in which the coordinator queries them.
    fn by_distance(&self, shard: u16, now: Instant) -> SmallVec<[usize; 8]> {
        let replicas = self.topology.replicas(shard);
        let preferred =
            self.protocol.preferred.get(&shard).filter(|(_, until)| *until > now).map(|(member, _)| *member);
        let near = self.options.near.unwrap_or(self.process);
        let distance = |member: &usize| {
            let is_remote = replicas[*member].process != near;
            let silent = self.protocol.replicas.is_silent(shard, *member, now, self.options.fast_timeout);
            let usual = self.protocol.replicas.usual(shard, *member).filter(|_| is_remote);
            let turn =
                (member + replicas.len() - usize::from(self.process.0) % replicas.len()) % replicas.len();
            (silent, preferred != Some(*member), is_remote, usual, turn)
        };
        let mut members: SmallVec<[usize; 8]> = (0..replicas.len()).collect();
        members.sort_by_cached_key(distance);
        members
    }

    /// Whom a question goes to that f+1 replicas of a shard answer together: to the f+1 closest, or to all of them
    /// where these have disagreed lately, so that no second round trip is needed. One that has answered already is one
    /// of them.
    fn first_queried(
        &self,
        shard: u16,
        answered: Option<usize>,
        disputed: bool,
        now: Instant,
    ) -> SmallVec<[usize; 8]> {
        let mut members = self.by_distance(shard, now);
        if let Some(place) = members.iter().position(|member| Some(*member) == answered) {
            members[..=place].rotate_right(1);
        }
        if !disputed && !self.options.mutants.has(Mutant::SingleReplicaReads) {
            members.truncate(quorum(members.len()));
        }
        members
    }

    fn prefer(&mut self, shard: u16, member: usize, now: Instant) {
        self.protocol.preferred.insert(shard, (member, now + PREFER_FOR));
    }

    /// When a transaction wants to be looked at next.
    fn wake(&self, transaction: &Transaction, now: Instant) -> Option<Instant> {
        let own = match &transaction.phase {
            Phase::Executing => self.next_read_timeout(transaction),
            Phase::QuorumRead(read) => Some(self.quorum_read_until(transaction, read)),
            Phase::Preparing(preparing) => {
                let slow = preparing
                    .shards
                    .iter()
                    .filter_map(|(shard, votes)| self.slow_at(preparing, *shard, votes));
                slow.filter(|at| *at > now).chain([preparing.resend_at]).min()
            }
            Phase::Checking(check) => Some(self.check_until(check)),
            Phase::BackingOff { until } => Some(*until),
            Phase::InLine => None,
        };
        let deadline = transaction.request.is_some() || !matches!(transaction.phase, Phase::Executing);
        [own, deadline.then_some(transaction.deadline)].into_iter().flatten().min()
    }
}

impl std::fmt::Debug for Tapir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not how the replicas answer, which decides nothing in a model.
        f.debug_struct("Tapir")
            .field("clock", &self.clock)
            .field("settlements", &self.settlements)
            .field("preferred", &self.preferred)
            .field("hot", &self.hot)
            .field("views", &self.views)
            .field("placing", &self.replica_move)
            .finish_non_exhaustive()
    }
}
