//! What a partition writes to its log and to checkpoints.

use super::{Dependencies, Entries, Put, PutOutcome, Stamp};
use crate::stable;
use crate::stable::KeyEffects;
use protocol::Encode;
use std::borrow::Cow;
use types::{
    Incarnation, Malformed, Reader, RegionId, Timestamp, TransactionId, Wire, put_bytes, put_varint,
    wire_struct,
};

/// One record. Borrowed where it is written, owned where it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// A write of a client of this region, and what its repetition is answered.
    Put(Cow<'a, Written>, Cow<'a, Put>),
    /// A write of another region, when everything that it depends on is written here.
    Replicated(Cow<'a, Written>),
    /// What a put was answered that is not known to have ended: of a checkpoint, or that nothing was written.
    Answered(TransactionId, Cow<'a, PutOutcome>),
    /// Of a checkpoint: a write of this region that another one may lack; its effects are in the cells.
    Outgoing(Cow<'a, Written>),
    /// Of a checkpoint, in COPS-GT: what the versions of a region from a place on depend on.
    RetainedDependencies(RegionId, Timestamp, Cow<'a, Dependencies>),
    /// Of a checkpoint: since when the partition remembers its puts.
    Fence(Fence),
    /// A write of a lost region that waited for what it depends on when that was fenced off.
    Waited(Cow<'a, Written>),
    /// What all causal protocols log: promises, what was received, and keys.
    Common(stable::Record<'a, Entries>),
}

/// A partition that lost records does not know any more which puts it received before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fence {
    /// The life in which it began to remember again.
    pub life: Incarnation,
    /// What it had written before that is at or below.
    pub at: Timestamp,
}
wire_struct!(Fence { life, at });

/// A write with everything that is replicated of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// Its place, and what its effects have observed.
    pub stamp: Stamp,
    /// What must be written before it.
    pub nearest: Dependencies,
    /// In COPS-GT what it depends on, beyond what the ones before it do.
    pub dependencies: Dependencies,
    /// Keys and effects.
    pub effects: Vec<KeyEffects>,
}
wire_struct!(Written { stamp, nearest, dependencies, effects });

const PUT: u8 = 0;
const REPLICATED: u8 = 1;
const ANSWERED: u8 = 2;
const OUTGOING: u8 = 3;
const CAUSES: u8 = 4;
const COMMON: u8 = 5;
const FENCE: u8 = 6;
const WAITED: u8 = 7;

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Put(written, put) => {
                out.push(PUT);
                Wire::encode(&**written, out);
                Wire::encode(&**put, out);
            }
            Record::Replicated(written) => {
                out.push(REPLICATED);
                Wire::encode(&**written, out);
            }
            Record::Answered(id, outcome) => {
                out.push(ANSWERED);
                Wire::encode(id, out);
                Wire::encode(&**outcome, out);
            }
            Record::Outgoing(written) => {
                out.push(OUTGOING);
                Wire::encode(&**written, out);
            }
            Record::RetainedDependencies(region, at, dependencies) => {
                out.push(CAUSES);
                Wire::encode(&(*region, *at), out);
                Wire::encode(&**dependencies, out);
            }
            Record::Fence(fence) => {
                out.push(FENCE);
                Wire::encode(fence, out);
            }
            Record::Waited(written) => {
                out.push(WAITED);
                Wire::encode(&**written, out);
            }
            Record::Common(record) => {
                out.push(COMMON);
                record.encode(out);
            }
        }
    }
}

impl Record<'static> {
    /// Reads a record back.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            PUT => Record::Put(Cow::Owned(Wire::decode(input)?), Cow::Owned(Wire::decode(input)?)),
            REPLICATED => Record::Replicated(Cow::Owned(Wire::decode(input)?)),
            ANSWERED => Record::Answered(Wire::decode(input)?, Cow::Owned(Wire::decode(input)?)),
            OUTGOING => Record::Outgoing(Cow::Owned(Wire::decode(input)?)),
            CAUSES => {
                let (region, at) = Wire::decode(input)?;
                Record::RetainedDependencies(region, at, Cow::Owned(Wire::decode(input)?))
            }
            FENCE => Record::Fence(Wire::decode(input)?),
            WAITED => Record::Waited(Cow::Owned(Wire::decode(input)?)),
            COMMON => Record::Common(stable::Record::decode(input)?),
            _ => return Err(Malformed("record tag")),
        })
    }
}

/// Appends a record behind its length, as checkpoints hold them.
pub(super) fn put(out: &mut Vec<u8>, record: &Record<'_>) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    put_bytes(out, &bytes);
}

/// Appends records of those that all causal protocols log, which are encoded already, each behind its length.
pub(super) fn put_all_common(out: &mut Vec<u8>, encoded: &[u8]) {
    let mut reader = Reader::new(encoded);
    while !reader.is_empty() {
        let Ok(record) = reader.bytes() else { return };
        put_varint(out, record.len() as u64 + 1);
        out.push(COMMON);
        out.extend_from_slice(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Error;

    #[test]
    fn records_survive_their_binary_form() {
        let stamp = Stamp { at: Timestamp(7), depends_on: Entries::all(Timestamp(3)), ..Stamp::default() };
        let nearest = Dependencies::on(1, RegionId(2), Timestamp(6));
        let written = Written { stamp, nearest: nearest.clone(), ..Written::default() };
        let put = Put { at: Some(Timestamp(7)), ..Put::default() };
        let records = [
            Record::Put(Cow::Owned(written.clone()), Cow::Owned(put)),
            Record::Replicated(Cow::Owned(written.clone())),
            Record::Answered(stamp.transaction, Cow::Owned(PutOutcome::Refused { error: Error::err("no") })),
            Record::Outgoing(Cow::Owned(written.clone())),
            Record::Waited(Cow::Owned(written)),
            Record::RetainedDependencies(RegionId(2), Timestamp(7), Cow::Owned(nearest)),
            Record::Fence(Fence { life: Incarnation(2), at: Timestamp(9) }),
            Record::Common(stable::Record::Horizon { at: Timestamp(8) }),
        ];
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&mut Reader::new(&bytes)), Ok(record));
        }
    }
}
