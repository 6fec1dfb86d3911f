//! What a comparison of settings came to.

use super::Setting;
use crate::tcc::Spread;
use crate::transactions::Summary;
use serde::Serialize;
use std::fmt::Write;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Of which setting.
    pub setting: String,
    /// In which round, from 0.
    pub round: usize,
    /// What came of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Commits of every tenth of a second, from the begin on.
    pub trace: Vec<u32>,
    /// The standard deviation of these through their mean: how uneven the throughput is (figure 11).
    pub unevenness: f64,
}

impl Measured {
    pub(super) fn new(setting: &Setting, round: usize, summary: Summary, trace: Vec<u32>) -> Self {
        let unevenness = unevenness(&trace);
        Measured { setting: setting.name.clone(), round, summary, trace, unevenness }
    }
}

/// The standard deviation of a trace through its mean, in thousandths: how uneven the throughput is (figure 11).
pub fn unevenness(trace: &[u32]) -> f64 {
    let count = trace.len().max(1) as f64;
    let mean = trace.iter().map(|commits| f64::from(*commits)).sum::<f64>() / count;
    let squares: f64 = trace.iter().map(|commits| (f64::from(*commits) - mean).powi(2)).sum();
    if mean > 0.0 { ((squares / count).sqrt() / mean * 1000.0).round() / 1000.0 } else { 0.0 }
}

/// A setting beside the first one, round by round.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// Which setting.
    pub setting: String,
    /// Which one it is compared with.
    pub against: String,
    /// Its throughput through the first one's.
    pub throughput: Option<Spread>,
    /// Its median latency through the first one's.
    pub median_latency: Option<Spread>,
}

/// All measurements of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Of each setting, the round of median throughput.
    pub medians: Vec<Measured>,
    /// Every other setting beside the first.
    pub ratios: Vec<Ratio>,
    /// Every measurement.
    pub rounds: Vec<Measured>,
}

impl Comparison {
    pub(super) fn of(settings: &[Setting], rounds: Vec<Measured>) -> Self {
        let medians = settings.iter().filter_map(|setting| {
            let mut of: Vec<&Measured> =
                rounds.iter().filter(|measured| measured.setting == setting.name).collect();
            of.sort_by(|a, b| a.summary.throughput.total_cmp(&b.summary.throughput));
            of.get(of.len() / 2).map(|measured| (*measured).clone())
        });
        let medians = medians.collect();
        let ratios = settings.iter().skip(1).map(|other| ratio(&rounds, &settings[0], other)).collect();
        Comparison { medians, ratios, rounds }
    }
}

fn ratio(rounds: &[Measured], first: &Setting, other: &Setting) -> Ratio {
    let of = |setting: &Setting, round: usize| {
        let found =
            rounds.iter().find(|measured| measured.round == round && measured.setting == setting.name);
        found.map(|measured| &measured.summary)
    };
    let last = rounds.iter().map(|measured| measured.round).max().unwrap_or(0);
    let spread = |what: &dyn Fn(&Summary) -> f64| {
        let pairs = (0..=last).filter_map(|round| Some((of(other, round)?, of(first, round)?)));
        Spread::of(pairs.map(|(other, first)| what(other) / what(first)))
    };
    let median = |summary: &Summary| summary.latency_us.get("p50").copied().unwrap_or(0.0);
    Ratio {
        setting: other.name.clone(),
        against: first.name.clone(),
        throughput: spread(&|summary| summary.throughput),
        median_latency: spread(&median),
    }
}

/// A comparison as lines.
pub fn table(comparison: &Comparison) -> String {
    let widest = comparison.medians.iter().map(|measured| measured.setting.len()).max().unwrap_or(0).max(8);
    let mut text = format!(
        "{:<widest$}{:>8}{:>12}{:>10}{:>10}{:>10}{:>9}{:>9}{:>8}\n",
        "", "by", "committed/s", "p50 us", "p99 us", "p999 us", "failed", "uneven", "cpu us"
    );
    for Measured { setting, summary, unevenness, .. } in &comparison.medians {
        let latency = |name: &str| summary.latency_us.get(name).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{setting:<widest$}{:>8}{:>12.0}{:>10.0}{:>10.0}{:>10.0}{:>8.1}%{unevenness:>9.2}{:>8}",
            summary.by,
            summary.throughput,
            latency("p50"),
            latency("p99"),
            latency("p999"),
            summary.abort_rate * 100.0,
            summary.processor_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
        );
    }
    let shown = |spread: Option<Spread>| {
        spread.map_or_else(
            || "-".to_owned(),
            |spread| format!("{:.2} ({:.2}-{:.2})", spread.median, spread.low, spread.high),
        )
    };
    for Ratio { setting, against, throughput, median_latency } in &comparison.ratios {
        let (throughput, latency) = (shown(*throughput), shown(*median_latency));
        let _ = writeln!(text, "{setting} / {against}: throughput {throughput}, median latency {latency}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unevenness_is_a_deviation_through_the_mean() {
        assert_eq!(unevenness(&[10, 10, 10]), 0.0);
        assert_eq!(unevenness(&[0, 20]), 1.0);
        assert_eq!(unevenness(&[]), 0.0);
    }
}
