//! TAPIR.

use super::replicated;
use crate::deployment::{Deployment, Host, Layout, ReplicaStatus, Setting};
use crate::faults::Feature;
use checker::Level;
use protocol::Claim;
use std::time::Duration;
use strict::ir::Status;
use strict::tapir::{Isolation, Message, Node, Options};
use types::{NodeId, PartitionId, ProcessId, Rng, TransactionId};

/// Epochs that begin after an accepted loss are not below this.
const FIRST_AFTER_LOSS: u32 = 0x1_0000;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct TapirDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
    /// What histories are checked for, if not for what the options promise.
    pub level: Option<Level>,
}

impl TapirDeployment {
    /// Without real time.
    pub fn serializable() -> Self {
        let options = Options { isolation: Isolation::Serializable, ..Options::default() };
        TapirDeployment { options, level: None }
    }
}

impl Deployment for TapirDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        let layout = replicated::layout(random);
        Layout { spares: random.u16(1..=3), ..layout }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        replicated::hosts(layout)
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, .. } = node;
        let layout = setting.layout;
        // The same in every instance and every life of a seed. Outcomes stay for longer than they take to be observed.
        let mut drawn = Rng::with_seed(setting.hash_seed.0);
        let options = Options {
            sync_every: Some(Duration::from_millis(drawn.u64(20..1_000))),
            sync_lag: Duration::from_millis(drawn.u64(100..8_000)),
            sync_patience: drawn.u32(1..20),
            piece_bytes: 1 << drawn.u32(4..17),
            durability: setting.durability,
            near: Some(replicated::near(layout, process)),
            region: replicated::region(layout, process),
            claims: true,
            ..self.options.clone()
        };
        let topology = replicated::topology(setting);
        match node.slot.partition {
            Some(shard) => Node::replica_at(topology, shard.0, process, incarnation, options),
            None => Node::coordinator(topology, process, incarnation, options),
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        instance.take_claims()
    }

    fn outcomes(&self, instance: &Node) -> Vec<Claim> {
        replicated::outcomes(instance.decided())
    }

    fn aborted(&self, instance: &Node) -> Vec<TransactionId> {
        replicated::aborted(instance.decided())
    }

    fn undecided(&self, instance: &Node) -> usize {
        match instance {
            // Who has left its shard hears no more of what it holds.
            Node::Replica(replica) if replica.status() == Status::Outside => 0,
            Node::Replica(replica) => replica.prepared(),
            Node::Coordinator(coordinator) => coordinator.in_progress(),
        }
    }

    fn level(&self) -> Level {
        self.level.unwrap_or(match self.options.isolation {
            Isolation::Strict => Level::StrictSerializable,
            Isolation::Serializable => Level::Serializable,
        })
    }

    fn is_recovering(&self, instance: &Node) -> bool {
        matches!(instance, Node::Replica(replica) if replica.is_forgetful())
    }

    fn move_to(&self, partition: PartitionId, processes: &[ProcessId]) -> Option<Message> {
        let (shard, processes) = (partition.0, processes.to_vec());
        Some(Message::Place { shard, processes, accept_loss: false })
    }

    fn accept_loss(&self, partition: PartitionId, processes: &[ProcessId]) -> Option<Message> {
        let (shard, processes) = (partition.0, processes.to_vec());
        Some(Message::Place { shard, processes, accept_loss: true })
    }

    fn replica_status(&self, instance: &Node) -> Option<ReplicaStatus> {
        let Node::Replica(replica) = instance else { return None };
        let began_after_loss = replica.membership().present.epoch >= FIRST_AFTER_LOSS;
        Some(ReplicaStatus {
            goes_on: began_after_loss && replica.status() == Status::Normal,
            base: replica.points().base,
            executed: replica.committed().collect(),
            held: replica.voted().collect(),
        })
    }

    /// Where the clocks of f+1 replicas were hours ahead, what committed is above every stamp that they believe when they are
    /// right again: who meets it waits.
    fn waits_for_clocks(&self) -> bool {
        true
    }

    /// A pipeline may run as one transaction, whose claim the recorder cannot divide among the requests yet.
    fn lacks(&self) -> Vec<Feature> {
        vec![Feature::Pipelines, Feature::Contexts, Feature::Eviction]
    }
}
