//! Single commands that a leader carries out by itself: what they are, and which of them are in its log and not applied.

use super::machine::Evaluation;
use super::message::Message;
use crate::part::encoded;
use crate::{Invoked, Part};
use commit::Stamp;
use datatypes::Effect;
use std::collections::BTreeMap;
use types::TransactionId;

/// An operation that is asked for.
pub(super) struct Single {
    pub transaction: TransactionId,
    pub age: Stamp,
    pub floor: u64,
    pub term: u64,
    /// Which step of its request.
    pub index: u32,
    pub key: Box<[u8]>,
    pub operation: Box<[u8]>,
}

impl From<Single> for Message {
    fn from(one: Single) -> Self {
        let Single { transaction, age, floor, term, index, key, operation } = one;
        Message::Run { transaction, age, floor, term, step: index, key, operation }
    }
}

/// An effect that is in the log, in its binary form, and whose it is.
type Coming = (TransactionId, Box<[u8]>);

/// What a leader has put into its log and not applied, and answers that it has given and would have to give again.
#[derive(Debug, Default)]
pub(super) struct Unapplied {
    /// By key: effects in the order of the log.
    effects: BTreeMap<Box<[u8]>, Vec<Coming>>,
    keys: BTreeMap<TransactionId, Box<[u8]>>,
    answers: BTreeMap<TransactionId, Message>,
}

impl Unapplied {
    /// The effects on a key that are on their way.
    pub(super) fn on(&self, key: &[u8]) -> Vec<Box<[u8]>> {
        self.effects.get(key).into_iter().flatten().map(|(_, effect)| effect.clone()).collect()
    }

    /// The command's part is in the log.
    pub(super) fn add(&mut self, id: TransactionId, key: &[u8], part: &Part) {
        let effects = part.invocations.iter().filter_map(|invoked| invoked.effect.clone());
        self.effects.entry(key.into()).or_default().extend(effects.map(|effect| (id, effect)));
        self.keys.insert(id, key.into());
    }

    /// Whoever asks again gets this answer.
    pub(super) fn keep(&mut self, id: TransactionId, answer: Message) {
        self.answers.insert(id, answer);
    }

    /// The answer that was kept.
    pub(super) fn answer(&self, id: TransactionId) -> Option<Message> {
        self.answers.get(&id).cloned()
    }

    /// An entry was applied: its answer, if one was kept.
    pub(super) fn applied(&mut self, id: TransactionId) -> Option<Message> {
        let key = self.keys.remove(&id)?;
        if let Some(effects) = self.effects.get_mut(&key) {
            effects.retain(|(of, _)| *of != id);
            if effects.is_empty() {
                self.effects.remove(&key);
            }
        }
        self.answer(id)
    }

    /// Nobody asks for these any more.
    pub(super) fn forget(&mut self, first: TransactionId, end: TransactionId) {
        let over: Vec<TransactionId> = self.answers.range(first..end).map(|(id, _)| *id).collect();
        over.iter().filter(|id| !self.keys.contains_key(id)).for_each(|id| {
            self.answers.remove(id);
        });
    }
}

/// What the operation changes; first the key's deletion, if it had expired (Corrections 69).
pub(super) fn part(shard: u16, key: &[u8], evaluation: &Evaluation) -> Part {
    let invoked = |effect| Invoked { key: key.into(), operation: None, effect, observed: None };
    let deletion = evaluation.expired.then(|| invoked(Some(encoded(&Effect::DELETE))));
    let invocations = deletion.into_iter().chain([invoked(evaluation.effect.clone())]).collect();
    Part { participants: vec![shard], invocations, keyset: None }
}
