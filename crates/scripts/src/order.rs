//! The keys of a table in an order that is the same everywhere: numbers, then strings byte by byte, then false and true.

use mlua::{Error, Lua, Table, Value};
use std::cmp::Ordering;

/// `sorted_keys(table)`: the keys as a list.
pub(crate) fn sorted_keys(lua: &Lua, table: Table) -> mlua::Result<Table> {
    let mut keys = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let key = pair?.0;
        if rank(&key).is_none() {
            let text = "a table whose keys are tables or functions has no order to go through it in";
            return Err(Error::runtime(text));
        }
        keys.push(key);
    }
    keys.sort_by(compare);
    lua.create_sequence_from(keys)
}

fn rank(key: &Value) -> Option<u8> {
    match key {
        Value::Integer(_) | Value::Number(_) => Some(0),
        Value::String(_) => Some(1),
        Value::Boolean(_) => Some(2),
        _ => None,
    }
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => a.total_cmp(b),
        // A number that is a key is no integer, and no NaN: as floating-point numbers the two may be equal all the same.
        (Value::Integer(a), Value::Number(b)) => (*a as f64).total_cmp(b).then(Ordering::Less),
        (Value::Number(a), Value::Integer(b)) => a.total_cmp(&(*b as f64)).then(Ordering::Greater),
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(&b.as_bytes()),
        (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}
