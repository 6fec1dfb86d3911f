//! `struct`: numbers and strings as the bytes of a structure of C, as the library of that name has them that Redis gives to
//! scripts.
//!
//! | format | value |
//! |---|---|
//! | `b` `h` `i` `l`, `B` `H` `I` `L` `T` | an integer of 1, 2, 4 and 8 bytes, with a sign or without |
//! | `i3`, `I3` | an integer of so many bytes, at most 32 |
//! | `f`, `d` | a floating-point number of 4 or 8 bytes |
//! | `s` | a string that ends with a zero byte |
//! | `c3` | so many bytes of a string; `c0` packs all, and unpacks as many as the number before says |
//! | `x` | a byte that stands for nothing |
//! | `>`, `<` | from here on, the highest byte comes first, or the lowest |
//! | `!`, `!4` | from here on, values begin at multiples of their size, or of this if it is less |
//!
//! Deviations: of an integer of more than 8 bytes only the 8 lowest count; `size` refuses letters that are no format.

use super::arguments::{Arguments, define};
use super::cmsgpack::Output;
use super::number::truncated;
use mlua::{Error, Lua, LuaString, MultiValue, Table, Value};

/// The largest integer, in bytes.
const MAX_INTEGER: usize = 32;
/// What `!` without a number aligns to.
const ALIGNMENT: usize = 8;
/// How many values `unpack` returns.
const MAX_RESULTS: usize = 7000;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    define(lua, &library, "pack", pack)?;
    define(lua, &library, "unpack", unpack)?;
    define(lua, &library, "size", size)?;
    Ok(library)
}

/// A format, and what it says at the place that is reached.
struct Format<'a> {
    arguments: &'a Arguments<'a>,
    text: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
}

/// The next part of a structure.
struct Part {
    kind: Kind,
    size: usize,
    /// How many bytes come before it to align it.
    padding: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer { is_signed: bool },
    Float,
    Bytes,
    Text,
    Nothing,
}

impl<'a> Format<'a> {
    /// A format ends with its first zero byte.
    fn new(arguments: &'a Arguments<'a>, text: &'a [u8]) -> Self {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Format { arguments, text, is_big_endian: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// The part that begins at this place of the structure; `None` at its end.
    fn next(&mut self, place: usize) -> mlua::Result<Option<Part>> {
        while let Some((option, rest)) = self.text.split_first() {
            self.text = rest;
            let is_signed = option.is_ascii_lowercase();
            let (kind, size) = match option {
                b' ' => continue,
                b'>' | b'<' => {
                    self.is_big_endian = *option == b'>';
                    continue;
                }
                b'!' => {
                    self.alignment = self.number(ALIGNMENT)?;
                    if !self.alignment.is_power_of_two() {
                        let text = format!("alignment {} is not a power of 2", self.alignment);
                        return Err(Error::runtime(text));
                    }
                    continue;
                }
                b'b' | b'B' => (Kind::Integer { is_signed }, 1),
                b'h' | b'H' => (Kind::Integer { is_signed }, 2),
                b'l' | b'L' | b'T' => (Kind::Integer { is_signed }, 8),
                b'i' | b'I' => (Kind::Integer { is_signed }, self.number(4)?),
                b'f' => (Kind::Float, 4),
                b'd' => (Kind::Float, 8),
                b'c' => (Kind::Bytes, self.number(1)?),
                b's' => (Kind::Text, 0),
                b'x' => (Kind::Nothing, 1),
                other => {
                    let reason = format!("invalid format option '{}'", char::from(*other));
                    return Err(self.arguments.bad(1, &reason));
                }
            };
            if kind == (Kind::Integer { is_signed }) && size > MAX_INTEGER {
                let text = format!("integral size {size} is larger than limit of {MAX_INTEGER}");
                return Err(Error::runtime(text));
            }
            return Ok(Some(Part { kind, size, padding: self.padding(place, kind, size) }));
        }
        Ok(None)
    }

    /// The number that follows, or this if there is none.
    fn number(&mut self, default: usize) -> mlua::Result<usize> {
        let length = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.text.split_at(length);
        self.text = rest;
        if digits.is_empty() {
            return Ok(default);
        }
        let number = digits
            .iter()
            .try_fold(0_i32, |number, digit| number.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| Error::runtime("integral size overflow"))
    }

    /// Sizes that are no powers of 2 have the padding that the original's arithmetic gives.
    fn padding(&self, place: usize, kind: Kind, size: usize) -> usize {
        if size == 0 || kind == Kind::Bytes {
            return 0;
        }
        let size = size.min(self.alignment);
        (size - (place & (size - 1))) & (size - 1)
    }

    /// Bytes, the lowest first, in the format's order, and back.
    fn order(&self, bytes: &mut [u8]) {
        if self.is_big_endian {
            bytes.reverse();
        }
    }
}

/// `pack(format, ...)`.
fn pack(arguments: &Arguments) -> mlua::Result<LuaString> {
    let text = arguments.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(arguments, &text);
    let (mut output, mut length, mut argument) = (Output::new(arguments.meter), 0, 2);
    while let Some(part) = format.next(length)? {
        output.extend(&[0; MAX_INTEGER][..part.padding])?;
        length += part.padding + part.size;
        let mut bytes = [0; MAX_INTEGER];
        match part.kind {
            Kind::Nothing => output.extend(&[0])?,
            Kind::Integer { .. } => {
                let number = match arguments.number(argument)? {
                    number if number >= 0.0 => number as u64,
                    number => truncated(number).cast_unsigned(),
                };
                bytes[..8].copy_from_slice(&number.to_le_bytes());
            }
            Kind::Float => match (arguments.number(argument)?, part.size) {
                (number, 4) => bytes[..4].copy_from_slice(&(number as f32).to_le_bytes()),
                (number, _) => bytes[..8].copy_from_slice(&number.to_le_bytes()),
            },
            Kind::Bytes | Kind::Text => {
                let string = arguments.string(argument)?;
                let string = string.as_bytes();
                let size = if part.size == 0 { string.len() } else { part.size };
                // The original counts on before it complains.
                let taken =
                    string.get(..size).ok_or_else(|| arguments.bad(argument + 1, "string too short"))?;
                output.extend(taken)?;
                if part.size == 0 {
                    length += size;
                }
                if part.kind == Kind::Text {
                    output.extend(&[0])?;
                    length += 1;
                }
            }
        }
        if let Kind::Integer { .. } | Kind::Float = part.kind {
            let bytes = &mut bytes[..part.size];
            format.order(bytes);
            output.extend(bytes)?;
        }
        argument += usize::from(part.kind != Kind::Nothing);
    }
    output.into_string(arguments.lua)
}

/// `unpack(format, data, place)`: the values, and the place behind.
fn unpack(arguments: &Arguments) -> mlua::Result<MultiValue> {
    let (text, data) = (arguments.string(1)?, arguments.string(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let place = arguments.integer_or(3, 1)?;
    let place = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
    let mut place = place.ok_or_else(|| arguments.bad(3, "offset must be 1 or greater"))?;
    let mut format = Format::new(arguments, &text);
    let mut values = MultiValue::new();
    let too_short = || arguments.bad(2, "data string too short");
    if place > data.len() {
        return Err(too_short());
    }
    while let Some(part) = format.next(place)? {
        if values.len() == MAX_RESULTS {
            return Err(Error::runtime("stack overflow (too many results)"));
        }
        place = place.checked_add(part.padding).ok_or_else(too_short)?;
        let rest = data.get(place..).ok_or_else(too_short)?;
        let mut bytes = rest.get(..part.size).ok_or_else(too_short)?;
        match part.kind {
            Kind::Nothing => {}
            Kind::Integer { is_signed } => values.push_back(integer(&format, bytes, is_signed)),
            Kind::Float => values.push_back(float(&format, bytes)),
            Kind::Bytes => {
                if part.size == 0 {
                    let size = values.pop_back().map(|size| arguments.lua.coerce_number(size)).transpose()?;
                    let size =
                        size.flatten().ok_or_else(|| Error::runtime("format 'c0' needs a previous size"))?;
                    let size = if size >= 0.0 { size as usize } else { usize::MAX };
                    bytes = rest.get(..size).ok_or_else(too_short)?;
                }
                values.push_back(Value::String(arguments.lua.create_string(bytes)?));
            }
            Kind::Text => {
                let length = rest.iter().position(|byte| *byte == 0);
                let length = length.ok_or_else(|| Error::runtime("unfinished string in data"))?;
                bytes = &rest[..=length];
                values.push_back(Value::String(arguments.lua.create_string(&rest[..length])?));
            }
        }
        place += bytes.len();
    }
    values.push_back(Value::Integer(i64::try_from(place + 1).unwrap_or(i64::MAX)));
    Ok(values)
}

fn integer(format: &Format, bytes: &[u8], is_signed: bool) -> Value {
    let mut ordered = [0; MAX_INTEGER];
    let used = &mut ordered[..bytes.len()];
    used.copy_from_slice(bytes);
    format.order(used);
    let number = ordered.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    if is_signed {
        let unused = 64 - 8 * u32::try_from(bytes.len().clamp(1, 8)).unwrap_or(8);
        return Value::Integer((number << unused).cast_signed() >> unused);
    }
    i64::try_from(number).map_or(Value::Number(number as f64), Value::Integer)
}

fn float(format: &Format, bytes: &[u8]) -> Value {
    let mut bytes = bytes.to_vec();
    format.order(&mut bytes);
    match (bytes.first_chunk(), bytes.first_chunk()) {
        (_, Some(bytes)) => Value::Number(f64::from_le_bytes(*bytes)),
        (Some(bytes), None) => Value::Number(f32::from_le_bytes(*bytes).into()),
        (None, None) => Value::Nil,
    }
}

/// `size(format)`: how long a structure is.
fn size(arguments: &Arguments) -> mlua::Result<usize> {
    let text = arguments.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(arguments, &text);
    let mut size = 0;
    while let Some(part) = format.next(size)? {
        match (part.kind, part.size) {
            (Kind::Text, _) => return Err(arguments.bad(1, "option 's' has no fixed size")),
            (Kind::Bytes, 0) => return Err(arguments.bad(1, "option 'c0' has no fixed size")),
            _ => size += part.padding + part.size,
        }
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::super::bit::tests::{expect, shown};
    use super::library;

    #[test]
    fn values_are_packed_as_by_redis() {
        let results = [
            ("struct.pack('bBb', 1, 255, -1.9)", "<01><ff><ff>"),
            ("struct.pack('<h>h<H>H', 1, 1, 4660, -1)", "<01><00><00><01>4<12><ff><ff>"),
            ("struct.pack('>iI', 1, 0xffffffff)", "<00><00><00><01><ff><ff><ff><ff>"),
            ("struct.pack('<l>T', 1, 2^53)", "<01><00><00><00><00><00><00><00><00> <00><00><00><00><00><00>"),
            ("struct.pack('>i1i2i3i0', 1, 2, -3, 4)", "<01><00><02><ff><ff><fd>"),
            ("struct.pack('>i10', -2)", "<00><00><ff><ff><ff><ff><ff><ff><ff><fe>"),
            ("struct.pack('>f<f', 1.5, 1.5)", "?<c0><00><00><00><00><c0>?"),
            ("struct.pack('>d', 1.5)", "?<f8><00><00><00><00><00><00>"),
            ("struct.pack('ss', 'abc', 5)", "abc<00>5<00>"),
            ("struct.pack('cc2c0', 'abc', 'abc', 'abc')", "aababc"),
            ("struct.pack('xb x', '12')", "<00><0c><00>"),
            ("struct.pack('!<bih', 1, 2, 3)", "<01><00><00><00><02><00><00><00><03><00>"),
            ("struct.pack('!4<bd', 1, 2)", "<01><00><00><00><00><00><00><00><00><00><00>@"),
            (
                "struct.pack('!<bc3b', 1, 'abc', 2), struct.pack('!<bi3', 1, 2)",
                "<01>abc<02> <01><00><00><02><00><00>",
            ),
            ("struct.pack('!16<bi6', 1, 2)", "<01><00><00><00><00><00><02><00><00><00><00><00>"),
            (r"struct.pack('b\0b', 1)", "<01>"),
        ];
        expect("struct", library, &results);
    }

    #[test]
    fn values_are_unpacked_as_by_redis() {
        let results = [
            (r"struct.unpack('bB', '\255\255')", "-1 255 3"),
            (r"struct.unpack('<h>h>H', '\255\254\255\254\255\254')", "-257 -2 65534 7"),
            (r"struct.unpack('<iI', '\1\0\0\128\1\0\0\128')", "-2147483647 2147483649 9"),
            (r"struct.unpack('l', ('\255'):rep(8))", "-1 9"),
            (r"struct.unpack('L', ('\255'):rep(8))", "1.8446744073709552e19 9"),
            (r"struct.unpack('>i3>I3', '\255\255\254\255\255\254')", "-2 16777214 7"),
            (r"struct.unpack('>i16', ('\0'):rep(8) .. ('\255'):rep(7) .. '\254')", "-2 17"),
            (r"struct.unpack('>f', '\63\192\0\0')", "1.5 5"),
            (r"struct.unpack('>dd', '\63\248\0\0\0\0\0\0\64\8\0\0\0\0\0\0')", "1.5 3 17"),
            (r"struct.unpack('sc2x', 'abc\0def')", "abc de 8"),
            (r"struct.unpack('bbc0', '\1\2abc')", "1 ab 5"),
            (r"struct.unpack('sc0', '2\0abc')", "ab 5"),
            (r"struct.unpack('!<bi', '\1aaa\1\0\0\0')", "1 1 9"),
            ("struct.unpack('b', 'ab', 2)", "98 3"),
            ("struct.unpack('b', 5)", "53 2"),
            ("struct.unpack('i0', 'abc')", "0 1"),
            ("struct.size('!bd'), struct.size('!4bd'), struct.size(' <bi3c10x')", "16 12 15"),
        ];
        expect("struct", library, &results);
    }

    #[test]
    fn errors_are_those_of_redis() {
        let short = "bad argument #2 to 'unpack' (data string too short)";
        let results = [
            ("struct.pack('i33', 1)", "integral size 33 is larger than limit of 32"),
            ("struct.pack('i2147483648', 1)", "integral size overflow"),
            ("struct.pack('!3b', 1)", "alignment 3 is not a power of 2"),
            ("struct.pack('z', 1)", "bad argument #1 to 'pack' (invalid format option 'z')"),
            ("struct.pack('c4', 'abc')", "bad argument #3 to 'pack' (string too short)"),
            ("struct.pack('b', 'x')", "bad argument #2 to 'pack' (number expected, got string)"),
            ("struct.pack()", "bad argument #1 to 'pack' (string expected, got no value)"),
            ("struct.unpack('c4', 'abc')", short),
            ("struct.unpack('b', 'ab', 3)", short),
            (r"struct.unpack('bc0', '\255abc')", short),
            ("struct.unpack('!i', 'aaabbbb', 2)", short),
            ("struct.unpack('c2147483647', 'abc', 2)", short),
            ("struct.unpack('b', 'ab', 0)", "bad argument #3 to 'unpack' (offset must be 1 or greater)"),
            ("struct.unpack('s', 'abc')", "unfinished string in data"),
            ("struct.unpack('c0', '3abc')", "format 'c0' needs a previous size"),
            ("struct.unpack(('b'):rep(10000), ('a'):rep(10000))", "stack overflow (too many results)"),
            ("struct.size('s')", "bad argument #1 to 'size' (option 's' has no fixed size)"),
            ("struct.size('c0')", "bad argument #1 to 'size' (option 'c0' has no fixed size)"),
        ];
        expect("struct", library, &results);
    }

    #[test]
    fn what_was_packed_is_unpacked_again() {
        let script = r#"
            math.randomseed(7)
            local options = { "b", "<h", ">h", "i", "l", "i3", ">i5", "!8", "!", "f", ">d", "s", "c3", "bc0", "x", " " }
            for _ = 1, 2000 do
                local format, values = "", {}
                for place = 1, math.random(12) do
                    local option = options[math.random(#options)]
                    format = format .. option
                    if option == "s" or option == "c3" then
                        values[#values + 1] = "abc"
                    elseif option == "bc0" then
                        values[#values + 1], values[#values + 2] = 3, "abc"
                    elseif option:find("[%abdfhil]") and option ~= "x" then
                        values[#values + 1] = math.random(-128, 127)
                    end
                end
                local packed = struct.pack(format, unpack(values))
                local read = { struct.unpack(format, packed) }
                if table.remove(read) ~= #packed + 1 then return format end
                local place = 0
                for _, value in ipairs(values) do
                    place = place + 1
                    -- The number before `c0` is not returned.
                    if value ~= read[place] then
                        if value ~= 3 then return format end
                        place = place - 1
                    end
                end
            end
            return true"#;
        assert_eq!(shown("struct", library, script), "true");
    }
}
