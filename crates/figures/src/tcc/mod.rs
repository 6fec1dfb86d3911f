//! The evaluations of POCC, Wren and PaRiS (the thesis, sections 3.8, 4.5 and 5.5): which runs, and what the thesis says they
//! show. Those of POCC are in `pocc`.
//!
//! What is run is described in `docs/evidence/figures.md`.

mod freshness;
mod load;
mod measure;
mod network;
mod pocc;
mod report;
mod world;

pub use load::{Load, Mix};
pub use measure::{Commands, Measured, run};
pub use network::{COSTS, Costs, SKEW};
pub use pocc::{PROMISED, pocc_claims, pocc_experiments, pocc_table};
pub use report::{paris_claims, table, wren_claims};
pub use world::Setup;

pub(crate) use network::delay;
pub(crate) use report::{at_least, at_most};
pub(crate) use world::count_records;

use crate::plot::{Plot, Series};
use crate::tapir::Scale;

/// A system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Stable snapshots of two times.
    Wren,
    /// Fresh snapshots of a time for each region, by physical clocks.
    Cure,
    /// The same by hybrid clocks.
    HybridCure,
    /// Stable snapshots of one time, partial replication.
    Paris,
    /// Fresh snapshots of one time, partial replication.
    Bpr,
    /// Cure whose reads wait for the next application, as in the thesis's code.
    CureApplied,
    /// The same by hybrid clocks.
    HybridCureApplied,
    /// No snapshots.
    NoCc,
    /// Snapshots of what has been received, a time for each region.
    Pocc,
}

impl System {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            System::Wren => "wren",
            System::Cure => "cure",
            System::HybridCure => "h-cure",
            System::Paris => "paris",
            System::Bpr => "bpr",
            System::CureApplied => "cure-applied",
            System::HybridCureApplied => "h-cure-applied",
            System::NoCc => "nocc",
            System::Pocc => "pocc",
        }
    }

    /// True if its reads wait for the next application.
    pub(crate) fn is_applied(self) -> bool {
        matches!(self, System::CureApplied | System::HybridCureApplied)
    }
}

/// What full replication is compared with.
const FULL: [System; 6] = [
    System::Wren,
    System::HybridCure,
    System::Cure,
    System::HybridCureApplied,
    System::CureApplied,
    System::NoCc,
];
/// What partial replication is compared with.
const PARTIAL: [System; 3] = [System::Paris, System::Bpr, System::NoCc];
/// Reads and writes as in the thesis: 19 and 1, 18 and 2, 10 and 10.
const WRITES: [(u16, &str); 3] = [(1, "95-5"), (2, "90-10"), (10, "50-50")];

/// A table and a drawing.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its drawing's file.
    pub id: String,
    /// What is run.
    pub title: String,
    /// What is run on what.
    pub runs: Vec<(System, Setup)>,
    /// What is drawn.
    pub drawing: Drawing,
}

/// The points that a measurement adds to a curve.
type Points = dyn Fn(&Measured) -> Vec<(f64, f64)>;

/// What is drawn of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    /// Nothing.
    None,
    /// Latency over throughput: clients are added from run to run.
    Latency,
    /// How many writes are visible in another region after how long.
    Visibility,
}

impl Experiment {
    /// The drawing of its points, if it has one.
    pub fn plot(&self, points: &[Measured]) -> Option<Plot> {
        let mut names: Vec<&'static str> = points.iter().map(|point| point.system).collect();
        names.dedup();
        let latency = |point: &Measured| vec![(point.throughput, point.mean_us / 1e3)];
        let visibility = |point: &Measured| {
            let curve = point.visible_us.iter();
            curve.map(|(percent, _, away)| (*away as f64 / 1e3, f64::from(*percent))).collect()
        };
        let (x, y, drawn): (_, _, &Points) = match self.drawing {
            Drawing::None => return None,
            Drawing::Latency => ("transactions a second", "mean latency, ms", &latency),
            Drawing::Visibility => ("ms after the commit", "visible in another region, %", &visibility),
        };
        let of = |name: &'static str| Series {
            name: name.to_owned(),
            points: points.iter().filter(|point| point.system == name).flat_map(drawn).collect(),
        };
        let series = names.into_iter().map(of).collect();
        Some(Plot { title: self.title.clone(), x, y, series })
    }
}

struct Base {
    scale: Scale,
    full: bool,
}

impl Base {
    fn setup(&self, regions: u16, partitions: u16, clients: usize, writes: u16, touched: u16) -> Setup {
        Setup {
            regions,
            partitions,
            replicas: if self.full { regions } else { 2 },
            clients,
            think: 0,
            load: Load::Transactions(self.mix(writes, touched)),
            costs: COSTS,
            skew: SKEW,
            measured: self.scale.seconds * if self.full { 200 } else { 1000 },
            seed: self.scale.seed,
        }
    }

    fn mix(&self, writes: u16, partitions: u16) -> Mix {
        Mix { writes, partitions, local: if self.full { 100 } else { 95 }, read_only: 0 }
    }

    fn systems(&self) -> &'static [System] {
        if self.full { &FULL } else { &PARTIAL }
    }

    fn growing(&self) -> &'static [usize] {
        match (self.full, self.scale.quick) {
            (true, true) => &[1, 8, 32],
            (true, false) => &[1, 2, 4, 8, 16, 32],
            (false, true) => &[4, 32, 128],
            (false, false) => &[1, 4, 16, 32, 64, 128, 256],
        }
    }

    /// Clients are added.
    fn curve(&self, id: &str, regions: u16, partitions: u16, writes: u16, touched: u16) -> Experiment {
        let each = |system: &System| {
            let system = *system;
            let clients = self.growing().iter();
            clients.map(move |clients| (system, self.setup(regions, partitions, *clients, writes, touched)))
        };
        Experiment {
            id: id.to_owned(),
            title: format!(
                "{regions} regions, {partitions} partitions, {} reads and {writes} writes on {touched} partitions, clients \
                 added",
                load::OPERATIONS - writes
            ),
            runs: self.systems().iter().flat_map(each).collect(),
            drawing: Drawing::Latency,
        }
    }

    /// One thing varies, at one load.
    fn series(&self, id: &str, title: &str, setups: &[Setup]) -> Experiment {
        let runs = self.systems().iter().flat_map(|system| setups.iter().map(move |setup| (*system, *setup)));
        let (id, title) = (id.to_owned(), title.to_owned());
        Experiment { id, title, runs: runs.collect(), drawing: Drawing::None }
    }
}

impl Base {
    /// One load, at which it is looked when writes are visible.
    fn visibility(&self, title: &str, setup: Setup) -> Experiment {
        Experiment { drawing: Drawing::Visibility, ..self.series("visibility", title, &[setup]) }
    }
}

/// The experiments of Wren's evaluation.
pub fn wren_experiments(scale: Scale) -> Vec<Experiment> {
    let base = Base { scale, full: true };
    let (large, busy) = if scale.quick { (4, 16) } else { (8, 32) };
    let mut all = vec![base.curve("small", 3, 2, 1, 2)];
    for (writes, name) in WRITES {
        all.push(base.curve(&format!("mix-{name}"), 3, large, writes, 4));
    }
    for touched in [2, 8].into_iter().filter(|touched| *touched <= large) {
        all.push(base.curve(&format!("touched-{touched}"), 3, large, 1, touched));
    }
    let sizes: &[u16] = if scale.quick { &[2, 4, 8] } else { &[4, 8, 16] };
    let sizes: Vec<Setup> = sizes.iter().map(|size| base.setup(3, *size, busy, 1, 2)).collect();
    all.push(base.series("partitions", "3 regions, partitions added, under load (fig. 4.6a)", &sizes));
    let regions: Vec<Setup> =
        [2, 3, 5].iter().map(|regions| base.setup(*regions, large, busy, 1, 4)).collect();
    all.push(base.series("regions", "regions added, under load (fig. 4.6b, 4.7a)", &regions));
    all.push(
        base.visibility("3 regions, when writes are visible (fig. 4.7b)", base.setup(3, large, 8, 1, 4)),
    );
    all
}

/// The experiments of PaRiS's evaluation.
pub fn paris_experiments(scale: Scale) -> Vec<Experiment> {
    let base = Base { scale, full: false };
    let (large, busy) = if scale.quick { (10, 32) } else { (20, 64) };
    let mut all = vec![base.curve("small", 3, 6, 1, 4)];
    for (writes, name) in [WRITES[0], WRITES[2]] {
        all.push(base.curve(&format!("mix-{name}"), 5, large, writes, 4));
    }
    let local: Vec<Setup> = [100, 95, 90, 50]
        .iter()
        .map(|local| {
            let load = Load::Transactions(Mix { local: *local, ..base.mix(1, 4) });
            Setup { load, ..base.setup(5, large, busy, 1, 4) }
        })
        .collect();
    all.push(base.series("locality", "5 regions, transactions leave their region (fig. 5.3)", &local));
    let sizes: Vec<Setup> = [large / 2, large].iter().map(|size| base.setup(5, *size, busy, 1, 2)).collect();
    all.push(base.series("partitions", "5 regions, partitions added (fig. 5.2a)", &sizes));
    let regions: Vec<Setup> =
        [3, 5].iter().map(|regions| base.setup(*regions, 2 * regions, busy, 1, 4)).collect();
    all.push(base.series("regions", "regions added, four machines in each (fig. 5.2b)", &regions));
    all.push(
        base.visibility("5 regions, when writes are visible (fig. 5.4)", base.setup(5, large, 16, 1, 4)),
    );
    all
}
