//! Deferred deallocation: what a store held is freed in pieces.

use super::Record;
use super::snapshots::KeyHistory;
use crate::history::Packed;
use crate::{CompactKey, Drained};
use std::collections::BTreeSet;

/// The contents of a store, to be freed in pieces: millions of keys at once would be a step of seconds
/// (Corrections 87). Dropping it frees the rest at once.
pub struct DeferredDrop<S> {
    records: Drained<Record<S>>,
    deadlines: [BTreeSet<(u64, CompactKey)>; 2],
    histories: Drained<KeyHistory<S>>,
    packed: Drained<Packed>,
}

impl<S> DeferredDrop<S> {
    pub(super) fn new(
        records: Drained<Record<S>>,
        deadlines: [BTreeSet<(u64, CompactKey)>; 2],
        histories: Drained<KeyHistory<S>>,
        packed: Drained<Packed>,
    ) -> Self {
        DeferredDrop { records, deadlines, histories, packed }
    }

    /// Frees at most about `count` records, deadlines and histories together. Says whether any are left.
    pub fn free_some(&mut self, count: usize) -> bool {
        let mut left = count.saturating_sub(self.histories.len());
        self.histories.free_some(count);
        while left > 0 && self.deadlines.iter_mut().any(|deadlines| deadlines.pop_first().is_some()) {
            left -= 1;
        }
        let is_left = self.packed.free_some(left) | self.records.free_some(left);
        is_left || self.deadlines.iter().any(|deadlines| !deadlines.is_empty()) || !self.histories.is_empty()
    }
}
