//! Single commands that a leader carries out by itself: what they are, and which of them are in its log and not applied.

use super::machine::Evaluation;
use super::message::Message;
use crate::part::encoded;
use crate::{Invoked, Part};
use commit::Stamp;
use datatypes::{Cell, Effect, Value, apply};
use std::collections::{BTreeMap, VecDeque};
use types::{Malformed, Reader, TransactionId};

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

/// A larger value is not copied, however often effects are repeated.
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
        let bytes = applied.value.as_ref().map_or(0, Value::memory);
        if self.state.is_none() && bytes <= LARGEST_COPY.min(self.repeated * REPEATED) {
            let mut state = applied.clone();
            for effect in self.effects()? {
                apply::<false>(&mut state, &effect);
            }
            self.state = Some(state);
        }
        Ok(self.state.as_ref())
    }

    /// One more is in the log.
    fn add(&mut self, id: TransactionId, effect: &[u8]) {
        let decoded = decoded(effect);
        debug_assert!(decoded.is_ok(), "effects are made by the same software");
        if let (Some(state), Ok(effect)) = (&mut self.state, decoded) {
            apply::<false>(state, &effect);
        }
        self.effects.push_back((id, effect.into()));
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

    /// The command's part is in the log.
    pub(super) fn add(&mut self, id: TransactionId, key: &[u8], part: &Part) {
        for effect in part.invocations.iter().filter_map(|invoked| invoked.effect.as_ref()) {
            self.by_key.entry(key.into()).or_default().add(id, effect);
        }
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
            if coming.effects.is_empty() {
                self.by_key.remove(&key);
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
