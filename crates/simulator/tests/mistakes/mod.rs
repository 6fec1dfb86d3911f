//! Known bugs. Most have a short script here, which breaks a promise with the bug and none without it: a seed showed the
//! bug, and `shrink` made a script of that run. The others are looked for in a window of seeds, one after the other.
//!
//! Times and noise change with the code, and with them a script may cease to show its bug. Find out why, and record it again:
//!
//! ```text
//! ANABRANCH_RECORD=400 cargo test --profile ci -p anabranch-simulator --test all NAME
//! ```
//!
//! This shrinks the script further, with so many runs at most; where there is none, or where it does not show the bug, it shrinks
//! the first seed of the bug's window that does.
//!
//! `cargo xtask soak density` measures how many random seeds show each bug.

use anabranch_simulator::{Deployment, Feature, Mutants, Options, Script, run_script, shrink};
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Within what time a script's run must have come to rest after healing, in microseconds of virtual time: some bugs leave
/// processes that never agree.
const PATIENCE: u64 = 6_000_000;
/// After so many random seeds that show a bug its density is known well enough.
const ENOUGH: u64 = 3;
/// So many times the length of a bug's window are the random seeds of which one must show it.
const SPREAD: u64 = 5;

/// A known bug, and where it shows.
pub struct Bug<'a> {
    protocol: &'a str,
    name: String,
    with: &'a [Feature],
    /// The window: of these seeds, which bring the features, some show the bug; the first did when they were chosen.
    seeds: RangeInclusive<u64>,
    /// Scripts of which some show it, where no seed does.
    given: Vec<Script>,
    world: Mutants,
}

impl<'a> Bug<'a> {
    /// A bug of a protocol, the features that show it, and the window of seeds.
    pub fn new(protocol: &'a str, bug: impl Debug, with: &'a [Feature], seeds: RangeInclusive<u64>) -> Self {
        let name = kebab(&format!("{bug:?}"));
        Bug { protocol, name, with, seeds, given: Vec::new(), world: Mutants::default() }
    }

    /// A bug that some of these scripts show.
    pub fn of_scripts(protocol: &'a str, bug: impl Debug, given: Vec<Script>) -> Self {
        Bug { given, ..Bug::new(protocol, bug, &[], 0..=0) }
    }

    /// The same with a bug of the world around the protocol.
    pub fn of_world(self, world: Mutants) -> Self {
        Bug { world, ..self }
    }

    fn file(&self) -> PathBuf {
        let with: String = self.with.iter().map(|feature| format!("-{feature}")).collect();
        let name = format!("{}-{}{}.jsonl", self.protocol, self.name, with.replace('"', ""));
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes").join(name)
    }

    fn script(&self) -> Option<Script> {
        let text = std::fs::read(self.file()).ok()?;
        Some(Script::read(&text[..]).unwrap_or_else(|error| panic!("{}: {error}", self.file().display())))
    }
}

/// The words of a name in lower case, with hyphens.
fn kebab(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars().filter(|letter| letter.is_alphanumeric()) {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// The bug's script fails with these mutants, and passes without.
#[track_caller]
pub fn assert_caught<D: Deployment, M: Copy + Default>(bug: &Bug<'_>, mutants: M, build: impl Fn(M) -> D) {
    let run = |script: &Script, patience, world, mutants| {
        let options = Options { once: true, mutants: world, patience, ..Options::default() };
        run_script(script, &options, || build(mutants))
    };
    let shows = |script: &Script| {
        !run(script, None, bug.world, mutants).failures.is_empty() && {
            let sound = run(script, None, Mutants::default(), M::default());
            assert!(sound.failures.is_empty(), "{} without its bug: {:#?}", bug.name, sound.failures);
            sound.undecided == 0
        }
    };
    // The same, with no more patience than a run needs that has no bug.
    let shows_soon = |script: &Script| {
        let sound = run(script, Some(PATIENCE), Mutants::default(), M::default());
        match sound.failures.is_empty() && sound.undecided == 0 {
            true => !run(script, Some(PATIENCE), bug.world, mutants).failures.is_empty(),
            false => shows(script),
        }
    };
    let draw = |seed| Script::draw(bug.protocol, &build(mutants), seed, bug.with);
    let window = || match &bug.given[..] {
        [] => bug.seeds.clone().map(draw).find(&shows),
        given => given.iter().find(|script| shows(script)).cloned(),
    };
    if let Some(runs) = number("ANABRANCH_RECORD") {
        let start = bug.script().filter(&shows_soon);
        let start = start.or_else(window);
        let start = start.unwrap_or_else(|| panic!("{}: no seed of {:?} shows it", bug.name, bug.seeds));
        let shrunk = shrink(start, bug.world, runs as usize, || build(mutants)).expect("it fails");
        let lines = shrunk.script.lines();
        println!("{} {}: {} lines, {} runs", bug.protocol, bug.name, lines.len(), shrunk.runs);
        std::fs::write(bug.file(), lines.join("\n") + "\n").expect("the folder is there");
    }
    match bug.script() {
        Some(script) => {
            assert!(shows_soon(&script), "{} shows its bug no longer: see `mistakes`", bug.file().display());
        }
        None => {
            assert!(
                window().is_some(),
                "{} has no script, and is not caught by seeds {:?}",
                bug.name,
                bug.seeds
            );
        }
    }
    if let (Some(first), true) = (number("ANABRANCH_DENSITY"), bug.given.is_empty()) {
        measure(bug, first, |seed| shows(&draw(seed)));
    }
}

/// Counts the seeds that show a bug, from this one on, until enough have.
#[track_caller]
fn measure(bug: &Bug<'_>, first: u64, shows: impl Fn(u64) -> bool) {
    let most = SPREAD * (bug.seeds.end() - bug.seeds.start() + 1);
    let (mut shown, mut tried) = (0, 0);
    while shown < ENOUGH && tried < most {
        shown += u64::from(shows(first + tried));
        tried += 1;
    }
    println!("density: {} {} is shown by {shown} of {tried} seeds", bug.protocol, bug.name);
    assert!(shown > 0, "{} is not caught by seeds {first} to {}", bug.name, first + tried - 1);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}
