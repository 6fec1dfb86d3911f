//! Operations without transactions: a baseline for measurements (Claret, section 6, "non-transactional").
//!
//! Every operation is one of its own, and strictly linearizable: a leader evaluates it on what it has applied and what it
//! has put into its log before, puts the effect into the log, and answers when that is applied. Nothing is locked, and
//! nobody waits for anybody; the operations of one request do not hold together. A read is evaluated on what is applied,
//! and answered when the leader is confirmed.
//!
//! A repetition of a question is known by its number: to the leader while it leads, with the result, and to later ones
//! as an outcome, whose result is lost. The steps of one request have numbers that follow the request's own.

use super::leader::Stage;
use super::machine::{Entry, Question};
use super::message::Message;
use super::replica::{Replica, Step};
use super::single::{Single, part};
use crate::Mutant;
use std::sync::Arc;
use types::Address;

impl Replica {
    /// Evaluates an operation and commits it, or answers what was answered before.
    pub(super) fn on_run(&mut self, from: Address, one: Single, step: &mut Step<'_, '_>) {
        let id = one.transaction;
        let Some(leader) = &mut self.leader else { return self.redirect(from, id, step) };
        leader.raise_floor(id, one.floor);
        if leader.open.contains_key(&id) {
            return;
        }
        if let Some(outcome) = self.machine.outcomes().get(&id) {
            let known = leader.unapplied.answer(id);
            let ended = Message::Ended { transaction: id, at: outcome.at() };
            return step.out.send(from, known.unwrap_or(ended));
        }
        if self.machine.is_over(id) || leader.is_closed(id) {
            return;
        }
        let Ok(operations) = one.decoded() else { return };
        let [(key, operation)] = operations.as_slice() else { return };
        // The time of the entry is that of its deadlines, so that they are judged as they are when it is applied.
        let at = leader.timestamp(self.machine.latest(), step.now.wall);
        let now_millis = at.wall().as_millis();
        let on_applied = operation.is_read() || self.options.mutants.has(Mutant::EvaluateOnApplied);
        let unapplied = leader.unapplied.on(key);
        let alone = unapplied.is_none();
        let question = Question { key, operation, own: &[], now_millis };
        let unapplied = unapplied.filter(|_| !on_applied);
        let Ok(evaluation) = self.machine.evaluate(&question, unapplied, step.random) else { return };
        let part = part(vec![self.shard], std::iter::once(*key), std::slice::from_ref(&evaluation));
        // A read finds out that the key has expired where nothing is on its way that may have renewed it.
        let deletes = evaluation.expiry.is_some() && alone;
        let (step_index, term) = (one.index, leader.term);
        let answer = |evaluation| Message::Executed {
            transaction: id,
            step: step_index,
            term,
            evaluation,
            then: Vec::new(),
        };
        if operation.is_read() && !deletes {
            return self.answer_confirmed(from, answer(evaluation), None, step);
        }
        let entry = Entry::Commit { transaction: id, floor: one.floor, at, part: Some(part.clone()) };
        let Some(index) = self.propose(&entry) else { return self.redirect(from, id, step) };
        let Some(leader) = &mut self.leader else { return };
        leader.unapplied.add(id, key, &evaluation);
        leader.unapplied.proposed(id, one.keys(), index);
        leader.unapplied.keep(id, answer(evaluation));
        leader.open(id, from, step.now.instant);
        leader.advance(id, Stage::Proposed { part: Arc::new(part) }, step.now.instant);
    }
}
