//! The hash index of a partition: from a key's hash to its boxed record.
//!
//! # What it is for
//!
//! It is the hottest structure of the server, so it is laid out by cache misses: finding a record touches
//! one line of the index and one of the record (about 7 % of the lookups touch a second line of the index).
//! The caller hashes a key once per command and passes the hash to every call. A pipeline's executor hides
//! both misses: over a batch of commands it first calls [`Table::prefetch_bucket`] for each, then
//! [`Table::prefetch_record`] for each, and then runs them.
//!
//! # Layout
//!
//! ```text
//!   Table ── segments ──> [ 2048 buckets ] [ 2048 buckets ] [ ... ]
//!                              │
//!                              └ bucket, one cache line: 6 fingerprints, 6 boxed records, overflow bucket
//! ```
//!
//! Keys are found by *linear hashing* (Litwin, "Linear hashing: a new tool for file and table addressing",
//! VLDB 1980). There are `2^level + split` home buckets; a hash's low `level + 1` bits name one, or its low
//! `level` bits where that one does not exist yet. Growing by one bucket splits bucket `split` in two;
//! shrinking joins the last bucket to the one it came from. So there is never a second table, every key has
//! exactly one home, and an insertion splits at most one bucket and a removal joins at most one, whatever
//! the size. Buckets live in segments of 128 KiB that come and go one at a time: no call allocates, clears,
//! copies or frees more.
//!
//! # Invariants
//!
//! - A record is in the chain of its home bucket, once; keys are unique.
//! - `2^level <= buckets < 2^(level + 1)`; all segments but the last are full.
//! - At most [`GROW_ABOVE`] records a bucket on average; after removals, at least [`SHRINK_BELOW`].
//!
//! # What was considered
//!
//! Two tables of doubling size with seven slots a bucket, the last doubling as the chain pointer (Valkey
//! 8.1), would cost 13 to 21 bytes a key depending on where between two powers of two the number of keys
//! lies, and hold both tables while growing (computed, for random hashes and at most 6 keys a bucket). Linear
//! hashing costs 18 at any number (computed, and measured at 1M). A seventh slot would save 0.9 of them and
//! one to two hundredths of the lookups' second lines; it needs tagged pointers. With six, there is no
//! `unsafe` but the prefetch hint. Comparing keys by words instead of calling `bcmp` saved no instruction. A
//! third prefetch pass, over what the records point to, gained nothing.
//!
//! # Measured
//!
//! On a virtual machine with two shared cores, November 2026, keys of 16 bytes, values of 64 bytes beside
//! records of 64, mimalloc. The machine was busy: equal runs differ by half, so only ratios within a run count.
//!
//! - Memory at 1M keys, all included: 127 to 131 resident bytes a key; Redis 7.0 172 (168 by its own count).
//! - Lookups one by one, against `hashbrown::HashTable<Box<R>>`: the same at 1M keys (84 to 189 ns), 1.2 times
//!   its time at 100k; 116 against 117 instructions.
//! - Two prefetch passes over batches of 16: 2.1 to 3.2 times faster than none at 1M keys (39 to 64 ns), and in
//!   most runs 2 times at 100k (23 to 29 ns).
//! - What hashbrown does better: a key that is absent (2.2 times its time at 1M), insertion and removal (1.0 to
//!   1.2 times at 1M, 1.4 to 2.8 times at 100k). What it cannot: its longest insertion moves every record.
//! - The longest insertion while growing to 4M keys, each call by the least of three runs: 57 us, when the first
//!   segment doubles for the last time; else 24 us, when a segment is added. This is without transparent huge
//!   pages. With them, as mimalloc asks for by default, the kernel clears 2 MiB at a first touch: 4 to 6 ms.
//!
//! Equal hashes cost a walk over all of them, and a split moves a whole chain. The seed is the deployment's
//! secret, so that nobody can arrange either.

mod bucket;
mod drained;
mod prefetch;
#[cfg(test)]
mod tests;

use types::{HashSeed, KeyHash, Rng};

use bucket::{Bucket, Fingerprint, SLOTS};
pub use drained::Drained;
pub(crate) use prefetch::{prefetch_bytes, prefetch_value};

/// Buckets in one segment: 128 KiB.
const SEGMENT_BUCKETS: usize = 1 << SEGMENT_BITS;
const SEGMENT_BITS: u32 = 11;

/// The average number of records a home bucket above which an insertion adds a bucket. At 4, linear hashing has
/// buckets of 2 to 8 on average, and one lookup in 14 meets an overflow bucket.
const GROW_ABOVE: usize = 4;

/// The average number of records a home bucket below which a removal takes a bucket away. Half of
/// [`GROW_ABOVE`], so that insertions and removals in turn do not split and join in turn.
const SHRINK_BELOW: usize = 2;

/// How often [`Table::random`] draws a place before it settles for a slightly unfair choice.
const RANDOM_DRAWS: usize = 128;

/// The places of a chain among which [`Table::random`] draws.
const RANDOM_PLACES: usize = 3 * SLOTS;

/// A record that knows its key.
pub trait Keyed {
    /// The key. It must not change while the record is in a table.
    fn key(&self) -> &[u8];

    /// The hash under which the record was inserted. A split asks for it.
    #[inline]
    fn key_hash(&self, seed: HashSeed) -> KeyHash {
        seed.hash(self.key())
    }
}

/// The index; see the module's documentation.
///
/// Every method that takes a `hash` wants [`Table::hash`] of the key beside it. With another hash the key is
/// not found, or is found twice; nothing worse.
pub struct Table<R> {
    segments: Vec<Vec<Bucket<R>>>,
    /// The number of home buckets, at least 1.
    buckets: usize,
    /// `2^level`.
    half: usize,
    length: usize,
    overflow_count: usize,
    seed: HashSeed,
}

impl<R: Keyed> Table<R> {
    /// An empty table for keys hashed under `seed`.
    pub fn new(seed: HashSeed) -> Table<R> {
        Table {
            segments: vec![vec![Bucket::default()]],
            buckets: 1,
            half: 1,
            length: 0,
            overflow_count: 0,
            seed,
        }
    }

    /// The hash of `key`, to be computed once and passed to the other methods.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.seed.hash(key)
    }

    /// The number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is no record.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes the index itself takes, without its records. Callers need it often, so it does not walk the segments:
    /// those between the first and the last are full.
    pub fn memory(&self) -> usize {
        let buckets = match self.segments.as_slice() {
            [first, between @ .., last] => {
                first.capacity() + between.len() * SEGMENT_BUCKETS + last.capacity()
            }
            few => few.iter().map(Vec::capacity).sum(),
        };
        size_of::<Self>()
            + self.segments.capacity() * size_of::<Vec<Bucket<R>>>()
            + (buckets + self.overflow_count) * size_of::<Bucket<R>>()
    }

    /// The record of `key`.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &[u8]) -> Option<&R> {
        self.bucket(self.home(hash)).find(Fingerprint::of(hash), key)
    }

    /// The record of `key`, to be changed in place.
    #[inline]
    pub fn get_mut(&mut self, hash: KeyHash, key: &[u8]) -> Option<&mut R> {
        let home = self.home(hash);
        self.bucket_mut(home).find_mut(Fingerprint::of(hash), key).map(Box::as_mut)
    }

    /// Adds a record, or exchanges it for the one of the same key, which is handed back.
    pub fn insert(&mut self, hash: KeyHash, record: Box<R>) -> Option<Box<R>> {
        let home = self.home(hash);
        if let Some(place) = self.bucket_mut(home).find_mut(Fingerprint::of(hash), record.key()) {
            return Some(std::mem::replace(place, record));
        }
        self.insert_absent(hash, record);
        None
    }

    /// Adds a record of a key that the caller has just found absent, without looking again.
    pub fn insert_absent(&mut self, hash: KeyHash, record: Box<R>) -> &mut R {
        debug_assert!(self.get(hash, record.key()).is_none(), "the key is already in the table");
        if self.length >= self.buckets * GROW_ABOVE {
            self.split_next();
        }
        self.length += 1;
        let (segment, index) = Self::locate(self.home(hash));
        self.segments[segment][index].push(Fingerprint::of(hash), record, &mut self.overflow_count)
    }

    /// The record of `key`, to be changed in place; a new one if there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, hash: KeyHash, key: &[u8], new: impl FnOnce() -> R) -> &mut R {
        if self.get(hash, key).is_none() {
            return self.insert_absent(hash, Box::new(new()));
        }
        self.get_mut(hash, key).expect("it was found just now")
    }

    /// A record under this hash that `is_it`, whatever its key; to be changed in place.
    pub fn find_mut(&mut self, hash: KeyHash, is_it: impl Fn(&R) -> bool) -> Option<&mut R> {
        let home = self.home(hash);
        self.bucket_mut(home).find_by(Fingerprint::of(hash), is_it)
    }

    /// The same, as it is.
    pub fn find(&self, hash: KeyHash, is_it: impl Fn(&R) -> bool) -> Option<&R> {
        self.bucket(self.home(hash)).find_any(Fingerprint::of(hash), is_it)
    }

    /// Takes the record of `key` out.
    pub fn remove(&mut self, hash: KeyHash, key: &[u8]) -> Option<Box<R>> {
        let (segment, index) = Self::locate(self.home(hash));
        let bucket = &mut self.segments[segment][index];
        let removed = bucket.remove(Fingerprint::of(hash), key, &mut self.overflow_count)?;
        self.length -= 1;
        if self.length < self.buckets * SHRINK_BELOW && self.buckets > 1 {
            self.join_last();
        }
        Some(removed)
    }

    /// Empties the table and hands its contents back, to be freed in pieces.
    pub fn take(&mut self) -> Drained<R> {
        let full = std::mem::replace(self, Table::new(self.seed));
        Drained::new(full.segments, full.length, full.overflow_count)
    }

    /// First pass over a batch: asks for the line of the index that a lookup of `hash` reads.
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        prefetch::prefetch(self.bucket(self.home(hash)));
    }

    /// Second pass over a batch: asks for the first cache lines of the record that a lookup of `hash` reads.
    #[inline]
    pub fn prefetch_record(&self, hash: KeyHash) {
        self.bucket(self.home(hash)).prefetch_candidate(Fingerprint::of(hash));
    }

    /// The record that a lookup of `hash` looks at first, which is the right one most of the time: for hints.
    pub fn candidate(&self, hash: KeyHash) -> Option<&R> {
        self.bucket(self.home(hash)).candidate(Fingerprint::of(hash))
    }

    /// Visits the records of one or two home buckets and returns the cursor of the next call. An iteration
    /// starts and ends with cursor 0. A record that is in the table during the whole iteration is visited at
    /// least once, however the table grows and shrinks between the calls; one may be visited twice.
    ///
    /// The cursor counts through the low `level` bits of the hash with its bits reversed, as in Redis's
    /// `dictScan`. A split or a join exchanges buckets that such a cursor has passed for ones it has passed,
    /// and a half-split level is visited by the buckets of the level below with their split-off halves.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&R)) -> u64 {
        let mask = self.half as u64 - 1;
        let low = (cursor & mask) as usize;
        self.bucket(low).records().for_each(&mut visit);
        if low + self.half < self.buckets {
            self.bucket(low + self.half).records().for_each(&mut visit);
        }
        next_cursor(cursor, mask)
    }

    /// Visits the records whose hash has the same low bits as a cursor, as the mask says; the table has no more home buckets
    /// than that.
    fn visit_alike(&self, cursor: u64, mask: u64, visit: &mut impl FnMut(&R)) {
        let low = cursor as usize & (self.half - 1);
        let high = Some(low + self.half).filter(|high| *high < self.buckets);
        let records =
            [Some(low), high].into_iter().flatten().flat_map(|bucket| self.bucket(bucket).records());
        let is_alike = |record: &&R| (record.key_hash(self.seed).0 ^ cursor) & mask == 0;
        records.filter(is_alike).for_each(visit);
    }

    /// A record drawn at random; `None` only if there is none. All records are equally likely as long as no chain
    /// is longer than three buckets and a bounded number of draws succeeds, which fails in practice for no table.
    pub fn random(&self, random: &mut Rng) -> Option<&R> {
        if self.length == 0 {
            return None;
        }
        let drawn = (0..RANDOM_DRAWS)
            .find_map(|_| self.bucket(random.usize(0..self.buckets)).at(random.usize(0..RANDOM_PLACES)));
        drawn.or_else(|| self.find_any(random, |_| true))
    }

    /// The first record that `fits`, from a bucket on that is drawn at random; `None` only if none does.
    pub fn find_any(&self, random: &mut Rng, fits: impl Fn(&R) -> bool) -> Option<&R> {
        let start = random.usize(0..self.buckets);
        let mut buckets = (start..self.buckets).chain(0..start);
        buckets.find_map(|index| self.bucket(index).records().find(|record| fits(record)))
    }

    /// All records, by bucket.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.segments.iter().flatten().flat_map(Bucket::records)
    }

    /// The home bucket of a hash.
    #[inline(always)]
    fn home(&self, hash: KeyHash) -> usize {
        let index = hash.0 as usize & (2 * self.half - 1);
        // Without a branch: whether a bucket is split is a coin toss. An index past the end has the bit `half`.
        index - (usize::from(index >= self.buckets) * self.half)
    }

    #[inline(always)]
    fn locate(bucket: usize) -> (usize, usize) {
        (bucket >> SEGMENT_BITS, bucket & (SEGMENT_BUCKETS - 1))
    }

    #[inline(always)]
    fn bucket(&self, bucket: usize) -> &Bucket<R> {
        let (segment, index) = Self::locate(bucket);
        &self.segments[segment][index]
    }

    #[inline(always)]
    fn bucket_mut(&mut self, bucket: usize) -> &mut Bucket<R> {
        let (segment, index) = Self::locate(bucket);
        &mut self.segments[segment][index]
    }

    /// Adds a home bucket and moves to it what it takes over from the bucket it is split from.
    fn split_next(&mut self) {
        let source = self.buckets - self.half;
        let mut mixed = std::mem::take(self.bucket_mut(source));
        let (mut staying, mut moved) = (Bucket::default(), Bucket::default());
        while let Some((fingerprint, record)) = mixed.pop(&mut self.overflow_count) {
            let moves = record.key_hash(self.seed).0 as usize & self.half != 0;
            let target = if moves { &mut moved } else { &mut staying };
            target.push(fingerprint, record, &mut self.overflow_count);
        }
        *self.bucket_mut(source) = staying;
        self.push_bucket(moved);
        if self.buckets == 2 * self.half {
            self.half = self.buckets;
        }
        // The next split is some insertions away, time enough for its records to arrive.
        self.bucket(self.buckets - self.half).prefetch_all();
    }

    /// Takes the last home bucket away and gives its records back to the one it was split from.
    fn join_last(&mut self) {
        if self.buckets == self.half {
            self.half /= 2;
        }
        let mut last = self.pop_bucket();
        let (segment, index) = Self::locate(self.buckets - self.half);
        let target = &mut self.segments[segment][index];
        while let Some((fingerprint, record)) = last.pop(&mut self.overflow_count) {
            target.push(fingerprint, record, &mut self.overflow_count);
        }
    }

    fn push_bucket(&mut self, bucket: Bucket<R>) {
        if self.buckets.is_multiple_of(SEGMENT_BUCKETS) {
            self.segments.push(Vec::with_capacity(SEGMENT_BUCKETS));
        }
        let (segment, _) = Self::locate(self.buckets);
        self.segments[segment].push(bucket);
        self.buckets += 1;
    }

    fn pop_bucket(&mut self) -> Bucket<R> {
        self.buckets -= 1;
        let (last, index) = Self::locate(self.buckets);
        let segment = &mut self.segments[last];
        let bucket = segment.pop().unwrap_or_default();
        if index == 0 && last > 0 {
            self.segments.pop();
        } else if last == 0 && index <= segment.capacity() / 4 {
            segment.shrink_to(segment.capacity() / 2);
        }
        bucket
    }
}

/// Visits the keys of one place of two tables under the same seed, like [`Table::scan`]. A key that is in either of them, the one
/// or the other, during the whole iteration is visited at least once.
pub(crate) fn scan_both<A: Keyed, B: Keyed>(
    a: &Table<A>,
    b: &Table<B>,
    cursor: u64,
    mut visit: impl FnMut(&[u8]),
) -> u64 {
    if b.is_empty() {
        return a.scan(cursor, |record| visit(record.key()));
    }
    let mask = a.half.max(b.half) as u64 - 1;
    a.visit_alike(cursor, mask, &mut |record: &A| visit(record.key()));
    b.visit_alike(cursor, mask, &mut |record: &B| visit(record.key()));
    next_cursor(cursor, mask)
}

/// Counts through the bits of the mask, reversed.
fn next_cursor(cursor: u64, mask: u64) -> u64 {
    (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits()
}
