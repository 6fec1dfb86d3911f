//! What a partition writes to the log and to checkpoints.

use datatypes::{Cell, Effect};
use protocol::Encode;
use types::{Malformed, Reader, Timestamp, put_bytes};

/// One record.
#[derive(Debug)]
pub enum Record<'a> {
    /// An effect on a key.
    Effect {
        /// Its place.
        stamp: Timestamp,
        /// The key.
        key: &'a [u8],
        /// The effect.
        effect: &'a Effect<'a>,
    },
    /// Every key is gone.
    Flush {
        /// Its place.
        stamp: Timestamp,
    },
    /// A key as a checkpoint found it.
    State {
        /// The stamp of its newest effect.
        stamp: Timestamp,
        /// The key.
        key: &'a [u8],
        /// What it holds.
        cell: &'a Cell,
    },
}

impl Encode for Record<'_> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Effect { stamp, key, effect } => {
                out.push(0);
                out.extend_from_slice(&stamp.0.to_le_bytes());
                put_bytes(out, key);
                effect.encode(out);
            }
            Record::Flush { stamp } => {
                out.push(1);
                out.extend_from_slice(&stamp.0.to_le_bytes());
            }
            Record::State { stamp, key, cell } => {
                out.push(2);
                out.extend_from_slice(&stamp.0.to_le_bytes());
                put_bytes(out, key);
                cell.encode(out);
            }
        }
    }
}

/// A record read back.
pub(super) enum Recovered<'a> {
    Effect { stamp: Timestamp, key: &'a [u8], effect: Effect<'a> },
    Flush { stamp: Timestamp },
    State { stamp: Timestamp, key: &'a [u8], cell: Cell },
}

impl<'a> Recovered<'a> {
    pub(super) fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        let tag = input.byte()?;
        let bytes = input.take(8)?.try_into().map_err(|_| Malformed("stamp"))?;
        let stamp = Timestamp(u64::from_le_bytes(bytes));
        Ok(match tag {
            0 => Recovered::Effect { stamp, key: input.bytes()?, effect: Effect::decode(input)? },
            1 => Recovered::Flush { stamp },
            2 => Recovered::State { stamp, key: input.bytes()?, cell: Cell::decode(input)? },
            _ => return Err(Malformed("record tag")),
        })
    }
}

impl Record<'_> {
    /// The key a record in binary form belongs to, so that recovery finds its partition however many there are
    /// now; `None` for a record about all keys.
    pub fn key_of(bytes: &[u8]) -> Result<Option<&[u8]>, Malformed> {
        let mut input = Reader::new(bytes);
        let tag = input.byte()?;
        input.take(8)?;
        if tag == 1 { Ok(None) } else { input.bytes().map(Some) }
    }

    /// The effects that the records of a step hold, in their order: each one's key, and its binary form.
    pub fn effects(records: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
        Record::split(records).filter_map(|record| {
            let mut input = Reader::new(record.ok()?);
            let tag = input.byte().ok()?;
            input.take(8).ok()?;
            let key = input.bytes().ok()?;
            (tag == 0).then_some((key, input.rest()))
        })
    }

    /// The records of a checkpoint chunk or of a step, each behind its length in four bytes.
    pub fn split(mut bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
        std::iter::from_fn(move || {
            let (len, rest) = bytes.split_first_chunk::<4>()?;
            let len = u32::from_le_bytes(*len) as usize;
            if len > rest.len() {
                bytes = &[];
                return Some(Err(Malformed("record length")));
            }
            let (record, rest) = rest.split_at(len);
            bytes = rest;
            Some(Ok(record))
        })
    }
}

/// Appends a record behind its length.
pub(super) fn put(out: &mut Vec<u8>, record: &Record<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    record.encode(out);
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}
