//! Single commands, where transactions lock: the leader evaluates each behind those that it has put into its log before, and
//! no lock is held over a round trip among them (Corrections 89).
//!
//! ```text
//!  coordinator -- Run(operation, term) --> leader: the key's lock in the mode of single commands, beside those in the log
//!                                                  evaluates behind them, one entry: effect, commit, result
//!              <------------- Done(result) -------- when the entry is applied
//! ```
//!
//! # Invariants
//! - Who has the lock in that mode is in the log: it has been evaluated on all that was there before, and the log keeps
//!   the order. Whoever is no such command waits for the lock until all of that is applied.
//! - The result is a part of the entry, so that a later leader answers as this one would have.
//! - A leader takes the question for its own term only, and refuses for good: as with votes.

use super::decide::Ballot;
use super::{Replica, Step};
use crate::Mutant;
use crate::locking::leader::{Objection, Stage};
use crate::locking::locks::Asker;
use crate::locking::machine::{Entry, Evaluation, Question};
use crate::locking::message::{Message, Span};
use crate::locking::single::{Single, part};
use datatypes::{Mode, Operation};
use std::sync::Arc;
use types::{Address, Reader, Timestamp, TransactionId};

impl Replica {
    /// Locks and carries out a single command; one whose end is known has been answered.
    pub(super) fn on_single(&mut self, from: Address, one: Single, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let id = one.transaction;
        leader.raise_floor(id, one.floor);
        if one.term > leader.term || one.term == 0 {
            return self.redirect(from, id, step);
        }
        if !leader.is_executing(id) {
            return;
        }
        if let Some(answer) = leader.unapplied.answer(id) {
            return self.answer_confirmed(from, answer, step);
        }
        if one.term < leader.term {
            // The next run is to name this term.
            self.refuse(from, id, None, step);
            return self.redirect(from, id, step);
        }
        if leader.is_closed(id) {
            return self.refuse(from, id, None, step);
        }
        leader.open(id, from, step.now.instant);
        let asker = Asker { id, age: one.age, votes: false, now: step.now.instant };
        if !leader.locks.lock(asker, &one.key, &Mode::Single.into()) {
            return self.block(id, one.into(), step);
        }
        if leader.is_flushing(id) {
            return leader.wait_for_ends(id, one.into());
        }
        self.carry_out(from, one, step);
    }

    /// Evaluates a command that has its lock, and puts what it comes to into the log. What changes nothing, and has seen
    /// nothing that is not applied, is answered like a read.
    fn carry_out(&mut self, from: Address, one: Single, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let Ok(operation) = Operation::decode(&mut Reader::new(&one.operation)) else { return };
        let id = one.transaction;
        // The time of the entry is that of its deadlines, so that they are judged as they are when it is applied.
        let at = leader.timestamp(self.machine.latest(), step.now.wall);
        let on_applied = self.options.mutants.has(Mutant::EvaluateOnApplied);
        let coming = leader.unapplied.on(&one.key).filter(|_| !on_applied);
        let (alone, now_millis) = (coming.is_none(), at.wall().as_millis());
        let question = Question { key: &one.key, operation: &operation, own: &[], now_millis };
        let Ok(evaluation) = self.machine.evaluate_next(&question, coming, step.random) else { return };
        if evaluation.effect.is_none() && !evaluation.expired && alone {
            let answer = Message::Done { transaction: id, at: None, term: leader.term, evaluation };
            leader.forget(id);
            leader.unapplied.keep(id, answer.clone());
            return self.answer_confirmed(from, answer, step);
        }
        let Single { age, floor, term, key, .. } = one;
        let part = part(self.shard, &key, &evaluation);
        let (read_only, collector, span) = (false, None, Span::default());
        let ballot = Ballot { transaction: id, age, floor, term, read_only, collector, span, part };
        match self.judge_keyset(from, &ballot, step) {
            Some(Err(Objection { key, undecided })) => {
                let refusal = Message::Refused { transaction: id, key, expires: false, undecided };
                self.refuse_with(from, refusal, step);
            }
            _ => self.commit_single(from, ballot, &key, (at, evaluation), step),
        }
    }

    /// Nothing stands in the way.
    fn commit_single(
        &mut self,
        from: Address,
        ballot: Ballot,
        key: &[u8],
        (at, evaluation): (Timestamp, Evaluation),
        step: &mut Step<'_, '_>,
    ) {
        let Ballot { transaction, floor, part, .. } = ballot;
        let held = Arc::new(part.clone());
        let result = evaluation.result.clone();
        if !self.propose(&Entry::Run { transaction, floor, at, part, result }) {
            return self.redirect(from, transaction, step);
        }
        let Some(leader) = &mut self.leader else { return };
        leader.unapplied.add(transaction, key, &held);
        leader.locks.make_firm(transaction);
        leader.advance(transaction, Stage::Proposed { part: held }, step.now.instant);
        if self.options.mutants.has(Mutant::VoteBeforeLog) {
            let (at, term) = (Some(at), leader.term);
            step.out.send(from, Message::Done { transaction, at, term, evaluation });
        }
    }

    /// How a transaction ended, if somebody may still ask for that.
    pub(super) fn known(&self, transaction: TransactionId) -> Option<Message> {
        let outcome = self.machine.outcomes().get(&transaction)?;
        let term = self.leader.as_ref().map_or(0, |leader| leader.term);
        Some(match self.machine.result(transaction) {
            Some((at, evaluation)) => Message::Done { transaction, at: Some(at), term, evaluation },
            None => Message::Ended { transaction, at: outcome.at() },
        })
    }
}
