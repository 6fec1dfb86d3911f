//! The keys of a table in an order that is the same everywhere: numbers, then strings byte by byte, then false and true.

use mlua::{Error, Lua, Table, Value};
use std::cmp::Ordering;

/// A key of a table, without a hold on the interpreter, which has only some thousands.
enum Key {
    Number(f64),
    Text(Box<[u8]>),
    Boolean(bool),
}

/// `sorted_keys(table)`: the keys as a list.
pub(crate) fn sorted_keys(lua: &Lua, table: Table) -> mlua::Result<Table> {
    let mut keys = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        keys.push(match pair?.0 {
            Value::Integer(number) => Key::Number(number as f64),
            Value::Number(number) => Key::Number(number),
            Value::String(text) => Key::Text(text.as_bytes().to_vec().into_boxed_slice()),
            Value::Boolean(value) => Key::Boolean(value),
            _ => {
                let text = "a table whose keys are tables or functions has no order to go through it in";
                return Err(Error::runtime(text));
            }
        });
    }
    keys.sort_unstable_by(compare);
    let list = lua.create_table_with_capacity(keys.len(), 0)?;
    for (key, place) in keys.into_iter().zip(1..) {
        match key {
            Key::Number(number) => list.raw_set(place, number)?,
            Key::Text(text) => list.raw_set(place, lua.create_string(text)?)?,
            Key::Boolean(value) => list.raw_set(place, value)?,
        }
    }
    Ok(list)
}

fn compare(a: &Key, b: &Key) -> Ordering {
    let rank = |key: &Key| match key {
        Key::Number(_) => 0,
        Key::Text(_) => 1,
        Key::Boolean(_) => 2,
    };
    match (a, b) {
        (Key::Number(a), Key::Number(b)) => a.total_cmp(b),
        (Key::Text(a), Key::Text(b)) => a.cmp(b),
        (Key::Boolean(a), Key::Boolean(b)) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}
