//! `cjson`: values as JSON, with the bytes and the texts of errors of the library lua-cjson that Redis gives to scripts.
//!
//! A table whose keys are all positive integers is an array, and what misses in it is null; other tables are objects, and
//! so is the empty one. Bytes that are not UTF-8 stay as they are.
//!
//! Deviations: what a script configures holds until it ends, and tables are never nested in more than 1000 others.

mod decode;
mod settings;

use super::arguments::{Arguments, define, type_name};
use super::cmsgpack::Output;
use super::number::general;
use decode::decode;
use mlua::{Error, Lua, Table, Value};
pub(super) use settings::Settings;
use settings::{Invalid, Options};
use std::rc::Rc;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The library.
pub(super) fn library(lua: &Lua, settings: &Rc<Settings>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    library.raw_set("null", Value::NULL)?;
    let used = Rc::clone(settings);
    define(lua, &library, "encode", move |arguments| {
        let options = used.get();
        let mut encoder = Encoder { options, output: Output::new(arguments.meter) };
        encoder.value(only(arguments)?, 0)?;
        encoder.output.into_string(arguments.lua)
    })?;
    let used = Rc::clone(settings);
    define(lua, &library, "decode", move |arguments| {
        only(arguments)?;
        decode(arguments, used.get(), &arguments.string(1)?.as_bytes())
    })?;
    define(lua, &library, "new", |arguments| self::library(arguments.lua, &Rc::default()))?;
    settings::define_in(lua, &library, settings)?;
    Ok(library)
}

fn only<'a>(arguments: &'a Arguments) -> mlua::Result<&'a Value> {
    match arguments.count() {
        1 => Ok(arguments.value(1)),
        _ => Err(arguments.bad(1, "expected 1 argument")),
    }
}

/// Writes a value.
struct Encoder<'m> {
    options: Options,
    output: Output<'m>,
}

impl Encoder<'_> {
    /// Writes a value that is in so many tables.
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.output.count_value()?;
        match value {
            Value::Nil => self.output.extend(b"null"),
            Value::Boolean(true) => self.output.extend(b"true"),
            Value::Boolean(false) => self.output.extend(b"false"),
            Value::Integer(number) => self.number(*number as f64),
            Value::Number(number) => self.number(*number),
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth + 1),
            null if *null == Value::NULL => self.output.extend(b"null"),
            other => Err(unfit(other, "type not supported")),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if depth > self.options.encode_depth() {
            return Err(Error::runtime(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        self.output.count_table()?;
        let Some(length) = self.array_length(table)? else { return self.members(table, depth) };
        self.output.extend(b"[")?;
        for place in 1..=length {
            if place > 1 {
                self.output.extend(b",")?;
            }
            self.value(&table.raw_get(place)?, depth)?;
        }
        self.output.extend(b"]")
    }

    fn members(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        let mut separator: &[u8] = b"{";
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.output.extend(separator)?;
            separator = b",";
            match &key {
                Value::String(name) => self.text(&name.as_bytes())?,
                number => {
                    self.output.extend(b"\"")?;
                    self.value(number, depth)?;
                    self.output.extend(b"\"")?;
                }
            }
            self.output.extend(b":")?;
            self.value(&value, depth)?;
        }
        self.output.extend(if separator == b"{" { b"{}" } else { b"}" })
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        match self.options.encode_invalid {
            Invalid::Off if !number.is_finite() => {
                Err(unfit(&Value::Number(number), "must not be NaN or Inf"))
            }
            Invalid::Null if !number.is_finite() => self.output.extend(b"null"),
            _ => self.output.extend(general(number, self.options.precision).as_bytes()),
        }
    }

    /// The length of a table that is an array; `None` if it is an object.
    fn array_length(&self, table: &Table) -> mlua::Result<Option<i64>> {
        let (mut count, mut last) = (0_i64, 0_i64);
        let mut is_array = true;
        for pair in table.pairs::<Value, Value>() {
            self.output.count_value()?;
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
        let (ratio, safe) = (self.options.sparse_ratio.into(), self.options.sparse_safe.into());
        let is_sparse = ratio > 0 && last > count.saturating_mul(ratio) && last > safe;
        match (is_sparse, self.options.sparse_is_object) {
            (false, _) => Ok(Some(last)),
            (true, true) => Ok(None),
            (true, false) => Err(unfit(&Value::Table(table.clone()), "excessively sparse array")),
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

#[cfg(test)]
mod tests {
    use super::super::bit::tests::{expect, shown};
    use mlua::{Lua, Table};

    fn fresh(lua: &Lua) -> mlua::Result<Table> {
        super::library(lua, &Default::default())
    }

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
            ("cjson.encode(1), cjson.encode(-1234567890123)", "1 -1234567890123"),
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
        expect("cjson", fresh, &results);
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
            ("#cjson.encode({[1]='a', [3000000000]='x'})", "26"),
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
        expect("cjson", fresh, &results);
    }

    #[test]
    fn what_is_configured_holds() {
        let results = [
            ("cjson.encode_sparse_array()", "false 2 10"),
            ("cjson.encode_sparse_array(true, 3, 4), cjson.encode({[20]=1})", r#"true {"20":1}"#),
            ("cjson.encode_sparse_array('on', 0) return cjson.encode({[12]=1}):sub(-7)", "null,1]"),
            (
                "cjson.encode_max_depth(2) return cjson.encode({{{}}})",
                "Cannot serialise, excessive nesting (3)",
            ),
            (
                "cjson.decode_max_depth(1) return cjson.decode('[[]]')",
                "Found too many nested data structures (2) at character 2",
            ),
            ("cjson.encode_number_precision(3), cjson.encode(1/3)", "3 0.333"),
            ("cjson.encode_keep_buffer(), cjson.encode_keep_buffer('off')", "true false"),
            (
                "cjson.encode_invalid_numbers(), cjson.encode_invalid_numbers(true), cjson.encode(1/0)",
                "false true inf",
            ),
            ("cjson.encode_invalid_numbers('null'), cjson.encode({0/0})", "null [null]"),
            (
                "cjson.decode_invalid_numbers(false) return cjson.decode('0x10')",
                "Expected value but found invalid number at character 1",
            ),
            ("cjson.new().encode_number_precision(2), cjson.encode_number_precision()", "2 14"),
            (
                "cjson.encode_number_precision(15)",
                "bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)",
            ),
            (
                "cjson.encode_max_depth(1, 2)",
                "bad argument #2 to 'encode_max_depth' (found too many arguments)",
            ),
            ("cjson.encode_keep_buffer('x')", "bad argument #1 to 'encode_keep_buffer' (invalid option 'x')"),
        ];
        expect("cjson", fresh, &results);
    }

    #[test]
    fn what_is_written_is_bounded() {
        let large = "the values take more than 64 MiB";
        let results = [
            // Two to the power of 40 tables.
            ("local t = {} for i = 1, 40 do t = {t, t} end return cjson.encode(t)", large),
            (r"local s = ('\1'):rep(12000000) return cjson.encode({s})", large),
        ];
        expect("cjson", fresh, &results);
    }

    #[test]
    fn what_was_written_is_read_again() {
        let script = r#"
            local function same(a, b)
                if type(a) ~= "table" then return a == b end
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
                if kind == 1 then return math.random(-1000000, 1000000) end
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
            math.randomseed(7)
            for _ = 1, 2000 do
                local value = any(0)
                local text = cjson.encode(value)
                if not same(value, cjson.decode(text)) or #cjson.encode(cjson.decode(text)) ~= #text then return text end
            end
            return true"#;
        assert_eq!(shown("cjson", fresh, script), "true");
    }
}
