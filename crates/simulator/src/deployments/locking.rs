//! Two-phase commit over replicated logs, with locks or with validation at the leaders. A seed says where optimistic
//! transactions read, who collects votes, how many single commands of a key are sent before others wait, and whether transactions
//! leave a shard to the end.

use super::replicated;
use crate::deployment::{Deployment, Host, Layout, Setting};
use crate::faults::Feature;
use checker::Level;
use protocol::Claim;
use std::time::Duration;
use strict::locking::{Combining, Concurrency, Coordinates, LastShard, Node, Options, Reads};
use types::{NodeId, Rng, TransactionId};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct LockingDeployment {
    /// The options of every instance, but for what the simulation decides.
    pub options: Options,
}

impl LockingDeployment {
    /// With validation in place of locks.
    pub fn optimistic() -> Self {
        LockingDeployment { options: Options { concurrency: Concurrency::Optimistic, ..Options::default() } }
    }
}

impl Deployment for LockingDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        replicated::layout(random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        replicated::hosts(layout)
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, .. } = node;
        let layout = setting.layout;
        // Every fourth seed shows what coordinators do that combine nothing.
        let combines = !setting.hash_seed.0.is_multiple_of(4);
        // The same in every instance and every life of a seed.
        let mut drawn = Rng::with_seed(setting.hash_seed.0);
        let reads = [Reads::Leader, Reads::Closest][drawn.usize(..2)];
        let coordinates =
            [Coordinates::LastAgent, Coordinates::Participant, Coordinates::Client][drawn.usize(..3)];
        // Few clients are enough for batches.
        let under_way = 1 + drawn.usize(..2);
        let limits = |combining| Combining { under_way, ..combining };
        // There are few keys, so one is in many transactions. Who is taken back is so soon, or when answers are overdue.
        let leaves = drawn.usize(..2) == 0;
        let patience = Duration::from_millis([20, 200][drawn.usize(..2)]);
        let last_shard = LastShard { crowded: 0, after: 0, patience };
        let options = Options {
            combining: self.options.combining.filter(|_| combines).map(limits),
            last_shard: self.options.last_shard.filter(|_| leaves).map(|_| last_shard),
            reads,
            coordinates,
            durability: setting.durability,
            near: Some(replicated::near(layout, process)),
            region: replicated::region(layout, process),
            claims: true,
            ..self.options.clone()
        };
        let topology = replicated::topology(setting);
        match replicated::replica(layout, node) {
            Some((shard, index)) => Node::replica(topology, shard, index, incarnation, options),
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
            Node::Replica(replica) => replica.prepared(),
            Node::Coordinator(coordinator) => coordinator.in_progress(),
        }
    }

    fn level(&self) -> Level {
        Level::StrictSerializable
    }

    fn is_recovering(&self, instance: &Node) -> bool {
        matches!(instance, Node::Replica(replica) if replica.is_forgetful())
    }

    fn lacks(&self) -> Vec<Feature> {
        vec![Feature::Reconfiguration, Feature::Contexts, Feature::Eviction, Feature::MergedPipelines]
    }
}
