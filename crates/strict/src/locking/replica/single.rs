//! Single commands, where transactions lock: the leader evaluates each behind those that it has put into its log before, and
//! no lock is held over a round trip (Corrections 89).
//!
//! ```text
//!  coordinator -- Run(operations, term) --> leader: the key's lock, for as long as this step takes
//!                                                   evaluates behind what is in the log, one entry: effects, commit, results
//!              <------------- Done(results) -------- when the entry is applied
//! ```
//!
//! A request is one command, several commands on a key that a process has sent together, or a transaction whose keys
//! are all here (decision 0031): the leader evaluates each operation behind the one before it. Or it is the last steps
//! of a transaction whose other shards have voted (decision 0031): then the entry is the transaction's decision.
//!
//! # Invariants
//! - Nothing is evaluated before all of its keys are locked; who waits for some of them gives way to older ones.
//! - Who has let go of the lock is in the log: it has been evaluated on all that was there before, and the log keeps the order.
//!   Whoever has the lock next is evaluated behind it (decision 0031).
//! - The results are a part of the entry, so that a later leader answers as this one would have.
//! - A leader takes the question for its own term only, and refuses for good: as with votes.

use super::decide::VoteRequest;
use super::{Replica, Step};
use crate::Mutant;
use crate::coordinator::result_unread;
use crate::locking::leader::{OpenTransaction, Stage, VoteConflict};
use crate::locking::locks::Asker;
use crate::locking::machine::{Entry, Evaluation, Question, SingleResult};
use crate::locking::message::Message;
use crate::locking::single::{Keys, Single, part};
use crate::part::encoded;
use crate::validation::deadline_set;
use datatypes::{Mode, Operation};
use std::sync::Arc;
use types::{Address, Malformed, Timestamp, TransactionId};

/// A transaction that reads more bytes, and changes something, is not carried out here: its results would be in the log.
const MOST_READ: usize = 64 << 10;

impl Replica {
    /// Locks and carries out single commands; those whose end is known have been answered.
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
            return self.answer_confirmed(from, answer, None, step);
        }
        if one.term < leader.term {
            // The next run is to name this term.
            self.refuse(from, id, None, step);
            return self.redirect(from, id, step);
        }
        if leader.is_closed(id) {
            return self.refuse(from, id, None, step);
        }
        let open = leader.open(id, from, step.now.instant);
        let Some(one) = with_votes(one, self.shard, open) else { return };
        let Ok(granted) = self.lock_single(&one, step) else { return };
        let Some(leader) = &mut self.leader else { return };
        if !granted {
            return self.block(id, one.into(), step);
        }
        if leader.is_flushing(id) {
            return leader.wait_for_ends(id, one.into());
        }
        self.carry_out(from, one, step);
    }

    /// Locks all of their keys, for as long as this step takes: single commands in `single`, what is left of a transaction in its own
    /// modes, beside those that have the same. False if some have to be waited for.
    fn lock_single(&mut self, one: &Single, step: &Step<'_, '_>) -> Result<bool, Malformed> {
        let Some(leader) = &mut self.leader else { return Ok(false) };
        let passes = one.last.is_some();
        let asker = Asker { id: one.transaction, age: one.age, votes: false, passes, now: step.now.instant };
        let mut granted = true;
        if !passes {
            for key in one.keys() {
                granted &= leader.locks.lock(asker, key, &Mode::Single.into());
            }
            return Ok(granted);
        }
        if self.options.mutants.has(Mutant::PassHolders) {
            return Ok(true);
        }
        let has_deadline = |key: &[u8]| Ok(self.machine.deadline(key, leader.unapplied.on(key))? != 0);
        for (key, claims) in one.claims(has_deadline)? {
            granted &= leader.locks.lock_all(asker, key, &claims);
        }
        Ok(granted)
    }

    /// Evaluates commands that have their lock, each behind the one before it, and puts what they come to into the log. What
    /// changes nothing, and has seen nothing that is not applied, is answered like a read.
    fn carry_out(&mut self, from: Address, one: Single, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let id = one.transaction;
        // The time of the entry is that of its deadlines, so that they are judged as they are when it is applied.
        let (voted, span) = one.last.as_ref().map_or_else(Default::default, |last| (last.voted, last.span));
        let voted = voted.unwrap_or(Timestamp::ZERO);
        let at = leader.timestamp(self.machine.latest().max(span.from()).max(voted), step.now.wall);
        if span.is_over(at) {
            return self.refuse(from, id, None, step);
        }
        let alone = one.last.is_none() && leader.unapplied.last_on(one.keys()).is_none();
        let evaluations = self.evaluate_singles(&one, at, step);
        let Some(leader) = &mut self.leader else { return };
        let Ok(evaluations) = evaluations else { return leader.unapplied.take_back(id, one.keys()) };
        let changes = |one: &Evaluation| one.effect.is_some() || one.expiry.is_some();
        let on_applied = self.options.mutants.has(Mutant::EvaluateOnApplied);
        if !evaluations.iter().any(changes) && (alone || on_applied && one.last.is_none()) {
            let answer = Message::Done { transaction: id, at: None, term: leader.term, evaluations };
            if one.only_reads() {
                // A repetition is refused, and reads anew.
                leader.close(id);
            } else {
                leader.forget(id);
                leader.unapplied.keep(id, answer.clone());
            }
            return self.answer_confirmed(from, answer, None, step);
        }
        let results: usize = evaluations.iter().map(|evaluation| evaluation.result.len()).sum();
        if results > MOST_READ && one.reads() {
            // The entry would hold all the results: the coordinator requests them step by step, and they are not
            // written.
            leader.unapplied.take_back(id, one.keys());
            return self.refuse(from, id, None, step);
        }
        let Single { age, floor, term, .. } = one;
        let participants =
            one.last.as_ref().map_or_else(|| vec![self.shard], |last| last.participants.clone());
        let part = part(participants, one.calls.iter().map(|(key, _)| &**key), &evaluations);
        let (read_only, collector) = (false, None);
        let vote_request =
            VoteRequest { transaction: id, age, floor, term, read_only, collector, voted: None, span, part };
        match self.judge_keyset(from, &vote_request, step) {
            Some(Err(VoteConflict { key: met, undecided })) => {
                if let Some(leader) = &mut self.leader {
                    leader.unapplied.take_back(id, one.keys());
                }
                let refusal = Message::Refused { transaction: id, key: met, expires: false, undecided };
                self.refuse_with(from, refusal, step);
            }
            _ => self.commit_singles(from, vote_request, one.keys(), (at, evaluations), step),
        }
    }

    /// What each command comes to; its effects are among those on their way from then on.
    fn evaluate_singles(
        &mut self,
        one: &Single,
        at: Timestamp,
        step: &mut Step<'_, '_>,
    ) -> Result<Vec<Evaluation>, Malformed> {
        let on_applied = self.options.mutants.has(Mutant::EvaluateOnApplied);
        let Some(leader) = &mut self.leader else { return Ok(Vec::new()) };
        let now_millis = at.wall().as_millis();
        let evaluate = |(index, (key, operation)): (usize, &(&[u8], Operation<'_>))| {
            let mut unapplied = leader.unapplied.on(key).filter(|_| !on_applied);
            // What was locked as a write that needs no evaluation has none.
            let unread = one.unread(index, operation).filter(|effect| deadline_set(effect).is_none());
            let unread = match unread {
                Some(effect) if self.machine.deadline(key, unapplied.as_deref_mut())? == 0 => Some(effect),
                _ => None,
            };
            let question = Question { key, operation, own: &[], now_millis };
            let evaluation = match unread {
                Some(effect) => {
                    let result = result_unread(operation, one.is_blind(index), now_millis, step.random);
                    let effect = Some(encoded(&effect));
                    Evaluation { result, effect, version: 0, expires_at: 0, expiry: None }
                }
                None => self.machine.evaluate(&question, unapplied, step.random)?,
            };
            leader.unapplied.add(one.transaction, key, &evaluation);
            Ok(evaluation)
        };
        one.decoded()?.iter().enumerate().map(evaluate).collect()
    }

    /// Nothing stands in the way.
    fn commit_singles(
        &mut self,
        from: Address,
        vote_request: VoteRequest,
        keys: Keys<'_>,
        (at, evaluations): (Timestamp, Vec<Evaluation>),
        step: &mut Step<'_, '_>,
    ) {
        let VoteRequest { transaction, floor, part, .. } = vote_request;
        let held = Arc::new(part.clone());
        let single_result =
            |one: &Evaluation| SingleResult { result: one.result.clone(), expired: one.expiry.is_some() };
        let mut results: Vec<SingleResult> = evaluations.iter().map(single_result).collect();
        if self.options.mutants.has(Mutant::MixResults) {
            results.reverse();
        }
        let Some(index) = self.propose(&Entry::Run { transaction, floor, at, part, results }) else {
            // It leads no more.
            return self.redirect(from, transaction, step);
        };
        let Some(leader) = &mut self.leader else { return };
        leader.unapplied.proposed(transaction, keys, index);
        leader.advance(transaction, Stage::Proposed { part: held }, step.now.instant);
        leader.locks.release(transaction);
        if self.options.mutants.has(Mutant::VoteBeforeLog) {
            let (at, term) = (Some(at), leader.term);
            step.out.send(from, Message::Done { transaction, at, term, evaluations });
        }
    }

    /// How a transaction ended, if somebody may still ask for that.
    pub(super) fn known(&self, transaction: TransactionId) -> Option<Message> {
        let outcome = self.machine.outcomes().get(&transaction)?;
        let term = self.leader.as_ref().map_or(0, |leader| leader.term);
        Some(match self.machine.results(transaction) {
            Some((at, evaluations)) => Message::Done { transaction, at: Some(at), term, evaluations },
            None => Message::Ended { transaction, at: outcome.at() },
        })
    }
}

/// With what the other shards' votes ask for, where this leader collects them; `None`, and the question waits, while some are missing.
fn with_votes(mut one: Single, shard: u16, open: &mut OpenTransaction) -> Option<Single> {
    if let Some(last) = one.last.as_mut().filter(|last| last.voted.is_none()) {
        let mut others = last.participants.iter().filter(|other| **other != shard);
        if !others.all(|other| open.votes.contains_key(other)) {
            open.keep(one.into());
            return None;
        }
        last.voted = open.votes.values().map(|(at, _)| *at).max();
    }
    Some(one)
}
