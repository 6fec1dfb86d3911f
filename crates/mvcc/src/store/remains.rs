//! What a store held, on its way to the allocator.

use super::Record;
use super::snapshots::KeyHistory;
use crate::{CompactKey, Drained};
use std::collections::BTreeSet;

/// The contents of a store, to be freed in pieces: millions of keys at once would be a step of seconds
/// (Corrections 87). Dropping it frees the rest at once.
pub struct Remains<S> {
    records: Drained<Record<S>>,
    deadlines: BTreeSet<(u64, CompactKey)>,
    histories: Drained<KeyHistory<S>>,
}

impl<S> Remains<S> {
    pub(super) fn new(
        records: Drained<Record<S>>,
        deadlines: BTreeSet<(u64, CompactKey)>,
        histories: Drained<KeyHistory<S>>,
    ) -> Self {
        Remains { records, deadlines, histories }
    }

    /// Frees at most `count` records, deadlines and histories together. Says whether any are left.
    pub fn free_some(&mut self, count: usize) -> bool {
        let mut left = count.saturating_sub(self.histories.len());
        self.histories.free_some(count);
        while left > 0 && self.deadlines.pop_first().is_some() {
            left -= 1;
        }
        self.records.free_some(left) || !self.deadlines.is_empty() || !self.histories.is_empty()
    }
}
