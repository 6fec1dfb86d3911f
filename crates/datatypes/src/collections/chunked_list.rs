//! A list of byte strings.

use std::collections::VecDeque;
use std::fmt;

use super::buffer::allocated;
use super::chunk::{CHUNK_BYTES, Chunk, End, encoded_len, split_first, split_last};

/// A list of byte strings that is fast at both ends: a deque of chunks, each a buffer of many elements. An
/// index is found by the chunks' counts from the nearer end. Elements are shorter than 4 GiB.
#[derive(Clone, Default)]
pub struct ChunkedList {
    /// No chunk is empty.
    chunks: VecDeque<Chunk>,
    len: usize,
    chunk_memory: usize,
}

impl ChunkedList {
    /// The empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the heap, in constant time.
    pub fn memory(&self) -> usize {
        self.chunk_memory + allocated(self.chunks.capacity() * size_of::<Chunk>())
    }

    /// Adds an element at the front.
    #[inline]
    pub fn push_front(&mut self, value: &[u8]) {
        self.push(End::Front, value)
    }

    /// Adds an element at the back.
    #[inline]
    pub fn push_back(&mut self, value: &[u8]) {
        self.push(End::Back, value)
    }

    #[inline]
    fn push(&mut self, side: End, value: &[u8]) {
        self.len += 1;
        let chunk = match side {
            End::Front => self.chunks.front_mut(),
            End::Back => self.chunks.back_mut(),
        };
        if let Some(chunk) = chunk {
            let before = chunk.memory();
            if chunk.push(side, value) {
                self.chunk_memory = self.chunk_memory - before + chunk.memory();
                return;
            }
        }
        self.push_chunk(side, value);
    }

    #[cold]
    fn push_chunk(&mut self, side: End, value: &[u8]) {
        let need = encoded_len(value.len());
        let capacity = if self.chunks.is_empty() { need } else { need.max(CHUNK_BYTES) };
        let chunk = new_chunk(capacity, side, value);
        if self.chunks.capacity() == 0 {
            self.chunks.reserve_exact(1);
        }
        self.chunk_memory += chunk.memory();
        match side {
            End::Front => self.chunks.push_front(chunk),
            End::Back => self.chunks.push_back(chunk),
        }
    }

    /// The first element.
    pub fn front(&self) -> Option<&[u8]> {
        Some(split_first(self.chunks.front()?.bytes())?.0)
    }

    /// The last element.
    pub fn back(&self) -> Option<&[u8]> {
        Some(split_last(self.chunks.back()?.bytes())?.0)
    }

    /// Removes the first element.
    pub fn pop_front(&mut self) -> Option<Vec<u8>> {
        let value = self.front()?.to_vec();
        self.remove_range(0, 1);
        Some(value)
    }

    /// Removes the last element.
    pub fn pop_back(&mut self) -> Option<Vec<u8>> {
        let value = self.back()?.to_vec();
        self.remove_range(self.len - 1, 1);
        Some(value)
    }

    /// The chunk that holds an index below the length, and the index in it.
    fn locate(&self, index: usize) -> (usize, usize) {
        debug_assert!(index < self.len);
        if index <= self.len / 2 {
            let mut left = index;
            for (at, chunk) in self.chunks.iter().enumerate() {
                if left < chunk.count() {
                    return (at, left);
                }
                left -= chunk.count();
            }
        } else {
            let mut behind = self.len - index;
            for (at, chunk) in self.chunks.iter().enumerate().rev() {
                if behind <= chunk.count() {
                    return (at, chunk.count() - behind);
                }
                behind -= chunk.count();
            }
        }
        unreachable!("the counts of the chunks add up to the length")
    }

    /// The element at an index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.range(index, 1).next()
    }

    /// Changes a chunk, keeping the account of memory.
    fn with_chunk<R>(&mut self, at: usize, change: impl FnOnce(&mut Chunk) -> R) -> R {
        let chunk = &mut self.chunks[at];
        self.chunk_memory -= chunk.memory();
        let result = change(chunk);
        self.chunk_memory += chunk.memory();
        result
    }

    /// Replaces the element at an index; false when there is none.
    pub fn set(&mut self, index: usize, value: &[u8]) -> bool {
        if index >= self.len {
            return false;
        }
        let (at, inner) = self.locate(index);
        if !self.with_chunk(at, |chunk| chunk.splice(inner, true, value)) {
            self.remove_range(index, 1);
            self.insert(index, value);
        }
        true
    }

    /// Inserts an element before the one at an index, or at the end; false, and no change, beyond the end.
    pub fn insert(&mut self, index: usize, value: &[u8]) -> bool {
        if index > self.len {
            return false;
        }
        if index == 0 || index == self.len {
            self.push(if index == 0 { End::Front } else { End::Back }, value);
            return true;
        }
        let (at, inner) = self.locate(index);
        self.len += 1;
        if !self.with_chunk(at, |chunk| chunk.splice(inner, false, value)) {
            self.insert_between(at, inner, value);
        }
        true
    }

    /// Splits a chunk before its element `inner` and puts a new element in between.
    fn insert_between(&mut self, at: usize, inner: usize, value: &[u8]) {
        let mut next = at;
        if inner > 0 {
            let chunk = &self.chunks[at];
            let (_, right) = chunk.split_at(inner);
            let count = chunk.count() - inner;
            let mut tail = Chunk::with_capacity(right.len(), End::Back);
            tail.append(right, count);
            self.chunk_memory += tail.memory();
            self.with_chunk(at, |chunk| chunk.remove(inner, count));
            next = at + 1;
            self.chunks.insert(next, tail);
        }
        if (next > 0 && self.with_chunk(next - 1, |chunk| chunk.push(End::Back, value)))
            || self.with_chunk(next, |chunk| chunk.push(End::Front, value))
        {
            return;
        }
        let chunk = new_chunk(encoded_len(value.len()), End::Back, value);
        self.chunk_memory += chunk.memory();
        self.chunks.insert(next, chunk);
    }

    /// Removes the element at an index; false when there is none.
    pub fn remove(&mut self, index: usize) -> bool {
        self.remove_range(index, 1) == 1
    }

    /// Removes up to `count` elements from an index on, and returns how many.
    pub fn remove_range(&mut self, index: usize, count: usize) -> usize {
        let count = count.min(self.len.saturating_sub(index));
        if count == 0 {
            return 0;
        }
        let (mut at, mut inner) = self.locate(index);
        self.len -= count;
        let mut left = count;
        if inner > 0 {
            let here = left.min(self.chunks[at].count() - inner);
            self.with_chunk(at, |chunk| chunk.remove(inner, here));
            (at, inner, left) = (at + 1, 0, left - here);
        }
        let mut whole = 0;
        while let Some(chunk) = self.chunks.get(at + whole).filter(|chunk| left > 0 && chunk.count() <= left)
        {
            left -= chunk.count();
            self.chunk_memory -= chunk.memory();
            whole += 1;
        }
        self.remove_chunks(at, whole);
        if left > 0 {
            self.with_chunk(at, |chunk| chunk.remove(inner, left));
        }
        self.merge_around(at);
        count
    }

    fn remove_chunks(&mut self, at: usize, count: usize) {
        if count == 1 && at == 0 {
            self.chunks.pop_front();
        } else if count > 0 {
            self.chunks.drain(at..at + count);
        }
        if self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// Joins a chunk with a neighbour when they fill at most half a chunk together.
    fn merge_around(&mut self, at: usize) {
        for left in [at, at.wrapping_sub(1)] {
            let (Some(first), Some(second)) = (self.chunks.get(left), self.chunks.get(left.wrapping_add(1)))
            else {
                continue;
            };
            if first.used() + second.used() > CHUNK_BYTES / 2 {
                continue;
            }
            if let Some(second) = self.chunks.remove(left + 1) {
                self.chunk_memory -= second.memory();
                self.with_chunk(left, |chunk| chunk.append(second.bytes(), second.count()));
            }
        }
    }

    /// Keeps the `count` elements from `index` on and removes all others.
    pub fn trim(&mut self, index: usize, count: usize) {
        let end = index.saturating_add(count).min(self.len);
        self.remove_range(end, self.len - end);
        self.remove_range(0, index);
    }

    /// All elements; also from the back.
    pub fn iter(&self) -> Elements<'_> {
        self.range(0, self.len)
    }

    /// Up to `count` elements from an index on; also from the back.
    pub fn range(&self, index: usize, count: usize) -> Elements<'_> {
        let index = index.min(self.len);
        let end = index + count.min(self.len - index);
        Elements { list: self, index, end, front: None, back: None }
    }

    /// How many elements at the front, and of the others how many at the back, are the same in two lists. What they share as
    /// copies of one another is not looked at.
    pub fn same_ends(&self, other: &ChunkedList) -> (usize, usize) {
        let shorter = self.len.min(other.len);
        let front = self.same_from(End::Front, other, shorter);
        (front, self.same_from(End::Back, other, shorter - front))
    }

    /// The chunk at a place counted from an end.
    fn chunk_from(&self, side: End, place: usize) -> Option<&Chunk> {
        match side {
            End::Front => self.chunks.get(place),
            End::Back => self.chunks.get(self.chunks.len().checked_sub(place + 1)?),
        }
    }

    fn same_from(&self, side: End, other: &ChunkedList, most: usize) -> usize {
        let split = match side {
            End::Front => split_first,
            End::Back => split_last,
        };
        // Of each list the place of the next chunk, and what is left of the one before.
        let none: &[u8] = &[];
        let (mut own, mut theirs) = ((0, none), (0, none));
        let mut same = 0;
        while same < most {
            if own.1.is_empty()
                && theirs.1.is_empty()
                && let (Some(a), Some(b)) = (self.chunk_from(side, own.0), other.chunk_from(side, theirs.0))
                && a.is(b)
                && same + a.count() <= most
            {
                (own.0, theirs.0, same) = (own.0 + 1, theirs.0 + 1, same + a.count());
                continue;
            }
            for (list, place) in [(self, &mut own), (other, &mut theirs)] {
                if place.1.is_empty()
                    && let Some(chunk) = list.chunk_from(side, place.0)
                {
                    *place = (place.0 + 1, chunk.bytes());
                }
            }
            let (Some((a, rest)), Some((b, others))) = (split(own.1), split(theirs.1)) else { break };
            if a != b {
                break;
            }
            (own.1, theirs.1, same) = (rest, others, same + 1);
        }
        same
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.chunks.iter().for_each(Chunk::check_invariants);
        assert_eq!(self.len, self.chunks.iter().map(Chunk::count).sum::<usize>());
        assert_eq!(self.chunk_memory, self.chunks.iter().map(Chunk::memory).sum::<usize>());
    }
}

fn new_chunk(capacity: usize, side: End, value: &[u8]) -> Chunk {
    let mut chunk = Chunk::with_capacity(capacity, side);
    if !chunk.push(side, value) {
        unreachable!("a new chunk has room for its first element");
    }
    chunk
}

/// Elements of a list, from either end.
#[derive(Clone)]
pub struct Elements<'a> {
    list: &'a ChunkedList,
    index: usize,
    end: usize,
    /// The chunk that each end has reached, found when first needed, and what is left of it.
    front: Option<(usize, &'a [u8])>,
    back: Option<(usize, &'a [u8])>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.index == self.end {
            return None;
        }
        let chunks = &self.list.chunks;
        let (mut at, mut rest) = match self.front {
            Some(place) => place,
            None => {
                let (at, inner) = self.list.locate(self.index);
                (at, chunks[at].split_at(inner).1)
            }
        };
        if rest.is_empty() {
            at += 1;
            rest = chunks[at].bytes();
        }
        let (value, rest) = split_first(rest)?;
        self.front = Some((at, rest));
        self.index += 1;
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.index, Some(self.end - self.index))
    }
}

impl<'a> DoubleEndedIterator for Elements<'a> {
    fn next_back(&mut self) -> Option<&'a [u8]> {
        if self.index == self.end {
            return None;
        }
        let chunks = &self.list.chunks;
        let (mut at, mut rest) = match self.back {
            Some(place) => place,
            None => {
                let (at, inner) = self.list.locate(self.end - 1);
                (at, chunks[at].split_at(inner + 1).0)
            }
        };
        if rest.is_empty() {
            at -= 1;
            rest = chunks[at].bytes();
        }
        let (value, rest) = split_last(rest)?;
        self.back = Some((at, rest));
        self.end -= 1;
        Some(value)
    }
}

impl ExactSizeIterator for Elements<'_> {}

impl PartialEq for ChunkedList {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.same_from(End::Front, other, self.len) == self.len
    }
}

impl Eq for ChunkedList {}

impl fmt::Debug for ChunkedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|value| value.escape_ascii().to_string())).finish()
    }
}
