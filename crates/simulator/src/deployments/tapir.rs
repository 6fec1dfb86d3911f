//! TAPIR: two shards of three replicas in three regions, a gateway beside each replica and one that stands alone.

use crate::deployment::{Deployment, Host, KEYSPACE, Setting};
use checker::Level;
use protocol::{Claim, CommitStamp};
use strict::tapir::{Decided, Node, Options, Topology};
use types::{Address, HashSeed, NodeId, PartitionId, ProcessId, RegionId, Rng, SessionId, Slot, Timestamp};

const SHARDS: u16 = 2;
const REPLICAS: u16 = 3;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct TapirDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
}

fn topology(seed: HashSeed) -> Topology {
    let replica = |shard: u16, process: u16| Address {
        process: ProcessId(process),
        slot: Slot::replica(KEYSPACE, PartitionId(shard)),
    };
    let shard = |shard: u16| (0..REPLICAS).map(|process| replica(shard, process)).collect();
    Topology { shards: (0..SHARDS).map(shard).collect(), keyspace: KEYSPACE, seed }
}

impl Deployment for TapirDeployment {
    type Protocol = Node;

    fn hosts(&self) -> Vec<Host> {
        let host = |process: u16| Host {
            process: ProcessId(process),
            region: RegionId(process % REPLICAS),
            partitions: if process < REPLICAS { (0..SHARDS).map(PartitionId).collect() } else { Vec::new() },
            gateway: true,
        };
        (0..=REPLICAS).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let options = Options {
            durability: setting.durability,
            near: Some(ProcessId(process.0 % REPLICAS)),
            region: RegionId(process.0 % REPLICAS),
            claims: true,
            ..self.options.clone()
        };
        let topology = topology(setting.hash_seed);
        match slot.partition {
            Some(shard) => Node::replica(topology, shard.0, usize::from(process.0), incarnation, options),
            None => Node::coordinator(topology, process, incarnation, options),
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        instance.take_claims()
    }

    fn outcomes(&self, instance: &Node) -> Vec<Claim> {
        let committed = |(transaction, decided)| match decided {
            Decided::Committed { stamp, effects } => Some(Claim {
                session: SessionId(0),
                transaction,
                commit: Some(CommitStamp { at: stamp.at, depends_on: Timestamp::ZERO, region: RegionId(0) }),
                snapshot: None,
                effects,
            }),
            Decided::Aborted => None,
        };
        instance.decided().filter_map(committed).collect()
    }

    fn undecided(&self, instance: &Node) -> usize {
        match instance {
            Node::Replica(replica) => replica.prepared(),
            Node::Coordinator(coordinator) => coordinator.in_progress(),
        }
    }

    fn level(&self) -> Level {
        Level::StrictSerializable
    }
}
