//! The versions of keys over the State DAG: what a state's readers see (TARDiS 6.1.3 and 6.1.4).
//!
//! A few small versions of a key are a list of values. Others lie on lines: the newest value on one costs no history, an old one is
//! reached by undoing, and copied when it is far. A large old one that many go on from they share (decision 0018).
//!
//! The records lie here, or in partitions of other processes (`remote`), which execute orders (`order`); in that case a
//! cache of the keys in use is here too.

mod chunk;
mod indexed;
mod line;
mod lines;
mod newest;
mod order;
mod places;
mod remote;
mod versions;

pub use order::{KeyValue, Order, Stored};

use crate::StateId;
use crate::dag::{Label, View};
use datatypes::Cell;
use mvcc::CompactKey;
use std::collections::BTreeMap;
use std::ops::Bound;
use versions::Versions;

/// A key where scans find it: in the order of hashes, so that a number says how far one is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Placed(u64, CompactKey);

impl Placed {
    fn of(key: &CompactKey) -> Self {
        Placed(place_of(key), key.clone())
    }
}

/// The last place where scans look: clients read cursors as signed numbers.
pub(crate) const LAST_PLACE: u64 = i64::MAX as u64;

/// Where scans find a key.
pub(crate) fn place_of(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key) & LAST_PLACE
}

/// A key.
#[derive(Debug)]
pub(crate) struct Record<'r>(Option<&'r mut Versions>);

impl Record<'_> {
    /// Shows what a view sees, and which state wrote it, to `read`, which leaves it as it was.
    pub fn with<R>(&mut self, view: &View<'_>, read: impl FnOnce(&Cell, Option<StateId>) -> R) -> R {
        view.meter().keys(1);
        match &mut self.0 {
            Some(versions) => versions.with_writer(view, read),
            None => read(&Cell::ABSENT, None),
        }
    }

    /// The same where the label of the version that the view sees is known.
    pub fn with_labelled<R>(
        &mut self,
        view: &View<'_>,
        label: Label,
        read: impl FnOnce(&Cell, Option<StateId>) -> R,
    ) -> R {
        view.meter().keys(1);
        match &mut self.0 {
            Some(versions) => versions.with_labelled(view, label, read),
            None => read(&Cell::ABSENT, None),
        }
    }

    /// Which state wrote the version that has this label.
    pub fn writer(&self, label: Label) -> Option<StateId> {
        self.0.as_ref()?.writer(label)
    }
}

/// All keys of a keyspace.
#[derive(Debug, Default)]
pub struct Records {
    /// All there are; or, if they lie elsewhere, those that are worked on.
    keys: BTreeMap<Placed, Versions>,
    remote: Option<Box<remote::RemoteRecords>>,
}

impl Records {
    /// Shows what a view sees of a key to `read`, which leaves it as it was.
    pub fn with<R>(&mut self, key: &CompactKey, view: &View<'_>, read: impl FnOnce(&mut Cell) -> R) -> R {
        view.meter().keys(1);
        match self.keys.get_mut(&Placed::of(key)) {
            Some(versions) => versions.with(view, read),
            None => {
                self.miss(key);
                read(&mut Cell::ABSENT.clone())
            }
        }
    }

    /// Notes that a key was looked at that is not here, though it may be elsewhere.
    fn miss(&mut self, key: &CompactKey) {
        if let Some(remote) = &mut self.remote {
            remote.miss(key);
        }
    }

    fn has_versions_of(&self, key: &CompactKey) -> bool {
        self.keys.contains_key(&Placed::of(key))
    }

    /// A copy of what a view sees of a key.
    pub fn cell(&mut self, key: &CompactKey, view: &View<'_>) -> Cell {
        self.with(key, view, |cell| cell.clone())
    }

    /// One key, to be looked at with several views.
    pub(crate) fn record(&mut self, key: &CompactKey) -> Record<'_> {
        if !self.has_versions_of(key) {
            self.miss(key);
        }
        Record(self.keys.get_mut(&Placed::of(key)))
    }

    /// Which state wrote what a view sees of a key.
    pub fn newest(&self, key: &CompactKey, view: &View<'_>) -> Option<StateId> {
        view.meter().keys(1);
        self.keys.get(&Placed::of(key))?.newest(view)
    }

    /// True if what one view sees of a key another one sees too, where all lies here.
    pub fn is_seen_too(&self, key: &CompactKey, view: &View<'_>, by: &View<'_>) -> bool {
        view.meter().keys(1);
        self.keys.get(&Placed::of(key)).is_none_or(|versions| versions.is_seen_too(view, by))
    }

    /// Which state wrote the version of a key that has this label.
    pub(crate) fn writer(&self, key: &CompactKey, label: Label) -> Option<StateId> {
        self.keys.get(&Placed::of(key))?.writer(label)
    }

    /// Performs the effects of a state on a key, on top of what a view of its parents sees. `label` and `id` are the
    /// state's, which wrote the key once.
    pub(crate) fn put<'e>(
        &mut self,
        key: &CompactKey,
        view: &View<'_>,
        label: Label,
        id: StateId,
        effects: impl Iterator<Item = &'e [u8]> + Clone,
    ) {
        view.meter().keys(1);
        self.keys.entry(Placed::of(key)).or_default().write(view, label, id, effects);
    }

    /// The versions of a key with some labels, ancestors first, join those labelled `to`. If every state sees these, a
    /// key is forgotten whose only version is among them and says that it is absent. A version that some states do not
    /// see must stay: a concurrent one with a lesser id that arrives later would hide that it is the newest.
    fn join(&mut self, key: &CompactKey, from: &[Label], to: Label, for_all: bool) {
        if let Some(versions) = self.keys.get_mut(&Placed::of(key)) {
            versions.relabel(from, to);
            if for_all && versions.is_void(to) {
                self.keys.remove(&Placed::of(key));
            }
        }
    }

    /// The first key after this one, or the first of all, with every version of it: the label, who wrote it, the value.
    pub(crate) fn next_key(
        &mut self,
        after: Option<&CompactKey>,
        visit: impl FnMut(Label, StateId, &Cell),
    ) -> Option<CompactKey> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(Placed::of(key)));
        let (Placed(_, key), versions) = self.keys.range_mut((from, Bound::Unbounded)).next()?;
        versions.each(visit);
        Some(key.clone())
    }

    /// A version as it is.
    fn put_value(&mut self, key: &CompactKey, label: Label, id: StateId, cell: Cell) {
        self.keys.entry(Placed::of(key)).or_default().restore(label, id, cell);
    }

    /// The keys that have a version, in the order of their places; some may be absent at every state.
    pub fn keys(&self) -> impl Iterator<Item = &CompactKey> {
        self.keys.keys().map(|Placed(_, key)| key)
    }

    /// The keys from this place on, in order, each with its place.
    pub(crate) fn keys_from(&self, place: u64) -> impl Iterator<Item = (u64, &CompactKey)> {
        self.keys.range(Placed(place, CompactKey::new(b""))..).map(|(Placed(place, key), _)| (*place, key))
    }

    /// How many keys have a version.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True without a version.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many versions there are.
    pub fn versions(&self) -> usize {
        self.keys.values().map(Versions::len).sum()
    }

    /// How many lookups a read of the key takes: at most as many as the view has branches.
    pub fn lookups(&self, key: &CompactKey, view: &View<'_>) -> usize {
        self.keys.get(&Placed::of(key)).map_or(0, |versions| versions.lookups(view))
    }

    /// The bytes everything occupies, about.
    pub fn memory(&self) -> usize {
        self.keys.iter().map(|(Placed(_, key), versions)| key.heap_bytes() + 32 + versions.memory()).sum()
    }

    /// Panics unless every key's versions fit their lines.
    pub fn assert_consistent(&self) {
        self.keys.values().for_each(Versions::assert_consistent);
    }
}
