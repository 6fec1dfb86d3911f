//! Reading MessagePack.

use super::super::arguments::Arguments;
use super::super::meter::Meter;
use mlua::{Error, Lua, MultiValue, Table, Value};
use rmp::Marker;

/// How deep tables may be nested. The interpreter lets its host hold some thousands of values.
const MAX_DEPTH: usize = 2000;
/// How many instructions a value counts that is read.
const VALUE: u64 = 5;
/// How many values are returned.
const MAX_RESULTS: usize = 7000;

/// Values from an offset on, at most so many; both zero stands for all. Unless it is all, the place of the rest comes
/// first, which is -1 if there is none.
pub(super) fn unpack(arguments: &Arguments, limit: i64, offset: i64) -> mlua::Result<MultiValue> {
    let text = arguments.string(1)?;
    let bytes = text.as_bytes();
    let (Ok(start), Ok(most)) = (usize::try_from(offset), usize::try_from(limit)) else {
        let length = bytes.len();
        // So says lua-cmsgpack, which does not look at the limit.
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {length}.");
        return Err(Error::runtime(text));
    };
    let Some(rest) = bytes.get(start..) else {
        let text = format!("Start offset {offset} greater than input length {}.", bytes.len());
        return Err(Error::runtime(text));
    };
    let is_all = most == 0 && start == 0;
    let mut input = Input { lua: arguments.lua, meter: arguments.meter, rest };
    let mut values = MultiValue::new();
    while !input.rest.is_empty() && (is_all || values.len() < most) {
        if values.len() == MAX_RESULTS {
            let text = "too many return values at once; use unpack_one or unpack_limit instead.";
            return Err(Error::runtime(format!("stack overflow ({text})")));
        }
        values.push_back(input.value()?);
    }
    if !is_all {
        let place = bytes.len() - input.rest.len();
        let place = i64::try_from(place).ok().filter(|_| !input.rest.is_empty());
        values.push_front(Value::Integer(place.unwrap_or(-1)));
    }
    Ok(values)
}

/// Bytes that values are read from.
struct Input<'b> {
    lua: &'b Lua,
    meter: &'b Meter,
    rest: &'b [u8],
}

/// A table that is not complete.
struct Open {
    table: Table,
    /// How many elements or members are to come.
    left: usize,
    next: Next,
}

enum Next {
    /// The element of this place.
    Element(usize),
    /// A member's key.
    Key,
    /// The value of a member.
    Member(Value),
}

impl Open {
    fn put(&mut self, value: Value) -> mlua::Result<()> {
        match std::mem::replace(&mut self.next, Next::Key) {
            Next::Element(place) => {
                self.next = Next::Element(place + 1);
                self.left -= 1;
                self.table.raw_set(place, value)
            }
            Next::Key => {
                self.next = Next::Member(value);
                Ok(())
            }
            Next::Member(key) => {
                self.left -= 1;
                match key {
                    Value::Nil => Err(Error::runtime("table index is nil")),
                    Value::Number(number) if number.is_nan() => Err(Error::runtime("table index is NaN")),
                    key => self.table.raw_set(key, value),
                }
            }
        }
    }
}

/// What a value begins with.
enum Start {
    Whole(Value),
    Table(usize, Next),
}

impl<'b> Input<'b> {
    /// The next value.
    fn value(&mut self) -> mlua::Result<Value> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            self.meter.count(VALUE)?;
            let mut value = match self.start()? {
                Start::Whole(value) => value,
                Start::Table(0, _) => Value::Table(self.lua.create_table()?),
                Start::Table(..) if open.len() == MAX_DEPTH => {
                    return Err(Error::runtime("Too many nested tables in input."));
                }
                Start::Table(left, next) => {
                    open.push(Open { table: self.lua.create_table()?, left, next });
                    continue;
                }
            };
            // It may be the last of the table that it is in, and that of another.
            loop {
                let Some(table) = open.last_mut() else { return Ok(value) };
                table.put(value)?;
                match open.pop_if(|table| table.left == 0) {
                    Some(complete) => value = Value::Table(complete.table),
                    None => break,
                }
            }
        }
    }

    fn start(&mut self) -> mlua::Result<Start> {
        let [marker] = self.array()?;
        let value = match Marker::from_u8(marker) {
            Marker::Null => Value::Nil,
            Marker::False => Value::Boolean(false),
            Marker::True => Value::Boolean(true),
            Marker::FixPos(number) => Value::Integer(number.into()),
            Marker::FixNeg(number) => Value::Integer(number.into()),
            Marker::U8 => Value::Integer(u8::from_be_bytes(self.array()?).into()),
            Marker::U16 => Value::Integer(u16::from_be_bytes(self.array()?).into()),
            Marker::U32 => Value::Integer(u32::from_be_bytes(self.array()?).into()),
            // As in lua-cmsgpack, the largest are negative.
            Marker::U64 | Marker::I64 => Value::Integer(i64::from_be_bytes(self.array()?)),
            Marker::I8 => Value::Integer(i8::from_be_bytes(self.array()?).into()),
            Marker::I16 => Value::Integer(i16::from_be_bytes(self.array()?).into()),
            Marker::I32 => Value::Integer(i32::from_be_bytes(self.array()?).into()),
            Marker::F32 => Value::Number(f32::from_be_bytes(self.array()?).into()),
            Marker::F64 => Value::Number(f64::from_be_bytes(self.array()?)),
            Marker::FixStr(length) => self.string(length.into())?,
            Marker::Str8 => self.length::<1>().and_then(|length| self.string(length))?,
            Marker::Str16 => self.length::<2>().and_then(|length| self.string(length))?,
            Marker::Str32 => self.length::<4>().and_then(|length| self.string(length))?,
            Marker::FixArray(length) => return Ok(Start::Table(length.into(), Next::Element(1))),
            Marker::Array16 => return Ok(Start::Table(self.length::<2>()?, Next::Element(1))),
            Marker::Array32 => return Ok(Start::Table(self.length::<4>()?, Next::Element(1))),
            Marker::FixMap(length) => return Ok(Start::Table(length.into(), Next::Key)),
            Marker::Map16 => return Ok(Start::Table(self.length::<2>()?, Next::Key)),
            Marker::Map32 => return Ok(Start::Table(self.length::<4>()?, Next::Key)),
            _ => return Err(Error::runtime("Bad data format in input.")),
        };
        Ok(Start::Whole(value))
    }

    fn array<const N: usize>(&mut self) -> mlua::Result<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*array)
    }

    fn length<const N: usize>(&mut self) -> mlua::Result<usize> {
        Ok(self.array::<N>()?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn string(&mut self, length: usize) -> mlua::Result<Value> {
        let (text, rest) = self.rest.split_at_checked(length).ok_or_else(missing)?;
        self.rest = rest;
        Ok(Value::String(self.lua.create_string(text)?))
    }
}

fn missing() -> Error {
    Error::runtime("Missing bytes in input.")
}

#[cfg(test)]
mod tests {
    use super::super::super::bit::tests::{expect, shown};
    use super::super::library;

    #[test]
    fn values_are_read_as_by_redis() {
        let results = [
            (r"cmsgpack.unpack('\1\2\127\224\255')", "1 2 127 -32 -1"),
            (r"cmsgpack.unpack('\192\194\195')", "nil false true"),
            (r"cmsgpack.unpack('\204\200\205\1\2\206\255\255\255\255')", "200 258 4294967295"),
            (r"cmsgpack.unpack('\207\255\255\255\255\255\255\255\255')", "-1"),
            (r"cmsgpack.unpack('\208\200\209\255\254\210\255\255\255\254')", "-56 -2 -2"),
            (r"cmsgpack.unpack('\211\128\0\0\0\0\0\0\0')", "-9223372036854775808"),
            (r"cmsgpack.unpack('\202\63\192\0\0\202\64\64\0\0')", "1.5 3"),
            (r"cmsgpack.unpack('\203\63\185\153\153\153\153\153\154')", "0.1"),
            (r"cmsgpack.unpack('\202\127\128\0\0\202\127\192\0\0')", "inf NaN"),
            (r"cmsgpack.unpack('\161a\217\2ab\218\0\2ab\219\0\0\0\2ab')", "a ab ab ab"),
            (r"cmsgpack.unpack('\144\128\146\1\192\146\192\1')", "{} {} {1=1} {2=1}"),
            (r"cmsgpack.unpack('\220\0\2\1\2\221\0\0\0\2\1\2')", "{1=1 2=2} {1=1 2=2}"),
            (r"cmsgpack.unpack('\222\0\1\1\2\223\0\0\0\1\1\2')", "{1=2} {1=2}"),
            (r"cmsgpack.unpack('\130\161a\146\1\144\161b\129\195\1')", "{a={1=1 2={}} b={true=1}}"),
            (r"cmsgpack.unpack('\129\144\1\129\202\64\64\0\0\1\129\161a\192')", "{{}=1} {3=1} {}"),
            ("cmsgpack.unpack(5), cmsgpack.unpack('')", "53"),
        ];
        expect("cmsgpack", library, &results);
    }

    #[test]
    fn parts_are_read_as_by_redis() {
        let results = [
            (r"cmsgpack.unpack_one('\1\2\3')", "1 1"),
            (r"cmsgpack.unpack_one('\1\2\3', 1)", "2 2"),
            (r"cmsgpack.unpack_one('\1\2\3', '2')", "-1 3"),
            (r"cmsgpack.unpack_one('\1\2\3', 3)", "-1"),
            (r"cmsgpack.unpack_one('\1\2\3', 4)", "Start offset 4 greater than input length 3."),
            (
                r"cmsgpack.unpack_one('\1\2\3', -1)",
                "Invalid request to unpack with offset of -1 and limit of 3.",
            ),
            (r"cmsgpack.unpack_limit('\1\2\3', 2)", "2 1 2"),
            (r"cmsgpack.unpack_limit('\1\2\3', 2, 1)", "-1 2 3"),
            (r"cmsgpack.unpack_limit('\1\2\3', 0)", "1 2 3"),
            (r"cmsgpack.unpack_limit('\1\2\3', 0, 1)", "1"),
            (r"cmsgpack.unpack_limit('\1\193', 1)", "1 1"),
            ("cmsgpack.unpack_limit('', 5)", "-1"),
            (
                r"cmsgpack.unpack_limit('\1\2\3', -1)",
                "Invalid request to unpack with offset of 0 and limit of 3.",
            ),
        ];
        expect("cmsgpack", library, &results);
    }

    #[test]
    fn bytes_that_are_no_values_are_refused_as_by_redis() {
        let bad = "Bad data format in input.";
        let missing = "Missing bytes in input.";
        let results = [
            (r"cmsgpack.unpack('\193')", bad),
            (r"cmsgpack.unpack('\196\2ab')", bad),
            (r"cmsgpack.unpack('\199\2ab')", bad),
            (r"cmsgpack.unpack('\212\2a')", bad),
            (r"cmsgpack.unpack('\205\1')", missing),
            (r"cmsgpack.unpack('\162a')", missing),
            (r"cmsgpack.unpack('\219\255\255\255\255ab')", missing),
            (r"cmsgpack.unpack('\146\1')", missing),
            (r"cmsgpack.unpack('\129\161a')", missing),
            (r"cmsgpack.unpack('\221\255\255\255\255\1')", missing),
            (r"cmsgpack.unpack('\223\255\255\255\255\1')", missing),
            (r"cmsgpack.unpack('\129\192\1')", "table index is nil"),
            (r"cmsgpack.unpack('\129\203\127\248\0\0\0\0\0\0\1')", "table index is NaN"),
            (r"cmsgpack.unpack('\129\192')", missing),
            ("cmsgpack.unpack()", "bad argument #1 to 'unpack' (string expected, got no value)"),
            ("cmsgpack.unpack_one('', {})", "bad argument #2 to 'unpack_one' (number expected, got table)"),
            (
                "cmsgpack.unpack_limit('')",
                "bad argument #2 to 'unpack_limit' (number expected, got no value)",
            ),
            (
                r"cmsgpack.unpack(('\1'):rep(10000))",
                "stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
            ),
        ];
        expect("cmsgpack", library, &results);
    }

    #[test]
    fn depth_is_bounded() {
        let script = r"type(cmsgpack.unpack(('\145'):rep(1900) .. '\1'))";
        assert_eq!(shown("cmsgpack", library, script), "table");
        for script in
            [r"cmsgpack.unpack(('\145'):rep(10000000))", r"cmsgpack.unpack(('\129\1'):rep(1000000))"]
        {
            assert_eq!(shown("cmsgpack", library, script), "Too many nested tables in input.");
        }
    }
}
