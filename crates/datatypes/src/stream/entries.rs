//! The entries of a stream: chunks of packed entries in a tree, by the id that each chunk begins with.
//!
//! ```text
//!   chunk:  base id -> fields of the first entry (master) | entry | entry | ...
//!   entry:  milliseconds behind the base | sequence | strings << 1 | 1 if the fields are the master's | strings
//! ```
//!
//! Most entries of a stream have the same fields, which a chunk keeps once. Clones share chunks until they write.

use super::id::{StreamId, put_after, take_after};
use crate::Items;
use std::collections::BTreeMap;
use triomphe::Arc;
use types::{Reader, put_bytes, put_varint};

/// As Redis's `stream-node-max-entries`: trimming that is not exact removes whole chunks.
const CHUNK_ENTRIES: u32 = 100;
/// As Redis's `stream-node-max-bytes`.
const CHUNK_BYTES: usize = 4096;
/// What a chunk takes beside its bytes: its own size, and its place in the tree.
const CHUNK_OVERHEAD: usize = 96;

/// Some entries one after the other.
#[derive(Clone, Debug)]
struct Chunk {
    count: u32,
    /// The id of the last entry.
    last: StreamId,
    /// The fields of the entry that the chunk began with, each with its length.
    master: Box<[u8]>,
    bytes: Vec<u8>,
}

/// An entry, borrowed from where it is.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'c> {
    /// Its id.
    pub id: StreamId,
    strings: usize,
    /// The fields, if they are the master's.
    master: Option<&'c [u8]>,
    bytes: &'c [u8],
}

impl<'c> Entry<'c> {
    /// How many strings it has: twice as many as fields.
    pub fn string_count(&self) -> usize {
        self.strings
    }

    /// Its fields and values in turn.
    pub fn strings(&self) -> impl Iterator<Item = &'c [u8]> + use<'c> {
        let (mut fields, mut values) = (self.master.map(Reader::new), Reader::new(self.bytes));
        let mut at = 0;
        std::iter::from_fn(move || {
            at += 1;
            match &mut fields {
                Some(fields) if at % 2 == 1 => fields.bytes().ok(),
                _ if values.is_empty() => None,
                _ => values.bytes().ok(),
            }
        })
    }

    /// Fields and values, copied.
    pub fn items(&self) -> Items<'static> {
        Items::collect(self.strings())
    }
}

impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.strings == other.strings && self.strings().eq(other.strings())
    }
}

impl Chunk {
    /// A chunk that begins with these fields.
    fn new(items: &Items<'_>) -> Self {
        let mut master = Vec::new();
        items.iter().step_by(2).for_each(|field| put_bytes(&mut master, field));
        Chunk { count: 0, last: StreamId::ZERO, master: master.into(), bytes: Vec::new() }
    }

    /// The entry at a place among the bytes, and the place behind it.
    fn entry(&self, base: StreamId, at: usize) -> Option<(Entry<'_>, usize)> {
        let mut input = Reader::new(self.bytes.get(at..)?);
        let id = take_after(&mut input, base).ok()?;
        let header = input.varint().ok()?;
        let strings = usize::try_from(header >> 1).ok()?;
        let of_master = header & 1 == 1;
        let start = self.bytes.len() - input.rest().len();
        for _ in 0..if of_master { strings / 2 } else { strings } {
            input.bytes().ok()?;
        }
        let end = self.bytes.len() - input.rest().len();
        let master = of_master.then_some(&*self.master);
        Some((Entry { id, strings, master, bytes: &self.bytes[start..end] }, end))
    }

    /// The entries with the places where they begin and end.
    fn entries(&self, base: StreamId) -> impl Iterator<Item = (Entry<'_>, usize, usize)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (entry, end) = self.entry(base, at).filter(|_| at < self.bytes.len())?;
            let start = std::mem::replace(&mut at, end);
            Some((entry, start, end))
        })
    }

    fn is_full(&self) -> bool {
        self.count >= CHUNK_ENTRIES || self.bytes.len() >= CHUNK_BYTES
    }

    /// An entry's binary form.
    fn packed(&self, base: StreamId, id: StreamId, items: &Items<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        put_after(id, base, &mut out);
        let mut fields = Vec::new();
        items.iter().step_by(2).for_each(|field| put_bytes(&mut fields, field));
        let of_master = *fields == *self.master && items.len().is_multiple_of(2);
        put_varint(&mut out, (items.len() as u64) << 1 | u64::from(of_master));
        let every = if of_master { 2 } else { 1 };
        items.iter().skip(every - 1).step_by(every).for_each(|string| put_bytes(&mut out, string));
        out
    }

    /// Puts an entry, which is not there, in its place.
    fn insert(&mut self, base: StreamId, id: StreamId, items: &Items<'_>) {
        let packed = self.packed(base, id, items);
        let at = match self.count > 0 && self.last > id {
            true => self.entries(base).find(|(entry, ..)| entry.id > id).map(|(_, start, _)| start),
            false => None,
        };
        match at {
            Some(at) => drop(self.bytes.splice(at..at, packed)),
            None => {
                self.bytes.extend_from_slice(&packed);
                self.last = id;
            }
        }
        self.count += 1;
    }

    fn memory(&self) -> usize {
        self.master.len() + self.bytes.capacity() + CHUNK_OVERHEAD
    }
}

/// The entries of a chunk, the last one first.
fn backwards<'c>(
    (base, chunk): (&StreamId, &'c Arc<Chunk>),
) -> std::iter::Rev<std::vec::IntoIter<Entry<'c>>> {
    let entries: Vec<Entry<'c>> = chunk.entries(*base).map(|(entry, ..)| entry).collect();
    entries.into_iter().rev()
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    chunks: BTreeMap<StreamId, Arc<Chunk>>,
    len: usize,
    /// The bytes that the chunks take.
    memory: usize,
}

impl Entries {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many chunks.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The bytes that they take, allocator rounding estimated.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// The chunk that has an id or would get it, if it is not before all of them.
    fn base(&self, id: StreamId) -> Option<StreamId> {
        self.chunks.range(..=id).next_back().map(|(base, _)| *base)
    }

    /// An entry.
    pub fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        let (base, chunk) = self.chunks.range(..=id).next_back().filter(|(_, chunk)| id <= chunk.last)?;
        let found = chunk.entries(*base).map(|(entry, ..)| entry).find(|entry| entry.id >= id);
        found.filter(|entry| entry.id == id)
    }

    /// True if it is there.
    pub fn contains(&self, id: StreamId) -> bool {
        self.get(id).is_some()
    }

    /// The entries from one id to another, in ascending order.
    pub fn range(&self, from: StreamId, to: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let first = self.base(from).unwrap_or(from);
        let chunks = (first <= to).then(|| self.chunks.range(first..=to));
        let entries = chunks.into_iter().flatten().flat_map(|(base, chunk)| chunk.entries(*base));
        entries
            .map(|(entry, ..)| entry)
            .skip_while(move |entry| entry.id < from)
            .take_while(move |entry| entry.id <= to)
    }

    /// The entries from one id to another, in descending order.
    pub fn range_back(&self, from: StreamId, to: StreamId) -> impl Iterator<Item = Entry<'_>> {
        let first = self.base(from).unwrap_or(from);
        let chunks = (first <= to).then(|| self.chunks.range(first..=to).rev());
        let entries = chunks.into_iter().flatten().flat_map(backwards);
        entries.skip_while(move |entry| entry.id > to).take_while(move |entry| entry.id >= from)
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.range(StreamId::ZERO, StreamId::MAX)
    }

    /// The first entry.
    pub fn first(&self) -> Option<Entry<'_>> {
        self.iter().next()
    }

    /// The id of the last entry.
    pub fn last_id(&self) -> Option<StreamId> {
        self.chunks.last_key_value().map(|(_, chunk)| chunk.last)
    }

    /// How many entries each chunk has, and the last of their ids; also with one more entry at the end.
    pub fn sizes(&self, added: Option<StreamId>) -> impl Iterator<Item = (usize, StreamId)> {
        let chunks = self.chunks.len();
        let has_room = self.chunks.last_key_value().is_some_and(|(_, chunk)| !chunk.is_full());
        let sizes = self.chunks.values().enumerate().map(move |(place, chunk)| {
            let more = added.filter(|_| has_room && place + 1 == chunks);
            (chunk.count as usize + usize::from(more.is_some()), more.unwrap_or(chunk.last))
        });
        sizes.chain(added.filter(|_| !has_room).map(|added| (1, added)))
    }

    /// Puts an entry that is not there.
    pub fn insert(&mut self, id: StreamId, items: &Items<'_>) {
        debug_assert!(!self.contains(id), "an id has one entry");
        let last = self.chunks.last_key_value();
        let appends_to_full = last.is_some_and(|(_, chunk)| chunk.is_full() && chunk.last < id);
        let base = self.base(id).filter(|_| !appends_to_full);
        let base = base.unwrap_or_else(|| {
            self.chunks.insert(id, Arc::new(Chunk::new(items)));
            self.memory += self.chunks[&id].memory();
            id
        });
        self.change(base, |chunk| chunk.insert(base, id, items));
        self.len += 1;
        self.split(base);
    }

    /// Changes a chunk, which is there.
    fn change<R>(&mut self, base: StreamId, change: impl FnOnce(&mut Chunk) -> R) -> Option<R> {
        let shared = self.chunks.get_mut(&base)?;
        let before = shared.memory();
        let chunk = Arc::make_mut(shared);
        let result = change(chunk);
        self.memory = self.memory + chunk.memory() - before;
        Some(result)
    }

    /// Makes two of a chunk that has become much larger than others.
    fn split(&mut self, base: StreamId) {
        let is_large = |chunk: &Chunk| {
            chunk.count > 2 * CHUNK_ENTRIES || chunk.count > 1 && chunk.bytes.len() > 2 * CHUNK_BYTES
        };
        if !self.chunks.get(&base).is_some_and(|chunk| is_large(chunk)) {
            return;
        }
        let Some(chunk) = self.chunks.remove(&base) else { return };
        self.memory -= chunk.memory();
        let half = chunk.count.div_ceil(2) as usize;
        let entries: Vec<Entry<'_>> = chunk.entries(base).map(|(entry, ..)| entry).collect();
        for part in entries.chunks(half) {
            let Some(first) = part.first() else { continue };
            let mut made = Chunk::new(&first.items());
            part.iter().for_each(|entry| made.insert(first.id, entry.id, &entry.items()));
            self.memory += made.memory();
            self.chunks.insert(first.id, Arc::new(made));
        }
    }

    /// Removes the entries that are there of these, which are in ascending order; `each` sees them.
    pub fn remove(&mut self, ids: impl Iterator<Item = StreamId>, mut each: impl FnMut(Entry<'_>)) {
        let mut ids = ids.peekable();
        while let Some(id) = ids.peek() {
            let Some(base) = self.base(*id) else {
                // It is before all chunks.
                ids.next();
                continue;
            };
            let end = self.chunks.range(base..).nth(1).map(|(next, _)| *next);
            let wanted = std::iter::from_fn(|| ids.next_if(|id| end.is_none_or(|end| *id < end)));
            let wanted: Vec<StreamId> = wanted.collect();
            self.remove_from(base, &wanted, &mut each);
        }
    }

    fn remove_from(&mut self, base: StreamId, wanted: &[StreamId], each: &mut impl FnMut(Entry<'_>)) {
        let Some(chunk) = self.chunks.get(&base) else { return };
        let mut gone = Vec::new();
        let mut left = None;
        for (entry, start, end) in chunk.entries(base) {
            if wanted.binary_search(&entry.id).is_ok() {
                each(entry);
                gone.push((start, end));
            } else {
                left = Some(entry.id);
            }
        }
        if gone.is_empty() {
            return;
        }
        self.len -= gone.len();
        let Some(last) = left else {
            self.memory -= chunk.memory();
            self.chunks.remove(&base);
            return;
        };
        self.change(base, |chunk| {
            for (start, end) in gone.iter().rev() {
                chunk.bytes.drain(start..end);
            }
            chunk.count -= gone.len() as u32;
            chunk.last = last;
        });
    }
}

/// Where chunks begin does not matter.
impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        let mut chunks = self.chunks.iter().zip(&other.chunks);
        let are_shared = self.chunks.len() == other.chunks.len()
            && chunks.all(|((a, mine), (b, theirs))| a == b && Arc::ptr_eq(mine, theirs));
        self.len == other.len && (are_shared || self.iter().eq(other.iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Rng;

    fn id(number: u64) -> StreamId {
        StreamId::new(number / 8, number % 8)
    }

    #[test]
    fn entries_are_what_a_map_says_wherever_chunks_begin() {
        for seed in 0..40 {
            let mut random = Rng::with_seed(seed);
            let (mut entries, mut model) = (Entries::default(), BTreeMap::new());
            let ascending = seed % 2 == 0;
            for step in 0..900u64 {
                let number = if ascending { step } else { random.u64(..2000) };
                if random.u32(..4) > 0 && !model.contains_key(&id(number)) {
                    let value = vec![b'v'; random.usize(..if seed % 4 < 2 { 9 } else { 400 })];
                    let field: &[u8] = if random.u32(..5) == 0 { b"other" } else { b"field" };
                    entries.insert(id(number), &Items::two(field, &value));
                    model.insert(id(number), (field, value));
                } else {
                    let from = random.u64(..2000);
                    let wanted: Vec<StreamId> = (from..from + random.u64(..60)).map(id).collect();
                    let mut removed = Vec::new();
                    entries.remove(wanted.iter().copied(), |entry| removed.push(entry.id));
                    let expected: Vec<StreamId> =
                        wanted.iter().filter(|id| model.remove(id).is_some()).copied().collect();
                    assert_eq!(removed, expected);
                }
            }
            let decoded =
                |entry: Entry<'_>| (entry.id, entry.strings().map(<[u8]>::to_vec).collect::<Vec<_>>());
            let wanted: Vec<_> =
                model.iter().map(|(id, (field, value))| (*id, vec![field.to_vec(), value.clone()])).collect();
            assert_eq!(entries.iter().map(decoded).collect::<Vec<_>>(), wanted);
            assert_eq!(entries.len(), model.len());
            let (from, to) = (id(300), id(900));
            let within: Vec<StreamId> = model.range(from..=to).map(|(id, _)| *id).collect();
            assert_eq!(entries.range(from, to).map(|entry| entry.id).collect::<Vec<_>>(), within);
            let mut back: Vec<StreamId> = entries.range_back(from, to).map(|entry| entry.id).collect();
            back.reverse();
            assert_eq!(back, within);
            assert_eq!(entries.last_id(), model.last_key_value().map(|(id, _)| *id));
            let memory: usize = entries.chunks.values().map(|chunk| chunk.memory()).sum();
            assert_eq!(entries.memory(), memory);
            let mut again = Entries::default();
            entries.iter().for_each(|entry| again.insert(entry.id, &entry.items()));
            assert_eq!(again, entries);
        }
    }

    #[test]
    fn an_entry_takes_about_as_much_as_in_redis() {
        let mut entries = Entries::default();
        for number in 0..100_000u64 {
            let value = number.to_string();
            let fields = [&b"sensor"[..], b"12", b"temperature", value.as_bytes()];
            entries.insert(StreamId::new(1_700_000_000_000 + number, 0), &Items::Slices(&fields));
        }
        let each = entries.memory() as f64 / 100_000.0;
        assert!(each < 24.0, "{each} bytes; Redis takes about 19");
    }
}
