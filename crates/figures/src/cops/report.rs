//! Points as text, and the paper's claims beside what was found.

use super::System::{Cops, CopsGt, Log};
use super::{Measured, System};
use crate::tapir::{Claim, Points};
use crate::tcc::{at_least, at_most};
use std::fmt::Write;

/// The names of the claims that are this project's own begin like this.
pub const PROMISED: &str = "promise/";

/// The scenarios of figure 12.
const SCENARIOS: [&str; 6] =
    ["scale-default", "scale-delay", "scale-reads", "scale-variance", "scale-size", "scale-expected"];

/// A line for every point, under a heading.
pub fn table(points: &[Measured]) -> String {
    let mut text = format!(
        "{:<7} {:>4} {:>7} {:>7} {:>6} {:>5} {:>6} {:>8} {:>8} {:>8} {:>21} {:>21} {:>7} {:>6} {:>6} {:>9}\n",
        "system",
        "serv",
        "clients",
        "put:get",
        "var",
        "keys",
        "bytes",
        "op/s",
        "answered",
        "delay ms",
        "get ms 50/99/99.9",
        "put ms 50/99/99.9",
        "nearest",
        "all",
        "checks",
        "busy"
    );
    for point in points {
        let ms = |us: [u64; 3]| us.map(|us| format!("{:.2}", us as f64 / 1e3)).join("/");
        let [here, there] = point.busiest.map(|share| share * 100.0);
        let _ = writeln!(
            text,
            "{:<7} {:>4} {:>7} {:>7} {:>6.3} {:>5} {:>6} {:>8.0} {:>8.0} {:>8.1} {:>21} {:>21} {:>7.2} {:>6.2} {:>6.3} {:>3.0}/{:>3.0}%",
            point.system,
            point.servers,
            point.clients,
            format!("{}:{}", point.puts, point.gets),
            point.variance,
            point.keys,
            point.value_bytes,
            point.throughput,
            point.answered,
            point.delay_ms,
            ms(point.get_us),
            ms(point.put_us),
            point.nearest,
            point.all,
            point.checks,
            here,
            there,
        );
    }
    text
}

struct Found<'p>(&'p Points<'p, Measured>);

impl<'p> Found<'p> {
    /// The points of an experiment that are of a system, and for which something holds.
    fn of<F: Fn(&Measured) -> bool>(
        &self,
        id: &str,
        system: System,
        holds: F,
    ) -> impl Iterator<Item = &'p Measured> + use<'p, F> {
        let points = self.0.iter().find(|(name, _)| *name == id).map_or(&[][..], |(_, points)| *points);
        points.iter().filter(move |point| point.system == system.name() && holds(point))
    }

    fn all(&self, id: &str, system: System) -> impl Iterator<Item = &'p Measured> + use<'p> {
        let any: fn(&Measured) -> bool = |_| true;
        self.of(id, system, any)
    }

    /// COPS-GT's throughput over that of COPS in the same setups, the least.
    fn transactions_over(&self, id: &str, holds: fn(&Measured) -> bool) -> f64 {
        let pairs = self.of(id, CopsGt, holds).zip(self.of(id, Cops, holds));
        least(pairs.map(|(with, without)| with.throughput / without.throughput))
    }

    /// What throughput with fewer servers is multiplied by for twice as many, on average.
    fn doubled(&self, id: &str, system: System) -> f64 {
        let (one, most) = (self.all(id, system).next(), self.all(id, system).last());
        one.zip(most).map_or(f64::NAN, |(one, most)| {
            let doublings = f64::from(most.servers / one.servers).log2();
            (most.throughput / one.throughput).powf(1.0 / doublings)
        })
    }

    /// The scenarios of figure 12 that were run.
    fn scenarios(&self) -> impl Iterator<Item = &'static str> {
        SCENARIOS.into_iter().filter(|id| self.all(id, Log).next().is_some())
    }
}

/// The least; nothing at all is no number.
fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(f64::min).unwrap_or(f64::NAN)
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(f64::max).unwrap_or(f64::NAN)
}

/// What this project promises of COPS, and what the paper says of it.
pub fn claims(points: &Points<'_, Measured>) -> Vec<Claim> {
    let found = Found(points);
    let mut all = promises(&found);
    all.extend(single(&found));
    all.extend(dynamic(&found));
    all.extend(scaled(&found));
    all
}

fn promises(found: &Found<'_>) -> Vec<Claim> {
    let one = |id, system| found.all(id, system).next().map_or(f64::NAN, |point| point.throughput);
    let over_log = found.scenarios().map(|id| one(id, Cops) / one(id, Log));
    let grown = |system| {
        let (few, many) = (found.all("checks", system).next(), found.all("checks", system).last());
        few.zip(many).map_or(f64::NAN, |(few, many)| many.checks / few.checks)
    };
    vec![
        at_least(
            "promise/log",
            "6.4: COPS's throughput over LOG's, one server in each region, least of all scenarios",
            0.95,
            least(over_log),
            "x",
        ),
        at_least(
            "promise/scales",
            "6.4: COPS's throughput for each doubling of the servers (almost twice), least of all scenarios",
            1.7,
            least(found.scenarios().map(|id| found.doubled(id, Cops))),
            "x",
        ),
        at_most(
            "promise/log-does-not",
            "6.4: LOG's for each doubling, most of all scenarios",
            1.05,
            most(found.scenarios().map(|id| found.doubled(id, Log))),
            "x",
        ),
        at_least(
            "promise/read-mostly",
            "6.3: COPS-GT's throughput over COPS's, at least 16 gets for a put, least",
            0.8,
            least(
                ["ratio", "scale-reads", "scale-expected"]
                    .into_iter()
                    .map(|id| found.transactions_over(id, |point| point.gets >= 16 * point.puts))
                    .filter(|ratio| !ratio.is_nan()),
            ),
            "x",
        ),
        at_most(
            "promise/checks",
            "4.4: dep_check messages for each put, with 4096 keys in each group over those with 8",
            1.1,
            grown(Cops).max(grown(CopsGt)),
            "x",
        ),
    ]
}

/// Table 2.
fn single(found: &Found<'_>) -> Vec<Claim> {
    let of = |system, puts| {
        let mut points = found.of("operations", system, move |point| point.puts == puts);
        points.next().map_or(f64::NAN, |point| point.throughput)
    };
    vec![
        at_least(
            "table-2/get",
            "throughput of gets, COPS-GT's over COPS's",
            1.0,
            of(CopsGt, 0) / of(Cops, 0),
            "x",
        ),
        at_least(
            "table-2/put",
            "throughput of puts, COPS-GT's over COPS's",
            0.8,
            of(CopsGt, 1) / of(Cops, 1),
            "x",
        ),
        at_least(
            "table-2/put-get",
            "throughput of COPS's puts over that of its gets",
            0.58,
            of(Cops, 1) / of(Cops, 0),
            "x",
        ),
    ]
}

/// Figures 9 to 11.
fn dynamic(found: &Found<'_>) -> Vec<Claim> {
    let varied = || found.all("variance", Cops).map(|point| point.throughput);
    let nearest = ["delay", "ratio", "keys", "variance"].into_iter();
    let nearest = nearest.flat_map(|id| found.all(id, Cops)).map(|point| point.nearest);
    let last = |id| {
        let of = |system| found.all(id, system).last().map_or(f64::NAN, |point| point.throughput);
        of(CopsGt) / of(Cops)
    };
    vec![
        at_least(
            "figure-9/long",
            "COPS-GT's throughput over COPS's, longest delay (they converge)",
            0.95,
            last("delay"),
            "x",
        ),
        at_most(
            "figure-10/nearest",
            "nearest dependencies of COPS's puts, most (1 to 4)",
            4.0,
            most(nearest),
            "",
        ),
        at_least(
            "figure-11b/variance",
            "COPS's throughput by variance, least through most (the same)",
            0.95,
            least(varied()) / most(varied()),
            "x",
        ),
        at_least(
            "figure-11c/size",
            "COPS-GT's throughput over COPS's, the longest values (they converge)",
            0.95,
            last("size"),
            "x",
        ),
    ]
}

/// Figure 12.
fn scaled(found: &Found<'_>) -> Vec<Claim> {
    let all: fn(&Measured) -> bool = |_| true;
    vec![
        at_least(
            "figure-12/default",
            "COPS-GT's throughput over COPS's, all parameters as usual, least (two thirds)",
            0.67,
            found.transactions_over("scale-default", all),
            "x",
        ),
        at_least(
            "figure-12/expected",
            "the same, the expected workload (comparable)",
            0.95,
            found.transactions_over("scale-expected", all),
            "x",
        ),
        at_least(
            "figure-12/scales",
            "COPS-GT's throughput for each doubling of the servers (almost twice)",
            1.7,
            found.doubled("scale-default", CopsGt),
            "x",
        ),
    ]
}
