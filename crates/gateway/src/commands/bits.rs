//! Commands on the bits of strings.

use super::whole_strings::{self, Outcome};
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data};
use datatypes::Operation::Register;
use datatypes::register::Operation;
use datatypes::register::bits::{BitRange, Change, Field, FieldStep, MAX_BITS, Overflow, Unit};
use resp::parse_integer;
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("setbit", 4, WRITE | DENYOOM, "2.2.0", "Writes a bit of the string of a key", Data(set)).keys(1, 1, 1),
    Command::new("getbit", 3, READONLY | FAST, "2.2.0", "Reads a bit of the string of a key", Data(get)).keys(1, 1, 1),
    Command::new("bitcount", -2, READONLY, "2.6.0", "Counts the bits of a string that are set", Data(count)).keys(1, 1, 1),
    Command::new("bitpos", -3, READONLY, "2.8.7", "Finds the first bit of a string that is set, or is not", Data(position)).keys(1, 1, 1),
    Command::new("bitop", -4, WRITE | DENYOOM, "2.6.0", "Joins the bits of strings and writes what comes of it", Data(join)).keys(2, -1, 1),
    Command::new("bitfield", -2, WRITE | DENYOOM, "3.2.0", "Reads and writes integers of any width in the bits of a string", Data(fields)).keys(1, 1, 1),
    Command::new("bitfield_ro", -2, READONLY | FAST, "6.0.0", "Reads integers of any width in the bits of a string", Data(read_fields)).keys(1, 1, 1),
];

fn set<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let offset = offset(call.bytes(2))?;
    let bit = match parse_integer(call.bytes(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Error::err("bit is not an integer or out of range")),
    };
    call.one(Register(Operation::SetBit { offset, bit }))
}

fn get<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Register(Operation::GetBit { offset: offset(call.bytes(2))? }))
}

fn bad_offset() -> Error {
    Error::err("bit offset is not an integer or out of range")
}

/// The offset of a bit, within the longest string.
fn offset(text: &[u8]) -> Result<u64, Error> {
    let offset = parse_integer(text).and_then(|offset| u64::try_from(offset).ok());
    offset.filter(|offset| *offset < MAX_BITS).ok_or_else(bad_offset)
}

/// A range from an argument on: `start`, `end`, the unit.
fn range(call: &Call<'_>, from: usize) -> Result<BitRange, Error> {
    let unit = match call.len() - from {
        3 if call.is(from + 2, "BIT") => Unit::Bit,
        3 if !call.is(from + 2, "BYTE") => return Err(Error::syntax()),
        4.. => return Err(Error::syntax()),
        _ => Unit::Byte,
    };
    let start = call.integer(from)?;
    let end = if call.len() > from + 1 { Some(call.integer(from + 1)?) } else { None };
    Ok(BitRange { start, end, unit })
}

fn count<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let range = match call.len() {
        2 => BitRange::WHOLE,
        3 => return Err(Error::syntax()),
        _ => range(call, 2)?,
    };
    call.one(Register(Operation::CountBits { range }))
}

fn position<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let bit = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Error::err("The bit argument must be 1 or 0.")),
    };
    let range = if call.len() == 3 { BitRange::WHOLE } else { range(call, 3)? };
    call.one(Register(Operation::FindBit { bit, range }))
}

/// How bits are joined.
type Join = fn(u8, u8) -> u8;

const JOINS: [(&str, Join); 3] = [("AND", |a, b| a & b), ("OR", |a, b| a | b), ("XOR", |a, b| a ^ b)];

fn join<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let join = JOINS.iter().find(|(name, _)| call.is(1, name)).map(|(_, join)| *join);
    if join.is_none() {
        if !call.is(1, "NOT") {
            return Err(Error::syntax());
        }
        if call.len() > 4 {
            return Err(Error::err("BITOP NOT must be called with a single source key."));
        }
    }
    let keys = call.arguments.iter().skip(3);
    Ok(whole_strings::compute(keys, Some(call.bytes(2)), Error::wrong_type(), move |strings| {
        Ok(Outcome::Write(joined(strings, join)))
    }))
}

/// The strings' bits joined; those of one turned over where there is no join. Shorter strings count as followed by zeros.
fn joined(strings: &[Option<&[u8]>], join: Option<Join>) -> Vec<u8> {
    let length = strings.iter().flatten().map(|string| string.len()).max().unwrap_or(0);
    let mut strings = strings.iter().map(|string| string.unwrap_or_default());
    let mut result = strings.next().unwrap_or_default().to_vec();
    result.resize(length, 0);
    let Some(join) = join else {
        result.iter_mut().for_each(|byte| *byte = !*byte);
        return result;
    };
    for string in strings {
        let (within, behind) = result.split_at_mut(string.len());
        within.iter_mut().zip(string).for_each(|(byte, other)| *byte = join(*byte, *other));
        behind.iter_mut().for_each(|byte| *byte = join(*byte, 0));
    }
    result
}

fn fields<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Register(Operation::BitField { steps: steps(call)? }))
}

fn read_fields<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let steps = steps(call)?;
    if !steps.iter().all(FieldStep::is_read) {
        return Err(Error::err("BITFIELD_RO only supports the GET subcommand"));
    }
    call.one(Register(Operation::BitField { steps }))
}

/// The steps of BITFIELD: each OVERFLOW is for the writes that follow it.
fn steps(call: &Call<'_>) -> Result<Vec<FieldStep>, Error> {
    let (mut steps, mut overflow, mut index) = (Vec::new(), Overflow::Wrap, 2);
    while index < call.len() {
        let left = call.len() - index - 1;
        if call.is(index, "OVERFLOW") && left >= 1 {
            overflow = match index + 1 {
                at if call.is(at, "WRAP") => Overflow::Wrap,
                at if call.is(at, "SAT") => Overflow::Saturate,
                at if call.is(at, "FAIL") => Overflow::Fail,
                _ => return Err(Error::err("Invalid OVERFLOW type specified")),
            };
            index += 2;
            continue;
        }
        let (is_get, is_set) = (call.is(index, "GET"), call.is(index, "SET"));
        let operands = if is_get { 2 } else { 3 };
        if left < operands || !(is_get || is_set || call.is(index, "INCRBY")) {
            return Err(Error::syntax());
        }
        let field = field(call.bytes(index + 1), call.bytes(index + 2))?;
        let change = match operands {
            2 => Change::Get,
            _ if is_set => Change::Set { value: call.integer(index + 3)?, overflow },
            _ => Change::Add { by: call.integer(index + 3)?, overflow },
        };
        steps.push(FieldStep { field, change });
        index += operands + 1;
    }
    Ok(steps)
}

/// A field such as `u8` or `i64`, at an offset in bits, or in fields with `#` before.
fn field(kind: &[u8], place: &[u8]) -> Result<Field, Error> {
    let (signed, bits) = match kind {
        [b'i', bits @ ..] => (true, bits),
        [b'u', bits @ ..] => (false, bits),
        _ => (false, &b""[..]),
    };
    let fits = |bits: &u8| (1..=Field::most_bits(signed)).contains(bits);
    let bits = parse_integer(bits).and_then(|bits| u8::try_from(bits).ok()).filter(fits);
    let bits = bits.ok_or_else(|| {
        let text =
            "Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        Error::err(text)
    })?;
    let offset = match place {
        [b'#', number @ ..] => {
            let first = parse_integer(number).and_then(|number| number.checked_mul(i64::from(bits)));
            let first = first.and_then(|first| u64::try_from(first).ok());
            first.filter(|first| *first < MAX_BITS).ok_or_else(bad_offset)?
        }
        number => offset(number)?,
    };
    Ok(Field { signed, bits, offset })
}
