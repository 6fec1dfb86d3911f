//! The tables of steps behind `test` and `lint`, and the steps that only call cargo.
//!
//! To add a check, add a line to a table. All steps use one profile, so that build scripts and macros are built once.

use anyhow::Result;

use crate::steps::Step;
use crate::workspace::{PROFILE, Workspace, run};
use crate::{environment, simulation, tidy};

const LINT: &[Step] = &[
    Step { name: "format", about: "rustfmt changes nothing", run: format },
    Step {
        name: "tidy",
        about: "lengths, banned text, links, dead files, purity and layers",
        run: tidy::check,
    },
    Step { name: "clippy", about: "clippy with warnings denied", run: clippy },
    Step { name: "docs", about: "rustdoc with warnings denied", run: docs },
];

const TESTS: &[Step] = &[
    Step { name: "build", about: "every target of the workspace, in the shared profile", run: build },
    Step { name: "unit", about: "unit, property, integration and documentation tests", run: unit },
    Step { name: "sim", about: "simulated seeds of every protocol, each twice", run: simulation::smoke },
    Step {
        name: "process",
        about: "real processes and real clients: tests/process",
        run: environment::process_tests,
    },
];

/// What `cargo xtask lint` runs.
pub fn lint_steps() -> Vec<Step> {
    LINT.to_vec()
}

/// What `cargo xtask test` runs: the lint, then the tests.
pub fn test_steps() -> Vec<Step> {
    [LINT, TESTS].concat()
}

/// Prints the name and the meaning of every step.
pub fn print_steps() {
    for step in test_steps() {
        println!("{:<10} {}", step.name, step.about);
    }
}

fn format(workspace: &Workspace) -> Result<()> {
    run(&mut workspace.cargo(&["fmt", "--all", "--check"]))
}

fn clippy(workspace: &Workspace) -> Result<()> {
    let arguments = ["clippy", "--profile", PROFILE, "--workspace", "--all-targets", "--", "-D", "warnings"];
    run(&mut workspace.cargo(&arguments))
}

fn docs(workspace: &Workspace) -> Result<()> {
    let mut doc = workspace.cargo(&["doc", "--profile", PROFILE, "--workspace", "--no-deps"]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Builds the binary together with the tests, so that features are resolved once and nothing is compiled twice.
pub fn build(workspace: &Workspace) -> Result<()> {
    run(&mut workspace.cargo(&["build", "--profile", PROFILE, "--workspace", "--all-targets"]))
}

fn unit(workspace: &Workspace) -> Result<()> {
    let mut tests = workspace.cargo(&["test", "--profile", PROFILE, "--workspace", "--no-fail-fast"]);
    run(tests.env("ANABRANCH_BIN", workspace.binary()))
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
