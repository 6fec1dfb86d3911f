//! The history format; see the crate's documentation.

use crate::constraint::Constraints;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::io::{BufRead, Write};

/// A key: bytes that are printed readably.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vec<u8>);

/// A binary form: bytes that are printed in hexadecimal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub Vec<u8>);

/// What became of a transaction, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It took effect.
    Committed,
    /// It had no effect.
    Aborted,
    /// The client got no reply.
    Unknown,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The key.
    pub key: Key,
    /// The operation's binary form.
    pub operation: Bytes,
    /// The operation for readers; ignored by the checks.
    #[serde(default)]
    pub text: String,
    /// True when the client did not ask for the result.
    #[serde(default)]
    pub blind: bool,
    /// What the client saw, as [`crate::render`] writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    /// Where branches are merged: the parent state that this step read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// A place in the commit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Commit {
    /// The commit timestamp.
    pub at: u64,
    /// Wren's remote dependency time; 0 elsewhere.
    #[serde(default)]
    pub depends_on: u64,
    /// Where it committed.
    #[serde(default)]
    pub region: u16,
}

/// What a causal transaction could see, beside its session's or its thread's own writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The region it ran in.
    pub region: u16,
    /// Wren's local snapshot time.
    pub local: u64,
    /// Wren's remote snapshot time.
    pub remote: u64,
}

/// What a transaction says of every region, in order of their numbers. Its snapshot is as fresh as a clock: it is no promise
/// that nothing of it is yet to come, where it has not been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// Up to where it could see each region's effects, if what these depend on is shown too.
    #[serde(default)]
    pub snapshot: Vec<u64>,
    /// Up to where its own effects depend on each other region.
    #[serde(default)]
    pub depends_on: Vec<u64>,
    /// Its effects have observed as much of each region and no more, and are merged by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merges: bool,
    /// Where keys are read by themselves, in place of the snapshot: up to where it could see what each region did to them, beside
    /// what its session has seen before, and what all of that depends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<(Key, Vec<u64>)>>,
}

/// A committed effect's place, and what it observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedPlace<'h> {
    pub region: u16,
    pub at: u64,
    depends_on: u64,
    /// Up to where of each region, if that is known.
    by_region: Option<&'h [u64]>,
}

impl ObservedPlace<'_> {
    /// True if it observed everything of another region up to a place.
    pub fn reaches(&self, region: u16, at: u64) -> bool {
        let of_region = |times: &[u64]| times.get(usize::from(region)).copied().unwrap_or(0);
        at <= self.by_region.map_or(self.depends_on, of_region)
    }

    /// True if it observed an earlier one.
    pub fn observed(&self, earlier: &ObservedPlace<'_>) -> bool {
        self.region == earlier.region || self.reaches(earlier.region, earlier.at)
    }
}

/// What a transaction says of the causal thread that it shares with others: of the coordinator that its id names, in that life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// It could see so many of the transactions that the thread took up, the first ones, whatever its snapshot shows.
    pub seen: u64,
    /// The place among them at which it was taken up itself, if it changed anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<u64>,
    /// What it observed of the thread beyond that, by the names that claims have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<[u64; 3]>,
}

/// What the protocol claims about a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Process, incarnation and number.
    pub transaction: [u64; 3],
    /// Its place in the commit order, if it took one.
    pub commit: Option<Commit>,
    /// What it could see, if that is not everything before its place.
    pub snapshot: Option<Snapshot>,
    /// The same with a time for each region, where the snapshot's two do not say all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<Vector>,
    /// What it saw of a causal thread that sessions share; absent where each session is a thread of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    /// Keys and the binary forms of the effects committed on them, in the order of application.
    pub effects: Vec<(Key, Bytes)>,
    /// Where it stands in the State DAG of a branch keyspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Branch>,
}

/// The state in which a branch keyspace begins.
pub const ROOT: &str = "root";

/// What a transaction of a branch keyspace claims about states (TARDiS). States are named by strings; [`ROOT`] is the
/// empty keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Branch {
    /// The states it read: one, or for a merge those that it merges.
    pub read: Vec<String>,
    /// The state it made; none for a transaction that changed nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The states that one continues: one, or for a merge several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// True if an application's handler decides what the types' rules leave open in this merge.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handled: bool,
}

impl Claim {
    /// Its place for what is decided by who observed whom. With a time for each region that is not merged by, effects are
    /// performed in order of place, as if all were of one region.
    pub(crate) fn place_among_concurrent(&self) -> Option<ObservedPlace<'_>> {
        let Commit { at, depends_on, region } = self.commit?;
        let by_region = self.vector.as_ref().filter(|vector| vector.merges);
        let by_region = by_region.map(|vector| vector.depends_on.as_slice());
        let region = if self.vector.is_some() && by_region.is_none() { 0 } else { region };
        Some(ObservedPlace { region, at, depends_on, by_region })
    }

    /// The place in the commit order, comparable: the timestamp, then the id.
    pub fn place(&self) -> Option<(u64, [u64; 3])> {
        Some((self.commit?.at, self.transaction))
    }
}

/// One transaction that a client began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transaction {
    /// Its name in the history.
    pub number: u64,
    /// The client's session: a causal thread, or one of several that share one.
    pub session: u64,
    /// When the client sent it, in microseconds.
    pub invoked: u64,
    /// When the client had its answer, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responded: Option<u64>,
    /// What became of it.
    pub outcome: Outcome,
    /// What it did.
    pub steps: Vec<Step>,
    /// What the protocol claims about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The transaction whose session's context, as it was after it, this one's session had taken over before this one
    /// began: this one must see what that one saw and wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<u64>,
    /// The causal thread that its session shared with others, if it did: a transaction invoked after another one of
    /// the thread was answered must see what that one saw and wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u64>,
    /// True if its region was lost and an operator accepted that what only that region had is given up, this one with it:
    /// it counts for what the region's own sessions saw, and for nobody else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
    /// True if its reply was the error that writes of its session were given up.
    #[serde(rename = "told_of_loss", default, skip_serializing_if = "std::ops::Not::not")]
    pub loss_reported: bool,
    /// True for a read made when everything had come to rest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_rest: bool,
    /// What it demanded of states, where it chose them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Constraints>,
}

impl Transaction {
    /// The claimed place in the commit order.
    pub fn place(&self) -> Option<(u64, [u64; 3])> {
        self.claim.as_ref().and_then(Claim::place)
    }

    /// Where it claims to have committed.
    pub fn region(&self) -> Option<u16> {
        Some(self.claim.as_ref()?.commit?.region)
    }

    /// True when its effects are in force: the client knows it, or the claim says so where the client does not.
    pub fn took_effect(&self) -> bool {
        match self.outcome {
            Outcome::Committed => true,
            Outcome::Aborted => false,
            Outcome::Unknown => self.place().is_some(),
        }
    }
}

/// A line of a history file is not a transaction.
#[derive(Debug)]
pub struct HistoryError {
    /// The line, counted from 1; 0 when the file itself cannot be read.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "cannot read the history: {}", self.reason),
            line => write!(f, "line {line} of the history: {}", self.reason),
        }
    }
}

impl std::error::Error for HistoryError {}

/// Reads a history, one JSON object a line; empty lines are skipped.
pub fn read_history(input: impl BufRead) -> Result<Vec<Transaction>, HistoryError> {
    let mut history = Vec::new();
    for (index, line) in input.lines().enumerate() {
        let line = line.map_err(|error| HistoryError { line: index + 1, reason: error.to_string() })?;
        if !line.trim().is_empty() {
            let transaction = serde_json::from_str(&line);
            history.push(
                transaction.map_err(|error| HistoryError { line: index + 1, reason: error.to_string() })?,
            );
        }
    }
    Ok(history)
}

/// Writes a history, one JSON object a line.
pub fn write_history(history: &[Transaction], mut output: impl Write) -> std::io::Result<()> {
    for transaction in history {
        serde_json::to_writer(&mut output, transaction)?;
        output.write_all(b"\n")?;
    }
    output.flush()
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| match byte {
            b'\\' => f.write_str("\\x5c"),
            b' '..=b'~' => write!(f, "{}", *byte as char),
            byte => write!(f, "\\x{byte:02x}"),
        })
    }
}

impl Key {
    fn parse(text: &str) -> Result<Self, String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            if *first != b'\\' {
                bytes.push(*first);
                rest = tail;
                continue;
            }
            let [b'x', high, low, tail @ ..] = tail else { return Err("a backslash without xNN".into()) };
            bytes.push(hex_byte(*high, *low)?);
            rest = tail;
        }
        Ok(Key(bytes))
    }
}

fn hex_byte(high: u8, low: u8) -> Result<u8, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).ok_or_else(|| "not a hexadecimal digit".to_owned());
    Ok((digit(high)? * 16 + digit(low)?) as u8)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Bytes {
    fn parse(text: &str) -> Result<Self, String> {
        let (pairs, odd) = text.as_bytes().as_chunks::<2>();
        if !odd.is_empty() {
            return Err("an odd number of hexadecimal digits".into());
        }
        pairs.iter().map(|[high, low]| hex_byte(*high, *low)).collect::<Result<_, _>>().map(Bytes)
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }
    )*};
}
as_text!(Key, Bytes);
