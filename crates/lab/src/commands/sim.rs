//! `sim`: seeds of a simulated world, several at a time, or a script.
//!
//! Each seed is run by itself and the results are put together in the order of the seeds, so that the output does not
//! depend on the number of threads.

use crate::cli::SimArguments;
use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use server::Outcome;
use simulator::{Failure, Options, Script, Summary, UnknownProtocol, Violation};
use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of so many histories one may be undecided.
const UNDECIDED_IN: u64 = 100;

/// Runs the seeds or the script, prints the summary, and for what failed the command that shows it again and, of the
/// first one, a short script. Of a single run also what happened, and its history.
pub fn run(arguments: &SimArguments) -> Result<Outcome> {
    let options = |seed: u64| Options {
        first_seed: seed,
        seeds: 1,
        readable: is_verbose(arguments),
        once: arguments.once,
        with: arguments.with.clone(),
        ..Options::default()
    };
    let mut total = match &arguments.script {
        Some(file) => replay(file, arguments)?,
        None => {
            let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok());
            let run_one = |seed| simulator::run(&arguments.protocol, &options(seed));
            run_seeds(seeds(arguments)?, threads.map_or(1, NonZeroUsize::get), run_one)?
        }
    };
    for line in &total.trace {
        eprintln!("{line}");
    }
    if let Some(file) = history_file(arguments) {
        std::fs::write(&file, &total.history).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("history written to {}", file.display());
    }
    if arguments.shrink > 0
        && arguments.script.is_none()
        && let Some(failure) = total.failures.first()
    {
        let seed = failure.seed;
        let shrunk = simulator::shrink_seed(&arguments.protocol, seed, &options(seed), arguments.shrink)?;
        total.shrunk = shrunk.map(|shrunk| Short {
            seed,
            faults_before: shrunk.before.0,
            transactions_before: shrunk.before.1,
            faults: shrunk.script.faults(),
            transactions: shrunk.script.transactions(),
            script: shrunk.script.lines(),
            violations: shrunk.violations,
        });
    }
    total.shortfalls = total.judge();
    print(&arguments.protocol, &total, arguments.json)?;
    Ok(Outcome::of(total.violations == 0 && total.shortfalls.is_empty()))
}

/// The requested seeds.
fn seeds(arguments: &SimArguments) -> Result<Range<u64>> {
    let (first, count) = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => (seed, 1),
        (None, seeds) => (arguments.first_seed, seeds.map_or(1, NonZeroU64::get)),
    };
    Ok(first..first.checked_add(count).context("the seed is too large")?)
}

/// True if the run is printed event by event: a single run is.
fn is_verbose(arguments: &SimArguments) -> bool {
    arguments.seeds.is_none() && !arguments.quiet
}

/// Where the history goes.
fn history_file(arguments: &SimArguments) -> Option<PathBuf> {
    let named = |seed: u64| PathBuf::from(format!("sim-{}-{seed}.jsonl", arguments.protocol));
    let default = arguments.seed.filter(|_| is_verbose(arguments)).map(named);
    arguments.history.clone().or(default)
}

fn replay(file: &Path, arguments: &SimArguments) -> Result<Total> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let script = Script::read(&text[..]).with_context(|| format!("cannot use {}", file.display()))?;
    let (said, wanted) = (script.protocol(), &arguments.protocol);
    ensure!(said == wanted, "{} is a script of `{said}`: run `anabranch-lab sim {said}`", file.display());
    let mut summary = simulator::replay(&script, is_verbose(arguments))?;
    for failure in &mut summary.failures {
        failure.command = format!("anabranch-lab sim {said} --script {}", file.display());
    }
    let mut total = Total::default();
    total.add(summary);
    Ok(total)
}

/// A failing seed as a short script.
#[derive(Debug, Serialize)]
struct Short {
    seed: u64,
    faults_before: usize,
    transactions_before: usize,
    faults: usize,
    transactions: usize,
    script: Vec<String>,
    violations: Vec<Violation>,
}

/// The seeds' summaries put together.
#[derive(Debug, Default, Serialize)]
struct Total {
    seeds: u64,
    transactions: u64,
    committed: u64,
    /// For how many seeds a check remained undecided, nothing being found.
    undecided: u64,
    /// Of how many with a causal history what clients saw decided nothing without its claims.
    undecided_unclaimed: u64,
    /// Of how many with a strict history the search for an order gave up, which believes no claim.
    gave_up: u64,
    violations: u64,
    /// How many seeds committed nothing.
    idle: u64,
    /// Why the seeds show too little though nothing is broken.
    shortfalls: Vec<String>,
    /// The seeds' own hashes, folded in their order.
    trace_hash: String,
    failures: Vec<Failure>,
    /// The first failure, shrunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    shrunk: Option<Short>,
    /// Of the first seed that failed, or else of the last one.
    #[serde(skip)]
    history: Vec<u8>,
    #[serde(skip)]
    trace: Vec<String>,
    #[serde(skip)]
    hash: u64,
}

impl Total {
    /// Adds the summary of the next seed.
    fn add(&mut self, summary: Summary) {
        if self.failures.is_empty() {
            self.history = summary.history;
        }
        self.seeds += summary.seeds;
        self.transactions += summary.transactions;
        self.committed += summary.committed;
        self.undecided += summary.undecided;
        self.undecided_unclaimed += summary.undecided_unclaimed;
        self.gave_up += summary.gave_up;
        self.violations += summary.violations;
        self.idle += u64::from(summary.committed == 0);
        self.failures.extend(summary.failures);
        self.trace.extend(summary.trace);
        let own = u64::from_str_radix(&summary.trace_hash, 16).unwrap_or_default();
        self.hash = self.hash.rotate_left(5) ^ own;
        self.trace_hash = format!("{:016x}", self.hash);
    }

    /// A run that commits nothing shows nothing, and neither do many histories that no check decides, or for which the search
    /// gave up. One undecided history among fewer than two hundred is bad luck.
    fn judge(&self) -> Vec<String> {
        let mut shortfalls = Vec::new();
        let (undecided, seeds) = (self.undecided + self.gave_up, self.seeds);
        if undecided > (seeds / UNDECIDED_IN).max(1) {
            shortfalls.push(format!(
                "{undecided} of {seeds} histories are undecided, more than 1 in {UNDECIDED_IN}"
            ));
        }
        if self.idle > 0 {
            shortfalls.push(format!("{} of {} runs committed nothing", self.idle, self.seeds));
        }
        shortfalls
    }
}

/// Runs every seed on some thread.
fn run_seeds(
    seeds: Range<u64>,
    threads: usize,
    run_one: impl Fn(u64) -> Result<Summary, UnknownProtocol> + Sync,
) -> Result<Total> {
    let next = AtomicU64::new(seeds.start);
    let waiting: Mutex<Collector> = Mutex::new(Collector { next: seeds.start, ..Collector::default() });
    let work = || -> Result<(), UnknownProtocol> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return Ok(());
            }
            let summary = run_one(seed)?;
            let mut collector = waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            collector.take(seed, summary);
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for handle in handles {
            handle.join().map_err(|_| anyhow!("the simulator itself panicked; its message is above"))??;
        }
        Ok(())
    })?;
    Ok(waiting.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).total)
}

/// Puts summaries that come in any order into the order of their seeds.
#[derive(Default)]
struct Collector {
    next: u64,
    early: BTreeMap<u64, Summary>,
    total: Total,
}

impl Collector {
    fn take(&mut self, seed: u64, summary: Summary) {
        self.early.insert(seed, summary);
        while let Some(summary) = self.early.remove(&self.next) {
            self.total.add(summary);
            self.next += 1;
        }
    }
}

/// Of how many seeds something remained open.
fn undecided(total: &Total) -> String {
    let mut text = format!("{} undecided", total.undecided);
    if total.undecided_unclaimed > 0 {
        text += &format!(", {} without their claims", total.undecided_unclaimed);
    }
    if total.gave_up > 0 {
        text += &format!(", {} searches gave up", total.gave_up);
    }
    text
}

fn print(protocol: &str, total: &Total, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(total)?);
        return Ok(());
    }
    println!(
        "{protocol}: {} seeds ({}), {} transactions ({} committed), {} violations, trace hash {}",
        total.seeds,
        undecided(total),
        total.transactions,
        total.committed,
        total.violations,
        total.trace_hash
    );
    for shortfall in &total.shortfalls {
        println!("{shortfall}");
    }
    for failure in &total.failures {
        println!("\nseed {}: {}", failure.seed, failure.command);
        for violation in &failure.violations {
            println!("  {violation}\n  transactions: {:?}", violation.transactions);
        }
    }
    if let Some(short) = &total.shrunk {
        println!(
            "\nseed {} shrunk from {} faults and {} transactions to {} and {}; save the lines as FILE and run \
             `anabranch-lab sim {protocol} --script FILE`:",
            short.seed, short.faults_before, short.transactions_before, short.faults, short.transactions
        );
        short.script.iter().for_each(|line| println!("{line}"));
        println!("it shows:");
        short.violations.iter().for_each(|violation| println!("  {violation}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A summary that only this seed has; every fifth seed fails.
    fn summary(seed: u64) -> Result<Summary, UnknownProtocol> {
        let failures = match seed % 5 {
            3 => vec![Failure { seed, command: format!("again {seed}"), violations: Vec::new() }],
            _ => Vec::new(),
        };
        Ok(Summary {
            seeds: 1,
            transactions: 10,
            committed: 4,
            violations: failures.len() as u64,
            failures,
            trace_hash: format!("{:016x}", seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            history: seed.to_string().into_bytes(),
            ..Summary::default()
        })
    }

    #[test]
    fn the_result_does_not_depend_on_the_threads() {
        let one = run_seeds(0..40, 1, summary).unwrap();
        let four = run_seeds(0..40, 4, |seed| {
            // Lower seeds take longer, so that they end out of order.
            std::thread::sleep(std::time::Duration::from_micros(40 - seed));
            summary(seed)
        })
        .unwrap();
        let text = |total: &Total| serde_json::to_string(total).unwrap();
        assert_eq!(text(&one), text(&four));
        assert_eq!((one.seeds, one.transactions, one.violations), (40, 400, 8));
        assert_eq!(four.failures.iter().map(|failure| failure.seed).collect::<Vec<_>>()[..2], [3, 8]);
    }

    #[test]
    fn the_history_is_that_of_the_first_failure() {
        assert_eq!(run_seeds(0..3, 2, summary).unwrap().history, b"2");
        assert_eq!(run_seeds(0..9, 2, summary).unwrap().history, b"3");
    }

    #[test]
    fn too_many_undecided_histories_and_idle_runs_are_shortfalls() {
        let total = |seeds, undecided, idle| Total { seeds, undecided, idle, ..Total::default() };
        assert!(total(50, 1, 0).judge().is_empty() && total(300, 3, 0).judge().is_empty());
        assert_eq!(total(50, 2, 0).judge().len(), 1);
        assert_eq!(total(300, 4, 1).judge().len(), 2);
    }

    #[test]
    fn an_unknown_protocol_is_an_error() {
        let error = run_seeds(0..4, 2, |_| Err(UnknownProtocol("x".into()))).unwrap_err();
        assert!(error.to_string().contains("`x`"), "{error}");
    }
}
