//! What a state changed: its write set, and of every key in it how.

use datatypes::{Effect, Mode};
use mvcc::CompactKey;
use std::collections::BTreeMap;
use types::{Malformed, Reader, Wire, put_bytes, put_varint};

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

impl Wire for Change {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Change::Additive(Mode::Increment) => 1,
            Change::Additive(Mode::IncrementFields) => 2,
            Change::Additive(_) | Change::Other => 0,
        });
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(Change::Other),
            1 => Ok(Change::Additive(Mode::Increment)),
            2 => Ok(Change::Additive(Mode::IncrementFields)),
            _ => Err(Malformed("change of a key")),
        }
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

impl Wire for WriteSet {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for (key, change) in &self.0 {
            put_bytes(out, key);
            change.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut set = WriteSet::default();
        for _ in 0..input.count()? {
            set.note(CompactKey::new(input.bytes()?), Change::decode(input)?);
        }
        Ok(set)
    }
}

impl FromIterator<(CompactKey, Change)> for WriteSet {
    fn from_iter<I: IntoIterator<Item = (CompactKey, Change)>>(changes: I) -> Self {
        let mut set = WriteSet::default();
        changes.into_iter().for_each(|(key, change)| set.note(key, change));
        set
    }
}
