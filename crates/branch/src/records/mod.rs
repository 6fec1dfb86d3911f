//! The versions of keys over the State DAG: what a state's readers see (TARDiS 6.1.3 and 6.1.4).
//!
//! A key's newest value on a line costs no history; an old one is reached by undoing, and copied when it is far. A key
//! that was not forked has one line.

mod line;
mod versions;

use crate::StateId;
use crate::dag::{Label, View};
use datatypes::Cell;
use mvcc::CompactKey;
use std::collections::BTreeMap;
use versions::Versions;

/// All keys of a keyspace.
#[derive(Debug, Default)]
pub struct Records {
    keys: BTreeMap<CompactKey, Versions>,
}

impl Records {
    /// Shows what a view sees of a key to `read`, which leaves it as it was.
    pub fn with<R>(&mut self, key: &CompactKey, view: &View<'_>, read: impl FnOnce(&mut Cell) -> R) -> R {
        match self.keys.get_mut(key) {
            Some(versions) => versions.with(view, read),
            None => read(&mut Cell::ABSENT.clone()),
        }
    }

    /// A copy of what a view sees of a key.
    pub fn cell(&mut self, key: &CompactKey, view: &View<'_>) -> Cell {
        self.with(key, view, |cell| cell.clone())
    }

    /// Which state wrote what a view sees of a key.
    pub fn newest(&self, key: &CompactKey, view: &View<'_>) -> Option<StateId> {
        self.keys.get(key)?.newest(view)
    }

    /// Performs the effects of a state on a key, on top of what a view of its parents sees. `label` and `id` are the
    /// state's, which wrote the key once.
    pub fn write<'e>(
        &mut self,
        key: &CompactKey,
        view: &View<'_>,
        label: Label,
        id: StateId,
        effects: impl Iterator<Item = &'e [u8]>,
    ) {
        self.keys.entry(key.clone()).or_default().write(view, label, id, effects);
    }

    /// The version of a key labelled `from` joins those labelled `to`.
    pub(crate) fn relabel(&mut self, key: &CompactKey, from: Label, to: Label) {
        if let Some(versions) = self.keys.get_mut(key) {
            versions.relabel(from, to);
            if versions.is_void() {
                self.keys.remove(key);
            }
        }
    }

    /// The keys that have a version, in ascending order; some may be absent at every state.
    pub fn keys(&self) -> impl Iterator<Item = &CompactKey> {
        self.keys.keys()
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
        self.keys.get(key).map_or(0, |versions| versions.lookups(view))
    }

    /// The bytes everything occupies, about.
    pub fn memory(&self) -> usize {
        self.keys.iter().map(|(key, versions)| key.heap_bytes() + 24 + versions.memory()).sum()
    }

    /// Panics unless every key's versions fit their lines.
    pub fn assert_consistent(&self) {
        self.keys.values().for_each(Versions::assert_consistent);
    }
}
