//! The last shard evaluates its steps and decides in one step, so that no transaction waits for its keys over a round
//! trip. Decision 0031.
//!
//! ```text
//!  coordinator -- Execute, Prepare --> leaders of the other shards: locks, evaluations, votes
//!              -- Run(last) ---------> leader of the last one: its keys' locks, for as long as this step takes;
//!                                      evaluates behind what is in the log; one entry: effects, the decision, results
//!              <--- Done(results) ---- when the entry is applied
//!              -- Decide ------------> the others
//! ```
//!
//! Where the first participant collects the votes, the coordinator sends it `Run` together with the other
//! participants' Prepare, and it carries `Run` out when all their votes are there.
//!
//! The last shard is the one with the most requested key. The coordinator takes back a request that has waited there
//! for others' locks for long, unless the leader has executed it: it may wait for a transaction that waits for its
//! votes.

use super::super::machine::Evaluation;
use super::super::message::{Last, Message};
use super::super::options::{Coordinates, LastShard};
use super::batch::BYTES;
use super::single::STEPS;
use super::transaction::{Phase, Preparing, Transaction, span};
use super::{Coordinator, Step};
use crate::coordinator::{CallStep, Purpose};
use std::collections::BTreeMap;
use types::{Instant, KeyHash, Timestamp};

impl Coordinator {
    /// Counts a transaction that is new here.
    pub(super) fn count_demand(&mut self, transaction: &Transaction) {
        let list = transaction.steps.list();
        let is_new = transaction.retries == 0 && transaction.purpose == Purpose::Auto && list.len() > 1;
        if is_new && self.leaving_shards().is_some() {
            let seed = self.topology.seed;
            let mut keys: Vec<KeyHash> = list.iter().map(|step| seed.hash(&step.call.key)).collect();
            keys.sort_unstable();
            keys.dedup();
            self.protocol.demand.count(keys);
        }
    }

    /// How shards are left to the end, if that is done at all.
    fn leaving_shards(&self) -> Option<LastShard> {
        let is_last = self.options.coordinates != Coordinates::Client && self.leaders_carry_out();
        self.options.last_shard.filter(|_| is_last)
    }

    /// True while shards are left to the end: then no key is in many of the transactions.
    pub(super) fn leaves_shards(&self) -> bool {
        let crowded = |how: LastShard| self.protocol.demand.is_crowded(how.crowded, how.after);
        self.leaving_shards().is_some_and(|how| !crowded(how))
    }

    /// Leaves the steps of one shard to the end, where they can be.
    pub(super) fn leave_last(&self, transaction: &mut Transaction) {
        transaction.own.last = self.last_shard(transaction);
        transaction.steps.defer(transaction.own.last);
    }

    /// The shard with the most contended key. Where all keys are alike no shard is always the last one.
    fn last_shard(&self, transaction: &Transaction) -> Option<u16> {
        let list = transaction.steps.list();
        let takes_part = self.leaves_shards()
            && self.carries_out(transaction)
            && !transaction.own.asks_all
            && transaction.own.members.is_empty()
            && !transaction.steps.has_keyset()
            && !list.iter().all(|step| step.call.is_read());
        if !takes_part {
            return None;
        }
        let mut shards: BTreeMap<u16, ShardWork> = BTreeMap::new();
        for CallStep { call, .. } in list {
            let share = shards.entry(call.shard).or_default();
            share.demand = share.demand.max(self.protocol.demand.of(self.topology.seed.hash(&call.key)));
            share.steps += 1;
            share.bytes += call.key.len() + call.operation.len();
        }
        let turn = (transaction.id.number % shards.len().max(1) as u64) as usize;
        let in_turn = shards.iter().skip(turn).chain(shards.iter().take(turn)).filter(|_| shards.len() > 1);
        let fits = in_turn.filter(|(_, share)| share.steps <= STEPS && share.bytes <= BYTES);
        fits.max_by_key(|(_, share)| share.demand).map(|(shard, _)| *shard)
    }

    /// Asks the last shard to carry its steps out and to decide; or not to, if the transaction has been taken back.
    pub(super) fn run_last(
        &self,
        transaction: &Transaction,
        preparing: &Preparing,
        (shard, voted): (u16, Option<Timestamp>),
        step: &mut Step<'_, '_>,
    ) {
        if transaction.own.asks_all {
            return self.decide(shard, transaction.id, None, step);
        }
        let (mut calls, mut blind) = (Vec::new(), 0);
        for (_, call) in transaction.steps.deferred() {
            blind |= u64::from(call.blind) << calls.len();
            calls.push(((*call.key).into(), (*call.operation).into()));
        }
        let participants =
            preparing.parts.get(&shard).map(|part| part.participants.clone()).unwrap_or_default();
        let message = Message::Run {
            transaction: transaction.id,
            age: transaction.age,
            floor: self.floor(transaction.id),
            term: preparing.terms.get(&shard).copied().unwrap_or(0),
            step: 0,
            calls,
            last: Some(Last { voted, span: span(transaction), participants, blind }),
        };
        self.send_leader(shard, message, step);
    }

    /// When one that waits at its last shard for others' locks is taken back: after its patience, or, if that is longer, as much time as
    /// votes took.
    pub(super) fn taken_back_at(&self, transaction: &Transaction) -> Option<Instant> {
        let blocked = transaction.own.last_blocked.filter(|_| !transaction.own.asks_all)?;
        let waits = matches!(transaction.phase, Phase::Preparing(_));
        let how = self.options.last_shard.filter(|_| waits)?;
        Some(blocked + how.patience.max(blocked - transaction.own.prepared_at))
    }

    /// It has waited for long: unless it has been carried out it runs again, and asks for all of its locks first.
    pub(super) fn take_last_back(&mut self, transaction: &mut Transaction, step: &mut Step<'_, '_>) {
        (transaction.own.asks_all, transaction.own.locks_first) = (true, true);
        transaction.moved_at = step.now.instant;
        self.propose(transaction, step);
    }

    /// The last shard has carried its steps out, and decided.
    pub(super) fn committed_last(
        &mut self,
        mut transaction: Transaction,
        shard: u16,
        (at, evaluations): (Timestamp, Vec<Evaluation>),
        step: &mut Step<'_, '_>,
    ) {
        let deferred: Vec<usize> = transaction.steps.deferred().map(|(index, _)| index).collect();
        for (index, evaluation) in deferred.into_iter().zip(evaluations) {
            transaction.steps.take(index, evaluation.into());
        }
        self.committed(transaction, shard, at, step);
    }
}

/// What a transaction has to do at a shard.
#[derive(Debug, Default)]
struct ShardWork {
    /// How often the most requested of its keys is requested.
    demand: u16,
    steps: usize,
    bytes: usize,
}
