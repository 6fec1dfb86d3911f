//! Histories for other people's checkers.
//!
//! | format | for | what it can express |
//! |---|---|---|
//! | `plume`, `dbcop` | causal consistency, read atomicity, serializability ([`versions`]) | reads and writes of versions |
//! | `porcupine` | strict serializability ([`operations`]) | operations that its model executes |
//!
//! What a format cannot express is left out in a way that makes no good history bad: a key with a write that cannot be
//! expressed is left out of every transaction, and so is a read that names no version, or is no operation of the model. That
//! makes another checker see less, never something else; [`LeftOut`] counts it.
//!
//! Transactions that aborted are left out where a checker would count them. A transaction of unknown outcome is left
//! out if no reader saw its writes: then no observation shows that it happened.

mod operations;
mod versions;

use crate::history::Transaction;
use crate::invocations::Decoded;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

/// What a history is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines `r(key,value,session,transaction)` and `w(...)`, for Plume, PolySI and AWDIT.
    Plume,
    /// JSON for DBCop.
    Dbcop,
    /// JSON lines for linearizability checkers such as porcupine: a transaction is one operation.
    Porcupine,
}

impl Format {
    /// Every format.
    pub const ALL: [(&'static str, Format); 3] =
        [("plume", Format::Plume), ("dbcop", Format::Dbcop), ("porcupine", Format::Porcupine)];
}

impl FromStr for Format {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Format::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<&str> = Format::ALL.iter().map(|(name, _)| *name).collect();
            format!("unknown format `{text}`; there are {}", names.join(", "))
        })
    }
}

/// What a format could not express.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Keys, and why.
    pub keys: BTreeMap<String, String>,
    /// How many keys the history has.
    pub of_keys: usize,
    /// How many elements of sets and lists on the other keys, because they were added twice.
    pub elements: usize,
    /// How many reads on the other keys.
    pub reads: usize,
}

impl LeftOut {
    /// True if the export holds everything.
    pub fn is_nothing(&self) -> bool {
        self.keys.is_empty() && self.elements == 0 && self.reads == 0
    }

    fn key(&mut self, key: &[u8], why: impl FnOnce() -> String) {
        self.keys.entry(key.escape_ascii().to_string()).or_insert_with(why);
    }

    fn has(&self, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.contains_key(&key.escape_ascii().to_string())
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut { keys, of_keys, elements, reads } = self;
        write!(
            f,
            "left out: {} of {of_keys} keys; of the others {elements} elements and {reads} reads",
            keys.len()
        )?;
        keys.iter().try_for_each(|(key, why)| write!(f, "\n  {key}: {why}"))
    }
}

/// Why a history cannot be exported.
#[derive(Debug)]
pub enum ExportError {
    /// Nothing would be left of it.
    Nothing(LeftOut),
    /// A transaction was given up with a lost region: only claims tell who may have seen it.
    GivenUp {
        /// The transaction.
        transaction: u64,
    },
    /// A transaction's binary form is malformed.
    Unreadable {
        /// The transaction.
        transaction: u64,
    },
    /// The output cannot be written.
    Output(io::Error),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Nothing(left_out) => write!(
                f,
                "the format can express no key of this history; check it with `check` instead\n{left_out}"
            ),
            ExportError::GivenUp { transaction } => write!(
                f,
                "transaction {transaction} was given up with a lost region, which no format can express; check the \
                 history with `check` instead"
            ),
            ExportError::Unreadable { transaction } => {
                write!(f, "transaction {transaction} is malformed")
            }
            ExportError::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        ExportError::Output(error)
    }
}

/// Writes a history in another format; tells what the format could not express.
///
/// # Errors
/// The format can express nothing of it, or the output fails. Nothing is written of a history that is refused.
pub fn export(
    history: &[Transaction],
    format: Format,
    mut output: impl Write,
) -> Result<LeftOut, ExportError> {
    if let Some(lost) = history.iter().find(|transaction| transaction.given_up) {
        return Err(ExportError::GivenUp { transaction: lost.number });
    }
    let mut decoded = Vec::new();
    // A transaction without steps saw nothing: so are transactions that only the protocol claims, as their client is
    // in doubt.
    for transaction in history.iter().filter(|transaction| !transaction.steps.is_empty()) {
        let unreadable = ExportError::Unreadable { transaction: transaction.number };
        decoded.push(Decoded::new(transaction).ok_or(unreadable)?);
    }
    decoded.sort_by_key(|one| (one.transaction.invoked, one.number()));
    let left_out = match format {
        Format::Plume => versions::plume(&decoded, &mut output)?,
        Format::Dbcop => versions::dbcop(&decoded, &mut output)?,
        Format::Porcupine => operations::porcupine(&decoded, &mut output)?,
    };
    output.flush()?;
    Ok(left_out)
}

/// Refuses a history of which nothing is left.
fn unless_all(left_out: LeftOut) -> Result<LeftOut, ExportError> {
    match left_out.of_keys == left_out.keys.len() && left_out.of_keys > 0 {
        true => Err(ExportError::Nothing(left_out)),
        false => Ok(left_out),
    }
}
