//! The product: the command line of the binary `anabranch`, and the commands of it that the laboratory's binary has, too.
//!
//! This crate parses, prints and wires; `runtime` serves. It links nothing of what only checks or measures: that is the
//! laboratory's (`crates/lab`).
//!
//! Standard output carries results only, one JSON object a line with `--json`; logs go to standard error.

mod admin;
mod cli;
mod commands;
mod config;
mod logs;
mod models;

use clap::{CommandFactory, Parser};
use cli::{ClusterCommand, Command, CommandLine, ProductClusterArguments};
pub use cli::{ClusterLocalArguments, INSTRUCTIONS, ServeArguments};
pub use commands::Outcome;
pub use commands::cluster::{ClusterExtras, Delay, Skew, run_local};
pub use commands::serve::{ServeExtras, serve};
pub use models::{BRANCH, MODELS};
use std::process::ExitCode;

/// Reads the product's command line and does what it says.
pub fn run() -> ExitCode {
    conclude(match CommandLine::parse().command.unwrap_or_default() {
        Command::Serve(arguments) => serve(&arguments, ServeExtras { models: MODELS, clock_skew_ms: 0 }),
        Command::Cluster(ClusterCommand::Local(ProductClusterArguments { common, concurrency })) => {
            let concurrency = concurrency.map(|how| ("CONCURRENCY", how.as_str().to_owned()));
            let options = concurrency.into_iter().collect();
            let (skew, direct) = (Vec::new(), false);
            run_local(&common, ClusterExtras { models: MODELS, options, skew, direct })
        }
    })
}

/// The definition of the product's command line.
pub fn command_line() -> clap::Command {
    CommandLine::command()
}

/// What the process ends with after a command; why it could not be carried out is printed.
pub fn conclude(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(Outcome::FAILED)
        }
    }
}

/// The text of the configuration file `name`, read as `serve` reads it and completed as `--print-config` prints it.
///
/// # Errors
/// It is refused; the error names the file, the line, the key and what is allowed.
pub fn completed_configuration(text: &str, name: &str) -> anyhow::Result<String> {
    config::file::parse(text, name)?.to_toml()
}
