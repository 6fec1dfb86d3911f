//! `sim` and `soak`: simulation through the binary's own `sim` command, and long runs of what `test` runs briefly.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::environment::run_process_tests;
use crate::fuzzing;
use crate::suite;
use crate::workspace::{PROFILE, Workspace, capture, run};

/// What is simulated when nobody names a protocol.
const PROTOCOLS: &[&str] = &[
    "solo",
    "tapir",
    "tapir-serializable",
    "wren",
    "paris",
    "locking",
    "occ",
    "tardis",
    "tardis-forking",
    "tardis-handler",
    "tardis-parts",
    "wren-copies",
    "paris-copies",
];
/// Baselines for measurements: few seeds are enough, as they share most of their code with the others.
const BASELINES: &[&str] = &["cure", "h-cure", "bpr", "nocc"];
/// Seeds per protocol of these.
const BASELINE_SEEDS: u32 = 2;
/// Seeds per protocol of a quick run.
const QUICK_SEEDS: u32 = 40;
/// What `test` runs of most protocols.
const SMOKE_SEEDS: u32 = 3;
/// What `test` runs with more seeds, and how many: the protocols that users get unless they choose another.
const THOROUGH: &[(&str, u32)] = &[("tapir", 8), ("wren", 5)];
/// Seeds per protocol of one round of `soak`.
const SOAK_SEEDS: u32 = 2000;
/// Cases per property of one round of `soak`, for the properties that do not fix their own number.
const SOAK_CASES: u32 = 20_000;
/// How long a round of `soak` runs each fuzz target.
const SOAK_FUZZ_SECONDS: u32 = 120;
/// Crates whose properties cover every decoder of bytes that came from outside.
const DECODERS: &[&str] = &["anabranch-types", "anabranch-resp", "anabranch-journal", "anabranch-datatypes"];

/// `cargo xtask sim [PROTOCOL...] [--seeds N]`.
pub fn sim(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let request = parse_sim(arguments)?;
    suite::build(workspace)?;
    simulate(workspace, &request.protocols, request.seeds)
}

/// `cargo xtask soak [--minutes N]`: rounds of simulation, properties, models, fuzzing and crashes until the time is
/// over.
///
/// A round that has begun is finished, so a run may take longer than asked.
pub fn soak(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let minutes = match arguments {
        [] => 60,
        [flag, value] if flag == "--minutes" => number(flag, value)?,
        other => bail!("soak takes `--minutes N`, not `{}`", other.join(" ")),
    };
    fuzzing::ensure_installed(workspace)?;
    suite::build(workspace)?;
    let end = Instant::now() + Duration::from_secs(u64::from(minutes) * 60);
    let mut round = 0;
    while round == 0 || Instant::now() < end {
        round += 1;
        println!("== soak, round {round}");
        simulate(workspace, PROTOCOLS, SOAK_SEEDS)?;
        properties(workspace)?;
        models(workspace)?;
        features(workspace)?;
        fuzzing::fuzz(workspace, SOAK_FUZZ_SECONDS)?;
        run_process_tests(workspace, Some("kill or random_sequences or cut_apart"))?;
    }
    println!("soak: {round} rounds passed");
    Ok(())
}

/// What `test` runs of it: every protocol, some with more seeds.
pub fn smoke(workspace: &Workspace) -> Result<()> {
    let is_thorough = |name: &str| THOROUGH.iter().any(|(thorough, _)| *thorough == name);
    let quick: Vec<&str> = PROTOCOLS.iter().copied().filter(|name| !is_thorough(name)).collect();
    simulate(workspace, &quick, SMOKE_SEEDS)?;
    simulate(workspace, BASELINES, BASELINE_SEEDS)?;
    THOROUGH.iter().try_for_each(|(name, seeds)| simulate(workspace, &[name], *seeds))
}

/// Simulates each protocol; the binary itself runs every seed twice and demands equal traces.
fn simulate<P: AsRef<str>>(workspace: &Workspace, protocols: &[P], seeds: u32) -> Result<()> {
    for protocol in protocols {
        let protocol = protocol.as_ref();
        let report = capture(workspace.command(workspace.binary()).args(arguments_of(protocol, seeds)))?;
        print!("{protocol}: {report}");
        if report.trim().is_empty() {
            bail!("`anabranch sim {protocol} --seeds {seeds} --json` reported nothing");
        }
    }
    Ok(())
}

fn arguments_of(protocol: &str, seeds: u32) -> [String; 5] {
    ["sim".into(), protocol.into(), "--seeds".into(), seeds.to_string(), "--json".into()]
}

/// The property tests of the decoders with many more cases than a test run takes.
fn properties(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE]);
    for package in DECODERS {
        tests.args(["-p", package]);
    }
    run(tests.env("PROPTEST_CASES", SOAK_CASES.to_string()))
}

/// Model checking with higher bounds, one model after the other: each may need some gigabytes.
fn models(workspace: &Workspace) -> Result<()> {
    let mut tests =
        workspace.cargo(&["test", "--profile", PROFILE, "-p", "anabranch-strict", "-p", "anabranch-causal"]);
    tests.args(["--test", "model", "--", "--test-threads", "1"]);
    run(tests.env("ANABRANCH_SOAK", "1"))
}

/// Tests that go through seeds, with many more of them: what only tests ask the simulator for, and among those of `branch` an hour
/// of steady load in virtual time.
fn features(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE]);
    tests.args(["-p", "anabranch-simulator", "-p", "anabranch-branch", "-p", "anabranch-strict"]);
    tests.args(["--lib", "--test", "*", "--", "--skip", "models::"]);
    run(tests.env("ANABRANCH_SOAK", "1"))
}

/// What a `sim` command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct SimRequest {
    protocols: Vec<String>,
    seeds: u32,
}

fn parse_sim(arguments: &[String]) -> Result<SimRequest> {
    let mut request = SimRequest { protocols: Vec::new(), seeds: QUICK_SEEDS };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seeds" => request.seeds = number(argument, rest.next().context("--seeds needs a number")?)?,
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
pub fn number(flag: &str, value: &str) -> Result<u32> {
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
        assert_eq!(parse("").unwrap(), SimRequest { protocols: all, seeds: QUICK_SEEDS });
        assert_eq!(parse("wren --seeds 7").unwrap(), SimRequest { protocols: vec!["wren".into()], seeds: 7 });
    }

    #[test]
    fn a_sim_line_with_a_wrong_word_is_refused() {
        assert!(parse("--seeds").is_err());
        assert!(parse("--seeds many").is_err());
        assert!(parse("--seed 4").is_err());
    }
}
