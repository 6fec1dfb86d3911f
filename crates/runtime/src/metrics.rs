//! What `/metrics` shows: one table, from which `docs/reference/metrics.md` is generated, too.

use crate::info::resident_bytes;
use crate::journal::Journal;
use crate::keyspace::Keyspace;
use crate::process::Process;
use protocol::hosted::{Backlog, Lag};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What the values of a metric do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// They only grow while the process runs, and begin again at 0.
    Counter,
    /// They go up and down.
    Gauge,
}
use Kind::{Counter, Gauge};

/// A metric that a process can show.
struct Metric {
    /// Without the prefix.
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    /// Its values at present, each with those of its labels; none if the process has nothing to tell.
    values: fn(&Sample<'_>) -> Vec<Value>,
}

/// The values of the labels, in their order, and the value.
type Value = (Vec<String>, u64);

/// What the values are taken from, at one moment.
struct Sample<'p> {
    process: &'p Process,
    /// The keyspaces that the process keeps alone.
    keyspaces: Arc<Vec<Arc<Keyspace>>>,
    /// By name, the replicated keyspaces that have something here.
    backlogs: Vec<(String, Backlog)>,
    /// By name, the causal keyspaces.
    lags: Vec<(String, Lag)>,
}

/// Stands before every name.
const PREFIX: &str = "anabranch_";

/// Short names for the columns of the table.
const NONE: &[&str] = &[];
const KEYSPACE: &[&str] = &["keyspace"];

/// The metrics in their order.
const METRICS: &[Metric] = &[
    metric("up", Gauge, "", NONE, "1 while the process serves.", |_| one(1)),
    metric("uptime_seconds", Gauge, "seconds", NONE, "Time since the process started.", |s| {
        one(s.process.started.elapsed().as_secs())
    }),
    metric(
        "resident_memory_bytes",
        Gauge,
        "bytes",
        NONE,
        "Memory of the process, as the kernel counts it.",
        |_| one(resident_bytes()),
    ),
    metric("data_memory_bytes", Gauge, "bytes", NONE, "Memory of all data, as INFO's used_memory.", |s| {
        one(s.process.locals.memory.used().bytes as u64)
    }),
    metric("max_memory_bytes", Gauge, "bytes", NONE, "The limit of data_memory_bytes; 0 for none.", |s| {
        one(s.process.locals.memory.limit())
    }),
    metric("evicted_keys_total", Counter, "keys", NONE, "Keys that caches evicted.", |s| {
        one(s.process.locals.memory.evicted())
    }),
    metric("refused_for_memory_total", Counter, "commands", NONE, "Commands refused with OOM.", |s| {
        one(s.process.locals.memory.refused())
    }),
    metric("connected_clients", Gauge, "clients", NONE, "Clients connected.", |s| {
        one(s.process.clients.load(Relaxed) as u64)
    }),
    metric("connections_total", Counter, "connections", NONE, "Connections accepted.", |s| {
        one(s.process.total_connections.load(Relaxed))
    }),
    metric(
        "rejected_connections_total",
        Counter,
        "connections",
        NONE,
        "Connections refused at the limit of clients.",
        |s| one(s.process.rejected_connections.load(Relaxed)),
    ),
    metric("commands_total", Counter, "commands", NONE, "Commands executed or queued by MULTI.", |s| {
        one(s.process.workers.read().iter().map(|worker| worker.commands.load(Relaxed)).sum())
    }),
    metric("keys", Gauge, "keys", KEYSPACE, "Keys of a keyspace that the process keeps alone.", |s| {
        each_keyspace(s, |keyspace| keyspace.len() as u64)
    }),
    metric("keys_with_deadline", Gauge, "keys", KEYSPACE, "Those of them that will expire.", |s| {
        each_keyspace(s, |keyspace| keyspace.deadlines() as u64)
    }),
    metric(
        "keyspace_memory_bytes",
        Gauge,
        "bytes",
        KEYSPACE,
        "Memory of the keyspace's data, estimated.",
        |s| each_keyspace(s, |keyspace| keyspace.memory() as u64),
    ),
    metric(
        "open_transactions",
        Gauge,
        "transactions",
        KEYSPACE,
        "Transactions between TXN BEGIN and their end, in a keyspace that the process keeps alone.",
        |s| each_keyspace(s, |keyspace| keyspace.transactions.lock().len() as u64),
    ),
    metric(
        "peers_connected",
        Gauge,
        "processes",
        NONE,
        "Other processes of the cluster connected to.",
        |s| one(s.process.peers.connected() as u64),
    ),
    metric(
        "recorded_groups",
        Gauge,
        "transactions",
        KEYSPACE,
        "Transactions that replicas of a strict keyspace remember for each other.",
        |s| each_backlog(s, |backlog| backlog.recorded_groups as u64),
    ),
    metric(
        "combined_total",
        Counter,
        "transactions",
        KEYSPACE,
        "Transactions that committed as a group with another one of this process (CONCURRENCY locking).",
        |s| each_backlog(s, |backlog| backlog.combined.unwrap_or(0)),
    ),
    metric(
        "queued_bytes",
        Gauge,
        "bytes",
        KEYSPACE,
        "Memory of what causal partitions and branch sites keep for other regions.",
        |s| each_backlog(s, |backlog| backlog.queued_bytes as u64),
    ),
    metric("spilled_bytes", Gauge, "bytes", KEYSPACE, "The same, of causal partitions on disk.", |s| {
        each_backlog(s, |backlog| backlog.spilled_bytes)
    }),
    metric(
        "state_transfers_total",
        Counter,
        "transfers",
        KEYSPACE,
        "How often causal partitions began to take the state of their peers, because these no longer queue it or it \
         was lost.",
        |s| each_backlog(s, |backlog| backlog.transfers.unwrap_or(0)),
    ),
    metric("conflicts", Gauge, "writes", KEYSPACE, "Lost writes that CONFLICTS LIST shows.", |s| {
        each_backlog(s, |backlog| backlog.conflicts as u64)
    }),
    metric(
        "conflicts_dropped_total",
        Counter,
        "writes",
        KEYSPACE,
        "Lost writes that are no longer listed, because the list was full.",
        |s| each_backlog(s, |backlog| backlog.conflicts_dropped),
    ),
    metric(
        "transaction_contention_total",
        Counter,
        "transactions",
        &["keyspace", "kind"],
        "How often transactions of a strict keyspace waited for others at replicas here (kind wait), were refused \
         (conflict) or lost their locks (wound).",
        contention,
    ),
    metric(
        "snapshot_age_ms",
        Gauge,
        "milliseconds",
        KEYSPACE,
        "Age of the newest snapshot that clients of a causal keyspace read.",
        |s| each_lag(s, |_| true, |lag| lag.snapshot_ms),
    ),
    metric(
        "region_lag_ms",
        Gauge,
        "milliseconds",
        &["keyspace", "from"],
        "Age of the newest that has arrived of a causal keyspace from region `from`; it grows while the region is \
         silent.",
        |s| each_region(s, |lag| lag.regions.iter().collect()),
    ),
    metric(
        "sent_bytes_total",
        Counter,
        "bytes",
        &["keyspace", "to"],
        "Messages of a causal keyspace for processes of region `to`, this process's own region included.",
        |s| each_region(s, |lag| lag.sent.iter().collect()),
    ),
    metric(
        "reads_waited_total",
        Counter,
        "reads",
        KEYSPACE,
        "Reads of a causal keyspace that waited for their snapshot; only where its protocol lets reads wait.",
        |s| each_lag(s, |lag| lag.waits.reads > 0, |lag| lag.waits.waited),
    ),
    metric(
        "read_wait_us_total",
        Counter,
        "microseconds",
        KEYSPACE,
        "Time that these waited, all together.",
        |s| each_lag(s, |lag| lag.waits.reads > 0, |lag| lag.waits.micros),
    ),
    metric(
        "sessions_pessimistic",
        Gauge,
        "sessions",
        KEYSPACE,
        "Sessions that depend on a region that is cut off, and see only what is stable without it (PROTOCOL pocc); \
         shown from the first one on.",
        |s| each_lag(s, |lag| lag.degraded.1 > 0, |lag| lag.degraded.0),
    ),
    metric(
        "sessions_degraded_total",
        Counter,
        "sessions",
        KEYSPACE,
        "How often a session became one of these.",
        |s| each_lag(s, |lag| lag.degraded.1 > 0, |lag| lag.degraded.1),
    ),
    metric(
        "log_written_group",
        Counter,
        "groups",
        NONE,
        "The newest group of records written to the log. It and the rest below only with a log.",
        |s| of_log(s, |journal| journal.durable().written),
    ),
    metric("log_synced_group", Counter, "groups", NONE, "The newest one synced.", |s| {
        of_log(s, |journal| journal.durable().synced)
    }),
    metric("log_syncs_total", Counter, "syncs", NONE, "Syncs of the log.", |s| {
        of_log(s, |journal| journal.syncs.load(Relaxed))
    }),
    metric(
        "log_suspended",
        Gauge,
        "",
        NONE,
        "1 while the log cannot be written; then writes are refused.",
        |s| of_log(s, |journal| u64::from(journal.is_suspended())),
    ),
    metric("log_bytes_since_checkpoint", Gauge, "bytes", NONE, "Growth since the last checkpoint.", |s| {
        of_log(s, Journal::grown)
    }),
    metric("checkpoints_total", Counter, "checkpoints", NONE, "Checkpoints taken.", |s| {
        of_log(s, |_| s.process.checkpoints.load(Relaxed))
    }),
];

/// A line of the table.
const fn metric(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    values: fn(&Sample<'_>) -> Vec<Value>,
) -> Metric {
    Metric { name, kind, unit, labels, help, values }
}

fn one(value: u64) -> Vec<Value> {
    vec![(Vec::new(), value)]
}

fn each_keyspace(sample: &Sample<'_>, value: fn(&Keyspace) -> u64) -> Vec<Value> {
    sample.keyspaces.iter().map(|keyspace| (vec![keyspace.name.to_string()], value(keyspace))).collect()
}

fn each_backlog(sample: &Sample<'_>, value: fn(&Backlog) -> u64) -> Vec<Value> {
    sample.backlogs.iter().map(|(name, backlog)| (vec![name.clone()], value(backlog))).collect()
}

/// How often transactions of strict keyspaces were in each other's way at replicas here, by what came of it.
fn contention(sample: &Sample<'_>) -> Vec<Value> {
    let lines = sample.backlogs.iter().flat_map(|(name, Backlog { contention, .. })| {
        let kinds =
            [("wait", contention.waits), ("conflict", contention.conflicts), ("wound", contention.wounds)];
        kinds.map(|(kind, count)| (vec![name.clone(), kind.to_owned()], count))
    });
    lines.collect()
}

/// Of the causal keyspaces that are `shown`.
fn each_lag(sample: &Sample<'_>, shown: fn(&Lag) -> bool, value: fn(&Lag) -> u64) -> Vec<Value> {
    let lags = sample.lags.iter().filter(|(_, lag)| shown(lag));
    lags.map(|(name, lag)| (vec![name.clone()], value(lag))).collect()
}

fn each_region(sample: &Sample<'_>, regions: fn(&Lag) -> Vec<(&String, &u64)>) -> Vec<Value> {
    let lines = sample.lags.iter().flat_map(|(name, lag)| {
        regions(lag).into_iter().map(move |(region, value)| (vec![name.clone(), region.clone()], *value))
    });
    lines.collect()
}

/// Nothing where the process keeps everything in memory.
fn of_log(sample: &Sample<'_>, value: impl Fn(&Journal) -> u64) -> Vec<Value> {
    sample.process.journal.iter().flat_map(|journal| one(value(journal))).collect()
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Counter => "counter",
            Gauge => "gauge",
        }
    }
}

impl Metric {
    /// Its heading and its lines; nothing if it has no values.
    fn write(&self, sample: &Sample<'_>, out: &mut String) -> std::fmt::Result {
        let Metric { name, kind, help, labels, values, .. } = self;
        let values = values(sample);
        if values.is_empty() {
            return Ok(());
        }
        let kind = kind.name();
        writeln!(out, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}")?;
        for (of_labels, value) in values {
            debug_assert_eq!(of_labels.len(), labels.len(), "{name}");
            let pairs = labels.iter().zip(of_labels).map(|(label, of)| format!("{label}=\"{of}\""));
            let pairs: Vec<String> = pairs.collect();
            let shown = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
            writeln!(out, "{PREFIX}{name}{shown} {value}")?;
        }
        Ok(())
    }
}

/// The process's figures in Prometheus's text format.
pub(crate) fn write(process: &Process) -> String {
    let view = &process.view;
    let (backlogs, lags) = (view.backlogs.lock().clone(), view.lags.lock().clone());
    let sample = Sample { process, keyspaces: process.keyspaces(), backlogs, lags };
    let mut out = String::new();
    let written = METRICS.iter().try_for_each(|metric| metric.write(&sample, &mut out));
    debug_assert!(written.is_ok(), "a string takes any text");
    out
}

/// The page `docs/reference/metrics.md`: every metric with what it means.
pub fn metrics_markdown() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated from the table in `crates/runtime/src/metrics.rs`. `GET /metrics` on the admin port (`--admin \
         HOST:PORT`) shows\nthem in Prometheus's text format, each process its own. A metric without values, such as \
         those of causal keyspaces where\nthere is none, is not shown. Counters begin at 0 when the process starts.\n\n\
         | metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
    );
    for Metric { name, kind, unit, labels, help, .. } in METRICS {
        let kind = kind.name();
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        page.push_str(&format!("| `{PREFIX}{name}` | {kind} | {unit} | {} | {help} |\n", labels.join(", ")));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_metrics_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        let page = metrics_markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/reference/metrics.md is old: run this test with UPDATE_DOCS=1");
    }

    #[test]
    fn names_are_prometheus_s_and_each_is_there_once() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        for Metric { name, kind, unit, help, .. } in METRICS {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(*kind == Counter && !name.ends_with("_group"), name.ends_with("_total"), "{name}");
            assert!(!name.contains("bytes") || *unit == "bytes", "{name}");
            assert!(help.ends_with('.') && !help.contains(['\n', '|']), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }
}
