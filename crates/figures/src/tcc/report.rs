//! Points as text, and the thesis's claims beside what was found.

use super::System;
use super::measure::Measured;
use crate::tapir::Claim;
use std::fmt::Write;

/// A line for every point, under a heading.
pub fn table(points: &[Measured]) -> String {
    let mut text = format!(
        "{:<7} {:>3} {:>4} {:>5} {:>5} {:>6} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>8} {:>8} {:>8} {:>7} {:>13} {:>13} {:>5} {:>6}\n",
        "system",
        "reg",
        "part",
        "write",
        "touch",
        "local%",
        "clients",
        "txn/s",
        "mean ms",
        "p50 ms",
        "p99 ms",
        "waited%",
        "wait ms",
        "repl B",
        "far KB/s",
        "near KB/s",
        "age ms",
        "here ms 50/99",
        "away ms 50/99",
        "busy",
        "cpu us"
    );
    let ms = |us: u64| us as f64 / 1e3;
    for point in points {
        let visible = |(half, most): (u64, u64)| format!("{:.1}/{:.1}", ms(half), ms(most));
        let _ = writeln!(
            text,
            "{:<7} {:>3} {:>4} {:>5} {:>5} {:>6} {:>7} {:>8.0} {:>8.2} {:>8.2} {:>8.2} {:>6.1}% {:>7.2} {:>8.0} {:>8.1} {:>8.1} {:>7.1} {:>13} {:>13} {:>4.0}% {:>6.0}",
            point.system,
            point.regions,
            point.partitions,
            point.writes,
            point.touched,
            point.local_share,
            point.clients,
            point.throughput,
            point.mean_us / 1e3,
            ms(point.p50_us),
            ms(point.p99_us),
            point.waited_share * 100.0,
            point.wait_us / 1e3,
            point.replication_bytes,
            point.stabilization_far / 1e3,
            point.stabilization_near / 1e3,
            point.age_us / 1e3,
            visible(point.local_visible_us),
            visible(point.remote_visible_us),
            point.busiest * 100.0,
            point.processor_us,
        );
    }
    text
}

/// The points of all experiments by id.
pub type Points<'p> = [(&'p str, &'p [Measured])];

pub(super) struct Found<'p>(pub &'p Points<'p>);

impl Found<'_> {
    pub fn of<'f>(&'f self, id: &'f str, system: System) -> impl Iterator<Item = &'f Measured> {
        let of = self.0.iter().filter(move |(name, _)| *name == id).flat_map(|(_, points)| points.iter());
        of.filter(move |point| point.system == system.name())
    }

    pub fn peak(&self, id: &str, system: System) -> f64 {
        self.of(id, system).map(|point| point.throughput).fold(0.0, f64::max)
    }

    /// The most that one's mean latency is of another's at the same number of clients, while the slower one is not
    /// overloaded.
    fn latency_gain(&self, id: &str, slow: System, fast: System) -> f64 {
        let pairs = self.of(id, slow).zip(self.of(id, fast));
        pairs.map(|(slow, fast)| slow.mean_us / fast.mean_us).fold(0.0, f64::max)
    }

    pub fn gain(&self, id: &str, fast: System, slow: System) -> f64 {
        self.peak(id, fast) / self.peak(id, slow)
    }

    /// Something of the last point, of one system over another's.
    pub fn ratio(&self, id: &str, one: System, other: System, what: fn(&Measured) -> f64) -> f64 {
        let of = |system| self.of(id, system).last().map_or(f64::NAN, what);
        of(one) / of(other)
    }

    /// Something of the last point over the first one's.
    pub fn growth(&self, id: &str, system: System, what: fn(&Measured) -> f64) -> f64 {
        let of = |point: Option<&Measured>| point.map_or(f64::NAN, what);
        of(self.of(id, system).last()) / of(self.of(id, system).next())
    }

    pub fn most(&self, id: &str, system: System, what: fn(&Measured) -> f64) -> f64 {
        self.of(id, system).map(what).fold(0.0, f64::max)
    }
}

pub(crate) fn at_least(
    claim: &'static str,
    about: &'static str,
    paper: f64,
    ours: f64,
    unit: &'static str,
) -> Claim {
    Claim { claim, about, paper, ours, unit, met: ours >= paper }
}

pub(crate) fn at_most(
    claim: &'static str,
    about: &'static str,
    paper: f64,
    ours: f64,
    unit: &'static str,
) -> Claim {
    Claim { claim, about, paper, ours, unit, met: ours <= paper }
}

/// What the thesis says of Wren.
pub fn wren_claims(points: &Points<'_>) -> Vec<Claim> {
    let mut all = wren_speed(points);
    all.extend(wren_costs(points));
    all
}

fn wren_speed(points: &Points<'_>) -> Vec<Claim> {
    use System::{Cure, CureApplied, HybridCure, HybridCureApplied, Wren};
    let found = Found(points);
    let latency = |claim, about, paper, id, other| {
        at_least(claim, about, paper, found.latency_gain(id, other, Wren), "x")
    };
    let peak =
        |claim, about, paper, id, other| at_least(claim, about, paper, found.gain(id, Wren, other), "x");
    let most = |other| of_all_mixes(|id| found.latency_gain(id, other, Wren));
    vec![
        latency(
            "wren/latency-cure",
            "4.5.2: mean latency of Cure over Wren's, 95:5",
            2.33,
            "mix-95-5",
            CureApplied,
        ),
        latency("wren/latency-cure-small", "the same, 3 regions and 2 partitions", 2.3, "small", CureApplied),
        at_least("wren/latency-cure-most", "4.5.3: the most over all workloads", 3.6, most(CureApplied), "x"),
        latency(
            "wren/latency-h-cure",
            "4.5.2: H-Cure's over Wren's (40 % lower)",
            1.67,
            "mix-95-5",
            HybridCureApplied,
        ),
        peak("wren/peak-cure", "4.5.2: throughput over Cure's, 95:5", 1.25, "mix-95-5", CureApplied),
        peak("wren/peak-cure-small", "the same, 3 regions and 2 partitions", 1.25, "small", CureApplied),
        peak("wren/peak-h-cure", "4.5.2: throughput over H-Cure's", 1.15, "mix-95-5", HybridCureApplied),
        latency(
            "wren/latency-our-cure",
            "the same beside our Cure, whose reads do not wait for applications: latency, 95:5",
            2.33,
            "mix-95-5",
            Cure,
        ),
        at_least("wren/latency-our-cure-most", "the most over all workloads", 3.6, most(Cure), "x"),
        latency("wren/latency-our-h-cure", "H-Cure's over Wren's", 1.67, "mix-95-5", HybridCure),
        peak("wren/peak-our-cure", "throughput over Cure's, 95:5", 1.25, "mix-95-5", Cure),
    ]
}

fn wren_costs(points: &Points<'_>) -> Vec<Claim> {
    use System::{Cure, CureApplied, NoCc, Wren};
    let found = Found(points);
    let far = |point: &Measured| point.stabilization_far + point.stabilization_near;
    let replication = |point: &Measured| point.replication_bytes;
    vec![
        at_most(
            "wren/waits",
            "section 4.3: share of Wren's reads that wait",
            0.0,
            found.most("mix-50-50", Wren, |point| point.waited_share),
            "",
        ),
        at_least(
            "cure/wait",
            "4.5.2: mean wait of Cure's reads that wait, most",
            2.0,
            found.most("mix-95-5", CureApplied, |point| point.wait_us / 1e3),
            "ms",
        ),
        at_least(
            "wren/partitions",
            "4.5.4: throughput with four times the partitions",
            3.88,
            found.growth("partitions", Wren, |point| point.throughput),
            "x",
        ),
        at_least(
            "wren/regions",
            "4.5.5: throughput of 5 regions over that of 3 (here of 2: 2.5 is ideal)",
            1.53,
            found.growth("regions", Wren, |point| point.throughput),
            "x",
        ),
        at_most(
            "wren/replication-bytes",
            "4.5.6: bytes of replication over Cure's, 5 regions",
            0.63,
            found.ratio("regions", Wren, Cure, replication),
            "x",
        ),
        at_most(
            "wren/stabilization-bytes",
            "4.5.6: bytes of stabilization over Cure's, 5 regions",
            0.4,
            found.ratio("regions", Wren, Cure, far),
            "x",
        ),
        at_most(
            "wren/visible-away",
            "4.5.7: remote visibility over Cure's, 99 of 100",
            1.15,
            found.ratio("mix-95-5", Wren, Cure, |point| point.remote_visible_us.1 as f64),
            "x",
        ),
        at_most(
            "wren/overhead-reads",
            "goal: of NoCC's throughput, lost, 95:5",
            0.2,
            1.0 - found.gain("mix-95-5", Wren, NoCc),
            "",
        ),
        at_most(
            "wren/overhead-writes",
            "goal: the same, 50:50",
            0.37,
            1.0 - found.gain("mix-50-50", Wren, NoCc),
            "",
        ),
    ]
}

fn of_all_mixes(of: impl Fn(&str) -> f64) -> f64 {
    ["small", "mix-95-5", "mix-90-10", "mix-50-50", "touched-2", "touched-8"]
        .into_iter()
        .map(of)
        .fold(0.0, f64::max)
}

/// What the thesis says of PaRiS.
pub fn paris_claims(points: &Points<'_>) -> Vec<Claim> {
    use System::{Bpr, NoCc, Paris};
    let found = Found(points);
    let (reads, writes) = ("mix-95-5", "mix-50-50");
    let far_share = |point: &Measured| {
        let effects = point.replication_bytes * point.throughput;
        point.stabilization_far / (effects + point.stabilization_far + point.stabilization_near)
    };
    vec![
        at_least(
            "paris/latency-reads",
            "5.5.2: mean latency of BPR over PaRiS's, 95:5",
            5.91,
            found.latency_gain(reads, Bpr, Paris),
            "x",
        ),
        at_least(
            "paris/latency-small",
            "goal: the same, 3 regions and 6 partitions",
            5.0,
            found.latency_gain("small", Bpr, Paris),
            "x",
        ),
        at_least(
            "paris/latency-writes",
            "5.5.2: the same, 50:50",
            20.56,
            found.latency_gain(writes, Bpr, Paris),
            "x",
        ),
        at_least(
            "paris/peak-reads",
            "5.5.2: throughput over BPR's, 95:5",
            1.47,
            found.gain(reads, Paris, Bpr),
            "x",
        ),
        at_least("paris/peak-writes", "5.5.2: the same, 50:50", 1.46, found.gain(writes, Paris, Bpr), "x"),
        at_least(
            "bpr/wait-reads",
            "5.5.2: mean wait in BPR, 95:5",
            29.0,
            found.most(reads, Bpr, |point| point.wait_us / 1e3),
            "ms",
        ),
        at_most(
            "paris/nocc-reads",
            "5.5.2: NoCC's throughput over PaRiS's, 95:5",
            1.24,
            found.gain(reads, NoCc, Paris),
            "x",
        ),
        at_most("paris/nocc-writes", "5.5.2: the same, 50:50", 1.59, found.gain(writes, NoCc, Paris), "x"),
        at_least(
            "paris/partitions",
            "5.5.3: throughput with twice the machines",
            2.0,
            found.growth("partitions", Paris, |point| point.throughput),
            "x",
        ),
        at_least(
            "paris/regions",
            "5.5.3: throughput of 5 regions over that of 3",
            1.67,
            found.growth("regions", Paris, |point| point.throughput),
            "x",
        ),
        at_least(
            "paris/locality",
            "5.5.4: throughput at 50:50 over that at 100:0",
            0.84,
            found.growth("locality", Paris, |point| point.throughput),
            "x",
        ),
        at_most(
            "paris/far-share",
            "5.5.6: share of bytes for stabilization between regions",
            0.02,
            found.most(reads, Paris, far_share),
            "",
        ),
    ]
}
