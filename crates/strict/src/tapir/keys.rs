//! What validation keeps of keys beside their effects: by key, found by hash, and forgotten by age.

use crate::tapir::order::CommittedRead;
use crate::validation::{ModeStamps, Observed, Stamp};
use mvcc::{CompactKey, Keyed, Table};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::{HashSeed, KeyHash, Timestamp, TransactionId};

/// The width of a bucket of ages, as a power of two of timestamps: 65 ms.
const BUCKET_BITS: u32 = 28;

/// The validation state of one key. What every vote looks at comes first, on the first cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct KeyState {
    key: CompactKey,
    /// Who has prepared something on it, ascending.
    prepared: SmallVec<[TransactionId; 1]>,
    /// The greatest committed stamps by mode.
    pub modes: ModeStamps,
    /// Every committed effect up to here is held, or overwritten: the base that reads may name.
    pub closed: Stamp,
    /// The greatest stamp of all this; once that is below what is trimmed, every Prepare is above it. Zero while the
    /// key retains nothing committed.
    pub newest: Stamp,
    /// Committed observers of the whole key, and what they saw: the base moves to them once all of that is held.
    pub waiting: Vec<(Stamp, Observed)>,
    /// What committed transactions above the horizon have observed; retained where only the order of stamps counts.
    pub reads: Vec<CommittedRead>,
}

impl Keyed for KeyState {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

impl KeyState {
    fn new(key: &[u8]) -> Self {
        KeyState {
            key: CompactKey::new(key),
            prepared: SmallVec::new(),
            modes: ModeStamps::default(),
            closed: Stamp::ZERO,
            newest: Stamp::ZERO,
            waiting: Vec::new(),
            reads: Vec::new(),
        }
    }

    /// The key.
    pub fn name(&self) -> &[u8] {
        &self.key
    }

    /// Who has prepared something on the key, ascending.
    pub fn prepared(&self) -> &[TransactionId] {
        &self.prepared
    }

    /// True if the key retains something committed.
    pub fn is_stamped(&self) -> bool {
        self.newest != Stamp::ZERO
    }

    fn forget_stamps(&mut self) {
        (self.modes, self.closed, self.newest) = (ModeStamps::default(), Stamp::ZERO, Stamp::ZERO);
        (self.waiting, self.reads) = (Vec::new(), Vec::new());
    }
}

/// See the module.
pub(super) struct Keys {
    table: Table<KeyState>,
    /// When the stamps of a key may go: one entry for each key that has some, in the bucket of its newest stamp or of
    /// an earlier one.
    due: BTreeMap<u64, Vec<CompactKey>>,
}

fn bucket(at: Timestamp) -> u64 {
    at.0 >> BUCKET_BITS
}

impl Keys {
    pub fn new(seed: HashSeed) -> Self {
        Keys { table: Table::new(seed), due: BTreeMap::new() }
    }

    pub fn get(&self, key: &[u8]) -> Option<&KeyState> {
        self.table.get(self.table.hash(key), key)
    }

    /// Brings a key's place in the index into the cache.
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        self.table.prefetch_bucket(hash);
    }

    /// Brings a key's state into the cache; after `prefetch_bucket`.
    pub fn prefetch_state(&self, hash: KeyHash) {
        self.table.prefetch_record(hash);
    }

    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut KeyState> {
        self.table.get_mut(self.table.hash(key), key)
    }

    /// The state of a key on which something commits at this stamp.
    pub fn stamped(&mut self, key: &[u8], stamp: Stamp) -> &mut KeyState {
        let state = self.table.get_or_insert_with(self.table.hash(key), key, || KeyState::new(key));
        if !state.is_stamped() {
            self.due.entry(bucket(stamp.at)).or_default().push(state.key.clone());
        }
        state.newest = state.newest.max(stamp);
        state
    }

    /// A transaction has prepared something on a key.
    pub fn hold(&mut self, key: &[u8], transaction: TransactionId) {
        let hash = self.table.hash(key);
        let prepared = &mut self.table.get_or_insert_with(hash, key, || KeyState::new(key)).prepared;
        if let Err(place) = prepared.binary_search(&transaction) {
            prepared.insert(place, transaction);
        }
    }

    /// It has not any more.
    pub fn release(&mut self, key: &[u8], transaction: TransactionId) {
        let hash = self.table.hash(key);
        let Some(state) = self.table.get_mut(hash, key) else { return };
        state.prepared.retain(|id| *id != transaction);
        if state.prepared.is_empty() && !state.is_stamped() {
            self.table.remove(hash, key);
        }
    }

    /// Forgets the stamps of the keys whose newest one is not above the horizon, bucket by bucket: those of a bucket
    /// that ends above it stay.
    pub fn trim(&mut self, horizon: Timestamp) {
        while let Some(first) = self.due.first_entry()
            && *first.key() < bucket(horizon.next())
        {
            for key in first.remove() {
                self.forget(key, horizon);
            }
        }
    }

    fn forget(&mut self, key: CompactKey, horizon: Timestamp) {
        let hash = self.table.hash(&key);
        let Some(state) = self.table.get_mut(hash, &key) else { return };
        if state.newest.at > horizon {
            self.due.entry(bucket(state.newest.at)).or_default().push(key);
        } else if state.prepared.is_empty() {
            self.table.remove(hash, &key);
        } else {
            state.forget_stamps();
        }
    }

    /// The keys with something committed above a stamp, by name.
    pub fn newer_than(&self, stamp: Stamp) -> Vec<&KeyState> {
        let mut newer: Vec<&KeyState> = self.table.iter().filter(|state| state.newest > stamp).collect();
        newer.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        newer
    }

    /// Visits the keys of one place of the index; returns the next cursor, 0 at the end.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(&KeyState)) -> u64 {
        self.table.scan(cursor, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(buckets: u64) -> Stamp {
        Stamp { at: Timestamp((buckets << BUCKET_BITS) + 5), transaction: id(1) }
    }

    fn end_of(bucket: u64) -> Timestamp {
        Timestamp(((bucket + 1) << BUCKET_BITS) - 1)
    }

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    fn names(keys: &Keys) -> Vec<Vec<u8>> {
        let (mut names, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = keys.scan(cursor, |state| names.push(state.name().to_vec()));
            if cursor == 0 {
                names.sort_unstable();
                return names;
            }
        }
    }

    #[test]
    fn a_key_is_forgotten_when_its_newest_stamp_is_not_above_the_horizon() {
        let mut keys = Keys::new(HashSeed(3));
        keys.stamped(b"a", stamp(1));
        keys.stamped(b"b", stamp(1));
        keys.stamped(b"b", stamp(4));
        keys.trim(end_of(0));
        assert_eq!(names(&keys), [b"a", b"b"]);
        keys.trim(end_of(1));
        assert_eq!(names(&keys), [b"b"]);
        assert_eq!(
            keys.get(b"b").map(|state| state.newest),
            Some(stamp(4)),
            "what is younger stays as it was"
        );
        keys.trim(end_of(3));
        assert_eq!(names(&keys), [b"b"]);
        keys.trim(end_of(4));
        assert!(names(&keys).is_empty() && keys.due.is_empty());
    }

    #[test]
    fn what_is_prepared_stays_when_stamps_go_and_the_other_way_round() {
        let mut keys = Keys::new(HashSeed(3));
        keys.hold(b"a", id(9));
        keys.hold(b"a", id(2));
        keys.hold(b"a", id(9));
        assert_eq!(keys.get(b"a").map(|state| state.prepared().to_vec()), Some(vec![id(2), id(9)]));
        keys.stamped(b"a", stamp(1)).closed = stamp(1);
        keys.trim(end_of(1));
        assert!(keys.get(b"a").is_some_and(|state| !state.is_stamped() && state.closed == Stamp::ZERO));
        keys.stamped(b"a", stamp(2));
        keys.release(b"a", id(2));
        keys.release(b"a", id(9));
        assert_eq!(names(&keys), [b"a"], "its stamp is still kept");
        keys.trim(end_of(2));
        keys.hold(b"a", id(1));
        keys.release(b"a", id(1));
        assert!(names(&keys).is_empty());
    }
}
