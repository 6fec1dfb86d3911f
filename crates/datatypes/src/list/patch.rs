//! Undo and redo of a list: a few splices, each its own inverse's shape.

use crate::Items;
use crate::collections::ChunkedList;
use smallvec::SmallVec;

/// Splices that lead back to the state before, or forward again.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// In the order in which the list was changed; [`exchange`] goes backwards.
    pub(super) splices: SmallVec<[Splice; 1]>,
}

impl Patch {
    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let spilled = if self.splices.spilled() { self.splices.capacity() * size_of::<Splice>() } else { 0 };
        spilled + self.splices.iter().map(|splice| splice.insert.heap_bytes()).sum::<usize>()
    }
}

impl Patch {
    /// What led to the state whose patch this is, in order. An element that got another value keeps its place: nothing is
    /// removed or inserted there.
    pub(crate) fn steps(&self) -> impl Iterator<Item = crate::merge::Step> + '_ {
        self.splices.iter().map(|splice| {
            let (removed, inserted) = (splice.insert.len() as u64, splice.remove as u64);
            let (removed, inserted) = match removed.min(inserted) {
                0 => (removed, inserted),
                _ => (0, 0),
            };
            crate::merge::Step { at: splice.at as u64, removed, inserted }
        })
    }
}

/// At one place: remove so many elements, then insert these.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Splice {
    /// The place.
    pub(super) at: usize,
    /// How many elements to remove.
    pub(super) remove: usize,
    /// The elements to insert, in their order in the list.
    pub(super) insert: Items<'static>,
}

/// Removes and inserts at a place. With `UNDO` returns the splice that takes it back.
pub(super) fn splice<const UNDO: bool>(
    list: &mut ChunkedList,
    at: usize,
    remove: usize,
    insert: &Items<'_>,
) -> Option<Splice> {
    let removed = (UNDO && remove > 0).then(|| Items::collect(list.range(at, remove)));
    if remove > 0 {
        list.remove_range(at, remove);
    }
    for (offset, value) in insert.iter().enumerate() {
        list.insert(at + offset, value);
    }
    UNDO.then(|| Splice { at, remove: insert.len(), insert: removed.unwrap_or(Items::NONE) })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut ChunkedList, patch: &mut Patch) {
    for change in patch.splices.iter_mut().rev() {
        if let Some(inverse) = splice::<true>(state, change.at, change.remove, &change.insert) {
            *change = inverse;
        }
    }
    patch.splices.reverse();
}
