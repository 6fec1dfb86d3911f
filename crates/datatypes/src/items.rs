//! A sequence of byte strings inside an operation or an effect: borrowed from a command, or packed.

use std::borrow::Cow;
use types::{Malformed, Reader, put_bytes, put_varint};

/// Byte strings in order: the arguments of a command where they stand, or their packed binary form.
#[derive(Clone, Debug)]
pub enum Items<'a> {
    /// Borrowed from a parsed command.
    Slices(&'a [&'a [u8]]),
    /// `count` length-prefixed strings, checked when they were decoded.
    Packed {
        /// How many.
        count: usize,
        /// Their binary form.
        bytes: Cow<'a, [u8]>,
    },
}

impl<'a> Items<'a> {
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
            Items::Packed { count, .. } => *count,
        }
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool { self.len() == 0 }

    /// The strings, in order.
    #[inline]
    pub fn iter(&self) -> ItemsIter<'_> {
        match self {
            Items::Slices(slices) => ItemsIter::Slices(slices.iter()),
            Items::Packed { bytes, .. } => ItemsIter::Packed(Reader::new(bytes)),
        }
    }

    /// The strings, two by two; an odd last one is dropped.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut iter = self.iter();
        std::iter::from_fn(move || Some((iter.next()?, iter.next()?)))
    }

    /// True when a string is in both.
    pub fn intersects(&self, other: &Items<'_>) -> bool { self.iter().any(|a| other.iter().any(|b| a == b)) }

    /// Appends the binary form: count, total length, strings.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        match self {
            Items::Packed { bytes, .. } => put_bytes(out, bytes),
            Items::Slices(slices) => {
                let total: usize = slices.iter().map(|s| varint_len(s.len() as u64) + s.len()).sum();
                put_varint(out, total as u64);
                slices.iter().for_each(|slice| put_bytes(out, slice));
            }
        }
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
    fn eq(&self, other: &Self) -> bool { self.len() == other.len() && self.iter().eq(other.iter()) }
}

fn varint_len(value: u64) -> usize { (64 - (value | 1).leading_zeros() as usize).div_ceil(7) }

/// See [`Items::iter`].
#[derive(Debug)]
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
