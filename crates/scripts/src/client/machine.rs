//! An interpreter that runs scripts of clients, one after the other.

use super::cjson::{self, Settings};
use super::fiber;
use super::functions::Functions;
use super::library::{Name, hex, name_of};
use super::meter::{Limits, Meter, STRIDE};
use super::random::{self, Random};
use super::reply::{RESP2, command, to_lua};
use corosensei::stack::DefaultStack;
use gateway::{Event, ScriptCall, ScriptFlags};
use mlua::chunk::ChunkMode;
use mlua::{
    Error, Function, HookTriggers, IntoLuaMulti, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table,
    Value, VmState,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use types::{Reply, ReplyBuf, ReplySink};

/// How much memory an interpreter may use, in bytes.
const MEMORY: usize = 64 << 20;
/// A machine that uses more at rest is not reused.
const MEMORY_AT_REST: usize = 8 << 20;
/// How many scripts it keeps compiled.
pub(super) const COMPILED: usize = 500;
const PRELUDE: &str = include_str!("client.lua");
/// What scripts and libraries of functions are called in errors.
const CHUNK: &str = "@user_script";
pub(super) const LIBRARY_CHUNK: &str = "@user_function";

/// What the functions of the prelude are called in errors.
const PRELUDE_CHUNK: &str = "=client";

/// See the module.
pub(super) struct Machine {
    pub lua: Lua,
    pub meter: Rc<Meter>,
    /// Runs a script.
    pub run: Function,
    /// What scripts see for their globals, which nobody can write, and the table behind it.
    environment: Table,
    globals: Table,
    /// The version of the protocol whose replies the script is shown.
    pub version: Rc<Cell<i64>>,
    cjson: Rc<Settings>,
    random: Rc<Random>,
    compiled: BTreeMap<Name, Compiled>,
    pub functions: Functions,
    /// The stack, while no script runs.
    stack: Option<DefaultStack>,
}

/// A script, ready to run.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    pub function: Function,
    /// What it says of itself, if it says anything.
    pub flags: Option<ScriptFlags>,
    /// The number of its line, if it has one only: there is where an error arose that does not know.
    pub only_line: Option<i64>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("meter", &self.meter).finish_non_exhaustive()
    }
}

impl Machine {
    pub fn new(limits: Limits) -> mlua::Result<Self> {
        let options = LuaOptions::new().catch_rust_panics(true);
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, options)?;
        let meter = Rc::new(Meter::new(limits));
        lua.set_app_data(Rc::clone(&meter));
        let (random, cjson) = (Rc::<Random>::default(), Rc::<Settings>::default());
        random::define_in(&lua, &lua.globals().get("math")?, &random)?;
        let version = Rc::new(Cell::new(RESP2));
        let libraries = (
            host(&lua, &meter, &version)?,
            super::text::library(&lua)?,
            cjson::library(&lua, &cjson)?,
            super::cmsgpack::library(&lua)?,
            super::bit::library(&lua)?,
            super::struct_pack::library(&lua)?,
        );
        let prelude = lua.load(PRELUDE).set_name(PRELUDE_CHUNK).set_mode(ChunkMode::Text);
        let (run, environment, globals, call, load, library) = prelude.call(libraries)?;
        let functions = Functions::new(call, load, library);
        lua.set_memory_limit(MEMORY)?;
        let watched = Rc::clone(&meter);
        let triggers = HookTriggers::new().every_nth_instruction(STRIDE);
        lua.set_global_hook(triggers, move |_, _| watched.count(STRIDE.into()).map(|()| VmState::Continue))?;
        let compiled = BTreeMap::new();
        Ok(Machine {
            lua,
            meter,
            run,
            environment,
            globals,
            version,
            cjson,
            random,
            compiled,
            functions,
            stack: None,
        })
    }

    /// The script of this name, whose text `source` gives if it is not known yet.
    pub fn compile(&mut self, name: Name, source: &[u8]) -> Result<Compiled, types::Error> {
        if let Some(compiled) = self.compiled.get(&name) {
            return Ok(compiled.clone());
        }
        let (flags, body) = split(source)?;
        self.meter.restart();
        let chunk = self.lua.load(body).set_name(CHUNK).set_mode(ChunkMode::Text);
        let function = chunk.set_environment(self.environment.clone()).into_function();
        let function = function.map_err(|error| {
            types::Error::err(format!("Error compiling script (new function): {}", reason(&error)))
        })?;
        let compiled = Compiled { function, flags, only_line: only_line(source) };
        if self.compiled.len() >= COMPILED {
            self.compiled.clear();
        }
        self.compiled.insert(name, compiled.clone());
        Ok(compiled)
    }

    /// Does something while memory has no limit: the interpreter then guards none of its allocations, each of which costs more
    /// than what is allocated. A script that was given too much fails at its first allocation.
    pub fn unlimited<T>(&self, give: impl FnOnce(&Self) -> mlua::Result<T>) -> mlua::Result<T> {
        self.lua.set_memory_limit(0)?;
        let given = give(self);
        self.lua.set_memory_limit(MEMORY)?;
        given
    }

    /// Gives a script its keys and arguments: what runs it, and with what.
    pub fn give_script(
        &self,
        compiled: &Compiled,
        call: &ScriptCall<'_>,
    ) -> mlua::Result<(Function, MultiValue)> {
        for (name, items) in [("KEYS", &call.keys), ("ARGV", &call.arguments)] {
            self.globals.raw_set(name, list(&self.lua, items)?)?;
        }
        Ok((self.run.clone(), compiled.function.clone().into_lua_multi(&self.lua)?))
    }

    /// Gives the next script its random numbers and its stack.
    pub fn prepare(&mut self, seed: u64) -> mlua::Result<DefaultStack> {
        self.version.set(RESP2);
        self.cjson.reset();
        self.random.begin(seed);
        self.stack.take().map_or_else(|| fiber::stack().map_err(Error::external), Ok)
    }

    /// The script has ended that ran on this stack.
    pub fn take_back(&mut self, stack: DefaultStack) {
        self.stack = Some(stack);
    }

    /// True if it may run another script.
    pub fn is_sound(&self) -> bool {
        !self.meter.has_reached_limit() && !self.meter.is_killed() && self.lua.used_memory() <= MEMORY_AT_REST
    }
}

/// The number of the line with the whole program, if no other line has anything; a shebang is no program.
pub(super) fn only_line(source: &[u8]) -> Option<i64> {
    let is_program = |(number, line): &(i64, &[u8])| {
        !line.trim_ascii().is_empty() && (*number > 1 || !line.starts_with(b"#!"))
    };
    let mut lines = (1..).zip(source.split(|byte| *byte == b'\n')).filter(is_program);
    let (number, _) = lines.next()?;
    lines.next().is_none().then_some(number)
}

/// Splits `#!lua flags=no-writes` off, all but the end of the line: what the script says of itself so.
fn split(source: &[u8]) -> Result<(Option<ScriptFlags>, &[u8]), types::Error> {
    if !source.starts_with(b"#!") {
        return Ok((None, source));
    }
    let mut flags = ScriptFlags::default();
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
            let unknown = || types::Error::err(format!("Unexpected flag in script shebang: {flag}"));
            flags = flags.and(ScriptFlags::from_name(flag.as_bytes()).ok_or_else(unknown)?);
        }
    }
    Ok((Some(flags), &source[end..]))
}

/// What the prelude needs of the process.
fn host(lua: &Lua, meter: &Rc<Meter>, version: &Rc<Cell<i64>>) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let define = |name: &str, function: Function| host.raw_set(name, function);
    let (asking, shown) = (Rc::clone(meter), Rc::clone(version));
    define("call", lua.create_function(move |lua, words| call(lua, &asking, shown.get(), words))?)?;
    let (asking, shown) = (Rc::clone(meter), Rc::clone(version));
    let protected_call = move |lua: &Lua, words| to_lua(lua, &asking, &ask(&asking, words)?, shown.get());
    define("pcall", lua.create_function(protected_call)?)?;
    let asking = Rc::clone(meter);
    define("may", lua.create_function(move |_, words| may(&asking, words))?)?;
    let shown = Rc::clone(version);
    let set_version = move |_: &Lua, wanted| {
        shown.set(wanted);
        Ok(())
    };
    define("set_version", lua.create_function(set_version)?)?;
    let watched = Rc::clone(meter);
    define("count", lua.create_function(move |_, steps: f64| watched.count(steps as u64))?)?;
    let watched = Rc::clone(meter);
    define("is_used_up", lua.create_function(move |_, ()| Ok(watched.is_used_up()))?)?;
    let watched = Rc::clone(meter);
    define("source", lua.create_function(move |_, ()| Ok(format!("@{}", watched.program.get())))?)?;
    host.raw_set("wrong_name", gateway::WRONG_NAME)?;
    define("line", lua.create_function(|lua, ()| Ok(line(lua)))?)?;
    define("text_of", lua.create_function(|lua, reason: Value| Ok(text_of(lua, &reason)))?)?;
    define("is_native", lua.create_function(|_, called: Function| Ok(called.info().what == "C"))?)?;
    let sha1hex = |_: &Lua, text: LuaString| Ok(hex(&name_of(&text.as_bytes())));
    define("sha1hex", lua.create_function(sha1hex)?)?;
    let error_text = |_: &Lua, text: LuaString| Ok(error_text(&text.to_string_lossy()));
    define("error_text", lua.create_function(error_text)?)?;
    define("log", lua.create_function(log)?)?;
    Ok(host)
}

/// Asks for a command, and waits for the reply.
fn ask(meter: &Meter, words: MultiValue) -> mlua::Result<ReplyBuf> {
    match command(words) {
        Ok(command) => Ok(meter.wait(Event::Asks(command))?.unwrap_or_default()),
        Err(error) => {
            let mut refusal = ReplyBuf::new();
            refusal.error(&error);
            Ok(refusal)
        }
    }
}

/// Asks whether the user may execute a command; `None` if there is none.
fn may(meter: &Meter, words: MultiValue) -> mlua::Result<Option<bool>> {
    let Ok(command) = command(words) else { return Ok(None) };
    let reply = meter.wait(Event::Checks(command))?.unwrap_or_default();
    Ok(match reply.first() {
        Some(Reply::Integer(may)) => Some(may == 1),
        _ => None,
    })
}

/// An error reply that `redis.call` raises, and the line of the call.
#[derive(Debug)]
struct Refused(String, Option<usize>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// `redis.call`. It is no function of Lua, which would hide the line that it is called at in `return redis.call(...)`.
fn call(lua: &Lua, meter: &Meter, version: i64, words: MultiValue) -> mlua::Result<Value> {
    let reply = ask(meter, words)?;
    match reply.first() {
        Some(Reply::Error(error)) => Err(Error::external(Refused(error.to_string(), line(lua)))),
        _ => to_lua(lua, meter, &reply, version),
    }
}

/// What a script catches of this error: a table of an error reply, a text of others.
fn caught(lua: &Lua, error: &Error) -> mlua::Result<Value> {
    let Some(Refused(text, line)) = error.downcast_ref() else {
        return lua.create_string(reason(error)).map(Value::String);
    };
    let table = lua.create_table()?;
    table.raw_set("err", text.as_str())?;
    table.raw_set("source", format!("@{}", Meter::of(lua).program.get()))?;
    table.raw_set("line", *line)?;
    Ok(Value::Table(table))
}

fn log(_: &Lua, (level, text): (i64, LuaString)) -> mlua::Result<()> {
    let text = one_line(&text.to_string_lossy());
    match level {
        0 | 1 => tracing::debug!(target: "script", "{text}"),
        2 => tracing::info!(target: "script", "{text}"),
        _ => tracing::warn!(target: "script", "{text}"),
    }
    Ok(())
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

/// What a script catches of what was raised. An error of a function of the prelude arose where the script called that.
fn text_of(lua: &Lua, raised: &Value) -> Value {
    let text = match raised {
        Value::Error(error) => return caught(lua, error).unwrap_or(Value::Nil),
        Value::String(text) => match located_in_prelude(&text.as_bytes()) {
            Some(text) => match line(lua) {
                Some(line) => format!("{}:{line}: {text}", Meter::of(lua).program.get()),
                None => text,
            },
            None => return raised.clone(),
        },
        _ => return raised.clone(),
    };
    lua.create_string(text).map_or(Value::Nil, Value::String)
}

/// What is behind `client:12: `.
fn located_in_prelude(text: &[u8]) -> Option<String> {
    let rest = text.strip_prefix(b"client:")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Some(String::from_utf8_lossy(rest[digits..].strip_prefix(b": ")?).into_owned())
}

/// Where the script called the function that runs, as a prefix of an error; nothing where `pcall` called it.
pub(super) fn place(lua: &Lua) -> String {
    let is_called_by_lua = lua.inspect_stack(1, |debug| debug.source().what != "C").unwrap_or(false);
    let line = if is_called_by_lua { line(lua) } else { None };
    line.map_or_else(String::new, |line| format!("{}:{line}: ", Meter::of(lua).program.get()))
}

/// The line that the script has reached. A call that is the last thing a function does leaves no trace of it.
fn line(lua: &Lua) -> Option<usize> {
    line_on_stack(lua).or_else(|| Meter::of(lua).only_line.get().and_then(|line| usize::try_from(line).ok()))
}

fn line_on_stack(lua: &Lua) -> Option<usize> {
    let mut level = 0;
    loop {
        let found = lua.inspect_stack(level, |debug| {
            let is_script =
                debug.source().source.is_some_and(|source| [CHUNK, LIBRARY_CHUNK].contains(&&*source));
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
    let list = lua.create_table_with_capacity(items.len(), 0)?;
    for (item, place) in items.iter().zip(1..) {
        list.raw_set(place, lua.create_string(item)?)?;
    }
    Ok(list)
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
