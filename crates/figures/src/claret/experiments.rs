//! Which runs there are.

use super::measure::Measured;
use super::system::System;
use super::{Environment, LOCAL, PIECE, Setup, WIDE_AREA};
use crate::plot::{Plot, Series};
use crate::tapir::Scale;
use bench::claret::{RawMix, Retwis, Rubis, Unmodified, Workload};

/// A table and a drawing.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its drawing's file.
    pub id: String,
    /// What is run.
    pub title: String,
    /// What is drawn over what, by system.
    axes: Axes,
    /// What is run.
    pub runs: Vec<Setup>,
}

/// What a drawing shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axes {
    /// Latency over throughput, as clients are added (figure 5).
    LatencyOverThroughput,
    /// The peak of throughput over the share of additions (figure 6).
    PeakOverShare,
    /// The same over Zipf's exponent (figure 7).
    PeakOverZipf,
    /// Throughput over clients (figures 9 and 13).
    ThroughputOverClients,
    /// Throughput over time (figure 11).
    ThroughputOverTime,
}

impl Axes {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Axes::LatencyOverThroughput => ("transactions a second", "mean latency, ms"),
            Axes::PeakOverShare => ("additions, percent", "transactions a second, at most"),
            Axes::PeakOverZipf => ("Zipf's exponent", "transactions a second, at most"),
            Axes::ThroughputOverClients => ("clients", "transactions a second"),
            Axes::ThroughputOverTime => ("ms", "transactions a second"),
        }
    }

    fn points(self, measured: &[&Measured]) -> Vec<(f64, f64)> {
        let peaks = |at: fn(&Measured) -> f64| {
            let mut points: Vec<(f64, f64)> = Vec::new();
            for point in measured {
                match points.iter_mut().find(|(x, _)| *x == at(point)) {
                    Some((_, y)) => *y = y.max(point.throughput),
                    None => points.push((at(point), point.throughput)),
                }
            }
            points
        };
        match self {
            Axes::LatencyOverThroughput => {
                measured.iter().map(|point| (point.throughput, point.mean_us / 1e3)).collect()
            }
            Axes::PeakOverShare => peaks(|point| f64::from(point.share)),
            Axes::PeakOverZipf => peaks(|point| point.zipf),
            Axes::ThroughputOverClients => peaks(|point| point.clients as f64),
            Axes::ThroughputOverTime => {
                let pieces = measured.iter().flat_map(|point| point.trace.iter().enumerate());
                let point = |(at, commits): (usize, &u32)| {
                    ((at as u64 * PIECE) as f64 / 1e3, f64::from(*commits) * 1e6 / PIECE as f64)
                };
                pieces.map(point).collect()
            }
        }
    }
}

impl Experiment {
    /// The drawing of its points.
    pub fn plot(&self, points: &[Measured]) -> Option<Plot> {
        let (x, y) = self.axes.names();
        let series = |system: System| {
            let of: Vec<&Measured> = points.iter().filter(|point| point.system == system.name()).collect();
            Series { name: system.name().to_owned(), points: self.axes.points(&of) }
        };
        let all = System::ALL.into_iter().map(series).filter(|series| !series.points.is_empty());
        Some(Plot { title: self.title.clone(), x, y, series: all.collect() })
    }
}

/// Section 6.1, with these shares and this exponent; the paper's other settings.
pub(super) fn raw_mix(adds: u8, zipf: f64) -> Workload {
    Workload::RawMix(RawMix { keys: 10_000, zipf, adds, operations: 4 })
}

struct Base {
    scale: Scale,
}

impl Base {
    fn setup(&self, system: System, workload: &Workload, clients: usize) -> Setup {
        let second = if self.scale.quick { 250_000 } else { 1_000_000 };
        Setup {
            system,
            environment: LOCAL,
            workload: workload.clone(),
            clients,
            warm_up: second / 4,
            measured: self.scale.seconds * second,
            seed: self.scale.seed,
        }
    }

    /// Every system with every workload and so many clients.
    fn runs(&self, systems: &[System], workloads: &[Workload], clients: &[usize]) -> Vec<Setup> {
        let mut runs = Vec::new();
        for workload in workloads {
            for system in systems {
                runs.extend(clients.iter().map(|clients| self.setup(*system, workload, *clients)));
            }
        }
        runs
    }

    fn experiment(&self, id: &str, title: &str, axes: Axes, runs: Vec<Setup>) -> Experiment {
        Experiment { id: id.to_owned(), title: title.to_owned(), axes, runs }
    }

    /// Enough for the peak of every system to be among them.
    fn many(&self) -> &'static [usize] {
        if self.scale.quick { &[64, 256] } else { &[32, 64, 128, 256, 384] }
    }

    fn raw_mixes(&self) -> [Experiment; 4] {
        let all = System::ALL;
        let growing: &[usize] =
            if self.scale.quick { &[8, 64, 256] } else { &[8, 16, 32, 64, 128, 256, 384] };
        let shares = [0, 20, 50, 80, 100].map(|adds| raw_mix(adds, 0.6));
        let exponents: &[f64] =
            if self.scale.quick { &[0.2, 0.6, 1.2, 2.0] } else { &[0.2, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0] };
        let exponents: Vec<Workload> = exponents.iter().map(|zipf| raw_mix(50, *zipf)).collect();
        let calm = Workload::RawMix(RawMix { keys: 100_000, zipf: 0.0, adds: 50, operations: 4 });
        [
            self.experiment(
                "fig5",
                "raw mix, half of the operations add, Zipf 0.6, clients added",
                Axes::LatencyOverThroughput,
                self.runs(&all, &[raw_mix(50, 0.6)], growing),
            ),
            self.experiment(
                "fig6",
                "raw mix, Zipf 0.6, by the share of additions",
                Axes::PeakOverShare,
                self.runs(&all, &shares, self.many()),
            ),
            self.experiment(
                "fig7",
                "raw mix, half of the operations add, by Zipf's exponent",
                Axes::PeakOverZipf,
                self.runs(&all, &exponents, self.many()),
            ),
            self.experiment(
                "calm",
                "raw mix on 100,000 keys, all alike, few clients: nobody meets anybody",
                Axes::ThroughputOverClients,
                self.runs(&all, &[calm], &[4, 16]),
            ),
        ]
    }

    fn rubis(&self, bid_heavy: bool) -> Experiment {
        let rubis = Workload::Rubis(Rubis { items: 30_000, bid_heavy });
        let (id, title) = match bid_heavy {
            false => ("fig9-read-heavy", "RUBiS, a tenth of the transactions bid, clients added"),
            true => {
                ("fig9-bid-heavy", "RUBiS, half of the transactions bid, clients added (conflicts: fig. 10)")
            }
        };
        let clients: &[usize] = if self.scale.quick { &[64, 256] } else { &[16, 32, 64, 128, 256, 384] };
        let runs = self.runs(&System::ALL, &[rubis], clients);
        self.experiment(id, title, Axes::ThroughputOverClients, runs)
    }

    /// The paper's trace is long enough for auctions to come and go: here the most popular ones of few.
    fn trace(&self) -> Experiment {
        let rubis = Workload::Rubis(Rubis { items: 300, bid_heavy: true });
        let systems = [System::ReadWritePhased, System::TypedPhased, System::Claret, System::Unlocked];
        let mut runs = self.runs(&systems, &[rubis], &[256]);
        runs.iter_mut().for_each(|run| run.measured *= 2);
        self.experiment(
            "fig11",
            "RUBiS, half of the transactions bid, 300 items, so that many auctions close: throughput over time",
            Axes::ThroughputOverTime,
            runs,
        )
    }

    fn retwis(&self, post_heavy: bool) -> Experiment {
        let scale = if self.scale.quick { 12 } else { 14 };
        let retwis = Workload::Retwis(Retwis { scale, edge_factor: 16, post_heavy });
        let id = if post_heavy { "fig13-post-heavy" } else { "fig13-read-heavy" };
        let share = if post_heavy { "40" } else { "4" };
        let title = format!(
            "Retwis, {share} of a hundred transactions post, a Kronecker graph of scale {scale}, clients added"
        );
        let clients: &[usize] = if self.scale.quick { &[64, 256] } else { &[16, 64, 128, 256, 384] };
        let runs = self.runs(&System::ALL, &[retwis], clients);
        self.experiment(id, &title, Axes::ThroughputOverClients, runs)
    }

    /// What the default of a topology is decided by (Corrections 89).
    fn unmodified(&self, id: &str, environment: Environment) -> Experiment {
        let workloads = [0.6, 1.2].map(|zipf| Workload::Unmodified(Unmodified { keys: 10_000, zipf }));
        let systems = [System::ReadWrite, System::Claret, System::Optimistic, System::Occ];
        let mut runs = self.runs(&systems, &workloads, self.many());
        // So that each client is answered some times over the longest way.
        let factor = (environment.longest_round_trip() / 25_000).max(1);
        for run in &mut runs {
            (run.environment, run.warm_up, run.measured) =
                (environment, run.warm_up * factor, run.measured * factor);
        }
        let title =
            format!("single commands that show what they change, {}, clients added", environment.name);
        self.experiment(id, &title, Axes::LatencyOverThroughput, runs)
    }
}

/// All experiments.
pub fn experiments(scale: Scale) -> Vec<Experiment> {
    let base = Base { scale };
    let mut all = base.raw_mixes().to_vec();
    all.extend([base.rubis(false), base.rubis(true), base.trace(), base.retwis(false), base.retwis(true)]);
    all.extend([base.unmodified("unmodified", LOCAL), base.unmodified("unmodified-wide", WIDE_AREA)]);
    all
}
