//! What a table held before it was emptied, on its way to the allocator.

use super::bucket::Bucket;

/// The records and buckets that [`Table::take`](super::Table::take) took out, to be freed in pieces: freeing
/// millions of records at once would be a step of seconds (Corrections 87). Dropping it frees the rest at once.
pub struct Drained<R> {
    segments: Vec<Vec<Bucket<R>>>,
    length: usize,
    overflow_count: usize,
}

impl<R> Drained<R> {
    pub(super) fn new(segments: Vec<Vec<Bucket<R>>>, length: usize, overflow_count: usize) -> Drained<R> {
        Drained { segments, length, overflow_count }
    }

    /// How many records are not freed yet.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether every record is freed.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Frees at most `count` records, and the buckets that have become empty. Says whether records are left.
    pub fn free_some(&mut self, count: usize) -> bool {
        let mut left = count.min(self.length);
        while left > 0
            && let Some(segment) = self.segments.last_mut()
        {
            match segment.last_mut().map(|bucket| bucket.pop(&mut self.overflow_count)) {
                Some(Some(_record)) => {
                    left -= 1;
                    self.length -= 1;
                }
                Some(None) => drop(segment.pop()),
                None => drop(self.segments.pop()),
            }
        }
        if self.length == 0 {
            self.segments.clear();
        }
        self.length > 0
    }
}
