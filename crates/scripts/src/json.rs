//! `json.decode(text)`, `json.encode(value)` and `json.null`: many applications keep JSON in fields.

use crate::limits::Limits;
use mlua::{Error, Lua, LuaString, Table, Value};
use serde_json::{Map, Number, Value as Json};
use std::rc::Rc;

/// How deep a text may be nested.
const MAX_DEPTH: usize = 32;
/// What a value counts beside its bytes.
const NODE: usize = 64;

/// The library.
pub(crate) fn library(lua: &Lua, limits: &Rc<Limits>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let decode = |lua: &Lua, text: LuaString| {
        let json: Json = serde_json::from_slice(&text.as_bytes())
            .map_err(|error| Error::runtime(format!("no JSON: {error}")))?;
        to_lua(lua, &json, 0)
    };
    let limits = Rc::clone(limits);
    let encode = move |lua: &Lua, value: Value| lua.create_string(from_lua(&value, 0, &limits)?.to_string());
    library.raw_set("decode", lua.create_function(decode)?)?;
    library.raw_set("encode", lua.create_function(encode)?)?;
    library.raw_set("null", Value::NULL)?;
    Ok(library)
}

fn too_deep(depth: usize) -> mlua::Result<()> {
    match depth > MAX_DEPTH {
        true => Err(Error::runtime(format!("JSON is nested more than {MAX_DEPTH} times"))),
        false => Ok(()),
    }
}

fn to_lua(lua: &Lua, json: &Json, depth: usize) -> mlua::Result<Value> {
    too_deep(depth)?;
    Ok(match json {
        Json::Null => Value::NULL,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Integer(number),
            None => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(elements) => {
            let list = lua.create_table_with_capacity(elements.len(), 0)?;
            for element in elements {
                list.raw_push(to_lua(lua, element, depth + 1)?)?;
            }
            Value::Table(list)
        }
        Json::Object(members) => {
            let table = lua.create_table()?;
            for (name, member) in members {
                table.raw_set(lua.create_string(name)?, to_lua(lua, member, depth + 1)?)?;
            }
            Value::Table(table)
        }
    })
}

/// A table with the keys 1 to its length is an array, and so is the empty one; names are sorted.
fn from_lua(value: &Value, depth: usize, limits: &Limits) -> mlua::Result<Json> {
    too_deep(depth)?;
    // A table that stands in many places is written as often.
    limits.write(NODE)?;
    let unfit = |what: &str| Error::runtime(format!("{what} has no form in JSON"));
    Ok(match value {
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => Json::Number((*number).into()),
        Value::Number(number) => {
            Json::Number(Number::from_f64(*number).ok_or_else(|| unfit("an infinite number"))?)
        }
        Value::String(text) => {
            limits.write(text.as_bytes().len())?;
            Json::String(text.to_str().map_err(|_| unfit("text that is not UTF-8"))?.to_owned())
        }
        Value::Table(table) => {
            let length = table.raw_len();
            let mut members = Map::new();
            let mut others = 0;
            for pair in table.pairs::<Value, Value>() {
                let (key, member) = pair?;
                others += 1;
                if let Value::String(name) = key {
                    let name = name.to_str().map_err(|_| unfit("a name that is not UTF-8"))?.to_owned();
                    members.insert(name, from_lua(&member, depth + 1, limits)?);
                }
            }
            if members.is_empty() && others == length {
                let elements = (1..=length).map(|place| from_lua(&table.raw_get(place)?, depth + 1, limits));
                return Ok(Json::Array(elements.collect::<mlua::Result<_>>()?));
            }
            if members.len() < others {
                return Err(unfit("a table with numbers and names for keys"));
            }
            Json::Object(members)
        }
        value if *value == Value::NULL => Json::Null,
        other => return Err(unfit(other.type_name())),
    })
}
