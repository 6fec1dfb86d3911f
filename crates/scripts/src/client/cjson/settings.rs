//! What scripts configure of `cjson`.

use super::super::arguments::{Arguments, define};
use mlua::{Lua, MultiValue, Table, Value};
use std::cell::Cell;
use std::rc::Rc;

/// How deep tables are nested at most, whatever is configured: as deep as the stack allows.
const MAX_DEPTH: i32 = 1000;

/// See the module. They are those of one library.
#[derive(Debug, Default)]
pub(in super::super) struct Settings(Cell<Options>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// What is too sparse for an array is an object, and not refused.
    pub sparse_is_object: bool,
    /// An array up to the safe length may have any holes; a longer one has an element for every so many places.
    pub sparse_ratio: i32,
    pub sparse_safe: i32,
    encode_depth: i32,
    decode_depth: i32,
    /// How many digits of a number are written.
    pub precision: usize,
    /// It has no effect here.
    keeps_buffer: bool,
    pub encode_invalid: Invalid,
    pub decode_invalid: bool,
}

/// What becomes of numbers that JSON has no form for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    Off,
    On,
    Null,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            sparse_is_object: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth: MAX_DEPTH,
            decode_depth: MAX_DEPTH,
            precision: 14,
            keeps_buffer: true,
            encode_invalid: Invalid::Off,
            decode_invalid: true,
        }
    }
}

impl Options {
    pub fn encode_depth(&self) -> usize {
        usize::try_from(self.encode_depth.min(MAX_DEPTH)).unwrap_or(0)
    }

    pub fn decode_depth(&self) -> usize {
        usize::try_from(self.decode_depth.min(MAX_DEPTH)).unwrap_or(0)
    }
}

impl Settings {
    pub(super) fn get(&self) -> Options {
        self.0.get()
    }

    /// Those of the next script.
    pub fn reset(&self) {
        self.0.set(Options::default());
    }

    fn change(&self, change: impl FnOnce(&mut Options) -> mlua::Result<Value>) -> mlua::Result<Value> {
        let mut options = self.0.get();
        let shown = change(&mut options)?;
        self.0.set(options);
        Ok(shown)
    }
}

/// Adds the functions that show and change settings.
pub(super) fn define_in(lua: &Lua, library: &Table, settings: &Rc<Settings>) -> mlua::Result<()> {
    let with = |name, change: fn(&Arguments, &mut Options) -> mlua::Result<Value>| {
        let settings = Rc::clone(settings);
        define(lua, library, name, move |arguments| {
            at_most(arguments, 1)?;
            settings.change(|options| change(arguments, options))
        })
    };
    with("encode_max_depth", |arguments, options| {
        integer(arguments, 1, &mut options.encode_depth, 1, i32::MAX)
    })?;
    with("decode_max_depth", |arguments, options| {
        integer(arguments, 1, &mut options.decode_depth, 1, i32::MAX)
    })?;
    with("encode_number_precision", |arguments, options| {
        let mut precision = i32::try_from(options.precision).unwrap_or(14);
        let shown = integer(arguments, 1, &mut precision, 1, 14)?;
        options.precision = usize::try_from(precision).unwrap_or(14);
        Ok(shown)
    })?;
    with("encode_keep_buffer", |arguments, options| switch(arguments, &mut options.keeps_buffer))?;
    with("decode_invalid_numbers", |arguments, options| switch(arguments, &mut options.decode_invalid))?;
    with("encode_invalid_numbers", invalid_numbers)?;
    let settings = Rc::clone(settings);
    define(lua, library, "encode_sparse_array", move |arguments| {
        at_most(arguments, 3)?;
        let mut options = settings.get();
        let shown = [
            switch(arguments, &mut options.sparse_is_object)?,
            integer(arguments, 2, &mut options.sparse_ratio, 0, i32::MAX)?,
            integer(arguments, 3, &mut options.sparse_safe, 0, i32::MAX)?,
        ];
        settings.0.set(options);
        Ok(MultiValue::from_iter(shown))
    })
}

fn at_most(arguments: &Arguments, most: usize) -> mlua::Result<()> {
    match arguments.count() > most {
        true => Err(arguments.bad(most + 1, "found too many arguments")),
        false => Ok(()),
    }
}

/// Changes a number if one is given, and shows it.
fn integer(
    arguments: &Arguments,
    place: usize,
    setting: &mut i32,
    least: i32,
    most: i32,
) -> mlua::Result<Value> {
    if !arguments.value(place).is_nil() {
        let given = arguments.int(place)?;
        if !(least..=most).contains(&given) {
            return Err(arguments.bad(1, &format!("expected integer between {least} and {most}")));
        }
        *setting = given;
    }
    Ok(Value::Number((*setting).into()))
}

/// Changes what is on or off, if the first argument says so, and shows it.
fn switch(arguments: &Arguments, setting: &mut bool) -> mlua::Result<Value> {
    match arguments.value(1) {
        Value::Nil => {}
        Value::Boolean(value) => *setting = *value,
        _ => *setting = option(arguments, &["off", "on"])? == 1,
    }
    Ok(Value::Boolean(*setting))
}

fn invalid_numbers(arguments: &Arguments, options: &mut Options) -> mlua::Result<Value> {
    options.encode_invalid = match arguments.value(1) {
        Value::Nil => options.encode_invalid,
        Value::Boolean(true) => Invalid::On,
        Value::Boolean(false) => Invalid::Off,
        _ => match option(arguments, &["off", "on", "null"])? {
            0 => Invalid::Off,
            1 => Invalid::On,
            _ => Invalid::Null,
        },
    };
    Ok(match options.encode_invalid {
        Invalid::Off => Value::Boolean(false),
        Invalid::On => Value::Boolean(true),
        Invalid::Null => Value::String(arguments.lua.create_string("null")?),
    })
}

/// Which of these words the first argument is.
fn option(arguments: &Arguments, options: &[&str]) -> mlua::Result<usize> {
    let given = arguments.string(1)?;
    let found = options.iter().position(|option| option.as_bytes() == &*given.as_bytes());
    found.ok_or_else(|| arguments.bad(1, &format!("invalid option '{}'", given.to_string_lossy())))
}
