//! `cjson`: values as JSON, with the bytes and the texts of errors of the library lua-cjson that Redis gives to scripts.
//!
//! A table whose keys are all positive integers is an array, and what misses in it is null; other tables are objects, and
//! so is the empty one. Bytes that are not UTF-8 stay as they are.
//!
//! Deviations: the members of an object come in the order of their keys, numbers and then strings byte by byte, not in that
//! of Lua 5.1's memory; integers of Lua 5.4 have all their digits; numbers that JSON does not know (`0x10`, `inf`, `+1`) are
//! refused; and there are no functions that configure the library, for scripts would leave their settings to others.

mod decode;

use super::bit::{Arguments, define, type_name};
use super::cmsgpack::{Key, Output};
use super::number::general;
use decode::decode;
use mlua::{Error, Lua, Table, Value};
use std::ops::RangeInclusive;
use std::vec::IntoIter;

/// How deep tables may be nested.
const MAX_DEPTH: usize = 1000;
/// How many digits of a number are written.
const DIGITS: usize = 14;
const HEX: &[u8; 16] = b"0123456789abcdef";
/// An array up to this length may have any holes; a longer one has an element for every so many places.
const SPARSE_LENGTH: i64 = 10;
const SPARSE_RATIO: i64 = 2;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    library.raw_set("null", Value::NULL)?;
    define(lua, &library, "encode", |arguments| {
        let mut encoder = Encoder { lua: arguments.lua, output: Output::default(), open: Vec::new() };
        encoder.encode(only(arguments)?)?;
        encoder.output.into_string(arguments.lua)
    })?;
    define(lua, &library, "decode", |arguments| {
        only(arguments)?;
        decode(arguments.lua, &arguments.string(1)?.as_bytes())
    })?;
    Ok(library)
}

fn only<'a>(arguments: &'a Arguments) -> mlua::Result<&'a Value> {
    match arguments.count() {
        1 => Ok(arguments.value(1)),
        _ => Err(arguments.bad(1, "expected 1 argument")),
    }
}

/// Writes a value.
struct Encoder<'l> {
    lua: &'l Lua,
    output: Output,
    /// The tables that are begun, each in the one before.
    open: Vec<Begun>,
}

/// A table of which a part is written.
struct Begun {
    table: Table,
    rest: Rest,
    is_first: bool,
}

enum Rest {
    Elements(RangeInclusive<i64>),
    Members(IntoIter<Key>),
}

impl Begun {
    /// The next element, or member with its key.
    fn next(&mut self, lua: &Lua) -> mlua::Result<Option<(Option<Key>, Value)>> {
        match &mut self.rest {
            Rest::Elements(places) => match places.next() {
                Some(place) => Ok(Some((None, self.table.raw_get(place)?))),
                None => Ok(None),
            },
            Rest::Members(keys) => match keys.next() {
                Some(key) => {
                    let value = self.table.raw_get(key.value(lua)?)?;
                    Ok(Some((Some(key), value)))
                }
                None => Ok(None),
            },
        }
    }
}

impl Encoder<'_> {
    fn encode(&mut self, value: &Value) -> mlua::Result<()> {
        self.begin(value)?;
        while let Some(begun) = self.open.last_mut() {
            let Some((key, value)) = begun.next(self.lua)? else {
                self.output.extend(match begun.rest {
                    Rest::Elements(_) => b"]",
                    Rest::Members(_) => b"}",
                })?;
                self.open.pop();
                continue;
            };
            if !std::mem::take(&mut begun.is_first) {
                self.output.extend(b",")?;
            }
            if let Some(key) = key {
                self.output.forget(&key);
                self.name(&key)?;
            }
            self.begin(&value)?;
        }
        Ok(())
    }

    /// Writes a value, of a table its beginning.
    fn begin(&mut self, value: &Value) -> mlua::Result<()> {
        match value {
            Value::Nil => self.output.extend(b"null"),
            Value::Boolean(true) => self.output.extend(b"true"),
            Value::Boolean(false) => self.output.extend(b"false"),
            Value::Integer(number) => self.output.extend(number.to_string().as_bytes()),
            Value::Number(number) => self.float(*number),
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(table) => self.begin_table(table),
            null if *null == Value::NULL => self.output.extend(b"null"),
            other => Err(unfit(other, "type not supported")),
        }
    }

    fn begin_table(&mut self, table: &Table) -> mlua::Result<()> {
        let depth = self.open.len() + 1;
        if depth > MAX_DEPTH {
            return Err(Error::runtime(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        self.output.count_table()?;
        let rest = match array_length(table)? {
            Some(length) => {
                self.output.extend(b"[")?;
                Rest::Elements(1..=length)
            }
            None => {
                self.output.extend(b"{")?;
                Rest::Members(self.output.keys(table)?.into_iter())
            }
        };
        self.open.push(Begun { table: table.clone(), rest, is_first: true });
        Ok(())
    }

    fn name(&mut self, key: &Key) -> mlua::Result<()> {
        match key {
            Key::Text(text) => self.text(text)?,
            key => {
                self.output.extend(b"\"")?;
                self.begin(&key.value(self.lua)?)?;
                self.output.extend(b"\"")?;
            }
        }
        self.output.extend(b":")
    }

    fn float(&mut self, number: f64) -> mlua::Result<()> {
        match number.is_finite() {
            true => self.output.extend(general(number, DIGITS).as_bytes()),
            false => Err(unfit(&Value::Number(number), "must not be NaN or Inf")),
        }
    }

    fn text(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.output.extend(b"\"")?;
        for run in text.split_inclusive(|byte| is_escaped(*byte)) {
            let Some((last, plain)) = run.split_last().filter(|(last, _)| is_escaped(**last)) else {
                self.output.extend(run)?;
                break;
            };
            self.output.extend(plain)?;
            match last {
                b'"' => self.output.extend(b"\\\""),
                b'\\' => self.output.extend(b"\\\\"),
                b'/' => self.output.extend(b"\\/"),
                0x08 => self.output.extend(b"\\b"),
                b'\t' => self.output.extend(b"\\t"),
                b'\n' => self.output.extend(b"\\n"),
                0x0c => self.output.extend(b"\\f"),
                b'\r' => self.output.extend(b"\\r"),
                other => {
                    let digit = |value: u8| HEX[usize::from(value & 15)];
                    self.output.extend(&[b'\\', b'u', b'0', b'0', digit(other >> 4), digit(*other)])
                }
            }?;
        }
        self.output.extend(b"\"")
    }
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | b'/' | 0..=0x1f | 0x7f)
}

fn unfit(value: &Value, reason: &str) -> Error {
    Error::runtime(format!("Cannot serialise {}: {reason}", type_name(value)))
}

/// The length of a table that is an array; `None` if it is an object.
fn array_length(table: &Table) -> mlua::Result<Option<i64>> {
    let (mut count, mut last) = (0_i64, 0_i64);
    let mut is_array = true;
    for pair in table.pairs::<Value, Value>() {
        match pair?.0 {
            // A place is an `int` of C.
            Value::Integer(place) if (1..=i64::from(i32::MAX)).contains(&place) => {
                count += 1;
                last = last.max(place);
            }
            Value::Integer(_) | Value::Number(_) | Value::String(_) => is_array = false,
            other => return Err(unfit(&other, "table key must be a number or string")),
        }
    }
    if !is_array || count == 0 {
        return Ok(None);
    }
    match last > count * SPARSE_RATIO && last > SPARSE_LENGTH {
        true => Err(unfit(&Value::Table(table.clone()), "excessively sparse array")),
        false => Ok(Some(last)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bit::tests::{expect, shown};
    use super::library;

    #[test]
    fn scalars_are_written_as_by_redis() {
        let results = [
            ("cjson.encode('')", r#""""#),
            (r#"cjson.encode('a/b"c\\d')"#, r#""a\/b\"c\\d""#),
            (r"cjson.encode('\b\t\n\f\r\0\1\31\127')", r#""\b\t\n\f\r\u0000\u0001\u001f\u007f""#),
            (r"cjson.encode('\128\255\195\169')", r#""<80><ff><c3><a9>""#),
            ("cjson.encode(nil)", "null"),
            ("cjson.encode(cjson.null)", "null"),
            ("cjson.encode(true), cjson.encode(false)", "true false"),
            ("cjson.encode(1), cjson.encode(-12345678901234)", "1 -12345678901234"),
            ("cjson.encode(1.5), cjson.encode(3.0), cjson.encode(-0.0)", "1.5 3 -0"),
            ("cjson.encode(1e14), cjson.encode(1e15), cjson.encode(99999999999999.5)", "1e+14 1e+15 1e+14"),
            ("cjson.encode(0.1), cjson.encode(0.1+0.2), cjson.encode(1/3)", "0.1 0.3 0.33333333333333"),
            ("cjson.encode(1e-4), cjson.encode(1e-5), cjson.encode(1e100)", "0.0001 1e-05 1e+100"),
            ("cjson.encode(5e-324)", "4.9406564584125e-324"),
            ("cjson.encode(1.7976931348623157e308)", "1.7976931348623e+308"),
            ("cjson.encode(print)", "Cannot serialise function: type not supported"),
            ("cjson.encode(0/0)", "Cannot serialise number: must not be NaN or Inf"),
            ("cjson.encode({a=-1/0})", "Cannot serialise number: must not be NaN or Inf"),
            ("cjson.encode()", "bad argument #1 to 'encode' (expected 1 argument)"),
            ("cjson.encode(1, 2)", "bad argument #1 to 'encode' (expected 1 argument)"),
            ("cjson._NAME, cjson._VERSION", "cjson 2.1.0"),
        ];
        expect("cjson", library, &results);
    }

    #[test]
    fn tables_are_written_as_by_redis() {
        let results = [
            ("cjson.encode({})", "{}"),
            ("cjson.encode({{}, {a={}}})", r#"[{},{"a":{}}]"#),
            ("cjson.encode({1, 2, {4, {5}}})", "[1,2,[4,[5]]]"),
            ("cjson.encode({1, nil, 3})", "[1,null,3]"),
            ("cjson.encode({1, cjson.null})", "[1,null]"),
            ("cjson.encode({[4]='a'})", r#"[null,null,null,"a"]"#),
            ("cjson.encode({[10]=0})", "[null,null,null,null,null,null,null,null,null,0]"),
            ("cjson.encode({[11]=0})", "Cannot serialise table: excessively sparse array"),
            ("local t = {} for i = 1, 9 do t[i] = 0 end t[20] = 0 return #cjson.encode(t)", "71"),
            (
                "local t = {} for i = 1, 9 do t[i] = 0 end t[21] = 0 return cjson.encode(t)",
                "Cannot serialise table: excessively sparse array",
            ),
            ("cjson.encode({[2147483647]=0})", "Cannot serialise table: excessively sparse array"),
            ("cjson.encode({[2147483648]=0})", r#"{"2147483648":0}"#),
            ("cjson.encode({[1]='a', [3000000000]='x'})", r#"{"1":"a","3000000000":"x"}"#),
            ("cjson.encode({[1e300]=0}), cjson.encode({[1.5]=0})", r#"{"1e+300":0} {"1.5":0}"#),
            ("cjson.encode({[0]=0}), cjson.encode({[-1]=0})", r#"{"0":0} {"-1":0}"#),
            ("cjson.encode({1, 2, x=3})", r#"{"1":1,"2":2,"x":3}"#),
            ("cjson.encode({['1']=1}), cjson.encode({['a/b']=1})", r#"{"1":1} {"a\/b":1}"#),
            ("cjson.encode({[1/0]=0})", "Cannot serialise number: must not be NaN or Inf"),
            ("cjson.encode({[true]=0})", "Cannot serialise boolean: table key must be a number or string"),
            ("cjson.encode({[{}]=0})", "Cannot serialise table: table key must be a number or string"),
            ("cjson.encode(setmetatable({}, {__index={1, 2}}))", "{}"),
            ("local t = {} t.t = t return cjson.encode(t)", "Cannot serialise, excessive nesting (1001)"),
            ("local t = {} t[1] = t return cjson.encode(t)", "Cannot serialise, excessive nesting (1001)"),
            ("local t = {} for i = 1, 999 do t = {t} end return #cjson.encode(t)", "2000"),
        ];
        expect("cjson", library, &results);
    }

    #[test]
    fn members_come_in_the_order_of_their_keys() {
        let script = "cjson.encode({b=1, a=2, [2]=3, [1.5]=4, [-1]=5, B=6, ['']=7})";
        assert_eq!(shown("cjson", library, script), r#"{"-1":5,"1.5":4,"2":3,"":7,"B":6,"a":2,"b":1}"#);
    }

    #[test]
    fn integers_have_all_their_digits() {
        let script = "cjson.encode({math.maxinteger, math.mininteger, 123456789012345})";
        assert_eq!(
            shown("cjson", library, script),
            "[9223372036854775807,-9223372036854775808,123456789012345]"
        );
    }

    #[test]
    fn what_is_written_is_bounded() {
        let large = "the values take more than 64 MiB";
        let results = [
            // Two to the power of 40 tables.
            ("local t = {} for i = 1, 40 do t = {t, t} end return cjson.encode(t)", large),
            (r"local s = ('\1'):rep(12000000) return cjson.encode({s})", large),
            // All its keys are kept while it is written, in each of a thousand tables that are all the same.
            ("local t = {} for i = 1, 100000 do t[i..'k'] = i end t[''] = t return cjson.encode(t)", large),
        ];
        expect("cjson", library, &results);
    }

    #[test]
    fn what_was_written_is_read_again() {
        let script = r#"
            local function same(a, b)
                if type(a) ~= "table" then return a == b and math.type(a) == math.type(b) end
                local count = 0
                for key, value in pairs(a) do
                    count = count + 1
                    if not same(value, b[key]) then return false end
                end
                for _ in pairs(b) do count = count - 1 end
                return count == 0
            end
            local function any(depth)
                local kind = math.random(depth < 4 and 7 or 5)
                if kind == 1 then return math.random(0) end
                if kind == 2 then return math.random(2000000) / 64 end
                if kind == 3 then return cjson.null end
                if kind == 4 then return math.random(2) == 1 end
                local length, made = math.random(6), {}
                if kind == 5 then
                    for place = 1, length do made[place] = string.char(math.random(0, 255)) end
                    return table.concat(made)
                end
                for place = 1, length do
                    made[kind == 6 and place or string.char(math.random(0, 255), place)] = any(depth + 1)
                end
                return made
            end
            local function whole(value)
                if math.type(value) == "float" and value == math.floor(value) then return math.floor(value) end
                if type(value) == "table" then for key, inner in pairs(value) do value[key] = whole(inner) end end
                return value
            end
            math.randomseed(7)
            for _ = 1, 2000 do
                local value = whole(any(0))
                local text = cjson.encode(value)
                if not same(value, cjson.decode(text)) or cjson.encode(cjson.decode(text)) ~= text then return text end
            end
            return true"#;
        assert_eq!(shown("cjson", library, script), "true");
    }
}
