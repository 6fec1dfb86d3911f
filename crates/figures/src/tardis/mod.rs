//! The evaluation of TARDiS (section 7): which runs, and what the paper says they show.
//!
//! What is run is described in `docs/evidence/figures.md`.

mod load;
mod measure;
mod report;
mod system;
mod world;

pub use load::{Load, Mergeable};
pub use measure::{Measured, Slice, run};
pub use report::{claims, table};
pub use system::{BRANCHING, Constraints, System};

use crate::plot::{Plot, Series};
use crate::tapir::Scale;
use bench::transactions::Keys;
use branch::Effort;

/// What a site is busy with, in nanoseconds. Any processor reads a client's request; everything else is done under the
/// keyspace's lock, one thing at a time.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// For a client's request, its reply included.
    pub request: u64,
    /// For a begin, a commit, and every operation.
    pub operation: u64,
    /// For a message to or from another site.
    pub message: u64,
    /// For every byte of one.
    pub byte: u64,
    /// For a message between a coordinator and the replica beside it.
    pub local_message: u64,
    /// For a record of the log.
    pub record: u64,
    /// Of a branch keyspace, see `branch::Effort`: for every lookup,
    pub lookup: u64,
    /// for every state visited,
    pub state: u64,
    /// for every key read, written, merged or moved,
    pub key: u64,
    /// and for every byte of the values that merges put together.
    pub merged_byte: u64,
}

/// See `docs/evidence/figures.md` for where they come from.
pub const COSTS: Costs = Costs {
    request: 15_000,
    operation: 1_000,
    message: 2_000,
    byte: 2,
    local_message: 700,
    record: 500,
    lookup: Effort::LOOKUP,
    state: Effort::STATE,
    key: Effort::KEY,
    merged_byte: Effort::BYTE,
};

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which system.
    pub system: System,
    /// How many sites.
    pub sites: u16,
    /// Processors of each.
    pub processors: usize,
    /// Clients of each.
    pub clients: usize,
    /// What they run.
    pub load: Load,
    /// What sites are busy with.
    pub costs: Costs,
    /// Between a client and its site, in nanoseconds.
    pub round_trip: u64,
    /// How many states a branch keyspace keeps to be read.
    pub keep: usize,
    /// After how many transactions each client places a ceiling, if it does.
    pub ceilings: Option<u64>,
    /// How long clients run before it is measured, in milliseconds.
    pub warm_up: u64,
    /// How long is measured, in milliseconds.
    pub measured: u64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

/// A table and a drawing.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Names it, and its drawing's file.
    pub id: String,
    /// What is run.
    pub title: String,
    /// Each is a point.
    pub runs: Vec<Setup>,
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
    /// Latency over throughput, as clients are added.
    Latency,
    /// Throughput over sites.
    Sites,
    /// States over time.
    States,
}

impl Experiment {
    /// The drawing of its points, if it has one.
    pub fn plot(&self, points: &[Measured]) -> Option<Plot> {
        let latency = |point: &Measured| vec![(point.throughput, point.mean_us / 1e3)];
        let sites = |point: &Measured| vec![(f64::from(point.sites), point.throughput)];
        let states = |point: &Measured| {
            let slices = point.slices.iter().enumerate();
            slices.map(|(number, slice)| ((number + 1) as f64 * 5.0, slice.states as f64)).collect()
        };
        let (x, y, drawn): (_, _, &Points) = match self.drawing {
            Drawing::None => return None,
            Drawing::Latency => ("transactions a second", "mean latency, ms", &latency),
            Drawing::Sites => ("sites", "transactions a second", &sites),
            Drawing::States => ("percent of the run", "states", &states),
        };
        let mut names: Vec<&'static str> = points.iter().map(|point| point.system).collect();
        names.sort_unstable();
        names.dedup();
        let of = |name: &'static str| Series {
            name: name.to_owned(),
            points: points.iter().filter(|point| point.system == name).flat_map(drawn).collect(),
        };
        let series = names.into_iter().map(of).collect();
        Some(Plot { title: self.title.clone(), x, y, series })
    }
}

/// Processors of the paper's servers.
pub const PROCESSORS: usize = 12;
/// Keys of the microbenchmarks; the paper does not say how many.
const KEYS: u32 = 10_000;
/// Users of Retwis, likewise. But it says which share of the reads alone is lost where one client in ten posts: four fifths with
/// locks, seven tenths with optimistic validation. With so many users, and clients who saturate a site, both are about that.
const USERS: u32 = 400;
/// So many clients saturate a site.
const MANY: usize = 64;
/// Timelines grow, and with them what merges have to do: it is measured for so many times as long as the rest.
const RETWIS_LONGER: u64 = 3;
/// Values of a type that clients share, likewise.
const VALUES: u32 = 10;
/// Round trips of the paper's cluster, in nanoseconds (section 7.1.1).
const ROUND_TRIP: u64 = 150_000;
/// How many clients place ceilings, and after how many transactions each (section 7.1.5).
const CEILING_CLIENTS: usize = 30;
const CEILING_EVERY: u64 = 1_000;
/// The two constraints that the paper compares to begin, those to commit, and what they are called in figure 11.
const CONSTRAINTS: [Constraints; 5] = [
    Constraints { name: "an-ser", begin: "ANCESTOR", end: "SERIALIZABLE" },
    Constraints { name: "an-si", begin: "ANCESTOR", end: "SNAPSHOT" },
    Constraints { name: "pa-ser", begin: "PARENT", end: "PARENT" },
    Constraints { name: "an-ser-nb", begin: "ANCESTOR", end: "SERIALIZABLE AND NOBRANCH" },
    Constraints { name: "an-si-nb", begin: "ANCESTOR", end: "SNAPSHOT AND NOBRANCH" },
];

struct Base {
    scale: Scale,
}

impl Base {
    fn setup(&self, system: System, clients: usize, load: Load) -> Setup {
        Setup {
            system,
            sites: 1,
            processors: PROCESSORS,
            clients,
            load,
            costs: COSTS,
            round_trip: ROUND_TRIP,
            keep: 100,
            ceilings: None,
            warm_up: 500,
            measured: self.scale.seconds * 1000,
            seed: self.scale.seed,
        }
    }

    fn growing(&self) -> &'static [usize] {
        if self.scale.quick { &[8, 64] } else { &[1, 4, 16, 64, 128, 256] }
    }

    /// Clients are added.
    fn curve(&self, id: &str, title: &str, systems: &[System], load: &Load) -> Experiment {
        let each = |system: &System| {
            let system = *system;
            self.growing().iter().map(move |clients| self.setup(system, *clients, load.clone()))
        };
        Experiment {
            id: id.to_owned(),
            title: format!("{title}, clients added"),
            runs: systems.iter().flat_map(each).collect(),
            drawing: Drawing::Latency,
        }
    }

    fn micro(&self) -> Vec<Experiment> {
        let uniform = |writers| Load::Micro { writers, keys: Keys::new(KEYS, None) };
        let zipf = Load::Micro { writers: 100, keys: Keys::new(KEYS, Some(0.99)) };
        let plain = [System::Plain, System::Locking, System::Occ];
        let forks = [System::Tardis(BRANCHING), System::Locking, System::Typed, System::Occ];
        vec![
            self.curve(
                "baseline-read-heavy",
                "no branching, uniform, 25 % update (fig. 9)",
                &plain,
                &uniform(25),
            ),
            self.curve(
                "baseline-write-heavy",
                "no branching, uniform, all update (fig. 9)",
                &plain,
                &uniform(100),
            ),
            self.curve("branching-read-heavy", "uniform, 25 % update (fig. 10a)", &forks, &uniform(25)),
            self.curve("branching-write-heavy", "uniform, all update (fig. 10b)", &forks, &uniform(100)),
            self.curve("branching-write-heavy-zipf", "Zipf 0.99, all update (fig. 10c)", &forks, &zipf),
            self.curve(
                "blind",
                "one write each, uniform (fig. 10d)",
                &forks,
                &Load::Blind { keys: Keys::new(KEYS, None) },
            ),
            Experiment {
                id: "constraints".to_owned(),
                title: "constraints, Zipf 0.99, all update, 64 clients (fig. 11)".to_owned(),
                runs: CONSTRAINTS
                    .iter()
                    .map(|constraints| self.setup(System::Tardis(*constraints), 64, zipf.clone()))
                    .collect(),
                drawing: Drawing::None,
            },
        ]
    }

    fn sites(&self) -> Experiment {
        let load = Load::Micro { writers: 25, keys: Keys::new(KEYS, None) };
        let of = |sites| Setup { sites, ..self.setup(System::Tardis(BRANCHING), 16, load.clone()) };
        Experiment {
            id: "sites".to_owned(),
            title: "sites added, 16 clients each, uniform, 25 % update (fig. 12)".to_owned(),
            runs: [1, 2, 3].into_iter().map(of).collect(),
            drawing: Drawing::Sites,
        }
    }

    fn garbage(&self) -> Experiment {
        let load = Load::Micro { writers: 100, keys: Keys::new(KEYS, Some(0.99)) };
        let of = |system| {
            let setup = self.setup(system, 32, load.clone());
            Setup { measured: 4 * setup.measured, ..setup }
        };
        Experiment {
            id: "garbage".to_owned(),
            title: "with and without collection, Zipf 0.99, all update, 32 clients (fig. 13)".to_owned(),
            runs: [System::Tardis(BRANCHING), System::Hoarding, System::Locking]
                .into_iter()
                .map(of)
                .collect(),
            drawing: Drawing::States,
        }
    }

    /// The paper's own: what clients promise is all that says what may go.
    fn ceilings(&self) -> Experiment {
        let load = Load::Micro { writers: 100, keys: Keys::new(KEYS, Some(0.99)) };
        let setup = self.setup(System::Tardis(BRANCHING), CEILING_CLIENTS, load);
        let measured = if self.scale.quick { setup.measured } else { 4 * setup.measured };
        Experiment {
            id: "ceilings".to_owned(),
            title: format!(
                "ceilings by clients, every {CEILING_EVERY} transactions of each, KEEP 0, Zipf 0.99, all update, \
                 {CEILING_CLIENTS} clients (section 7.1.5)"
            ),
            runs: vec![Setup { keep: 0, ceilings: Some(CEILING_EVERY), warm_up: 2_000, measured, ..setup }],
            drawing: Drawing::States,
        }
    }

    /// The same where sites retain nothing above the heads for reads: what is left when the clients have stopped.
    fn rest(&self) -> Experiment {
        let load = Load::Micro { writers: 100, keys: Keys::new(KEYS, Some(0.99)) };
        let of = |system| Setup { keep: 0, ..self.setup(system, 32, load.clone()) };
        Experiment {
            id: "rest".to_owned(),
            title: "the same with KEEP 0".to_owned(),
            runs: [System::Tardis(BRANCHING), System::Locking].into_iter().map(of).collect(),
            drawing: Drawing::None,
        }
    }

    /// Three sites, which tell one another; those without branches receive what as many others would write.
    fn types(&self, of: Mergeable) -> Experiment {
        const SITES: u16 = 3;
        let load = |flat| Load::Types { of, flat, values: VALUES, sites: SITES };
        let clients = if self.scale.quick { 32 } else { 64 };
        let ours = Setup { sites: SITES, ..self.setup(System::Tardis(BRANCHING), clients, load(false)) };
        let flat = [System::Locking, System::Occ]
            .map(|system| Setup { sites: SITES, ..self.setup(system, clients, load(true)) });
        Experiment {
            id: format!("types-{}", of.name()),
            title: format!(
                "a {}, 90 % reads, 3 sites, {clients} clients each, {VALUES} values (fig. 14b, 14d)",
                of.name()
            ),
            runs: [ours].into_iter().chain(flat).collect(),
            drawing: Drawing::None,
        }
    }

    fn retwis(&self, id: &str, posts: u8, follows: u8) -> Experiment {
        let systems = [System::Tardis(BRANCHING), System::Locking, System::Typed, System::Occ];
        let load = Load::Retwis { posts, follows, users: USERS };
        let mut experiment = self.curve(
            &format!("retwis-{id}"),
            &format!("Retwis, {posts} % posts, {follows} % follows, {USERS} users (fig. 14c, 14d)"),
            &systems,
            &load,
        );
        experiment.runs.iter_mut().for_each(|setup| setup.measured *= RETWIS_LONGER);
        experiment
    }
}

/// All experiments.
pub fn experiments(scale: Scale) -> Vec<Experiment> {
    let base = Base { scale };
    let mut all = base.micro();
    all.push(base.sites());
    all.push(base.garbage());
    all.push(base.ceilings());
    all.push(base.rest());
    all.extend(Mergeable::ALL.map(|of| base.types(of)));
    all.push(base.retwis("read-only", 0, 0));
    all.push(base.retwis("read-heavy", 10, 5));
    all.push(base.retwis("post-heavy", 30, 5));
    all
}
