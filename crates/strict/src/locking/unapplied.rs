//! What a leader has put into its log and not applied: the leader evaluates the next operation on top of it.

use super::machine::Evaluation;
use super::message::Message;
use super::single::Keys;
use crate::Part;
use datatypes::{Cell, Effect, Value, apply};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use types::{Address, Malformed, Reader, TransactionId};

/// If more would have to be copied the leader does not cache the state, however often it repeats effects.
const LARGEST_COPY: usize = 1 << 20;
/// What it costs to do an effect once more, and to undo it, in bytes that could be copied instead.
const REPEATED: usize = 512;

/// The effects on a key that are in the log and not applied, and the state behind them.
///
/// The leader evaluates the next operation on that state. The leader repeats the effects on the applied state, and
/// undoes them, until that has cost about as much as a copy of the value. Then it retains the state and adds each new
/// effect to it, until all are applied. So with many effects in flight a command costs one effect, and with few the
/// leader copies nothing.
#[derive(Debug, Default)]
pub(super) struct UnappliedEffects {
    /// In their binary form, in the order of the log.
    effects: VecDeque<(TransactionId, Box<[u8]>)>,
    pub(super) state: Option<Cell>,
    /// How many effects have been repeated.
    repeated: usize,
    /// The log's index of the last.
    version: u64,
}

impl UnappliedEffects {
    /// The effects.
    pub(super) fn effects(&self) -> Result<Vec<Effect<'_>>, Malformed> {
        self.effects.iter().map(|(_, bytes)| decoded(bytes)).collect()
    }

    /// The version of the key behind them.
    pub(super) fn version(&self) -> u64 {
        self.version
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

    /// An entry was applied, and those before it are; if it came to nothing, the state behind it is another one.
    fn applied(&mut self, id: TransactionId, took_effect: bool) {
        if !took_effect {
            self.state = None;
        }
        while self.effects.front().is_some_and(|(of, _)| *of == id) {
            self.effects.pop_front();
        }
    }
}

fn decoded(effect: &[u8]) -> Result<Effect<'_>, Malformed> {
    Effect::decode(&mut Reader::new(effect))
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unapplied {
    pub(super) by_key: BTreeMap<CompactKey, UnappliedEffects>,
    /// The keys that each changes.
    keys: BTreeMap<TransactionId, SmallVec<[CompactKey; 1]>>,
    /// Answers to single commands that were given and would have to be given again.
    answers: BTreeMap<TransactionId, Message>,
    /// Answers that show what was not applied, by whose entry has to be.
    held: BTreeMap<TransactionId, Vec<(Address, Message)>>,
}

impl Unapplied {
    /// The effects on a key that are on their way, if there are any.
    pub(super) fn on(&mut self, key: &[u8]) -> Option<&mut UnappliedEffects> {
        self.by_key.get_mut(key)
    }

    /// Of those that have changed these keys and are on their way, the one that will be applied last.
    pub(super) fn last_on<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Option<TransactionId> {
        let unapplied = keys.into_iter().filter_map(|key| self.by_key.get(key));
        let last = unapplied.max_by_key(|unapplied| unapplied.version)?;
        last.effects.back().map(|(id, _)| *id)
    }

    /// This is to be in the log, behind what is there; first the deletion of what had expired of the key.
    pub(super) fn add(&mut self, id: TransactionId, key: &[u8], evaluation: &Evaluation) {
        for effect in evaluation.expiry.iter().chain(&evaluation.effect) {
            self.add_one(id, &key.into(), effect);
        }
    }

    fn add_one(&mut self, id: TransactionId, key: &CompactKey, effect: &[u8]) {
        match self.by_key.get_mut(key) {
            Some(unapplied) => unapplied.add(id, effect),
            None => self.by_key.entry(key.clone()).or_default().add(id, effect),
        }
    }

    /// What was added of this transaction on these keys is not put into the log.
    pub(super) fn take_back(&mut self, id: TransactionId, keys: Keys<'_>) {
        for key in keys {
            if let Some(unapplied) = self.by_key.get_mut(key) {
                unapplied.take_back(id);
                self.clear_up(key);
            }
        }
    }

    fn clear_up(&mut self, key: &[u8]) {
        if self.by_key.get(key).is_some_and(|unapplied| unapplied.effects.is_empty()) {
            self.by_key.remove(key);
        }
    }

    /// What was added of this transaction on these keys is in the log at this index.
    pub(super) fn proposed(&mut self, id: TransactionId, keys: Keys<'_>, index: u64) {
        self.note(id, keys.into_iter().map(CompactKey::from).collect(), index);
    }

    /// A part is in the log at this index, to be committed.
    pub(super) fn add_part(&mut self, id: TransactionId, part: &Part, index: u64) {
        let mut keys: SmallVec<[CompactKey; 1]> = SmallVec::new();
        for invoked in &part.invocations {
            let Some(effect) = &invoked.effect else { continue };
            self.add_one(id, &invoked.key, effect);
            keys.push(invoked.key.clone());
        }
        keys.sort_unstable();
        keys.dedup();
        self.note(id, keys, index);
    }

    fn note(&mut self, id: TransactionId, keys: SmallVec<[CompactKey; 1]>, index: u64) {
        for key in &keys {
            let unapplied = self.by_key.get_mut(key);
            if let Some(unapplied) =
                unapplied.filter(|unapplied| unapplied.effects.back().is_some_and(|(of, _)| *of == id))
            {
                unapplied.version = index;
            }
        }
        self.keys.insert(id, keys);
    }

    /// A retry gets this answer.
    pub(super) fn keep(&mut self, id: TransactionId, answer: Message) {
        self.answers.insert(id, answer);
    }

    /// The retained answer.
    pub(super) fn answer(&self, id: TransactionId) -> Option<Message> {
        self.answers.get(&id).cloned()
    }

    /// Gives an answer back unless this transaction's entry has yet to be applied, which has the answer wait for it.
    pub(super) fn hold(
        &mut self,
        id: Option<TransactionId>,
        (to, answer): (Address, Message),
    ) -> Option<(Address, Message)> {
        match id.filter(|id| self.keys.contains_key(id)) {
            None => Some((to, answer)),
            Some(id) => {
                self.held.entry(id).or_default().push((to, answer));
                None
            }
        }
    }

    /// An entry was applied. Returns the answer retained for it, and the requests that have waited for it.
    pub(super) fn applied(
        &mut self,
        id: TransactionId,
        took_effect: bool,
    ) -> (Option<Message>, Vec<(Address, Message)>) {
        let Some(keys) = self.keys.remove(&id) else { return (None, Vec::new()) };
        for key in keys {
            if let Some(unapplied) = self.by_key.get_mut(&key) {
                unapplied.applied(id, took_effect);
                self.clear_up(&key);
            }
        }
        (self.answer(id), self.held.remove(&id).unwrap_or_default())
    }

    /// No coordinator asks for these any more.
    pub(super) fn forget(&mut self, first: TransactionId, end: TransactionId) {
        let over: Vec<TransactionId> = self.answers.range(first..end).map(|(id, _)| *id).collect();
        over.iter().filter(|id| !self.keys.contains_key(id)).for_each(|id| {
            self.answers.remove(id);
        });
    }
}
