//! What a state changed: its write set, and of every key in it how.

use datatypes::{Effect, Mode};
use mvcc::CompactKey;
use std::collections::BTreeMap;

/// How a key was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By additions alone, all of this mode: the differences to a common ancestor may be added up.
    Additive(Mode),
    /// Otherwise.
    Other,
}

impl Change {
    /// How this effect changes a key.
    pub fn of(effect: &Effect<'_>) -> Change {
        match effect.mode() {
            mode @ (Mode::Increment | Mode::IncrementFields) => Change::Additive(mode),
            _ => Change::Other,
        }
    }

    /// How both together change it.
    #[must_use]
    pub fn and(self, other: Change) -> Change {
        if self == other { self } else { Change::Other }
    }
}

/// The keys that a state, or the class of states it stands for, wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteSet(BTreeMap<CompactKey, Change>);

impl WriteSet {
    /// Notes a change.
    pub fn note(&mut self, key: CompactKey, change: Change) {
        self.0.entry(key).and_modify(|before| *before = before.and(change)).or_insert(change);
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How a key was changed, if it was.
    pub fn get(&self, key: &CompactKey) -> Option<Change> {
        self.0.get(key).copied()
    }

    /// The keys in ascending order, each with its change.
    pub fn iter(&self) -> impl Iterator<Item = (&CompactKey, Change)> {
        self.0.iter().map(|(key, change)| (key, *change))
    }

    /// Takes the first key out.
    pub fn pop(&mut self) -> Option<(CompactKey, Change)> {
        self.0.pop_first()
    }

    /// True when a key is in both.
    pub fn meets(&self, other: &WriteSet) -> bool {
        let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
        few.0.keys().any(|key| many.0.contains_key(key))
    }

    /// True when one of these keys was written.
    pub fn touches<'k>(&self, mut keys: impl Iterator<Item = &'k CompactKey>) -> bool {
        !self.is_empty() && keys.any(|key| self.0.contains_key(key))
    }
}

impl FromIterator<(CompactKey, Change)> for WriteSet {
    fn from_iter<I: IntoIterator<Item = (CompactKey, Change)>>(changes: I) -> Self {
        let mut set = WriteSet::default();
        changes.into_iter().for_each(|(key, change)| set.note(key, change));
        set
    }
}
