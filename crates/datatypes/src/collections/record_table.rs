//! Records with unique keys, numbered without gaps, found by key through a hash index.
//!
//! Removing a record moves the last one to its position. So the positions are a function of the operations, and a
//! random position is a random record. A scan goes by hashes instead ([`visit`]), which undoing and redoing operations
//! does not change.

use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;

use foldhash::quality::SeedableRandomState;

use super::arena::{Arena, Handle};
use super::index::Index;
use super::paged::{PAGE_OF_HANDLES, Paged};
use super::visit;

/// How a record contains its key.
pub(super) trait Format {
    /// The key inside a record.
    fn key(record: &[u8]) -> &[u8];
}

/// The records of one large collection.
pub(super) struct RecordTable<F> {
    arena: Arena,
    handles: Paged<Handle, PAGE_OF_HANDLES>,
    index: Index,
    state: SeedableRandomState,
    format: PhantomData<F>,
}

impl<F> Clone for RecordTable<F> {
    fn clone(&self) -> Self {
        RecordTable {
            arena: self.arena.clone(),
            handles: self.handles.clone(),
            index: self.index.clone(),
            state: self.state.clone(),
            format: PhantomData,
        }
    }
}

impl<F: Format> RecordTable<F> {
    /// An empty table whose hashes depend on `seed`, with room for `capacity` records.
    pub(super) fn new(seed: u64, capacity: usize) -> Self {
        RecordTable {
            arena: Arena::default(),
            handles: Paged::with_capacity(capacity),
            index: Index::with_capacity(capacity),
            state: SeedableRandomState::with_seed(seed, &super::seeds().shared),
            format: PhantomData,
        }
    }

    /// The number of records.
    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    /// The bytes this takes from the allocator, shared ones included, without the struct itself.
    pub(super) fn memory(&self) -> usize {
        self.arena.memory() + self.index.memory() + self.handles.memory()
    }

    /// The hash of a key, for the methods that want it.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The record at a position.
    #[inline]
    pub(super) fn record(&self, position: u32) -> &[u8] {
        self.arena.get(*self.handles.get(position as usize))
    }

    /// The record at a position, to be overwritten without changing its key.
    pub(super) fn record_mut(&mut self, position: u32) -> &mut [u8] {
        self.arena.get_mut(*self.handles.get(position as usize))
    }

    /// The key at a position.
    #[inline]
    pub(super) fn key(&self, position: u32) -> &[u8] {
        F::key(self.record(position))
    }

    /// The position of a key, given its hash.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |position| self.key(position) == key)
    }

    /// Adds a record whose key, with this hash, is not in the table.
    pub(super) fn push(&mut self, hash: u64, parts: [&[u8]; 3]) -> u32 {
        let position = self.handles.len() as u32;
        self.handles.push(self.arena.insert(parts));
        let (arena, handles, state) = (&self.arena, &self.handles, &self.state);
        self.index.insert(hash, position, |position| {
            let mut hasher = state.build_hasher();
            hasher.write(F::key(arena.get(*handles.get(position as usize))));
            hasher.finish()
        });
        position
    }

    /// Replaces the record at a position by one with the same key.
    pub(super) fn replace(&mut self, position: u32, parts: [&[u8]; 3]) {
        let handle = self.handles.get_mut(position as usize);
        self.arena.remove(*handle);
        *handle = self.arena.insert(parts);
        self.compact_if_worthwhile();
    }

    /// Removes the record at a position, whose key has this hash; the last record takes its position.
    pub(super) fn remove(&mut self, hash: u64, position: u32) {
        let last = (self.handles.len() - 1) as u32;
        self.index.remove(hash, position);
        if position != last {
            let moved = self.hash(self.key(last));
            self.index.renumber(moved, last, position);
        }
        self.arena.remove(self.handles.swap_remove(position as usize));
        self.compact_if_worthwhile();
    }

    /// Copies the records together when most of their pages is free. Linear in what is left, which is less than
    /// what was removed since the last time.
    fn compact_if_worthwhile(&mut self) {
        if !self.arena.is_mostly_free() {
            return;
        }
        let mut compacted = RecordTable::new(0, self.len());
        compacted.state = self.state.clone();
        for position in 0..self.len() as u32 {
            let record = self.record(position);
            compacted.push(self.hash(F::key(record)), [record, &[], &[]]);
        }
        *self = compacted;
    }

    /// Resumes a scan: calls `visit` for about `count` records and returns the next cursor, 0 at the end. A scan
    /// starts with cursor 0. Records that are in the table at every call are visited once ([`visit`]).
    pub(super) fn scan<'a>(&'a self, cursor: u64, count: usize, mut visit: impl FnMut(&'a [u8])) -> u64 {
        let (mut from, mut left) = (cursor, count.max(1));
        while from < visit::END && left > 0 {
            let (shard, positions) = self.index.shard_at(from);
            let end = visit::pieces_end(&shard, positions.len(), from, left);
            let is_next =
                |position: &u32| (from..end).contains(&visit::place(self.hash(self.key(*position))));
            let mut found: Vec<u32> = positions.filter(is_next).collect();
            found.sort_unstable();
            found.iter().for_each(|position| visit(self.record(*position)));
            (from, left) = (end, left.saturating_sub(found.len()));
        }
        if from < visit::END { from } else { 0 }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.arena.check_invariants(&self.handles.iter().copied().collect::<Vec<_>>());
        let hashes = (0..self.len() as u32).map(|position| self.hash(self.key(position))).collect::<Vec<_>>();
        self.index.check_invariants(&hashes);
    }
}
