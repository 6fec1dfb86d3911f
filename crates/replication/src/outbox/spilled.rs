//! The part of an outbox that lies in the replica's spool.

use std::collections::{BTreeMap, VecDeque};
use types::{Timestamp, TransactionId};

/// How many chunks the outbox prefetches for a peer, so that one is there when the one before it has been sent.
const AHEAD: usize = 2;

/// An item of a chunk that has been fetched: its place, its id, about how many bytes it occupies, and itself.
pub type Fetched<T> = (Timestamp, TransactionId, usize, T);

/// Items that lie next to one another, all those of a place together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) last: Timestamp,
    items: usize,
    /// In the spool.
    bytes: usize,
}

/// Chunks of the oldest items, in the order of their places, which is that of their numbers.
#[derive(Clone, Debug)]
pub(super) struct Spilled<T> {
    chunks: VecDeque<Chunk>,
    /// The number of the first one.
    base: u64,
    /// What has been fetched of them; `None` while it is awaited.
    fetched: BTreeMap<u64, Option<Vec<Fetched<T>>>>,
    /// Up to this number they are forgotten, and the spool does not know yet.
    forgotten: Option<u64>,
    items: usize,
    bytes: u64,
    fetched_bytes: usize,
}

impl<T> Spilled<T> {
    pub(super) fn new() -> Self {
        Spilled {
            chunks: VecDeque::new(),
            base: 0,
            fetched: BTreeMap::new(),
            forgotten: None,
            items: 0,
            bytes: 0,
            fetched_bytes: 0,
        }
    }

    /// How many items there are.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// How many bytes they occupy in the spool.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// About how many bytes of memory what has been fetched occupies.
    pub(super) fn fetched_bytes(&self) -> usize {
        self.fetched_bytes
    }

    /// Everything up to here is in the spool or gone, and what comes after is not.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.chunks.back().map(|chunk| chunk.last)
    }

    /// Adds a chunk behind the others; returns its number.
    pub(super) fn add(&mut self, last: Timestamp, items: usize, bytes: usize) -> u64 {
        debug_assert!(self.last() < Some(last), "chunks come in order");
        self.chunks.push_back(Chunk { last, items, bytes });
        (self.items, self.bytes) = (self.items + items, self.bytes + bytes as u64);
        self.base + self.chunks.len() as u64 - 1
    }

    fn position(&self, number: u64) -> Option<usize> {
        let position = usize::try_from(number.checked_sub(self.base)?).ok()?;
        (position < self.chunks.len()).then_some(position)
    }

    pub(super) fn get(&self, number: u64) -> Option<Chunk> {
        self.chunks.get(self.position(number)?).copied()
    }

    /// The first chunk with an item placed after `at`, and how many there are from it on.
    pub(super) fn after(&self, at: Timestamp) -> (u64, usize) {
        let position = self.chunks.partition_point(|chunk| chunk.last <= at);
        (self.base + position as u64, self.chunks.len() - position)
    }

    /// Forgets the first chunk; returns what it was.
    pub(super) fn forget_first(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        self.release(self.base);
        self.forgotten = Some(self.base);
        self.base += 1;
        (self.items, self.bytes) = (self.items - chunk.items, self.bytes - chunk.bytes as u64);
        Some(chunk)
    }

    /// Forgets every chunk that ends at or below `at`; returns where the last of them ended.
    pub(super) fn forget_through(&mut self, at: Timestamp) -> Option<Timestamp> {
        let mut last = None;
        while self.chunks.front().is_some_and(|chunk| chunk.last <= at) {
            last = self.forget_first().map(|chunk| chunk.last);
        }
        last
    }

    /// What has been fetched of a chunk.
    pub(super) fn fetched(&self, number: u64) -> Option<&[Fetched<T>]> {
        self.fetched.get(&number)?.as_deref()
    }

    /// Frees the memory of a chunk.
    fn release(&mut self, number: u64) {
        if let Some(Some(items)) = self.fetched.remove(&number) {
            self.fetched_bytes -= items.iter().map(|(_, _, bytes, _)| bytes).sum::<usize>();
        }
    }

    /// The peers' positions: the outbox fetches what the active ones need next, and frees what none needs soon.
    pub(super) fn look_ahead(&mut self, peers: impl Iterator<Item = (Timestamp, bool)>) -> Vec<u64> {
        let mut soon: BTreeMap<u64, bool> = BTreeMap::new();
        for (sent, is_served) in peers {
            let (first, count) = self.after(sent);
            for number in first..first + count.min(AHEAD) as u64 {
                *soon.entry(number).or_default() |= is_served;
            }
        }
        let idle: Vec<u64> =
            self.fetched.keys().filter(|number| !soon.contains_key(number)).copied().collect();
        idle.into_iter().for_each(|number| self.release(number));
        let due = soon.into_iter().filter(|(number, is_due)| *is_due && !self.fetched.contains_key(number));
        let wanted: Vec<u64> = due.map(|(number, _)| number).collect();
        self.fetched.extend(wanted.iter().map(|number| (*number, None)));
        wanted
    }

    /// True if the chunk is requested and not here.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        matches!(self.fetched.get(&number), Some(None))
    }

    /// An awaited chunk is here.
    pub(super) fn put(&mut self, number: u64, items: Vec<Fetched<T>>) {
        self.fetched_bytes += items.iter().map(|(_, _, bytes, _)| bytes).sum::<usize>();
        self.fetched.insert(number, Some(items));
    }

    /// The number up to which chunks have been forgotten since the last call, if any have.
    pub(super) fn take_forgotten(&mut self) -> Option<u64> {
        self.forgotten.take()
    }

    /// True if a fetched chunk is what was spilled, as far as can be checked.
    pub(super) fn fits(&self, number: u64, items: &[Fetched<T>]) -> bool {
        self.get(number).is_some_and(|chunk| {
            chunk.items == items.len() && items.last().is_some_and(|(at, ..)| *at == chunk.last)
        })
    }
}
