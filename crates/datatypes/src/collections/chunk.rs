//! A buffer of consecutive list elements that grows at both ends.
//!
//! An element is its length as a varint, its bytes, and its length again with the varint's bytes reversed, so
//! that a chunk can be walked from either end. The elements lie anywhere in the buffer; what is free before and
//! behind them is room to push without moving.

use super::buffer::allocated;
use super::paged::{HEADER, make_mut, zeroed};
use triomphe::Arc;

/// The most bytes of a chunk, unless a single element is longer. With its header a full one takes a size class.
pub(super) const CHUNK_BYTES: usize = (8 << 10) - HEADER;

/// An end of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

/// Zeros, at least so many, and as many as take no more memory.
fn buffer(least: usize) -> Arc<[u8]> {
    zeroed(allocated(least + HEADER) - HEADER)
}

/// A part of a list.
#[derive(Clone)]
pub(super) struct Chunk {
    /// Shared by clones until one writes.
    buffer: Arc<[u8]>,
    start: u32,
    end: u32,
    count: u32,
}

#[inline]
fn varint_len(value: usize) -> usize {
    if value < 0x80 { 1 } else { (value.ilog2() / 7 + 1) as usize }
}

/// The bytes an element of `len` bytes takes.
#[inline]
pub(super) fn encoded_len(len: usize) -> usize {
    len + 2 * varint_len(len)
}

/// Writes an element over exactly its encoded bytes.
#[inline]
fn write(to: &mut [u8], value: &[u8]) {
    let (len, last) = (value.len(), to.len() - 1);
    if len < 0x80 {
        to[0] = len as u8;
        to[last] = len as u8;
        to[1..last].copy_from_slice(value);
        return;
    }
    let header = varint_len(len);
    for i in 0..header {
        let more = if i + 1 < header { 0x80 } else { 0 };
        let byte = (len >> (7 * i)) as u8 & 0x7f | more;
        to[i] = byte;
        to[last - i] = byte;
    }
    to[header..header + len].copy_from_slice(value);
}

/// Splits the first element off.
#[inline]
pub(super) fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = usize::from(*bytes.first()?);
    if first < 0x80 {
        return Some((&bytes[1..1 + first], &bytes[2 + first..]));
    }
    let (len, header) = long_len(bytes.iter());
    Some((&bytes[header..header + len], &bytes[2 * header + len..]))
}

/// Splits the last element off; gives the element and what is before it.
#[inline]
pub(super) fn split_last(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let last = usize::from(*bytes.last()?);
    let (len, header) = if last < 0x80 { (last, 1) } else { long_len(bytes.iter().rev()) };
    let start = bytes.len() - 2 * header - len;
    Some((&bytes[start + header..start + header + len], &bytes[..start]))
}

fn long_len<'a>(bytes: impl Iterator<Item = &'a u8>) -> (usize, usize) {
    let (mut len, mut header) = (0, 0);
    for byte in bytes {
        len |= usize::from(byte & 0x7f) << (7 * header);
        header += 1;
        if *byte < 0x80 {
            break;
        }
    }
    (len, header)
}

impl Chunk {
    /// An empty chunk with room for `capacity` bytes, its elements to grow towards `side` first.
    pub(super) fn with_capacity(capacity: usize, side: End) -> Chunk {
        let buffer = buffer(capacity);
        let start = if side == End::Front { buffer.len() as u32 } else { 0 };
        Chunk { buffer, start, end: start, count: 0 }
    }

    /// The number of elements.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// The elements, encoded.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start as usize..self.end as usize]
    }

    /// True if both are the same memory: copies of one another to which nobody has written.
    pub(super) fn is(&self, other: &Chunk) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer) && (self.start, self.end) == (other.start, other.end)
    }

    /// The bytes of the elements.
    pub(super) fn used(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// The bytes this takes from the allocator, shared ones included.
    pub(super) fn memory(&self) -> usize {
        self.buffer.len() + HEADER
    }

    /// Adds an element at an end; false, and no change, when the chunk has no room.
    #[inline]
    pub(super) fn push(&mut self, side: End, value: &[u8]) -> bool {
        let need = encoded_len(value.len());
        let room = match side {
            End::Front => self.start as usize,
            End::Back => self.buffer.len() - self.end as usize,
        };
        if (room < need || self.used() + need > CHUNK_BYTES) && !self.make_room(side, need) {
            return false;
        }
        let at = match side {
            End::Front => {
                self.start -= need as u32;
                self.start as usize
            }
            End::Back => {
                self.end += need as u32;
                self.end as usize - need
            }
        };
        write(&mut make_mut(&mut self.buffer)[at..at + need], value);
        self.count += 1;
        true
    }

    /// Makes room at an end by moving the elements to the other, within the buffer when a quarter of it would
    /// stay free and else into a larger one. So a byte is moved a bounded number of times on average.
    fn make_room(&mut self, side: End, need: usize) -> bool {
        let (used, capacity) = (self.used(), self.buffer.len());
        if used + need > CHUNK_BYTES {
            // The one element of a chunk that was made for it may be as long as it likes.
            return used == 0;
        }
        let target = if used + need + capacity / 4 <= capacity {
            capacity
        } else if capacity < CHUNK_BYTES {
            allocated(used + need + used / 2).min(CHUNK_BYTES)
        } else {
            return false;
        };
        let start = if side == End::Front { target - used } else { 0 };
        self.relocate(target, start);
        true
    }

    /// Moves the elements to `start` in a buffer of at least `capacity` bytes.
    fn relocate(&mut self, capacity: usize, start: usize) {
        let used = self.used();
        if capacity == self.buffer.len() {
            make_mut(&mut self.buffer).copy_within(self.start as usize..self.end as usize, start);
        } else {
            let mut buffer = buffer(capacity);
            make_mut(&mut buffer)[start..start + used].copy_from_slice(self.bytes());
            self.buffer = buffer;
        }
        self.start = start as u32;
        self.end = (start + used) as u32;
    }

    /// Where an element starts, counted from the first element's start; `index` may be the count.
    fn offset(&self, index: usize) -> usize {
        if index <= self.count() / 2 {
            let mut rest = self.bytes();
            for _ in 0..index {
                rest = split_first(rest).map_or(&[], |(_, rest)| rest);
            }
            self.used() - rest.len()
        } else {
            let mut rest = self.bytes();
            for _ in index..self.count() {
                rest = split_last(rest).map_or(&[], |(_, rest)| rest);
            }
            rest.len()
        }
    }

    /// The encoded elements before `index` and those from it on.
    pub(super) fn split_at(&self, index: usize) -> (&[u8], &[u8]) {
        self.bytes().split_at(self.offset(index))
    }

    /// Replaces the element at `index`, or inserts one before it; false, and no change, when the chunk would
    /// become too long.
    pub(super) fn splice(&mut self, index: usize, replace: bool, value: &[u8]) -> bool {
        let from = self.offset(index);
        let old = if replace { self.encoded_at(from) } else { 0 };
        let need = encoded_len(value.len());
        if self.used() - old + need > CHUNK_BYTES && self.count() > usize::from(replace) {
            return false;
        }
        let at = self.resize_gap(from, old, need);
        write(&mut make_mut(&mut self.buffer)[at..at + need], value);
        self.count += u32::from(!replace);
        true
    }

    fn encoded_at(&self, offset: usize) -> usize {
        split_first(&self.bytes()[offset..]).map_or(0, |(value, _)| encoded_len(value.len()))
    }

    /// Makes the `old` bytes from `offset` into `new` bytes and returns where in the buffer they are; moves the
    /// shorter side if it has room.
    fn resize_gap(&mut self, offset: usize, old: usize, new: usize) -> usize {
        let (from, to) = (self.start as usize + offset, self.start as usize + offset + old);
        let (start, end) = (self.start as usize, self.end as usize);
        if new > old {
            let delta = new - old;
            let (front, back) = (start >= delta, self.buffer.len() - end >= delta);
            if front && (offset < end - to || !back) {
                make_mut(&mut self.buffer).copy_within(start..from, start - delta);
                self.start -= delta as u32;
                return from - delta;
            }
            if !back {
                let mut buffer = buffer(end - start + delta);
                let bytes = make_mut(&mut buffer);
                bytes[..offset].copy_from_slice(&self.buffer[start..from]);
                bytes[offset + new..offset + new + end - to].copy_from_slice(&self.buffer[to..end]);
                self.buffer = buffer;
                (self.start, self.end) = (0, (end - start + delta) as u32);
                return offset;
            }
            make_mut(&mut self.buffer).copy_within(to..end, to + delta);
            self.end += delta as u32;
            return from;
        }
        let delta = old - new;
        if offset < end - to {
            make_mut(&mut self.buffer).copy_within(start..from, start + delta);
            self.start += delta as u32;
            from + delta
        } else {
            make_mut(&mut self.buffer).copy_within(to..end, to - delta);
            self.end -= delta as u32;
            from
        }
    }

    /// Removes `count` elements from `index` on, and gives memory back when less than a quarter is used.
    pub(super) fn remove(&mut self, index: usize, count: usize) {
        let from = self.offset(index);
        let removed = if count == 1 { self.encoded_at(from) } else { self.offset(index + count) - from };
        self.resize_gap(from, removed, 0);
        self.count -= count as u32;
        if self.used() < self.buffer.len() / 4 {
            let (used, target) = (self.used(), allocated(self.used() * 2));
            if target < self.buffer.len() {
                self.relocate(target, (target - used) / 2);
            }
        }
    }

    /// Appends `count` encoded elements, which must fit into [`CHUNK_BYTES`] unless the chunk is empty.
    pub(super) fn append(&mut self, encoded: &[u8], count: usize) {
        if self.buffer.len() - (self.end as usize) < encoded.len() {
            let target = allocated(self.used() + encoded.len()).max(self.buffer.len());
            self.relocate(target, 0);
        }
        let end = self.end as usize;
        make_mut(&mut self.buffer)[end..end + encoded.len()].copy_from_slice(encoded);
        self.end += encoded.len() as u32;
        self.count += count as u32;
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        assert!(self.count > 0 && self.start <= self.end && self.end as usize <= self.buffer.len());
        assert!(self.used() <= CHUNK_BYTES || self.count == 1);
        assert_eq!(allocated(self.memory()), self.memory());
        let (mut forward, mut backward) = (self.bytes(), self.bytes());
        for _ in 0..self.count {
            forward = split_first(forward).expect("an element").1;
            backward = split_last(backward).expect("an element").1;
        }
        assert!(forward.is_empty() && backward.is_empty());
    }
}
