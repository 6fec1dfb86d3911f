//! What a check found, and the entry points.

use crate::history::{HistoryError, Transaction, read_history};
use crate::{levels, variables};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// What a history is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// One order explains all replies and respects real time.
    StrictSerializable,
    /// One order explains all replies and respects each session's own.
    Serializable,
    /// Every transaction reads one moment of a commit order, and of two concurrent ones that write a key one fails.
    Snapshot,
    /// Every transaction reads a causally closed, atomic snapshot; sessions only move forward.
    TransactionalCausal,
    /// Every single operation sees all that comes causally before it.
    Causal,
    /// Of a transaction one sees all or nothing.
    ReadAtomic,
    /// Every session sees sequential storage along its branch.
    Branch,
    /// Reads at rest are equal everywhere and account for everything committed.
    Convergence,
    /// A session reads what it wrote, or something later.
    ReadYourWrites,
    /// A session never reads something older than what it read.
    MonotonicReads,
    /// Who sees a write sees the session's earlier ones.
    MonotonicWrites,
    /// Who sees a write sees what its session had read before.
    WritesFollowReads,
    /// Reads at rest account for every operation, once.
    ExactlyOnce,
}

impl Level {
    /// Every level.
    pub const ALL: [Level; 13] = [
        Level::StrictSerializable,
        Level::Serializable,
        Level::Snapshot,
        Level::TransactionalCausal,
        Level::Causal,
        Level::ReadAtomic,
        Level::Branch,
        Level::Convergence,
        Level::ReadYourWrites,
        Level::MonotonicReads,
        Level::MonotonicWrites,
        Level::WritesFollowReads,
        Level::ExactlyOnce,
    ];

    /// The name that the command line takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::StrictSerializable => "strict-serializable",
            Level::Serializable => "serializable",
            Level::Snapshot => "snapshot",
            Level::TransactionalCausal => "transactional-causal",
            Level::Causal => "causal",
            Level::ReadAtomic => "read-atomic",
            Level::Branch => "branch",
            Level::Convergence => "convergence",
            Level::ReadYourWrites => "read-your-writes",
            Level::MonotonicReads => "monotonic-reads",
            Level::MonotonicWrites => "monotonic-writes",
            Level::WritesFollowReads => "writes-follow-reads",
            Level::ExactlyOnce => "exactly-once",
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
    /// The claims do not fit the replies.
    Claims,
    /// The claimed order contradicts itself, real time or a session.
    Order,
    /// A client saw what the explanation does not give.
    Replies,
    /// The effects are not what the operations ask for.
    Effects,
    /// The second model of the plain types comes to something else.
    Model,
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
    /// True when no violation was found but none was excluded either.
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

    pub fn into_violations(self) -> Vec<Violation> {
        self.0
    }
}

/// Checks a history. Convergence and exactly-once effects are checked with every level but the session guarantees,
/// where the history has reads at rest.
pub fn check(history: &[Transaction], level: Level) -> Report {
    report_of(history, level, levels::check)
}

/// The same without exactly-once effects: for a history that goes on from effects that it claims without a request.
pub fn check_replies(history: &[Transaction], level: Level) -> Report {
    report_of(history, level, levels::check_replies)
}

/// What clients saw, as if nothing was claimed: a second opinion on a history that is explained by its claims. Where that leaves
/// the whole undecided, the keys and elements of which all writes name versions are judged by themselves, below snapshot isolation;
/// undecided if there is none.
pub fn check_unclaimed(history: &[Transaction], level: Level) -> Report {
    let without_claims = |transaction: &Transaction| Transaction { claim: None, ..transaction.clone() };
    let without_claims: Vec<Transaction> = history.iter().map(without_claims).collect();
    let whole = report_of(&without_claims, level, levels::infer_into);
    let merged = !matches!(level, Level::Snapshot | Level::Serializable | Level::StrictSerializable);
    let registers = Some(&without_claims)
        .filter(|_| whole.undecided && merged)
        .and_then(|without_claims| variables::on_registers(without_claims));
    registers.map_or(whole, |registers| report_of(&registers, level, levels::infer_into))
}

fn report_of(
    history: &[Transaction],
    level: Level,
    judge: impl Fn(&[Transaction], Level, &mut Findings) -> bool,
) -> Report {
    let mut findings = Findings::default();
    let decided = judge(history, level, &mut findings);
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
