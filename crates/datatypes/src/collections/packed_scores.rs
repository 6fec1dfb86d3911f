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
        let (whole, rest) = rest.split_at(whole_len(rest));
        let zigzag = whole.iter().rev().fold(0, |zigzag, byte| zigzag << 7 | u64::from(byte & 0x7f));
        (((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)) as f64, rest)
    };
    let (member, rest) = rest.split_at(usize::from(header & !RAW_SCORE));
    Some((score, member, rest))
}

/// The bytes of the varint that these begin with, which are eight at the most.
#[inline]
fn whole_len(bytes: &[u8]) -> usize {
    match bytes.first_chunk() {
        Some(eight) => {
            let ends = !u64::from_le_bytes(*eight) & 0x8080_8080_8080_8080;
            ends.trailing_zeros() as usize / 8 + 1
        }
        None => bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1,
    }
}

/// The member of the first entry, and how many bytes are before it.
#[inline]
fn first_member(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&header, rest) = bytes.split_first()?;
    let score = if header & RAW_SCORE != 0 { size_of::<f64>() } else { whole_len(rest) };
    Some((1 + score, &rest[score..score + usize::from(header & !RAW_SCORE)]))
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

    /// The rank of a member, and where its entry begins.
    fn place_of(&self, member: &[u8]) -> Option<(usize, usize)> {
        let (mut at, mut rank) = (0, 0);
        // Members that stand beside each other differ in their last bytes more often than in their first ones.
        while let Some((before, other)) = first_member(&self.bytes[at..]) {
            if other.len() == member.len() && other.last() == member.last() && other == member {
                return Some((rank, at));
            }
            at += before + other.len();
            rank += 1;
        }
        None
    }

    /// The rank and the score of a member.
    pub(super) fn find(&self, member: &[u8]) -> Option<(usize, f64)> {
        let (rank, at) = self.place_of(member)?;
        split_entry(&self.bytes[at..]).map(|(score, ..)| (rank, score))
    }

    /// The number of entries for which `before` holds; they are the first ones.
    pub(super) fn partition_point(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        self.entries(0).take_while(|&(score, member)| before(score, member)).count()
    }

    fn offset(&self, rank: usize) -> usize {
        let mut at = 0;
        for _ in 0..rank {
            at += first_member(&self.bytes[at..]).map_or(0, |(before, member)| before + member.len());
        }
        at
    }

    /// Adds a member that is not there.
    pub(super) fn insert(&mut self, score: f64, member: &[u8]) {
        let mut rest = &self.bytes[..];
        while let Some((other, name, behind)) = split_entry(rest)
            && (other < score || (other == score && name < member))
        {
            rest = behind;
        }
        let at = self.bytes.len() - rest.len();
        let mut header = Vec::with_capacity(9);
        encode_header(&mut header, score, member);
        resize_gap(&mut self.bytes, at, 0, header.len() + member.len());
        self.bytes[at..at + header.len()].copy_from_slice(&header);
        self.bytes[at + header.len()..at + header.len() + member.len()].copy_from_slice(member);
        self.count += 1;
    }

    /// Removes a member; returns the score it had.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let (_, at) = self.place_of(member)?;
        let (score, _, rest) = split_entry(&self.bytes[at..])?;
        let len = self.bytes.len() - at - rest.len();
        resize_gap(&mut self.bytes, at, len, 0);
        self.count -= 1;
        Some(score)
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
