//! The out-of-order buffer of a history: effects that arrived below many others, and that no reader has needed yet.

use super::Entry;
use crate::store::Stamp;
use std::collections::{VecDeque, vec_deque};

/// Effects that are not applied, in order of stamps. They arrive nearly in order and leave from the front.
#[derive(Debug)]
pub(super) struct OutOfOrderBuffer<S> {
    entries: VecDeque<Entry<S>>,
    /// Whose they are, and maybe others.
    groups: Vec<u16>,
}

impl<S> Default for OutOfOrderBuffer<S> {
    fn default() -> Self {
        OutOfOrderBuffer { entries: VecDeque::new(), groups: Vec::new() }
    }
}

impl<S: Stamp> OutOfOrderBuffer<S> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub fn first(&self) -> Option<S> {
        self.entries.front().map(|entry| entry.stamp)
    }

    pub fn last(&self) -> Option<S> {
        self.entries.back().map(|entry| entry.stamp)
    }

    pub fn contains(&self, stamp: S) -> bool {
        self.entries.binary_search_by(|entry| entry.stamp.cmp(&stamp)).is_ok()
    }

    /// True if some may be of another group.
    pub fn has_others(&self, group: u16) -> bool {
        self.groups.iter().any(|other| *other != group)
    }

    /// True if some may be of this group.
    pub fn has(&self, group: u16) -> bool {
        self.groups.contains(&group)
    }

    /// None is of this group any more.
    pub fn leave(&mut self, group: u16) {
        self.groups.retain(|other| *other != group);
    }

    pub fn iter(&self) -> vec_deque::Iter<'_, Entry<S>> {
        self.entries.iter()
    }

    pub fn iter_above(&self, stamp: S) -> vec_deque::Iter<'_, Entry<S>> {
        self.entries.range(self.count(stamp)..)
    }

    pub fn insert(&mut self, entry: Entry<S>, group: u16) {
        if !self.has(group) {
            self.groups.push(group);
        }
        let place = self.count(entry.stamp);
        self.entries.insert(place, entry);
    }

    /// How many are at or below a stamp.
    pub fn count(&self, stamp: S) -> usize {
        match (self.first(), self.last()) {
            (_, Some(last)) if last <= stamp => self.entries.len(),
            (Some(first), _) if first > stamp => 0,
            _ => self.entries.partition_point(|entry| entry.stamp <= stamp),
        }
    }

    /// How many there are up to the last one that is at or below a stamp, or that counts and is of a group.
    pub fn due(&self, upto: S, group: u16, counts: &dyn Fn(&S) -> bool) -> usize {
        let count = self.count(upto);
        if self.has(group) { self.due_by(counts).max(count) } else { count }
    }

    /// How many there are up to the last one that counts.
    pub fn due_by(&self, counts: &dyn Fn(&S) -> bool) -> usize {
        self.entries.iter().rposition(|entry| counts(&entry.stamp)).map_or(0, |place| place + 1)
    }

    /// Takes the first few out.
    pub fn take(&mut self, count: usize) -> Vec<Entry<S>> {
        let taken = self.entries.drain(..count).collect();
        if self.entries.is_empty() {
            *self = OutOfOrderBuffer::default();
        }
        taken
    }

    /// Takes out those with a stamp; returns the bytes that they occupied beyond their own size.
    pub fn remove(&mut self, stamp: S) -> usize {
        let first = self.entries.partition_point(|entry| entry.stamp < stamp);
        let end = self.count(stamp).max(first);
        self.entries.drain(first..end).map(|entry| entry.heap_bytes()).sum()
    }

    pub fn assert_consistent(&self) {
        assert!(self.entries.iter().is_sorted_by_key(|entry| entry.stamp), "what waits is in stamp order");
    }
}

/// Puts entries among others from a place on; of equal stamps those that are there come first.
pub(super) fn put_among<S: Stamp>(entries: &mut VecDeque<Entry<S>>, place: usize, applied: Vec<Entry<S>>) {
    let mut others = entries.split_off(place).into_iter().peekable();
    entries.reserve_exact(others.len() + applied.len());
    for entry in applied {
        while let Some(other) = others.next_if(|other| other.stamp <= entry.stamp) {
            entries.push_back(other);
        }
        entries.push_back(entry);
    }
    entries.extend(others);
}

type Ordered<'a, S> = vec_deque::Iter<'a, Entry<S>>;

/// Applied and waiting effects, in one order; of equal stamps the applied one comes first.
pub(super) struct InOrder<'a, S> {
    done: Ordered<'a, S>,
    waiting: Ordered<'a, S>,
}

impl<'a, S: Stamp> InOrder<'a, S> {
    pub fn new(done: Ordered<'a, S>, waiting: Ordered<'a, S>) -> Self {
        InOrder { done, waiting }
    }
}

impl<'a, S: Stamp> Iterator for InOrder<'a, S> {
    type Item = &'a Entry<S>;

    fn next(&mut self) -> Option<&'a Entry<S>> {
        let Some(waiting) = self.waiting.clone().next() else { return self.done.next() };
        match self.done.clone().next() {
            Some(done) if done.stamp <= waiting.stamp => self.done.next(),
            _ => self.waiting.next(),
        }
    }
}

impl<S: Stamp> DoubleEndedIterator for InOrder<'_, S> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Some(waiting) = self.waiting.clone().next_back() else { return self.done.next_back() };
        match self.done.clone().next_back() {
            Some(done) if done.stamp > waiting.stamp => self.done.next_back(),
            _ => self.waiting.next_back(),
        }
    }
}
