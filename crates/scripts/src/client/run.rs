//! A script at work.

use super::at_work::Guard;
use super::fiber::{Fiber, Order};
use super::library::{Name, hex};
use super::machine::{Machine, reason};
use super::meter::{FUNCTION, Meter, SCRIPT};
use super::reply::from_lua;
use super::{Idle, MOST_IDLE};
use corosensei::CoroutineResult;
use gateway::{Event, FunctionLibrary, Run, ScriptCall, ScriptFlags};
use mlua::{Function, MultiValue, Value};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use types::{Error, ErrorCode, ReplyBuf};

/// See the module. Its interpreter goes back to where it came from when it has ended.
pub(super) struct Script {
    flags: Option<ScriptFlags>,
    /// Both until it has ended.
    at_work: Option<(Fiber, Machine)>,
    idle: Idle,
    _seen: Guard,
}

/// What a script executes.
#[derive(Clone, Copy)]
pub(super) enum Program<'p> {
    /// A text, and its name.
    Script(Name, &'p [u8]),
    /// A function of a library.
    Function(&'p Arc<FunctionLibrary>, &'p str),
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.at_work.as_ref().map(|(_, machine)| machine);
        f.debug_struct("Script").field("machine", &machine).finish_non_exhaustive()
    }
}

impl Script {
    /// Begins a script that is compiled in this interpreter.
    pub fn begin(
        mut machine: Machine,
        program: Program<'_>,
        call: &ScriptCall<'_>,
        (seen, idle): (Guard, Idle),
    ) -> Result<Self, Error> {
        let compiled = match program {
            Program::Script(name, source) => machine.compile(name, source),
            Program::Function(library, _) => machine.compile_library(library),
        };
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) => {
                put_back(machine, &idle);
                return Err(error);
            }
        };
        let failed = |error: mlua::Error| Error::err(reason(&error));
        let stack = machine.prepare(call.seed).map_err(failed)?;
        let (flags, meter) = (compiled.flags, Rc::clone(&machine.meter));
        let version = Rc::clone(&machine.version);
        let (name, flags, chunk, (run, given)) = match program {
            Program::Script(name, _) => {
                let given =
                    machine.unlimited(|machine| machine.give_script(&compiled, call)).map_err(failed)?;
                (Named::Script(name), flags, SCRIPT, given)
            }
            Program::Function(library, name) => {
                let given = machine
                    .unlimited(|machine| machine.give_function(&compiled, name, call))
                    .map_err(failed)?;
                let function = library.functions.iter().find(|function| function.name == name);
                (Named::Function(name.to_owned()), function.map(|function| function.flags), FUNCTION, given)
            }
        };
        meter.set_at_work(Some(Arc::clone(&seen.0)));
        let only_line = compiled.only_line;
        let work = Work { run, given, meter, version, name, program: chunk, only_line };
        let fiber = Fiber::with_stack(stack, move |yielder, order| match order {
            Order::GoOn(_) => {
                let meter = Rc::clone(&work.meter);
                meter.switch.within(yielder, || work.run())
            }
            Order::Stop => Event::Fails(ended()),
        });
        Ok(Script { flags, at_work: Some((fiber, machine)), idle, _seen: seen })
    }

    fn go_on(&mut self, order: Order) -> Event {
        let Some((fiber, _)) = &mut self.at_work else { return Event::Fails(ended()) };
        match fiber.resume(order) {
            CoroutineResult::Yield(event) => event,
            CoroutineResult::Return(event) => {
                if let Some((fiber, mut machine)) = self.at_work.take() {
                    machine.take_back(fiber.into_stack());
                    put_back(machine, &self.idle);
                }
                event
            }
        }
    }
}

impl Run for Script {
    fn flags(&self) -> Option<ScriptFlags> {
        self.flags
    }

    fn resume(&mut self, answer: Option<ReplyBuf>) -> Event {
        self.go_on(Order::GoOn(answer))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Its stack is left as by an error that nothing catches.
        if self.at_work.is_some() {
            self.go_on(Order::Stop);
        }
    }
}

fn ended() -> Error {
    Error::err("the script has ended")
}

/// What a script is called in errors.
enum Named {
    Script(Name),
    Function(String),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Named::Script(name) => f.write_str(&hex(name)),
            Named::Function(name) => f.write_str(name),
        }
    }
}

/// What is done on a script's stack.
struct Work {
    /// The prelude's function that runs a script, and what it is given.
    run: Function,
    given: MultiValue,
    meter: Rc<Meter>,
    /// The version of the protocol that it asks for.
    version: Rc<Cell<i64>>,
    /// What is executed, as errors say, and its program.
    name: Named,
    program: &'static str,
    only_line: Option<i64>,
}

impl Work {
    fn run(self) -> Event {
        self.meter.restart();
        self.meter.only_line.set(self.only_line);
        self.meter.program.set(self.program);
        let result = self.run.call::<(bool, Value)>(self.given.clone());
        if self.meter.is_used_up() {
            let error = self.located(&format!("ERR {}", self.meter.limit()), result.ok().and_then(line_of));
            return if self.meter.is_killed() { Event::Killed(error) } else { Event::Fails(error) };
        }
        match result {
            Ok((true, value)) => match from_lua(&self.meter, &value, self.version.get()) {
                Ok(reply) => Event::Ends(reply),
                Err(error) => Event::Fails(Error::err(reason(&error))),
            },
            Ok((false, value)) => Event::Fails(self.raised(&value)),
            Err(error) => Event::Fails(self.located(&format!("ERR {}", reason(&error)), None)),
        }
    }

    /// What it has raised, as an error for the client.
    fn raised(&self, value: &Value) -> Error {
        let text = |text: String| self.located(&format!("ERR {text}"), None);
        match value {
            Value::Table(table) => {
                let reason = match table.raw_get("err") {
                    Ok(Value::String(text)) => text.to_string_lossy(),
                    _ => "ERR unknown error".to_owned(),
                };
                self.located(&reason, line_of((false, value.clone())))
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
        let text = format!("{text} script: {}, on @{}{line}.", self.name, self.program);
        Error::new(ErrorCode::Scripted, text)
    }
}

/// The line where an error arose, if it is one that knows.
fn line_of((is_result, value): (bool, Value)) -> Option<i64> {
    value.as_table().filter(|_| !is_result)?.raw_get::<Value>("line").ok()?.as_integer()
}

/// Keeps an interpreter for the next script, if it is worth it.
pub(super) fn put_back(machine: Machine, idle: &Idle) {
    let is_sound = machine.is_sound();
    machine.meter.set_at_work(None);
    let mut idle = idle.borrow_mut();
    if idle.len() < MOST_IDLE && is_sound {
        idle.push(machine);
    }
}
