//! What a check found, and the entry points.

use crate::history::{HistoryError, Transaction, read_history};
use crate::{causal, convergence, search, strict, totals};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// What a history is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// One order explains all replies and respects real time.
    StrictSerializable,
    /// One order explains all replies and respects each session's own.
    Serializable,
    /// Every transaction reads a causally closed, atomic snapshot; sessions only move forward.
    TransactionalCausal,
    /// Reads at rest are equal everywhere and account for everything committed.
    Convergence,
}

impl Level {
    /// Every level.
    pub const ALL: [Level; 4] =
        [Level::StrictSerializable, Level::Serializable, Level::TransactionalCausal, Level::Convergence];

    /// The name that the command line takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::StrictSerializable => "strict-serializable",
            Level::Serializable => "serializable",
            Level::TransactionalCausal => "transactional-causal",
            Level::Convergence => "convergence",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Level::ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| {
            let names: Vec<&str> = Level::ALL.iter().map(|level| level.as_str()).collect();
            format!("unknown level `{text}`; there are {}", names.join(", "))
        })
    }
}

/// Which promise a violation breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The claims do not fit what clients were told.
    Claims,
    /// The claimed order contradicts itself, real time or a session.
    Order,
    /// A client saw what the explanation does not give.
    Replies,
    /// The effects are not what the operations ask for.
    Effects,
    /// A snapshot is not closed under what its members saw.
    CausalClosure,
    /// A snapshot counts a transaction that began only after it was used.
    StableTime,
    /// A session went back, or lost its own writes.
    Session,
    /// Regions or gateways differ at rest.
    Convergence,
    /// Something committed is missing, or counted twice.
    ExactlyOnce,
    /// Something did not end, or nobody answered, after everything was healed.
    Progress,
}

/// A broken promise, with its counterexample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Which promise.
    pub check: Check,
    /// What happened, in a few lines.
    pub message: String,
    /// The transactions that show it, by number.
    pub transactions: Vec<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.check, self.message)
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was checked.
    pub model: Level,
    /// True without violations.
    pub ok: bool,
    /// True when a search without claims gave up, so that the absence of violations says little.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undecided: bool,
    /// How many transactions the history has.
    pub transactions: usize,
    /// What was found; at most a handful, the first of each kind.
    pub violations: Vec<Violation>,
}

/// At most so many violations are reported.
const REPORTED: usize = 8;

/// Collects violations up to a handful.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Violation>);

impl Findings {
    pub fn add(&mut self, check: Check, message: String, transactions: Vec<u64>) {
        if self.0.len() < REPORTED {
            self.0.push(Violation { check, message, transactions });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks a history. Where nobody claims anything, strict serializability is searched for, which may remain undecided,
/// and the other levels' orders cannot be checked at all. The levels include what they imply: convergence and exactly-once effects are checked with every
/// level where the history has reads at rest.
pub fn check(history: &[Transaction], level: Level) -> Report {
    let mut findings = Findings::default();
    let claimed =
        level == Level::Convergence || history.iter().any(|transaction| transaction.claim.is_some());
    let mut decided = claimed || history.is_empty();
    match level {
        Level::StrictSerializable if !claimed => decided = search::check(history, &mut findings),
        Level::Serializable | Level::TransactionalCausal if !claimed => {}
        Level::StrictSerializable => decided = strict::check(history, true, &mut findings),
        Level::Serializable => decided = strict::check(history, false, &mut findings),
        Level::TransactionalCausal => causal::check(history, &mut findings),
        Level::Convergence => {}
    }
    convergence::check(history, &mut findings);
    totals::check(history, &mut findings);
    let undecided = !decided && findings.is_empty();
    Report {
        model: level,
        ok: findings.is_empty(),
        undecided,
        transactions: history.len(),
        violations: findings.0,
    }
}

/// Checks a history file.
pub fn check_file(path: &Path, level: Level) -> Result<Report, HistoryError> {
    let file = std::fs::File::open(path)
        .map_err(|error| HistoryError { line: 0, reason: format!("{}: {error}", path.display()) })?;
    Ok(check(&read_history(std::io::BufReader::new(file))?, level))
}
