//! COPS, COPS-GT and COPS-CD, laid out like Wren: two or three regions that hold everything; also with copies of every
//! partition. LOG, the same with one partition.

use super::causal::{PoccDeployment, WrenDeployment, as_listed};
use super::copies::{WrenCopiesDeployment, region_of};
use crate::deployment::{Deployment, Host, Layout, Setting};
use crate::faults::Feature;
use causal::cops::{Message, Node, Options};
use checker::{Level, ListedLoss};
use protocol::{Claim, Durability};
use replication::Window;
use replication::copies;
use std::time::Duration;
use types::{NodeId, RegionId, Rng, Timestamp};

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

    /// LOG, which lists no lost writes.
    pub fn serialized() -> Self {
        Self::new(Options { serialized: true, conflict_bytes: 0, ..Options::default() })
    }
}

impl Deployment for CopsDeployment {
    type Protocol = Node;

    fn layout(&self, random: &mut Rng) -> Layout {
        let layout = WrenDeployment::default().layout(random);
        let partitions = if self.options.serialized { 1 } else { layout.partitions };
        Layout { partitions, ..layout }
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        WrenDeployment::default().hosts(layout)
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node {
        let NodeId { process, incarnation, slot } = node;
        let options = Options { durability: setting.durability, ..set(setting, self.options) };
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

    /// What is written has happened, whether its coordinator lived to claim it or not.
    fn decided(&self, instance: &mut Node) -> Vec<Claim> {
        written(instance)
    }

    fn reads_key_by_key(&self) -> bool {
        !self.options.transactions
    }

    fn lists_losses(&self) -> bool {
        self.options.conflict_bytes > 0
    }

    fn keeps_siblings(&self) -> bool {
        self.options.keeps_siblings
    }

    fn losses(&self, instance: &Node) -> Option<Vec<ListedLoss>> {
        Some(instance.as_partition()?.conflicts().into_iter().map(as_listed).collect())
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn holds(&self, _: Setting, _: RegionId, _: &[u8]) -> bool {
        true
    }

    fn undecided(&self, instance: &Node) -> usize {
        undecided(instance)
    }

    fn evict(&self, region: RegionId, _: &Node) -> Option<Message> {
        Some(Message::Evict { regions: vec![region] })
    }

    fn has_heard(&self, instance: &Node, region: RegionId) -> bool {
        instance.as_partition().is_none_or(|partition| partition.knows_of_lost(&[region]))
    }

    fn cut_of(&self, instance: &Node, region: RegionId) -> Option<Timestamp> {
        instance.as_partition()?.end_of(region)
    }

    fn cuts_per_partition(&self) -> bool {
        true
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }

    fn waits_for_clocks(&self) -> bool {
        true
    }

    /// A lost suffix or disk is not survived yet. The baseline's regions are never evicted.
    fn lacks(&self) -> Vec<Feature> {
        LACKS[..LACKS.len() - usize::from(!self.options.serialized)].to_vec()
    }
}

/// What a run's setting says of an instance's options, but for what differs where it has copies.
fn set(setting: Setting, options: Options) -> Options {
    let window = Window { items: 16, bytes: 6_000 };
    let window = if setting.small_queues { window } else { options.window };
    Options { claims: true, lease: options.lease.min(LEASE), window, ..options }
}

fn written(instance: &mut Node) -> Vec<Claim> {
    let written = instance.take_written().into_iter();
    written.map(|(stamp, effects)| PoccDeployment::outcome(stamp, MOST_REGIONS, &effects)).collect()
}

fn undecided(instance: &Node) -> usize {
    match instance {
        Node::Partition(partition) => {
            partition.waiting() + partition.unreceived() + usize::from(partition.is_evicting())
        }
        Node::Coordinator(coordinator) => coordinator.unsettled(),
    }
}

/// Sessions share nothing, watches and interactive transactions are refused. Deadlines compare with clocks that the
/// checker does not know. Features that copies support come first, those that only copies lack last.
const LACKS: &[Feature] = &[
    Feature::LostDisks,
    Feature::EverySecond,
    Feature::SharedThreads,
    Feature::Interactive,
    Feature::Watches,
    Feature::ClockLeaps,
    Feature::OneClockLeaps,
    Feature::Expiry,
    Feature::FieldExpiry,
    Feature::BlindExpiry,
    Feature::Keyset,
    Feature::Reconfiguration,
    Feature::FadingRegions,
    Feature::Eviction,
];

/// COPS and COPS-GT with three copies of every partition in each region, laid out like Wren's.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopsCopiesDeployment {
    options: Options,
    copies: copies::Options,
}

impl CopsCopiesDeployment {
    /// One whose instances have these options, but for what the simulation decides, and whose groups have those.
    pub fn new(options: Options, copies: copies::Options) -> Self {
        CopsCopiesDeployment { options, copies }
    }

    /// COPS-GT.
    pub fn transactional() -> Self {
        Self::new(Options { transactions: true, ..Options::default() }, copies::Options::default())
    }
}

impl Deployment for CopsCopiesDeployment {
    type Protocol = copies::Node<Node>;

    fn layout(&self, random: &mut Rng) -> Layout {
        WrenCopiesDeployment::default().layout(random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        WrenCopiesDeployment::default().hosts(layout)
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> copies::Node<Node> {
        let NodeId { process, incarnation, slot } = node;
        let (topology, region) =
            (WrenCopiesDeployment::topology(setting), region_of(setting.layout, process));
        let groups = WrenCopiesDeployment::groups(setting.layout);
        // What a copy says waits for the group's log, whatever that waits for.
        let options = Options { durability: Durability::Written, copied: true, ..set(setting, self.options) };
        let of_group = copies::Options { durability: setting.durability, ..self.copies };
        match slot.partition {
            Some(partition) => {
                let partition = Node::partition(topology, region, partition.0, options);
                copies::Node::member(node, partition, groups, of_group)
            }
            None => {
                let coordinator = Node::coordinator(topology, region, process, incarnation, options);
                copies::Node::group_client(node, coordinator, groups)
            }
        }
    }

    fn claims(&self, instance: &mut copies::Node<Node>) -> Vec<Claim> {
        instance.protocol_mut().take_claims()
    }

    /// What a copy has applied is committed for good, unless it leads and waits for its log.
    fn decided(&self, instance: &mut copies::Node<Node>) -> Vec<Claim> {
        match instance.as_member().is_none_or(|member| member.is_ahead()) {
            true => Vec::new(),
            false => written(instance.protocol_mut()),
        }
    }

    fn lists_losses(&self) -> bool {
        true
    }

    /// The leader's list is the group's.
    fn losses(&self, instance: &copies::Node<Node>) -> Option<Vec<ListedLoss>> {
        instance.as_member().filter(|member| member.is_leader())?;
        Some(instance.protocol().as_partition()?.conflicts().into_iter().map(as_listed).collect())
    }

    fn reads_key_by_key(&self) -> bool {
        !self.options.transactions
    }

    fn is_causal(&self) -> bool {
        true
    }

    /// Also what copies that follow have not heard the end of: they keep no more than the leader for long.
    fn undecided(&self, instance: &copies::Node<Node>) -> usize {
        undecided(instance.protocol())
    }

    fn level(&self) -> Level {
        Level::TransactionalCausal
    }

    fn is_recovering(&self, instance: &copies::Node<Node>) -> bool {
        instance.as_member().is_some_and(copies::Member::is_lacking)
    }

    fn waits_for_clocks(&self) -> bool {
        true
    }

    fn lacks(&self) -> Vec<Feature> {
        LACKS[2..].to_vec()
    }
}
