//! `cmsgpack`: values as MessagePack, with the bytes of the library lua-cmsgpack that Redis gives to scripts; and what
//! libraries write values into.
//!
//! A table whose keys are 1 to the number of its elements is an array, and so is the empty one; other tables are maps.
//! Whole numbers are integers. What has no form in MessagePack is nil, and so is a table inside 16 others.

mod unpack;

use super::arguments::{Arguments, define};
use super::meter::Meter;
use mlua::{Error, Lua, LuaString, Table, Value};
use rmp::encode::{
    ByteBuf, write_array_len, write_bool, write_f32, write_f64, write_map_len, write_nil, write_sint,
    write_str_len,
};
use unpack::unpack;

/// How many bytes a library writes, with what it keeps on the way.
const MAX_OUTPUT: usize = 64 << 20;
/// What a table counts beside what is written of it: one that stands in many places takes time in each.
const TABLE: usize = 64;
/// How many instructions a value counts that is written, and how many bytes count as one.
const VALUE: u64 = 5;
const BYTES_PER_STEP: usize = 16;
/// How deep tables may be nested to be packed: what is deeper is nil.
const MAX_DEPTH: usize = 16;

/// The library.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    define(lua, &library, "pack", pack)?;
    define(lua, &library, "unpack", |arguments| unpack(arguments, 0, 0))?;
    define(lua, &library, "unpack_one", |arguments| unpack(arguments, 1, arguments.integer_or(2, 0)?))?;
    define(lua, &library, "unpack_limit", |arguments| {
        unpack(arguments, arguments.integer(2)?, arguments.integer_or(3, 0)?)
    })?;
    Ok(library)
}

/// Bytes that a library writes. They are limited, together with what their tables count.
#[derive(Debug)]
pub(super) struct Output<'m> {
    meter: &'m Meter,
    bytes: ByteBuf,
    tables: usize,
}

impl<'m> Output<'m> {
    pub fn new(meter: &'m Meter) -> Self {
        Output { meter, bytes: ByteBuf::new(), tables: 0 }
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        self.meter.count((bytes.len() / BYTES_PER_STEP) as u64)?;
        self.check(bytes.len())?;
        self.bytes.as_mut_vec().extend_from_slice(bytes);
        Ok(())
    }

    /// A value is written, or a member is looked at.
    pub fn count_value(&self) -> mlua::Result<()> {
        self.meter.count(VALUE)
    }

    /// A table is written.
    pub fn count_table(&mut self) -> mlua::Result<()> {
        self.tables += TABLE;
        self.check(0)
    }

    /// Appends the start of a value in MessagePack.
    fn write<T, E: std::fmt::Display>(
        &mut self,
        write: impl FnOnce(&mut ByteBuf) -> Result<T, E>,
    ) -> mlua::Result<()> {
        self.check(0)?;
        write(&mut self.bytes).map(drop).map_err(|error| Error::runtime(error.to_string()))
    }

    fn check(&self, more: usize) -> mlua::Result<()> {
        match self.bytes.as_slice().len() + self.tables + more > MAX_OUTPUT {
            true => Err(Error::runtime(format!("the values take more than {} MiB", MAX_OUTPUT >> 20))),
            false => Ok(()),
        }
    }

    /// The bytes as a string of Lua.
    pub fn into_string(self, lua: &Lua) -> mlua::Result<LuaString> {
        lua.create_string(self.bytes.as_slice())
    }
}

/// `pack(...)`: all values, one after the other.
fn pack(arguments: &Arguments) -> mlua::Result<LuaString> {
    if arguments.count() == 0 {
        return Err(arguments.bad(0, "MessagePack pack needs input."));
    }
    let mut output = Output::new(arguments.meter);
    for value in arguments.values() {
        write(&mut output, value, 0)?;
    }
    output.into_string(arguments.lua)
}

fn write(output: &mut Output, value: &Value, depth: usize) -> mlua::Result<()> {
    output.count_value()?;
    match value {
        Value::Boolean(value) => output.write(|bytes| write_bool(bytes, *value)),
        Value::Integer(number) => output.write(|bytes| write_sint(bytes, *number)),
        Value::Number(number) => write_float(output, *number),
        Value::String(text) => {
            let text = text.as_bytes();
            output.write(|bytes| write_str_len(bytes, length(text.len())?))?;
            output.extend(&text)
        }
        Value::Table(table) => {
            output.count_table()?;
            match depth < MAX_DEPTH {
                true => write_table(output, table, depth + 1),
                false => output.write(write_nil),
            }
        }
        _ => output.write(write_nil),
    }
}

fn write_float(output: &mut Output, number: f64) -> mlua::Result<()> {
    let integer = number as i64;
    let short = number as f32;
    // 2^63 is the closest to the largest integer, and none.
    if integer as f64 == number && integer != i64::MAX {
        output.write(|bytes| write_sint(bytes, integer))
    } else if f64::from(short) == number {
        output.write(|bytes| write_f32(bytes, short))
    } else {
        output.write(|bytes| write_f64(bytes, number))
    }
}

fn write_table(output: &mut Output, table: &Table, depth: usize) -> mlua::Result<()> {
    let (mut count, mut last) = (0_usize, 0_usize);
    let mut is_array = true;
    for pair in table.pairs::<Value, Value>() {
        output.count_value()?;
        count += 1;
        match pair?.0 {
            Value::Integer(place @ 1..) => last = last.max(usize::try_from(place).unwrap_or(usize::MAX)),
            _ => is_array = false,
        }
    }
    if is_array && count == last {
        output.write(|bytes| write_array_len(bytes, length(count)?))?;
        return (1..=count).try_for_each(|place| write(output, &table.raw_get(place)?, depth));
    }
    output.write(|bytes| write_map_len(bytes, length(count)?))?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        write(output, &key, depth)?;
        write(output, &value, depth)?;
    }
    Ok(())
}

/// A length in MessagePack's 32 bits. What is longer does not fit the output.
fn length(length: usize) -> Result<u32, rmp::encode::ValueWriteError<std::convert::Infallible>> {
    Ok(u32::try_from(length).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::bit::tests::{expect, shown};
    use super::library;

    #[test]
    fn scalars_are_written_as_by_redis() {
        let results = [
            ("cmsgpack.pack(nil, true, false, print)", "<c0><c3><c2><c0>"),
            (
                "cmsgpack.pack(0, 127, 128, 255, 256, 65535)",
                "<00><7f><cc><80><cc><ff><cd><01><00><cd><ff><ff>",
            ),
            ("cmsgpack.pack(65536, 4294967295)", "<ce><00><01><00><00><ce><ff><ff><ff><ff>"),
            ("cmsgpack.pack(4294967296)", "<cf><00><00><00><01><00><00><00><00>"),
            ("cmsgpack.pack(2^53)", "<cf><00> <00><00><00><00><00><00>"),
            (
                "cmsgpack.pack(2^62), cmsgpack.pack(2^63)",
                "<cf>@<00><00><00><00><00><00><00> <ca>_<00><00><00>",
            ),
            ("cmsgpack.pack(-2^63)", "<d3><80><00><00><00><00><00><00><00>"),
            ("cmsgpack.pack(-1, -32, -33, -128, -129)", "<ff><e0><d0><df><d0><80><d1><ff><7f>"),
            ("cmsgpack.pack(-32768, -32769)", "<d1><80><00><d2><ff><ff><7f><ff>"),
            ("cmsgpack.pack(-2147483648)", "<d2><80><00><00><00>"),
            ("cmsgpack.pack(-2147483649)", "<d3><ff><ff><ff><ff><7f><ff><ff><ff>"),
            ("cmsgpack.pack(3.0, -0.0, 1.5)", "<03><00><ca>?<c0><00><00>"),
            ("cmsgpack.pack(0.1)", "<cb>?<b9><99><99><99><99><99><9a>"),
            ("cmsgpack.pack(1/0, -1/0)", "<ca><7f><80><00><00><ca><ff><80><00><00>"),
            ("cmsgpack.pack('', 'a', '12')", "<a0><a1>a<a2>12"),
            ("cmsgpack.pack(('x'):rep(31)):sub(1, 3)", "<bf>xx"),
            ("cmsgpack.pack(('x'):rep(32)):sub(1, 3)", "<d9> x"),
            ("cmsgpack.pack(('x'):rep(256)):sub(1, 4)", "<da><01><00>x"),
            ("cmsgpack.pack(('x'):rep(65536)):sub(1, 6)", "<db><00><01><00><00>x"),
            ("cmsgpack.pack()", "bad argument #0 to 'pack' (MessagePack pack needs input.)"),
            ("cmsgpack._NAME, cmsgpack._VERSION", "cmsgpack lua-cmsgpack 0.4.0"),
        ];
        expect("cmsgpack", library, &results);
    }

    #[test]
    fn tables_are_written_as_by_redis() {
        let nested = "<91>".repeat(16);
        let results = [
            ("cmsgpack.pack({}, {1, 2, 3}, {{}, {{}}})", "<90><93><01><02><03><92><90><91><90>"),
            ("cmsgpack.pack({1, nil, 3})", "<82><01><01><03><03>"),
            ("cmsgpack.pack({[2]=1}, {[0]=1}, {[-1]=1})", "<81><02><01><81><00><01><81><ff><01>"),
            ("cmsgpack.pack({[1.5]=1})", "<81><ca>?<c0><00><00><01>"),
            ("cmsgpack.pack({a=1}, {['1']=1}, {[true]=1})", "<81><a1>a<01><81><a1>1<01><81><c3><01>"),
            ("cmsgpack.pack({[{}]=1}, {[print]=1})", "<81><90><01><81><c0><01>"),
            ("cmsgpack.pack(setmetatable({}, {__index={1}}))", "<90>"),
            (
                "local t = {} for i = 1, 16 do t[i] = i end return cmsgpack.pack(t):sub(1, 4)",
                "<dc><00><10><01>",
            ),
            (
                "local t = {} for i = 1, 65536 do t[i] = i end return cmsgpack.pack(t):sub(1, 5)",
                "<dd><00><01><00><00>",
            ),
            (
                "local t = {} for i = 1, 16 do t['k' .. i] = i end return cmsgpack.pack(t):sub(1, 3)",
                "<de><00><10>",
            ),
            ("local t = {} for i = 1, 16 do t = {t} end return cmsgpack.pack(t)", &format!("{nested}<c0>")),
            ("local t = {} t[1] = t return cmsgpack.pack(t)", &format!("{nested}<c0>")),
            ("local t = {} t[t] = t return #cmsgpack.pack(t)", "131071"),
        ];
        expect("cmsgpack", library, &results);
    }

    #[test]
    fn what_is_written_is_bounded() {
        let large = "the values take more than 64 MiB";
        let results = [
            ("local t = {} for i = 1, 40 do t[i] = t end return cmsgpack.pack(t)", large),
            ("local s = ('x'):rep(30000000) return cmsgpack.pack(s, s, s)", large),
        ];
        expect("cmsgpack", library, &results);
    }

    #[test]
    fn what_was_written_is_read_again() {
        let script = r#"
            math.randomseed(7)
            local function any(depth)
                local kind = math.random(depth < 4 and 7 or 5)
                if kind == 1 then return math.floor(2 ^ math.random(0, 62)) end
                if kind == 2 then return math.random() end
                if kind == 3 then return -math.random(2000000000) end
                if kind == 4 then return math.random(2) == 1 end
                if kind == 5 then return ("x"):rep(math.random(0, 300)) end
                local made = {}
                for place = 1, math.random(0, 20) do made[kind == 6 and place or "k" .. place] = any(depth + 1) end
                return made
            end
            for _ = 1, 2000 do
                local packed = cmsgpack.pack(any(0), any(0))
                local first, second = cmsgpack.unpack(packed)
                if #cmsgpack.pack(first, second) ~= #packed then return packed end
                local rest, one = cmsgpack.unpack_one(packed)
                local last, two = cmsgpack.unpack_one(packed, rest)
                if last ~= -1 or #cmsgpack.pack(one, two) ~= #packed then return packed end
            end
            return true"#;
        assert_eq!(shown("cmsgpack", library, script), "true");
    }
}
