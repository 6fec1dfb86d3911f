//! `bench`: load for servers.

use super::Outcome;
use crate::cli::BenchRedisArguments;
use anyhow::Result;
use bench::redis::{Server, Settings, json_line, run_all, table_head, table_line};

/// Runs every test and prints a line for each as it ends.
pub fn redis(arguments: BenchRedisArguments) -> Result<Outcome> {
    let json = arguments.json;
    let settings = settings(arguments);
    if !json {
        println!("{}", table_head(&settings));
    }
    let failed = run_all(&settings, |report| {
        println!("{}", if json { json_line(report) } else { table_line(report) });
    });
    Ok(Outcome::of(failed == 0))
}

fn settings(arguments: BenchRedisArguments) -> Settings {
    let against_pid = arguments.against_pid;
    Settings {
        ours: Server { target: arguments.url, pid: arguments.pid },
        theirs: arguments.against.map(|target| Server { target, pid: against_pid }),
        tests: arguments.tests.iter().flat_map(|tests| tests.0).collect(),
        pipelines: arguments.pipeline.iter().map(|pipeline| pipeline.get()).collect(),
        clients: arguments.clients.get(),
        requests: arguments.requests.map(|requests| requests.get()),
        rounds: arguments.rounds.get(),
        keys: arguments.keys.get(),
        value_bytes: arguments.size,
    }
}
