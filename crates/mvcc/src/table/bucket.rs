//! One cache line of the index: six records, their fingerprints, and the way to more.
//!
//! ```text
//!   byte 0..6        6..8     8..56                     56..64
//!   fingerprints     unused   six Option<Box<record>>   Option<Box<Bucket>>: the first overflow bucket
//! ```
//!
//! A home bucket that is full chains overflow buckets. Two invariants let adding cost no walk and removing leave
//! no garbage: a home bucket that has an overflow bucket is full; and so is every overflow bucket, except perhaps
//! the first, which holds at least one record.

use types::KeyHash;

use super::Keyed;
use super::prefetch::{prefetch, prefetch_value};

/// Records in one bucket.
pub(super) const SLOTS: usize = 6;

const LOW_BITS: u64 = 0x0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080;

/// One byte of a key's hash that tells most keys of a bucket apart; never 0, which marks an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u8);

impl Fingerprint {
    /// Bits 40 to 47: the top 16 bits are alike within a partition and the low ones within a bucket.
    #[inline(always)]
    pub(super) fn of(hash: KeyHash) -> Fingerprint {
        Fingerprint(((hash.0 >> 40) as u8).max(1))
    }
}

/// A home or overflow bucket.
#[repr(C, align(64))]
pub(super) struct Bucket<R> {
    /// Byte `i` is the fingerprint of slot `i`, or 0 if that slot is empty. The top two bytes are 0.
    fingerprints: u64,
    slots: [Option<Box<R>>; SLOTS],
    overflow: Option<Box<Bucket<R>>>,
}

impl<R> Default for Bucket<R> {
    fn default() -> Self {
        Bucket { fingerprints: 0, slots: [const { None }; SLOTS], overflow: None }
    }
}

impl<R> Drop for Bucket<R> {
    /// Frees the chain in a loop: a long one must not recurse.
    fn drop(&mut self) {
        let mut next = self.overflow.take();
        while let Some(mut bucket) = next {
            next = bucket.overflow.take();
        }
    }
}

/// The slots of one bucket that may hold a fingerprint, lowest first.
struct Matches(u64);

impl Iterator for Matches {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = (self.0.trailing_zeros() / 8) as usize;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

impl<R> Bucket<R> {
    /// The slots whose fingerprint byte is `byte`. A slot above a true match may be named wrongly (the borrow of
    /// the subtraction), so the caller still looks at the slot; the first one named is always right.
    #[inline(always)]
    fn matches(&self, byte: u8) -> Matches {
        let difference = self.fingerprints ^ (LOW_BITS * u64::from(byte));
        Matches(difference.wrapping_sub(LOW_BITS) & !difference & HIGH_BITS)
    }

    /// The lowest empty slot of this bucket alone.
    #[inline]
    fn vacancy(&self) -> Option<usize> {
        self.matches(0).next()
    }

    /// Whether this bucket, and so its chain, holds no record.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.fingerprints == 0
    }

    #[inline]
    fn put(&mut self, slot: usize, fingerprint: Fingerprint, record: Box<R>) -> &mut Box<R> {
        self.fingerprints |= u64::from(fingerprint.0) << (8 * slot);
        self.slots[slot].insert(record)
    }

    #[inline]
    fn take(&mut self, slot: usize) -> Option<(Fingerprint, Box<R>)> {
        let record = self.slots[slot].take()?;
        let fingerprint = Fingerprint((self.fingerprints >> (8 * slot)) as u8);
        self.fingerprints &= !(0xff << (8 * slot));
        Some((fingerprint, record))
    }

    /// Takes the record in the highest occupied slot of this bucket alone.
    fn take_highest(&mut self) -> Option<(Fingerprint, Box<R>)> {
        let bits = u64::BITS - self.fingerprints.leading_zeros();
        self.take((bits.checked_sub(1)? / 8) as usize)
    }

    /// Adds a record whose key the chain does not hold. `overflow_count` counts allocated overflow buckets.
    pub(super) fn push(
        &mut self,
        fingerprint: Fingerprint,
        record: Box<R>,
        overflow_count: &mut usize,
    ) -> &mut R {
        if let Some(slot) = self.vacancy() {
            return self.put(slot, fingerprint, record);
        }
        if self.overflow.as_ref().is_none_or(|first| first.vacancy().is_none()) {
            let rest = self.overflow.take();
            self.overflow.get_or_insert_default().overflow = rest;
            *overflow_count += 1;
        }
        let first = self.overflow.get_or_insert_default();
        let slot = first.vacancy().expect("an overflow bucket was just chosen for its vacancy");
        first.put(slot, fingerprint, record)
    }

    /// Takes any record of the chain, cheaply; `None` when the chain is empty.
    pub(super) fn pop(&mut self, overflow_count: &mut usize) -> Option<(Fingerprint, Box<R>)> {
        let Some(first) = self.overflow.as_deref_mut() else { return self.take_highest() };
        let popped = first.take_highest();
        self.unlink_empty(overflow_count);
        popped
    }

    /// Frees the first overflow bucket if nothing is left in it.
    fn unlink_empty(&mut self, overflow_count: &mut usize) {
        if let Some(first) = self.overflow.take_if(|first| first.is_empty()).as_mut() {
            self.overflow = first.overflow.take();
            *overflow_count -= 1;
        }
    }

    /// The buckets of the chain, this one first.
    fn chain(&self) -> impl Iterator<Item = &Bucket<R>> {
        std::iter::successors(Some(self), |bucket| bucket.overflow.as_deref())
    }

    /// The `depth`-th bucket of the chain, which must exist.
    fn nth_mut(&mut self, depth: usize) -> &mut Bucket<R> {
        let mut bucket = self;
        for _ in 0..depth {
            bucket = bucket.overflow.as_deref_mut().expect("the chain has the bucket that was found in it");
        }
        bucket
    }

    /// Every record of the chain.
    pub(super) fn records(&self) -> impl Iterator<Item = &R> {
        self.chain().flat_map(|bucket| bucket.slots.iter().filter_map(Option::as_deref))
    }

    /// The record in place `place` of the chain, where place 0 to 5 is this bucket; `None` if it is empty.
    pub(super) fn at(&self, place: usize) -> Option<&R> {
        self.chain().nth(place / SLOTS)?.slots[place % SLOTS].as_deref()
    }

    /// The first record of this bucket alone whose fingerprint is equal; its key is not looked at.
    #[inline]
    pub(super) fn candidate(&self, fingerprint: Fingerprint) -> Option<&R> {
        self.slots[self.matches(fingerprint.0).next()?].as_deref()
    }

    /// The first record of the chain with an equal fingerprint that `is_it`.
    pub(super) fn find_by(&mut self, fingerprint: Fingerprint, is_it: impl Fn(&R) -> bool) -> Option<&mut R> {
        let mut bucket = self;
        loop {
            let fits = |slot: &usize| bucket.slots[*slot].as_deref().is_some_and(&is_it);
            if let Some(slot) = bucket.matches(fingerprint.0).find(fits) {
                return bucket.slots[slot].as_deref_mut();
            }
            bucket = bucket.overflow.as_deref_mut()?;
        }
    }

    /// The same, as it is.
    pub(super) fn find_any<'b>(
        &'b self,
        fingerprint: Fingerprint,
        is_it: impl Fn(&R) -> bool,
    ) -> Option<&'b R> {
        let alike = |bucket: &'b Bucket<R>| bucket.matches(fingerprint.0).map(|slot| &bucket.slots[slot]);
        self.chain().flat_map(alike).filter_map(Option::as_deref).find(|record| is_it(record))
    }

    /// Asks for the first record of this bucket whose fingerprint is equal, or else for the chain's next bucket.
    #[inline]
    pub(super) fn prefetch_candidate(&self, fingerprint: Fingerprint) {
        match (self.candidate(fingerprint), self.overflow.as_deref()) {
            (Some(record), _) => prefetch_value(record),
            (None, Some(next)) => prefetch(next),
            (None, None) => (),
        }
    }

    /// Asks for all records of this bucket alone.
    pub(super) fn prefetch_all(&self) {
        self.slots.iter().filter_map(Option::as_deref).for_each(prefetch_value);
    }
}

impl<R: Keyed> Bucket<R> {
    /// The slot of this bucket alone that holds `key`.
    #[inline(always)]
    fn slot_of(&self, fingerprint: Fingerprint, key: &[u8]) -> Option<usize> {
        for slot in self.matches(fingerprint.0) {
            if let Some(record) = &self.slots[slot]
                && record.key() == key
            {
                return Some(slot);
            }
        }
        None
    }

    /// The record of `key` in the chain.
    #[inline(always)]
    pub(super) fn find(&self, fingerprint: Fingerprint, key: &[u8]) -> Option<&R> {
        let mut bucket = self;
        loop {
            if let Some(slot) = bucket.slot_of(fingerprint, key) {
                return bucket.slots[slot].as_deref();
            }
            bucket = bucket.overflow.as_deref()?;
        }
    }

    /// The place of the record of `key` in the chain, to change the record or to put another there.
    #[inline(always)]
    pub(super) fn find_mut(&mut self, fingerprint: Fingerprint, key: &[u8]) -> Option<&mut Box<R>> {
        let mut bucket = self;
        loop {
            if let Some(slot) = bucket.slot_of(fingerprint, key) {
                return bucket.slots[slot].as_mut();
            }
            bucket = bucket.overflow.as_deref_mut()?;
        }
    }

    /// Takes the record of `key` out of the chain.
    #[inline]
    pub(super) fn remove(
        &mut self,
        fingerprint: Fingerprint,
        key: &[u8],
        overflow_count: &mut usize,
    ) -> Option<Box<R>> {
        if self.overflow.is_some() {
            return self.remove_from_chain(fingerprint, key, overflow_count);
        }
        let slot = self.slot_of(fingerprint, key)?;
        self.take(slot).map(|(_, record)| record)
    }

    /// Takes the record of `key` out and closes the hole with one of the first overflow bucket.
    fn remove_from_chain(
        &mut self,
        fingerprint: Fingerprint,
        key: &[u8],
        overflow_count: &mut usize,
    ) -> Option<Box<R>> {
        let (depth, slot) = self
            .chain()
            .enumerate()
            .find_map(|(depth, bucket)| Some((depth, bucket.slot_of(fingerprint, key)?)))?;
        let (_, removed) = self.nth_mut(depth).take(slot)?;
        let first = self.overflow.as_deref_mut();
        if depth != 1
            && let Some((moved_fingerprint, moved)) = first.and_then(Bucket::take_highest)
        {
            self.nth_mut(depth).put(slot, moved_fingerprint, moved);
        }
        self.unlink_empty(overflow_count);
        Some(removed)
    }
}

#[cfg(test)]
impl<R: Keyed> Bucket<R> {
    /// Checks the invariants of the chain and counts its overflow buckets.
    pub(super) fn assert_sound(&self) -> usize {
        for (depth, bucket) in self.chain().enumerate() {
            for (slot, record) in bucket.slots.iter().enumerate() {
                let byte = (bucket.fingerprints >> (8 * slot)) as u8;
                assert_eq!(byte != 0, record.is_some());
            }
            let may_have_vacancy = if depth == 0 { bucket.overflow.is_none() } else { depth == 1 };
            assert!(may_have_vacancy || bucket.vacancy().is_none(), "bucket {depth} of a chain is not full");
            assert!(depth == 0 || !bucket.is_empty(), "an empty overflow bucket is freed");
        }
        self.chain().count() - 1
    }
}
