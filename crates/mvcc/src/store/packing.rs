//! Keys that are gone, while their history must stay: another group is silent, and what it did may be concurrent with
//! it.
//!
//! A record with its history occupies about a kilobyte. Of a key that was deleted, or has expired, a store that merges keeps
//! both *packed*, in about a hundred bytes beside the effects, until somebody changes the key or everybody has observed the effects.
//! Reads unpack a copy. So nothing but the memory in use tells packed keys from others.

use super::fold_queue::Entry;
use super::snapshots::KeyHistory;
use super::{Counted, Record, Stamp, Store};
use crate::history::{History, Packed};
use crate::{CompactKey, Drained, Keyed, Table};
use datatypes::Cell;
use std::collections::VecDeque;
use types::{HashSeed, KeyHash};

/// Longer histories, and larger ones in bytes, are not packed: every read unpacks one.
const MOST_EFFECTS: usize = 32;
const MOST_BYTES: usize = 64 * 1024;

/// How many keys are packed before a run of the agenda is rid of what stands for packed ones.
const THINNED_EVERY: usize = 1024;

/// How many packed keys are due at once.
const BATCH: usize = 256;

/// The packed keys of a store.
pub(super) struct Packing<S> {
    table: Table<Packed>,
    /// The sum of their `heap_bytes`.
    bytes: usize,
    /// Keys that were deleted or have expired, by the stamp of their last effect, about in order.
    dying: VecDeque<Entry<S>>,
    /// Keys that were packed, with a stamp that all their effects are at or below; the stamps ascend.
    due: VecDeque<(S, Vec<KeyHash>)>,
    /// How many were packed since the agenda was thinned.
    fresh: usize,
}

impl<S: Stamp> Packing<S> {
    pub fn new(seed: HashSeed) -> Self {
        Packing { table: Table::new(seed), bytes: 0, dying: VecDeque::new(), due: VecDeque::new(), fresh: 0 }
    }

    pub fn table(&self) -> &Table<Packed> {
        &self.table
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn take(&mut self) -> Drained<Packed> {
        self.table.take()
    }

    /// Nothing is left of a key whose last effect has this stamp.
    pub fn note_dying(&mut self, last: S, hash: KeyHash) {
        self.dying.push_back((last, hash));
    }

    pub fn memory(&self) -> usize {
        let of_due = self.due.iter().map(|(_, hashes)| hashes.capacity()).sum::<usize>();
        self.table.memory()
            + self.table.len() * size_of::<Packed>()
            + self.bytes
            + self.dying.capacity() * size_of::<Entry<S>>()
            + self.due.capacity() * size_of::<(S, Vec<KeyHash>)>()
            + of_due * size_of::<KeyHash>()
    }

    fn insert(&mut self, hash: KeyHash, last: S, packed: Packed) {
        self.bytes += packed.heap_bytes();
        self.table.insert_absent(hash, Box::new(packed));
        match self.due.back_mut().filter(|(_, hashes)| hashes.len() < BATCH) {
            Some((all, hashes)) => {
                *all = last.max(*all);
                hashes.push(hash);
            }
            None => {
                let last = self.due.back().map_or(last, |(before, _)| last.max(*before));
                let mut hashes = Vec::with_capacity(BATCH);
                hashes.push(hash);
                self.due.push_back((last, hashes));
            }
        }
        self.fresh += 1;
    }

    fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<Box<Packed>> {
        let packed = self.table.remove(hash, key)?;
        self.bytes -= packed.heap_bytes();
        Some(packed)
    }

    /// True if some may be due at a stamp.
    pub fn is_due(&self, settled: S) -> bool {
        self.due.front().is_some_and(|(last, _)| *last <= settled)
    }

    /// The next key that may be due.
    fn next_due(&mut self) -> Option<KeyHash> {
        let (_, hashes) = self.due.front_mut()?;
        let next = hashes.pop();
        if hashes.is_empty() {
            self.due.pop_front();
        }
        next
    }

    pub fn assert_consistent(&self) {
        assert_eq!(self.bytes, self.table.iter().map(Packed::heap_bytes).sum::<usize>(), "what is packed");
        assert!(self.due.iter().is_sorted_by_key(|(last, _)| *last), "what is packed is due in order");
    }
}

impl<S: Stamp> Store<S> {
    /// In a store that merges: packs keys that were deleted or have expired ([`Store::pass_time`]) and that nobody has changed
    /// since `upto`. Looks at about so many.
    pub fn pack_some(&mut self, limit: usize, upto: S) {
        for _ in 0..limit {
            let Some((last, hash)) = self.packing.dying.pop_front_if(|(last, _)| *last <= upto) else {
                break;
            };
            if let Some(key) = self.dead(last, hash) {
                self.pack(hash, &key);
            }
        }
        if self.packing.dying.is_empty() {
            self.packing.dying = VecDeque::new();
        }
        if self.packing.fresh >= THINNED_EVERY {
            self.packing.fresh = 0;
            let histories = &self.histories;
            let stands = |due: S, hash| {
                histories.find(hash, |key_history| key_history.hash == hash && key_history.due == due)
            };
            self.due.thin(|(due, hash)| stands(*due, *hash).is_some());
        }
    }

    /// How many keys are packed.
    pub fn packed(&self) -> usize {
        self.packing.table.len()
    }

    /// The key of which nothing is left since an effect with this stamp.
    fn dead(&self, last: S, hash: KeyHash) -> Option<CompactKey> {
        let (seed, until) = (self.seed, self.lapsed_until);
        let is_dead = |record: &Record<S>| {
            let is_gone = record.cell.value.is_none() || record.cell.is_expired(until);
            record.stamp == last && is_gone && seed.hash(&record.key) == hash
        };
        self.table.find(hash, is_dead).map(|record| record.key.clone())
    }

    fn pack(&mut self, hash: KeyHash, key: &[u8]) {
        if self.find_packable(hash, key).is_none() {
            return;
        }
        let (Some(key_history), Some(record)) =
            (self.histories.remove(hash, key), self.take_record(hash, key))
        else {
            return;
        };
        self.memory -= key_history.heap_bytes();
        self.history_bytes -= key_history.heap_bytes();
        let Some(last) = key_history.history.last() else { return };
        let packed = key_history.history.pack(key, record.cell);
        self.packing.insert(hash, last, packed);
    }

    fn find_packable(&self, hash: KeyHash, key: &[u8]) -> Option<&KeyHistory<S>> {
        let is_small = |key_history: &&KeyHistory<S>| {
            key_history.history.len() <= MOST_EFFECTS
                && key_history.heap_bytes() <= MOST_BYTES
                && !key_history.history.waits()
        };
        self.find_history(hash, key).filter(is_small)
    }

    fn take_record(&mut self, hash: KeyHash, key: &[u8]) -> Option<Box<Record<S>>> {
        let record = self.table.remove(hash, key)?;
        self.memory -= record.memory();
        self.watermark = self.watermark.max(record.stamp);
        let counted = Counted::of(&record.cell);
        if counted.absent {
            self.tombstones -= 1;
            self.buried -= record.memory();
        }
        self.redate(key, counted, Counted::of(&Cell::ABSENT));
        Some(record)
    }

    /// Makes a key, if it is packed, one with a record and a history again: [`Store::record`] and [`Store::cell`] know nothing of
    /// what is packed.
    pub fn unpack(&mut self, hash: KeyHash, key: &[u8]) {
        if self.packing.is_empty() {
            return;
        }
        let Some((history, cell)) = self.unpacked(hash, key) else { return };
        self.packing.remove(hash, key);
        let (Some(last), heap_bytes) = (history.last(), history.heap_bytes()) else { return };
        let counted = Counted::of(&cell);
        let record = Record { key: CompactKey::new(key), cell, stamp: last };
        self.memory += record.memory();
        if counted.absent {
            self.tombstones += 1;
            self.buried += record.memory();
        }
        self.redate(key, Counted::of(&Cell::ABSENT), counted);
        self.table.insert_absent(hash, Box::new(record));
        let key = CompactKey::new(key);
        let key_history = KeyHistory { key, hash, due: last, era: self.era, queued: None, history };
        let heap_bytes = heap_bytes + key_history.key.heap_bytes();
        self.memory += heap_bytes;
        self.history_bytes += heap_bytes;
        self.histories.insert_absent(hash, Box::new(key_history));
        self.due.push((last, hash));
        self.packing.note_dying(last, hash);
    }

    /// What is packed of a key.
    pub(super) fn find_packed(&self, hash: KeyHash, key: &[u8]) -> Option<&Packed> {
        if self.packing.is_empty() { None } else { self.packing.table.get(hash, key) }
    }

    /// A copy of the history and the newest state of a key that is packed.
    pub(super) fn unpacked(&self, hash: KeyHash, key: &[u8]) -> Option<(History<S>, Cell)> {
        let packed = self.find_packed(hash, key)?;
        let (mut history, cell) = packed.unpack(self.dependencies, self.few, self.losses.is_some());
        history.mutants = self.mutants;
        Some((history, cell))
    }

    /// Calls `read` with a key's history, packed or not.
    pub(super) fn with_history<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        read: impl FnOnce(&History<S>) -> R,
    ) -> Option<R> {
        match self.unpacked(hash, key) {
            Some((history, _)) => Some(read(&history)),
            None => self.find_history(hash, key).map(|key_history| read(&key_history.history)),
        }
    }

    /// Forgets the next packed key, or folds its history, if everybody has observed all up to `settled`.
    pub(super) fn fold_packed(&mut self, settled: S) {
        let Some(hash) = self.packing.next_due() else { return };
        let seed = self.seed;
        let is_due = |packed: &Packed| {
            seed.hash(packed.key()) == hash && packed.last().is_some_and(|last: S| last <= settled)
        };
        // One that was changed since it was packed is due another time.
        let Some(packed) = self.packing.table.find(hash, is_due) else { return };
        let key = CompactKey::new(packed.key());
        let has_losses = self.losses.as_ref().is_some_and(|losses| losses.has_of_key(&key));
        if packed.is_plain::<S>() && !has_losses {
            self.packing.remove(hash, &key);
            return;
        }
        self.unpack(hash, &key);
        if let Some(due) = self.find_history(hash, &key).map(|key_history| key_history.due) {
            self.fold(due, hash);
        }
    }
}
