//! PaRiS: two to four regions and one to four partitions, each partition in two regions at least and not always in all
//! of them, so that a region may hold nothing; each replica on a process of its own, with gateways beside replicas and
//! alone.

use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use causal::paris::{KeyEffects, Message, Node, Options, RegionTopology, Scope, Topology};
use checker::Level;
use protocol::{Claim, CommitStamp, SnapshotClaim};
use types::{Address, NodeId, PartitionId, ProcessId, RegionId, Rng, SessionId, Slot, Timestamp};

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParisDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
}

/// A region and a partition for each process with a replica, region by region: partition p is in the regions p, p + 1
/// and so on, as many as it has replicas.
fn placed(layout: Layout) -> Vec<(u16, u16)> {
    let Layout { regions, partitions, replicas, .. } = layout;
    let holds = |region: u16, partition: u16| (region + regions - partition % regions) % regions < replicas;
    let of_region =
        |region| (0..partitions).filter(move |partition| holds(region, *partition)).map(move |p| (region, p));
    (0..regions).flat_map(of_region).collect()
}

fn topology(setting: Setting) -> Topology {
    let placed = placed(setting.layout);
    let region = |region: u16| {
        let held = (0u16..).zip(&placed).filter(|(_, (of, _))| *of == region);
        let replica = |(process, (_, partition)): (u16, &(u16, u16))| {
            let slot = Slot::replica(KEYSPACE, PartitionId(*partition));
            (*partition, Address { process: ProcessId(process), slot })
        };
        RegionTopology { name: region.to_string(), partitions: held.map(replica).collect() }
    };
    let regions = (0..setting.layout.regions).map(region).collect();
    Topology { regions, keyspace: KEYSPACE, seed: setting.hash_seed }
}

/// Processes with replicas come first; then gateways, those of the last regions first, which may hold nothing.
fn region_of(layout: Layout, process: ProcessId) -> RegionId {
    let placed = placed(layout);
    RegionId(match placed.get(usize::from(process.0)) {
        Some((region, _)) => *region,
        None => layout.regions - 1 - (process.0 - placed.len() as u16) % layout.regions,
    })
}

/// All regions' snapshots are the same, so the rule for a region's own effects must not apply to any.
fn of_no_region(claim: &mut Claim) {
    if let Some(commit) = &mut claim.commit {
        commit.region = RegionId(0);
    }
    if let Some(snapshot) = &mut claim.snapshot {
        *snapshot = SnapshotClaim { region: RegionId(u16::MAX), ..*snapshot };
    }
}

impl Deployment for ParisDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        let regions = random.u16(2..=4);
        let beside = random.u32(..4) > 0;
        Layout {
            regions,
            partitions: random.u16(1..=4),
            replicas: random.u16(2..=regions),
            apart: true,
            beside,
            gateways: if beside { random.u16(..3) } else { regions },
            spares: 0,
        }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let placed = placed(layout);
        let host = |process: u16| {
            let stores = placed.get(usize::from(process));
            Host {
                process: ProcessId(process),
                region: region_of(layout, ProcessId(process)),
                partitions: stores.map(|(_, partition)| PartitionId(*partition)).into_iter().collect(),
                gateway: layout.beside || stores.is_none(),
            }
        };
        (0..placed.len() as u16 + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let options =
            Options { durability: setting.durability, scope: Scope::Session, claims: true, ..self.options };
        let (topology, region) = (topology(setting), region_of(setting.layout, process));
        match slot.partition {
            Some(partition) => Node::partition(topology, region, partition.0, options),
            None => Node::coordinator(topology, region, process, incarnation, options),
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        let mut claims = instance.take_claims();
        claims.iter_mut().for_each(of_no_region);
        claims
    }

    /// What is replicated has committed, whether its coordinator lived to claim it or not.
    fn claims_of_message(&self, message: &Message) -> Vec<Claim> {
        let Message::Replicate { id, at, effects, .. } = message else { return Vec::new() };
        let of_key = |key: &KeyEffects| {
            let name = key.key.clone();
            key.effects.iter().map(move |effect| (name.clone(), effect.clone())).collect::<Vec<_>>()
        };
        vec![Claim {
            session: SessionId(0),
            transaction: *id,
            commit: Some(CommitStamp { at: *at, depends_on: Timestamp::ZERO, region: RegionId(0) }),
            snapshot: None,
            effects: effects.iter().flat_map(of_key).collect(),
            branch: None,
        }]
    }

    fn undecided(&self, instance: &Node) -> usize {
        match instance {
            Node::Partition(partition) => partition.undecided() + partition.unreceived(),
            Node::Coordinator(coordinator) => coordinator.unsettled(),
        }
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }

    /// As for Wren.
    fn lacks(&self) -> &[Feature] {
        use Feature::{BlindExpiry, EverySecond, Eviction, Expiry, Keyset, LostDisks, Reconfiguration};
        &[Expiry, BlindExpiry, LostDisks, EverySecond, Keyset, Reconfiguration, Eviction]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_in_as_many_regions_as_it_has_replicas() {
        let layout = Layout { regions: 3, partitions: 2, replicas: 2, ..Layout::default() };
        assert_eq!(placed(layout), [(0, 0), (1, 0), (1, 1), (2, 1)]);
        let layout = Layout { regions: 4, partitions: 1, replicas: 2, gateways: 2, ..layout };
        assert_eq!(placed(layout), [(0, 0), (1, 0)]);
        let regions = (0..4).map(|process| region_of(layout, ProcessId(process)).0).collect::<Vec<_>>();
        assert_eq!(regions, [0, 1, 3, 2], "gateways stand where nothing is held");
    }
}
