//! `cmsgpack`: values as MessagePack, with the bytes of the library lua-cmsgpack that Redis gives to scripts; and what
//! libraries write values into.
//!
//! A table whose keys are 1 to the number of its elements is an array, and so is the empty one; other tables are maps.
//! Whole numbers are integers. What has no form in MessagePack is nil, and so is a table inside 16 others.
//!
//! Deviations: the members of a map come in the order of their keys, not in that of Lua 5.1's memory: numbers, strings
//! byte by byte, false, true, and the rest.

mod unpack;

use super::bit::{Arguments, define};
use mlua::{Error, Lua, LuaString, Table, Value};
use rmp::encode::{
    ByteBuf, write_array_len, write_bool, write_f32, write_f64, write_map_len, write_nil, write_sint,
    write_str_len,
};
use std::cmp::Ordering;
use unpack::unpack;

/// How many bytes a library writes, with what it keeps on the way.
const MAX_OUTPUT: usize = 64 << 20;
/// What a table counts beside what is written of it: one that stands in many places takes time in each.
const TABLE: usize = 64;
/// What a key counts, beside its bytes, until it is written.
const KEY: usize = 56;
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
        unpack(arguments, arguments.number(2)?.to_integer(), arguments.integer_or(3, 0)?)
    })?;
    Ok(library)
}

/// Bytes that a library writes. They are limited, together with what it keeps until they are written.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: ByteBuf,
    kept: usize,
}

impl Output {
    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        self.check(bytes.len())?;
        self.bytes.as_mut_vec().extend_from_slice(bytes);
        Ok(())
    }

    /// A table is written.
    pub fn count_table(&mut self) -> mlua::Result<()> {
        self.kept += TABLE;
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
        match self.bytes.as_slice().len() + self.kept + more > MAX_OUTPUT {
            true => Err(Error::runtime(format!("the values take more than {} MiB", MAX_OUTPUT >> 20))),
            false => Ok(()),
        }
    }

    /// The bytes as a string of Lua.
    pub fn into_string(self, lua: &Lua) -> mlua::Result<LuaString> {
        lua.create_string(self.bytes.as_slice())
    }

    /// The keys of a table that have an order, in it: the order of memory differs from interpreter to interpreter. They
    /// are kept until [`Output::forget`].
    pub fn keys(&mut self, table: &Table) -> mlua::Result<Vec<Key>> {
        let mut keys = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            if let Some(key) = Key::of(&pair?.0) {
                self.kept += key.size();
                self.check(0)?;
                keys.push(key);
            }
        }
        keys.sort_unstable_by(Key::compare);
        Ok(keys)
    }

    /// The key is written with its value.
    pub fn forget(&mut self, key: &Key) {
        self.kept -= key.size();
    }
}

/// A key of a table, without a hold on the interpreter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    Integer(i64),
    Float(f64),
    Text(Box<[u8]>),
    Boolean(bool),
}

impl Key {
    /// A key that has an order; `None` for tables, functions and the like.
    fn of(key: &Value) -> Option<Self> {
        Some(match key {
            Value::Integer(number) => Key::Integer(*number),
            Value::Number(number) => Key::Float(*number),
            Value::String(text) => Key::Text(text.as_bytes().to_vec().into_boxed_slice()),
            Value::Boolean(value) => Key::Boolean(*value),
            _ => return None,
        })
    }

    /// The key in Lua.
    pub fn value(&self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Key::Integer(number) => Value::Integer(*number),
            Key::Float(number) => Value::Number(*number),
            Key::Text(text) => Value::String(lua.create_string(text)?),
            Key::Boolean(value) => Value::Boolean(*value),
        })
    }

    /// What it counts while it is kept: the memory that it takes, and more.
    fn size(&self) -> usize {
        match self {
            Key::Text(text) => KEY + text.len(),
            _ => KEY,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let rank = |key: &Key| match key {
            Key::Integer(_) | Key::Float(_) => 0,
            Key::Text(_) => 1,
            Key::Boolean(_) => 2,
        };
        match (self, other) {
            (Key::Integer(a), Key::Integer(b)) => a.cmp(b),
            (Key::Float(a), Key::Float(b)) => a.total_cmp(b),
            // They are never the same number: as a key, a whole one is an integer.
            (Key::Integer(a), Key::Float(b)) => (*a as f64).total_cmp(b).then(Ordering::Less),
            (Key::Float(a), Key::Integer(b)) => a.total_cmp(&(*b as f64)).then(Ordering::Greater),
            (Key::Text(a), Key::Text(b)) => a.cmp(b),
            (Key::Boolean(a), Key::Boolean(b)) => a.cmp(b),
            (a, b) => rank(a).cmp(&rank(b)),
        }
    }
}

/// `pack(...)`: all values, one after the other.
fn pack(arguments: &Arguments) -> mlua::Result<LuaString> {
    if arguments.count() == 0 {
        return Err(arguments.bad(0, "MessagePack pack needs input."));
    }
    let mut output = Output::default();
    for value in arguments.values() {
        write(arguments.lua, &mut output, value, 0)?;
    }
    output.into_string(arguments.lua)
}

fn write(lua: &Lua, output: &mut Output, value: &Value, depth: usize) -> mlua::Result<()> {
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
                true => write_table(lua, output, table, depth + 1),
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

fn write_table(lua: &Lua, output: &mut Output, table: &Table, depth: usize) -> mlua::Result<()> {
    let (mut count, mut last) = (0_usize, 0_usize);
    let mut is_array = true;
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        match pair?.0 {
            Value::Integer(place @ 1..) => last = last.max(usize::try_from(place).unwrap_or(usize::MAX)),
            _ => is_array = false,
        }
    }
    if is_array && count == last {
        output.write(|bytes| write_array_len(bytes, length(count)?))?;
        return (1..=count).try_for_each(|place| write(lua, output, &table.raw_get(place)?, depth));
    }
    output.write(|bytes| write_map_len(bytes, length(count)?))?;
    let keys = output.keys(table)?;
    let ordered = keys.len();
    for key in keys {
        let value = key.value(lua)?;
        write(lua, output, &value, depth)?;
        write(lua, output, &table.raw_get(value)?, depth)?;
        output.forget(&key);
    }
    if ordered < count {
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if Key::of(&key).is_none() {
                write(lua, output, &key, depth)?;
                write(lua, output, &value, depth)?;
            }
        }
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
    fn members_come_in_the_order_of_their_keys() {
        let script = "cmsgpack.pack({b=1, a=2, [3]=3, [-1]=4, [true]=5, [false]=6, [print]=7})";
        let packed = "<87><ff><04><03><03><a1>a<02><a1>b<01><c2><06><c3><05><c0><07>";
        assert_eq!(shown("cmsgpack", library, script), packed);
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
                if kind == 1 then return math.random(0) >> math.random(0, 63) end
                if kind == 2 then return math.random() end
                if kind == 3 then return -math.random(5000000000) end
                if kind == 4 then return math.random(2) == 1 end
                if kind == 5 then return ("x"):rep(math.random(0, 300)) end
                local made = {}
                for place = 1, math.random(0, 20) do made[kind == 6 and place or "k" .. place] = any(depth + 1) end
                return made
            end
            for _ = 1, 2000 do
                local packed = cmsgpack.pack(any(0), any(0))
                local first, second = cmsgpack.unpack(packed)
                if cmsgpack.pack(first, second) ~= packed then return packed end
                local rest, one = cmsgpack.unpack_one(packed)
                local last, two = cmsgpack.unpack_one(packed, rest)
                if last ~= -1 or cmsgpack.pack(one, two) ~= packed then return packed end
            end
            return true"#;
        assert_eq!(shown("cmsgpack", library, script), "true");
    }
}
