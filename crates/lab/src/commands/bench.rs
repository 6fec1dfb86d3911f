//! `bench`: load for servers.

use crate::cli::{
    BenchCopsArguments, BenchRawmixArguments, BenchRedisArguments, BenchRetwisArguments, BenchRmwArguments,
    BenchRubisArguments, BenchTardisArguments, BenchTccArguments, ClaretLoad, ComparedSettings, RetwisMix,
    RubisMix, TransactionLoad,
};
use anyhow::Result;
use bench::claret;
use bench::cops;
use bench::redis::{Server, Settings, json_line, run_all, table_head, table_line};
use bench::tcc::{self, Mix};
use bench::transactions::{self, Keys, Workload, compare, table};
use server::Outcome;
use std::num::NonZeroU16;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Runs the Retwis mix, or Claret's Retwis on a graph.
pub fn retwis(arguments: BenchRetwisArguments) -> Result<Outcome> {
    let BenchRetwisArguments { graph, scale, edge_factor, mix, compared, load } = arguments;
    if graph.is_none() {
        if !compared.setting.is_empty() {
            anyhow::bail!("--setting is for --graph kronecker");
        }
        return measure(Workload::Retwis, &load);
    }
    let TransactionLoad { url, clients, seconds, rounds, txn, json, .. } = load;
    let retwis = claret::Retwis { scale, edge_factor, post_heavy: mix == RetwisMix::Post };
    let load = ClaretLoad { url, compared, clients, seconds, rounds, txn, json };
    compare_settings(claret::Workload::Retwis(retwis), load)
}

/// Runs Claret's raw operation mix.
pub fn rawmix(arguments: BenchRawmixArguments) -> Result<Outcome> {
    let BenchRawmixArguments { adds, operations, keys, zipf, load } = arguments;
    let mix = claret::RawMix { keys: keys.get(), zipf, adds, operations: operations.get() };
    compare_settings(claret::Workload::RawMix(mix), load)
}

/// Runs RUBiS.
pub fn rubis(arguments: BenchRubisArguments) -> Result<Outcome> {
    let rubis = claret::Rubis { items: arguments.items.get(), bid_heavy: arguments.mix == RubisMix::Bid };
    compare_settings(claret::Workload::Rubis(rubis), arguments.load)
}

fn compare_settings(workload: claret::Workload, load: ClaretLoad) -> Result<Outcome> {
    let ComparedSettings { setting, partitions, replicas, warm_up, seed } = load.compared;
    let settings = claret::Settings {
        urls: load.url,
        workload,
        settings: setting,
        partitions: partitions.get(),
        replicas: replicas.map(NonZeroU16::get),
        clients: load.clients.get(),
        interactive: load.txn,
        warm_up: Duration::from_secs(u64::from(warm_up)),
        duration: Duration::from_secs(u64::from(load.seconds.get())),
        rounds: load.rounds.get(),
        seed,
    };
    let comparison = claret::compare(&settings, |measured| {
        eprintln!("{} {:.0} transactions a second", measured.setting, measured.summary.throughput);
    })?;
    if load.json {
        println!("{}", serde_json::to_string(&comparison)?);
    } else {
        print!("{}", claret::table(&comparison));
    }
    Ok(Outcome::Good)
}

/// Runs read-modify-writes.
pub fn rmw(arguments: BenchRmwArguments) -> Result<Outcome> {
    measure(Workload::ReadModifyWrite { most_keys: arguments.most_keys.get() }, &arguments.load)
}

/// Runs transactions of 20 operations, on one keyspace or on one for each protocol.
pub fn tcc(arguments: BenchTccArguments) -> Result<Outcome> {
    let mix = Mix {
        writes: u16::from(arguments.writes),
        partitions: arguments.touched.get(),
        local: arguments.local,
        read_only: arguments.read_only,
    };
    let load = TransactionLoad { txn: true, ..arguments.load };
    let warm_up = Duration::from_secs(u64::from(arguments.warm_up));
    if arguments.protocols.is_empty() {
        let exponent = load.zipf;
        let settings = settings_of(Workload::Retwis, &load);
        let settings = transactions::Settings { warm_up, ..settings };
        return report(&tcc::locate(settings, mix, exponent)?, &load);
    }
    let settings = tcc::Settings {
        urls: load.url,
        protocols: arguments.protocols,
        partitions: arguments.partitions.get(),
        replicas: arguments.replicas.map(NonZeroU16::get),
        mix,
        keys: load.keys.get(),
        exponent: load.zipf,
        value_bytes: load.size,
        clients: load.clients.get(),
        warm_up,
        duration: Duration::from_secs(u64::from(load.seconds.get())),
        rounds: load.rounds.get(),
        run: run_number(),
    };
    let comparison = tcc::compare(&settings, |measured| {
        eprintln!("{} {:.0} transactions a second", measured.protocol, measured.summary.throughput);
    })?;
    if load.json {
        println!("{}", serde_json::to_string(&comparison)?);
    } else {
        print!("{}", tcc::table(&comparison));
    }
    Ok(Outcome::Good)
}

/// Runs single puts and gets, on a keyspace for each protocol.
pub fn cops(arguments: BenchCopsArguments) -> Result<Outcome> {
    let (puts, gets) = arguments.ratio;
    let (groups, keys) = (arguments.clients, arguments.keys.get());
    if groups.checked_mul(keys).is_none() {
        anyhow::bail!("{groups} clients with {keys} keys each are too many keys; take fewer of either");
    }
    let settings = cops::Settings {
        urls: arguments.url,
        protocols: arguments.protocols,
        partitions: arguments.partitions.get(),
        plan: cops::Plan { groups, keys, variance: arguments.variance, puts, gets },
        delay: Duration::from_millis(u64::from(arguments.delay)),
        value_bytes: arguments.size.get(),
        warm_up: Duration::from_secs(u64::from(arguments.warm_up)),
        duration: Duration::from_secs(u64::from(arguments.seconds.get())),
        rounds: arguments.rounds.get(),
    };
    let comparison = cops::compare(&settings, |measured| {
        eprintln!("{} {:.0} operations a second", measured.protocol, measured.summary.throughput);
    })?;
    if arguments.json {
        println!("{}", serde_json::to_string(&comparison)?);
    } else {
        print!("{}", tcc::table(&comparison));
    }
    Ok(Outcome::Good)
}

/// Runs transactions of six operations, step by step.
pub fn tardis(arguments: BenchTardisArguments) -> Result<Outcome> {
    if arguments.load.history.is_some() {
        anyhow::bail!("--history is not for `bench tardis`: its steps are not recorded");
    }
    let load = TransactionLoad { txn: true, ..arguments.load };
    let settings = settings_of(Workload::Tardis { writers: arguments.writers }, &load);
    let round_trip = Duration::from_millis(u64::from(arguments.round_trip));
    report(&transactions::Settings { branch: arguments.branch, steps: true, round_trip, ..settings }, &load)
}

fn measure(workload: Workload, load: &TransactionLoad) -> Result<Outcome> {
    report(&settings_of(workload, load), load)
}

/// What tells a run from others.
fn run_number() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

fn settings_of(workload: Workload, load: &TransactionLoad) -> transactions::Settings {
    transactions::Settings {
        urls: load.url.clone(),
        workload,
        keys: Keys::new(load.keys.get(), load.zipf),
        clients: load.clients.get(),
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(u64::from(load.seconds.get())),
        pause: Duration::from_millis(u64::from(load.pause)),
        txn: load.txn,
        branch: false,
        steps: false,
        round_trip: Duration::ZERO,
        value_bytes: load.size,
        history: load.history.clone(),
        run: run_number(),
        keyspace: None,
        prologue: Vec::new(),
    }
}

fn report(settings: &transactions::Settings, load: &TransactionLoad) -> Result<Outcome> {
    let comparison = compare(settings, load.against.as_ref(), load.rounds.get())?;
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
