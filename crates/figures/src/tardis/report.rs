//! Points and claims as text.

use super::{CEILING_CLIENTS, CEILING_EVERY, MANY, Measured};
use crate::table::bar;
use crate::tapir::{self, Claim};
use std::fmt::Write;

/// The share of reads in the paper's read-heavy load (section 7.2.2).
const READS_OF_READ_HEAVY: f64 = 0.85;
/// The length of the longest bar.
const BAR: f64 = 16.0;

/// A line for every point, under a heading; the bar shows the throughput.
pub fn table(points: &[Measured]) -> String {
    let mut text = format!(
        "{:<14} {:>5} {:>7} {:>8} {:>8} {:>8} {:>6} {:>5} {:>6} {:>7} {:>8} {:>6} {:>7} {:>7} {:>8} {}\n",
        "system",
        "sites",
        "clients",
        "txn/s",
        "mean ms",
        "p99 ms",
        "failed",
        "busy",
        "useful",
        "cpu us",
        "step ms",
        "heads",
        "states",
        "ideal",
        "MB",
        "begin/read/write/commit: cpu us, answered after us"
    );
    let greatest = points.iter().map(|point| point.throughput).fold(1e-9, f64::max);
    for point in points {
        let failed = point.failed as f64 / (point.failed + point.committed).max(1) as f64;
        let each = |of: [f64; 4]| of.map(|us| format!("{us:.0}")).join("/");
        let _ = writeln!(
            text,
            "{:<14} {:>5} {:>7} {:>8.0} {:>8.2} {:>8.2} {:>5.1}% {:>4.0}% {:>6.2} {:>7.1} {:>8.2} {:>6.0} {:>7.0} {:>7} \
             {:>8.2} {}, {} {}",
            point.system,
            point.sites,
            point.clients,
            point.throughput,
            point.mean_us / 1e3,
            point.p99_us as f64 / 1e3,
            failed * 100.0,
            point.busy * 100.0,
            point.useful,
            point.processor_us,
            point.longest_us / 1e3,
            point.heads,
            point.states,
            point.ideal_states,
            point.memory / 1e6,
            each(point.service_us),
            each(point.answered_us),
            bar(point.throughput / greatest * BAR)
        );
    }
    text
}

type Points<'p> = tapir::Points<'p, Measured>;

fn of<'p>(points: &Points<'p>, id: &str) -> &'p [Measured] {
    points.iter().find(|(name, _)| *name == id).map_or(&[][..], |(_, points)| points)
}

/// The greatest throughput of a system in an experiment.
fn peak(points: &Points<'_>, id: &str, system: &str) -> f64 {
    let of = of(points, id).iter().filter(|point| point.system == system);
    of.map(|point| point.throughput).fold(f64::NAN, f64::max)
}

fn ratio(points: &Points<'_>, id: &str, ours: &str, theirs: &str) -> f64 {
    peak(points, id, ours) / peak(points, id, theirs)
}

/// The point of a system with so many clients.
fn with<'p>(points: &Points<'p>, id: &str, system: &str, clients: usize) -> Option<&'p Measured> {
    of(points, id).iter().find(|point| point.system == system && point.clients == clients)
}

/// The least of this, of the clients who saturate a site: as many as do, or more (section 7.1.1).
fn least_of_many(points: &Points<'_>, id: &str, what: impl Fn(usize) -> Option<f64>) -> f64 {
    let many = of(points, id).iter().map(|point| point.clients).filter(|clients| *clients >= MANY);
    many.map(|clients| what(clients).unwrap_or(f64::NAN)).fold(f64::NAN, f64::min)
}

/// Which share of the reads alone a system loses where one in ten posts.
fn reads_lost(points: &Points<'_>, system: &str) -> f64 {
    let throughput = |id: &str| with(points, id, system, MANY).map_or(f64::NAN, |point| point.throughput);
    1.0 - throughput("retwis-read-heavy") * READS_OF_READ_HEAVY / throughput("retwis-read-only")
}

/// What says that our load is as contended as the paper's.
fn about(claim: &'static str, about: &'static str, paper: f64, ours: f64) -> Claim {
    Claim { claim, about, paper, ours, unit: "x", met: (ours - paper).abs() <= 0.1 }
}

/// What the paper, or the project's goal, asks of a number at least.
fn at_least(claim: &'static str, about: &'static str, paper: f64, ours: f64) -> Claim {
    tapir::at_least(claim, about, paper, ours, "x")
}

fn at_most(claim: &'static str, about: &'static str, paper: f64, ours: f64) -> Claim {
    Claim { claim, about, paper, ours, unit: "x", met: ours <= paper }
}

/// The paper's claims and the project's goals, compared.
pub fn claims(points: &Points<'_>) -> Vec<Claim> {
    let mut all = micro(points);
    all.extend(applications(points));
    all.extend(residues(points));
    all
}

fn micro(points: &Points<'_>) -> Vec<Claim> {
    let (zipf, write, read) = ("branching-write-heavy-zipf", "baseline-write-heavy", "baseline-read-heavy");
    vec![
        at_least(
            "tardis/no-branching-read-heavy",
            "fig. 9: peak without branching over that with locks",
            0.9,
            ratio(points, read, "no-branching", "locking"),
        ),
        at_least(
            "tardis/no-branching-write-heavy",
            "the same",
            0.9,
            ratio(points, write, "no-branching", "locking"),
        ),
        at_least(
            "tardis/uniform-write-heavy",
            "fig. 10b: peak with branching over that with locks",
            1.35,
            ratio(points, "branching-write-heavy", "tardis", "locking"),
        ),
        at_least(
            "tardis/zipf-over-locking",
            "fig. 10c: write-heavy, Zipf 0.99",
            8.0,
            ratio(points, zipf, "tardis", "locking"),
        ),
        at_least(
            "tardis/zipf-over-occ",
            "fig. 10c: the same over OCC",
            5.0,
            ratio(points, zipf, "tardis", "occ"),
        ),
        at_least(
            "tardis/blind",
            "fig. 10d: transactions of one write",
            0.9,
            ratio(points, "blind", "tardis", "locking"),
        ),
        at_least(
            "tardis/ancestor-over-parent",
            "fig. 11: Ancestor and Serializability over Parent",
            1.21,
            ratio(points, "constraints", "an-ser", "pa-ser"),
        ),
        at_least(
            "tardis/serializability-over-snapshot",
            "fig. 11: within 5 percent of each other",
            0.95,
            ratio(points, "constraints", "an-ser", "an-si"),
        ),
    ]
}

fn applications(points: &Points<'_>) -> Vec<Claim> {
    let types = |id: &str| ratio(points, id, "tardis", "locking");
    let retwis = "retwis-post-heavy";
    let counter = of(points, "types-counter").iter().find(|point| point.system == "tardis");
    vec![
        at_least("tardis/counter", "fig. 14b: over the library on flat storage", 4.0, types("types-counter")),
        at_least("tardis/register", "fig. 14b", 4.0, types("types-register")),
        at_least("tardis/set", "fig. 14b", 4.0, types("types-set")),
        at_least(
            "tardis/useful-counter",
            "fig. 14d: share of useful work",
            0.96,
            counter.map_or(f64::NAN, |point| point.useful),
        ),
        at_least(
            "tardis/useful-retwis",
            "the same, Retwis post-heavy, over locks and OCC, from 64 clients on (paper: much higher)",
            2.0,
            least_of_many(points, retwis, |clients| {
                let useful = |system| Some(with(points, retwis, system, clients)?.useful);
                Some(useful("tardis")? / useful("locking")?.max(useful("occ")?))
            }),
        ),
        about(
            "tardis/reads-lost-locks",
            "section 7.2.2: of the reads alone locks lose in the read-heavy load (within 0.1)",
            0.8,
            reads_lost(points, "locking"),
        ),
        about("tardis/reads-lost-occ", "the same of OCC", 0.7, reads_lost(points, "occ")),
        at_least(
            "tardis/retwis-post-heavy",
            "fig. 14c: over locks, from 64 clients on",
            3.0,
            least_of_many(points, retwis, |clients| {
                let throughput = |system| Some(with(points, retwis, system, clients)?.throughput);
                Some(throughput("tardis")? / throughput("locking")?)
            }),
        ),
        at_least(
            "tardis/retwis-peaks",
            "the same, peak over peak",
            3.0,
            ratio(points, retwis, "tardis", "locking"),
        ),
    ]
}

fn residues(points: &Points<'_>) -> Vec<Claim> {
    let sites = of(points, "sites");
    let with = |count: u16| {
        sites.iter().find(|point| point.sites == count).map_or(f64::NAN, |point| point.throughput)
    };
    let garbage = of(points, "garbage");
    let collected = garbage.iter().find(|point| point.system == "tardis");
    let over_ideal = collected.map_or(f64::NAN, |point| point.states / point.ideal_states as f64);
    let product = (CEILING_CLIENTS as u64 * CEILING_EVERY) as f64;
    let over_product = of(points, "ceilings").first().map_or(f64::NAN, |point| point.states / product);
    let over_flat = |experiment: &str, of: fn(&Measured) -> f64| {
        let points = self::of(points, experiment);
        let by = |system: &str| points.iter().find(|point| point.system == system).map_or(f64::NAN, of);
        by("tardis") / by("locking")
    };
    vec![
        at_least(
            "tardis/three-sites",
            "fig. 12: throughput of three sites over one's, linear within 5 percent",
            0.95 * 3.0,
            with(3) / with(1),
        ),
        at_most(
            "tardis/states",
            "section 7.1.5: states over clients times ceiling interval (paper: 1.8)",
            2.0,
            over_product,
        ),
        at_most(
            "tardis/states-over-fewest",
            "fig. 13b: states over those left if collection took no time, without such ceilings",
            2.0,
            over_ideal,
        ),
        at_most(
            "tardis/storage",
            "section 7.1.5: bytes over the flat store's (paper: 15)",
            1.5,
            over_flat("garbage", |point| point.memory),
        ),
        at_most(
            "tardis/storage-at-rest",
            "the same five seconds after the clients have stopped, KEEP 0",
            1.5,
            over_flat("rest", |point| point.rested_memory as f64),
        ),
    ]
}
