//! Changes a register.

use super::bits::{self, FieldStep};
use super::execute::sum;
use super::{Deadline, Effect, Register, hyperloglog};
use crate::{Cell, Patch, Value};
use std::borrow::Cow;
use std::ops::Range;

/// The longest decimal form of an integer.
const MAX_INTEGER_BYTES: usize = 20;

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(cell: &mut Cell, effect: &Effect<'_>) -> Patch {
    match effect {
        Effect::Set { value, deadline } => {
            let expires_at = match deadline {
                Deadline::Clear => 0,
                Deadline::Keep => cell.expires_at,
                Deadline::At { millis } => *millis,
            };
            if UNDO {
                let value = Some(Value::Register(Register::new(value)));
                return Patch::Cell(std::mem::replace(cell, Cell { value, expires_at }));
            }
            match &mut cell.value {
                Some(Value::Register(register)) => register.set(value),
                other => *other = Some(Value::Register(Register::new(value))),
            }
            cell.expires_at = expires_at;
            Patch::Nothing
        }
        Effect::Add { by } => {
            let existed = cell.value.is_some();
            add(cell, *by);
            match (UNDO, existed) {
                (false, _) => Patch::Nothing,
                (true, false) => Patch::Cell(Cell::ABSENT),
                (true, true) => Patch::Added { by: *by },
            }
        }
        Effect::Append { value } => {
            if !matches!(cell.value, None | Some(Value::Register(_))) {
                return Patch::Nothing;
            }
            // More bytes make an integer only of an empty string or a sign.
            let longer = match &cell.value {
                Some(Value::Register(Register::Bytes(bytes))) => {
                    Some(bytes.len()).filter(|length| *length > 1)
                }
                _ => None,
            };
            let before = match longer {
                _ if !UNDO => Patch::Nothing,
                Some(at) => Patch::Tail { at, tail: Vec::new() },
                None => Patch::Cell(cell.clone()),
            };
            append_bytes(cell, value);
            before
        }
        Effect::Delete => {
            let before = cell.clear();
            if UNDO { Patch::Cell(before) } else { Patch::Nothing }
        }
        Effect::SetRange { value: [], .. } => Patch::Nothing,
        Effect::SetRange { offset, value } => {
            let start = *offset as usize;
            edit::<UNDO>(cell, start..start + value.len(), |bytes| bytes.copy_from_slice(value))
        }
        Effect::SetBit { offset, bit } => {
            let at = (offset / 8) as usize;
            edit::<UNDO>(cell, at..at + 1, |bytes| bits::set_bit(bytes, offset % 8, *bit))
        }
        Effect::BitField { length, steps } => {
            let length = *length as usize;
            let longer = std::iter::once(edit::<UNDO>(cell, length..length, |_| ()));
            let written = steps.iter().map(|step| write_field::<UNDO>(cell, step));
            let patches: Vec<Patch> = longer.chain(written).collect();
            if UNDO { Patch::Many(patches) } else { Patch::Nothing }
        }
        Effect::AddFloat { by } => {
            replace::<UNDO>(cell, |register| sum(register, *by).ok().map(|sum| sum.to_text()))
        }
        Effect::Unite { with } => replace::<UNDO>(cell, |register| match register {
            None => hyperloglog::normalized(with).ok(),
            Some(register) => register.with_bytes(|bytes| match hyperloglog::union(bytes, with) {
                Ok(Cow::Owned(union)) => Some(union),
                _ => None,
            }),
        }),
    }
}

/// Adds to the integer register, creating it at 0; anything else is left as it is.
pub(crate) fn add(cell: &mut Cell, by: i64) {
    match &mut cell.value {
        None => cell.value = Some(Value::Register(Register::Integer(by))),
        Some(Value::Register(Register::Integer(number))) => *number = number.wrapping_add(by),
        Some(_) => {}
    }
}

/// Swaps what a string has from a place on.
pub(crate) fn exchange_tail(cell: &mut Cell, at: usize, tail: &mut Vec<u8>) {
    if let Some(Value::Register(Register::Bytes(bytes))) = &mut cell.value {
        let other = bytes.split_off(at.min(bytes.len()));
        bytes.append(tail);
        *tail = other;
    }
}

fn append_bytes(cell: &mut Cell, value: &[u8]) {
    let register = match &mut cell.value {
        Some(Value::Register(register)) => register,
        _ => {
            cell.value = Some(Value::Register(Register::new(value)));
            return;
        }
    };
    let mut bytes = std::mem::take(register).into_bytes();
    bytes.extend_from_slice(value);
    *register = Register::from_bytes(bytes);
}

fn write_field<const UNDO: bool>(cell: &mut Cell, step: &FieldStep) -> Patch {
    let range = step.field.bytes();
    let step = step.after_byte(range.start);
    edit::<UNDO>(cell, range, |bytes| step.perform(bytes))
}

/// Changes bytes in place; the string gets as long as they need, with zeros. A key of another type stays.
fn edit<const UNDO: bool>(cell: &mut Cell, range: Range<usize>, change: impl FnOnce(&mut [u8])) -> Patch {
    // More bytes, or others, make an integer only of few.
    let long = match &cell.value {
        Some(Value::Register(Register::Bytes(bytes))) if bytes.len() > MAX_INTEGER_BYTES => bytes.len(),
        None | Some(Value::Register(_)) => 0,
        Some(_) => return Patch::Nothing,
    };
    let mut before = match UNDO {
        true if long == 0 => Patch::Cell(cell.clone()),
        _ => Patch::Nothing,
    };
    let register = match cell.value.get_or_insert_with(|| Value::Register(Register::default())) {
        Value::Register(register) => register,
        _ => return Patch::Nothing,
    };
    let mut bytes = std::mem::take(register).into_bytes();
    if UNDO && long > 0 {
        let at = range.start.min(long);
        let end = range.end.min(long);
        before = Patch::Splice { at, len: range.end - at, bytes: bytes[at..end].to_vec() };
    }
    if bytes.len() < range.end {
        bytes.resize(range.end, 0);
    }
    change(&mut bytes[range]);
    *register = Register::from_bytes(bytes);
    before
}

/// Gives the register the bytes that `new` makes of it, if it makes any. A key of another type stays.
fn replace<const UNDO: bool>(
    cell: &mut Cell,
    new: impl FnOnce(Option<&Register>) -> Option<Vec<u8>>,
) -> Patch {
    let register = match &mut cell.value {
        None => None,
        Some(Value::Register(register)) => Some(register),
        Some(_) => return Patch::Nothing,
    };
    let Some(new) = new(register.as_deref()) else { return Patch::Nothing };
    let Some(register) = register else {
        cell.value = Some(Value::Register(Register::from_bytes(new)));
        return if UNDO { Patch::Cell(Cell::ABSENT) } else { Patch::Nothing };
    };
    match register {
        Register::Bytes(old) if old.len() > MAX_INTEGER_BYTES && new.len() > MAX_INTEGER_BYTES => {
            let patch = if UNDO { difference(old, &new) } else { Patch::Nothing };
            *old = new;
            patch
        }
        _ => {
            let before = if UNDO { Patch::Cell(cell.clone()) } else { Patch::Nothing };
            cell.value = Some(Value::Register(Register::from_bytes(new)));
            before
        }
    }
}

/// What takes `new` back to `old`: what is between the bytes that they have in common at both ends.
fn difference(old: &[u8], new: &[u8]) -> Patch {
    let at = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let ends = old[at..].iter().rev().zip(new[at..].iter().rev());
    let common = ends.take_while(|(old, new)| old == new).count();
    let (end, new_end) = (old.len() - common, new.len() - common);
    Patch::Splice { at, len: new_end - at, bytes: old[at..end].to_vec() }
}

/// Swaps a piece of a string with another one.
pub(crate) fn exchange_splice(cell: &mut Cell, at: usize, len: &mut usize, other: &mut Vec<u8>) {
    if let Some(Value::Register(Register::Bytes(bytes))) = &mut cell.value {
        let end = (at + *len).min(bytes.len());
        let inserted = std::mem::take(other);
        *len = inserted.len();
        *other = bytes.splice(at.min(end)..end, inserted).collect();
    }
}
