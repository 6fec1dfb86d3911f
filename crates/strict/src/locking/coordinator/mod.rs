//! The coordinator: runs the transactions of many sessions at once, by two-phase commit between the shards' leaders.
//!
//! ```text
//!  request --> evaluate the steps at the leaders (nothing for blind ones)
//!          --> one shard:  Prepare, which is the commit there --> reply
//!          --> several:    Prepare at all --> yes from all --> Decide at the first --> reply --> Decide at the others
//!          \-- refused or wounded: Decide no, wait, run again with the age it has
//! ```

mod browse;
mod commit;
mod execute;
mod sessions;
mod transaction;
mod turns;

use super::message::{Message, Timer};
use super::node::Node;
use super::options::Options;
use crate::tapir::Topology;
use browse::Browse;
use protocol::{Claim, Input, Now, Outputs};
use sessions::Session;
use std::collections::{BTreeMap, BTreeSet};
use transaction::{Phase, Preparing, Progress, Transaction};
use types::{Error, Incarnation, Instant, NodeId, ProcessId, Rng, SessionId, Timestamp, TransactionId};

/// How often a question follows hints of who leads before it waits to be said again.
const HOPS: u32 = 4;

/// A decision that not every participant has acknowledged.
#[derive(Debug)]
struct Settlement {
    id: TransactionId,
    at: Option<Timestamp>,
    waiting: BTreeSet<u16>,
    tries: u32,
    /// How often it has followed a hint of who leads since.
    hops: u32,
}

/// Who leads a shard, as far as is known.
#[derive(Clone, Copy, Debug, Default)]
struct Lead {
    member: usize,
    term: u64,
    /// When it was given up for the next replica last: that helps once at a time, since who waits for a lock waits for
    /// the right replica.
    tried: Instant,
}

/// See the module's documentation.
pub struct Coordinator {
    topology: Topology,
    options: Options,
    process: ProcessId,
    incarnation: Incarnation,
    /// Numbers of transactions and questions; never reset in this life.
    counter: u64,
    transactions: BTreeMap<u64, Transaction>,
    settlements: BTreeMap<u64, Settlement>,
    browses: BTreeMap<u64, Browse>,
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions whose next queued operation may run.
    turns: Vec<SessionId>,
    leads: BTreeMap<u16, Lead>,
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
            transactions: BTreeMap::new(),
            settlements: BTreeMap::new(),
            browses: BTreeMap::new(),
            sessions: BTreeMap::new(),
            turns: Vec::new(),
            leads: BTreeMap::new(),
            claims: Vec::new(),
        }
    }

    pub(super) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    /// How many transactions are in progress, decided ones that not every shard has acknowledged included.
    pub fn in_progress(&self) -> usize {
        self.transactions.len() + self.settlements.len() + self.browses.len()
    }

    fn next_id(&mut self) -> TransactionId {
        self.counter += 1;
        TransactionId { process: self.process, incarnation: self.incarnation, number: self.counter }
    }

    /// Below this, nothing is asked for any more: shards may forget how it ended.
    fn floor(&self, running: TransactionId) -> u64 {
        let first = [self.transactions.keys().next(), self.settlements.keys().next()];
        first.into_iter().flatten().copied().min().unwrap_or(running.number).min(running.number)
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
            Input::Timer(Timer::Tick | Timer::Suspicion) => {}
            // Gateways have no journal (Corrections 73).
            Input::Snapshot(_) | Input::Recover(_) | Input::Recovered { .. } | Input::PeerStarted { .. } => {}
        }
        self.take_turns(step);
    }

    fn on_message(&mut self, from: NodeId, message: Message, step: &mut Step<'_, '_>) {
        let Some((shard, member)) = self.topology.find(from.address()) else { return };
        match message {
            Message::Executed { transaction, step: index, term, evaluation } if self.is_mine(transaction) => {
                self.learn_leader(shard, member, term);
                self.on_executed(shard, transaction.number, index, (term, evaluation), step);
            }
            Message::Prepared { transaction, at } if self.is_mine(transaction) => {
                self.on_prepared(shard, transaction.number, at, step);
            }
            Message::Refused { transaction, key } if self.is_mine(transaction) => {
                self.on_refused(shard, transaction.number, key, step);
            }
            Message::Ended { transaction, at } if self.is_mine(transaction) => {
                self.on_ended(shard, transaction.number, at, step);
            }
            Message::Redirect { transaction, leader, term } if self.is_mine(transaction) => {
                self.on_redirect(shard, member, transaction.number, (leader, term), step);
            }
            Message::CountReply { transaction, keys } if self.is_mine(transaction) => {
                self.on_count_reply(transaction.number, shard, keys, step);
            }
            Message::ScanReply { transaction, cursor, keys } if self.is_mine(transaction) => {
                self.on_scan_reply(transaction.number, shard, cursor, keys, step);
            }
            _ => {}
        }
    }

    /// An answer to an earlier life of this coordinator counts for nothing.
    fn is_mine(&self, id: TransactionId) -> bool {
        (id.process, id.incarnation) == (self.process, self.incarnation)
    }

    /// Asks whoever leads the shard, as far as is known.
    fn send_leader(&self, shard: u16, message: Message, step: &mut Step<'_, '_>) {
        let lead = self.leads.get(&shard).copied().unwrap_or_default();
        if let Some(replica) = self.topology.replicas(shard).get(lead.member) {
            step.out.send(*replica, message);
        }
    }

    /// The replica does not lead, or another term has begun: what it knows is believed if it is newer, else the next
    /// replica is tried.
    fn on_redirect(
        &mut self,
        shard: u16,
        member: usize,
        number: u64,
        (leader, term): (Option<usize>, u64),
        step: &mut Step<'_, '_>,
    ) {
        let known = self.leads.get(&shard).copied().unwrap_or_default();
        let Some(leader) = leader.filter(|_| term >= known.term) else { return };
        if leader == member {
            self.learn_leader(shard, member, term);
        } else if known.member == member {
            // What a follower has heard; the leader itself says in which term it serves.
            self.leads.insert(shard, Lead { member: leader, ..known });
        } else if known.member != leader {
            return;
        }
        if let Some(settlement) = self.settlements.get_mut(&number)
            && settlement.waiting.contains(&shard)
            && settlement.hops < HOPS
        {
            settlement.hops += 1;
            let (id, at) = (settlement.id, settlement.at);
            self.decide(shard, id, at, step);
        }
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        if let Phase::Preparing(preparing) = &mut transaction.phase
            && let Some(asked @ 0) = preparing.terms.get_mut(&shard)
            && leader == member
        {
            *asked = term;
        }
        // Followers may name one another for a while.
        if transaction.hops < HOPS {
            transaction.hops += 1;
            self.say_again(&transaction, step);
        }
        self.keep(transaction, step);
    }

    fn learn_leader(&mut self, shard: u16, member: usize, term: u64) {
        let lead = self.leads.entry(shard).or_default();
        if lead.term <= term {
            (lead.member, lead.term) = (member, term);
        }
    }

    /// A shard does not answer: its next replica may know why.
    fn try_next(&mut self, shard: u16, now: Instant) {
        let members = self.topology.replicas(shard).len().max(1);
        let lead = self.leads.entry(shard).or_default();
        if now - lead.tried >= self.options.resend_every {
            (lead.member, lead.tried) = ((lead.member + 1) % members, now);
        }
    }

    /// Puts a transaction back and arms its timer.
    fn keep(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let number = transaction.id.number;
        let own = match &transaction.phase {
            Phase::Executing if transaction.is_evaluated() => None,
            Phase::Executing | Phase::Preparing(_) | Phase::Deciding { .. } => Some(transaction.resend_at),
            Phase::BackingOff { until } => Some(*until),
            Phase::Doomed => None,
        };
        let deadline = transaction.request.is_some() || own.is_some();
        match [own, deadline.then_some(transaction.deadline)].into_iter().flatten().min() {
            Some(at) => step.out.arm(Timer::Transaction { number }, at),
            None => step.out.disarm(Timer::Transaction { number }),
        }
        self.transactions.insert(number, transaction);
    }

    fn on_transaction_timer(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        let now = step.now.instant;
        if now >= transaction.deadline {
            return self.give_up(transaction, step);
        }
        match &transaction.phase {
            Phase::BackingOff { until } if *until <= now => return self.run(transaction, step),
            Phase::Executing | Phase::Preparing(_) | Phase::Deciding { .. }
                if transaction.resend_at <= now =>
            {
                for shard in self.unanswered(&transaction) {
                    self.try_next(shard, now);
                }
                self.say_again(&transaction, step);
                transaction.hops = 0;
                transaction.resend_at = now + self.options.resend_every;
            }
            _ => {}
        }
        self.keep(transaction, step);
    }

    /// The shards that an answer is missing from.
    fn unanswered(&self, transaction: &Transaction) -> BTreeSet<u16> {
        match &transaction.phase {
            Phase::Executing => {
                let asked = |step: &&transaction::CallStep| matches!(step.progress, Progress::Asked);
                transaction.steps.iter().filter(asked).map(|step| step.call.shard).collect()
            }
            Phase::Preparing(Preparing { parts, votes, .. }) => {
                parts.keys().filter(|shard| !votes.contains_key(shard)).copied().collect()
            }
            Phase::Deciding { parts, .. } => parts.first().copied().into_iter().collect(),
            Phase::BackingOff { .. } | Phase::Doomed => BTreeSet::new(),
        }
    }

    /// Says again what was not answered.
    fn say_again(&mut self, transaction: &Transaction, step: &mut Step<'_, '_>) {
        match &transaction.phase {
            Phase::Executing => {
                for index in 0..transaction.steps.len() {
                    if matches!(transaction.steps[index].progress, Progress::Asked) {
                        self.ask(transaction, index, step);
                    }
                }
            }
            Phase::Preparing(_) => self.propose(transaction, step),
            Phase::Deciding { at, parts } => {
                if let Some(first) = parts.first() {
                    self.decide(*first, transaction.id, Some(*at), step);
                }
            }
            Phase::BackingOff { .. } | Phase::Doomed => {}
        }
    }

    /// Replies an error and ends the transaction here.
    fn fail(&mut self, mut transaction: Transaction, error: &Error, step: &mut Step<'_, '_>) {
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).error(error);
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
        if transaction.in_turn {
            self.turns.push(transaction.session);
        }
        if let Some(session) = self.sessions.get_mut(&transaction.session) {
            session.open = session.open.filter(|open| *open != number);
        }
    }

    /// The replica for a weak read: the closest first, then the others.
    fn replica_for(&self, shard: u16, tries: u32, _: Instant) -> Option<usize> {
        let replicas = self.topology.replicas(shard);
        let process = self.options.near.unwrap_or(self.process);
        let first = replicas.iter().position(|replica| replica.process == process).unwrap_or(0);
        (!replicas.is_empty()).then(|| (first + tries as usize) % replicas.len())
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("process", &self.process)
            .field("incarnation", &self.incarnation)
            .field("transactions", &self.transactions.len())
            .field("settlements", &self.settlements.len())
            .finish_non_exhaustive()
    }
}
