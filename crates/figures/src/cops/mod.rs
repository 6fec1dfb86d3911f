//! The evaluation of COPS (its section 6): which runs, and what the paper says they show. What is run is described in
//! `docs/evidence/figures.md`.

mod measure;
mod report;
mod world;

pub use measure::{Measured, run};
pub use report::{PROMISED, claims, table};

use crate::plot::{Plot, Series};
use crate::tapir::Scale;
use crate::tcc::{COSTS, Costs};
use bench::cops::Plan;

/// A system under test (table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// One log in each region, which is exchanged.
    Log,
    /// Writes name what they depend on.
    Cops,
    /// With what get transactions need.
    CopsGt,
}

impl System {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            System::Log => "log",
            System::Cops => "cops",
            System::CopsGt => "cops-gt",
        }
    }
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Servers of each region.
    pub servers: u16,
    /// Clients beside each server of the first region.
    pub clients: usize,
    /// What they run, but for the number of groups: one for each client.
    pub plan: Plan,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// What servers are busy with.
    pub costs: Costs,
    /// How long is measured, in milliseconds.
    pub measured: u64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

/// A table and a drawing.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its drawing's file.
    pub id: &'static str,
    /// What is run.
    pub title: &'static str,
    /// What is run on what.
    pub runs: Vec<(System, Setup)>,
    /// What throughput is drawn over.
    axis: Option<Axis>,
}

/// What a drawing's horizontal axis is called, and where a point is on it.
type Axis = (&'static str, fn(&Measured) -> f64);

impl Experiment {
    /// The drawing of its points, if it has one.
    pub fn plot(&self, points: &[Measured]) -> Option<Plot> {
        let (x, at) = self.axis?;
        let mut names: Vec<String> = points.iter().map(Measured::legend).collect();
        names.sort();
        names.dedup();
        let series = names.into_iter().map(|name| {
            let of = points.iter().filter(|point| point.legend() == name);
            Series { points: of.map(|point| (at(point), point.throughput)).collect(), name }
        });
        let (title, y) = (self.title.to_owned(), "operations a second");
        Some(Plot { title, x, y, series: series.collect() })
    }
}

/// The paper's default: four servers, 1024 clients beside each, 512 keys in a group, variance 1, a byte (section 6.3). Fewer servers
/// take less time to simulate.
fn usual(scale: Scale) -> Setup {
    let plan = Plan { groups: 0, keys: 512, variance: 1.0, puts: 1, gets: 1 };
    let (costs, measured) = (COSTS, scale.seconds * if scale.quick { 100 } else { 200 });
    let servers = if scale.quick { 2 } else { 4 };
    Setup { servers, clients: 1024, plan, value_bytes: 1, costs, measured, seed: scale.seed }
}

fn with(setup: Setup, change: impl FnOnce(&mut Plan)) -> Setup {
    let mut plan = setup.plan;
    change(&mut plan);
    Setup { plan, ..setup }
}

fn mix(setup: Setup, (puts, gets): (u32, u32)) -> Setup {
    with(setup, |plan| (plan.puts, plan.gets) = (puts, gets))
}

/// COPS and COPS-GT on each.
fn both(setups: impl IntoIterator<Item = Setup>) -> Vec<(System, Setup)> {
    setups
        .into_iter()
        .flat_map(|setup| [System::Cops, System::CopsGt].map(|system| (system, setup)))
        .collect()
}

/// The experiments of COPS's evaluation.
pub fn experiments(scale: Scale) -> Vec<Experiment> {
    let mut all = vec![operations(scale)];
    all.extend(dynamic(scale));
    all.extend(scalability(scale));
    all
}

/// One kind of operation, on one server that is busy all the time, on 2^18 keys.
fn operations(scale: Scale) -> Experiment {
    let usual = with(Setup { servers: 1, clients: 64, ..usual(scale) }, |plan| {
        (plan.keys, plan.variance) = (1 << 12, 1e6);
    });
    let setups = [(0, 1), (1, 0)].map(|ratio| mix(usual, ratio));
    let all = [System::Log, System::Cops, System::CopsGt];
    let runs = setups.into_iter().flat_map(|setup| all.map(|system| (system, setup))).collect();
    Experiment { id: "operations", title: "Gets, and puts, one server (table 2)", runs, axis: None }
}

/// The axis of experiments in which the number of keys varies.
const KEYS: Axis = ("keys of a group", |point| f64::from(point.keys));

/// One thing varies (section 6.3).
fn dynamic(scale: Scale) -> Vec<Experiment> {
    let usual = usual(scale);
    // The first and the last one are enough to see what changes.
    let pick = |all: &[u32]| -> Vec<u32> {
        let sparse = if scale.quick { all.len() - 1 } else { 1 };
        all.iter().copied().step_by(sparse).collect()
    };
    let clients = pick(&[16, 64, 256, 1024, 4096, 8192]);
    let delayed: &[(u32, u32)] = if scale.quick { &[(1, 4)] } else { &[(1, 0), (1, 4)] };
    let delays = delayed.iter().copied().flat_map(|ratio| {
        let clients = clients.clone().into_iter();
        clients.map(move |clients| mix(Setup { clients: clients as usize, ..usual }, ratio))
    });
    let ratios = [(64, 1), (16, 1), (4, 1), (1, 1), (1, 4), (1, 16), (1, 64)];
    let variances: &[f64] = if scale.quick { &[512.0] } else { &[0.0, 1.0, 512.0] };
    let ratios = variances.iter().flat_map(|variance| {
        let sparse = ratios.iter().step_by(if scale.quick { 3 } else { 1 });
        sparse.map(|ratio| with(mix(usual, *ratio), |plan| plan.variance = *variance))
    });
    let keys =
        |setup, keys: &[u32]| both(pick(keys).into_iter().map(|keys| with(setup, |plan| plan.keys = keys)));
    let variances: &[f64] = if scale.quick { &[0.0, 512.0] } else { &[0.0, 1.0 / 128.0, 1.0, 16.0, 512.0] };
    let variances = variances.iter().map(|variance| with(usual, |plan| plan.variance = *variance));
    let sizes = pick(&[1, 128, 1024, 4096, 16_384]).into_iter();
    let sizes = sizes.map(|bytes| Setup { value_bytes: bytes as usize, ..usual });
    let of = |id, title, runs, axis| Experiment { id, title, runs, axis: Some(axis) };
    vec![
        of(
            "delay",
            "Clients added: the delay between two operations of a client (fig. 9)",
            both(delays),
            ("ms between two operations of a client", |point| point.delay_ms),
        ),
        of(
            "ratio",
            "Puts to gets, and variance (fig. 10)",
            both(ratios),
            ("puts to gets, as a power of two", |point| {
                (f64::from(point.puts) / f64::from(point.gets)).log2()
            }),
        ),
        of("keys", "Keys of a group (fig. 11a)", keys(usual, &[1, 8, 64, 512, 4096]), KEYS),
        of(
            "checks",
            "The same with few clients and a short delay, so that dependencies are to be checked (4.4)",
            keys(Setup { clients: 16, ..usual }, &[8, 64, 512, 4096]),
            KEYS,
        ),
        of("variance", "Variance (fig. 11b)", both(variances), ("variance", |point| point.variance)),
        of(
            "size",
            "Bytes of a value (fig. 11c)",
            both(sizes),
            ("bytes of a value", |point| point.value_bytes as f64),
        ),
    ]
}

/// Servers are added (section 6.4, figure 12).
fn scalability(scale: Scale) -> Vec<Experiment> {
    let usual = usual(scale);
    let many = Setup { clients: 4096, ..usual };
    let close = with(usual, |plan| plan.variance = 1.0 / 128.0);
    let scenarios = [
        ("scale-default", "Servers added (fig. 12)", usual),
        ("scale-delay", "The same, more clients and so a longer delay", many),
        ("scale-reads", "The same, one put to 16 gets", mix(usual, (1, 16))),
        ("scale-variance", "The same, variance 1/128", close),
        ("scale-size", "The same, values of 16 KiB", Setup { value_bytes: 16_384, ..usual }),
        (
            "scale-expected",
            "The same, more clients, 1 put to 16 gets, values of 1 KiB: the expected workload",
            mix(Setup { value_bytes: 1024, ..many }, (1, 16)),
        ),
    ];
    let few = ["scale-default", "scale-reads", "scale-expected"];
    let servers: &[u16] = if scale.quick { &[1, 4] } else { &[1, 2, 4, 8, 16] };
    let of = |(id, title, setup): (&'static str, &'static str, Setup)| {
        let setups = servers.iter().map(|servers| Setup { servers: *servers, ..setup });
        // Further servers hold nothing of a log, so that some are enough to see that.
        let logs = setups.clone().take(3).map(|setup| (System::Log, setup));
        let runs = logs.chain(both(setups)).collect();
        Experiment {
            id,
            title,
            runs,
            axis: Some(("servers of each region", |point| f64::from(point.servers))),
        }
    };
    scenarios.into_iter().filter(|(id, ..)| !scale.quick || few.contains(id)).map(of).collect()
}
