//! Single commands that a leader carries out by themselves: what they are, and which of them are in its log and not applied.

use super::machine::Evaluation;
use super::message::Message;
use crate::part::encoded;
use crate::{Invoked, Part};
use commit::Stamp;
use datatypes::{Cell, Effect, Operation, Value, apply};
use std::collections::{BTreeMap, VecDeque};
use types::{Malformed, Reader, TransactionId};

/// Operations on a key that are asked for: a command, or several that one process has sent together.
pub(super) struct Single {
    pub transaction: TransactionId,
    pub age: Stamp,
    pub floor: u64,
    pub term: u64,
    /// Which step of its request.
    pub index: u32,
    pub key: Box<[u8]>,
    pub operations: Vec<Box<[u8]>>,
}

impl Single {
    /// The operations.
    pub(super) fn decoded(&self) -> Result<Vec<Operation<'_>>, Malformed> {
        self.operations.iter().map(|bytes| Operation::decode(&mut Reader::new(bytes))).collect()
    }
}

impl From<Single> for Message {
    fn from(one: Single) -> Self {
        let Single { transaction, age, floor, term, index, key, operations } = one;
        Message::Run { transaction, age, floor, term, step: index, key, operations }
    }
}

/// If more would have to be copied the state is not kept, however often effects are repeated.
const LARGEST_COPY: usize = 1 << 20;
/// What it costs to do an effect once more, and to undo it, in bytes that could be copied instead.
const REPEATED: usize = 512;

/// The effects of single commands that are in the log for a key and not applied, and the state behind them.
///
/// Whoever comes next is evaluated on that state. The effects are repeated on what is applied, and undone, until that has cost about
/// as much as a copy of the value; then the state is kept and goes on with each effect that comes, until all are applied. So with
/// many on their way a command costs one effect, and where few are nothing is copied.
#[derive(Debug, Default)]
pub(super) struct Coming {
    /// In their binary form, in the order of the log.
    effects: VecDeque<(TransactionId, Box<[u8]>)>,
    pub(super) state: Option<Cell>,
    /// How many effects have been repeated.
    repeated: usize,
}

impl Coming {
    /// The effects.
    pub(super) fn effects(&self) -> Result<Vec<Effect<'_>>, Malformed> {
        self.effects.iter().map(|(_, bytes)| decoded(bytes)).collect()
    }

    /// The state behind them; `None` where they are to be repeated on what is applied.
    pub(super) fn state(&mut self, applied: &Cell) -> Result<Option<&Cell>, Malformed> {
        self.repeated += self.effects.len();
        let bytes = applied.value.as_ref().map_or(0, Value::copied);
        if self.state.is_none() && bytes <= LARGEST_COPY.min(self.repeated * REPEATED) {
            let mut state = applied.clone();
            for effect in self.effects()? {
                apply::<false>(&mut state, &effect);
            }
            self.state = Some(state);
        }
        Ok(self.state.as_ref())
    }

    /// One more is in the log, or about to be.
    fn add(&mut self, id: TransactionId, effect: &[u8]) {
        let decoded = decoded(effect);
        debug_assert!(decoded.is_ok(), "effects are made by the same software");
        if let (Some(state), Ok(effect)) = (&mut self.state, decoded) {
            apply::<false>(state, &effect);
        }
        self.effects.push_back((id, effect.into()));
    }

    /// Those that came last are not put into the log.
    fn take_back(&mut self, id: TransactionId) {
        self.state = None;
        while self.effects.back().is_some_and(|(of, _)| *of == id) {
            self.effects.pop_back();
        }
    }

    /// An entry was applied, and those before it are.
    fn applied(&mut self, id: TransactionId) {
        while self.effects.front().is_some_and(|(of, _)| *of == id) {
            self.effects.pop_front();
        }
    }
}

fn decoded(effect: &[u8]) -> Result<Effect<'_>, Malformed> {
    Effect::decode(&mut Reader::new(effect))
}

/// What a leader has put into its log and not applied, and answers that it has given and would have to give again.
#[derive(Debug, Default)]
pub(super) struct Unapplied {
    pub(super) by_key: BTreeMap<Box<[u8]>, Coming>,
    keys: BTreeMap<TransactionId, Box<[u8]>>,
    answers: BTreeMap<TransactionId, Message>,
}

impl Unapplied {
    /// The effects on a key that are on their way, if there are any.
    pub(super) fn on(&mut self, key: &[u8]) -> Option<&mut Coming> {
        self.by_key.get_mut(key)
    }

    /// This is to be in the log, behind what is there; first the key's deletion, if it had expired.
    pub(super) fn add(&mut self, id: TransactionId, key: &[u8], evaluation: &Evaluation) {
        let deletion = evaluation.expired.then(|| encoded(&Effect::DELETE));
        for effect in deletion.iter().chain(&evaluation.effect) {
            match self.by_key.get_mut(key) {
                Some(coming) => coming.add(id, effect),
                None => self.by_key.entry(key.into()).or_default().add(id, effect),
            }
        }
    }

    /// What was added of this transaction is not put into the log.
    pub(super) fn take_back(&mut self, id: TransactionId, key: &[u8]) {
        if let Some(coming) = self.by_key.get_mut(key) {
            coming.take_back(id);
            self.clear_up(key);
        }
    }

    fn clear_up(&mut self, key: &[u8]) {
        if self.by_key.get(key).is_some_and(|coming| coming.effects.is_empty()) {
            self.by_key.remove(key);
        }
    }

    /// What was added of this transaction is in the log.
    pub(super) fn proposed(&mut self, id: TransactionId, key: &[u8]) {
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
        if let Some(coming) = self.by_key.get_mut(&key) {
            coming.applied(id);
            self.clear_up(&key);
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

/// What the operations change; before each the key's deletion, if it had expired (Corrections 69).
pub(super) fn part(shard: u16, key: &[u8], evaluations: &[Evaluation]) -> Part {
    let invoked = |effect| Invoked { key: key.into(), operation: None, effect, observed: None };
    let invocations = evaluations.iter().flat_map(|evaluation| {
        let deletion = evaluation.expired.then(|| invoked(Some(encoded(&Effect::DELETE))));
        deletion.into_iter().chain([invoked(evaluation.effect.clone())])
    });
    let invocations = invocations.collect();
    Part { participants: vec![shard], invocations, keyset: None }
}
