//! Operations on a register.

use super::Effect;
use super::bits::{BitRange, FieldStep};
use super::effect::{decode_hyperloglog, decode_offset, decode_range};
use super::long_double::LongDouble;
use crate::{Aspect, Kind, Observation};
use std::borrow::Cow;
use types::{Malformed, Reader, Wire, put_bytes, wire_enum};

/// When SET takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// NX: only if the key is absent.
    IfAbsent,
    /// XX: only if the key is there.
    IfPresent,
}
wire_enum!(Condition { 0 => Always, 1 => IfAbsent, 2 => IfPresent });

/// What becomes of the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// It is dropped.
    Clear,
    /// It stays.
    Keep,
    /// It is this, in milliseconds since 1970.
    At {
        /// Milliseconds since 1970.
        millis: u64,
    },
}
wire_enum!(Deadline { 0 => Clear, 1 => Keep, 2 => At { millis } });

/// What SET replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetReply {
    /// `OK`, or null when the condition failed.
    Status,
    /// 1, or 0 when the condition failed (SETNX).
    Flag,
    /// The old value or null, whatever the condition (SET GET, GETSET).
    Old,
}
wire_enum!(SetReply { 0 => Status, 1 => Flag, 2 => Old });

/// An operation on a register.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// The value or null.
    Get,
    /// Writes the value, over any type.
    Set {
        /// The value.
        value: &'a [u8],
        /// What becomes of the deadline.
        deadline: Deadline,
        /// When to do it.
        condition: Condition,
        /// What to reply.
        reply: SetReply,
    },
    /// Appends: the new length.
    Append {
        /// What to append.
        value: &'a [u8],
    },
    /// The length; 0 if absent.
    Length,
    /// Adds: the sum. Refused when the value is no integer or the sum overflows.
    Increment {
        /// The summand.
        by: i64,
    },
    /// The value or null, and the key is removed.
    GetDelete,
    /// The bytes from one place to another, ends included; negative ones count from the end.
    GetRange {
        /// The first.
        start: i64,
        /// The last.
        end: i64,
    },
    /// Writes bytes over others, with zeros before them where there were none: the new length.
    SetRange {
        /// Where the first byte goes.
        offset: u64,
        /// The bytes; none changes nothing.
        value: &'a [u8],
    },
    /// Adds: the sum. Refused when the value is no number or the sum is infinite.
    IncrementFloat {
        /// The summand.
        by: LongDouble,
    },
    /// The bit at an offset.
    GetBit {
        /// The offset, in bits.
        offset: u64,
    },
    /// Writes the bit at an offset: the old one.
    SetBit {
        /// The offset, in bits.
        offset: u64,
        /// The bit.
        bit: bool,
    },
    /// How many bits are set.
    CountBits {
        /// Where.
        range: BitRange,
    },
    /// Where the first bit of this value is, or -1.
    FindBit {
        /// The value.
        bit: bool,
        /// Where to look.
        range: BitRange,
    },
    /// Reads and writes integers in the string's bits: what each step replies.
    BitField {
        /// The steps.
        steps: Vec<FieldStep>,
    },
    /// About how many different elements were added to the HyperLogLog.
    CountDistinct,
    /// Adds to the HyperLogLog what was added to another one.
    Unite {
        /// The other one.
        with: Cow<'a, [u8]>,
        /// What to reply.
        reply: UnionReply,
    },
}

/// What a union replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnionReply {
    /// 1 if something is new or the key is, else 0 (PFADD).
    Changed,
    /// `OK` (PFMERGE).
    Status,
}
wire_enum!(UnionReply { 0 => Changed, 1 => Status });

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        match self {
            Operation::Get
            | Operation::Length
            | Operation::GetRange { .. }
            | Operation::GetBit { .. }
            | Operation::CountBits { .. }
            | Operation::FindBit { .. }
            | Operation::CountDistinct => true,
            Operation::BitField { steps } => steps.iter().all(FieldStep::is_read),
            Operation::Set { .. }
            | Operation::Append { .. }
            | Operation::Increment { .. }
            | Operation::GetDelete
            | Operation::SetRange { .. }
            | Operation::IncrementFloat { .. }
            | Operation::SetBit { .. }
            | Operation::Unite { .. } => false,
        }
    }

    /// What its result reveals at most.
    pub fn observation(&self) -> Observation<'a> {
        match self {
            // Whoever keeps a deadline must know whether it has passed.
            Operation::Set {
                deadline: Deadline::Keep,
                condition: Condition::Always,
                reply: SetReply::Status,
                ..
            } => Observation::any(Aspect::Expiry),
            Operation::Set { condition: Condition::Always, reply: SetReply::Status, .. } => {
                Observation::NOTHING
            }
            Operation::Set { reply: SetReply::Status | SetReply::Flag, .. } => {
                Observation::any(Aspect::Existence)
            }
            Operation::Set { .. } => Observation::any(Aspect::Whole),
            _ => Observation::of(Kind::Register, Aspect::Whole),
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            // Whoever keeps a deadline must know whether it has passed.
            Operation::Set { deadline: Deadline::Keep, .. } => None,
            Operation::Set { value, deadline, condition: Condition::Always, .. } => {
                Some(Effect::Set { value, deadline: *deadline })
            }
            Operation::Append { value } => Some(Effect::Append { value }),
            Operation::Increment { by } => Some(Effect::Add { by: *by }),
            Operation::SetRange { offset, value } => Some(Effect::SetRange { offset: *offset, value }),
            Operation::IncrementFloat { by } => Some(Effect::AddFloat { by: *by }),
            Operation::SetBit { offset, bit } => Some(Effect::SetBit { offset: *offset, bit: *bit }),
            Operation::BitField { steps } if !self.is_read() => Some(Effect::bit_field(steps, steps)),
            Operation::Unite { with, .. } => Some(Effect::Unite { with: with.clone() }),
            _ => None,
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Get => out.push(0),
            Operation::Set { value, deadline, condition, reply } => {
                out.push(1);
                put_bytes(out, value);
                deadline.encode(out);
                condition.encode(out);
                reply.encode(out);
            }
            Operation::Append { value } => {
                out.push(2);
                put_bytes(out, value);
            }
            Operation::Length => out.push(3),
            Operation::Increment { by } => {
                out.push(4);
                by.encode(out);
            }
            Operation::GetDelete => out.push(5),
            Operation::GetRange { start, end } => {
                out.push(6);
                start.encode(out);
                end.encode(out);
            }
            Operation::SetRange { offset, value } => {
                out.push(7);
                offset.encode(out);
                put_bytes(out, value);
            }
            Operation::IncrementFloat { by } => {
                out.push(8);
                by.encode(out);
            }
            Operation::GetBit { offset } => {
                out.push(9);
                offset.encode(out);
            }
            Operation::SetBit { offset, bit } => {
                out.push(10);
                offset.encode(out);
                bit.encode(out);
            }
            Operation::CountBits { range } => {
                out.push(11);
                range.encode(out);
            }
            Operation::FindBit { bit, range } => {
                out.push(12);
                bit.encode(out);
                range.encode(out);
            }
            Operation::BitField { steps } => {
                out.push(13);
                steps.encode(out);
            }
            Operation::CountDistinct => out.push(14),
            Operation::Unite { with, reply } => {
                out.push(15);
                put_bytes(out, with);
                reply.encode(out);
            }
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Operation::Get,
            1 => Operation::Set {
                value: input.bytes()?,
                deadline: Wire::decode(input)?,
                condition: Wire::decode(input)?,
                reply: Wire::decode(input)?,
            },
            2 => Operation::Append { value: input.bytes()? },
            3 => Operation::Length,
            4 => Operation::Increment { by: Wire::decode(input)? },
            5 => Operation::GetDelete,
            6 => Operation::GetRange { start: Wire::decode(input)?, end: Wire::decode(input)? },
            7 => {
                let (offset, value) = decode_range(input)?;
                Operation::SetRange { offset, value }
            }
            8 => Operation::IncrementFloat { by: Wire::decode(input)? },
            9 => Operation::GetBit { offset: decode_offset(input)? },
            10 => Operation::SetBit { offset: decode_offset(input)?, bit: Wire::decode(input)? },
            11 => Operation::CountBits { range: Wire::decode(input)? },
            12 => Operation::FindBit { bit: Wire::decode(input)?, range: Wire::decode(input)? },
            13 => Operation::BitField { steps: Wire::decode(input)? },
            14 => Operation::CountDistinct,
            15 => Operation::Unite { with: decode_hyperloglog(input)?, reply: Wire::decode(input)? },
            _ => return Err(Malformed("register operation tag")),
        })
    }
}
