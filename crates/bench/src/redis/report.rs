//! Results as lines, for people and for programs.

use super::catalogue::Test;
use super::compare::{Comparison, Latency, Settings, compare};
use super::load::LoadError;
use serde_json::json;
use std::fmt::Write;

/// What became of one test with one pipeline.
#[derive(Debug)]
pub struct Report {
    /// The test.
    pub test: &'static Test,
    /// Requests that one connection has under way.
    pub pipeline: usize,
    /// The result, or why there is none.
    pub result: Result<Comparison, LoadError>,
}

/// Runs every test with every pipeline; `show` gets each report as soon as it is there. Answers how many failed.
pub fn run_all(settings: &Settings, mut show: impl FnMut(&Report)) -> usize {
    let mut failed = 0;
    for test in &settings.tests {
        for pipeline in &settings.pipelines {
            let report = Report { test, pipeline: *pipeline, result: compare(settings, test, *pipeline) };
            failed += usize::from(report.result.is_err());
            show(&report);
        }
    }
    failed
}

/// A report as one JSON object.
pub fn json_line(report: &Report) -> String {
    let failure = |error: String| json!({"test": report.test, "pipeline": report.pipeline, "error": error});
    match &report.result {
        Ok(comparison) => {
            serde_json::to_string(comparison).unwrap_or_else(|error| failure(error.to_string()).to_string())
        }
        Err(error) => failure(error.to_string()).to_string(),
    }
}

/// The head of the table. The column `A/A` is our second measurement of a round through our first.
pub fn table_head(settings: &Settings) -> String {
    let mut head = format!("{:<11}{:>5}{:>12}", "test", "P", "ours/s");
    if settings.theirs.is_some() {
        let _ = write!(head, "{:>12}{:>8} {:<13}", "theirs/s", "ratio", "(low-high)");
    }
    let _ = write!(head, "{:>8} {:<13}{:>20}", "A/A", "(low-high)", "ours p50/p99 us");
    if settings.theirs.is_some() {
        let _ = write!(head, "{:>20}", "theirs p50/p99 us");
    }
    let _ = write!(head, "{:>15}", "cpu us/request");
    head
}

/// A report as one line of the table.
pub fn table_line(report: &Report) -> String {
    let mut line = format!("{:<11}{:>5}", report.test.name, report.pipeline);
    let comparison = match &report.result {
        Ok(comparison) => comparison,
        Err(error) => return format!("{line}  failed: {error}"),
    };
    let _ = write!(line, "{:>12}", comparison.ours);
    if let (Some(theirs), Some(ratio)) = (comparison.theirs, comparison.ratio) {
        let range = format!("({:.2}-{:.2})", ratio.ratio_low, ratio.ratio_high);
        let _ = write!(line, "{theirs:>12}{:>8.2} {range:<13}", ratio.ratio);
    }
    let range = format!("({:.2}-{:.2})", comparison.same.low, comparison.same.high);
    let _ = write!(line, "{:>8.2} {range:<13}", comparison.same.median);
    let latency = |latency: &Latency| format!("{:.0}/{:.0}", latency.p50, latency.p99);
    let _ = write!(line, "{:>20}", latency(&comparison.ours_latency_us));
    if let Some(theirs) = &comparison.theirs_latency_us {
        let _ = write!(line, "{:>20}", latency(theirs));
    }
    let cpu = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.2}"));
    let _ = write!(
        line,
        "{:>15}",
        match comparison.theirs {
            Some(_) => format!("{} / {}", cpu(comparison.ours_cpu_us), cpu(comparison.theirs_cpu_us)),
            None => cpu(comparison.ours_cpu_us),
        }
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::TESTS;
    use crate::redis::compare::{Ratio, Spread};

    fn report() -> Report {
        let latency = Latency { p50: 300.0, p99: 900.0, p999: 1200.0, max: 4000.0 };
        let comparison = Comparison {
            test: &TESTS[1],
            pipeline: 16,
            ours: 1_500_000.0,
            theirs: Some(750_000.0),
            ratio: Some(Ratio { ratio: 2.0, ratio_low: 1.9, ratio_high: 2.1 }),
            same: Spread { median: 1.0, low: 0.98, high: 1.02 },
            ours_latency_us: latency,
            theirs_latency_us: Some(latency),
            ours_cpu_us: Some(0.61),
            theirs_cpu_us: None,
            clients: 50,
            requests: 1_000_000,
            rounds: 5,
        };
        Report { test: &TESTS[1], pipeline: 16, result: Ok(comparison) }
    }

    #[test]
    fn the_json_line_has_the_fixed_fields() {
        let value: serde_json::Value = serde_json::from_str(&json_line(&report())).unwrap();
        assert_eq!(value["test"], "set");
        assert_eq!(value["pipeline"], 16);
        assert_eq!(value["ours"], 1_500_000.0);
        assert_eq!(value["theirs"], 750_000.0);
        assert_eq!(value["ratio"], 2.0);
        assert_eq!(value["ours_cpu_us"], 0.61);
        assert!(value.get("theirs_cpu_us").is_none());
    }

    #[test]
    fn the_table_shows_the_noise_beside_the_ratio() {
        let line = table_line(&report());
        assert!(line.contains("2.00 (1.90-2.10)") && line.contains("1.00 (0.98-1.02)"), "{line}");
        assert!(line.ends_with("0.61 / -"), "{line}");
    }
}
