//! The coordinator, which the paper calls the client: runs the transactions of many sessions at once.
//!
//! ```text
//!  request --> evaluate the steps (Read at the closest replica; nothing for blind ones)
//!          --> Prepare at every participant --> every shard PREPARE-OK --> reply, then Commit
//!                                           \-> RETRY: next attempt at a later timestamp
//!                                            \-> refused, and the refusal finalized: Abort, wait, run again
//! ```

mod browse;
mod check;
mod execute;
mod hot_keys;
mod prepare;
mod replicas;
mod sessions;
mod settle;
mod transaction;
mod turns;

use super::message::{Message, Timer};
use super::node::{IrMessage, Node};
use super::options::Options;
use super::topology::Topology;
use browse::Browse;
use clock::HybridClock;
use hot_keys::HotKeys;
use protocol::{Claim, Input, Now, Outputs};
use replicas::Replicas;
use sessions::Session;
use settle::Settlement;
use std::collections::BTreeMap;
use std::time::Duration;
use transaction::{Phase, Transaction};
use types::{Error, Incarnation, Instant, NodeId, ProcessId, Rng, SessionId, TransactionId};

/// How far ahead of the own clock a replica's timestamp may be before it is no longer believed.
const CLOCK_BOUND: Duration = Duration::from_secs(60);
/// For how long reads go to the replica that knew of a conflict instead of the closest one.
const PREFER_FOR: Duration = Duration::from_secs(1);

/// See the module's documentation.
pub struct Coordinator {
    topology: Topology,
    options: Options,
    process: ProcessId,
    incarnation: Incarnation,
    /// Numbers of transactions and questions; never reset in this life.
    counter: u64,
    clock: HybridClock,
    transactions: BTreeMap<u64, Transaction>,
    settlements: BTreeMap<u64, Settlement>,
    browses: BTreeMap<u64, Browse>,
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions whose queued operations may run.
    turns: Vec<SessionId>,
    /// By shard: a replica that knew more than the closest one, and until when it is read from.
    preferred: BTreeMap<u16, (usize, Instant)>,
    hot: HotKeys,
    /// How the replicas answer.
    replicas: Replicas,
    /// By shard: the highest view heard of.
    views: BTreeMap<u16, u64>,
    claims: Vec<Claim>,
}

/// What a handler works with beside the coordinator.
struct Step<'s, 'o> {
    now: Now,
    random: &'s mut Rng,
    out: &'s mut Outputs<'o, Node>,
}

impl Coordinator {
    pub(super) fn new(
        topology: Topology,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        Coordinator {
            topology,
            options,
            process,
            incarnation,
            counter: 0,
            clock: HybridClock::new(CLOCK_BOUND),
            transactions: BTreeMap::new(),
            settlements: BTreeMap::new(),
            browses: BTreeMap::new(),
            sessions: BTreeMap::new(),
            turns: Vec::new(),
            preferred: BTreeMap::new(),
            hot: HotKeys::default(),
            replicas: Replicas::default(),
            views: BTreeMap::new(),
            claims: Vec::new(),
        }
    }

    pub(super) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// How many transactions are in progress, decided ones that not every replica has acknowledged included.
    pub fn in_progress(&self) -> usize {
        self.transactions.len() + self.settlements.len() + self.browses.len()
    }

    fn next_id(&mut self) -> TransactionId {
        self.counter += 1;
        TransactionId { process: self.process, incarnation: self.incarnation, number: self.counter }
    }

    pub(super) fn on_input(
        &mut self,
        now: Now,
        input: Input<'_, Node>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let step = &mut Step { now, random, out };
        match input {
            Input::Request { id, request } => self.on_request(id, &request, step),
            Input::Message { from, message } => self.on_message(from, message, step),
            Input::Timer(Timer::Transaction { number }) => self.on_transaction_timer(number, step),
            Input::Timer(Timer::Settlement { number }) => self.on_settlement_timer(number, step),
            Input::Timer(Timer::Browse { number }) => self.on_browse_timer(number, step),
            Input::Timer(Timer::View | Timer::Suspicion) => {}
            // Gateways have no journal (Corrections 73).
            Input::Snapshot(_) | Input::Recover(_) | Input::Recovered { .. } | Input::PeerStarted { .. } => {}
        }
    }

    /// What waits until all inputs of a step are in: a pipeline's operations become one transaction, and those whose
    /// turn at hot keys has come run.
    pub(super) fn after_inputs(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let step = &mut Step { now, random, out };
        self.take_turns(step);
        while self.run_ready(step) {
            self.take_turns(step);
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, step: &mut Step<'_, '_>) {
        let Some((shard, member)) = self.topology.find(from.address()) else { return };
        self.replicas.answered(shard, member);
        match message {
            Message::ReadReply { transaction, step: index, view, evaluation }
                if self.is_mine(transaction) =>
            {
                self.on_read_reply((shard, member), transaction.number, index, (view, evaluation), step);
            }
            Message::CheckReply { transaction, view, vote, hint } if self.is_mine(transaction) => {
                self.on_check_reply((shard, member), transaction.number, view, (vote, hint), step);
            }
            Message::CountReply { transaction, keys } if self.is_mine(transaction) => {
                self.on_count_reply(transaction.number, shard, keys, step);
            }
            Message::ScanReply { transaction, cursor, keys } if self.is_mine(transaction) => {
                self.on_scan_reply(transaction.number, shard, cursor, keys, step);
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
            // A backup coordinator has taken over: its outcome will be told when asked again.
            _ => {}
        }
    }

    /// An answer to an earlier life of this coordinator counts for nothing.
    fn is_mine(&self, id: TransactionId) -> bool {
        (id.process, id.incarnation) == (self.process, self.incarnation)
    }

    fn see_view(&mut self, shard: u16, view: u64) {
        let seen = self.views.entry(shard).or_default();
        *seen = view.max(*seen);
    }

    fn send_ir(&mut self, shard: u16, message: &IrMessage, step: &mut Step<'_, '_>) {
        for (member, replica) in self.topology.replicas(shard).iter().enumerate() {
            self.replicas.asked(shard, member, step.now.instant);
            step.out.send(*replica, Message::Ir { message: message.clone() });
        }
    }

    /// The replica of a shard to ask at the given try: the preferred or the closest first, then the others; those
    /// that are silent last.
    fn replica_for(&self, shard: u16, tries: u32, now: Instant) -> Option<usize> {
        let replicas = self.topology.replicas(shard);
        let preferred =
            self.preferred.get(&shard).filter(|(_, until)| *until > now).map(|(member, _)| *member);
        let near = self.options.near.unwrap_or(self.process);
        let distance = |member: &usize| {
            let away = replicas[*member].process != near;
            let silent = self.replicas.is_silent(shard, *member, now, self.options.fast_timeout);
            let usual = self.replicas.usual(shard, *member).filter(|_| away);
            let turn =
                (member + replicas.len() - usize::from(self.process.0) % replicas.len()) % replicas.len();
            (silent, preferred != Some(*member), away, usual, turn)
        };
        let mut members: Vec<usize> = (0..replicas.len()).collect();
        members.sort_unstable_by_key(distance);
        (!members.is_empty()).then(|| members[tries as usize % members.len()])
    }

    fn prefer(&mut self, shard: u16, member: usize, now: Instant) {
        self.preferred.insert(shard, (member, now + PREFER_FOR));
    }

    /// Puts a transaction back and arms its timer.
    fn keep(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let number = transaction.id.number;
        if let Some(wake) = self.wake(&transaction, step.now.instant) {
            step.out.arm(Timer::Transaction { number }, wake);
        } else {
            step.out.disarm(Timer::Transaction { number });
        }
        self.transactions.insert(number, transaction);
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

    fn on_transaction_timer(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        if step.now.instant >= transaction.deadline {
            return self.give_up(transaction, step);
        }
        match &mut transaction.phase {
            Phase::Executing => self.ask_again(transaction, step),
            Phase::QuorumRead(_) => self.fall_back(transaction, step),
            Phase::Checking(_) => self.on_check_timer(transaction, step),
            Phase::Preparing(_) => self.on_prepare_timer(transaction, step),
            Phase::BackingOff { until } if *until > step.now.instant => self.keep(transaction, step),
            Phase::BackingOff { .. } => self.run(transaction, step),
            Phase::InLine => self.keep(transaction, step),
        }
    }

    /// Replies an error and ends the transaction here.
    fn fail(&mut self, mut transaction: Transaction, error: &Error, step: &mut Step<'_, '_>) {
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).error(error);
            transaction.turn.iter().skip(1).for_each(|request| step.out.reply(*request).error(error));
        }
        self.forget(&transaction, step);
    }

    /// Nothing refers to the transaction any more.
    fn forget(&mut self, transaction: &Transaction, step: &mut Step<'_, '_>) {
        let number = transaction.id.number;
        step.out.disarm(Timer::Transaction { number });
        if let transaction::Purpose::Flush { browse } = transaction.purpose {
            self.fail_browse(browse, step);
        }
        self.leave_hot_keys(transaction);
        if !transaction.turn.is_empty() {
            self.turns.push(transaction.session);
        }
        if let Some(session) = self.sessions.get_mut(&transaction.session) {
            session.open = session.open.filter(|open| *open != number);
        }
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Everything that changes: model checking takes two coordinators that print alike for the same.
        f.debug_struct("Coordinator")
            .field("process", &self.process)
            .field("incarnation", &self.incarnation)
            .field("counter", &self.counter)
            .field("clock", &self.clock)
            .field("transactions", &self.transactions)
            .field("settlements", &self.settlements)
            .field("browses", &self.browses)
            .field("sessions", &self.sessions)
            .field("turns", &self.turns)
            .field("hot", &self.hot)
            .field("preferred", &self.preferred)
            .field("views", &self.views)
            .finish_non_exhaustive()
    }
}
