//! What the functions of the libraries are called with.

use super::machine::place;
use super::meter::Meter;
use super::number::truncated;
use mlua::{Error, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

/// What a function of a library was called with. Places count from 1, as in Lua's texts.
pub(super) struct Arguments<'l> {
    pub lua: &'l Lua,
    /// Counts what a function does that may take long.
    pub meter: &'l Meter,
    values: MultiValue,
}

impl Arguments<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// All that there are.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    /// An argument; nil if there is none.
    pub fn value(&self, place: usize) -> &Value {
        self.values.get(place - 1).unwrap_or(&Value::Nil)
    }

    /// A number, or a string that reads as one.
    pub fn number(&self, place: usize) -> mlua::Result<f64> {
        match self.value(place) {
            Value::Integer(number) => Ok(*number as f64),
            Value::Number(number) => Ok(*number),
            text @ Value::String(_) => {
                let number = self.lua.coerce_number(text.clone())?;
                number.ok_or_else(|| self.mistyped(place, "number"))
            }
            _ => Err(self.mistyped(place, "number")),
        }
    }

    /// A number without what is behind the point.
    pub fn integer(&self, place: usize) -> mlua::Result<i64> {
        self.number(place).map(truncated)
    }

    /// An integer that may be missing.
    pub fn integer_or(&self, place: usize, default: i64) -> mlua::Result<i64> {
        match self.value(place) {
            Value::Nil => Ok(default),
            _ => self.integer(place),
        }
    }

    /// An `int` of C: of other integers the lowest 32 bits.
    pub fn int(&self, place: usize) -> mlua::Result<i32> {
        self.integer(place).map(|integer| integer as i32)
    }

    /// A string, or a number as Lua writes it.
    pub fn string(&self, place: usize) -> mlua::Result<LuaString> {
        let value = self.value(place);
        let string = self.lua.coerce_string(value.clone())?;
        string.ok_or_else(|| self.mistyped(place, "string"))
    }

    /// Lua's text for an argument of another type.
    pub fn mistyped(&self, place: usize, wanted: &str) -> Error {
        let given = match place > self.count() {
            true => "no value",
            false => type_name(self.value(place)),
        };
        self.bad(place, &format!("{wanted} expected, got {given}"))
    }

    /// Lua's text for an argument that does not fit. It says what the script calls the function.
    pub fn bad(&self, place: usize, reason: &str) -> Error {
        let called = self.lua.inspect_stack(0, |debug| {
            let names = debug.names();
            (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
        });
        let (name, is_method) = called.unwrap_or_default();
        let name = name.as_deref().unwrap_or("?");
        // Before the colon of a method stands its first argument.
        Error::runtime(match place.checked_sub(is_method.into()) {
            Some(0) if is_method => format!("calling '{name}' on bad self ({reason})"),
            number => format!("bad argument #{} to '{name}' ({reason})", number.unwrap_or(place)),
        })
    }
}

/// Adds a function to a library. Its errors say where in the script it was called.
pub(super) fn define<R: IntoLuaMulti>(
    lua: &Lua,
    library: &Table,
    name: &str,
    function: impl Fn(&Arguments) -> mlua::Result<R> + 'static,
) -> mlua::Result<()> {
    let meter = Meter::of(lua);
    let call = move |lua: &Lua, values: MultiValue| {
        let result = function(&Arguments { lua, meter: &meter, values });
        result.map_err(|error| match error {
            Error::RuntimeError(text) => Error::RuntimeError(format!("{}{text}", place(lua))),
            other => other,
        })
    };
    library.raw_set(name, lua.create_function(call)?)
}

/// The name that Lua has for a value's type.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}
