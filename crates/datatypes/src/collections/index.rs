//! A hash index from keys to record positions that never rehashes everything at once.
//!
//! Linear hashing (Litwin, "Linear hashing: a new tool for file and table addressing", 1980) over shards that
//! are small hash tables: when the shards fill up, they are split one after the other, one per
//! [`SPLIT_EVERY`] insertions, so the longest pause is the rehash of one shard of about eight hundred
//! positions. Clones share shards, and copy those that they write to. The keys and their hashes are the owner's: every method takes what it needs as arguments.

use hashbrown::HashTable;

use super::buffer::allocated;
use super::paged::HEADER;
use super::visit;
use std::ops::Range;
use triomphe::Arc;

/// The average number of positions per shard at which a round of splitting starts: a little under seven eighths
/// of 1024 buckets, so that shards rarely outgrow them during the round.
const SHARD_FULL: usize = 800;
/// The insertions between two splits of a round.
const SPLIT_EVERY: usize = 32;
/// The bit of the hash from which shards are chosen, apart from the bits that the shards' tables use.
pub(super) const SHARD_SHIFT: u32 = 24;

/// Positions by the hash of their keys.
#[derive(Clone)]
pub(super) struct Index {
    /// Clones share them until they write.
    shards: Vec<Arc<HashTable<u32>>>,
    len: usize,
    table_memory: usize,
}

impl Index {
    /// An empty index with room for `len` positions if they fit in one shard.
    pub(super) fn with_capacity(len: usize) -> Index {
        let shard = HashTable::with_capacity(len.min(SHARD_FULL));
        Index { table_memory: allocated(shard.allocation_size()), shards: vec![Arc::new(shard)], len: 0 }
    }

    #[inline]
    fn shard(&self, hash: u64) -> usize {
        let bits = (hash >> SHARD_SHIFT) as usize;
        let round = 1 << self.shards.len().ilog2();
        let wide = bits & (2 * round - 1);
        if wide < self.shards.len() { wide } else { bits & (round - 1) }
    }

    /// The position with this hash that `matches`.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut matches: impl FnMut(u32) -> bool) -> Option<u32> {
        self.shards[self.shard(hash)].find(hash, |&position| matches(position)).copied()
    }

    /// The shard that has this place ([`visit`]): its places, and its positions in no particular order.
    pub(super) fn shard_at(&self, place: u64) -> (Range<u64>, impl ExactSizeIterator<Item = u32>) {
        let number = self.shard(visit::hash_at(place));
        let round = 1 << self.shards.len().ilog2();
        let is_split = number >= round || number < self.shards.len() - round;
        let bits = self.shards.len().ilog2() + u32::from(is_split);
        (visit::shard_places(place, bits), self.shards[number].iter().copied())
    }

    /// Adds a position that is not in the index; `rehash` gives the hash of any position in it.
    pub(super) fn insert(&mut self, hash: u64, position: u32, rehash: impl Fn(u32) -> u64) {
        self.len += 1;
        let round = 1 << self.shards.len().ilog2();
        if self.len > round * SHARD_FULL + (self.shards.len() - round) * SPLIT_EVERY {
            self.split(&rehash);
        }
        let index = self.shard(hash);
        let shard = Arc::make_mut(&mut self.shards[index]);
        if shard.len() == shard.capacity() {
            self.table_memory -= allocated(shard.allocation_size());
            shard.reserve(1, |&position| rehash(position));
            self.table_memory += allocated(shard.allocation_size());
        }
        shard.insert_unique(hash, position, |&position| rehash(position));
    }

    /// Splits the next shard of the round in two.
    fn split(&mut self, rehash: &impl Fn(u32) -> u64) {
        let round = 1 << self.shards.len().ilog2();
        let from = self.shards.len() - round;
        self.shards.push(Arc::new(HashTable::new()));
        let old = std::mem::take(&mut self.shards[from]);
        let mut low = HashTable::with_capacity(old.len() / 2);
        let mut high = HashTable::with_capacity(old.len() / 2);
        self.table_memory -= allocated(old.allocation_size());
        for position in Arc::unwrap_or_clone(old) {
            let hash = rehash(position);
            let half = if self.shard(hash) == from { &mut low } else { &mut high };
            half.insert_unique(hash, position, |&position| rehash(position));
        }
        self.table_memory += allocated(low.allocation_size()) + allocated(high.allocation_size());
        self.shards[from] = Arc::new(low);
        self.shards[from + round] = Arc::new(high);
    }

    /// Removes a position.
    pub(super) fn remove(&mut self, hash: u64, position: u32) {
        let index = self.shard(hash);
        if let Ok(entry) = Arc::make_mut(&mut self.shards[index]).find_entry(hash, |&other| other == position)
        {
            entry.remove();
            self.len -= 1;
        }
    }

    /// Gives the record at position `from` the position `to`.
    pub(super) fn renumber(&mut self, hash: u64, from: u32, to: u32) {
        let index = self.shard(hash);
        if let Some(position) = Arc::make_mut(&mut self.shards[index]).find_mut(hash, |&other| other == from)
        {
            *position = to;
        }
    }

    /// The bytes this takes from the allocator, shared ones included.
    pub(super) fn memory(&self) -> usize {
        self.table_memory
            + self.shards.len() * allocated(size_of::<HashTable<u32>>() + HEADER)
            + allocated(self.shards.capacity() * size_of::<Arc<HashTable<u32>>>())
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self, hashes: &[u64]) {
        assert_eq!(self.len, hashes.len());
        assert_eq!(self.len, self.shards.iter().map(|shard| shard.len()).sum::<usize>());
        for (position, &hash) in hashes.iter().enumerate() {
            assert_eq!(self.find(hash, |other| other as usize == position), Some(position as u32));
        }
        let memory = self.shards.iter().map(|shard| allocated(shard.allocation_size())).sum::<usize>();
        assert_eq!(self.table_memory, memory);
    }
}
