//! COPS, COPS-GT and COPS-CD, laid out like Wren: two or three regions that hold everything.

use super::causal::{WrenDeployment, told};
use crate::deployment::{Deployment, Host, Layout, Setting};
use crate::faults::Feature;
use causal::cops::{Message, Node, Options};
use checker::{Level, ListedLoss};
use protocol::{Claim, CommitStamp, VectorClaim};
use replication::Window;
use std::time::Duration;
use types::{NodeId, RegionId, RegionSet, Rng, SessionId};

/// Short, so that versions are collected within a run, and transactions begin again.
const LEASE: Duration = Duration::from_millis(500);

/// How many regions a message may speak of, as a deployment has at most.
const MOST_REGIONS: usize = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopsDeployment {
    options: Options,
}

impl CopsDeployment {
    /// One whose instances have these options, but for what the simulation decides.
    pub fn new(options: Options) -> Self {
        CopsDeployment { options }
    }

    /// COPS-GT.
    pub fn transactional() -> Self {
        Self::new(Options { transactions: true, ..Options::default() })
    }

    /// COPS-CD that keeps concurrent values.
    pub fn keeping() -> Self {
        Self::new(Options { keeps_siblings: true, ..Options::default() })
    }
}

impl Deployment for CopsDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        WrenDeployment::default().layout(random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        WrenDeployment::default().hosts(layout)
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let options = Options {
            claims: true,
            durability: setting.durability,
            lease: self.options.lease.min(LEASE),
            ..self.options
        };
        let window = Window { items: 16, bytes: 6_000 };
        let options = if setting.small_queues { Options { window, ..options } } else { options };
        let (topology, region) =
            (WrenDeployment::topology(setting), WrenDeployment::region_of(setting.layout, process));
        match slot.partition {
            Some(partition) => Node::partition(topology, region, partition.0, options),
            None => Node::coordinator(topology, region, process, incarnation, options),
        }
    }

    fn claims(&self, instance: &mut Node) -> Vec<Claim> {
        instance.take_claims()
    }

    /// What is replicated is written, whether its coordinator lived to claim it or not.
    fn claims_of_message(&self, message: &Message) -> Vec<Claim> {
        let Message::Replicate { origin, id, at, observed, effects, .. } = message else { return Vec::new() };
        let of_keys = effects
            .iter()
            .flat_map(|of_key| of_key.effects.iter().map(|effect| (of_key.key.clone(), effect.clone())));
        let parts = RegionSet::default();
        vec![Claim {
            session: SessionId(0),
            transaction: *id,
            commit: Some(CommitStamp { at: *at, depends_on: observed.least(), region: *origin, parts }),
            snapshot: None,
            effects: of_keys.collect(),
            vector: VectorClaim::of(Vec::new(), observed.by_region(MOST_REGIONS), true),
            thread: None,
            requests: Vec::new(),
            branch: None,
        }]
    }

    fn reads_key_by_key(&self) -> bool {
        !self.options.transactions
    }

    fn lists_losses(&self) -> bool {
        true
    }

    fn keeps_siblings(&self) -> bool {
        self.options.keeps_siblings
    }

    fn losses(&self, instance: &Node) -> Option<Vec<ListedLoss>> {
        Some(instance.as_partition()?.conflicts().into_iter().map(told).collect())
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn holds(&self, _: Setting, _: RegionId, _: &[u8]) -> bool {
        true
    }

    fn undecided(&self, instance: &Node) -> usize {
        match instance {
            Node::Partition(partition) => partition.waiting() + partition.unreceived(),
            Node::Coordinator(coordinator) => coordinator.unsettled(),
        }
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }

    fn waits_for_clocks(&self) -> bool {
        true
    }

    /// Sessions share nothing, watches and interactive transactions are refused, and a lost suffix or disk is not survived yet. Deadlines compare with clocks
    /// that the checker does not know.
    fn lacks(&self) -> &[Feature] {
        &[
            Feature::SharedThreads,
            Feature::Interactive,
            Feature::Watches,
            Feature::ClockLeaps,
            Feature::OneClockLeaps,
            Feature::Expiry,
            Feature::BlindExpiry,
            Feature::LostDisks,
            Feature::EverySecond,
            Feature::Keyset,
            Feature::Reconfiguration,
            Feature::FadingRegions,
            Feature::Eviction,
        ]
    }
}
