//! Points as text.

use super::measure::Measured;
use super::system::System;
use crate::table::bar;
use std::fmt::Write;

/// The length of the longest bar.
const BAR: f64 = 20.0;
/// Pairs of operations that are named for each point.
const PAIRS: usize = 3;

/// A line for every point, under a heading; the bar shows the throughput.
pub fn table(points: &[Measured]) -> String {
    let mut text = format!(
        "{:<16} {:>5} {:>4} {:>7} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6} {:>7} {:>7} {:>7} {:>6} {:>5} {:>5} {:>6}\n",
        "system",
        "share",
        "zipf",
        "clients",
        "txn/s",
        "p50 ms",
        "p99 ms",
        "waits",
        "confl",
        "wounds",
        "failed",
        "combin%",
        "pkt/txn",
        "msg/tx",
        "busy",
        "gate",
        "uneven"
    );
    let greatest = points.iter().map(|point| point.throughput).fold(1e-9, f64::max);
    for point in points {
        let committed: u64 = point.committed.values().sum();
        let each = |count: u64| count as f64 / committed.max(1) as f64;
        let _ = writeln!(
            text,
            "{:<16} {:>4}% {:>4} {:>7} {:>8.0} {:>8.2} {:>8.2} {:>6.2} {:>6.2} {:>6.2} {:>7.2} {:>6.1}% {:>7.1} {:>6.1} {:>4.0}% {:>4.0}% {:>6.2} {}",
            point.system,
            point.share,
            point.zipf,
            point.clients,
            point.throughput,
            point.p50_us as f64 / 1e3,
            point.p99_us as f64 / 1e3,
            each(point.waits),
            each(point.conflicts),
            each(point.wounds),
            each(point.failed),
            each(point.combined) * 100.0,
            point.packets,
            point.messages,
            point.busiest * 100.0,
            point.busiest_gateway * 100.0,
            point.unevenness,
            bar(point.throughput / greatest * BAR)
        );
    }
    conflicts(points, &mut text);
    text
}

/// Who is in whose way, of each system at the last of its points.
fn conflicts(points: &[Measured], text: &mut String) {
    for system in System::ALL.map(System::name) {
        let Some(point) = points.iter().rev().find(|point| point.system == system) else { continue };
        if point.pairs.is_empty() {
            continue;
        }
        let committed: u64 = point.committed.values().sum();
        let named = point.pairs.iter().take(PAIRS).map(|pair| {
            let share = pair.count as f64 * 1000.0 / committed.max(1) as f64;
            format!("{} {} at {} {share:.1}", pair.keys, pair.wanted, pair.met)
        });
        let named: Vec<String> = named.collect();
        let _ = writeln!(
            text,
            "  meetings of a thousand, {system}, {} clients: {}",
            point.clients,
            named.join("; ")
        );
    }
}
