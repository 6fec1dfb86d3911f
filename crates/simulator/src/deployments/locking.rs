//! Two-phase commit over replicated logs, laid out like TAPIR; with locks or with validation at the leaders.

use crate::deployment::{Deployment, Host, Layout, Setting};
use crate::deployments::tapir::{TapirDeployment, topology};
use crate::faults::Feature;
use checker::Level;
use protocol::{Claim, CommitStamp};
use strict::locking::{Concurrency, Node, Options};
use strict::tapir::Decided;
use types::{NodeId, ProcessId, RegionId, Rng, SessionId, Timestamp};

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
        TapirDeployment::default().layout(random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        TapirDeployment::default().hosts(layout)
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

    /// A blind write that keeps the deadline, or does not overwrite, applies to a value that has expired.
    fn off(&self) -> &[Feature] {
        &[Feature::BlindExpiry]
    }

    fn is_recovering(&self, instance: &Node) -> bool {
        matches!(instance, Node::Replica(replica) if replica.is_forgetful())
    }
}
