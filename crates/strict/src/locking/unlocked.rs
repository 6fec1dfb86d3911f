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
use super::machine::{Entry, Evaluation, Question};
use super::message::Message;
use super::replica::{Replica, Step};
use crate::part::encoded;
use crate::{Invoked, Mutant, Part};
use datatypes::{Effect, Operation};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Address, Reader, TransactionId};

/// An operation that is asked for.
pub(super) struct Single {
    pub transaction: TransactionId,
    pub floor: u64,
    /// Which step of its request.
    pub index: u32,
    pub key: Box<[u8]>,
    pub operation: Box<[u8]>,
}

/// An effect that is in the log, in its binary form, and whose it is.
type Coming = (TransactionId, Box<[u8]>);

/// What a leader has put into its log and not applied, and the answers that it has given.
#[derive(Debug, Default)]
pub(super) struct Unapplied {
    /// By key: effects in the order of the log.
    effects: BTreeMap<Box<[u8]>, Vec<Coming>>,
    keys: BTreeMap<TransactionId, Box<[u8]>>,
    answers: BTreeMap<TransactionId, Message>,
}

impl Unapplied {
    /// The effects on a key that are on their way.
    fn on(&self, key: &[u8]) -> Vec<Box<[u8]>> {
        self.effects.get(key).into_iter().flatten().map(|(_, effect)| effect.clone()).collect()
    }

    fn add(&mut self, id: TransactionId, key: &[u8], part: &Part, answer: Message) {
        let effects = part.invocations.iter().filter_map(|invoked| invoked.effect.clone());
        self.effects.entry(key.into()).or_default().extend(effects.map(|effect| (id, effect)));
        self.keys.insert(id, key.into());
        self.answers.insert(id, answer);
    }

    /// An entry was applied: its answer, if it is one of these.
    pub(super) fn applied(&mut self, id: TransactionId) -> Option<Message> {
        let key = self.keys.remove(&id)?;
        if let Some(effects) = self.effects.get_mut(&key) {
            effects.retain(|(of, _)| *of != id);
            if effects.is_empty() {
                self.effects.remove(&key);
            }
        }
        self.answers.get(&id).cloned()
    }

    /// Nobody asks for these any more.
    pub(super) fn forget(&mut self, first: TransactionId, end: TransactionId) {
        let over: Vec<TransactionId> = self.answers.range(first..end).map(|(id, _)| *id).collect();
        over.iter().filter(|id| !self.keys.contains_key(id)).for_each(|id| {
            self.answers.remove(id);
        });
    }
}

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
            let known = leader.unapplied.answers.get(&id).cloned();
            let ended = Message::Ended { transaction: id, at: outcome.at() };
            return step.out.send(from, known.unwrap_or(ended));
        }
        if self.machine.is_over(id) {
            return;
        }
        let Ok(operation) = Operation::decode(&mut Reader::new(&one.operation)) else { return };
        // The time of the entry is that of its deadlines, so that they are judged as they are when it is applied.
        let at = leader.timestamp(self.machine.latest(), step.now.wall);
        let now_millis = at.wall().as_millis();
        let own = match operation.is_read() || self.options.mutants.has(Mutant::EvaluateOnApplied) {
            true => Vec::new(),
            false => leader.unapplied.on(&one.key),
        };
        let question = Question { key: &one.key, operation: &operation, own: &own, now_millis };
        let Ok(evaluation) = self.machine.evaluate(&question, step.random) else { return };
        let deletes = evaluation.expired && own.is_empty();
        let (part, term) = (part(self.shard, &one, &evaluation, deletes), leader.term);
        let answer = Message::Executed { transaction: id, step: one.index, term, evaluation };
        if operation.is_read() && !deletes {
            return self.answer_confirmed(from, answer, step);
        }
        let entry = Entry::Commit { transaction: id, floor: one.floor, at, part: Some(part.clone()) };
        if !self.propose(&entry) {
            return self.redirect(from, id, step);
        }
        let Some(leader) = &mut self.leader else { return };
        leader.unapplied.add(id, &one.key, &part, answer);
        leader.open(id, from, step.now.instant);
        leader.advance(id, Stage::Proposed { part: Arc::new(part) }, step.now.instant);
    }
}

/// What the operation changes; first the key's deletion, if it had expired (Corrections 69).
fn part(shard: u16, one: &Single, evaluation: &Evaluation, deletes: bool) -> Part {
    let invoked = |effect| Invoked { key: (*one.key).into(), operation: None, effect, observed: None };
    let deletion = deletes.then(|| invoked(Some(encoded(&Effect::DELETE))));
    let invocations = deletion.into_iter().chain([invoked(evaluation.effect.clone())]).collect();
    Part { participants: vec![shard], invocations, keyset: None }
}
