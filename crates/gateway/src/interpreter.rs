//! Scripts of clients (`EVAL`), as the gateway sees them: something that asks for commands until it ends. It knows no
//! language; the crate `scripts` implements these traits.

use std::fmt::Debug;
use types::{Error, ErrorCode, ReplyBuf};

/// What keeps scripts and begins them. One per gateway.
pub trait Interpreter: Debug {
    /// Keeps a script; its name is the SHA-1 of its text, in 40 hexadecimal digits.
    ///
    /// # Errors
    /// It does not compile, or there is no room for it.
    fn load(&mut self, source: &[u8]) -> Result<String, Error>;

    /// True if a script of this name is kept.
    fn keeps(&self, name: &[u8]) -> bool;

    /// Forgets every script that the process keeps.
    fn forget(&mut self);

    /// Begins a script.
    ///
    /// # Errors
    /// It is not kept (`NOSCRIPT`), or does not compile.
    fn begin(&mut self, call: &ScriptCall<'_>) -> Result<Box<dyn Run>, Error>;
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
    /// By the name that it is kept under, in any case.
    Name(&'a [u8]),
}

/// A script that has begun. It changes nothing but by the commands that it asks for, so that it can be begun again where a
/// transaction is. Dropped when it is not needed any more, whether it has ended or not.
pub trait Run: Debug {
    /// True if the script says of itself that it writes nothing.
    fn is_read_only(&self) -> bool;

    /// Lets it go on. `answer` is the reply to the command that it asked for; `None` at first, and after a pause.
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
}

/// Redis's text for a name that no script is kept under.
pub fn no_script() -> Error {
    Error::new(ErrorCode::NoScript, "No matching script. Please use EVAL.")
}
