//! Scripts of clients (`EVAL`), as the gateway sees them: something that asks for commands until it ends. It knows no
//! language; the crate `scripts` implements these traits.

use crate::functions::{FunctionLibrary, ScriptFlags};
use std::fmt::Debug;
use std::sync::Arc;
use types::{Error, ErrorCode, ReplyBuf};

/// What keeps scripts and begins them. One per gateway.
pub trait Interpreter: Debug {
    /// Keeps a script; its name is the SHA-1 of its text, in 40 hexadecimal digits.
    ///
    /// # Errors
    /// It does not compile, or there is no room for it.
    fn load(&mut self, source: &[u8]) -> Result<String, Error>;

    /// True if the library holds a script of this name.
    fn keeps(&self, name: &[u8]) -> bool;

    /// Forgets every script that the process keeps.
    fn forget(&mut self);

    /// Begins a script.
    ///
    /// # Errors
    /// The library does not hold it (`NOSCRIPT`), or it does not compile.
    fn begin(&mut self, call: &ScriptCall<'_>) -> Result<Box<dyn Run>, Error>;

    /// Ends the process's scripts of a kind that have run for so many milliseconds: they fail, and nothing that they wrote
    /// remains. False if there are none.
    fn kill(&mut self, kind: ScriptKind, least_millis: u64) -> bool;

    /// The function of the process that has run for longest.
    fn longest_function(&self) -> Option<RunningFunction>;
}

/// What `SCRIPT KILL` and `FUNCTION KILL` tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// Scripts of `EVAL` and its like.
    Script,
    /// Functions.
    Function,
}

/// A function at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningFunction {
    /// Its name.
    pub name: String,
    /// The command that called it.
    pub command: Vec<Vec<u8>>,
    /// For how many milliseconds it has run.
    pub millis: u64,
}

/// A script with what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptCall<'a> {
    /// Which.
    pub script: Script<'a>,
    /// `KEYS`.
    pub keys: Vec<&'a [u8]>,
    /// `ARGV`.
    pub arguments: Vec<&'a [u8]>,
    /// Where the script's random numbers begin: the same in every try of a transaction.
    pub seed: u64,
}

/// Names a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script<'a> {
    /// By its text.
    Source(&'a [u8]),
    /// By its name in the library, in any case.
    Name(&'a [u8]),
    /// A function of a library.
    Function {
        /// The library. It is the same one as long as it is at the same place in memory.
        library: &'a Arc<FunctionLibrary>,
        /// The function's name.
        name: &'a str,
        /// The command that calls it, as the client sent it.
        command: &'a [&'a [u8]],
    },
}

/// A script that has begun. It changes nothing but by the commands that it asks for, so that it can be begun again where a
/// transaction is. Dropped when it is not needed any more, whether it has ended or not.
pub trait Run: Debug {
    /// What the script says of itself; `None` if it says nothing, as scripts did before they had flags.
    fn flags(&self) -> Option<ScriptFlags>;

    /// Lets it go on. `answer` is the reply to the command that it called; `None` at first, and after a pause.
    fn resume(&mut self, answer: Option<ReplyBuf>) -> Event;
}

/// Why a script stands still.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It asks for a command, written as a client sends it.
    Asks(Vec<u8>),
    /// It asks whether the user may execute a command, written so: 1 or 0, or an error if there is no such command.
    Checks(Vec<u8>),
    /// It has computed for as long as others should wait.
    Pauses,
    /// It has ended with this reply.
    Ends(ReplyBuf),
    /// It has failed, or reached a limit.
    Fails(Error),
    /// It was ended by [`Interpreter::kill`].
    Killed(Error),
}

/// Redis's text for a name without a script.
pub fn no_script() -> Error {
    Error::new(ErrorCode::NoScript, "No matching script. Please use EVAL.")
}
