//! TARDiS: two to four regions with one site each, with gateways beside the sites and alone.

use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use branch::Instance;
use branch::site::{Local, Options, Topology};
use checker::Level;
use protocol::Claim;
use types::{Address, NodeId, PartitionId, ProcessId, RegionId, Rng, Slot};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct TardisDeployment {
    /// The options of every site, but for what the simulation decides.
    pub options: Options,
}

impl TardisDeployment {
    /// Updates that meet at one site fork.
    pub fn forking() -> Self {
        TardisDeployment { options: Options { local: Local::Branch, ..Options::default() } }
    }
}

fn topology(layout: Layout) -> Topology {
    let site =
        |region: u16| Address { process: ProcessId(region), slot: Slot::replica(KEYSPACE, PartitionId(0)) };
    Topology { sites: (0..layout.regions).map(site).collect(), keyspace: KEYSPACE }
}

/// Processes with sites come first; then gateways, one region after the other.
fn region_of(layout: Layout, process: ProcessId) -> u16 {
    process.0 % layout.regions
}

impl Deployment for TardisDeployment {
    type Protocol = Instance;

    fn layout(&self, random: &mut Rng) -> Layout {
        let regions = random.u16(2..=4);
        let beside = random.u32(..4) > 0;
        Layout {
            regions,
            partitions: 1,
            replicas: 1,
            apart: true,
            beside,
            gateways: if beside { random.u16(..3) } else { regions },
            spares: 0,
        }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let host = |process: u16| {
            let stores = process < layout.regions;
            Host {
                process: ProcessId(process),
                region: RegionId(region_of(layout, ProcessId(process))),
                partitions: stores.then_some(PartitionId(0)).into_iter().collect(),
                gateway: layout.beside || !stores,
            }
        };
        (0..layout.regions + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Instance {
        let options = Options { durability: setting.durability, claims: true, ..self.options };
        let (topology, region) = (topology(setting.layout), region_of(setting.layout, node.process));
        match node.slot.partition {
            Some(_) => Instance::site(topology, usize::from(region), node.incarnation, options),
            None => Instance::forward(topology.sites[usize::from(region)]),
        }
    }

    fn claims(&self, instance: &mut Instance) -> Vec<Claim> {
        instance.take_claims()
    }

    /// In the end there is one head, at all sites.
    fn undecided(&self, instance: &Instance) -> usize {
        instance.as_site().map_or(0, |site| {
            site.orphans() + site.unreceived() + site.keyspace().dag().heads().skip(1).count()
        })
    }

    fn level(&self) -> Level {
        Level::Branch
    }

    /// Deadlines compare with clocks that the checker does not know; a lost disk is not survived yet.
    fn lacks(&self) -> &[Feature] {
        use Feature::{
            BlindExpiry, Contexts, EverySecond, Eviction, Expiry, Keyset, LostDisks, Reconfiguration,
        };
        &[Expiry, BlindExpiry, LostDisks, EverySecond, Keyset, Reconfiguration, Contexts, Eviction]
    }
}
