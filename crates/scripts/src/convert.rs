//! Values in Lua, and back. The table is in the crate's documentation.

use crate::limits::Limits;
use datatypes::collections::{ChunkedList, PackedMap, PackedSet, ScoredTree};
use datatypes::register::Register;
use datatypes::{Cell, Effect, Value as Stored, apply, counter};
use mlua::{Error, Lua, Table, Value};
use types::Reader;

/// What an entry of a collection counts beside its bytes.
const ENTRY: usize = 16;
/// Up to here every integer is a number of Lua.
const EXACT: u128 = 1 << 53;

/// A value as a program sees it.
pub(crate) fn to_lua(lua: &Lua, cell: &Cell) -> mlua::Result<Value> {
    let Some(stored) = &cell.value else { return Ok(Value::Boolean(false)) };
    let string = |bytes: &[u8]| lua.create_string(bytes);
    let typed = |name: &str, value: Value| {
        let table = lua.create_table()?;
        table.raw_set("type", name)?;
        table.raw_set("value", value)?;
        Ok(Value::Table(table))
    };
    match stored {
        Stored::Register(register) => Ok(Value::String(register.with_bytes(string)?)),
        Stored::Dict(dict) => {
            let fields = lua.create_table()?;
            for (field, value) in dict.iter() {
                fields.raw_set(string(field)?, string(value)?)?;
            }
            typed("hash", Value::Table(fields))
        }
        Stored::Set(set) => {
            let members = lua.create_table()?;
            for member in set.iter() {
                members.raw_set(string(&member)?, true)?;
            }
            typed("set", Value::Table(members))
        }
        Stored::ScoredSet(set) => {
            let scores = lua.create_table()?;
            for (score, member) in set.iter() {
                scores.raw_set(string(member)?, score)?;
            }
            typed("zset", Value::Table(scores))
        }
        Stored::List(list) => {
            let elements = lua.create_table()?;
            for element in list.iter() {
                elements.raw_push(string(element)?)?;
            }
            typed("list", Value::Table(elements))
        }
        Stored::Counter(sum) if sum.sum().unsigned_abs() <= EXACT => {
            typed("counter", Value::Number(sum.sum() as f64))
        }
        other => {
            let (table, mut bytes) = (lua.create_table()?, Vec::new());
            cell.encode(&mut bytes);
            table.raw_set("type", other.kind().redis_name())?;
            table.raw_set("dump", string(&bytes)?)?;
            Ok(Value::Table(table))
        }
    }
}

/// What a program answered, with the deadline that it gets; `None` if it leaves the matter to others.
pub(crate) fn from_lua(answer: &Value, expires_at: u64, limits: &Limits) -> mlua::Result<Option<Cell>> {
    let value = match answer {
        Value::Nil => return Ok(None),
        Value::Boolean(false) => None,
        Value::Table(table) => typed(table, limits)?,
        other => Some(Stored::Register(Register::new(&text(other, limits)?))),
    };
    Ok(Some(value.map_or(Cell::ABSENT, |value| Cell { value: Some(value), expires_at })))
}

/// A string, or a number as it is written.
fn text(value: &Value, limits: &Limits) -> mlua::Result<Vec<u8>> {
    let text = match value {
        Value::String(bytes) => Ok(bytes.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) if number.is_finite() => Ok(number.to_string().into_bytes()),
        other => {
            Err(unfit(format!("a {} is no value of a register, a field or a member", other.type_name())))
        }
    }?;
    limits.write(text.len() + ENTRY)?;
    Ok(text)
}

fn unfit(reason: String) -> Error {
    Error::runtime(reason)
}

fn typed(table: &Table, limits: &Limits) -> mlua::Result<Option<Stored>> {
    if let Value::String(dump) = table.raw_get("dump")? {
        let bytes = dump.as_bytes();
        limits.write(bytes.len())?;
        let mut input = Reader::new(&bytes);
        let cell = Cell::decode(&mut input).ok().filter(|_| input.is_empty());
        return Ok(cell.ok_or_else(|| unfit("dump is not one that was given".to_owned()))?.value);
    }
    let Value::String(kind) = table.raw_get("type")? else {
        return Err(unfit("an answer that is a table needs its type and its value".to_owned()));
    };
    let value: Value = table.raw_get("value")?;
    let kind = kind.to_string_lossy();
    if kind == "counter" {
        let Value::Integer(by) = value else {
            return Err(unfit("a counter's value is an integer".to_owned()));
        };
        let mut cell = Cell::ABSENT;
        apply::<false>(&mut cell, &Effect::Counter(counter::Effect::Add { by }));
        return Ok(cell.value);
    }
    let Value::Table(elements) = value else {
        return Err(unfit(format!("the value of a {kind} is a table")));
    };
    match &*kind {
        "hash" => dict(&elements, limits),
        "set" => set(&elements, limits),
        "zset" => scored_set(&elements, limits),
        "list" => list(&elements, limits),
        _ => Err(unfit(format!("'{kind}' is no type; there are hash, set, zset, list and counter"))),
    }
}

/// The entries in the order of their keys: what is built of them is the same everywhere.
fn entries<T>(
    table: &Table,
    limits: &Limits,
    read: impl Fn(&Value) -> mlua::Result<T>,
) -> mlua::Result<Vec<(Vec<u8>, T)>> {
    let mut entries = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        entries.push((text(&key, limits)?, read(&value)?));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

fn dict(table: &Table, limits: &Limits) -> mlua::Result<Option<Stored>> {
    let mut dict = PackedMap::default();
    for (field, value) in entries(table, limits, |value| text(value, limits))? {
        dict.insert(&field, &value);
    }
    Ok((!dict.is_empty()).then(|| Stored::Dict(Box::new(dict))))
}

fn set(table: &Table, limits: &Limits) -> mlua::Result<Option<Stored>> {
    let mut set = PackedSet::default();
    let is_member = |value: &Value| match value {
        Value::Boolean(true) => Ok(()),
        _ => Err(unfit("the members of a set are keys whose value is true".to_owned())),
    };
    for (member, ()) in entries(table, limits, is_member)? {
        set.insert(&member);
    }
    Ok((!set.is_empty()).then(|| Stored::Set(Box::new(set))))
}

fn scored_set(table: &Table, limits: &Limits) -> mlua::Result<Option<Stored>> {
    let mut set = ScoredTree::default();
    let score = |value: &Value| match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Number(number) if !number.is_nan() => Ok(*number),
        _ => Err(unfit("the scores of a sorted set are numbers".to_owned())),
    };
    for (member, score) in entries(table, limits, score)? {
        // Of the two zeros there is one (Corrections 88).
        set.insert(&member, score + 0.0);
    }
    Ok((!set.is_empty()).then(|| Stored::ScoredSet(Box::new(set))))
}

fn list(table: &Table, limits: &Limits) -> mlua::Result<Option<Stored>> {
    let mut list = ChunkedList::default();
    let length = table.raw_len();
    if table.pairs::<Value, Value>().count() != length {
        return Err(unfit("a list has elements 1 to its length and no others".to_owned()));
    }
    for place in 1..=length {
        list.push_back(&text(&table.raw_get::<Value>(place)?, limits)?);
    }
    Ok((!list.is_empty()).then(|| Stored::List(Box::new(list))))
}
