//! Runs of many seeds, for the command line.

use crate::deployment::{Deployment, Mutants};
use crate::deployments;
use crate::finale::{Run, simulate};
use checker::{Check, Violation, write_history};
use serde::Serialize;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds; each is run twice, and both runs must be equal.
    pub seeds: u64,
    /// Keeps a readable trace of every run; for single seeds.
    pub readable: bool,
    /// Deliberate mistakes, for validating the simulator.
    pub mutants: Mutants,
}

/// A seed that broke a promise.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The command that shows it again.
    pub command: String,
    /// What was broken, in words.
    pub violations: Vec<Violation>,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// How many seeds ran.
    pub seeds: u64,
    /// How many transactions clients began.
    pub transactions: u64,
    /// How many of them committed.
    pub committed: u64,
    /// For how many seeds a check remained undecided, nothing being found.
    pub undecided: u64,
    /// How many violations were found.
    pub violations: u64,
    /// A hash of all runs.
    pub trace_hash: String,
    /// The seeds that failed.
    pub failures: Vec<Failure>,
    /// The readable trace of the last run, if it was asked for.
    #[serde(skip)]
    pub trace: Vec<String>,
    /// The history of the last run, as JSON lines.
    #[serde(skip)]
    pub history: Vec<u8>,
}

/// The name is not that of a protocol that can be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProtocol(pub String);

impl std::fmt::Display for UnknownProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no protocol `{}` to simulate; there are {}", self.0, deployments::NAMES.join(", "))
    }
}

impl std::error::Error for UnknownProtocol {}

/// Simulates a protocol by name.
///
/// # Errors
/// When there is none of that name.
pub fn run(protocol: &str, options: &Options) -> Result<Summary, UnknownProtocol> {
    deployments::run(protocol, options).ok_or_else(|| UnknownProtocol(protocol.to_owned()))
}

/// Simulates a deployment: each seed twice, where `build` makes a fresh deployment for each run.
pub fn run_seeds<D: Deployment>(name: &str, options: &Options, build: impl Fn() -> D) -> Summary {
    let mut summary = Summary::default();
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for seed in options.first_seed..options.first_seed + options.seeds {
        let runs = [false, true].map(|again| run_once(build(), seed, options, options.readable && again));
        let [first, second] = runs;
        summary.seeds += 1;
        let mut violations = match (first, second) {
            (Ok(first), Ok(second)) => {
                hash.update(&first.trace_hash.to_le_bytes());
                let mut violations = second.report.violations.clone();
                if first.trace_hash != second.trace_hash {
                    violations.push(progress(format!(
                        "two runs of the seed differ: trace hashes {:016x} and {:016x}",
                        first.trace_hash, second.trace_hash
                    )));
                }
                summary.take(second);
                violations
            }
            (Err(panic), _) | (_, Err(panic)) => vec![progress(format!("panicked: {panic}"))],
        };
        violations.sort_by_key(|violation| violation.check);
        if !violations.is_empty() {
            summary.violations += violations.len() as u64;
            let command = format!("anabranch sim {name} --seed {seed}");
            summary.failures.push(Failure { seed, command, violations });
        }
    }
    summary.trace_hash = format!("{:016x}", hash.digest());
    summary
}

fn progress(message: String) -> Violation {
    Violation { check: Check::Progress, message, transactions: Vec::new() }
}

/// One run; a panic in the protocol is a finding like any other.
fn run_once<D: Deployment>(
    deployment: D,
    seed: u64,
    options: &Options,
    readable: bool,
) -> Result<Run, String> {
    catch_unwind(AssertUnwindSafe(|| simulate(deployment, seed, options.mutants, readable))).map_err(
        |panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
        },
    )
}

impl Summary {
    fn take(&mut self, run: Run) {
        self.transactions += run.history.len() as u64;
        let committed = run.history.iter().filter(|t| t.outcome == checker::Outcome::Committed);
        self.committed += committed.count() as u64;
        self.undecided += u64::from(run.report.undecided);
        self.trace = run.trace;
        self.history.clear();
        // Writing into memory does not fail.
        let _ = write_history(&run.history, &mut self.history);
    }

    /// Writes the history of the last run.
    pub fn write_history(&self, mut output: impl Write) -> std::io::Result<()> {
        output.write_all(&self.history)
    }
}
