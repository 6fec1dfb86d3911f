//! What the binary `anabranch` does: a server, and the tools to test and to measure it.
//!
//! This crate parses, prints and wires. What a command does is the work of the crates below it: `runtime` serves,
//! `simulator` simulates, `checker` checks histories, `bench` makes load, `figures` repeats the experiments of papers.
//!
//! Standard output carries results only, one JSON object a line with `--json`; logs go to standard error.

mod admin;
mod cli;
mod commands;
mod config;
mod logs;

use clap::Parser;
use cli::{BenchCommand, ClusterCommand, Command, CommandLine, FiguresCommand, HistoryCommand};
use commands::Outcome;
use std::process::ExitCode;

/// Reads the command line and does what it says.
pub fn run() -> ExitCode {
    let result = match CommandLine::parse().command.unwrap_or_default() {
        Command::Serve(arguments) => commands::serve::run(&arguments),
        Command::Cluster(ClusterCommand::Local(arguments)) => commands::cluster::local::run(&arguments),
        Command::Figures(FiguresCommand::Tapir(arguments)) => commands::figures::tapir(&arguments),
        Command::Figures(FiguresCommand::Claret(arguments)) => commands::figures::claret(&arguments),
        Command::Figures(FiguresCommand::Wren(arguments)) => commands::figures::wren(&arguments),
        Command::Figures(FiguresCommand::Paris(arguments)) => commands::figures::paris(&arguments),
        Command::Figures(FiguresCommand::Tardis(arguments)) => commands::figures::tardis(&arguments),
        Command::Sim(arguments) => commands::sim::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::History(HistoryCommand::Export(arguments)) => commands::history::export(&arguments),
        Command::Bench(BenchCommand::Redis(arguments)) => commands::bench::redis(arguments),
        Command::Bench(BenchCommand::Retwis(arguments)) => commands::bench::retwis(arguments),
        Command::Bench(BenchCommand::Rmw(arguments)) => commands::bench::rmw(arguments),
        Command::Bench(BenchCommand::Tcc(arguments)) => commands::bench::tcc(arguments),
        Command::Bench(BenchCommand::Tardis(arguments)) => commands::bench::tardis(arguments),
        Command::Bench(BenchCommand::Rawmix(arguments)) => commands::bench::rawmix(arguments),
        Command::Bench(BenchCommand::Rubis(arguments)) => commands::bench::rubis(arguments),
    };
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
