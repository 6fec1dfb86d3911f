//! The evaluation of POCC (the thesis, section 3.8) beside Cure, which stands for its Cure*: single commands with pauses.

use super::load::Load;
use super::measure::{Commands, Measured};
use super::report::{Found, Points, at_least, at_most};
use super::world::Setup;
use super::{COSTS, Drawing, Experiment, SKEW, System};
use crate::tapir::{Claim, Scale};
use std::fmt::Write;

/// What stands for the thesis's Cure*, whose `GET` waits for no clock.
const CURE: System = System::HybridCure;
/// Between commands of a client, in milliseconds (section 3.8.1).
const THINK: u64 = 25;
/// The names of the claims that are this project's own begin like this.
pub const PROMISED: &str = "promise/";
/// The regions of the thesis: Oregon, Virginia and Ireland.
const REGIONS: u16 = 3;
/// Up to this share of the peak the thesis calls its systems moderately loaded: 600 of 650 thousand operations a second.
const MODERATE: f64 = 0.92;

struct Base {
    scale: Scale,
    /// How many partitions there are, if that does not vary.
    partitions: u16,
    /// Clients beside each machine that keep it busy.
    busy: usize,
}

impl Base {
    fn setup(&self, partitions: u16, clients: usize, load: Load) -> Setup {
        Setup {
            regions: REGIONS,
            partitions,
            replicas: REGIONS,
            clients,
            think: THINK,
            load,
            costs: COSTS,
            skew: SKEW,
            measured: self.scale.seconds * if self.scale.quick { 100 } else { 200 },
            seed: self.scale.seed,
        }
    }

    fn experiment(&self, id: &str, title: &str, drawing: Drawing, setups: &[Setup]) -> Experiment {
        let runs = [System::Pocc, CURE]
            .into_iter()
            .flat_map(|system| setups.iter().map(move |setup| (system, *setup)));
        Experiment { id: id.to_owned(), title: title.to_owned(), runs: runs.collect(), drawing }
    }

    /// Powers of two up to the number of partitions.
    fn powers(&self, from: u16) -> impl Iterator<Item = u16> {
        let most = self.partitions;
        std::iter::successors(Some(from), |size| Some(size * 2)).take_while(move |size| *size <= most)
    }
}

/// The experiments of POCC's evaluation.
pub fn pocc_experiments(scale: Scale) -> Vec<Experiment> {
    let base = Base { scale, partitions: if scale.quick { 4 } else { 32 }, busy: 384 };
    let (all, half) = (base.partitions, base.partitions / 2);
    let growing: &[usize] = if scale.quick { &[128, 384] } else { &[32, 64, 128, 192, 256, 320, 384] };
    let gets = growing.iter().map(|clients| base.setup(all, *clients, Load::Gets(all)));
    let sizes = base.powers(2).map(|size| base.setup(size, base.busy, Load::Gets(size)));
    let sparse = if scale.quick { 2 } else { 1 };
    let mixes = base.powers(1).step_by(sparse).map(|gets| base.setup(all, base.busy / 2, Load::Gets(gets)));
    let few: &[usize] = if scale.quick { &[4, 16] } else { &[1, 4, 16] };
    let hurried = few.iter().map(|clients| Setup { think: 0, ..base.setup(all, *clients, Load::Gets(all)) });
    let growing: &[usize] = if scale.quick { &[64, 256] } else { &[16, 32, 64, 128, 256] };
    let reads = growing.iter().map(|clients| base.setup(all, *clients, Load::ReadOnly(half)));
    let touched = base.powers(1).step_by(sparse).map(|keys| base.setup(all, 256, Load::ReadOnly(keys)));
    let of = |id, title, drawing, setups: Vec<Setup>| base.experiment(id, title, drawing, &setups);
    vec![
        of(
            "get-put",
            "GETs of all partitions and a SET, clients added (fig. 3.3a, b, d, e, f)",
            Drawing::Latency,
            gets.collect(),
        ),
        of(
            "partitions",
            "GETs of all partitions and a SET, partitions added, under load (fig. 3.3c)",
            Drawing::None,
            sizes.collect(),
        ),
        of("hurried", "The same without pauses, clients added", Drawing::None, hurried.collect()),
        of("mix", "GETs for each SET, half of the load (fig. 3.4)", Drawing::None, mixes.collect()),
        of(
            "read-only",
            "A transaction that reads half of the partitions, and a SET, clients added (fig. 3.5, 3.7)",
            Drawing::Latency,
            reads.collect(),
        ),
        of(
            "touched",
            "A transaction that reads, and a SET, keys added, under load (fig. 3.6)",
            Drawing::None,
            touched.collect(),
        ),
    ]
}

/// A line for every point, under a heading.
pub fn pocc_table(points: &[Measured]) -> String {
    let mut text = format!(
        "{:<7} {:>4} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>6} {:>7} {:>8} {:>8} {:>5} {:>6}\n",
        "system",
        "part",
        "reads",
        "clients",
        "op/s",
        "mean ms",
        "p99 ms",
        "read ms",
        "waited%",
        "wait ms",
        "stale%",
        "unstable%",
        "behind",
        "repl B",
        "far KB/s",
        "near KB/s",
        "busy",
        "cpu us"
    );
    for (point, commands) in points.iter().filter_map(|point| Some((point, point.commands.as_ref()?))) {
        let reads = match commands.read_only {
            true => format!("{} tx", commands.keys),
            false => format!("{}:1", commands.keys),
        };
        let _ = writeln!(
            text,
            "{:<7} {:>4} {:>7} {:>7} {:>8.0} {:>8.2} {:>8.2} {:>8.2} {:>7.3}% {:>8.2} {:>7.2}% {:>8.2}% {:>6.2} {:>7.0} {:>8.0} {:>8.0} {:>4.0}% {:>6.0}",
            point.system,
            point.partitions,
            reads,
            point.clients,
            point.throughput,
            point.mean_us / 1e3,
            point.p99_us as f64 / 1e3,
            commands.read_us / 1e3,
            point.waited_share * 100.0,
            point.wait_us / 1e3,
            commands.stale_share * 100.0,
            commands.unstable_share * 100.0,
            commands.behind,
            point.replication_bytes,
            point.stabilization_far / 1e3,
            point.stabilization_near / 1e3,
            point.busiest * 100.0,
            point.processor_us,
        );
    }
    text
}

/// Something of single commands.
fn of_commands(point: &Measured, what: fn(&Commands) -> f64) -> f64 {
    point.commands.as_ref().map_or(f64::NAN, what)
}

fn stale(point: &Measured) -> f64 {
    of_commands(point, |commands| commands.stale_share)
}

/// What Cure* returns stale: writes of its own region it shows at once.
fn unstable(point: &Measured) -> f64 {
    of_commands(point, |commands| commands.unstable_share)
}

fn read_us(point: &Measured) -> f64 {
    of_commands(point, |commands| commands.read_us)
}

/// Bytes a second that replicate or only tell of time.
fn bytes(point: &Measured) -> f64 {
    let effects = point.replication_bytes * point.throughput;
    (effects + point.stabilization_far + point.stabilization_near) / point.throughput
}

impl Found<'_> {
    /// Something of POCC over that of Cure, the least over all setups.
    fn least(&self, id: &str, what: fn(&Measured) -> f64) -> f64 {
        let pairs = self.of(id, System::Pocc).zip(self.of(id, CURE));
        pairs.map(|(pocc, cure)| what(pocc) / what(cure)).fold(f64::INFINITY, f64::min)
    }

    /// The most of something while POCC is moderately loaded.
    fn moderate(&self, id: &str, what: fn(&Measured) -> f64) -> f64 {
        let most = self.peak(id, System::Pocc) * MODERATE;
        let points = self.of(id, System::Pocc).filter(|point| point.throughput <= most);
        points.map(what).fold(0.0, f64::max)
    }
}

/// What this project promises of POCC, and what the thesis says of it.
pub fn pocc_claims(points: &Points<'_>) -> Vec<Claim> {
    let mut all = promises(points);
    all.extend(single_commands(points));
    all.extend(transactions(points));
    all
}

fn promises(points: &Points<'_>) -> Vec<Claim> {
    let found = Found(points);
    let gets = ["get-put", "partitions", "hurried", "mix"];
    let most = |what: fn(&Measured) -> f64| {
        gets.iter().map(|id| found.most(id, System::Pocc, what)).fold(0.0, f64::max)
    };
    // To a hundredth, as it is printed: the thesis finds both basically the same.
    let gain = (found.gain("get-put", System::Pocc, CURE) * 100.0).round() / 100.0;
    vec![
        at_most(
            "promise/stale",
            "O1: share of POCC's GETs that are stale, most",
            0.0,
            100.0 * most(stale),
            "%",
        ),
        at_most(
            "promise/blocked",
            "O1: share of POCC's GETs that wait, most, with pauses and without",
            1.0,
            100.0 * most(|point| point.waited_share),
            "%",
        ),
        at_least("promise/throughput", "O1: peak throughput over Cure's, GETs and a SET", 1.0, gain, "x"),
    ]
}

fn single_commands(points: &Points<'_>) -> Vec<Claim> {
    use System::Pocc;
    let found = Found(points);
    let waited = |point: &Measured| point.waited_share;
    vec![
        at_least(
            "cure/stale",
            "3.8.2: share of Cure*'s GETs that are stale, most",
            22.0,
            100.0 * found.most("get-put", CURE, unstable),
            "%",
        ),
        at_least(
            "pocc/throughput",
            "3.8.2: throughput over Cure*'s, all partitions, under load",
            1.0,
            found.ratio("partitions", Pocc, CURE, |point| point.throughput),
            "x",
        ),
        at_most(
            "pocc/latency",
            "3.8.2: mean response time over Cure*'s (slightly lower), least",
            1.0,
            found.least("get-put", |point| point.mean_us),
            "x",
        ),
        at_most(
            "pocc/blocked",
            "3.8.2: share of reads that block up to 92 % of the peak",
            0.1,
            100.0 * found.moderate("get-put", waited),
            "%",
        ),
        at_most(
            "pocc/wait",
            "3.8.2: mean time that reads are blocked, most, here without pauses (a few ms)",
            5.0,
            found.most("hurried", Pocc, |point| point.wait_us / 1e3),
            "ms",
        ),
        at_most(
            "pocc/bytes",
            "3.8.2: bytes of replication and stabilization over Cure*'s, least",
            0.63,
            found.least("mix", bytes),
            "x",
        ),
    ]
}

fn transactions(points: &Points<'_>) -> Vec<Claim> {
    use System::Pocc;
    let found = Found(points);
    let [cures, ours] = [CURE, Pocc].map(|system| found.most("read-only", system, unstable));
    vec![
        at_least(
            "pocc/read-only-stale",
            "3.8.3: items of Cure*'s transactions that are stale for other regions, over POCC's",
            100.0,
            cures / ours,
            "x",
        ),
        at_most(
            "pocc/read-only-latency",
            "3.8.3: mean response time of transactions over Cure*'s, least",
            0.88,
            found.least("read-only", read_us),
            "x",
        ),
        at_least(
            "pocc/read-only-throughput",
            "3.8.3: throughput over Cure*'s, transactions of all partitions",
            1.15,
            found.ratio("touched", Pocc, CURE, |point| point.throughput),
            "x",
        ),
    ]
}
