//! The packed form of a sorted set: one buffer of entries in order.
//!
//! An entry is the member's length, the score, the member. A whole score up to 2^47 is a zigzag varint; any
//! other score is eight bytes, which the top bit of the length announces.

use types::put_varint;

use super::buffer::{allocated, resize_gap};

const RAW_SCORE: u8 = 0x80;
const LARGEST_WHOLE: f64 = (1u64 << 47) as f64;

/// A few scored members in order.
#[derive(Clone, Default)]
pub(super) struct PackedScores {
    bytes: Vec<u8>,
    count: u32,
}

/// Splits the first entry off.
#[inline]
fn split_entry(bytes: &[u8]) -> Option<(f64, &[u8], &[u8])> {
    let (&header, rest) = bytes.split_first()?;
    let (score, rest) = if header & RAW_SCORE != 0 {
        let (raw, rest) = rest.split_first_chunk()?;
        (f64::from_le_bytes(*raw), rest)
    } else {
        let (mut zigzag, mut at) = (0u64, 0);
        loop {
            let byte = *rest.get(at)?;
            zigzag |= u64::from(byte & 0x7f) << (7 * at);
            at += 1;
            if byte < 0x80 {
                break;
            }
        }
        (((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)) as f64, &rest[at..])
    };
    let (member, rest) = rest.split_at(usize::from(header & !RAW_SCORE));
    Some((score, member, rest))
}

fn encode_header(out: &mut Vec<u8>, score: f64, member: &[u8]) {
    let len = member.len() as u8;
    if score.fract() == 0.0 && score.abs() <= LARGEST_WHOLE {
        let whole = score as i64;
        out.push(len);
        put_varint(out, ((whole << 1) ^ (whole >> 63)) as u64);
    } else {
        out.push(len | RAW_SCORE);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

impl PackedScores {
    /// The number of members.
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// The bytes this takes from the allocator.
    pub(super) fn memory(&self) -> usize {
        allocated(self.bytes.capacity())
    }

    /// The rank and the score of a member.
    pub(super) fn find(&self, member: &[u8]) -> Option<(usize, f64)> {
        self.entries(0)
            .enumerate()
            .find_map(|(rank, (score, other))| (other == member).then_some((rank, score)))
    }

    /// The number of entries for which `before` holds; they are the first ones.
    pub(super) fn partition_point(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        self.entries(0).take_while(|&(score, member)| before(score, member)).count()
    }

    fn offset(&self, rank: usize) -> usize {
        let mut rest = &self.bytes[..];
        for _ in 0..rank {
            rest = split_entry(rest).map_or(&[], |(.., rest)| rest);
        }
        self.bytes.len() - rest.len()
    }

    /// Inserts an entry at its rank.
    pub(super) fn insert(&mut self, rank: usize, score: f64, member: &[u8]) {
        let at = self.offset(rank);
        let mut header = Vec::with_capacity(9);
        encode_header(&mut header, score, member);
        resize_gap(&mut self.bytes, at, 0, header.len() + member.len());
        self.bytes[at..at + header.len()].copy_from_slice(&header);
        self.bytes[at + header.len()..at + header.len() + member.len()].copy_from_slice(member);
        self.count += 1;
    }

    /// Removes the entry at a rank.
    pub(super) fn remove(&mut self, rank: usize) {
        let at = self.offset(rank);
        if let Some((.., rest)) = split_entry(&self.bytes[at..]) {
            let len = self.bytes.len() - at - rest.len();
            resize_gap(&mut self.bytes, at, len, 0);
            self.count -= 1;
        }
    }

    /// The entries from a rank on.
    pub(super) fn entries(&self, rank: usize) -> PackedEntries<'_> {
        PackedEntries(&self.bytes[self.offset(rank)..])
    }

    /// The entries before a rank, last first.
    pub(super) fn entries_backward(&self, rank: usize) -> PackedBackward<'_> {
        let mut offsets = Vec::with_capacity(rank);
        let mut rest = &self.bytes[..];
        for _ in 0..rank {
            offsets.push((self.bytes.len() - rest.len()) as u16);
            rest = split_entry(rest).map_or(&[], |(.., rest)| rest);
        }
        PackedBackward { bytes: &self.bytes, offsets }
    }
}

/// Entries in order.
#[derive(Clone)]
pub(super) struct PackedEntries<'a>(&'a [u8]);

impl<'a> Iterator for PackedEntries<'a> {
    type Item = (f64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (score, member, rest) = split_entry(self.0)?;
        self.0 = rest;
        Some((score, member))
    }
}

/// Entries in reverse order.
#[derive(Clone)]
pub(super) struct PackedBackward<'a> {
    bytes: &'a [u8],
    /// Where the entries to come start; the next one is the last.
    offsets: Vec<u16>,
}

impl<'a> Iterator for PackedBackward<'a> {
    type Item = (f64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.offsets.pop()?;
        split_entry(&self.bytes[usize::from(at)..]).map(|(score, member, _)| (score, member))
    }
}
