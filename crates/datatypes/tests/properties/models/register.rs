//! Bits, ranges, sums and HyperLogLogs in a string, the obvious way: bit by bit.

use super::{Bytes, bulk_or_null, expect};
use datatypes::register::bits::{BitRange, Change, Field, FieldStep, Overflow, Unit};
use datatypes::register::hyperloglog::{self, Fault, Registers};
use datatypes::register::{LongDouble, Operation, Parsed, UnionReply};
use types::{Error, ReplyBuf, ReplySink};

/// Performs an operation on a string, or on none.
pub fn perform(held: &mut Option<Bytes>, operation: &Operation<'_>) -> ReplyBuf {
    let bytes = held.clone().unwrap_or_default();
    match operation {
        Operation::GetRange { start, end } => {
            let places = places(*start, *end, bytes.len() as i64);
            let within = if backwards(*start, *end) { 0..0 } else { places };
            let part: Bytes = within.map(|at| bytes[at as usize]).collect();
            expect(|reply| reply.bulk(&part))
        }
        Operation::SetRange { value: b"", .. } => expect(|reply| reply.integer(bytes.len() as i64)),
        Operation::SetRange { offset, value } => {
            let mut bytes = bytes;
            for (at, byte) in value.iter().enumerate() {
                let at = at + *offset as usize;
                lengthen(&mut bytes, at + 1);
                bytes[at] = *byte;
            }
            let len = bytes.len() as i64;
            *held = Some(bytes);
            expect(|reply| reply.integer(len))
        }
        Operation::GetBit { offset } => expect(|reply| reply.integer(bit(&bytes, *offset).into())),
        Operation::SetBit { offset, bit: new } => {
            let old = bit(&bytes, *offset);
            let mut bytes = bytes;
            set_bit(&mut bytes, *offset, *new);
            *held = Some(bytes);
            expect(|reply| reply.integer(old.into()))
        }
        Operation::CountBits { range } => {
            let none = backwards(range.start, range.end.unwrap_or(-1));
            let count = if none { 0 } else { bits_of(&bytes, *range).filter(|at| bit(&bytes, *at)).count() };
            expect(|reply| reply.integer(count as i64))
        }
        Operation::FindBit { bit, range } => {
            let found = find_bit(held.as_deref(), *bit, *range);
            expect(|reply| reply.integer(found))
        }
        Operation::BitField { steps } => bit_field(held, steps),
        Operation::IncrementFloat { by } => add(held, *by),
        Operation::CountDistinct => {
            let count = held.as_ref().map_or(Ok(0), |bytes| match bytes.get(15) {
                // The string says of itself that its count is up to date, as one of Redis's may.
                Some(last) if last & 0x80 == 0 => hyperloglog::count(bytes),
                _ => Registers::parse(bytes).map(|it| it.count()),
            });
            expect(|reply| match count {
                Ok(count) => reply.integer(count as i64),
                Err(fault) => reply.error(&fault.error()),
            })
        }
        Operation::Unite { with, reply: kind } => {
            let changed = unite(held, with);
            expect(|reply| match (changed, kind) {
                (Err(fault), _) => reply.error(&fault.error()),
                (Ok(changed), UnionReply::Changed) => reply.integer(changed.into()),
                (Ok(_), UnionReply::Status) => reply.simple("OK"),
            })
        }
        other => unreachable!("{other:?} is no operation of this model"),
    }
}

fn lengthen(bytes: &mut Bytes, len: usize) {
    while bytes.len() < len {
        bytes.push(0);
    }
}

fn bit(bytes: &[u8], offset: u64) -> bool {
    bytes.get((offset / 8) as usize).is_some_and(|byte| byte & (128 >> (offset % 8)) != 0)
}

fn set_bit(bytes: &mut Bytes, offset: u64, bit: bool) {
    let at = (offset / 8) as usize;
    lengthen(bytes, at + 1);
    let mask = 128 >> (offset % 8);
    bytes[at] = if bit { bytes[at] | mask } else { bytes[at] & !mask };
}

/// The places from one to another, as Redis counts them for BITPOS: its other commands have [`backwards`] too.
fn places(start: i64, end: i64, len: i64) -> std::ops::Range<i64> {
    let place = |from: i64| if from < 0 { (from + len).max(0) } else { from };
    place(start)..place(end).min(len - 1) + 1
}

/// Whether a range counts from the string's end at both ends, in the wrong order: GETRANGE and BITCOUNT find nothing.
fn backwards(start: i64, end: i64) -> bool {
    start < 0 && end < 0 && start > end
}

fn bits_of(bytes: &[u8], range: BitRange) -> impl Iterator<Item = u64> {
    let width = if range.unit == Unit::Byte { 8 } else { 1 };
    let units = places(range.start, range.end.unwrap_or(-1), bytes.len() as i64 * 8 / width);
    units.flat_map(move |unit| unit * width..(unit + 1) * width).map(|at| at as u64)
}

fn find_bit(held: Option<&[u8]>, wanted: bool, range: BitRange) -> i64 {
    let Some(bytes) = held else { return if wanted { -1 } else { 0 } };
    let mut within = bits_of(bytes, range).peekable();
    let behind = within.peek().is_some() && !wanted && range.end.is_none();
    let behind = if behind { bytes.len() as i64 * 8 } else { -1 };
    within.find(|at| bit(bytes, *at) == wanted).map_or(behind, |at| at as i64)
}

/// The field's value: the sum of its bits' worth.
fn field(bytes: &[u8], field: Field) -> i128 {
    let last = u64::from(field.bits) - 1;
    let worth = |at: u64| if field.signed && at == 0 { -(1i128 << last) } else { 1i128 << (last - at) };
    (0..=last).filter(|at| bit(bytes, field.offset + at)).map(worth).sum()
}

fn bit_field(held: &mut Option<Bytes>, steps: &[FieldStep]) -> ReplyBuf {
    let writes = || steps.iter().filter(|step| step.change != Change::Get);
    let mut bytes = held.clone().unwrap_or_default();
    for end in writes().map(|step| step.field.offset + u64::from(step.field.bits)) {
        lengthen(&mut bytes, end.div_ceil(8) as usize);
    }
    let reply = expect(|reply| {
        reply.array(steps.len());
        steps.iter().for_each(|step| field_step(&mut bytes, step, reply));
    });
    if writes().next().is_some() {
        *held = Some(bytes);
    }
    reply
}

fn field_step(bytes: &mut Bytes, step: &FieldStep, reply: &mut ReplyBuf) {
    let old = field(bytes, step.field);
    let signed = step.field.signed;
    let (wanted, overflow) = match step.change {
        Change::Get => return reply.integer(old as i64),
        Change::Set { value, overflow } if signed => (i128::from(value), overflow),
        Change::Set { value, overflow } => (i128::from(value as u64), overflow),
        Change::Add { by, overflow } => (old + i128::from(by), overflow),
    };
    let all = 1i128 << step.field.bits;
    let low = if signed { -all / 2 } else { 0 };
    let high = low + all - 1;
    let new = match overflow {
        Overflow::Fail if wanted < low || wanted > high => return reply.null(),
        Overflow::Saturate if wanted < low => low,
        Overflow::Saturate if wanted > high => high,
        _ => (wanted - low).rem_euclid(all) + low,
    };
    for at in 0..u64::from(step.field.bits) {
        let place = u64::from(step.field.bits) - 1 - at;
        set_bit(bytes, step.field.offset + at, new >> place & 1 == 1);
    }
    reply.integer(if matches!(step.change, Change::Set { .. }) { old } else { new } as i64);
}

/// Halves of a number that is written with one digit after the point at most.
fn halves(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole: i128 = whole.parse().ok().filter(|_| !whole.starts_with('+'))?;
    let half = match fraction.trim_end_matches('0') {
        "" => 0,
        "5" => 1,
        _ => return None,
    };
    Some(2 * whole + if text.starts_with('-') { -half } else { half })
}

/// Sums of halves; beyond 64 bits, ties go to the even number.
fn add(held: &mut Option<Bytes>, by: LongDouble) -> ReplyBuf {
    let summand = by;
    let by = halves(&by.to_text()).expect("the tests add halves");
    let old = held.as_deref().map_or(Some(0), halves);
    let Some(old) = old else {
        // What was appended to a half may be another fraction.
        if let Some(Parsed::Finite(other)) = held.as_deref().and_then(LongDouble::parse) {
            let text = other.plus(summand).expect("small numbers").to_text();
            *held = Some(text.clone());
            return expect(|reply| bulk_or_null(reply, Some(&text)));
        }
        return expect(|reply| reply.error(&Error::err("value is not a valid float")));
    };
    let sum = of_64_bits(of_64_bits(old) + by);
    let sign = if sum < 0 { "-" } else { "" };
    let fraction = if sum % 2 == 0 { "" } else { ".5" };
    let text = format!("{sign}{}{fraction}", sum.unsigned_abs() / 2).into_bytes();
    *held = Some(text.clone());
    expect(|reply| bulk_or_null(reply, Some(&text)))
}

/// The nearest number of 64 significant bits; of two, the even one.
fn of_64_bits(number: i128) -> i128 {
    let magnitude = number.unsigned_abs();
    let dropped = (128 - magnitude.leading_zeros()).saturating_sub(64);
    let unit = 1_u128 << dropped;
    let (quotient, rest) = (magnitude >> dropped, magnitude % unit);
    let is_up = rest * 2 > unit || (rest * 2 == unit && quotient % 2 == 1);
    ((quotient + u128::from(is_up)) << dropped) as i128 * number.signum()
}

/// True if something is new.
fn unite(held: &mut Option<Bytes>, with: &[u8]) -> Result<bool, Fault> {
    let mut registers = held.as_ref().map_or(Ok(Registers::default()), |bytes| Registers::parse(bytes))?;
    let before = registers.clone();
    registers.unite(&Registers::parse(with)?);
    let changed = held.is_none() || registers != before;
    if changed {
        *held = Some(registers.encode());
    }
    Ok(changed)
}
