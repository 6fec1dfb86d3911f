//! TARDiS: two to four regions with one site each, with gateways beside the sites and alone. The records of a site lie
//! beside its State DAG, or in partitions, some in the process of the site and some in others.

use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use branch::site::{Collecting, Local, Merging, Options, Pace, Topology};
use branch::{Conflict, Conflicts, Failure, Handler, Instance, Keep, Policy};
use checker::Level;
use datatypes::register::Register;
use datatypes::{Cell, Value};
use mvcc::CompactKey;
use protocol::Claim;
use std::time::Duration;
use types::{Address, NodeId, PartitionId, ProcessId, RegionId, Rng, Slot};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct TardisDeployment {
    /// The options of every site, but for what the simulation decides.
    pub options: Options,
    /// True if sites merge by a handler.
    pub by_handler: bool,
    /// True if no life of a site waits for sites that it does not hear before it collects; else some lives do and others
    /// do not.
    pub collects_early: bool,
    /// True if records lie in partitions.
    pub parted: bool,
}

impl TardisDeployment {
    /// Updates that meet at one site fork.
    pub fn forking() -> Self {
        let options = Options { local: Local::Branch, ..Options::default() };
        TardisDeployment { options, ..TardisDeployment::default() }
    }

    /// Sites merge by a handler, which is a pure function and now and then fails.
    pub fn handler_runner() -> Self {
        let merging = Merging::Handler { every: Duration::from_millis(50) };
        let options = Options { merging, policy: Policy::Newest, ..Options::default() };
        TardisDeployment { options, by_handler: true, ..TardisDeployment::default() }
    }

    /// Records lie in partitions, and hardly any of them stay with the State DAG.
    pub fn parted() -> Self {
        let options = Options { near: 3, ..Options::default() };
        TardisDeployment { options, parted: true, ..TardisDeployment::default() }
    }
}

/// So few transactions may be on their way to a site that some often wait.
const FEW_AT_A_TIME: usize = 32;
/// So few bytes of a checkpoint are handed over at a time that much happens before it is complete.
const SMALL_PIECE: usize = 400;

/// Merges are so slow that clients commit much concurrently.
const SLOW: Pace = Pace { piece: Duration::from_nanos(1), between: Duration::from_millis(2), rebase: 2 };

/// Of registers that are texts the one that comes last wins; all others are left to the types' rules. It fails on some
/// merges, the same ones at every site.
#[derive(Clone, Copy, Debug)]
struct LastText;

impl LastText {
    fn answer(conflict: &Conflict) -> Option<Cell> {
        let text = |cell: &Cell| match &cell.value {
            Some(Value::Register(Register::Bytes(bytes))) => Some(bytes.to_vec()),
            _ => None,
        };
        let changed = || conflict.branches.iter().filter(|branch| **branch != conflict.fork);
        if conflict.merged.is_some() || !changed().all(|branch| text(branch).is_some()) {
            return None;
        }
        changed().max_by_key(|branch| text(branch)).cloned()
    }
}

impl Handler for LastText {
    fn version(&self) -> u64 {
        1
    }

    fn source(&self) -> &str {
        "the text that comes last"
    }

    fn handle(&mut self, conflicts: &mut dyn Conflicts) -> Result<Vec<(CompactKey, Cell)>, Failure> {
        let mut answers = Vec::new();
        for key in conflicts.keys().to_vec() {
            let Some(conflict) = conflicts.conflict(&key) else { continue };
            let mut bytes = Vec::new();
            conflict.branches.iter().for_each(|branch| branch.encode(&mut bytes));
            if bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>().is_multiple_of(7) {
                return Err(Failure("not these".to_owned()));
            }
            answers.extend(Self::answer(&conflict).map(|cell| (key, cell)));
        }
        Ok(answers)
    }
}

fn topology(layout: Layout) -> Topology {
    let at = |process: u16, partition: u16| Address {
        process: ProcessId(process),
        slot: Slot::replica(KEYSPACE, PartitionId(partition)),
    };
    let records = |region: u16| {
        (1..layout.partitions).map(|partition| at(keeper(layout, region, partition), partition)).collect()
    };
    Topology {
        sites: (0..layout.regions).map(|region| at(region, 0)).collect(),
        partitions: (0..layout.regions).map(records).collect(),
        keyspace: KEYSPACE,
    }
}

/// The process of a region that keeps a record partition: with one replica that of the site, with more also such that have
/// nothing else.
fn keeper(layout: Layout, region: u16, partition: u16) -> u16 {
    region + layout.regions * (partition % layout.replicas)
}

/// Processes with sites come first; then gateways, one region after the other.
fn region_of(layout: Layout, process: ProcessId) -> u16 {
    process.0 % layout.regions
}

impl Deployment for TardisDeployment {
    type Protocol = Instance;

    fn layout(&self, random: &mut Rng) -> Layout {
        let regions = random.u16(2..=4);
        let colocated = random.u32(..4) > 0;
        let (partitions, replicas) = match self.parted {
            true => (random.u16(2..=4), random.u16(1..=3)),
            false => (1, 1),
        };
        Layout {
            regions,
            partitions,
            replicas,
            one_partition_each: true,
            colocated,
            gateways: if colocated { random.u16(..3) } else { regions },
            ..Layout::default()
        }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let stores = layout.regions * layout.replicas;
        let host = |process: u16| {
            let region = region_of(layout, ProcessId(process));
            let is_held = |partition: &u16| match partition {
                0 => process < layout.regions,
                _ => keeper(layout, region, *partition) == process,
            };
            Host {
                process: ProcessId(process),
                region: RegionId(region),
                partitions: (0..layout.partitions).filter(is_held).map(PartitionId).collect(),
                gateway: process >= stores || (layout.colocated && process < layout.regions),
            }
        };
        (0..stores + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, random: &mut Rng) -> Instance {
        let mut options = Options { durability: setting.durability, claims: true, ..self.options };
        // What seeds draw otherwise stays as it was.
        let mut random = random.clone();
        if self.collects_early || random.bool() {
            (options.collect, options.keep) = (Collecting::Optimistic, Keep::default());
        }
        if random.bool() {
            options.piece = SMALL_PIECE;
        }
        if random.bool() {
            (options.pace, options.window) = (SLOW, FEW_AT_A_TIME);
        }
        if random.u8(..4) == 0 {
            options.keep.time = Duration::from_millis(random.u64(100..2_000));
        }
        let (topology, region) = (topology(setting.layout), region_of(setting.layout, node.process));
        match node.slot.partition {
            Some(PartitionId(partition)) if partition > 0 => {
                let manager = topology.sites[usize::from(region)];
                Instance::part(manager, options.durability, options.mutants)
            }
            Some(_) => {
                let mut instance = Instance::site(topology, usize::from(region), node.incarnation, options);
                if let (Some(site), true) = (instance.as_site_mut(), self.by_handler) {
                    site.set_handler(Some(Box::new(LastText)));
                }
                instance
            }
            None => Instance::forward(topology.sites[usize::from(region)], node.incarnation),
        }
    }

    /// As in processes: where a site is, nothing stands between it and its clients.
    fn serves_at_replicas(&self) -> bool {
        true
    }

    fn claims(&self, instance: &mut Instance) -> Vec<Claim> {
        instance.take_claims()
    }

    /// In the end there is one head, at all sites.
    fn undecided(&self, instance: &Instance) -> usize {
        instance.as_site().map_or(0, |site| {
            site.orphans()
                + site.unreceived()
                + site.waiting()
                + site.keyspace().dag().heads().skip(1).count()
        })
    }

    fn merges_by_handler(&self) -> bool {
        self.by_handler
    }

    fn level(&self) -> Level {
        Level::Branch
    }

    /// Deadlines compare with clocks that the checker does not know; a lost disk is not survived yet.
    fn lacks(&self) -> Vec<Feature> {
        use Feature::{
            BlindExpiry, Contexts, EverySecond, Eviction, Expiry, FieldExpiry, Keyset, LostDisks,
            Reconfiguration,
        };
        vec![
            Expiry,
            FieldExpiry,
            BlindExpiry,
            LostDisks,
            EverySecond,
            Keyset,
            Reconfiguration,
            Contexts,
            Eviction,
        ]
    }
}
