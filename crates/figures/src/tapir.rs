//! The evaluation of TAPIR (section 7 of its paper): which runs, and what the paper says they show.

use crate::client::Load;
use crate::environment::{COST, DATA_CENTER, Environment, LOCAL, WIDE_AREA};
use crate::measure::Measured;
use crate::plot::{Plot, Series};
use crate::system::System;
use crate::world::Setup;
use bench::transactions::{Keys, Workload};
use serde::Serialize;

/// How many keys there are (section 7.3).
const KEYS: u32 = 1_000_000;
/// Shards of the Retwis experiments (section 7.4).
const RETWIS_SHARDS: u16 = 5;
/// Contention of the paper's Retwis experiments (section 7.4), as Zipf's exponent.
const MILD: f64 = 0.6;
/// More contention.
const ZIPF: f64 = 0.75;
const RMW: Workload = Workload::ReadModifyWrite { most_keys: 1 };

/// How much is run.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Virtual seconds that each run measures, at least.
    pub seconds: u64,
    /// Fewer points.
    pub quick: bool,
    /// Decides everything that is drawn.
    pub seed: u64,
}

/// A table and perhaps a drawing.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its drawing's file.
    pub id: String,
    /// What is run.
    pub title: String,
    /// What is drawn over what, by system.
    pub axes: Option<Axes>,
    /// What is run on what.
    pub runs: Vec<(System, Setup)>,
}

/// What a drawing shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axes {
    /// Latency over throughput, as clients are added.
    LatencyOverThroughput,
    /// Throughput over shards.
    ThroughputOverShards,
    /// Messages over the shards that a transaction touches.
    MessagesOverTouched,
}

impl Axes {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Axes::LatencyOverThroughput => ("transactions a second", "median latency, ms"),
            Axes::ThroughputOverShards => ("shards", "transactions a second"),
            Axes::MessagesOverTouched => ("shards touched", "messages a transaction"),
        }
    }

    fn point(self, measured: &Measured) -> (f64, f64) {
        match self {
            Axes::LatencyOverThroughput => (measured.throughput, measured.p50_us as f64 / 1e3),
            Axes::ThroughputOverShards => (f64::from(measured.shards), measured.throughput),
            Axes::MessagesOverTouched => (f64::from(measured.touched), measured.messages),
        }
    }
}

impl Experiment {
    /// The drawing of its points, if it has one.
    pub fn plot(&self, points: &[Measured]) -> Option<Plot> {
        let axes = self.axes?;
        let (x, y) = axes.names();
        let series = |system: System| Series {
            name: system.name().to_owned(),
            points: points
                .iter()
                .filter(|point| point.system == system.name())
                .map(|at| axes.point(at))
                .collect(),
        };
        Some(Plot { title: self.title.clone(), x, y, series: System::ALL.map(series).to_vec() })
    }
}

/// What is common to all runs.
struct Base {
    scale: Scale,
    uniform: Keys,
    zipf: Keys,
    mild: Keys,
}

impl Base {
    fn setup(&self, environment: Environment, shards: u16, clients: usize, load: Load) -> Setup {
        // A transaction takes so long there that fewer are seen in a second.
        let times = if environment.regions.len() > 1 { 4 } else { 1 };
        Setup {
            environment,
            cost: COST,
            shards,
            clients,
            client_regions: (0..environment.regions.len()).collect(),
            load,
            measured: self.scale.seconds * times * 1_000_000,
            seed: self.scale.seed,
        }
    }

    fn growing(&self, environment: Environment, shards: u16) -> Vec<usize> {
        let times = usize::from(shards).div_ceil(2);
        let counts: &[usize] = match environment.name {
            "wide area" if self.scale.quick => &[3, 60, 300],
            "wide area" => &[3, 60, 300, 1200],
            _ if self.scale.quick => &[1, 16, 96],
            _ => &[1, 4, 16, 48, 96, 192],
        };
        counts.iter().map(|count| if *count > 3 { count * times } else { *count }).collect()
    }

    /// Clients are added.
    fn sweep(&self, id: &str, environment: Environment, shards: u16, load: &Load) -> Experiment {
        let each = |system| {
            let counts = self.growing(environment, shards).into_iter();
            counts.map(move |clients| (system, self.setup(environment, shards, clients, load.clone())))
        };
        let place = environment.name.replace(' ', "-");
        Experiment {
            id: format!("{id}-{place}"),
            title: format!("{id}, {}, {shards} shard(s), clients added", environment.name),
            axes: Some(Axes::LatencyOverThroughput),
            runs: System::ALL.into_iter().flat_map(each).collect(),
        }
    }

    fn latency(&self) -> Experiment {
        let each = |environment: Environment| {
            let mut setup = self.setup(environment, 1, 1, Load::Mix(RMW, self.uniform.clone()));
            // The leader is in the first region, the client in the last.
            setup.client_regions = vec![environment.regions.len() - 1];
            System::ALL.map(move |system| (system, setup.clone()))
        };
        Experiment {
            id: "rmw-latency".to_owned(),
            title: "read-modify-write of one key, one client; wide area: leader in the us, client in asia (fig. 6)"
                .to_owned(),
            axes: None,
            runs: [LOCAL, DATA_CENTER, WIDE_AREA].into_iter().flat_map(each).collect(),
        }
    }

    fn follow(&self) -> Experiment {
        let each = |region| {
            let load = Load::Only("follow", Workload::Retwis, self.mild.clone());
            let mut setup = self.setup(WIDE_AREA, RETWIS_SHARDS, 1, load);
            setup.client_regions = vec![region];
            System::ALL.map(move |system| (system, setup.clone()))
        };
        Experiment {
            id: "follow-wide-area".to_owned(),
            title: "FollowUser of Retwis, one client in each region in turn, leaders in the us, Zipf 0.6 (fig. 10)"
                .to_owned(),
            axes: None,
            runs: (0..WIDE_AREA.regions.len()).flat_map(each).collect(),
        }
    }

    fn shards(&self) -> Experiment {
        let clients = if self.scale.quick { 48 } else { 96 };
        let each = |system| {
            [1, 2, 4, 8].into_iter().map(move |shards| {
                let load = Load::Mix(RMW, self.uniform.clone());
                (system, self.setup(DATA_CENTER, shards, clients * usize::from(shards), load))
            })
        };
        Experiment {
            id: "shards".to_owned(),
            title: format!("read-modify-write of one key, data center, {clients} clients a shard"),
            axes: Some(Axes::ThroughputOverShards),
            runs: System::ALL.into_iter().flat_map(each).collect(),
        }
    }

    fn touched(&self) -> Experiment {
        let each = |system| {
            [1, 2, 4, 8].into_iter().map(move |touched| {
                let mut setup = self.setup(WIDE_AREA, 8, 1, Load::Shards(touched, self.uniform.clone()));
                setup.client_regions = vec![WIDE_AREA.regions.len() - 1];
                (system, setup)
            })
        };
        Experiment {
            id: "touched".to_owned(),
            title: "read-modify-write of one key in each of some shards of 8, wide area, one client in asia"
                .to_owned(),
            axes: Some(Axes::MessagesOverTouched),
            runs: System::ALL.into_iter().flat_map(each).collect(),
        }
    }
}

/// All experiments.
pub fn experiments(scale: Scale) -> Vec<Experiment> {
    let base = Base {
        scale,
        uniform: Keys::new(KEYS, None),
        zipf: Keys::new(KEYS, Some(ZIPF)),
        mild: Keys::new(KEYS, Some(MILD)),
    };
    let mut all = vec![base.latency(), base.follow(), base.touched()];
    let rmw = Load::Mix(RMW, base.uniform.clone());
    let retwis = |keys: &Keys| Load::Mix(Workload::Retwis, keys.clone());
    for environment in [LOCAL, DATA_CENTER, WIDE_AREA] {
        all.push(base.sweep("rmw", environment, 1, &rmw));
        all.push(base.sweep("retwis-uniform", environment, RETWIS_SHARDS, &retwis(&base.uniform)));
        all.push(base.sweep("retwis-zipf", environment, RETWIS_SHARDS, &retwis(&base.zipf)));
    }
    all.push(base.sweep("retwis-mild", DATA_CENTER, RETWIS_SHARDS, &retwis(&base.mild)));
    all.push(base.shards());
    all
}

/// What the paper says, beside what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Names it.
    pub claim: &'static str,
    /// Where the paper says it, and of what.
    pub about: &'static str,
    /// The paper's number.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// Of both.
    pub unit: &'static str,
    /// Whether ours is at least as good.
    pub met: bool,
}

/// The points of all experiments by id.
pub type Points<'p, P = Measured> = [(&'p str, &'p [P])];

/// The greatest throughput of some systems in an experiment.
fn peak(points: &Points<'_>, id: &str, systems: &[System]) -> f64 {
    let of = points.iter().filter(|(name, _)| *name == id).flat_map(|(_, points)| points.iter());
    let of = of.filter(|point| systems.iter().any(|system| system.name() == point.system));
    of.map(|point| point.throughput).fold(0.0, f64::max)
}

/// A point of an experiment with one client: of a system, in an environment, from a region.
fn single<'p>(
    points: &Points<'p>,
    id: &str,
    system: System,
    environment: &str,
    from: &str,
) -> Option<&'p Measured> {
    let (_, of) = points.iter().find(|(name, _)| *name == id)?;
    let found = |point: &&Measured| {
        point.system == system.name() && point.environment == environment && point.clients_in == from
    };
    of.iter().find(found)
}

/// A claim that a number is at most the paper's.
fn at_most(claim: &'static str, about: &'static str, paper: f64, ours: f64, unit: &'static str) -> Claim {
    Claim { claim, about, paper, ours, unit, met: ours <= paper }
}

/// A claim that a number is at least the paper's.
pub(crate) fn at_least(
    claim: &'static str,
    about: &'static str,
    paper: f64,
    ours: f64,
    unit: &'static str,
) -> Claim {
    Claim { claim, about, paper, ours, unit, met: ours >= paper }
}

/// A system's median latency over that of the fastest of some others.
fn latency_ratio(
    points: &Points<'_>,
    id: &str,
    (system, others): (System, &[System]),
    (environment, from): (&str, &str),
) -> f64 {
    let of =
        |system| single(points, id, system, environment, from).map_or(f64::NAN, |point| point.p50_us as f64);
    of(system) / others.iter().map(|system| of(*system)).fold(f64::NAN, f64::min)
}

/// The paper's claims, compared.
pub fn claims(points: &Points<'_>) -> Vec<Claim> {
    let mut all = latency_claims(points);
    all.extend(conventional_claims(points));
    all.extend(throughput_claims(points));
    all
}

fn latency_claims(points: &Points<'_>) -> Vec<Claim> {
    let trips = single(points, "rmw-latency", System::Tapir, "wide area", "asia");
    let trips = trips.map_or(f64::NAN, |point| point.round_trips);
    let rmw = |others: &[System], environment, from| {
        latency_ratio(points, "rmw-latency", (System::Tapir, others), (environment, from))
    };
    let conventional = (System::Tapir, &System::CONVENTIONAL[..]);
    let follow = |from| latency_ratio(points, "follow-wide-area", conventional, ("wide area", from));
    vec![
        at_most(
            "tapir/commit-round-trips",
            "section 1: wide-area round trips of a read-modify-write whose reads are local",
            1.0,
            trips,
            "round trips",
        ),
        at_most(
            "tapir/rmw-latency-local",
            "section 1, fig. 6: latency over the faster conventional one's",
            0.5,
            rmw(&System::CONVENTIONAL, "local", "rack"),
            "x",
        ),
        at_most(
            "tapir/rmw-latency-wide-area",
            "section 1, fig. 6: the same, client in asia",
            0.5,
            rmw(&System::CONVENTIONAL, "wide area", "asia"),
            "x",
        ),
        at_most(
            "tapir/rmw-latency-qwstore",
            "fig. 6: latency over QWStore's, in a cluster",
            1.0,
            rmw(&[System::QwStore], "local", "rack"),
            "x",
        ),
        at_most(
            "tapir/follow-latency-asia",
            "section 1, fig. 10: FollowUser over the faster conventional one's, client in asia",
            0.5,
            follow("asia"),
            "x",
        ),
        at_least(
            "tapir/follow-latency-beside-leader",
            "fig. 10: the same beside the leader, where the conventional ones are faster",
            1.0,
            follow("us"),
            "x",
        ),
    ]
}

/// What the paper says of the conventional systems among themselves.
fn conventional_claims(points: &Points<'_>) -> Vec<Claim> {
    let [txn_locking, txn_occ, span_locking, span_occ] = System::CONVENTIONAL;
    let rmw = |system, other: System, place| latency_ratio(points, "rmw-latency", (system, &[other]), place);
    let slowest = [txn_locking, span_locking, span_occ].map(|other| rmw(txn_occ, other, ("local", "rack")));
    vec![
        at_least(
            "tapir/timestamp-server",
            "section 7.3, fig. 6: latency of Txn-OCC over the next slowest one's, in a cluster",
            1.0,
            slowest.into_iter().fold(f64::INFINITY, f64::min),
            "x",
        ),
        at_most(
            "tapir/closest-reads",
            "section 7.3, fig. 6: latency of Span-OCC over Span-Locking's, client in asia",
            1.0,
            rmw(span_occ, span_locking, ("wide area", "asia")),
            "x",
        ),
    ]
}

fn throughput_claims(points: &Points<'_>) -> Vec<Claim> {
    let tapir = |id: &str| peak(points, id, &[System::Tapir]);
    let gain = |id: &str| tapir(id) / peak(points, id, &System::CONVENTIONAL);
    let (rmw, retwis) = ("rmw-data-center", "retwis-mild-data-center");
    vec![
        at_least(
            "tapir/rmw-peak",
            "fig. 7: peak throughput over the better conventional one's, data center",
            2.6,
            gain(rmw),
            "x",
        ),
        at_least("tapir/retwis-peak", "fig. 9: the same of Retwis, Zipf 0.6", 2.0, gain(retwis), "x"),
        at_most(
            "tapir/qwstore-peak",
            "fig. 9: QWStore's peak throughput over TAPIR's",
            2.0,
            peak(points, retwis, &[System::QwStore]) / tapir(retwis),
            "x",
        ),
    ]
}
