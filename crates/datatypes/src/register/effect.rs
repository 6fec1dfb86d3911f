//! What changes a register.

use super::bits::{self, FieldStep};
use super::long_double::LongDouble;
use super::{Deadline, MAX_BYTES, hyperloglog};
use crate::Kind;
use crate::observation::Footprint;
use std::borrow::Cow;
use types::{Malformed, Reader, Wire, put_bytes};

/// How far beyond the longest string the last bit field of one may reach.
const FIELD_BYTES: u64 = 8;

/// A mutation of a register.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// The value is this, whatever was there.
    Set {
        /// The value.
        value: &'a [u8],
        /// What becomes of the deadline.
        deadline: Deadline,
    },
    /// Adds, wrapping, so that it commutes and cannot fail; an absent key counts as 0.
    Add {
        /// The summand.
        by: i64,
    },
    /// Appends to the bytes; an absent key counts as empty.
    Append {
        /// What to append.
        value: &'a [u8],
    },
    /// The key is gone.
    Delete,
    /// Writes bytes over others, with zeros before them where there were none. No bytes change nothing.
    SetRange {
        /// Where the first byte goes.
        offset: u64,
        /// The bytes.
        value: &'a [u8],
    },
    /// Adds, rounding; an absent key counts as 0. What is no number stays, and so does what an infinity would come of.
    AddFloat {
        /// The summand.
        by: LongDouble,
    },
    /// Writes a bit, with zeros before it where there were none.
    SetBit {
        /// The offset, in bits.
        offset: u64,
        /// The bit.
        bit: bool,
    },
    /// Writes integers in the string's bits, one after the other; each may be left out if its field cannot hold it.
    BitField {
        /// How long the string is afterwards, at least, in bytes.
        length: u64,
        /// The steps; those that read do nothing.
        steps: Vec<FieldStep>,
    },
    /// Adds to the HyperLogLog what was added to another one. What is no HyperLogLog stays.
    Unite {
        /// The other one.
        with: Cow<'a, [u8]>,
    },
}

impl<'a> Effect<'a> {
    /// The type it needs; a SET or a deletion needs none.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Effect::Set { .. } | Effect::Delete => None,
            _ => Some(Kind::Register),
        }
    }

    /// True for an edit: it changes what it finds where it is applied, and is no addition to an integer.
    pub fn is_edit(&self) -> bool {
        match self {
            Effect::Set { .. } | Effect::Delete | Effect::Add { .. } => false,
            Effect::Append { .. }
            | Effect::SetRange { .. }
            | Effect::AddFloat { .. }
            | Effect::SetBit { .. }
            | Effect::BitField { .. }
            | Effect::Unite { .. } => true,
        }
    }

    /// Steps that write, of some that may make the string longer even where they do not.
    pub(super) fn bit_field(writes: &[FieldStep], all: &[FieldStep]) -> Self {
        let steps = writes.iter().filter(|step| !step.is_read()).copied().collect();
        Effect::BitField { length: bits::reach(all) as u64, steps }
    }

    /// Which aspects it may change: a register is a whole.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }

    /// Appends the binary form.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Set { value, deadline } => {
                out.push(0);
                put_bytes(out, value);
                deadline.encode(out);
            }
            Effect::Add { by } => {
                out.push(1);
                by.encode(out);
            }
            Effect::Append { value } => {
                out.push(2);
                put_bytes(out, value);
            }
            Effect::Delete => out.push(3),
            Effect::SetRange { offset, value } => {
                out.push(4);
                offset.encode(out);
                put_bytes(out, value);
            }
            Effect::AddFloat { by } => {
                out.push(5);
                by.encode(out);
            }
            Effect::SetBit { offset, bit } => {
                out.push(6);
                offset.encode(out);
                bit.encode(out);
            }
            Effect::BitField { length, steps } => {
                out.push(7);
                length.encode(out);
                steps.encode(out);
            }
            Effect::Unite { with } => {
                out.push(8);
                put_bytes(out, with);
            }
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Effect::Set { value: input.bytes()?, deadline: Wire::decode(input)? },
            1 => Effect::Add { by: Wire::decode(input)? },
            2 => Effect::Append { value: input.bytes()? },
            3 => Effect::Delete,
            4 => {
                let (offset, value) = decode_range(input)?;
                Effect::SetRange { offset, value }
            }
            5 => Effect::AddFloat { by: Wire::decode(input)? },
            6 => Effect::SetBit { offset: decode_offset(input)?, bit: Wire::decode(input)? },
            7 => {
                let (length, steps) = (u64::decode(input)?, Vec::<FieldStep>::decode(input)?);
                if length > MAX_BYTES as u64 + FIELD_BYTES {
                    return Err(Malformed("length of a string"));
                }
                Effect::BitField { length, steps }
            }
            8 => Effect::Unite { with: decode_hyperloglog(input)? },
            _ => return Err(Malformed("register effect tag")),
        })
    }
}

/// Reads where bytes are written, and the bytes: within the longest string.
pub(super) fn decode_range<'a>(input: &mut Reader<'a>) -> Result<(u64, &'a [u8]), Malformed> {
    let (offset, value) = (u64::decode(input)?, input.bytes()?);
    let fits = offset.checked_add(value.len() as u64).is_some_and(|end| end <= MAX_BYTES as u64);
    fits.then_some((offset, value)).ok_or(Malformed("range of a string"))
}

/// Reads a bit's offset: within the longest string.
pub(super) fn decode_offset(input: &mut Reader<'_>) -> Result<u64, Malformed> {
    let offset = u64::decode(input)?;
    (offset < bits::MAX_BITS).then_some(offset).ok_or(Malformed("offset of a bit"))
}

/// Reads a string that is a HyperLogLog.
pub(super) fn decode_hyperloglog<'a>(input: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, Malformed> {
    let bytes = input.bytes()?;
    match hyperloglog::check(bytes) {
        Ok(()) => Ok(Cow::Borrowed(bytes)),
        Err(_) => Err(Malformed("HyperLogLog")),
    }
}

/// Additions commute; so do deletions, writes of the same value with the same deadline, of different bits, and unions.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Add { .. }, Effect::Add { .. }) | (Effect::Unite { .. }, Effect::Unite { .. }) => true,
        (Effect::SetBit { offset: x, bit: one }, Effect::SetBit { offset: y, bit: other }) => {
            x != y || one == other
        }
        _ => a == b && !a.is_edit(),
    }
}
