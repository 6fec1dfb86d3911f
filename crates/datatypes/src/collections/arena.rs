//! Byte records in pages, addressed by 32-bit handles.
//!
//! A record is its length (a varint of one or two bytes) and its bytes, rounded up to units of four bytes. A
//! freed record goes to the free list of its size, threaded through the freed bytes, and serves the next record
//! of that size. Records longer than [`INLINE_BYTES`] have an allocation of their own. Compared with one
//! allocation per record this saves the pointer's twelve bytes and the allocator's rounding, and a collection is
//! cloned and freed page by page: clones share pages until they write to them.

use super::buffer::allocated;
use super::paged::{HEADER, make_mut, zeroed};
use triomphe::Arc;

const UNIT_BYTES: usize = 4;
/// With its header a page takes a size class.
const PAGE_BYTES: usize = (32 << 10) - HEADER;
/// By how much the handles of two pages differ.
const PAGE_UNITS: usize = (32 << 10) / UNIT_BYTES;
/// The longest record that lives in a page.
const INLINE_BYTES: usize = 1024;
/// Set in the handles of records that have an allocation of their own.
const OWN_ALLOCATION: u32 = 1 << 31;
/// The end of a free list; no record of a page has this handle.
const NONE: u32 = u32::MAX;

/// Where a record is; stable until the record is removed.
pub(super) type Handle = u32;

/// The records of one collection.
#[derive(Clone, Default)]
pub(super) struct Arena {
    pages: Vec<Arc<[u8]>>,
    /// How much of the last page belongs to records, or did.
    filled: usize,
    /// The first free record of each size, by units.
    free: Vec<u32>,
    large: Vec<Arc<[u8]>>,
    free_large: Vec<u32>,
    /// Bytes of pages that belong to records.
    live_bytes: usize,
    /// Bytes that the pages and the large records take from the allocator.
    page_memory: usize,
    large_memory: usize,
}

fn units(len: usize) -> usize {
    (len + 1 + usize::from(len >= 0x80)).div_ceil(UNIT_BYTES)
}

fn split(handle: Handle) -> (usize, usize) {
    (handle as usize / PAGE_UNITS, handle as usize % PAGE_UNITS * UNIT_BYTES)
}

/// The place of a record's bytes in its page, given the place of its length.
#[inline]
fn body(page: &[u8], at: usize) -> std::ops::Range<usize> {
    let first = page[at] as usize;
    if first < 0x80 {
        at + 1..at + 1 + first
    } else {
        let len = (first & 0x7f) | ((page[at + 1] as usize) << 7);
        at + 2..at + 2 + len
    }
}

/// Writes a record over its units.
#[inline]
fn write(to: &mut [u8], len: usize, parts: [&[u8]; 3]) {
    to[0] = len as u8;
    let mut at = 1;
    if len >= 0x80 {
        to[0] |= 0x80;
        to[1] = (len >> 7) as u8;
        at += 1;
    }
    for part in parts {
        to[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// The bytes that shared bytes take from the allocator; none of them take none that count.
fn memory_of(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { allocated(bytes.len() + HEADER) }
}

impl Arena {
    /// The bytes of a record.
    #[inline]
    pub(super) fn get(&self, handle: Handle) -> &[u8] {
        if handle & OWN_ALLOCATION != 0 {
            return &self.large[(handle & !OWN_ALLOCATION) as usize];
        }
        let (page, at) = split(handle);
        let page = &self.pages[page];
        &page[body(page, at)]
    }

    /// The bytes of a record, to be overwritten in place.
    pub(super) fn get_mut(&mut self, handle: Handle) -> &mut [u8] {
        if handle & OWN_ALLOCATION != 0 {
            return make_mut(&mut self.large[(handle & !OWN_ALLOCATION) as usize]);
        }
        let (page, at) = split(handle);
        let page = make_mut(&mut self.pages[page]);
        let range = body(page, at);
        &mut page[range]
    }

    /// Stores the concatenation of `parts`.
    pub(super) fn insert(&mut self, parts: [&[u8]; 3]) -> Handle {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > INLINE_BYTES || self.pages.len() >= OWN_ALLOCATION as usize / PAGE_UNITS {
            return self.insert_large(Arc::from(parts.concat()));
        }
        let units = units(len);
        self.live_bytes += units * UNIT_BYTES;
        match self.free.get(units).copied() {
            Some(handle) if handle != NONE => self.insert_into_freed(handle, units, len, parts),
            _ => self.append(units, len, parts),
        }
    }

    fn insert_large(&mut self, record: Arc<[u8]>) -> Handle {
        self.large_memory += allocated(record.len() + HEADER);
        if let Some(index) = self.free_large.pop() {
            self.large[index as usize] = record;
            return index | OWN_ALLOCATION;
        }
        self.large.push(record);
        (self.large.len() - 1) as u32 | OWN_ALLOCATION
    }

    fn insert_into_freed(&mut self, handle: Handle, units: usize, len: usize, parts: [&[u8]; 3]) -> Handle {
        let (page, at) = split(handle);
        let page = make_mut(&mut self.pages[page]);
        let mut next = [0; 4];
        next.copy_from_slice(&page[at..at + 4]);
        self.free[units] = u32::from_le_bytes(next);
        write(&mut page[at..at + units * UNIT_BYTES], len, parts);
        handle
    }

    fn append(&mut self, units: usize, len: usize, parts: [&[u8]; 3]) -> Handle {
        let bytes = units * UNIT_BYTES;
        if self.pages.is_empty() || self.filled + bytes > PAGE_BYTES {
            self.add_page();
        }
        let (index, at) = (self.pages.len() - 1, self.filled);
        if self.pages[index].len() - at < bytes {
            // Only the first page grows; the others have their full size from the start.
            let size = allocated((at + bytes) * 3 / 2 + HEADER).clamp(256, PAGE_BYTES + HEADER);
            self.grow_last(size - HEADER);
        }
        write(&mut make_mut(&mut self.pages[index])[at..at + bytes], len, parts);
        self.filled += bytes;
        (index * PAGE_UNITS + at / UNIT_BYTES) as Handle
    }

    fn grow_last(&mut self, size: usize) {
        if let Some(page) = self.pages.last_mut() {
            let mut larger = zeroed(size);
            make_mut(&mut larger)[..page.len()].copy_from_slice(page);
            self.page_memory += memory_of(&larger) - memory_of(page);
            *page = larger;
        }
    }

    /// Starts a page; what is left of the last one becomes a free record.
    fn add_page(&mut self) {
        let index = self.pages.len();
        if index > 0 {
            let left = (PAGE_BYTES - self.filled) / UNIT_BYTES;
            if self.pages[index - 1].len() < PAGE_BYTES {
                self.grow_last(PAGE_BYTES);
            }
            if left > 0 {
                self.release(((index - 1) * PAGE_UNITS + self.filled / UNIT_BYTES) as Handle, left);
            }
        }
        let page = zeroed(if index == 0 { 0 } else { PAGE_BYTES });
        self.page_memory += memory_of(&page);
        self.pages.push(page);
        self.filled = 0;
    }

    /// Frees a record.
    pub(super) fn remove(&mut self, handle: Handle) {
        let len = self.get(handle).len();
        if handle & OWN_ALLOCATION != 0 {
            let index = handle & !OWN_ALLOCATION;
            self.large_memory -= allocated(len + HEADER);
            self.large[index as usize] = zeroed(0);
            self.free_large.push(index);
        } else {
            self.live_bytes -= units(len) * UNIT_BYTES;
            self.release(handle, units(len));
        }
    }

    fn release(&mut self, handle: Handle, units: usize) {
        if units >= self.free.len() {
            self.free.resize(units + 1, NONE);
        }
        let (page, at) = split(handle);
        make_mut(&mut self.pages[page])[at..at + 4].copy_from_slice(&self.free[units].to_le_bytes());
        self.free[units] = handle;
    }

    /// True when most of the pages is free, so that copying the records into a new arena pays.
    pub(super) fn is_mostly_free(&self) -> bool {
        self.page_memory > 2 * self.live_bytes + 2 * PAGE_BYTES
    }

    /// The bytes this takes from the allocator, shared ones included.
    pub(super) fn memory(&self) -> usize {
        self.page_memory
            + self.large_memory
            + allocated(self.pages.capacity() * size_of::<Arc<[u8]>>())
            + allocated(self.large.capacity() * size_of::<Arc<[u8]>>())
            + allocated((self.free.capacity() + self.free_large.capacity()) * 4)
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self, handles: &[Handle]) {
        let inline = handles.iter().filter(|&&handle| handle & OWN_ALLOCATION == 0);
        let live = inline.map(|&handle| units(self.get(handle).len()) * UNIT_BYTES).sum::<usize>();
        assert_eq!(live, self.live_bytes);
        let mut free = 0;
        for (units, &head) in self.free.iter().enumerate() {
            let mut next = head;
            while next != NONE {
                free += units * UNIT_BYTES;
                let (page, at) = split(next);
                next = u32::from_le_bytes(self.pages[page][at..at + 4].try_into().expect("four bytes"));
            }
        }
        let full = self.pages.len().saturating_sub(1) * PAGE_BYTES;
        assert_eq!(live + free, full + self.filled);
        assert_eq!(self.page_memory, self.pages.iter().map(|page| memory_of(page)).sum::<usize>());
        assert_eq!(self.large_memory, self.large.iter().map(|record| memory_of(record)).sum::<usize>());
        let large = handles.iter().filter(|&&handle| handle & OWN_ALLOCATION != 0).count();
        assert_eq!(large + self.free_large.len(), self.large.len());
    }
}
