//! Functions of libraries: how they are loaded on trial, and called.
//!
//! A call begins with loading the library anew: what it keeps in variables begins as its text says, in every call and every
//! try of a transaction alike. Interpreters keep libraries compiled.

use super::machine::{COMPILED, Compiled, LIBRARY_CHUNK, Machine, list, only_line, reason};
use super::meter::{FUNCTION, Limits};
use gateway::{Function as Registered, FunctionLibrary, ScriptCall, ScriptFlags, library_name};
use mlua::chunk::ChunkMode;
use mlua::{Function, IntoLuaMulti, LuaString, MultiValue, Table, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::Error;

/// How long a library may compute while it is loaded on trial, as in Redis.
const LOAD_TIME: Duration = Duration::from_millis(500);

/// What an interpreter has for functions.
pub(super) struct Functions {
    /// Calls one, and loads a library.
    call: Function,
    load: Function,
    /// What libraries see for their globals.
    environment: Table,
    compiled: BTreeMap<String, (Arc<FunctionLibrary>, Compiled)>,
}

impl Functions {
    pub(super) fn new(call: Function, load: Function, environment: Table) -> Self {
        Functions { call, load, environment, compiled: BTreeMap::new() }
    }
}

impl Machine {
    /// The library, compiled.
    pub(super) fn compile_library(&mut self, library: &Arc<FunctionLibrary>) -> Result<Compiled, Error> {
        match self.functions.compiled.get(&library.name) {
            Some((known, compiled)) if Arc::ptr_eq(known, library) => return Ok(compiled.clone()),
            _ => {}
        }
        let compiled = self.compile_source(&library.source)?;
        if self.functions.compiled.len() >= COMPILED {
            self.functions.compiled.clear();
        }
        let entry = (Arc::clone(library), compiled.clone());
        self.functions.compiled.insert(library.name.clone(), entry);
        Ok(compiled)
    }

    fn compile_source(&self, source: &[u8]) -> Result<Compiled, Error> {
        self.meter.restart();
        let body = source.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &source[end..]);
        let chunk = self.lua.load(body).set_name(LIBRARY_CHUNK).set_mode(ChunkMode::Text);
        let function = chunk.set_environment(self.functions.environment.clone()).into_function();
        let failed = |error: mlua::Error| Error::err(format!("Error compiling function: {}", reason(&error)));
        Ok(Compiled { function: function.map_err(failed)?, flags: None, only_line: only_line(source) })
    }

    /// Gives a function its keys and arguments: what calls it, and with what.
    pub(super) fn give_function(
        &self,
        library: &Compiled,
        name: &str,
        call: &ScriptCall<'_>,
    ) -> mlua::Result<(Function, MultiValue)> {
        let (keys, arguments) = (list(&self.lua, &call.keys)?, list(&self.lua, &call.arguments)?);
        let given = (&library.function, name, keys, arguments).into_lua_multi(&self.lua)?;
        Ok((self.functions.call.clone(), given))
    }

    /// The functions that a library registers, by name.
    fn registered(&self, library: &Compiled) -> Result<Vec<Registered>, Error> {
        let failed = |reason: &str| Error::err(format!("Error registering functions: {reason}"));
        self.meter.restart();
        self.meter.only_line.set(library.only_line);
        self.meter.program.set(FUNCTION);
        let result = self.functions.load.call::<(bool, Table)>(&library.function);
        if self.meter.is_used_up() {
            return Err(failed("ERR FUNCTION LOAD timeout"));
        }
        match result.map_err(|error| failed(&format!("ERR {}", reason(&error))))? {
            (true, functions) => {
                let mut registered = Vec::new();
                for pair in functions.pairs::<String, Table>() {
                    let (name, entry) = pair.map_err(|error| failed(&reason(&error)))?;
                    registered.push(function(name, &entry).map_err(|error| failed(&reason(&error)))?);
                }
                registered.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(registered)
            }
            (false, error) => {
                let text = error.raw_get::<LuaString>("err");
                Err(failed(&text.map_or_else(|error| reason(&error), |text| text.to_string_lossy())))
            }
        }
    }
}

fn function(name: String, entry: &Table) -> mlua::Result<Registered> {
    let description = match entry.raw_get("description")? {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    let mut flags = ScriptFlags::default();
    for flag in entry.raw_get::<Table>("flags")?.sequence_values::<LuaString>() {
        flags = flags.and(ScriptFlags::from_name(&flag?.as_bytes()).unwrap_or_default());
    }
    Ok(Registered { name, description, flags })
}

/// Loads a library on trial, in an interpreter of its own: takes half a second at most.
///
/// # Errors
/// Redis's: its first line is no library's, it does not compile, it fails, or registers nothing.
pub fn load_library(source: &[u8]) -> Result<FunctionLibrary, Error> {
    let name = library_name(source)?;
    let limits = Limits { time: LOAD_TIME, ..Limits::default() };
    let machine =
        Machine::new(limits).map_err(|error| Error::err(format!("no interpreter: {}", reason(&error))))?;
    let functions = machine.registered(&machine.compile_source(source)?)?;
    match functions.is_empty() {
        true => Err(Error::err("No functions registered")),
        false => Ok(FunctionLibrary { name, source: source.into(), functions }),
    }
}
