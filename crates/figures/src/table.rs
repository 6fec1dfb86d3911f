//! Points and claims as text.

use crate::measure::Measured;
use crate::tapir::Claim;
use std::fmt::Write;

/// The length of the longest bar.
const BAR: f64 = 24.0;

/// A line for every point, under a heading; the bar shows the throughput.
pub fn table(points: &[Measured]) -> String {
    let mut text = format!(
        "{:<12} {:<11} {:<6} {:>6} {:>7} {:>7} {:>8} {:>9} {:>9} {:>7} {:>8} {:>8} {:>6} {:>5}\n",
        "system",
        "environment",
        "from",
        "shards",
        "touched",
        "clients",
        "txn/s",
        "p50 ms",
        "p99 ms",
        "aborts",
        "msg/txn",
        "rec/txn",
        "trips",
        "busy"
    );
    let greatest = points.iter().map(|point| point.throughput).fold(1e-9, f64::max);
    for point in points {
        let aborts = point.aborts as f64 / (point.aborts + point.committed).max(1) as f64;
        let touched = if point.touched == 0 { "-".to_owned() } else { point.touched.to_string() };
        let _ = writeln!(
            text,
            "{:<12} {:<11} {:<6} {:>6} {:>7} {:>7} {:>8.0} {:>9.2} {:>9.2} {:>6.1}% {:>8.1} {:>8.1} {:>6.2} {:>4.0}% {}",
            point.system,
            point.environment,
            point.clients_in,
            point.shards,
            touched,
            point.clients,
            point.throughput,
            point.p50_us as f64 / 1e3,
            point.p99_us as f64 / 1e3,
            aborts * 100.0,
            point.messages,
            point.records,
            point.round_trips,
            point.busiest * 100.0,
            bar(point.throughput / greatest * BAR)
        );
    }
    text
}

/// A bar of this length.
pub(crate) fn bar(length: f64) -> String {
    "#".repeat(length.round() as usize)
}

/// A line for every claim.
pub fn claims_table(claims: &[Claim]) -> String {
    let mut text = format!("{:<36} {:>6} {:>6} {:<11} {:<4}\n", "claim", "paper", "ours", "unit", "met");
    for Claim { claim, about, paper, ours, unit, met } in claims {
        let met = if *met { "yes" } else { "no" };
        let _ = writeln!(text, "{claim:<36} {paper:>6.2} {ours:>6.2} {unit:<11} {met:<4} {about}");
    }
    text
}
