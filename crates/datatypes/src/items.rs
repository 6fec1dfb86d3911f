//! A sequence of byte strings inside an operation or an effect: borrowed from a command, or packed.

use std::borrow::Cow;
use std::collections::BTreeSet;
use types::{Malformed, Reader, put_bytes, put_varint};

/// Up to this many strings are compared each with each; above, they are sorted first.
const FEW: usize = 16;

/// Byte strings in order: the arguments of a command where they stand, or their packed binary form.
#[derive(Clone, Debug)]
pub enum Items<'a> {
    /// Borrowed from a parsed command.
    Slices(&'a [&'a [u8]]),
    /// A single string, borrowed.
    One([&'a [u8]; 1]),
    /// Two strings, borrowed.
    Two([&'a [u8]; 2]),
    /// `count` length-prefixed strings, checked when they were decoded.
    Packed {
        /// How many.
        count: usize,
        /// Their binary form.
        bytes: Cow<'a, [u8]>,
    },
}

impl<'a> Items<'a> {
    /// No string.
    pub const NONE: Items<'static> = Items::Slices(&[]);

    /// A single string.
    pub fn one(item: &'a [u8]) -> Self {
        Items::One([item])
    }

    /// Two strings, or one pair.
    pub fn two(first: &'a [u8], second: &'a [u8]) -> Self {
        Items::Two([first, second])
    }

    /// Copies the strings of an iterator.
    pub fn collect<'i>(items: impl Iterator<Item = &'i [u8]>) -> Items<'static> {
        let (mut count, mut bytes) = (0, Vec::new());
        for item in items {
            put_bytes(&mut bytes, item);
            count += 1;
        }
        Items::Packed { count, bytes: Cow::Owned(bytes) }
    }

    /// How many strings.
    pub fn len(&self) -> usize {
        match self {
            Items::Slices(slices) => slices.len(),
            Items::One(_) => 1,
            Items::Two(_) => 2,
            Items::Packed { count, .. } => *count,
        }
    }

    /// The bytes it owns on the heap; 0 when it borrows.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Items::Packed { bytes: Cow::Owned(bytes), .. } => bytes.len(),
            _ => 0,
        }
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The strings, in order.
    #[inline]
    pub fn iter(&self) -> ItemsIter<'_> {
        match self {
            Items::Slices(slices) => ItemsIter::Slices(slices.iter()),
            Items::One(item) => ItemsIter::Slices(item.iter()),
            Items::Two(items) => ItemsIter::Slices(items.iter()),
            Items::Packed { bytes, .. } => ItemsIter::Packed(Reader::new(bytes)),
        }
    }

    /// The strings, two by two; an odd last one is dropped.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let mut iter = self.iter();
        std::iter::from_fn(move || Some((iter.next()?, iter.next()?)))
    }

    /// The first string of each pair, without a copy where there is one pair and it is borrowed.
    pub fn keys_of_pairs(&self) -> Items<'a> {
        let borrowed = match self {
            Items::Two(items) => Some(items[0]),
            Items::Slices(items) if items.len() == 2 => Some(items[0]),
            Items::Packed { count: 2, bytes: Cow::Borrowed(bytes) } => Reader::new(bytes).bytes().ok(),
            _ => None,
        };
        borrowed.map_or_else(|| Items::collect(self.pairs().map(|(key, _)| key)), Items::one)
    }

    /// True when a string is in both.
    pub fn intersects(&self, other: &Items<'_>) -> bool {
        if self.len() * other.len() <= FEW * FEW {
            return self.iter().any(|a| other.iter().any(|b| a == b));
        }
        let sorted: BTreeSet<&[u8]> = self.iter().collect();
        other.iter().any(|item| sorted.contains(item))
    }

    /// Appends the binary form: count, total length, strings.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        let slices: &[&[u8]] = match self {
            Items::Packed { bytes, .. } => return put_bytes(out, bytes),
            Items::Slices(slices) => slices,
            Items::One(item) => item,
            Items::Two(items) => items,
        };
        let total: usize = slices.iter().map(|slice| varint_len(slice.len() as u64) + slice.len()).sum();
        put_varint(out, total as u64);
        slices.iter().for_each(|slice| put_bytes(out, slice));
    }

    /// Reads the binary form without copying; every length is checked here.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let announced = input.varint()?;
        let bytes = input.bytes()?;
        let mut reader = Reader::new(bytes);
        let mut count = 0;
        while !reader.is_empty() {
            reader.bytes()?;
            count += 1;
        }
        if count as u64 != announced {
            return Err(Malformed("item count"));
        }
        Ok(Items::Packed { count, bytes: Cow::Borrowed(bytes) })
    }
}

impl PartialEq for Items<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// True when a string occurs twice among `items`.
pub(crate) fn has_duplicates<'i>(items: impl Iterator<Item = &'i [u8]> + Clone) -> bool {
    if items.clone().nth(FEW).is_some() {
        let mut seen = BTreeSet::new();
        return !items.into_iter().all(|item| seen.insert(item));
    }
    let mut rest = items;
    while let Some(item) = rest.next() {
        if rest.clone().any(|other| other == item) {
            return true;
        }
    }
    false
}

/// How many different strings of `items` satisfy `test`, which is called once for each string.
pub(crate) fn count_distinct<'i>(
    items: impl Iterator<Item = &'i [u8]> + Clone,
    mut test: impl FnMut(&[u8]) -> bool,
) -> usize {
    if has_duplicates(items.clone()) {
        items.collect::<BTreeSet<_>>().into_iter().filter(|item| test(item)).count()
    } else {
        items.filter(|item| test(item)).count()
    }
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// See [`Items::iter`].
#[derive(Clone, Debug)]
pub enum ItemsIter<'i> {
    /// Over borrowed slices.
    Slices(std::slice::Iter<'i, &'i [u8]>),
    /// Over the packed form.
    Packed(Reader<'i>),
}

impl<'i> Iterator for ItemsIter<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        match self {
            ItemsIter::Slices(slices) => slices.next().copied(),
            ItemsIter::Packed(reader) if reader.is_empty() => None,
            ItemsIter::Packed(reader) => reader.bytes().ok(),
        }
    }
}
