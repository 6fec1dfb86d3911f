//! Histories for other people's checkers, which know registers only.
//!
//! What is exported are reads and writes of versions, so that each value is written once: `GET`, `SET` and `SET GET`.
//! Anything else is refused by name, because to leave it out, or to guess which version it stands for, would make the
//! other checker judge another history.
//!
//! Every format begins with an initial transaction that writes every key. In those with sessions each session begins
//! with a transaction that reads from it, so that it comes first whatever the level. Aborted transactions are kept
//! where the format has them; one of unknown outcome is kept as committed if somebody saw what it wrote, in a session
//! of its own, and else left out: nobody can tell that it happened.

use crate::history::{Key, Outcome, Transaction};
use crate::invocations::Decoded;
use crate::touches::{Content, Touch, touches};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
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

/// Why a history cannot be exported.
#[derive(Debug)]
pub enum ExportError {
    /// An operation names no version.
    Operation {
        /// The transaction that did it.
        transaction: u64,
        /// On which key.
        key: String,
        /// The operation.
        text: String,
    },
    /// Two transactions wrote the same, so that a read could be of either.
    WrittenTwice {
        /// Where.
        key: String,
        /// What.
        value: String,
        /// Who.
        transactions: [u64; 2],
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
            ExportError::Operation { transaction, key, text } => write!(
                f,
                "transaction {transaction} did {text} on {key}, which no register has: only GET and SET can be \
                 exported; check such a history with `anabranch-lab check`"
            ),
            ExportError::WrittenTwice { key, value, transactions: [first, second] } => write!(
                f,
                "transactions {first} and {second} both wrote {value} to {key}: record histories whose values are \
                 written once"
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

/// A read or a write of a version, by number.
#[derive(Clone, Copy)]
struct Event {
    is_write: bool,
    key: usize,
    version: usize,
}

/// A transaction as events.
struct Exported<'h> {
    transaction: &'h Transaction,
    events: Vec<Event>,
}

/// Keys and versions by number. Key 0 is there for the initial transaction alone; version `key + 1` is what the
/// initial transaction wrote to `key`, so later versions are numbered above.
struct Numbers<'h> {
    keys: Vec<Option<&'h Key>>,
    versions: BTreeMap<(usize, String), usize>,
    /// The text of every later version, in order of its number.
    texts: Vec<String>,
}

impl<'h> Numbers<'h> {
    fn new(history: &'h [Transaction]) -> Self {
        let keys: BTreeSet<&Key> = history.iter().flat_map(|t| &t.steps).map(|step| &step.key).collect();
        let keys = std::iter::once(None).chain(keys.into_iter().map(Some)).collect();
        Numbers { keys, versions: BTreeMap::new(), texts: Vec::new() }
    }

    fn key(&self, key: &[u8]) -> usize {
        self.keys
            .binary_search_by_key(&Some(key), |known| known.map(|key| key.0.as_slice()))
            .unwrap_or_default()
    }

    fn initial(key: usize) -> usize {
        key + 1
    }

    fn version(&mut self, key: usize, text: String) -> usize {
        let next = self.keys.len() + 1 + self.texts.len();
        let texts = &mut self.texts;
        *self.versions.entry((key, text)).or_insert_with_key(|(_, text)| {
            texts.push(text.clone());
            next
        })
    }

    /// A version as its client saw it.
    fn value(&self, version: usize) -> Value {
        let later = version.checked_sub(self.keys.len() + 1).and_then(|index| self.texts.get(index));
        later.map_or(Value::Null, |text| json!(text.trim_matches('"')))
    }
}

/// Writes a history in another format.
///
/// # Errors
/// It holds what the format cannot express, or the output fails. Nothing is written of a history that is refused.
pub fn export(history: &[Transaction], format: Format, mut output: impl Write) -> Result<(), ExportError> {
    let mut numbers = Numbers::new(history);
    let mut exported = Vec::new();
    let mut writers: BTreeMap<usize, u64> = BTreeMap::new();
    // Who asked for nothing saw nothing: so are transactions that only the protocol claims, as their client is in doubt.
    for transaction in history.iter().filter(|transaction| !transaction.steps.is_empty()) {
        exported.push(Exported { transaction, events: events(transaction, &mut numbers, &mut writers)? });
    }
    let seen: BTreeSet<usize> = (exported.iter().filter(|one| one.transaction.outcome == Outcome::Committed))
        .flat_map(|one| &one.events)
        .filter(|event| !event.is_write)
        .map(|event| event.version)
        .collect();
    exported.retain(|one| {
        let was_seen = one.events.iter().any(|event| event.is_write && seen.contains(&event.version));
        one.transaction.outcome != Outcome::Unknown || was_seen
    });
    exported.sort_by_key(|one| (one.transaction.invoked, one.transaction.number));
    match format {
        Format::Plume => plume(&exported, &numbers, &mut output)?,
        Format::Dbcop => dbcop(&exported, &numbers, &mut output)?,
        Format::Porcupine => porcupine(&exported, &numbers, &mut output)?,
    }
    Ok(output.flush()?)
}

fn events<'h>(
    transaction: &'h Transaction,
    numbers: &mut Numbers<'h>,
    writers: &mut BTreeMap<usize, u64>,
) -> Result<Vec<Event>, ExportError> {
    let number = transaction.number;
    let decoded = Decoded::new(transaction).ok_or(ExportError::Unreadable { transaction: number })?;
    let mut events = Vec::new();
    for (index, step) in decoded.steps.iter().enumerate() {
        let key = numbers.key(step.key);
        for touch in touches(step, true) {
            let event = match touch {
                Touch::Read(Content::Absent) => {
                    Event { is_write: false, key, version: Numbers::initial(key) }
                }
                Touch::Read(Content::Value(text)) => {
                    Event { is_write: false, key, version: numbers.version(key, text) }
                }
                Touch::Write(text) => {
                    let version = numbers.version(key, text.clone());
                    if let Some(first) = writers.insert(version, number) {
                        let key = step.key.escape_ascii().to_string();
                        let transactions = [first, number];
                        return Err(ExportError::WrittenTwice { key, value: text, transactions });
                    }
                    Event { is_write: true, key, version }
                }
                _ => {
                    let (key, text) =
                        (step.key.escape_ascii().to_string(), transaction.steps[index].text.clone());
                    return Err(ExportError::Operation { transaction: number, key, text });
                }
            };
            events.push(event);
        }
    }
    Ok(events)
}

/// Sessions in order of their first transaction. The transactions of unknown outcome come last, each for itself.
fn sessions<'a, 'h>(exported: &'a [Exported<'h>]) -> Vec<Vec<&'a Exported<'h>>> {
    let mut sessions: BTreeMap<(bool, u64), Vec<&Exported<'h>>> = BTreeMap::new();
    for one in exported {
        let alone = one.transaction.outcome == Outcome::Unknown;
        let id = if alone { one.transaction.number } else { one.transaction.session };
        sessions.entry((alone, id)).or_default().push(one);
    }
    sessions.into_values().collect()
}

/// As AWDIT parses it: four numbers a line, transactions numbered through all sessions, -1 for an aborted one. Version
/// 0, which AWDIT adds by itself, is not used.
fn plume(
    exported: &[Exported<'_>],
    numbers: &Numbers<'_>,
    output: &mut impl Write,
) -> Result<(), ExportError> {
    for key in 0..numbers.keys.len() {
        writeln!(output, "w({key},{},0,0)", Numbers::initial(key))?;
    }
    let mut next = 0;
    for (index, session) in sessions(exported).into_iter().enumerate() {
        let session_number = index + 1;
        next += 1;
        writeln!(output, "r(0,{},{session_number},{next})", Numbers::initial(0))?;
        for one in session {
            next += 1;
            let aborted = one.transaction.outcome == Outcome::Aborted;
            let transaction = if aborted { -1 } else { next };
            for Event { is_write, key, version } in &one.events {
                let name = if *is_write { 'w' } else { 'r' };
                writeln!(output, "{name}({key},{version},{session_number},{transaction})")?;
            }
        }
    }
    Ok(())
}

/// DBCop's JSON: `data` is an array of sessions, each an array of `{"events": [...], "committed": true}`, with events
/// `{"Read": {"variable": .., "version": ..}}` and `{"Write": {..}}`. What describes the run is constant or counted.
fn dbcop(
    exported: &[Exported<'_>],
    numbers: &Numbers<'_>,
    output: &mut impl Write,
) -> Result<(), ExportError> {
    let event = |is_write: bool, key: usize, version: usize| {
        let fields = json!({"variable": key, "version": version});
        if is_write { json!({"Write": fields}) } else { json!({"Read": fields}) }
    };
    let transaction = |events: Vec<Value>, committed: bool| json!({"events": events, "committed": committed});
    let initial = (0..numbers.keys.len()).map(|key| event(true, key, Numbers::initial(key))).collect();
    let mut data = vec![vec![transaction(initial, true)]];
    for session in sessions(exported) {
        let first = transaction(vec![event(false, 0, Numbers::initial(0))], true);
        let rest = session.into_iter().map(|one| {
            let events = one.events.iter().map(|e| event(e.is_write, e.key, e.version)).collect();
            transaction(events, one.transaction.outcome != Outcome::Aborted)
        });
        data.push(std::iter::once(first).chain(rest).collect());
    }
    let history = json!({
        "params": {
            "id": 0,
            "n_node": data.len(),
            "n_variable": numbers.keys.len(),
            "n_transaction": data.iter().map(Vec::len).max().unwrap_or(0),
            "n_event": exported.iter().map(|one| one.events.len()).max().unwrap_or(0),
        },
        "info": "anabranch",
        "start": "1970-01-01T00:00:00Z",
        "end": "1970-01-01T00:00:00Z",
        "data": data,
    });
    serde_json::to_writer(&mut *output, &history).map_err(io::Error::from)?;
    Ok(writeln!(output)?)
}

/// One operation a line, in order of its call. Clients are numbered from 1, the initial one is 0. The times are microseconds of one clock, moved by two so that the
/// initial operation comes first; who was never answered returns after everybody.
fn porcupine(
    exported: &[Exported<'_>],
    numbers: &Numbers<'_>,
    output: &mut impl Write,
) -> Result<(), ExportError> {
    let end =
        exported.iter().flat_map(|one| [Some(one.transaction.invoked), one.transaction.responded]).flatten();
    let after_all = end.max().unwrap_or(0) + 3;
    let name = |key: usize| numbers.keys[key].map_or_else(String::new, ToString::to_string);
    let step = |event: &Event| match event.is_write {
        true => json!({"op": "put", "key": name(event.key), "value": numbers.value(event.version)}),
        false => json!({"op": "get", "key": name(event.key)}),
    };
    let keys = 1..numbers.keys.len();
    let initial: Vec<Value> =
        keys.map(|key| step(&Event { is_write: true, key, version: Numbers::initial(key) })).collect();
    let first = json!({"client": 0, "call": 0, "return": 1, "input": initial, "output": []});
    writeln!(output, "{first}")?;
    let mut clients: BTreeMap<u64, usize> = BTreeMap::new();
    for one in exported.iter().filter(|one| one.transaction.outcome != Outcome::Aborted) {
        let transaction = one.transaction;
        let answer = transaction.responded.filter(|_| transaction.outcome == Outcome::Committed);
        let input: Vec<Value> = one.events.iter().map(step).collect();
        let reads = one.events.iter().filter(|event| !event.is_write);
        let seen: Vec<Value> = reads.map(|event| numbers.value(event.version)).collect();
        let next = clients.len() + 1;
        let line = json!({
            "client": clients.entry(transaction.session).or_insert(next),
            "call": transaction.invoked + 2,
            "return": answer.map_or(after_all, |answer| answer + 2),
            "input": input,
            "output": seen,
        });
        writeln!(output, "{line}")?;
    }
    Ok(())
}
