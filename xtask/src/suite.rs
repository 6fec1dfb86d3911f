//! The tables of steps behind `test` and `lint`, and the steps that only call cargo.
//!
//! To add a check, add a line to a table. All steps use one profile, so that build scripts and macros are built once.

use anyhow::{Result, bail};

use crate::steps::Step;
use crate::workspace::{PROFILE, Workspace, run};
use crate::{apps, environment, simulation, soak, tidy, unit};

/// Tests whose path contains this, those of modules of this name, are left to `soak`.
pub const SOAK: &str = "soak::";
/// The package whose tests are left to `soak`.
pub const FIGURES: &str = "anabranch-figures";

const LINT: &[Step] = &[
    Step { name: "format", about: "rustfmt changes nothing", run: format },
    Step {
        name: "tidy",
        about: "lengths, banned text, links, dead files, purity and layers",
        run: tidy::check,
    },
];

/// Not a step of `test`, whose build says the same on the way.
const CLIPPY: Step = Step { name: "clippy", about: "clippy with warnings denied", run: clippy };

const TESTS: &[Step] = &[
    Step {
        name: "build",
        about: "the binaries and the tests, in the shared profile, under clippy with warnings denied",
        run: build_and_prepare,
    },
    Step { name: "unit", about: "unit, property and integration tests", run: unit::unit },
    Step {
        name: "sim",
        about: "simulated seeds of every protocol, which follow from the commit",
        run: simulation::smoke,
    },
    Step {
        name: "process",
        about: "real processes and real clients: tests/process",
        run: environment::process_tests,
    },
];

/// What `cargo xtask test` runs only if it is named.
const NAMED: &[Step] = &[Step {
    name: "apps",
    about: "other projects' own tests, here and on redis-server: tests/apps",
    run: apps::brief,
}];

/// What `cargo xtask lint` runs: without building anything.
pub fn lint_steps() -> Vec<Step> {
    [LINT, &[CLIPPY]].concat()
}

/// What `cargo xtask test` runs: what takes seconds, then the tests; and, if steps are named, what is among others.
pub fn test_steps(is_named: bool) -> Vec<Step> {
    if is_named { [LINT, TESTS, NAMED].concat() } else { [LINT, TESTS].concat() }
}

/// Prints the name and the meaning of every step.
pub fn print_steps() {
    for (command, steps) in [("test", test_steps(true)), ("soak", soak::soak_steps())] {
        println!("cargo xtask {command}");
        steps.iter().for_each(|step| println!("  {:<10} {}", step.name, step.about));
    }
}

fn format(workspace: &Workspace) -> Result<()> {
    run(&mut workspace.cargo(&["fmt", "--all", "--check"]))
}

fn clippy(workspace: &Workspace) -> Result<()> {
    let arguments = ["clippy", "--profile", PROFILE, "--workspace", "--all-targets", "--", "-D", "warnings"];
    run(&mut workspace.cargo(&arguments))
}

/// Builds, and meanwhile installs what the process tests need, which waits for others most of the time.
fn build_and_prepare(workspace: &Workspace) -> Result<()> {
    std::thread::scope(|scope| {
        let preparation = scope.spawn(|| environment::prepare(workspace));
        build(workspace)?;
        match preparation.join() {
            Ok(prepared) => prepared.map(drop),
            Err(_) => bail!("the preparation of the process tests panicked; its message is above"),
        }
    })
}

/// Builds the binaries together with the tests, so that features are resolved once and nothing is compiled twice.
pub fn build(workspace: &Workspace) -> Result<()> {
    let mut build = workspace.cargo(&["build", "--profile", PROFILE, "--workspace", "--exclude", FIGURES]);
    run(build.args(["--lib", "--bins", "--tests"]))
}

/// Formats the tree, rewrites the generated `clippy.toml` files and applies what clippy can fix by itself.
pub fn fix(workspace: &Workspace) -> Result<()> {
    tidy::purity::write_configurations(&workspace.root)?;
    run(&mut workspace.cargo(&["fmt", "--all"]))?;
    run(&mut workspace.cargo(&[
        "clippy",
        "--profile",
        PROFILE,
        "--workspace",
        "--all-targets",
        "--fix",
        "--allow-dirty",
        "--allow-staged",
    ]))?;
    run(&mut workspace.cargo(&["fmt", "--all"]))
}
