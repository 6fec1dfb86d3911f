//! What a comparison came to.

use crate::transactions::Summary;
use serde::Serialize;
use std::fmt::Write;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Of which protocol.
    pub protocol: &'static str,
    /// In which round, from 0.
    pub round: usize,
    /// What came of it.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The median of all rounds, with the lowest and the highest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Spread {
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        Some(Spread { median: values[values.len() / 2], low, high })
    }
}

/// A protocol beside the first one, round by round.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    /// Which protocol.
    pub protocol: &'static str,
    /// Which one it is compared with.
    pub against: &'static str,
    /// Its mean latency through the first one's.
    pub mean_latency: Option<Spread>,
    /// Its median latency through the first one's.
    pub median_latency: Option<Spread>,
    /// Its 99th percentile through the first one's.
    pub p99_latency: Option<Spread>,
    /// Its throughput through the first one's.
    pub throughput: Option<Spread>,
    /// Its bytes between regions for a transaction through the first one's.
    pub far_bytes: Option<Spread>,
}

/// All measurements of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Of each protocol, the round of median throughput.
    pub medians: Vec<Measured>,
    /// Every other protocol beside the first.
    pub ratios: Vec<Ratios>,
    /// Every measurement.
    pub rounds: Vec<Measured>,
}

impl Comparison {
    pub(crate) fn of(protocols: &[&'static str], rounds: Vec<Measured>) -> Self {
        let medians = protocols.iter().filter_map(|protocol| {
            let of = rounds.iter().filter(|measured| measured.protocol == *protocol);
            let mut of: Vec<&Measured> = of.collect();
            of.sort_by(|a, b| a.summary.throughput.total_cmp(&b.summary.throughput));
            of.get(of.len() / 2).map(|measured| (*measured).clone())
        });
        let medians: Vec<Measured> = medians.collect();
        let ratios = protocols.iter().skip(1).map(|other| ratios(&rounds, protocols[0], other)).collect();
        Comparison { medians, ratios, rounds }
    }
}

fn ratios(rounds: &[Measured], first: &'static str, other: &'static str) -> Ratios {
    let of = |protocol: &'static str| rounds.iter().filter(move |measured| measured.protocol == protocol);
    let pairs: Vec<(&Summary, &Summary)> = of(other)
        .filter_map(|other| {
            let baseline = of(first).find(|first| first.round == other.round)?;
            Some((&other.summary, &baseline.summary))
        })
        .collect();
    let spread = |what: &dyn Fn(&Summary) -> f64| {
        Spread::of(pairs.iter().map(|(other, first)| what(other) / what(first)))
    };
    let latency =
        |at: &'static str| move |summary: &Summary| summary.latency_us.get(at).copied().unwrap_or(0.0);
    Ratios {
        protocol: other,
        against: first,
        mean_latency: spread(&|summary| summary.mean_us),
        median_latency: spread(&latency("p50")),
        p99_latency: spread(&latency("p99")),
        throughput: spread(&|summary| summary.throughput),
        far_bytes: spread(&|summary| summary.far_bytes),
    }
}

/// A comparison as lines.
pub fn table(comparison: &Comparison) -> String {
    let mut text = format!(
        "{:<8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}\n",
        "",
        "txn/s",
        "mean us",
        "p50 us",
        "p99 us",
        "p999 us",
        "reads p50",
        "read-only",
        "waits/tx",
        "wait us",
        "far B/tx",
        "cpu us",
        "failed"
    );
    for measured in &comparison.medians {
        let summary = &measured.summary;
        let latency = |name: &str| summary.latency_us.get(name).copied().unwrap_or_default();
        let of = |kind: &str| -> String {
            let found = summary.latency_us_by_kind.get(kind).and_then(|latencies| latencies.get("p50"));
            found.map_or_else(|| "-".to_owned(), |p50| format!("{p50:.0}"))
        };
        let _ = writeln!(
            text,
            "{:<8}{:>9.0}{:>9.0}{:>9.0}{:>9.0}{:>9.0}{:>10}{:>9}{:>9.2}{:>9.0}{:>9.0}{:>8}{:>7.1}%",
            measured.protocol,
            summary.throughput,
            summary.mean_us,
            latency("p50"),
            latency("p99"),
            latency("p999"),
            of("reads"),
            of("read-only"),
            summary.reads_waited as f64 / summary.committed.max(1) as f64,
            summary.read_wait_us,
            summary.far_bytes,
            summary.processor_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
            summary.abort_rate * 100.0,
        );
    }
    let shown = |spread: Option<Spread>| {
        spread.map_or_else(
            || "-".to_owned(),
            |spread| format!("{:.2} ({:.2}-{:.2})", spread.median, spread.low, spread.high),
        )
    };
    for ratios in &comparison.ratios {
        let _ = writeln!(
            text,
            "{} / {}: mean latency {}, p50 {}, p99 {}, throughput {}, bytes between regions {}",
            ratios.protocol,
            ratios.against,
            shown(ratios.mean_latency),
            shown(ratios.median_latency),
            shown(ratios.p99_latency),
            shown(ratios.throughput),
            shown(ratios.far_bytes),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_a_median_with_its_ends() {
        let spread = Spread::of([3.0, 1.0, f64::NAN, 2.0].into_iter());
        assert_eq!(spread, Some(Spread { median: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(Spread::of([f64::INFINITY].into_iter()), None);
    }
}
