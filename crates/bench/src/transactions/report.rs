//! Results, for people and for programs.

use super::measure::{RunError, Settings, Totals, run};
use crate::redis::Target;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// What one run came to.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// `retwis`, `rmw`, `tcc`, `cops`, `tardis`, `rawmix`, `rubis` or `retwis-graph`.
    pub workload: &'static str,
    /// `watch`, `txn`, `branch`, `multi`, or `single` where nothing holds operations together.
    pub by: &'static str,
    /// Connections.
    pub clients: usize,
    /// How many keys there are.
    pub keys: u32,
    /// How long it took.
    pub seconds: f64,
    /// Committed transactions per second.
    pub throughput: f64,
    /// Microseconds from the first try to the commit, at some percentiles.
    pub latency_us: BTreeMap<&'static str, f64>,
    /// Microseconds, on average.
    pub mean_us: f64,
    /// The percentiles by kind; and, as `reads`, until the reads of a transaction that writes were answered.
    pub latency_us_by_kind: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// Reads of partitions that waited for their snapshot.
    pub reads_waited: u64,
    /// For how long these did, on average, in microseconds.
    pub read_wait_us: f64,
    /// Bytes that our servers queued for other regions, for each committed transaction.
    pub far_bytes: f64,
    /// The same for other processes of the same region.
    pub near_bytes: f64,
    /// Processor time of our servers for each committed transaction, in microseconds, if they run on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_us: Option<f64>,
    /// Committed transactions.
    pub committed: u64,
    /// The same by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Tries that failed and were repeated.
    pub aborts: u64,
    /// Failed tries through all that were decided.
    pub abort_rate: f64,
    /// Tries of unknown outcome.
    pub unknown: u64,
    /// Transactions that were still being tried at the end.
    pub given_up: u64,
    /// Connections that broke.
    pub lost_connections: u64,
}

impl Summary {
    /// Sums up a run.
    pub fn of(settings: &Settings, totals: &Totals, elapsed: Duration) -> Self {
        let by = match (settings.branch, settings.txn) {
            (true, _) => "branch",
            (_, true) => "txn",
            _ => "watch",
        };
        let (name, clients, keys) = (settings.workload.name(), settings.clients, settings.keys.count());
        Summary::named(name, by, (clients, keys), totals, elapsed)
    }

    /// Sums up a run of clients on keys.
    pub(crate) fn named(
        workload: &'static str,
        by: &'static str,
        (clients, keys): (usize, u32),
        totals: &Totals,
        elapsed: Duration,
    ) -> Self {
        let (seconds, committed) = (elapsed.as_secs_f64().max(1e-9), totals.commits());
        let (counters, each) = (totals.servers, committed.max(1) as f64);
        let mut kinds: BTreeMap<_, _> =
            totals.by_kind.iter().map(|(kind, latencies)| (*kind, percentiles(latencies))).collect();
        if !totals.reads.is_empty() {
            kinds.insert("reads", percentiles(&totals.reads));
        }
        Summary {
            workload,
            by,
            clients,
            keys,
            seconds: (seconds * 1000.0).round() / 1000.0,
            throughput: (committed as f64 / seconds * 10.0).round() / 10.0,
            latency_us: percentiles(&totals.latency),
            latency_us_by_kind: kinds,
            mean_us: (totals.latency.mean() / 100.0).round() / 10.0,
            reads_waited: counters.waited,
            read_wait_us: counters.wait_us as f64 / counters.waited.max(1) as f64,
            far_bytes: (counters.far_bytes as f64 / each).round(),
            near_bytes: (counters.near_bytes as f64 / each).round(),
            processor_us: counters.processor_seconds.map(|seconds| (seconds * 1e7 / each).round() / 10.0),
            committed,
            kinds: totals.committed.clone(),
            aborts: totals.aborts,
            abort_rate: totals.aborts as f64 / (totals.aborts + committed).max(1) as f64,
            unknown: totals.unknown,
            given_up: totals.given_up,
            lost_connections: totals.lost_connections,
        }
    }
}

/// Microseconds at some percentiles.
fn percentiles(latencies: &Histogram<u64>) -> BTreeMap<&'static str, f64> {
    let at = |p: f64| latencies.value_at_percentile(p) as f64 / 1000.0;
    let max = latencies.max() as f64 / 1000.0;
    [("p50", at(50.0)), ("p90", at(90.0)), ("p99", at(99.0)), ("p999", at(99.9)), ("max", max)].into()
}

/// A server, or two measured in turn.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Ours, the round of median throughput.
    #[serde(flatten)]
    pub ours: Summary,
    /// Theirs, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Summary>,
    /// Our throughput through theirs, round by round: the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The lowest and the highest round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_range: Option<[f64; 2]>,
    /// Rounds.
    pub rounds: usize,
}

/// Measures ours, or ours and another in turn, for some rounds.
///
/// # Errors
/// As for [`run`].
pub fn compare(settings: &Settings, against: Option<&Target>, rounds: usize) -> Result<Comparison, RunError> {
    let once = |settings: &Settings| -> Result<Summary, RunError> {
        let (totals, elapsed) = run(settings)?;
        Ok(Summary::of(settings, &totals, elapsed))
    };
    let peer = against.map(|url| Settings {
        urls: vec![url.clone()],
        // A server with requests step by step is one of ours: another server has no transactions that read on the way.
        txn: settings.steps,
        branch: false,
        ..settings.clone()
    });
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let mine = once(settings)?;
        if let Some(peer) = &peer {
            let other = once(peer)?;
            ratios.push((mine.throughput / other.throughput.max(1e-9) * 1000.0).round() / 1000.0);
            theirs.push(other);
        }
        ours.push(mine);
    }
    ratios.sort_by(f64::total_cmp);
    let median = |mut rounds: Vec<Summary>| -> Option<Summary> {
        rounds.sort_by(|a, b| a.throughput.total_cmp(&b.throughput));
        let middle = rounds.len() / 2;
        (middle < rounds.len()).then(|| rounds.swap_remove(middle))
    };
    Ok(Comparison {
        ours: median(ours).ok_or_else(|| RunError::Refused("nothing was measured".into()))?,
        theirs: median(theirs),
        ratio: ratios.get(ratios.len() / 2).copied(),
        ratio_range: ratios.first().zip(ratios.last()).map(|(low, high)| [*low, *high]),
        rounds: rounds.max(1),
    })
}

/// A comparison as lines.
pub fn table(comparison: &Comparison) -> String {
    let mut text = format!(
        "{:<8}{:<7}{:>12}{:>10}{:>10}{:>10}{:>11}{:>9}{:>9}\n",
        "", "by", "committed/s", "p50 us", "p99 us", "p999 us", "committed", "aborts", "unknown"
    );
    let mut line = |name: &str, summary: &Summary| {
        let latency = |name: &str| summary.latency_us.get(name).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{name:<8}{:<7}{:>12.0}{:>10.0}{:>10.0}{:>10.0}{:>11}{:>8.1}%{:>9}",
            summary.by,
            summary.throughput,
            latency("p50"),
            latency("p99"),
            latency("p999"),
            summary.committed,
            summary.abort_rate * 100.0,
            summary.unknown
        );
    };
    line("ours", &comparison.ours);
    let (ours, waited) = (&comparison.ours, comparison.ours.reads_waited);
    if let Some(theirs) = &comparison.theirs {
        line("theirs", theirs);
    }
    if waited > 0 {
        let each = waited as f64 / ours.committed.max(1) as f64;
        let _ = writeln!(
            text,
            "mean {:.0} us; {each:.2} reads of a partition in each transaction waited, {:.0} us on average",
            ours.mean_us, ours.read_wait_us
        );
    }
    if let (Some(ratio), Some([low, high])) = (comparison.ratio, comparison.ratio_range) {
        let _ = writeln!(text, "ratio {ratio:.2} ({low:.2}-{high:.2}), {} rounds", comparison.rounds);
    }
    text
}
