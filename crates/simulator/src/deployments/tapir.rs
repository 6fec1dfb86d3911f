//! TAPIR: one to three shards of three or five replicas, together on the same processes or each on processes of its
//! own, with gateways beside replicas and alone.

use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use checker::Level;
use protocol::{Claim, CommitStamp};
use strict::ir::Status;
use strict::tapir::{Decided, Node, Options, Topology};
use types::{Address, NodeId, PartitionId, ProcessId, RegionId, Rng, SessionId, Slot, Timestamp};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct TapirDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
}

/// How many processes have replicas.
fn storing(layout: Layout) -> u16 {
    layout.replicas * if layout.apart { layout.partitions } else { 1 }
}

/// The process of a shard's replica.
fn process_of(layout: Layout, shard: u16, index: u16) -> ProcessId {
    ProcessId(if layout.apart { shard * layout.replicas + index } else { index })
}

pub(super) fn topology(setting: Setting) -> Topology {
    let layout = setting.layout;
    let replica = |shard: u16, index: u16| Address {
        process: process_of(layout, shard, index),
        slot: Slot::replica(KEYSPACE, PartitionId(shard)),
    };
    let shard = |shard: u16| (0..layout.replicas).map(|index| replica(shard, index)).collect();
    Topology {
        shards: (0..layout.partitions).map(shard).collect(),
        keyspace: KEYSPACE,
        seed: setting.hash_seed,
    }
}

impl Deployment for TapirDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        let replicas = if random.u32(..4) == 0 { 5 } else { 3 };
        let partitions = random.u16(1..=3);
        let beside = random.u32(..4) > 0;
        Layout {
            regions: [1, 3, replicas][random.usize(..3)],
            partitions,
            replicas,
            apart: partitions * replicas <= 9 && random.u32(..3) == 0,
            beside,
            gateways: if beside { random.u16(..3) } else { random.u16(1..3) },
        }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let storing = storing(layout);
        let host = |process: u16| {
            let process = ProcessId(process);
            let member =
                |shard: &u16| (0..layout.replicas).any(|index| process_of(layout, *shard, index) == process);
            let partitions: Vec<PartitionId> =
                (0..layout.partitions).filter(member).map(PartitionId).collect();
            let gateway = layout.beside || partitions.is_empty();
            Host { process, region: RegionId(process.0 % layout.regions), partitions, gateway }
        };
        (0..storing + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let layout = setting.layout;
        let options = Options {
            durability: setting.durability,
            near: Some(ProcessId(process.0 % layout.replicas)),
            region: RegionId(process.0 % layout.regions),
            claims: true,
            ..self.options.clone()
        };
        let topology = topology(setting);
        match slot.partition {
            Some(shard) => {
                let index = usize::from(process.0 % layout.replicas);
                Node::replica(topology, shard.0, index, incarnation, options)
            }
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

    fn is_recovering(&self, instance: &Node) -> bool {
        matches!(instance, Node::Replica(replica) if replica.status() == Status::Recovering)
    }

    /// A pipeline may run as one transaction, whose claim the recorder cannot divide among the requests yet.
    fn lacks(&self) -> &[Feature] {
        &[Feature::Pipelines]
    }

    /// A blind write that keeps the deadline, or does not overwrite, applies to a value that has expired.
    fn off(&self) -> &[Feature] {
        &[Feature::BlindExpiry]
    }
}
