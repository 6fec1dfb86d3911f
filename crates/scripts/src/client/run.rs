//! A script at work.

use super::library::{Name, hex};
use super::machine::{Machine, list, reason};
use super::reply::{command, from_lua, to_lua};
use super::{Idle, MOST_IDLE};
use gateway::{Event, Run, ScriptCall};
use mlua::{MultiValue, Thread, Value};
use types::{Error, ErrorCode, ReplyBuf, ReplySink};

/// See the module. Its interpreter goes back to where it came from when it is dropped.
#[derive(Debug)]
pub(super) struct Script {
    name: Name,
    is_read_only: bool,
    only_line: Option<i64>,
    /// Both until it has ended.
    at_work: Option<(Thread, Machine)>,
    /// What the interpreter is given first.
    given: Option<MultiValue>,
    /// The version of the protocol in which the script reads the next reply.
    version: i64,
    idle: Idle,
}

impl Script {
    /// Begins a script that is compiled in this interpreter.
    pub fn begin(
        mut machine: Machine,
        (name, source): (Name, &[u8]),
        call: &ScriptCall<'_>,
        idle: Idle,
    ) -> Result<Self, Error> {
        let compiled = match machine.compile(name, source) {
            Ok(compiled) => compiled,
            Err(error) => {
                put_back(machine, &idle);
                return Err(error);
            }
        };
        machine.meter.restart();
        let begun = (|| {
            let thread = machine.thread()?;
            let lua = &machine.lua;
            let (keys, arguments) = (list(lua, &call.keys)?, list(lua, &call.arguments)?);
            let given = [Value::Function(compiled.function), Value::Table(keys), Value::Table(arguments)];
            Ok((thread, MultiValue::from_iter(given)))
        })();
        let (thread, given) = begun.map_err(|error: mlua::Error| Error::err(reason(&error)))?;
        let at_work = Some((thread, machine));
        Ok(Script {
            name,
            is_read_only: compiled.is_read_only,
            only_line: compiled.only_line,
            at_work,
            given: Some(given),
            version: 2,
            idle,
        })
    }

    /// What the interpreter gives when it goes on: nothing if it pauses.
    fn go_on(&mut self, answer: Option<&ReplyBuf>) -> mlua::Result<MultiValue> {
        let Some((thread, machine)) = &self.at_work else { return Err(mlua::Error::CoroutineUnresumable) };
        machine.meter.begin_slice();
        let given = match (self.given.take(), answer) {
            (Some(given), _) => given,
            (None, Some(reply)) => MultiValue::from_iter([to_lua(&machine.lua, reply, self.version)?]),
            (None, None) => MultiValue::new(),
        };
        let stands = thread.resume(given);
        machine.meter.end_slice();
        stands
    }

    /// What it has returned, or raised.
    fn end(&self, values: MultiValue) -> Event {
        let mut values = values.into_iter();
        let is_done = values.next() == Some(Value::Boolean(true));
        let value = values.next().unwrap_or(Value::Nil);
        if let Some(limit) = self.limit() {
            return Event::Fails(self.located(&format!("ERR {limit}"), None));
        }
        if !is_done {
            return Event::Fails(self.raised(&value));
        }
        match from_lua(&value) {
            Ok(reply) => Event::Ends(reply),
            Err(error) => Event::Fails(Error::err(reason(&error))),
        }
    }

    /// The limit that it has reached.
    fn limit(&self) -> Option<String> {
        let (_, machine) = self.at_work.as_ref()?;
        machine.meter.is_used_up().then(|| machine.meter.limit())
    }

    /// What it has raised, as the client is told.
    fn raised(&self, value: &Value) -> Error {
        let text = |text: String| self.located(&format!("ERR {text}"), None);
        match value {
            Value::Table(table) => {
                let reason = match table.raw_get("err") {
                    Ok(Value::String(text)) => text.to_string_lossy(),
                    _ => "ERR unknown error".to_owned(),
                };
                let line = table.raw_get::<Value>("line").ok().and_then(|line| line.as_integer());
                self.located(&reason, line)
            }
            Value::String(raised) => text(raised.to_string_lossy()),
            Value::Error(error) => text(reason(error)),
            other => text(format!("a {} was raised", other.type_name())),
        }
    }

    /// An error with the script and the line that it comes from. A call that is the last thing a function does leaves no
    /// trace of its line.
    fn located(&self, text: &str, line: Option<i64>) -> Error {
        let line = line.or(self.only_line).map_or_else(String::new, |line| format!(":{line}"));
        let text = format!("{text} script: {}, on @user_script{line}.", hex(&self.name));
        Error::new(ErrorCode::Scripted, text)
    }
}

impl Run for Script {
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn resume(&mut self, answer: Option<&ReplyBuf>) -> Event {
        let mut values = self.go_on(answer);
        loop {
            let mut given = match values {
                Ok(given) => given,
                Err(error) => {
                    let text = self.limit().unwrap_or_else(|| reason(&error));
                    return Event::Fails(self.located(&format!("ERR {text}"), None));
                }
            };
            let ended = self.at_work.as_ref().is_none_or(|(thread, _)| thread.is_finished());
            if ended {
                return self.end(given);
            }
            let Some(version) = given.pop_front() else { return Event::Pauses };
            self.version = version.as_integer().unwrap_or(2);
            match command(given) {
                Ok(command) => return Event::Asks(command),
                Err(error) => {
                    let mut refusal = ReplyBuf::new();
                    refusal.error(&error);
                    values = self.go_on(Some(&refusal));
                }
            }
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let Some((thread, mut machine)) = self.at_work.take() else { return };
        self.given = None;
        machine.take_back(thread);
        if !machine.meter.is_used_up() {
            put_back(machine, &self.idle);
        }
    }
}

/// Keeps an interpreter for the next script, if it is worth it.
pub(super) fn put_back(machine: Machine, idle: &Idle) {
    let mut idle = idle.borrow_mut();
    if idle.len() < MOST_IDLE && machine.is_sound() {
        idle.push(machine);
    }
}
