//! The workspace's own commands: `cargo xtask test`, `lint`, `fix`, `sim`, `fuzz` and `soak`.
//!
//! `test` is everything that must pass and installs what it needs; `lint` never writes, `fix` does. The commands
//! are tables of named steps (`suite`), run by one small runner (`steps`); each step says how to repeat it.

mod apps;
mod compiler;
mod environment;
mod fuzzing;
mod judges;
mod parallel;
mod simulation;
mod soak;
mod steps;
mod suite;
mod tidy;
mod unit;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::steps::{OnFailure, run_steps, select};
use crate::workspace::Workspace;

const USAGE: &str = "\
cargo xtask COMMAND

  test [STEP...]           everything that must pass, or only the named steps; stops at the first failure
  lint [STEP...]           formatting, the repository's own rules and clippy; writes nothing
  fix                      formats, applies clippy's suggestions and rewrites generated files
  sim [PROTOCOL...] [--first-seed N] [--seeds N]
                           simulation with faults and checking, every seed twice; without a name, all protocols
  fuzz [--seconds N]       every fuzz target for so long (default 60); needs nightly Rust and cargo-fuzz
  soak [STEP...] [--minutes N]
                           what test leaves out, then long simulations, property tests, fuzzing and kill -9 loops
                           until the time is over (default 60), or only the named steps
  steps                    lists the steps of test and soak

examples:
  cargo xtask test
  cargo xtask test build unit
  cargo xtask sim tapir --seeds 50
";

fn main() -> ExitCode {
    match dispatch() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command that the arguments name; false when one of its steps failed and said why.
fn dispatch() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(compiled) = compiler::compile(&arguments) {
        return compiled;
    }
    let Some((command, rest)) = arguments.split_first() else {
        print!("{USAGE}");
        return Ok(false);
    };
    if matches!(command.as_str(), "help" | "--help" | "-h")
        || rest.iter().any(|argument| argument == "--help")
    {
        print!("{USAGE}");
        return Ok(true);
    }
    let workspace = Workspace::open()?;
    match command.as_str() {
        "test" => {
            let all = suite::test_steps(!rest.is_empty());
            run_steps(&workspace, "test", &select(&all, rest)?, OnFailure::Stop)
        }
        "lint" => {
            let all = suite::lint_steps();
            run_steps(&workspace, "lint", &select(&all, rest)?, OnFailure::Continue)
        }
        "fix" => suite::fix(&workspace).map(|()| true),
        "sim" => simulation::sim(&workspace, rest).map(|()| true),
        "fuzz" => fuzzing::command(&workspace, rest).map(|()| true),
        "soak" => soak::command(&workspace, rest),
        "steps" => {
            suite::print_steps();
            Ok(true)
        }
        other => bail!("no command `{other}`\n\n{USAGE}"),
    }
}
