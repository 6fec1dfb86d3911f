//! Wren: two regions of two partitions, each partition's replica on a process of its own with a gateway beside it.

use crate::deployment::{Deployment, Host, KEYSPACE, Setting};
use causal::wren::{KeyEffects, Message, Node, Options, RegionTopology, Scope, Topology};
use checker::Level;
use protocol::{Claim, CommitStamp};
use types::{Address, HashSeed, NodeId, PartitionId, ProcessId, RegionId, Rng, SessionId, Slot};

const REGIONS: u16 = 2;
const PARTITIONS: u16 = 2;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct WrenDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
}

fn topology(seed: HashSeed) -> Topology {
    let replica = |region: u16, partition: u16| Address {
        process: ProcessId(region * PARTITIONS + partition),
        slot: Slot::replica(KEYSPACE, PartitionId(partition)),
    };
    let region = |region: u16| RegionTopology {
        partitions: (0..PARTITIONS).map(|partition| replica(region, partition)).collect(),
    };
    Topology { regions: (0..REGIONS).map(region).collect(), keyspace: KEYSPACE, seed }
}

fn region_of(process: ProcessId) -> RegionId {
    RegionId(process.0 / PARTITIONS)
}

impl Deployment for WrenDeployment {
    type Protocol = Node;

    fn hosts(&self) -> Vec<Host> {
        let host = |process: u16| Host {
            process: ProcessId(process),
            region: region_of(ProcessId(process)),
            partitions: vec![PartitionId(process % PARTITIONS)],
            gateway: true,
        };
        (0..REGIONS * PARTITIONS).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let options =
            Options { durability: setting.durability, scope: Scope::Session, claims: true, ..self.options };
        let (topology, region) = (topology(setting.hash_seed), region_of(process));
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
        let of_key = |key: &KeyEffects| {
            let name = key.key.clone();
            key.effects.iter().map(move |effect| (name.clone(), effect.clone())).collect::<Vec<_>>()
        };
        vec![Claim {
            session: SessionId(0),
            transaction: *id,
            commit: Some(CommitStamp { at: *at, depends_on: *depends_on, region: *origin }),
            snapshot: None,
            effects: effects.iter().flat_map(of_key).collect(),
        }]
    }

    fn undecided(&self, instance: &Node) -> usize {
        instance.as_partition().map_or(0, |partition| partition.undecided() + partition.unreceived())
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }
}
