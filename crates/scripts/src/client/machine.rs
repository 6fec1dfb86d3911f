//! An interpreter that runs scripts of clients, one after the other.

use super::library::{Name, hex, name_of};
use super::meter::{Limits, Meter, STRIDE};
use mlua::chunk::ChunkMode;
use mlua::{Error, Function, HookTriggers, Lua, LuaOptions, LuaString, StdLib, Table, Thread, Value};
use std::collections::BTreeMap;
use std::rc::Rc;

/// How much memory an interpreter may use, in bytes.
const MEMORY: usize = 64 << 20;
/// One that uses more when it is at rest is not kept.
const MEMORY_AT_REST: usize = 8 << 20;
/// How many scripts it keeps compiled.
const COMPILED: usize = 500;
const PRELUDE: &str = include_str!("client.lua");
/// What scripts are called in errors.
const CHUNK: &str = "@user_script";

/// See the module.
#[derive(Debug)]
pub(super) struct Machine {
    pub lua: Lua,
    pub meter: Rc<Meter>,
    /// Runs a script, given its keys and its arguments.
    run: Function,
    /// A coroutine that has ended.
    ended: Option<Thread>,
    environment: Table,
    compiled: BTreeMap<Name, Compiled>,
}

/// A script, ready to run.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub function: Function,
    /// It says so itself.
    pub is_read_only: bool,
    /// The number of its line, if it has one only: there is where an error arose that does not know.
    pub only_line: Option<i64>,
}

impl Machine {
    pub fn new(limits: Limits) -> mlua::Result<Self> {
        // Lua's own `pcall` is kept so: mlua's would not let a script stand still inside of it.
        let options = LuaOptions::new().catch_rust_panics(true);
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::COROUTINE, options)?;
        let meter = Rc::new(Meter::new(limits));
        let libraries = (
            host(&lua, &meter)?,
            super::cjson::library(&lua)?,
            super::cmsgpack::library(&lua)?,
            super::bit::library(&lua)?,
            super::struct_pack::library(&lua)?,
        );
        let prelude = lua.load(PRELUDE).set_name("=client").set_mode(ChunkMode::Text);
        let (run, environment) = prelude.call(libraries)?;
        lua.set_memory_limit(MEMORY)?;
        let watched = Rc::clone(&meter);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(STRIDE), move |_, _| watched.count())?;
        Ok(Machine { lua, meter, run, ended: None, environment, compiled: BTreeMap::new() })
    }

    /// The script of this name, whose text `source` gives if it is not known yet.
    pub fn compile(&mut self, name: Name, source: &[u8]) -> Result<Compiled, types::Error> {
        if let Some(compiled) = self.compiled.get(&name) {
            return Ok(compiled.clone());
        }
        let (is_read_only, body) = split(source)?;
        // On the first line, so that the lines of errors are the script's own.
        let text = [b"local KEYS,ARGV=...;", body].concat();
        let chunk = self.lua.load(text).set_name(CHUNK).set_mode(ChunkMode::Text);
        let function = chunk.set_environment(self.environment.clone()).into_function();
        let function = function.map_err(|error| {
            types::Error::err(format!("Error compiling script (new function): {}", reason(&error)))
        })?;
        let compiled = Compiled { function, is_read_only, only_line: only_line(source) };
        if self.compiled.len() >= COMPILED {
            self.compiled.clear();
        }
        self.compiled.insert(name, compiled.clone());
        Ok(compiled)
    }

    /// A coroutine for a script.
    pub fn thread(&mut self) -> mlua::Result<Thread> {
        match self.ended.take() {
            Some(thread) => thread.reset(self.run.clone()).map(|()| thread),
            None => self.lua.create_thread(self.run.clone()),
        }
    }

    /// The coroutine of a script that is not needed any more.
    pub fn take_back(&mut self, thread: Thread) {
        if thread.is_finished() {
            self.ended = Some(thread);
        }
    }

    /// True if it may run another script.
    pub fn is_sound(&self) -> bool {
        self.lua.used_memory() <= MEMORY_AT_REST
    }
}

/// The number of the line with the whole program, if no other line has anything; a shebang is no program.
fn only_line(source: &[u8]) -> Option<i64> {
    let is_program = |(number, line): &(i64, &[u8])| {
        !line.trim_ascii().is_empty() && (*number > 1 || !line.starts_with(b"#!"))
    };
    let mut lines = (1..).zip(source.split(|byte| *byte == b'\n')).filter(is_program);
    let (number, _) = lines.next()?;
    lines.next().is_none().then_some(number)
}

/// Splits `#!lua flags=no-writes` off, all but the end of the line; true if the script says so that it only reads.
fn split(source: &[u8]) -> Result<(bool, &[u8]), types::Error> {
    let mut is_read_only = false;
    if !source.starts_with(b"#!") {
        return Ok((is_read_only, source));
    }
    let end = source.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| types::Error::err("Invalid script shebang"))?;
    let line = String::from_utf8_lossy(&source[2..end]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(types::Error::err(format!("Unexpected engine in script shebang: #!{engine}")));
    }
    for word in words {
        let Some(list) = word.strip_prefix("flags=") else {
            return Err(types::Error::err(format!("Unknown lua shebang option: {word}")));
        };
        for flag in list.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => is_read_only = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => {
                    return Err(types::Error::err(format!("Unexpected flag in script shebang: {other}")));
                }
            }
        }
    }
    Ok((is_read_only, &source[end..]))
}

/// What the prelude needs of the process.
fn host(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let watched = Rc::clone(meter);
    host.raw_set("is_used_up", lua.create_function(move |_, ()| Ok(watched.is_used_up()))?)?;
    host.raw_set("line", lua.create_function(|lua, ()| Ok(line(lua)))?)?;
    let watched = Rc::clone(meter);
    // A function of a library that was called by `pcall` itself has no line.
    let text_of = move |lua: &Lua, (value, called): (Value, Option<Function>)| {
        let Value::Error(error) = value else { return Ok("an unknown error".to_owned()) };
        let reason = reason(&error);
        let is_native = called.is_some_and(|called| called.info().what == "C");
        Ok(match line(lua) {
            Some(line) if !watched.is_used_up() && !is_native => format!("user_script:{line}: {reason}"),
            _ => reason,
        })
    };
    host.raw_set("text_of", lua.create_function(text_of)?)?;
    host.raw_set("metatable", lua.create_function(|_, table: Table| Ok(table.metatable()))?)?;
    let sha1hex = |_: &Lua, text: LuaString| Ok(hex(&name_of(&text.as_bytes())));
    host.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    let error_text = |_: &Lua, text: LuaString| Ok(error_text(&text.to_string_lossy()));
    host.raw_set("error_text", lua.create_function(error_text)?)?;
    let log = |_: &Lua, (level, text): (i64, LuaString)| {
        let text = one_line(&text.to_string_lossy());
        match level {
            0 | 1 => tracing::debug!(target: "script", "{text}"),
            2 => tracing::info!(target: "script", "{text}"),
            _ => tracing::warn!(target: "script", "{text}"),
        }
        Ok(())
    };
    host.raw_set("log", lua.create_function(log)?)?;
    Ok(host)
}

/// Text as a part of one line of the log, cut where Redis cuts it: what a script says does not look like another event.
fn one_line(text: &str) -> String {
    const MOST_BYTES: usize = 1024;
    let mut line = String::new();
    for character in text[..text.floor_char_boundary(MOST_BYTES)].chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// The line that the script stands at.
fn line(lua: &Lua) -> Option<usize> {
    let mut level = 0;
    loop {
        let found = lua.inspect_stack(level, |debug| {
            let is_script = debug.source().source.is_some_and(|source| source == CHUNK);
            if is_script { debug.current_line() } else { None }
        })?;
        if found.is_some() {
            return found;
        }
        level += 1;
    }
}

/// What Redis makes of the text of an error reply: a code, and what it says.
fn error_text(text: &str) -> String {
    let text = text.strip_prefix('-').unwrap_or(text).trim_end_matches(['\r', '\n']);
    if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") }
}

/// An error in one line, without the interpreter's own traces.
pub(super) fn reason(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { cause, .. } => return reason(cause),
        Error::RuntimeError(text) | Error::MemoryError(text) => text.clone(),
        Error::SyntaxError { message, .. } => message.clone(),
        error => error.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// A list of byte strings.
pub(super) fn list(lua: &Lua, items: &[&[u8]]) -> mlua::Result<Table> {
    let strings: mlua::Result<Vec<LuaString>> = items.iter().map(|item| lua.create_string(item)).collect();
    lua.create_sequence_from(strings?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_logs_is_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[0m\u{e9}"), "a\\nb\\u{1b}[0m\u{e9}");
        assert_eq!(one_line(&"\u{e9}".repeat(2000)).len(), 1024);
    }

    #[test]
    fn a_program_of_one_line_has_its_number() {
        for (source, line) in [
            ("return 1", Some(1)),
            ("return 1\n\n", Some(1)),
            ("#!lua\nreturn 1", Some(2)),
            ("#!lua\n\n  return 1\n", Some(3)),
            ("local a = 1\nreturn a", None),
            ("", None),
        ] {
            assert_eq!(only_line(source.as_bytes()), line, "{source:?}");
        }
    }
}
