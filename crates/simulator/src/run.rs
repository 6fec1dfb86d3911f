//! Runs of many seeds, of scripts, and of what is left out of them, for the command line.

use crate::deployment::{Deployment, Mutants};
use crate::deployments::{self, Task};
use crate::faults::Feature;
use crate::finale::{PATIENCE, Run};
use crate::script::Script;
use crate::shrink::{Shrunk, shrink};
use crate::world::World;
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
    /// Runs every seed once only: what is looked for is a violation, and equal runs are shown elsewhere.
    pub once: bool,
    /// Keeps a readable trace of every run; for single seeds.
    pub readable: bool,
    /// Deliberate mistakes, for validating the simulator.
    pub mutants: Mutants,
    /// What every seed brings.
    pub with: Vec<Feature>,
    /// How long traffic lasts under faults, in microseconds of virtual time: eight seconds unless this says less.
    pub traffic: Option<u64>,
    /// Within what time everything must have come to rest after healing, in microseconds of virtual time: a minute unless this
    /// says less. For a known bug after which it never does.
    pub patience: Option<u64>,
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
    /// Of how many seeds with a causal history what clients saw, as if nothing was claimed, decided nothing.
    pub undecided_unclaimed: u64,
    /// Of how many seeds with a strict history the search for an order, which believes no claim, gave up.
    pub gave_up: u64,
    /// How many violations were found.
    pub violations: u64,
    /// A hash of all runs.
    pub trace_hash: String,
    /// The seeds that failed.
    pub failures: Vec<Failure>,
    /// The readable trace of the last run, if requested.
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
    struct Seeds<'a>(&'a str, &'a Options);
    impl Task for Seeds<'_> {
        type Result = Summary;
        fn perform<D: Deployment>(self, build: impl Fn() -> D) -> Summary {
            run_seeds(self.0, self.1, build)
        }
    }
    find(protocol, Seeds(protocol, options))
}

/// Runs a script twice, like a seed.
///
/// # Errors
/// When there is no protocol of the name that it says.
pub fn replay(script: &Script, readable: bool) -> Result<Summary, UnknownProtocol> {
    struct Replay<'a>(&'a Script, bool);
    impl Task for Replay<'_> {
        type Result = Summary;
        fn perform<D: Deployment>(self, build: impl Fn() -> D) -> Summary {
            run_script(self.0, &Options { readable: self.1, ..Options::default() }, build)
        }
    }
    find(&script.protocol, Replay(script, readable))
}

/// Runs a script with a deployment: twice unless the options say once, where `build` makes a fresh one for each run.
pub fn run_script<D: Deployment>(script: &Script, options: &Options, build: impl Fn() -> D) -> Summary {
    let mut summary = Summary::default();
    summary.run(script, options, String::new(), &|| run_once(build(), script, options));
    summary
}

/// Shrinks the run of a failing seed by running it at most so often; `None` if it does not fail.
///
/// # Errors
/// When there is no protocol of that name.
pub fn shrink_seed(
    protocol: &str,
    seed: u64,
    options: &Options,
    runs: usize,
) -> Result<Option<Shrunk>, UnknownProtocol> {
    struct Shrink<'a>(&'a str, u64, &'a Options, usize);
    impl Task for Shrink<'_> {
        type Result = Option<Shrunk>;
        fn perform<D: Deployment>(self, build: impl Fn() -> D) -> Option<Shrunk> {
            let Shrink(protocol, seed, options, runs) = self;
            let script = Script::draw(protocol, &build(), seed, &options.with);
            shrink(script, options.mutants, runs, build)
        }
    }
    find(protocol, Shrink(protocol, seed, options, runs))
}

fn find<T: Task>(protocol: &str, task: T) -> Result<T::Result, UnknownProtocol> {
    deployments::with(protocol, task).ok_or_else(|| UnknownProtocol(protocol.to_owned()))
}

/// Simulates a deployment: each seed twice unless the options say once, where `build` makes a fresh deployment for each
/// run.
pub fn run_seeds<D: Deployment>(name: &str, options: &Options, build: impl Fn() -> D) -> Summary {
    let mut summary = Summary::default();
    let with: String = options.with.iter().map(|feature| format!(" --with {feature}")).collect();
    for seed in options.first_seed..options.first_seed + options.seeds {
        let script = Script::draw_for(options.traffic, name, &build(), seed, &options.with);
        let brief = options.traffic.map_or(String::new(), |traffic| format!(" (for {traffic} us)"));
        let command = format!("anabranch-lab sim {name} --seed {seed}{with}{brief}");
        summary.run(&script, options, command, &|| run_once(build(), &script, options));
    }
    summary
}

fn progress(message: String) -> Violation {
    Violation { check: Check::Progress, message, transactions: Vec::new() }
}

/// A panic in the protocol, which is a finding like any other.
pub(crate) struct Panic {
    pub message: String,
    /// The script with the transactions that had begun.
    pub script: Script,
}

/// One run.
pub(crate) fn run_once<D: Deployment>(
    deployment: D,
    script: &Script,
    options: &Options,
) -> Result<Run, Box<Panic>> {
    let mut world = World::new(deployment, script, options.mutants, options.readable);
    world.patience = options.patience.unwrap_or(PATIENCE);
    let played = catch_unwind(AssertUnwindSafe(|| world.play(script)));
    let plans = Some(world.began.clone());
    let run = played.and_then(|listed| catch_unwind(AssertUnwindSafe(|| world.into_run(script, listed))));
    run.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let message = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let script = Script { plans, ..script.clone() };
        Box::new(Panic { message: message.unwrap_or_default(), script })
    })
}

impl Summary {
    /// Runs a script, as often as the options say, and takes what came of it. `run` runs it once.
    fn run(
        &mut self,
        script: &Script,
        options: &Options,
        command: String,
        run: &dyn Fn() -> Result<Run, Box<Panic>>,
    ) {
        let first = (!options.once).then(run);
        let last = run();
        self.seeds += 1;
        let mut violations = match (first, last) {
            (Some(Err(panic)), _) | (_, Err(panic)) => vec![progress(format!("panicked: {}", panic.message))],
            (first, Ok(last)) => {
                let own = format!("{}{:016x}", self.trace_hash, last.trace_hash);
                self.trace_hash = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(own.as_bytes()));
                let mut violations = last.report.violations.clone();
                if let Some(Ok(first)) = first
                    && first.trace_hash != last.trace_hash
                {
                    violations.push(progress(format!(
                        "two runs of the seed differ: trace hashes {:016x} and {:016x}",
                        first.trace_hash, last.trace_hash
                    )));
                }
                self.take(last);
                violations
            }
        };
        violations.sort_by_key(|violation| violation.check);
        if !violations.is_empty() {
            self.violations += violations.len() as u64;
            self.failures.push(Failure { seed: script.seed, command, violations });
        }
    }

    fn take(&mut self, run: Run) {
        self.transactions += run.history.len() as u64;
        let committed = run.history.iter().filter(|t| t.outcome == checker::Outcome::Committed);
        self.committed += committed.count() as u64;
        self.undecided += u64::from(run.report.undecided);
        self.undecided_unclaimed += u64::from(run.undecided_unclaimed);
        self.gave_up += u64::from(run.gave_up);
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
