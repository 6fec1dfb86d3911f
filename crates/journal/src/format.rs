//! The fixed parts of the on-disk format: encoding and decoding of headers. The byte tables are in the crate's docs.

use crc32fast::Hasher;
use std::fmt;

/// The newest version of the segment, group, checkpoint and manifest formats that this code reads, and the one it
/// writes.
pub const FORMAT_VERSION: u16 = 1;

/// Names a data directory for ever; drawn at random by whoever creates it. Part of every checksum, so neither a file
/// of another directory nor bytes that a client stored can pass for a group of this log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryId(pub u128);

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The position of a group in the log. Counts up; a number whose write failed is never used again while the process
/// lives. [`GroupNumber::ZERO`] stands before the first group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNumber(pub u64);

impl GroupNumber {
    /// Before the first group.
    pub const ZERO: GroupNumber = GroupNumber(0);
}

impl fmt::Display for GroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a header turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed<T> {
    /// Intact.
    Valid(T),
    /// Intact, and of a version that a newer program wrote.
    Newer(u16),
    /// Anything else.
    Invalid,
}

pub(crate) const SEGMENT_HEADER: usize = 64;
pub(crate) const GROUP_HEADER: usize = 56;
pub(crate) const GROUP_MAGIC: [u8; 4] = *b"ANBG";
const SEGMENT_MAGIC: [u8; 4] = *b"ANBS";

/// The CRC32 of the directory's id followed by `bytes`.
pub(crate) fn checksum(id: DirectoryId, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&id.0.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Takes fixed-size integers off the front; zeros where there is nothing left, so callers check the size first.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.0 = rest;
                *taken
            }
            None => [0; N],
        }
    }

    pub fn magic(&mut self) -> [u8; 4] {
        self.take()
    }
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
    pub fn u128(&mut self) -> u128 {
        u128::from_le_bytes(self.take())
    }
}

/// Checks magic, length, trailing checksum and version of a header; the fields after the version, if it is ours.
pub(crate) fn open_header(bytes: &[u8], size: usize, magic: [u8; 4], id: DirectoryId) -> Parsed<Fields<'_>> {
    let Some(bytes) = bytes.get(..size) else { return Parsed::Invalid };
    let (body, sum) = bytes.split_at(size - 4);
    let mut fields = Fields(body);
    if fields.magic() != magic || Fields(sum).u32() != checksum(id, body) {
        return Parsed::Invalid;
    }
    let version = fields.u16();
    fields.u16();
    match version {
        FORMAT_VERSION => Parsed::Valid(fields),
        newer if newer > FORMAT_VERSION => Parsed::Newer(newer),
        _ => Parsed::Invalid,
    }
}

/// Starts a header: magic, version and flags.
pub(crate) fn begin_header(out: &mut Vec<u8>, magic: [u8; 4], flags: u16) {
    out.extend_from_slice(&magic);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
}

/// Pads what was written since `start` to `size` and ends it with the checksum.
pub(crate) fn end_header(out: &mut Vec<u8>, start: usize, size: usize, id: DirectoryId) {
    out.resize(start + size - 4, 0);
    let sum = checksum(id, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The first bytes of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Whose log this is.
    pub id: DirectoryId,
    /// Names the segment for ever, over all uses of the file.
    pub generation: u64,
    /// The group after which the segment's first one comes; in older segments every later group is void.
    pub previous: u64,
    /// The newest group known synced when the segment began.
    pub synced: u64,
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER);
        begin_header(&mut out, SEGMENT_MAGIC, 0);
        for field in [self.generation, self.previous, self.synced] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.id.0.to_le_bytes());
        end_header(&mut out, 0, SEGMENT_HEADER, DirectoryId::default());
        out
    }

    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        match open_header(bytes, SEGMENT_HEADER, SEGMENT_MAGIC, DirectoryId::default()) {
            Parsed::Valid(mut fields) => {
                let (generation, previous, synced) = (fields.u64(), fields.u64(), fields.u64());
                Parsed::Valid(SegmentHeader { id: DirectoryId(fields.u128()), generation, previous, synced })
            }
            Parsed::Newer(version) => Parsed::Newer(version),
            Parsed::Invalid => Parsed::Invalid,
        }
    }
}

/// The first bytes of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    /// The segment it was written to.
    pub generation: u64,
    /// Its number.
    pub number: u64,
    /// The number of the group before it.
    pub previous: u64,
    /// The newest group known synced when it was written (Corrections 82).
    pub synced: u64,
    /// Bytes of payload.
    pub length: u32,
    /// Records in the payload.
    pub records: u32,
    /// CRC32 of the payload.
    pub payload_checksum: u32,
}

impl GroupHeader {
    /// Fills the first bytes of a group whose payload is already in place.
    pub fn write(&self, group: &mut [u8], id: DirectoryId) {
        let mut out = Vec::with_capacity(GROUP_HEADER);
        begin_header(&mut out, GROUP_MAGIC, 0);
        for field in [self.generation, self.number, self.previous, self.synced] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.length, self.records, self.payload_checksum] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        end_header(&mut out, 0, GROUP_HEADER, id);
        group[..GROUP_HEADER].copy_from_slice(&out);
    }

    pub fn parse(bytes: &[u8], id: DirectoryId) -> Parsed<Self> {
        match open_header(bytes, GROUP_HEADER, GROUP_MAGIC, id) {
            Parsed::Valid(mut fields) => Parsed::Valid(GroupHeader {
                generation: fields.u64(),
                number: fields.u64(),
                previous: fields.u64(),
                synced: fields.u64(),
                length: fields.u32(),
                records: fields.u32(),
                payload_checksum: fields.u32(),
            }),
            Parsed::Newer(version) => Parsed::Newer(version),
            Parsed::Invalid => Parsed::Invalid,
        }
    }
}

/// The records of a group's payload; `None` in the iterator's place where the payload is not a list of records.
pub(crate) fn records(mut payload: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    std::iter::from_fn(move || {
        if payload.is_empty() {
            return None;
        }
        let record = payload.split_first_chunk::<4>().and_then(|(length, rest)| {
            let length = u32::from_le_bytes(*length) as usize;
            Some((rest.get(..length)?, &rest[length..]))
        });
        payload = record.map_or(&[], |(_, rest)| rest);
        Some(record.map(|(record, _)| record))
    })
}
