//! Scripts of clients in Lua 5.1: `EVAL` and its like.
//!
//! A script sees what Redis gives to scripts: `KEYS`, `ARGV`, `redis.call` and the rest of that library, `cjson`,
//! `cmsgpack`, `bit`, `struct`. It runs on a stack of its own ([`fiber`]) and is suspended while a command is carried out, and
//! now and then so that others have their turn. An interpreter runs one script at a time; one that is suspended keeps its own.
//!
//! Its instructions and its memory are limited. Functions of the libraries whose work grows with more than the length of a
//! string count their steps as instructions.

mod arguments;
mod at_work;
mod bit;
mod cjson;
mod cmsgpack;
mod fiber;
mod functions;
mod library;
mod machine;
mod meter;
mod number;
mod pattern;
mod random;
mod reply;
mod run;
mod struct_pack;
mod text;

pub use functions::load_library;
pub use library::Library;

use gateway::{Interpreter, Run, RunningFunction, Script, ScriptCall, ScriptKind, no_script};
use library::{from_hex, hex, name_of};
use machine::{Machine, reason};
use meter::Limits;
use run::Program;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::Error;

/// How many interpreters wait for work.
const MOST_IDLE: usize = 64;

/// Interpreters at rest.
type Idle = Rc<RefCell<Vec<Machine>>>;

/// Runs the scripts of one worker's clients.
#[derive(Debug)]
pub struct Scripts {
    library: Library,
    idle: Idle,
    limits: Limits,
}

impl Scripts {
    /// Runs scripts of this library.
    pub fn new(library: Library) -> Self {
        Scripts { library, idle: Idle::default(), limits: Limits::default() }
    }

    /// The same; a script may execute so many instructions, and compute for so long.
    pub fn with_limits(self, instructions: u64, time: Duration) -> Self {
        Scripts { limits: Limits { instructions, time }, ..self }
    }

    fn machine(&self) -> Result<Machine, Error> {
        let idle = self.idle.borrow_mut().pop();
        idle.map_or_else(
            || {
                Machine::new(self.limits)
                    .map_err(|error| Error::err(format!("no interpreter: {}", reason(&error))))
            },
            Ok,
        )
    }
}

impl Interpreter for Scripts {
    fn load(&mut self, source: &[u8]) -> Result<String, Error> {
        let name = name_of(source);
        let mut machine = self.machine()?;
        let compiled = machine.compile(name, source);
        run::put_back(machine, &self.idle);
        compiled.and_then(|_| self.library.load(name, source))?;
        Ok(hex(&name))
    }

    fn keeps(&self, name: &[u8]) -> bool {
        from_hex(name).is_some_and(|name| self.library.keeps(&name))
    }

    fn forget(&mut self) {
        self.library.forget();
    }

    fn begin(&mut self, call: &ScriptCall<'_>) -> Result<Box<dyn Run>, Error> {
        let begin = |program| {
            let at_work = self.library.at_work.begin(match call.script {
                Script::Function { name, command, .. } => Some((name, command)),
                Script::Source(_) | Script::Name(_) => None,
            });
            run::Script::begin(self.machine()?, program, call, (at_work, Rc::clone(&self.idle)))
        };
        Ok(Box::new(match call.script {
            Script::Source(source) => {
                let name = name_of(source);
                let script = begin(Program::Script(name, source))?;
                self.library.see(name, source);
                script
            }
            Script::Name(name) => {
                let name = from_hex(name).ok_or_else(no_script)?;
                let source = self.library.find(&name)?;
                begin(Program::Script(name, &source))?
            }
            Script::Function { library, name, .. } => begin(Program::Function(library, name))?,
        }))
    }

    fn kill(&mut self, kind: ScriptKind, least_millis: u64) -> bool {
        self.library.at_work.kill(kind, Duration::from_millis(least_millis))
    }

    fn longest_function(&self) -> Option<RunningFunction> {
        self.library.at_work.longest_function()
    }
}
