//! Taking back what the log refuses.
//!
//! Every change is remembered until the log has the records up to it. Changes are taken back latest first. A change
//! made while no snapshot was open carries its own patch; one made while snapshots were open is undone by its
//! history, which therefore must not be folded before: what is unlogged holds the horizon down like a snapshot. So
//! the queue always holds changes with patches first and changes with histories after them, because the history of
//! an unlogged change keeps histories going.

use super::Solo;
use datatypes::Patch;
use mvcc::{CompactKey, Store};
use std::collections::VecDeque;
use types::{KeyHash, Timestamp};

/// How one change is taken back.
pub(super) enum Change {
    /// An effect on a key, made in place.
    InPlace {
        key: CompactKey,
        hash: KeyHash,
        /// The record's stamp before.
        previous: Timestamp,
        patch: Patch,
    },
    /// An effect on a key that the key's history can undo.
    InHistory { key: CompactKey, hash: KeyHash, stamp: Timestamp },
    /// The removal of everything: what there was.
    Flush(Box<Store<Timestamp>>),
}

/// The changes that the log may still refuse.
#[derive(Default)]
pub(super) struct Unlogged {
    /// Each with the number of the last record persisted when it was made.
    changes: VecDeque<(u64, Change)>,
    /// How many records were persisted.
    persisted: u64,
    /// How often the log refused.
    refusals: u64,
}

impl Unlogged {
    /// A record was persisted for the next change.
    #[inline]
    pub(super) fn count_record(&mut self) {
        self.persisted += 1;
    }

    /// Remembers a change.
    #[inline]
    pub(super) fn push(&mut self, change: Change) {
        self.changes.push_back((self.persisted, change));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many changes it remembers, and how many records were persisted.
    pub(super) fn reach(&self) -> (usize, u64) {
        (self.changes.len(), self.persisted)
    }

    /// Nothing needs to be taken back any more.
    pub(super) fn clear(&mut self) {
        self.changes.clear();
    }

    /// The stamp of the first change that only a history can undo.
    fn first_in_history(&self) -> Option<Timestamp> {
        let place = self.changes.partition_point(|(_, change)| !matches!(change, Change::InHistory { .. }));
        match self.changes.get(place) {
            Some((_, Change::InHistory { stamp, .. })) => Some(*stamp),
            _ => None,
        }
    }
}

impl Solo {
    /// True if a change made now must be remembered: it is logged, its transaction may fail, or one before it may have to be
    /// taken back.
    #[inline]
    pub(super) fn needs_undo(&self) -> bool {
        self.is_logged() || self.is_lent || !self.unlogged.is_empty()
    }

    /// How often the log has refused what this partition had done: whoever saw something before may have seen what
    /// never happened.
    pub(super) fn refusals(&self) -> u64 {
        self.unlogged.refusals
    }

    /// The oldest snapshot leased is this.
    pub(super) fn set_lease(&mut self, oldest: Option<Timestamp>) {
        self.lease = oldest;
        self.move_horizon();
    }

    /// What snapshots or an undo may need stays.
    fn move_horizon(&mut self) {
        let unlogged = self.unlogged.first_in_history().map(Timestamp::previous);
        let horizon = [self.lease, unlogged].into_iter().flatten().min();
        if horizon != self.store.horizon() {
            self.store.set_horizon(horizon);
        }
    }

    /// The log has the first `records` records.
    pub(super) fn forget_logged(&mut self, records: u64) {
        while let Some((_, change)) = self.unlogged.changes.pop_front_if(|(last, _)| *last <= records) {
            if let Change::Flush(store) = change {
                self.freed.push(store.into_deferred_drop());
            }
        }
        if self.store.retains() {
            self.move_horizon();
        }
    }

    /// Takes back everything that the log does not have. Watches of keys that are undone count as touched.
    pub(super) fn take_all_back(&mut self) {
        self.unlogged.refusals += u64::from(!self.unlogged.is_empty());
        while let Some((_, change)) = self.unlogged.changes.pop_back() {
            self.take_back(change);
        }
        self.move_horizon();
    }

    /// Takes back what came after so many changes and records.
    pub(super) fn take_back_to(&mut self, (changes, persisted): (usize, u64)) {
        while self.unlogged.changes.len() > changes
            && let Some((_, change)) = self.unlogged.changes.pop_back()
        {
            self.take_back(change);
        }
        self.unlogged.persisted = persisted;
    }

    fn take_back(&mut self, change: Change) {
        match change {
            Change::InPlace { key, hash, previous, mut patch } => {
                self.store.exchange(hash, &key, &mut patch, previous);
                self.watches.touch(&key);
            }
            Change::InHistory { key, hash, stamp } => {
                let found = self.store.retract(hash, &key, stamp);
                debug_assert!(found, "the horizon stays below what may have to be taken back");
                self.watches.touch(&key);
            }
            Change::Flush(store) => {
                let after = std::mem::replace(&mut self.store, *store);
                self.freed.push(after.into_deferred_drop());
                self.watches.touch_all();
            }
        }
    }
}
