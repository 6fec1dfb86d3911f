//! When histories may be folded: a priority queue for stamps that come in large numbers, nearly in order, and go much
//! later, in order too.
//!
//! A binary heap of a hundred thousand entries misses the cache at every level of every removal. Here entries gather in
//! a short list, which is sorted when it is full; only the fronts of the sorted runs are in a heap.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use types::KeyHash;

/// A history, by the stamp under which it waits and the hash of its key.
pub(super) type Entry<S> = (S, KeyHash);

/// How many entries gather before they are sorted.
const RUN: usize = 4096;

/// Entries in descending order; never empty. The run with the earliest entry is the greatest.
#[derive(Debug)]
struct Run<S> {
    entries: Vec<Entry<S>>,
    /// How often others had been thinned when it was made.
    since: u64,
}

impl<S: Copy + Ord> PartialEq for Run<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S: Copy + Ord> Eq for Run<S> {}

impl<S: Copy + Ord> PartialOrd for Run<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S: Copy + Ord> Ord for Run<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.entries.last().cmp(&self.entries.last())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct FoldQueue<S> {
    /// Not sorted yet.
    fresh: Vec<Entry<S>>,
    /// The earliest of them.
    earliest: Option<Entry<S>>,
    runs: BinaryHeap<Run<S>>,
    len: usize,
    /// How often it was thinned.
    thinned: u64,
}

impl<S: Copy + Ord> FoldQueue<S> {
    pub fn new() -> Self {
        FoldQueue { fresh: Vec::new(), earliest: None, runs: BinaryHeap::new(), len: 0, thinned: 0 }
    }

    pub fn push(&mut self, entry: Entry<S>) {
        self.len += 1;
        self.fresh.push(entry);
        self.earliest = Some(self.earliest.map_or(entry, |earliest| earliest.min(entry)));
        if self.fresh.len() >= RUN {
            self.sort();
        }
    }

    /// Makes a run of what has gathered.
    fn sort(&mut self) {
        self.earliest = None;
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.sort_unstable_by(|a, b| b.cmp(a));
        if !fresh.is_empty() {
            self.runs.push(Run { entries: fresh, since: self.thinned });
        }
    }

    /// The earliest entry.
    pub fn peek(&self) -> Option<Entry<S>> {
        let sorted = self.runs.peek().and_then(|run| run.entries.last().copied());
        [sorted, self.earliest].into_iter().flatten().min()
    }

    /// About the entry that goes after so many others, for hints.
    pub fn ahead(&self, others: usize) -> Option<Entry<S>> {
        self.runs.peek()?.entries.iter().rev().nth(others).copied()
    }

    /// Takes the earliest entry.
    pub fn pop(&mut self) -> Option<Entry<S>> {
        if self.earliest.is_some() && self.earliest == self.peek() {
            self.sort();
        }
        let mut run = self.runs.peek_mut()?;
        let entry = run.entries.pop();
        if run.entries.is_empty() {
            PeekMut::pop(run);
        }
        self.len -= usize::from(entry.is_some());
        entry
    }

    /// Lets go some of the entries for which nothing `stands`: of those that have gathered and of one run, another one each time.
    pub fn thin(&mut self, stands: impl Fn(&Entry<S>) -> bool) {
        let (mut entries, mut runs) =
            (std::mem::take(&mut self.fresh), std::mem::take(&mut self.runs).into_vec());
        self.earliest = None;
        self.thinned += 1;
        if let Some(place) = (0..runs.len()).min_by_key(|place| runs[*place].since) {
            entries.append(&mut runs.swap_remove(place).entries);
        }
        self.runs = runs.into();
        self.len -= entries.len();
        entries.into_iter().filter(|entry| stands(entry)).for_each(|entry| self.push(entry));
    }

    /// All entries, in any order.
    pub fn into_vec(self) -> Vec<Entry<S>> {
        let mut entries = self.fresh;
        self.runs.into_iter().for_each(|mut run| entries.append(&mut run.entries));
        entries
    }

    /// All entries, in any order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<S>> {
        self.fresh.iter().chain(self.runs.iter().flat_map(|run| &run.entries))
    }

    /// How many bytes it occupies.
    pub fn memory(&self) -> usize {
        let entries =
            self.runs.iter().map(|run| run.entries.capacity()).sum::<usize>() + self.fresh.capacity();
        entries * size_of::<Entry<S>>() + self.runs.capacity() * size_of::<Run<S>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    proptest! {
        #[test]
        fn entries_go_in_order_whatever_the_order_they_came_in(
            steps in proptest::collection::vec(proptest::option::weighted(0.6, 0u64..50), 0..400),
            long in 0usize..3,
        ) {
            let (mut fold_queue, mut heap) = (FoldQueue::new(), BinaryHeap::new());
            let many = (0..long as u64 * RUN as u64 * 2 / 3).map(|at| Some(at * 7919 % 1000));
            for (number, step) in many.chain(steps).enumerate() {
                match step {
                    Some(at) => {
                        fold_queue.push((at, KeyHash(number as u64)));
                        heap.push(Reverse((at, KeyHash(number as u64))));
                    }
                    None => prop_assert_eq!(fold_queue.pop(), heap.pop().map(|Reverse(entry)| entry)),
                }
                prop_assert_eq!((fold_queue.len, fold_queue.peek()), (heap.len(), heap.peek().map(|Reverse(entry)| *entry)));
            }
            prop_assert_eq!(fold_queue.iter().count(), heap.len());
            // All runs, and nothing else, are thinned sooner or later.
            let runs = fold_queue.runs.len();
            (0..=runs).for_each(|_| fold_queue.thin(|(at, _)| at % 3 != 0));
            heap.retain(|Reverse((at, _))| at % 3 != 0);
            prop_assert_eq!(fold_queue.len, heap.len());
            while let Some(Reverse(entry)) = heap.pop() {
                prop_assert_eq!(fold_queue.pop(), Some(entry));
            }
            prop_assert_eq!(fold_queue.pop(), None);
        }
    }
}
