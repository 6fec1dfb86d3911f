//! After the decision: Commit and Abort reach every replica, or as many as answer.

use super::super::message::{Message, Timer};
use super::super::node::IrMessage;
use super::super::operation::{Decision, Transactions};
use super::transaction::Phase;
use super::{Coordinator, Step};
use crate::ir::Ending;
use crate::small_map::SmallMap;
use smallvec::SmallVec;
use types::{Error, ErrorCode, Instant, Timestamp, TransactionId};

/// How often a decision is sent again. Replicas that were down for longer learn the decision from a new view, and those
/// that hold the transaction prepared from coordinator recovery.
const TRIES: u32 = 8;

/// Some of a shard's replicas.
type Members = SmallVec<[usize; 4]>;

/// A decision on its way.
#[derive(Debug)]
pub(super) struct Settlement {
    id: TransactionId,
    born: Timestamp,
    /// The attempt that was decided, and when it was proposed.
    attempt: (u32, Instant),
    shards: SmallMap<u16, ShardDecision, 1>,
    tries: u32,
}

/// What the coordinator sends to the replicas of one shard.
#[derive(Debug)]
struct ShardDecision {
    decision: Decision,
    /// The members that have not acknowledged.
    waiting: Members,
    /// Those that have voted to commit, so that they have the part. The coordinator sends them only the rest, once; it
    /// sends everything to replicas that do not acknowledge (Corrections 11).
    hold: Members,
}

impl ShardDecision {
    fn ending(&self, member: usize) -> Ending<Transactions> {
        match &self.decision {
            Decision::Commit { at, .. } if self.hold.contains(&member) => Ending::Rest(*at),
            whole => Ending::Whole(whole.clone()),
        }
    }
}

impl Coordinator {
    /// The coordinator tells every participant how the transaction ended.
    pub(super) fn settle(
        &mut self,
        (id, born): (TransactionId, Timestamp),
        attempt: (u32, Instant),
        decisions: impl Iterator<Item = (u16, (Decision, Members))>,
        step: &mut Step<'_, '_>,
    ) {
        let shard_decision = |(shard, (decision, hold))| {
            let waiting = (0..self.topology.replicas(shard).len()).collect();
            (shard, ShardDecision { decision, waiting, hold })
        };
        let settlement =
            Settlement { id, born, attempt, shards: decisions.map(shard_decision).collect(), tries: 0 };
        self.tell(&settlement, step);
        self.protocol.settlements.insert(id.number, settlement);
    }

    fn tell(&self, settlement: &Settlement, step: &mut Step<'_, '_>) {
        for (shard, shard_decision) in settlement.shards.iter() {
            for member in &shard_decision.waiting {
                let (group, born) = (settlement.id, settlement.born);
                let message = IrMessage::Execute { group, born, operation: shard_decision.ending(*member) };
                step.out.send(self.topology.replicas(*shard)[*member], Message::Ir { message });
            }
        }
        let wait = self.options.resend_every * 2u32.pow(settlement.tries);
        step.out.arm(Timer::Settlement { number: settlement.id.number }, step.now.instant + wait);
    }

    pub(super) fn on_settlement_timer(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(mut settlement) = self.protocol.settlements.remove(&number) else { return };
        settlement.tries += 1;
        settlement.shards.values_mut().for_each(|shard_decision| shard_decision.hold.clear());
        if settlement.tries < TRIES {
            self.tell(&settlement, step);
            self.protocol.settlements.insert(number, settlement);
        }
    }

    /// A shard has other replicas: the coordinator sends the outcome to all of them.
    pub(super) fn settle_anew(&mut self, shard: u16, step: &mut Step<'_, '_>) {
        let members: Members = (0..self.topology.replicas(shard).len()).collect();
        let mut settlements = std::mem::take(&mut self.protocol.settlements);
        for settlement in settlements.values_mut() {
            if let Some(shard_decision) = settlement.shards.get_mut(&shard) {
                (shard_decision.waiting, shard_decision.hold) = (members.clone(), Members::new());
                settlement.tries = 0;
                self.tell(settlement, step);
            }
        }
        self.protocol.settlements = settlements;
    }

    /// A vote that was not waited for still says how long its replica takes.
    pub(super) fn on_late_vote(
        &mut self,
        shard: u16,
        member: usize,
        number: u64,
        attempt: u32,
        step: &Step<'_, '_>,
    ) {
        let Some(settlement) = self.protocol.settlements.get(&number) else { return };
        if settlement.attempt.0 == attempt {
            let took = (step.now.instant - settlement.attempt.1).min(self.options.resend_every);
            self.protocol.replicas.voted(shard, member, took);
        }
    }

    pub(super) fn on_executed(&mut self, shard: u16, member: usize, number: u64, step: &mut Step<'_, '_>) {
        let Some(settlement) = self.protocol.settlements.get_mut(&number) else { return };
        if let Some(shard_decision) = settlement.shards.get_mut(&shard) {
            shard_decision.waiting.retain(|waiting| *waiting != member);
        }
        if settlement.shards.values().all(|shard_decision| shard_decision.waiting.is_empty()) {
            self.protocol.settlements.remove(&number);
            step.out.disarm(Timer::Settlement { number });
        }
    }

    /// A backup coordinator has decided a transaction that is still in progress here.
    pub(super) fn on_outcome(&mut self, number: u64, decision: &Decision, step: &mut Step<'_, '_>) {
        let Some(transaction) = self.take(number) else { return };
        match (&transaction.phase, decision) {
            (Phase::Preparing(_), Decision::Commit { at, .. }) => self.commit(transaction, *at, step),
            (Phase::Preparing(_), Decision::Abort) => self.abort(transaction, step),
            _ => self.keep(transaction, step),
        }
    }

    /// A transaction in progress was decided so long ago that no replica remembers how.
    pub(super) fn on_forgotten(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(transaction) = self.take(number) else { return };
        if !matches!(transaction.phase, Phase::Preparing(_)) {
            return self.keep(transaction, step);
        }
        let message = "this process was out of touch for so long that the replicas no longer know how the \
                       transaction ended; look before you retry";
        self.fail(transaction, &Error::new(ErrorCode::UnknownOutcome, message), step);
    }
}
