//! Wren: two or three regions of one to three partitions, each partition's replica on a process of its own, with
//! gateways beside replicas and alone.

use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use causal::wren::{KeyEffects, Message, Node, Options, Partition, RegionTopology, Scope, Stamp, Topology};
use checker::{Level, ListedLoss};
use protocol::{Claim, CommitStamp, Conflict};
use std::time::Duration;
use types::{
    Address, NodeId, PartitionId, ProcessId, RegionId, Rng, SessionId, Slot, Timestamp, TransactionId,
};

/// Short, so that horizons rise and what is below them is folded within a run.
const LEASE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct WrenDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
}

fn topology(setting: Setting) -> Topology {
    let Layout { regions, partitions, .. } = setting.layout;
    let replica = |region: u16, partition: u16| Address {
        process: ProcessId(region * partitions + partition),
        slot: Slot::replica(KEYSPACE, PartitionId(partition)),
    };
    let region = |region: u16| {
        RegionTopology::full(region.to_string(), (0..partitions).map(|partition| replica(region, partition)))
    };
    Topology { regions: (0..regions).map(region).collect(), keyspace: KEYSPACE, seed: setting.hash_seed }
}

/// Processes with replicas come first, region by region; then gateways, one region after the other.
fn region_of(layout: Layout, process: ProcessId) -> RegionId {
    let storing = layout.regions * layout.partitions;
    RegionId(match process.0 < storing {
        true => process.0 / layout.partitions,
        false => (process.0 - storing) % layout.regions,
    })
}

/// A committed transaction of nobody knows which session, and a part of its effects.
fn outcome(transaction: TransactionId, commit: CommitStamp, effects: &[KeyEffects]) -> Claim {
    let of_key = |key: &KeyEffects| {
        let name = key.key.clone();
        key.effects.iter().map(move |effect| (name.clone(), effect.clone())).collect::<Vec<_>>()
    };
    Claim {
        session: SessionId(0),
        transaction,
        commit: Some(commit),
        snapshot: None,
        effects: effects.iter().flat_map(of_key).collect(),
        branch: None,
    }
}

impl Deployment for WrenDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        let regions = random.u16(2..=3);
        let beside = random.u32(..4) > 0;
        Layout {
            regions,
            partitions: random.u16(1..=3),
            replicas: 1,
            apart: true,
            beside,
            gateways: if beside { random.u16(..3) } else { regions },
            spares: 0,
        }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let storing = layout.regions * layout.partitions;
        let host = |process: u16| {
            let stores = process < storing;
            Host {
                process: ProcessId(process),
                region: region_of(layout, ProcessId(process)),
                partitions: stores.then(|| PartitionId(process % layout.partitions)).into_iter().collect(),
                gateway: layout.beside || !stores,
            }
        };
        (0..storing + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let (durability, scope) = (setting.durability, Scope::Session);
        let options = Options { durability, scope, claims: true, lease: LEASE, ..self.options };
        let (topology, region) = (topology(setting), region_of(setting.layout, process));
        match slot.partition {
            Some(partition) => Node::partition(topology, region, partition.0, options),
            None => Node::coordinator(topology, region, process, incarnation, options),
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        instance.take_claims()
    }

    /// What is replicated has committed, whether its coordinator lived to claim it or not.
    fn claims_of_message(&self, message: &Message) -> Vec<Claim> {
        let Message::Replicate { origin, id, at, depends_on, effects } = message else { return Vec::new() };
        vec![outcome(*id, CommitStamp { at: *at, depends_on: *depends_on, region: *origin }, effects)]
    }

    /// Where no other region is left, nothing is replicated.
    fn decided(&self, instance: &mut Node) -> Vec<Claim> {
        let claim = |(stamp, effects): (Stamp, Vec<KeyEffects>)| {
            let Stamp { at, depends_on, region, transaction } = stamp;
            outcome(transaction, CommitStamp { at, depends_on, region }, &effects)
        };
        instance.take_decided().into_iter().map(claim).collect()
    }

    fn lists_losses(&self) -> bool {
        true
    }

    fn losses(&self, instance: &Node) -> Vec<ListedLoss> {
        let told = |conflict: Conflict| ListedLoss {
            key: conflict.key.into(),
            name: conflict.name.into(),
            value: conflict.lost.value.into(),
            instead: conflict.kept.value.into(),
        };
        let partition = instance.as_partition().into_iter();
        partition.flat_map(|partition| partition.conflicts()).map(told).collect()
    }

    fn undecided(&self, instance: &Node) -> usize {
        let undecided = |partition: &Partition| {
            partition.undecided() + partition.unreceived() + usize::from(partition.is_evicting())
        };
        instance.as_partition().map_or(0, undecided)
    }

    fn evict(&self, region: RegionId) -> Option<Message> {
        Some(Message::Evict { regions: vec![region] })
    }

    fn cut_of(&self, instance: &Node, region: RegionId) -> Option<Timestamp> {
        instance.as_partition()?.cut_of(region)
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }

    /// Deadlines compare with clocks that the checker does not know; a lost suffix or disk is not survived yet.
    fn lacks(&self) -> &[Feature] {
        use Feature::{BlindExpiry, EverySecond, Expiry, Keyset, LostDisks, Reconfiguration};
        &[Expiry, BlindExpiry, LostDisks, EverySecond, Keyset, Reconfiguration]
    }
}
