//! A script at work.

use super::fiber::{Fiber, Order};
use super::library::{Name, hex};
use super::machine::{Compiled, Machine, reason};
use super::meter::Meter;
use super::reply::from_lua;
use super::{Idle, MOST_IDLE};
use corosensei::CoroutineResult;
use gateway::{Event, Run, ScriptCall};
use mlua::{Function, Value};
use std::fmt;
use std::rc::Rc;
use types::{Error, ErrorCode, ReplyBuf};

/// See the module. Its interpreter goes back to where it came from when it has ended.
pub(super) struct Script {
    is_read_only: bool,
    /// Both until it has ended.
    at_work: Option<(Fiber, Machine)>,
    idle: Idle,
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
        let stack = machine.prepare(call).map_err(|error| Error::err(reason(&error)))?;
        let is_read_only = compiled.is_read_only;
        let (run, meter) = (machine.run.clone(), Rc::clone(&machine.meter));
        let work = Work { run, meter, name, compiled };
        let fiber = Fiber::with_stack(stack, move |yielder, order| match order {
            Order::GoOn(_) => {
                let meter = Rc::clone(&work.meter);
                meter.switch.within(yielder, || work.run())
            }
            Order::Stop => Event::Fails(ended()),
        });
        Ok(Script { is_read_only, at_work: Some((fiber, machine)), idle })
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
    fn is_read_only(&self) -> bool {
        self.is_read_only
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

/// What is done on a script's stack.
struct Work {
    /// The prelude's function that runs a script.
    run: Function,
    meter: Rc<Meter>,
    name: Name,
    compiled: Compiled,
}

impl Work {
    fn run(self) -> Event {
        self.meter.restart();
        self.meter.only_line.set(self.compiled.only_line);
        let result = self.run.call::<(bool, Value)>(&self.compiled.function);
        if self.meter.is_used_up() {
            return Event::Fails(self.located(&format!("ERR {}", self.meter.limit()), None));
        }
        match result {
            Ok((true, value)) => match from_lua(&self.meter, &value) {
                Ok(reply) => Event::Ends(reply),
                Err(error) => Event::Fails(Error::err(reason(&error))),
            },
            Ok((false, value)) => Event::Fails(self.raised(&value)),
            Err(error) => Event::Fails(self.located(&format!("ERR {}", reason(&error)), None)),
        }
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
        let line = line.or(self.compiled.only_line).map_or_else(String::new, |line| format!(":{line}"));
        let text = format!("{text} script: {}, on @user_script{line}.", hex(&self.name));
        Error::new(ErrorCode::Scripted, text)
    }
}

/// Keeps an interpreter for the next script, if it is worth it.
pub(super) fn put_back(machine: Machine, idle: &Idle) {
    let mut idle = idle.borrow_mut();
    if idle.len() < MOST_IDLE && machine.is_sound() {
        idle.push(machine);
    }
}
