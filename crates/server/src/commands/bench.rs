//! `bench`: load for servers.

use super::Outcome;
use crate::cli::{
    BenchRedisArguments, BenchRetwisArguments, BenchRmwArguments, BenchTccArguments, TransactionLoad,
};
use anyhow::Result;
use bench::redis::{Server, Settings, json_line, run_all, table_head, table_line};
use bench::transactions::{self, Keys, Workload, compare, table};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Runs the Retwis mix.
pub fn retwis(arguments: BenchRetwisArguments) -> Result<Outcome> {
    measure(Workload::Retwis, arguments.load)
}

/// Runs read-modify-writes.
pub fn rmw(arguments: BenchRmwArguments) -> Result<Outcome> {
    measure(Workload::ReadModifyWrite { most_keys: arguments.most_keys.get() }, arguments.load)
}

/// Runs transactions of 20 operations.
pub fn tcc(arguments: BenchTccArguments) -> Result<Outcome> {
    let load = TransactionLoad { txn: true, ..arguments.load };
    measure(Workload::Tcc { writes: usize::from(arguments.writes) }, load)
}

fn measure(workload: Workload, load: TransactionLoad) -> Result<Outcome> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let settings = transactions::Settings {
        urls: load.url,
        workload,
        keys: Keys::new(load.keys.get(), load.zipf),
        clients: load.clients.get(),
        duration: Duration::from_secs(u64::from(load.seconds.get())),
        txn: load.txn,
        value_bytes: load.size,
        history: load.history,
        run: started.as_micros() as u64,
    };
    let comparison = compare(&settings, load.against.as_ref(), load.rounds.get())?;
    if load.json {
        println!("{}", serde_json::to_string(&comparison)?);
    } else {
        print!("{}", table(&comparison));
    }
    Ok(Outcome::Good)
}

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
