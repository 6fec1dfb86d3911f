//! The errors a user can meet. The code says what the caller may do, the message what happened and to what.

use crate::wire::{Malformed, Reader, Wire, put_bytes};
use std::borrow::Cow;
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        /// The first word of an error reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ErrorCode { $($(#[$doc])* $name = $number,)* }

        impl ErrorCode {
            /// The word as it stands in the reply.
            pub fn as_str(self) -> &'static str { match self { $(ErrorCode::$name => $text,)* } }

            fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(ErrorCode::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// Bad input; repeating it will not help.
    Err = 0 "ERR",
    /// The key holds another type.
    WrongType = 1 "WRONGTYPE",
    /// The transaction met a conflicting one and had no effect: retry it.
    Conflict = 2 "CONFLICT",
    /// Too few replicas answered; nothing happened: retry later.
    Unavailable = 3 "UNAVAILABLE",
    /// The transaction may or may not have happened: look before you retry.
    UnknownOutcome = 4 "UNKNOWNOUTCOME",
    /// The snapshot's lease ended: begin again.
    SnapshotTooOld = 5 "SNAPSHOTTOOOLD",
    /// One transaction may touch one keyspace only (Corrections 77).
    CrossKeyspace = 6 "CROSSKEYSPACE",
    /// The server cannot write now (disk full, I/O error); reads go on.
    Misconf = 7 "MISCONF",
    /// EXEC of a transaction whose queueing failed.
    ExecAbort = 8 "EXECABORT",
    /// Authentication is required.
    NoAuth = 9 "NOAUTH",
    /// The user name or the password is wrong.
    WrongPass = 10 "WRONGPASS",
    /// The user may not do this.
    NoPerm = 11 "NOPERM",
    /// HELLO asked for a protocol version that does not exist.
    NoProto = 12 "NOPROTO",
    /// Memory is used up; writes are refused.
    Oom = 13 "OOM",
    /// The process is still recovering.
    Loading = 14 "LOADING",
    /// A merge leaves keys open that its branches changed independently; it goes on.
    Unresolved = 15 "UNRESOLVED",
    /// The request was refused as a whole, whatever it held. Clients read the same word as for one bad operation.
    Refused = 16 "ERR",
    /// No script of this name is kept: send its text.
    NoScript = 17 "NOSCRIPT",
    /// A script of a client made it: the message begins with a word of its own.
    Scripted = 18 "",
    /// A command names a type that this process has not heard of. Clients read the same word as for any bad input.
    UnknownType = 19 "ERR",
    /// A region is cut off on which the session depends; nothing happened. The session goes on with what is stable in its own
    /// region: read again what the next request relies on.
    Degraded = 20 "DEGRADED",
    /// The key has several concurrent values: ask for all of them, and write what they come to. Nothing happened.
    Siblings = 21 "SIBLINGS",
    /// RESTORE of a key that is there, without REPLACE.
    BusyKey = 22 "BUSYKEY",
    /// The key holds bytes that are damaged: write it anew.
    InvalidObject = 23 "INVALIDOBJ",
    /// A command names a consumer group that is not there: create it.
    NoGroup = 24 "NOGROUP",
    /// XGROUP CREATE of a group that is there.
    BusyGroup = 25 "BUSYGROUP",
    /// SCRIPT KILL or FUNCTION KILL where no script has run for long.
    NotBusy = 30 "NOTBUSY",
}

/// An error reply: `CODE message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What the caller may do.
    pub code: ErrorCode,
    /// What happened, to which key or replica, and what to do next.
    pub message: Cow<'static, str>,
}

impl Error {
    /// An error with this code.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Error { code, message: message.into() }
    }

    /// A plain `ERR`.
    pub fn err(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Err, message)
    }

    /// An `ERR` in place of all replies to a request, of which nothing happened.
    pub fn refused(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::Refused, message)
    }

    /// Redis's reply to an operation on a key of another type.
    pub const fn wrong_type() -> Self {
        Error {
            code: ErrorCode::WrongType,
            message: Cow::Borrowed("Operation against a key holding the wrong kind of value"),
        }
    }

    /// Redis's reply to malformed options.
    pub const fn syntax() -> Self {
        Error { code: ErrorCode::Err, message: Cow::Borrowed("syntax error") }
    }

    /// Redis's reply where an integer was expected.
    pub const fn not_an_integer() -> Self {
        Error { code: ErrorCode::Err, message: Cow::Borrowed("value is not an integer or out of range") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            ErrorCode::Scripted => f.write_str(&self.message),
            code => write!(f, "{} {}", code.as_str(), self.message),
        }
    }
}

impl std::error::Error for Error {}

impl Wire for Error {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.code as u8);
        put_bytes(out, self.message.as_bytes());
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let code = ErrorCode::from_number(input.byte()?).ok_or(Malformed("error code"))?;
        let message = std::str::from_utf8(input.bytes()?).map_err(|_| Malformed("error text"))?.to_owned();
        Ok(Error { code, message: message.into() })
    }
}
