//! `sim`, and the simulation step of `test`: the laboratory's own `sim` command, for many protocols.
//!
//! The step of `test` simulates seeds that follow from the commit, so that every commit explores others and any run
//! can be repeated: one seed of each protocol twice, which must be equal, then as many seeds as there is time for, each
//! once, in turn over the protocols. Every run is a process of its own, and as many run at a time as there are
//! processors.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::parallel::{lock, on_all_processors};
use crate::suite;
use crate::workspace::{Workspace, capture};

/// What is simulated when nobody names a protocol.
const PROTOCOLS: &[&str] = &[
    "solo",
    "tapir",
    "tapir-serializable",
    "wren",
    "paris",
    "pocc",
    "cops",
    "cops-gt",
    "cops-cd",
    "locking",
    "occ",
    "tardis",
    "tardis-forking",
    "tardis-handler",
    "tardis-parts",
    "wren-copies",
    "paris-copies",
    "pocc-copies",
    "cops-copies",
    "cops-gt-copies",
];
/// The protocols that users get unless they choose another: twice as many seeds.
const DEFAULTS: &[&str] = &["tapir", "wren"];
/// Baselines for measurements: a quarter as many, as they share most of their code with the others.
const BASELINES: &[&str] = &["cure", "h-cure", "bpr", "nocc"];
/// The first seed that brings rare features; `test` takes one below.
pub const RARE: u64 = 10_000_000;
/// Seeds per protocol of a quick run.
const QUICK_SEEDS: u32 = 40;
/// How long the step of `test` begins runs.
const BUDGET: Duration = Duration::from_secs(30);
/// Of so many histories one may be undecided; one among fewer is bad luck.
const DECIDED: u64 = 100;

/// `cargo xtask sim [PROTOCOL...] [--first-seed N] [--seeds N]`: every seed twice.
pub fn sim(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let request = parse_sim(arguments)?;
    suite::build(workspace)?;
    let seeds = Seeds { first: request.first_seed, count: request.seeds, once: false };
    request.protocols.iter().try_for_each(|protocol| simulate(workspace, protocol, seeds).map(drop))
}

/// Many seeds of every protocol, each once; prints what came of them, then of all together.
pub fn explore(workspace: &Workspace, first: u64, count: u32) -> Result<()> {
    let seeds = Seeds { first, count, once: true };
    let mut counts = Counts::default();
    for protocol in PROTOCOLS {
        let report = simulate(workspace, protocol, seeds)?;
        counts.add(protocol, &report)?;
    }
    println!("{counts}");
    Ok(())
}

/// Which seeds to run, and whether each once only.
#[derive(Clone, Copy)]
struct Seeds {
    first: u64,
    count: u32,
    once: bool,
}

impl Seeds {
    fn command(self, workspace: &Workspace, protocol: &str) -> std::process::Command {
        let mut sim = workspace.command(workspace.laboratory());
        sim.args(["sim", protocol, "--json", "--first-seed", &self.first.to_string()]);
        sim.args(["--seeds", &self.count.to_string()]).args(self.once.then_some("--once"));
        sim
    }
}

/// Simulates a protocol with all processors; prints and returns the report.
fn simulate(workspace: &Workspace, protocol: &str, seeds: Seeds) -> Result<String> {
    let report = capture(&mut seeds.command(workspace, protocol))?;
    print!("{protocol}: {report}");
    Ok(report)
}

/// What `test` simulates; see the module.
pub fn smoke(workspace: &Workspace) -> Result<()> {
    let first = u64::from(workspace.seed()) % (RARE / 2);
    let mut plan = Plan::new(first);
    println!("seeds from {first} on");
    let start = Instant::now();
    let (plan, counts) = (Mutex::new(&mut plan), Mutex::new(Counts::default()));
    on_all_processors(|| {
        loop {
            let next = lock(&plan).next(start.elapsed() < BUDGET);
            let Some((protocol, seeds)) = next else { return Ok(()) };
            let mut sim = seeds.command(workspace, protocol);
            let report = capture(sim.args(["--threads", "1"])).inspect_err(|_| lock(&plan).stop())?;
            lock(&counts).add(protocol, &report)?;
        }
    })?;
    counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).judge()
}

/// Which run comes next.
struct Plan {
    first: u64,
    /// The protocols whose first seed is still to be run twice.
    twice: Vec<&'static str>,
    /// How often all protocols have had their turn, and which are left of this turn.
    turns: u64,
    turn: Vec<&'static str>,
    /// How many seeds of a protocol have begun.
    begun: BTreeMap<&'static str, u64>,
}

impl Plan {
    fn new(first: u64) -> Self {
        let twice = [PROTOCOLS, BASELINES].concat();
        Plan { first, twice, turns: 0, turn: Vec::new(), begun: BTreeMap::new() }
    }

    /// The next run: of every protocol one seed twice, then, while there is time, in turn one seed once.
    fn next(&mut self, has_time: bool) -> Option<(&'static str, Seeds)> {
        let twice = self.twice.pop();
        if twice.is_none() && !has_time {
            return None;
        }
        if twice.is_none() && self.turn.is_empty() {
            let baselines = if self.turns.is_multiple_of(4) { BASELINES } else { &[] };
            self.turn = [PROTOCOLS, DEFAULTS, baselines].concat();
            self.turns += 1;
        }
        let protocol = twice.or_else(|| self.turn.pop())?;
        let begun = self.begun.entry(protocol).or_default();
        let seeds = Seeds { first: self.first + *begun, count: 1, once: twice.is_none() };
        *begun += 1;
        Some((protocol, seeds))
    }

    /// Lets nothing more begin.
    fn stop(&mut self) {
        self.twice.clear();
        self.turn.clear();
    }
}

/// What came of all runs.
#[derive(Default)]
struct Counts {
    seeds: BTreeMap<&'static str, u64>,
    undecided: u64,
    /// Of how many strict histories the search for an order gave up.
    gave_up: u64,
    transactions: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { undecided, gave_up, transactions, .. } = self;
        let seeds = self.total();
        write!(
            f,
            "{seeds:>5} seeds, {transactions} transactions, {undecided} undecided, {gave_up} searches gave up"
        )
    }
}

impl Counts {
    fn total(&self) -> u64 {
        self.seeds.values().sum()
    }

    fn add(&mut self, protocol: &'static str, report: &str) -> Result<()> {
        let report: Value = serde_json::from_str(report)
            .with_context(|| format!("`sim {protocol}` reported no JSON: {report}"))?;
        let number =
            |field: &str| report[field].as_u64().with_context(|| format!("no `{field}` in {report}"));
        *self.seeds.entry(protocol).or_default() += number("seeds")?;
        self.undecided += number("undecided")?;
        self.gave_up += number("gave_up")?;
        self.transactions += number("transactions")?;
        Ok(())
    }

    /// Prints the counts; fails where too little was decided.
    fn judge(&self) -> Result<()> {
        for (protocol, seeds) in &self.seeds {
            println!("{seeds:>5} seeds of {protocol}");
        }
        println!("{self}");
        let undecided = self.undecided;
        if undecided > (self.total() / DECIDED).max(1) {
            bail!("{undecided} of {} histories are undecided, more than 1 in {DECIDED}", self.total());
        }
        Ok(())
    }
}

/// What a `sim` command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct SimRequest {
    protocols: Vec<String>,
    first_seed: u64,
    seeds: u32,
}

fn parse_sim(arguments: &[String]) -> Result<SimRequest> {
    let mut request = SimRequest { protocols: Vec::new(), first_seed: 0, seeds: QUICK_SEEDS };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a number"));
        match argument.as_str() {
            "--first-seed" => request.first_seed = number(argument, value()?)?,
            "--seeds" => request.seeds = number(argument, value()?)?,
            flag if flag.starts_with('-') => bail!("sim has no option `{flag}`"),
            protocol => request.protocols.push(protocol.to_owned()),
        }
    }
    if request.protocols.is_empty() {
        request.protocols = PROTOCOLS.iter().map(|&protocol| protocol.to_owned()).collect();
    }
    Ok(request)
}

/// The number that a flag was given.
pub fn number<N: std::str::FromStr<Err = std::num::ParseIntError>>(flag: &str, value: &str) -> Result<N> {
    value.parse().with_context(|| format!("{flag} needs a number, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<SimRequest> {
        parse_sim(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_sim_line_names_protocols_and_seeds() {
        let all = PROTOCOLS.iter().map(|&protocol| protocol.to_owned()).collect();
        let request = |protocols, first_seed, seeds| SimRequest { protocols, first_seed, seeds };
        assert_eq!(parse("").unwrap(), request(all, 0, QUICK_SEEDS));
        let line = parse("wren --first-seed 5000000000 --seeds 7").unwrap();
        assert_eq!(line, request(vec!["wren".into()], 5_000_000_000, 7));
    }

    #[test]
    fn a_sim_line_with_a_wrong_word_is_refused() {
        assert!(parse("--seeds").is_err());
        assert!(parse("--seeds many").is_err());
        assert!(parse("--seed 4").is_err());
    }

    #[test]
    fn every_protocol_is_run_twice_first_and_no_seed_again() {
        let mut plan = Plan::new(7);
        let all = PROTOCOLS.len() + BASELINES.len();
        let first: Vec<_> = std::iter::from_fn(|| plan.next(false)).collect();
        assert_eq!(first.len(), all);
        assert!(first.iter().all(|(_, seeds)| seeds.first == 7 && !seeds.once));
        let mut seen: Vec<_> = (0..60).map_while(|_| plan.next(true)).collect();
        assert!(seen.iter().all(|(_, seeds)| seeds.once));
        seen.sort_by_key(|(protocol, seeds)| (*protocol, seeds.first));
        seen.dedup_by_key(|(protocol, seeds)| (*protocol, seeds.first));
        assert_eq!(seen.len(), 60);
        plan.stop();
        assert!(plan.next(false).is_none());
    }

    #[test]
    fn too_many_undecided_histories_fail() {
        let mut counts = Counts::default();
        let report = |undecided| {
            format!("{{\"seeds\":100,\"transactions\":9,\"undecided\":{undecided},\"gave_up\":2}}")
        };
        counts.add("wren", &report(1)).unwrap();
        assert!(counts.judge().is_ok());
        counts.add("wren", &report(2)).unwrap();
        assert!(counts.judge().is_err());
        let text = counts.to_string();
        assert_eq!(text, "  200 seeds, 18 transactions, 3 undecided, 4 searches gave up");
        assert!(counts.add("wren", "").is_err());
    }
}
