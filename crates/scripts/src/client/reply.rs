//! Replies in Lua, and what a script returns as a reply.
//!
//! | reply | in Lua | with `redis.setresp(3)` |
//! |---|---|---|
//! | integer, byte string | a number, a string | |
//! | status, error | `{ok = text}`, `{err = text}` | |
//! | array | a list | |
//! | nothing | `false` | `nil` |
//! | number with a fraction | a string | `{double = number}` |
//! | integer of any size | a string | `{big_number = digits}` |
//! | truth value | 1 or 0 | `true` or `false` |
//! | text | a string | `{verbatim_string = {format = name, string = text}}` |
//! | map, set | a list | `{map = {key = value}}`, `{set = {member = true}}` |

use super::meter::Meter;
use super::number::{general, truncated};
use mlua::{Error, IntoLua, Lua, LuaString, MultiValue, Table, Value};
use resp::{Encoder, ProtocolVersion, format_double};
use types::{ErrorCode, Reply, ReplyBuf, ReplySink};

/// How deep what a script returns may be nested, how many tables it may have (one that stands in many places is as many),
/// and how many bytes.
const MAX_DEPTH: usize = 128;
const MAX_TABLES: usize = 250_000;
const MAX_BYTES: usize = 64 << 20;

/// How many instructions a value counts that is read or written.
const VALUE: u64 = 5;

/// The versions of the protocol that a script may choose; it begins with the first.
pub(super) const RESP2: i64 = 2;
const RESP3: i64 = 3;

/// A reply as a script sees it that has chosen this version of the protocol.
pub(super) fn to_lua(lua: &Lua, meter: &Meter, reply: &ReplyBuf, version: i64) -> mlua::Result<Value> {
    Reader { lua, meter, is_new: version == RESP3 }.next(&mut reply.elements())
}

struct Reader<'l> {
    lua: &'l Lua,
    meter: &'l Meter,
    /// The script has chosen the third version of the protocol.
    is_new: bool,
}

impl Reader<'_> {
    fn next<'r>(&self, elements: &mut dyn Iterator<Item = Reply<'r>>) -> mlua::Result<Value> {
        self.meter.count(VALUE)?;
        let Some(element) = elements.next() else { return Ok(self.nothing()) };
        match element {
            Reply::Simple(text) => self.field("ok", text),
            Reply::Error(error) => self.field("err", error.to_string()),
            Reply::Bulk(bytes) => self.bytes(bytes),
            Reply::Verbatim(format, text) if self.is_new => {
                let verbatim = self.lua.create_table()?;
                verbatim.raw_set("string", self.bytes(text)?)?;
                verbatim.raw_set("format", self.bytes(&format)?)?;
                self.field("verbatim_string", verbatim)
            }
            Reply::Verbatim(_, text) => self.bytes(text),
            Reply::Integer(value) => Ok(Value::Integer(value)),
            Reply::Boolean(value) if self.is_new => Ok(Value::Boolean(value)),
            Reply::Boolean(value) => Ok(Value::Integer(value.into())),
            Reply::BigNumber(digits) if self.is_new => self.field("big_number", self.bytes(digits)?),
            Reply::BigNumber(digits) => self.bytes(digits),
            Reply::Double(value) if self.is_new => self.field("double", value),
            Reply::Double(value) => self.bytes(&format_double(value)),
            Reply::Number(digits) => match digits.parse::<f64>() {
                Ok(value) if self.is_new => self.field("double", value),
                _ => self.bytes(digits.as_bytes()),
            },
            Reply::Null | Reply::NullArray => Ok(self.nothing()),
            Reply::Array(len) | Reply::Pairs(len) if self.is_new => self.list(len, elements),
            Reply::Array(len) | Reply::Push(len) => self.list(len, elements),
            Reply::Pair | Reply::Entry => self.list(2, elements),
            Reply::Map(pairs) | Reply::Entries(pairs) if self.is_new => {
                let map = self.lua.create_table()?;
                for _ in 0..pairs {
                    if matches!(element, Reply::Entries(_)) {
                        elements.next();
                    }
                    let (key, value) = (self.next(elements)?, self.next(elements)?);
                    map.raw_set(key, value)?;
                }
                self.field("map", map)
            }
            Reply::Map(pairs) => self.list(2 * pairs, elements),
            Reply::Entries(len) => self.list(len, elements),
            Reply::Pairs(pairs) => {
                let list = self.lua.create_table()?;
                for place in 0..2 * pairs {
                    if place % 2 == 0 {
                        elements.next();
                    }
                    list.raw_push(self.next(elements)?)?;
                }
                Ok(Value::Table(list))
            }
            Reply::Set(len) if self.is_new => {
                let set = self.lua.create_table()?;
                for _ in 0..len {
                    set.raw_set(self.next(elements)?, true)?;
                }
                self.field("set", set)
            }
            Reply::Set(len) => self.list(len, elements),
        }
    }

    fn nothing(&self) -> Value {
        if self.is_new { Value::Nil } else { Value::Boolean(false) }
    }

    fn bytes(&self, bytes: &[u8]) -> mlua::Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn field(&self, name: &str, value: impl IntoLua) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn list<'r>(&self, len: usize, elements: &mut dyn Iterator<Item = Reply<'r>>) -> mlua::Result<Value> {
        let list = self.lua.create_table_with_capacity(len, 0)?;
        for place in 1..=len {
            list.raw_set(place, self.next(elements)?)?;
        }
        Ok(Value::Table(list))
    }
}

/// What a script returns, as a reply, if this version of the protocol is the last that it chose.
pub(super) fn from_lua(meter: &Meter, value: &Value, version: i64) -> mlua::Result<ReplyBuf> {
    let mut writer = Writer { meter, is_new: version == RESP3, reply: ReplyBuf::new(), tables: 0 };
    writer.value(value, 0)?;
    Ok(writer.reply)
}

struct Writer<'m> {
    meter: &'m Meter,
    /// See [`Reader`].
    is_new: bool,
    reply: ReplyBuf,
    tables: usize,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.meter.count(VALUE)?;
        if self.reply.len() > MAX_BYTES {
            return Err(Error::runtime(format!("a reply of a script has at most {} MiB", MAX_BYTES >> 20)));
        }
        match value {
            Value::Integer(number) => self.reply.integer(*number),
            // As in Redis, the fraction is cut off.
            Value::Number(number) => self.reply.integer(truncated(*number)),
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Boolean(value) if self.is_new => self.reply.boolean(*value),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Table(table) => self.table(table, depth + 1)?,
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        self.tables += 1;
        if depth > MAX_DEPTH || self.tables > MAX_TABLES {
            let text =
                format!("a reply of a script has at most {MAX_TABLES} tables, and {MAX_DEPTH} in each other");
            return Err(Error::runtime(text));
        }
        let reply = &mut self.reply;
        if let Value::String(text) = table.raw_get("err")? {
            reply.error(&types::Error::new(ErrorCode::Scripted, text.to_string_lossy()));
        } else if let Value::String(text) = table.raw_get("ok")? {
            reply.simple(&text.to_string_lossy());
        } else if let Some(number) = number(&table.raw_get("double")?) {
            reply.double(number);
        } else if let Value::String(digits) = table.raw_get("big_number")? {
            reply.big_number(&digits.as_bytes());
        } else if let Some((format, text)) = verbatim(table)? {
            reply.verbatim(format, &text.as_bytes());
        } else if let Value::Table(map) = table.raw_get("map")? {
            reply.map(count_pairs(self.meter, &map)?);
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.value(&key, depth)?;
                self.value(&value, depth)?;
            }
        } else if let Value::Table(set) = table.raw_get("set")? {
            reply.set(count_pairs(self.meter, &set)?);
            for pair in set.pairs::<Value, Value>() {
                self.value(&pair?.0, depth)?;
            }
        } else {
            self.list(table, depth)?;
        }
        Ok(())
    }

    /// As in Redis, a list ends where there is nothing.
    fn list(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        let mut length = 0;
        while !table.raw_get::<Value>(length + 1)?.is_nil() {
            self.meter.count(1)?;
            length += 1;
        }
        self.reply.array(length);
        (1..=length).try_for_each(|place| self.value(&table.raw_get(place)?, depth))
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

/// The format and the text of a table that has both. As in Redis, a format has three bytes, with blanks behind a shorter one.
fn verbatim(table: &Table) -> mlua::Result<Option<([u8; 3], LuaString)>> {
    let Value::Table(verbatim) = table.raw_get("verbatim_string")? else { return Ok(None) };
    let (Value::String(text), Value::String(named)) =
        (verbatim.raw_get("string")?, verbatim.raw_get("format")?)
    else {
        return Ok(None);
    };
    let mut format = [b' '; 3];
    let named = named.as_bytes();
    let shown = named.iter().take_while(|byte| **byte != 0);
    format.iter_mut().zip(shown).for_each(|(to, from)| *to = *from);
    Ok(Some((format, text)))
}

fn count_pairs(meter: &Meter, table: &Table) -> mlua::Result<usize> {
    table.pairs::<Value, Value>().try_fold(0, |count, pair| {
        meter.count(1)?;
        pair.map(|_| count + 1)
    })
}

/// The command that `redis.call` was given, as a client sends it; or why it is none.
pub(super) fn command(words: MultiValue) -> Result<Vec<u8>, types::Error> {
    if words.is_empty() {
        return Err(types::Error::err("Please specify at least one argument for this redis lib call"));
    }
    let mut command = Vec::new();
    let mut encoder = Encoder::new(&mut command, ProtocolVersion::Resp2);
    encoder.array(words.len());
    for word in words {
        match word {
            Value::String(text) => encoder.bulk(&text.as_bytes()),
            Value::Integer(number) => encoder.bulk(general(number as f64, 17).as_bytes()),
            Value::Number(number) => encoder.bulk(general(number, 17).as_bytes()),
            _ => {
                let text = "Lua redis lib command arguments must be strings or integers";
                return Err(types::Error::err(text));
            }
        }
    }
    Ok(command)
}
