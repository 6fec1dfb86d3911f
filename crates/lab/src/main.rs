//! The laboratory: the binary `anabranch-lab`, which simulates, checks, measures and repeats the papers' experiments.
//!
//! This crate parses, prints and wires. What a command does is the work of the crates below it: `simulator` simulates,
//! `checker` checks histories, `bench` makes load, `figures` repeats the experiments of papers. `serve` and `cluster` are the
//! product's own, with what only tests and measurements set.
//!
//! Standard output carries results only, one JSON object a line with `--json`; logs go to standard error.

mod cli;
mod commands;
mod models;

use anyhow::Result;
use clap::Parser;
use cli::{BenchCommand, ClusterCommand, Command, CommandLine, FiguresCommand, HistoryCommand};
use cli::{LabClusterArguments, LabServeArguments};
use models::MODELS;
use server::{ClusterExtras, Outcome, ServeExtras};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    server::conclude(obey(CommandLine::parse().command))
}

fn obey(command: Command) -> Result<Outcome> {
    match command {
        Command::Sim(arguments) => commands::sim::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::History(HistoryCommand::Export(arguments)) => commands::history::export(&arguments),
        Command::Bench(command) => measure(command),
        Command::Figures(FiguresCommand::Tapir(arguments)) => commands::figures::tapir(&arguments),
        Command::Figures(FiguresCommand::Claret(arguments)) => commands::figures::claret(&arguments),
        Command::Figures(FiguresCommand::Wren(arguments)) => commands::figures::wren(&arguments),
        Command::Figures(FiguresCommand::Paris(arguments)) => commands::figures::paris(&arguments),
        Command::Figures(FiguresCommand::Pocc(arguments)) => commands::figures::pocc(&arguments),
        Command::Figures(FiguresCommand::Cops(arguments)) => commands::figures::cops(&arguments),
        Command::Figures(FiguresCommand::Tardis(arguments)) => commands::figures::tardis(&arguments),
        Command::Serve(LabServeArguments { common, clock_skew_ms }) => {
            server::serve(&common, ServeExtras { models: MODELS, clock_skew_ms })
        }
        Command::Cluster(ClusterCommand::Local(arguments)) => {
            let LabClusterArguments { common, concurrency, protocol, direct, skew } = arguments;
            let concurrency = concurrency.map(|how| ("CONCURRENCY", how));
            let options = concurrency.into_iter().chain(protocol.map(|name| ("PROTOCOL", name))).collect();
            server::run_local(&common, ClusterExtras { models: MODELS, options, skew, direct })
        }
    }
}

fn measure(command: BenchCommand) -> Result<Outcome> {
    match command {
        BenchCommand::Redis(arguments) => commands::bench::redis(arguments),
        BenchCommand::Retwis(arguments) => commands::bench::retwis(arguments),
        BenchCommand::Rmw(arguments) => commands::bench::rmw(arguments),
        BenchCommand::Tcc(arguments) => commands::bench::tcc(arguments),
        BenchCommand::Cops(arguments) => commands::bench::cops(arguments),
        BenchCommand::Tardis(arguments) => commands::bench::tardis(arguments),
        BenchCommand::Rawmix(arguments) => commands::bench::rawmix(arguments),
        BenchCommand::Rubis(arguments) => commands::bench::rubis(arguments),
    }
}
