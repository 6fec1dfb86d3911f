//! Wren with three copies of every partition in its region, in different processes, kept by a replicated log.

use super::causal::{WrenDeployment, set, told, with_fan_out, with_tree};
use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use causal::wren::{self, KeyEffects, RegionTopology, Stamp, Topology};
use checker::{Level, ListedLoss};
use protocol::Claim;
use replication::copies::{self, Groups};
use std::time::Duration;
use types::{Address, NodeId, PartitionId, ProcessId, RegionId, Rng, Slot};

/// Short, so that horizons rise and what is below them is folded within a run.
const LEASE: Duration = Duration::from_secs(1);
/// How many regions there are at most.
const MOST_REGIONS: u16 = 2;
/// The copies of a partition in a region.
const COPIES: u16 = 3;

type Node = copies::Node<wren::Node>;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct WrenCopiesDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: wren::Options,
    /// Those of the groups.
    pub copies: copies::Options,
}

/// How many processes of a region have copies.
fn storing(layout: Layout) -> u16 {
    COPIES * if layout.apart { layout.partitions } else { 1 }
}

/// The members of a partition's group in a region: on processes of its own, or on the region's, the next one first.
fn members(layout: Layout, region: u16, partition: u16) -> Vec<Address> {
    let place = |copy: u16| match layout.apart {
        true => partition * COPIES + copy,
        false => (partition + copy) % COPIES,
    };
    let member = |copy: u16| Address {
        process: ProcessId(region * storing(layout) + place(copy)),
        slot: Slot::replica(KEYSPACE, PartitionId(partition)),
    };
    (0..COPIES).map(member).collect()
}

fn groups(layout: Layout) -> Groups {
    let of_region =
        |region: u16| (0..layout.partitions).map(move |partition| members(layout, region, partition));
    Groups::new((0..layout.regions).flat_map(of_region))
}

fn topology(setting: Setting) -> Topology {
    let layout = setting.layout;
    let region = |region: u16| {
        let group = |partition: u16| members(layout, region, partition)[0];
        RegionTopology::full(region.to_string(), (0..layout.partitions).map(group))
    };
    Topology {
        regions: (0..layout.regions).map(region).collect(),
        keyspace: KEYSPACE,
        seed: setting.hash_seed,
    }
}

/// Processes with copies come first, region by region; then gateways, one region after the other.
fn region_of(layout: Layout, process: ProcessId) -> RegionId {
    let all = layout.regions * storing(layout);
    RegionId(match process.0 < all {
        true => process.0 / storing(layout),
        false => (process.0 - all) % layout.regions,
    })
}

impl Deployment for WrenCopiesDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        let regions = random.u16(1..=MOST_REGIONS);
        let beside = random.u32(..4) > 0;
        let partitions = random.u16(1..=2);
        let layout = Layout {
            regions,
            partitions,
            replicas: COPIES,
            apart: random.u32(..3) == 0,
            beside,
            gateways: if beside { random.u16(..2) } else { regions },
            ..Layout::default()
        };
        with_tree(layout, 1, random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let all = layout.regions * storing(layout);
        let host = |process: u16| {
            let region = region_of(layout, ProcessId(process));
            let here = |partition: &u16| {
                members(layout, region.0, *partition).iter().any(|member| member.process.0 == process)
            };
            let partitions = (0..layout.partitions).filter(here).map(PartitionId).collect();
            let gateway = layout.beside || process >= all;
            Host { process: ProcessId(process), region, partitions, gateway }
        };
        (0..all + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let (topology, region) = (topology(setting), region_of(setting.layout, process));
        let groups = groups(setting.layout);
        let options = wren::Options {
            // What a copy says waits for the group's log, whatever that waits for.
            durability: protocol::Durability::Written,
            claims: true,
            pipelined: if setting.merged { self.options.pipelined } else { 1 },
            lease: LEASE,
            copied: true,
            ..with_fan_out(set(setting, self.options), setting.layout)
        };
        let of_group = copies::Options { durability: setting.durability, ..self.copies };
        match slot.partition {
            Some(partition) => {
                let partition = wren::Node::partition(topology, region, partition.0, options);
                Node::member(node, partition, groups, of_group)
            }
            None => {
                let coordinator = wren::Node::coordinator(topology, region, process, incarnation, options);
                Node::guest(node, coordinator, groups)
            }
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        instance.protocol_mut().take_claims()
    }

    /// What a copy that follows has applied is committed for good.
    fn decided(&self, instance: &mut Node) -> Vec<Claim> {
        let claim = |(stamp, effects): (Stamp, Vec<KeyEffects>)| {
            WrenDeployment::outcome(stamp, usize::from(MOST_REGIONS), &effects)
        };
        if instance.as_member().is_none_or(|member| member.is_ahead()) {
            return Vec::new();
        }
        instance.protocol_mut().take_decided().into_iter().map(claim).collect()
    }

    fn lists_losses(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        true
    }

    /// The leader's list is the group's.
    fn losses(&self, instance: &Node) -> Option<Vec<ListedLoss>> {
        instance.as_member().filter(|member| member.is_leader())?;
        Some(instance.protocol().as_partition()?.conflicts().into_iter().map(told).collect())
    }

    /// Also what copies that follow have not heard the end of: they keep no more than the leader for long.
    fn undecided(&self, instance: &Node) -> usize {
        let partition = instance.protocol().as_partition();
        partition.map_or(0, |partition| partition.undecided() + partition.unreceived())
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }

    fn is_recovering(&self, instance: &Node) -> bool {
        instance.as_member().is_some_and(copies::Member::is_lacking)
    }

    /// Deadlines compare with clocks that the checker does not know.
    fn lacks(&self) -> &[Feature] {
        use Feature::{BlindExpiry, Eviction, Expiry, Keyset, Reconfiguration};
        &[Expiry, BlindExpiry, Keyset, Reconfiguration, Eviction]
    }
}
