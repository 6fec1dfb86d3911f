//! Evaluates operations on a register.

use super::bits::{self, FieldStep, clipped};
use super::long_double::{LongDouble, Parsed};
use super::{Condition, Deadline, Effect, MAX_BYTES, Operation, Register, SetReply, UnionReply, hyperloglog};
use crate::{Cell, Context, Value};
use std::borrow::Cow;
use types::{Error, ReplySink};

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    cell: &Cell,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let register = match &cell.value {
        None => None,
        Some(Value::Register(register)) => Some(register),
        Some(_) => match operation {
            Operation::Set { reply: SetReply::Status | SetReply::Flag, .. } => None,
            _ => {
                sink.error(&Error::wrong_type());
                return None;
            }
        },
    };
    match operation {
        Operation::Get => reply_value(register, sink),
        Operation::Set { value, deadline, condition, reply } => {
            let exists = cell.value.is_some();
            let done = match condition {
                Condition::Always => true,
                Condition::IfAbsent => !exists,
                Condition::IfPresent => exists,
            };
            match reply {
                SetReply::Status if done => sink.simple("OK"),
                SetReply::Status => sink.null(),
                SetReply::Flag => sink.integer(i64::from(done)),
                SetReply::Old => reply_value(register, sink),
            }
            let over = matches!(deadline, Deadline::At { millis } if *millis <= context.now_millis);
            let effect = if over { Effect::Delete } else { Effect::Set { value, deadline: *deadline } };
            return done.then_some(effect);
        }
        Operation::Append { value } => return append(register, value, sink),
        Operation::Length => sink.integer(register.map_or(0, |register| register.len() as i64)),
        Operation::Increment { by } => return increment(register, *by, sink),
        Operation::GetDelete => {
            reply_value(register, sink);
            return register.map(|_| Effect::Delete);
        }
        Operation::SetRange { offset, value } => return set_range(register, *offset, value, sink),
        Operation::IncrementFloat { by } => return increment_float(register, *by, sink),
        Operation::SetBit { offset, bit } => return set_bit(register, *offset, *bit, sink),
        Operation::BitField { steps } => return bit_field(register, steps, sink),
        Operation::Unite { with, reply } => return unite(register, with, *reply, sink),
        operation => read(register, operation, sink),
    }
    None
}

/// The operations that only look at a part of the value.
fn read(register: Option<&Register>, operation: &Operation<'_>, sink: &mut dyn ReplySink) {
    with_bytes(register, |bytes| match operation {
        Operation::GetRange { start, end } => {
            let within = clipped(*start, *end, bytes.len() as i64);
            sink.bulk(&bytes[within.start as usize..within.end as usize]);
        }
        Operation::GetBit { offset } => sink.integer(bits::bit(bytes, *offset).into()),
        Operation::CountBits { range } => sink.integer(bits::count(bytes, *range) as i64),
        Operation::FindBit { bit, range } => {
            sink.integer(bits::position(register.map(|_| bytes), *bit, *range));
        }
        Operation::CountDistinct if register.is_none() => sink.integer(0),
        Operation::CountDistinct => match hyperloglog::count(bytes) {
            Ok(count) => sink.integer(count as i64),
            Err(fault) => sink.error(&fault.error()),
        },
        _ => debug_assert!(false, "the caller evaluates all others"),
    });
}

/// Calls `read` with the value's bytes, none for an absent key.
fn with_bytes<R>(register: Option<&Register>, read: impl FnOnce(&[u8]) -> R) -> R {
    match register {
        None => read(b""),
        Some(register) => register.with_bytes(read),
    }
}

fn set_range<'a>(
    register: Option<&Register>,
    offset: u64,
    value: &'a [u8],
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let len = register.map_or(0, Register::len) as u64;
    let end = offset.saturating_add(value.len() as u64);
    if value.is_empty() {
        sink.integer(len as i64);
        return None;
    }
    if end > MAX_BYTES as u64 {
        sink.error(&too_long());
        return None;
    }
    sink.integer(len.max(end) as i64);
    Some(Effect::SetRange { offset, value })
}

fn increment_float<'a>(
    register: Option<&Register>,
    by: LongDouble,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    match sum(register, by) {
        Ok(sum) => {
            sink.bulk(&sum.to_text());
            Some(Effect::AddFloat { by })
        }
        Err(error) => {
            sink.error(&error);
            None
        }
    }
}

/// What a value comes to when a number is added.
pub(super) fn sum(register: Option<&Register>, by: LongDouble) -> Result<LongDouble, Error> {
    let value = match register {
        None => Some(Parsed::Finite(LongDouble::ZERO)),
        Some(Register::Integer(number)) => Some(Parsed::Finite(LongDouble::from_integer(*number))),
        Some(Register::Bytes(bytes)) => LongDouble::parse(bytes),
    };
    let infinite = || Error::err("increment would produce NaN or Infinity");
    match value {
        None => Err(Error::err("value is not a valid float")),
        Some(Parsed::Infinite) => Err(infinite()),
        Some(Parsed::Finite(value)) => value.plus(by).ok_or_else(infinite),
    }
}

fn set_bit<'a>(
    register: Option<&Register>,
    offset: u64,
    bit: bool,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let (old, longer) =
        with_bytes(register, |bytes| (bits::bit(bytes, offset), offset / 8 >= bytes.len() as u64));
    sink.integer(old.into());
    (longer || old != bit).then_some(Effect::SetBit { offset, bit })
}

fn bit_field<'a>(
    register: Option<&Register>,
    steps: &[FieldStep],
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let writes = with_bytes(register, |bytes| bits::evaluate(bytes, steps, sink));
    let longer = bits::reach(steps) > register.map_or(0, Register::len);
    (longer || !writes.is_empty()).then(|| Effect::bit_field(&writes, steps))
}

fn unite<'a>(
    register: Option<&Register>,
    with: &Cow<'a, [u8]>,
    reply: UnionReply,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let changed = match register {
        None => Ok(true),
        Some(register) => register.with_bytes(|bytes| hyperloglog::raises(bytes, with)),
    };
    match changed {
        Err(fault) => {
            sink.error(&fault.error());
            None
        }
        Ok(changed) => {
            match reply {
                UnionReply::Changed => sink.integer(changed.into()),
                UnionReply::Status => sink.simple("OK"),
            }
            changed.then(|| Effect::Unite { with: with.clone() })
        }
    }
}

fn too_long() -> Error {
    Error::err("string exceeds maximum allowed size (proto-max-bulk-len)")
}

fn reply_value(register: Option<&Register>, sink: &mut dyn ReplySink) {
    match register {
        None => sink.null(),
        Some(register) => register.with_bytes(|bytes| sink.bulk(bytes)),
    }
}

fn append<'a>(register: Option<&Register>, value: &'a [u8], sink: &mut dyn ReplySink) -> Option<Effect<'a>> {
    let len = register.map_or(0, Register::len) + value.len();
    if len > MAX_BYTES {
        sink.error(&too_long());
        return None;
    }
    sink.integer(len as i64);
    // An empty append still creates the key.
    (register.is_none() || !value.is_empty()).then_some(Effect::Append { value })
}

fn increment<'a>(register: Option<&Register>, by: i64, sink: &mut dyn ReplySink) -> Option<Effect<'a>> {
    let current = match register {
        None => 0,
        Some(Register::Integer(number)) => *number,
        Some(Register::Bytes(_)) => {
            sink.error(&Error::not_an_integer());
            return None;
        }
    };
    match current.checked_add(by) {
        Some(sum) => {
            sink.integer(sum);
            Some(Effect::Add { by })
        }
        None => {
            sink.error(&Error::err("increment or decrement would overflow"));
            None
        }
    }
}
