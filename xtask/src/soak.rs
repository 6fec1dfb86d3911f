//! `soak`: everything that `test` leaves out, and long runs of what `test` runs briefly.
//!
//! Steps whose outcome is the same every time run once; the others explore, and are repeated until the time is over.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::environment::{Length, run_process_tests};
use crate::simulation::{self, number};
use crate::steps::{OnFailure, Step, run_steps, select};
use crate::workspace::{PROFILE, Workspace, run};
use crate::{apps, fuzzing, judges, suite};

/// What is the same every time, and left out by `test` because it takes long.
const ONCE: &[Step] = &[
    Step { name: "docs", about: "rustdoc with warnings denied", run: docs },
    Step { name: "examples", about: "the code in documentation comments", run: examples },
    Step { name: "figures", about: "what the papers' figures show whatever things cost", run: figures },
    Step { name: "models", about: "all models, each to its end or to millions of states", run: models },
    Step { name: "skipped", about: "tests in modules named `soak`, which `test` skips", run: skipped },
    Step {
        name: "density",
        about: "how many random seeds show each known bug of the simulator's tests",
        run: density,
    },
    Step {
        name: "evidence",
        about: "process tests marked `soak`: the bench commands, further variants of the others",
        run: |workspace| run_process_tests(workspace, Length::Left),
    },
    Step { name: "apps", about: "other projects' own tests, in RESP2 and in RESP3", run: apps::whole },
    Step {
        name: "threads",
        about: "the process tests of `test` again, with two worker threads in every process",
        run: |workspace| run_process_tests(workspace, Length::Threads),
    },
];

/// What explores further every time.
const ROUND: &[Step] = &[
    Step { name: "seeds", about: "simulated seeds, from where the last round ended", run: seeds },
    Step { name: "properties", about: "the decoders' property tests with many more cases", run: properties },
    Step { name: "scripts", about: "tests that go through seeds, with many more of them", run: features },
    Step { name: "fuzz", about: "every fuzz target for two minutes", run: fuzz },
    Step {
        name: "judges",
        about: "histories before porcupine and the definition of causal consistency, good and damaged",
        run: judges::judge,
    },
    Step {
        name: "kills",
        about: "kill -9, random sequences, regions cut apart and what they spill, for long",
        run: |workspace| run_process_tests(workspace, Length::Long),
    },
];

/// Seeds per protocol of a round.
const SEEDS: u32 = 200;
/// Where the seed that the next round begins with is kept.
const NEXT_SEED: &str = ".cache/soak-seed";
/// Cases per property of a round, for the properties that do not fix their own number.
const CASES: u32 = 20_000;
/// Part of the names of the simulator's tests that each show a known bug, and of one that shows what a mode permits.
const KNOWN_BUGS: [&str; 2] = ["_caught", "_is_not_strict"];
/// How long a round runs each fuzz target.
const FUZZ_SECONDS: u32 = 120;
/// Crates whose properties cover every decoder of bytes that came from outside.
const DECODERS: &[&str] = &["anabranch-types", "anabranch-resp", "anabranch-journal", "anabranch-datatypes"];

/// The steps of a first round.
pub fn soak_steps() -> Vec<Step> {
    [ONCE, ROUND].concat()
}

/// `cargo xtask soak [STEP...] [--minutes N]`: rounds until the time is over; false when a step failed.
///
/// A round that has begun is finished, so a run may take longer than asked.
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    let (names, minutes) = parse(arguments)?;
    let first = select(&soak_steps(), &names)?;
    let explores = |step: &&Step| ROUND.iter().any(|other| other.name == step.name);
    let later: Vec<Step> = first.iter().filter(explores).copied().collect();
    if first.iter().any(|step| step.name == "fuzz") {
        fuzzing::ensure_installed(workspace)?;
    }
    suite::build(workspace)?;
    let end = Instant::now() + Duration::from_secs(u64::from(minutes) * 60);
    let mut steps = first;
    for round in 1.. {
        println!("== soak, round {round}");
        if !run_steps(workspace, "soak", &steps, OnFailure::Stop)? {
            return Ok(false);
        }
        if later.is_empty() || Instant::now() >= end {
            break;
        }
        steps.clone_from(&later);
    }
    Ok(true)
}

fn parse(arguments: &[String]) -> Result<(Vec<String>, u32)> {
    let (mut names, mut minutes) = (Vec::new(), 60);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--minutes" => minutes = number(argument, rest.next().context("--minutes needs a number")?)?,
            flag if flag.starts_with('-') => bail!("soak has no option `{flag}`"),
            step => names.push(step.to_owned()),
        }
    }
    Ok((names, minutes))
}

fn docs(workspace: &Workspace) -> Result<()> {
    let mut doc = workspace.cargo(&["doc", "--profile", PROFILE, "--workspace", "--no-deps"]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

fn examples(workspace: &Workspace) -> Result<()> {
    run(&mut workspace.cargo(&["test", "--profile", PROFILE, "--workspace", "--doc"]))
}

fn figures(workspace: &Workspace) -> Result<()> {
    run(&mut workspace.cargo(&["test", "--profile", PROFILE, "-p", suite::FIGURES, "--lib", "--tests"]))
}

/// All models, one after the other: each may need some gigabytes.
fn models(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE]);
    tests.args(["-p", "anabranch-strict", "-p", "anabranch-causal", "--test", "all"]);
    run(tests.args(["--", "model::", "--test-threads", "1"]))
}

/// What `test` skips by its name, but the models.
fn skipped(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE, "--workspace", "--lib", "--tests"]);
    run(tests.args(["--", suite::SOAK, "--skip", "model::"]))
}

/// Known bugs, each of which random seeds must show: seeds that follow from the commit.
fn density(workspace: &Workspace) -> Result<()> {
    let first = (u64::from(workspace.seed()) % (simulation::RARE / 2)).to_string();
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE, "-p", "anabranch-simulator"]);
    tests.args(["--test", "all", "--no-fail-fast", "--", "--nocapture"]).args(KNOWN_BUGS);
    run(tests.env("ANABRANCH_DENSITY", first))
}

/// Seeds of every protocol that no round has simulated in this folder.
fn seeds(workspace: &Workspace) -> Result<()> {
    let file = workspace.root.join(NEXT_SEED);
    let first = match fs::read_to_string(&file) {
        Ok(text) => number(NEXT_SEED, text.trim())?,
        Err(_) => simulation::RARE,
    };
    println!("seeds {first} to {}", first + u64::from(SEEDS) - 1);
    simulation::explore(workspace, first, SEEDS)?;
    fs::create_dir_all(workspace.root.join(".cache"))?;
    fs::write(&file, format!("{}\n", first + u64::from(SEEDS)))
        .with_context(|| format!("cannot write {NEXT_SEED}"))
}

/// The property tests of the decoders with many more cases than a test run takes.
fn properties(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE, "--lib", "--tests"]);
    for package in DECODERS {
        tests.args(["-p", package]);
    }
    run(tests.env("PROPTEST_CASES", CASES.to_string()))
}

/// Tests that go through seeds, with many more of them: what only tests ask the simulator for, and among those of
/// `branch` an hour of steady load in virtual time.
fn features(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE]);
    tests.args(["-p", "anabranch-simulator", "-p", "anabranch-branch", "-p", "anabranch-strict"]);
    tests.args(["-p", "anabranch-causal", "-p", "anabranch-datatypes", "-p", "anabranch-mvcc"]);
    tests.args(["--lib", "--tests", "--", "--skip", "model::", "--skip", suite::SOAK]);
    run(tests.env("ANABRANCH_SOAK", "1"))
}

fn fuzz(workspace: &Workspace) -> Result<()> {
    fuzzing::fuzz(workspace, FUZZ_SECONDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_line_names_steps_and_minutes() {
        let line = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(line("").unwrap(), (vec![], 60));
        assert_eq!(line("docs --minutes 5 seeds").unwrap(), (vec!["docs".into(), "seeds".into()], 5));
        assert!(line("--minutes").is_err() && line("--hours 1").is_err());
    }
}
