//! Reads at a replica, and those that wait for what is about to change what they would see.
//!
//! A transaction that reads past one which is prepared here, and commits, has read what is old before it is validated.
//! So a read waits for conflicting prepared transactions, for as long as the coordinator allows: about the time that
//! such a vote takes until it is decided. Then the replica answers with the present state. The read waits for
//! transactions that are prepared when it arrives, not for later ones, and nothing waits for the read: waiting is
//! deadlock-free. No log records waiting reads; a coordinator that gets no answer retries.

use super::message::{Message, Reading};
use super::node::Node;
use super::replica::Replica;
use super::shard::Question;
use crate::ir::Status;
use protocol::{Now, Outputs};
use smallvec::SmallVec;
use std::time::Duration;
use types::{Instant, NodeId, Rng, TransactionId};

/// Questions of one transaction to one replica.
#[derive(Debug)]
pub(super) struct Reads {
    pub from: NodeId,
    pub transaction: TransactionId,
    /// The transaction's time for expiries, in milliseconds since 1970.
    pub now_millis: u64,
    pub readings: Vec<Reading>,
}

/// Such that wait.
#[derive(Debug)]
pub(super) struct BlockedReads {
    reads: Reads,
    /// The prepared ones in their way.
    behind: SmallVec<[TransactionId; 4]>,
    until: Instant,
}

impl Replica {
    /// Answers questions, at once or later, but not later than after `patience`.
    pub(super) fn on_read(
        &mut self,
        now: Now,
        reads: Reads,
        patience: Duration,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let awaited = if patience.is_zero() { &[][..] } else { &reads.readings[..] };
        let in_the_way = |reading| self.state.in_the_way_of(reads.transaction, reading);
        let behind: SmallVec<_> = awaited.iter().filter_map(in_the_way).collect();
        if behind.is_empty() {
            return self.answer(&reads, random, out);
        }
        self.late_reads.push(BlockedReads { reads, behind, until: now.instant + patience });
        self.arm_skew_wait(now, out);
    }

    /// Answers those that nothing stands in the way of any more, and those that have waited for long enough.
    pub(super) fn answer_late(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        if self.late_reads.is_empty() {
            return;
        }
        let prepared = self.state.prepared();
        let is_due = |late: &mut BlockedReads| {
            late.behind.retain(|id| prepared.contains_key(id));
            late.behind.is_empty() || late.until <= now.instant
        };
        let due: Vec<BlockedReads> = self.late_reads.extract_if(.., is_due).collect();
        due.iter().for_each(|late| self.answer(&late.reads, random, out));
    }

    /// When the next one has waited for long enough.
    pub(super) fn next_late(&self) -> Option<Instant> {
        self.late_reads.iter().map(|late| late.until).min()
    }

    fn answer(&mut self, reads: &Reads, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        if self.ir.status() != Status::Normal {
            return;
        }
        let Reads { from, transaction, now_millis, readings } = reads;
        let (transaction, now_millis) = (*transaction, *now_millis);
        let mut answers = Vec::with_capacity(readings.len());
        for Reading { step, key, operation, own, then } in readings {
            let question = Question { transaction, key, operation, own, now_millis };
            let behind = then.iter().map(|(_, operation)| operation);
            let Ok(evaluations) = self.state.read(&question, behind, random) else { continue };
            let steps = std::iter::once(*step).chain(then.iter().map(|(step, _)| *step));
            answers.extend(steps.zip(evaluations));
        }
        if !answers.is_empty() {
            let view = self.ir.view();
            out.send(from.address(), Message::ReadReply { transaction, view, answers });
        }
    }
}
