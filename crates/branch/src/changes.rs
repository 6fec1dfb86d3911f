//! What a state changed: its write set, and of every key in it how.

use crate::records::place_of;
use datatypes::{Aspect, Effect, Mode, scored_set};
use mvcc::CompactKey;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use triomphe::ThinArc;
use types::{Malformed, Reader, Wire, put_bytes, put_varint};

/// How a key was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By additions alone, all of this mode: the differences to a common ancestor may be added up.
    Additive(Mode),
    /// By additions to scores alone: so may these.
    AdditiveScores,
    /// Otherwise.
    Other,
}

impl Change {
    /// How this effect changes a key.
    pub fn of(effect: &Effect<'_>) -> Change {
        if let Effect::ScoredSet(scored_set::Effect::Add { .. }) = effect {
            return Change::AdditiveScores;
        }
        match effect.mode() {
            mode @ (Mode::Increment | Mode::IncrementFields) => Change::Additive(mode),
            _ => Change::Other,
        }
    }

    /// True if only elements of a collection were changed, by additions to them.
    pub(crate) fn adds_to_elements(self) -> bool {
        matches!(self, Change::Additive(Mode::IncrementFields) | Change::AdditiveScores)
    }

    /// How both together change it.
    #[must_use]
    pub fn and(self, other: Change) -> Change {
        if self == other { self } else { Change::Other }
    }
}

/// More elements of a collection than these, and all of it counts as changed.
const MOST_ELEMENTS: usize = 256;

/// An element of a collection; what several states changed has it once.
type Element = Arc<[u8]>;

/// Some of them in ascending order; most states change no collection, so a pointer.
type Elements = ThinArc<(), Element>;

/// What was changed of a key.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// How.
    pub change: Change,
    /// Of a collection the elements that may be different, in ascending order; `None` if that is not known.
    pub elements: Option<Elements>,
}

impl Written {
    /// What this effect changes.
    pub fn by(effect: &Effect<'_>) -> Self {
        let elements = match effect {
            Effect::Dict(_) | Effect::Set(_) | Effect::ScoredSet(_) => {
                effect.footprint().aspects.iter().find_map(|aspect| match aspect {
                    Aspect::Elements(items) => Some(items.iter().map(Element::from).collect()),
                    _ => None,
                })
            }
            _ => None,
        };
        Written { change: Change::of(effect), elements: elements.and_then(few) }
    }

    /// What both together change.
    #[must_use]
    pub fn and(self, other: &Written) -> Self {
        let elements = self
            .elements
            .zip(other.elements.as_ref())
            .and_then(|(all, others)| few(all.slice.iter().chain(&others.slice).cloned().collect()));
        Written { change: self.change.and(other.change), elements }
    }

    /// The same, in place.
    pub fn join(&mut self, other: &Written) {
        let before = std::mem::replace(self, Change::Other.into());
        *self = before.and(other);
    }

    /// What all of these together change; nothing, if there are none.
    pub fn all(written: &[&Written]) -> Option<Self> {
        let change = written.iter().map(|written| written.change).reduce(Change::and)?;
        let elements: Option<Vec<&[Element]>> =
            written.iter().map(|written| Some(&written.elements.as_ref()?.slice)).collect();
        // More of them are probably too many even without those that occur twice.
        let are_few =
            |all: &Vec<&[Element]>| all.iter().map(|some| some.len()).sum::<usize>() <= 4 * MOST_ELEMENTS;
        let elements = elements.filter(are_few).and_then(|all| {
            let mut elements: Vec<&Element> = all.into_iter().flatten().collect();
            elements.sort_unstable();
            elements.dedup();
            let are_few = elements.len() <= MOST_ELEMENTS;
            are_few.then(|| Elements::from_header_and_iter((), elements.into_iter().cloned()))
        });
        Some(Written { change, elements })
    }

    /// The bytes that it occupies beyond its own size.
    fn memory(&self) -> usize {
        let elements = self.elements.iter().flat_map(|elements| &elements.slice);
        elements.map(|element| element.len() + 2 * size_of::<Element>()).sum()
    }
}

impl From<Change> for Written {
    fn from(change: Change) -> Self {
        Written { change, elements: None }
    }
}

fn few(mut elements: Vec<Element>) -> Option<Elements> {
    elements.sort_unstable();
    elements.dedup();
    (elements.len() <= MOST_ELEMENTS).then(|| Elements::from_header_and_iter((), elements.into_iter()))
}

impl Wire for Change {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Change::Additive(Mode::Increment) => 1,
            Change::Additive(Mode::IncrementFields) => 2,
            Change::AdditiveScores => 3,
            Change::Additive(_) | Change::Other => 0,
        });
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(Change::Other),
            1 => Ok(Change::Additive(Mode::Increment)),
            2 => Ok(Change::Additive(Mode::IncrementFields)),
            3 => Ok(Change::AdditiveScores),
            _ => Err(Malformed("change of a key")),
        }
    }
}

/// A bit for every key, of few: keys without a common one have nothing in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sketch(u64);

impl Sketch {
    fn of(key: &CompactKey) -> Self {
        Sketch(1 << (place_of(key) % 64))
    }

    fn and(self, other: Sketch) -> Self {
        Sketch(self.0 | other.0)
    }

    fn may_meet(self, other: Sketch) -> bool {
        self.0 & other.0 != 0
    }
}

impl<'k> FromIterator<&'k CompactKey> for Sketch {
    fn from_iter<I: IntoIterator<Item = &'k CompactKey>>(keys: I) -> Self {
        keys.into_iter().map(Sketch::of).fold(Sketch::default(), Sketch::and)
    }
}

/// So many keys lie side by side.
const FEW: usize = 64;

/// The keys of a write set, in order: most states have few.
#[derive(Clone, Debug)]
enum Keys {
    Few(Vec<(CompactKey, Written)>),
    Many(BTreeMap<CompactKey, Written>),
}

/// The keys that a state, or the class of states it stands for, wrote.
#[derive(Clone, Debug)]
pub struct WriteSet {
    keys: Keys,
    /// Of these keys and perhaps of some that were taken out.
    sketch: Sketch,
}

impl Default for WriteSet {
    fn default() -> Self {
        WriteSet { keys: Keys::Few(Vec::new()), sketch: Sketch::default() }
    }
}

impl PartialEq for WriteSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl WriteSet {
    /// Notes a change.
    pub(crate) fn note(&mut self, key: CompactKey, written: impl Into<Written>) {
        self.sketch = self.sketch.and(Sketch::of(&key));
        let written = written.into();
        match &mut self.keys {
            Keys::Few(few) => match few.binary_search_by(|(known, _)| known.cmp(&key)) {
                Ok(place) => few[place].1.join(&written),
                Err(place) if few.len() < FEW => {
                    if few.len() == few.capacity() {
                        few.reserve_exact(few.len() / 4 + 1);
                    }
                    few.insert(place, (key, written));
                }
                Err(_) => {
                    let many = few.drain(..).chain(std::iter::once((key, written)));
                    self.keys = Keys::Many(many.collect());
                }
            },
            Keys::Many(many) => match many.get_mut(&key) {
                Some(known) => known.join(&written),
                None => drop(many.insert(key, written)),
            },
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::Few(few) => few.len(),
            Keys::Many(many) => many.len(),
        }
    }

    /// The bytes that its keys occupy, about.
    pub(crate) fn memory(&self) -> usize {
        let keys = match &self.keys {
            Keys::Few(few) => few.capacity(),
            // Nodes are two thirds full.
            Keys::Many(many) => many.len() * 3 / 2,
        };
        let own = |(key, written): (&CompactKey, &Written)| key.heap_bytes() + written.memory();
        keys * size_of::<(CompactKey, Written)>() + self.each().map(own).sum::<usize>()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How a key was changed, if it was.
    pub fn get(&self, key: &CompactKey) -> Option<Change> {
        self.written(key).map(|written| written.change)
    }

    /// What was changed of a key, if it was.
    pub(crate) fn written(&self, key: &CompactKey) -> Option<&Written> {
        match &self.keys {
            Keys::Few(few) => {
                let place = few.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
                Some(&few[place].1)
            }
            Keys::Many(many) => many.get(key),
        }
    }

    /// The keys in ascending order, each with what was changed of it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&CompactKey, &Written)> {
        let (few, many) = match &self.keys {
            Keys::Few(few) => (&few[..], None),
            Keys::Many(many) => (&[][..], Some(many)),
        };
        few.iter().map(|(key, written)| (key, written)).chain(many.into_iter().flatten())
    }

    /// The same of the keys after this one.
    pub(crate) fn each_after<'s>(
        &'s self,
        key: Option<&'s CompactKey>,
    ) -> impl Iterator<Item = (&'s CompactKey, &'s Written)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let (few, many) = match &self.keys {
            Keys::Few(few) => (&few[..], None),
            Keys::Many(many) => (&[][..], Some(many.range::<CompactKey, _>((from, Bound::Unbounded)))),
        };
        let is_after = move |known: &CompactKey| key.is_none_or(|key| known > key);
        let few = few.iter().map(|(key, written)| (key, written)).filter(move |(known, _)| is_after(known));
        few.chain(many.into_iter().flatten())
    }

    /// The keys in ascending order, each with its change.
    pub fn iter(&self) -> impl Iterator<Item = (&CompactKey, Change)> {
        self.each().map(|(key, written)| (key, written.change))
    }

    /// Takes a key out.
    pub(crate) fn pop(&mut self) -> Option<(CompactKey, Written)> {
        match &mut self.keys {
            Keys::Few(few) => few.pop(),
            Keys::Many(many) => many.pop_last(),
        }
    }

    /// True when a key is in both.
    pub fn meets(&self, other: &WriteSet) -> bool {
        let (few, many) = if self.len() < other.len() { (self, other) } else { (other, self) };
        self.sketch.may_meet(other.sketch) && few.each().any(|(key, _)| many.written(key).is_some())
    }

    /// False when none of the keys that have this sketch was written.
    pub(crate) fn may_touch(&self, sketch: Sketch) -> bool {
        self.sketch.may_meet(sketch)
    }

    /// True when one of these keys, which have this sketch, was written.
    pub(crate) fn touches<'k>(
        &self,
        (mut keys, sketch): (impl Iterator<Item = &'k CompactKey>, Sketch),
    ) -> bool {
        self.sketch.may_meet(sketch) && keys.any(|key| self.written(key).is_some())
    }
}

impl Wire for WriteSet {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        // Which elements is forgotten: those who read it take all of a collection for changed.
        for (key, change) in self.iter() {
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
        changes.into_iter().map(|(key, change)| (key, Written::from(change))).collect()
    }
}

impl FromIterator<(CompactKey, Written)> for WriteSet {
    fn from_iter<I: IntoIterator<Item = (CompactKey, Written)>>(changes: I) -> Self {
        let mut set = WriteSet::default();
        changes.into_iter().for_each(|(key, written)| set.note(key, written));
        set
    }
}
