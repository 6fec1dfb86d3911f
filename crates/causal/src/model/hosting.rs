//! Hosting of partitions with one process per region, and the textual state of any partition.

use super::options::Options;
use super::placement::topology;
use crate::stable::{self, Coordinator, Message, Node, Partition, Times, Topology};
use protocol::hosted::{
    Backlog, Holdings, Hosted, HostedNodes, Hosting, Lag, Locked, Nodes, Place, Turn, Waits,
};
use protocol::model::{ClusterShape, StoredOptions, read};
use replication::copies::Copied;
use std::marker::PhantomData;
use types::{PartitionId, RegionId, Slot, Timestamp, WallTime};

/// What hosting asks of a protocol's nodes: replicas of partitions, and coordinators.
pub(super) trait HostedNode: Copied<Message: Clone + Send, Timer: Send> + Send {
    /// The number of a replica's partition.
    fn index(&self) -> Option<u16>;

    /// True of a coordinator, and of a replica that lacks nothing.
    fn is_complete(&self) -> bool;

    /// A replica in words.
    fn state(&self) -> String;

    /// What replicas keep for other regions.
    fn backlog<'n>(nodes: impl Iterator<Item = &'n Self>) -> Backlog;

    /// What a replica holds; nothing of a coordinator.
    fn holdings(&self) -> Holdings;

    /// How old is what these nodes know of other regions.
    fn lag<'n>(nodes: impl Iterator<Item = &'n Self> + Clone, wall: WallTime) -> Lag;

    /// Who of these nodes has not heard of regions that are gone for good.
    fn news<'n>(
        tracker: &EvictionTracker,
        nodes: impl Iterator<Item = &'n Self> + Clone,
        options: &StoredOptions,
    ) -> Result<Option<Eviction<Self::Message>>, String>;
}

/// How the nodes of a keyspace are made in a process: its coordinator, and replicas by the number of their partition.
pub(super) struct NodeFactory<C, P> {
    pub(super) coordinator: C,
    pub(super) partition: P,
}

/// How those of the protocols of stable snapshots are made.
pub(super) fn factory<S: Times>(
    topology: &Topology,
    place: &Place<'_>,
    set_up: stable::Options,
) -> NodeFactory<Node<S>, impl Fn(u16) -> Node<S>> {
    let life = place.life;
    let (process, incarnation) = (life.process, life.incarnation);
    NodeFactory {
        coordinator: Node::coordinator(topology.clone(), life.region, process, incarnation, set_up),
        partition: move |partition| Node::partition(topology.clone(), life.region, partition, set_up),
    }
}

/// The instances of a keyspace in a process, each partition of a region on one process.
pub fn host_partitions<S: Times>(
    options: &Options,
    set_up: stable::Options,
    place: &Place<'_>,
) -> Box<dyn Hosted> {
    let topology = topology(options, place);
    host_each(&topology, place, factory::<S>(&topology, place, set_up))
}

/// The same, whatever the protocol.
pub(super) fn host_each<N: HostedNode>(
    topology: &Topology,
    place: &Place<'_>,
    factory: NodeFactory<N, impl Fn(u16) -> N>,
) -> Box<dyn Hosted> {
    let mut nodes = Nodes::new(place, place.coordinator(), factory.coordinator);
    for (partition, address) in topology.held(place.life.region) {
        if address.process == place.life.process {
            nodes.host(address, (factory.partition)(partition));
        }
    }
    let hosting = PartitionHosting::<N> { tracker: EvictionTracker::new(place), of: PhantomData };
    Box::new(HostedNodes::new(nodes, hosting))
}

struct PartitionHosting<N> {
    tracker: EvictionTracker,
    of: PhantomData<fn() -> N>,
}

impl<N: HostedNode> Hosting for PartitionHosting<N> {
    type Protocol = N;

    fn is_complete(&self, nodes: &Locked<'_, N>) -> bool {
        nodes.protocols().all(N::is_complete)
    }

    fn backlog(&self, nodes: &Locked<'_, N>) -> Backlog {
        N::backlog(nodes.protocols())
    }

    fn holdings(&self, node: &N) -> Holdings {
        node.holdings()
    }

    fn lag(&self, nodes: &Locked<'_, N>, wall: WallTime) -> Option<Lag> {
        Some(N::lag(nodes.protocols(), wall))
    }

    fn state(&self, nodes: &Locked<'_, N>) -> Vec<String> {
        nodes.protocols().filter(|node| node.index().is_some()).map(N::state).collect()
    }

    fn configure(
        &mut self,
        nodes: &mut Nodes<N>,
        options: &StoredOptions,
        turn: &mut Turn<'_>,
    ) -> Result<bool, String> {
        let news = N::news(&self.tracker, nodes.lock().protocols(), options)?;
        let Some(news) = news else { return Ok(false) };
        let keyspace = nodes.keyspace();
        if news.coordinator {
            nodes.tell(Slot::coordinator(keyspace), news.message.clone(), turn);
        }
        for partition in &news.partitions {
            nodes.tell(Slot::replica(keyspace, PartitionId(*partition)), news.message.clone(), turn);
        }
        Ok(true)
    }
}

impl<S: Times> HostedNode for Node<S> {
    fn index(&self) -> Option<u16> {
        self.as_partition().map(Partition::index)
    }

    fn is_complete(&self) -> bool {
        self.as_partition().is_none_or(Partition::is_serving)
    }

    fn state(&self) -> String {
        self.as_partition().map(partition_state).unwrap_or_default()
    }

    fn backlog<'n>(nodes: impl Iterator<Item = &'n Self>) -> Backlog {
        let none = Backlog { transfers: Some(0), ..Backlog::default() };
        nodes.filter_map(Node::as_partition).fold(none, |backlog, partition| {
            let (listed, dropped) = partition.listed_conflicts();
            Backlog {
                queued_bytes: backlog.queued_bytes + partition.queued_bytes(),
                spilled_bytes: backlog.spilled_bytes + partition.spilled_bytes(),
                transfers: backlog.transfers.map(|transfers| transfers + partition.transfers()),
                conflicts: backlog.conflicts + listed,
                conflicts_dropped: backlog.conflicts_dropped + dropped,
                ..backlog
            }
        })
    }

    fn holdings(&self) -> Holdings {
        self.as_partition().map(Partition::holdings).unwrap_or_default()
    }

    fn lag<'n>(nodes: impl Iterator<Item = &'n Self> + Clone, wall: WallTime) -> Lag {
        let age = |at: Timestamp| age_ms(at, wall);
        let waits = nodes.clone().filter_map(Node::as_partition).map(Partition::waits);
        let waits = waits.fold(Waits::default(), |all, one| Waits {
            reads: all.reads + one.reads,
            waited: all.waited + one.waited,
            micros: all.micros + one.micros,
        });
        let mut lag = Lag { waits, ..Lag::default() };
        for coordinator in nodes.clone().filter_map(Node::as_coordinator) {
            lag.snapshot_ms = age(coordinator.stable().readable().whole());
            let (now, ever) = coordinator.pessimistic_sessions();
            lag.degraded = (lag.degraded.0 + now, lag.degraded.1 + ever);
        }
        let partitions = nodes.filter_map(Node::as_partition);
        for (region, at) in partitions.flat_map(Partition::received_of_regions) {
            let behind = lag.regions.entry(region.to_owned()).or_default();
            *behind = age(at).max(*behind);
        }
        lag
    }

    fn news<'n>(
        tracker: &EvictionTracker,
        nodes: impl Iterator<Item = &'n Self> + Clone,
        options: &StoredOptions,
    ) -> Result<Option<Eviction<Message<S>>>, String> {
        tracker.news(nodes, options)
    }
}

/// Finds who has not heard of regions that are gone for good.
pub(super) struct EvictionTracker {
    cluster: ClusterShape,
}

/// Regions that are gone for good, and the instances here that have not heard of it.
pub(super) struct Eviction<M> {
    /// The message to them.
    pub(super) message: M,
    /// The coordinator, which may be the only instance of its region that is up.
    pub(super) coordinator: bool,
    /// These partitions.
    pub(super) partitions: Vec<u16>,
}

impl EvictionTracker {
    pub(super) fn new(place: &Place<'_>) -> Self {
        EvictionTracker { cluster: place.cluster.clone() }
    }

    /// The regions that are gone for good.
    pub(super) fn lost(&self, options: &Options) -> Vec<RegionId> {
        let regions = options.evicted.iter().filter_map(|region| self.cluster.region_of_name(region));
        regions.map(RegionId).collect()
    }

    /// Nothing if all of these instances know.
    fn news<'n, S: Times>(
        &self,
        nodes: impl Iterator<Item = &'n Node<S>> + Clone,
        options: &StoredOptions,
    ) -> Result<Option<Eviction<Message<S>>>, String> {
        if !S::EVICTS {
            return Ok(None);
        }
        let options: Options = read(options)?;
        let regions = self.lost(&options);
        if regions.is_empty() {
            return Ok(None);
        }
        let knows = |partition: &Partition<S>| {
            let known: Vec<&str> = partition.evicted().map(|(region, _)| region).collect();
            partition.is_evicted() || options.evicted.iter().all(|region| known.contains(&&**region))
        };
        let late = |own: &Coordinator<S>| regions.contains(&own.region()) && !own.is_evicted();
        let coordinator = nodes.clone().filter_map(Node::as_coordinator).any(late);
        let partitions = nodes.filter_map(Node::as_partition).filter(|partition| !knows(partition));
        let partitions: Vec<u16> = partitions.map(Partition::index).collect();
        let is_news = coordinator || !partitions.is_empty();
        let message = Message::Evict { regions };
        Ok(is_news.then_some(Eviction { message, coordinator, partitions }))
    }
}

/// How old something of this time is, in milliseconds.
pub(super) fn age_ms(at: Timestamp, wall: WallTime) -> u64 {
    wall.0.saturating_sub(at.wall().0) / 1000
}

/// A replica of a partition in words.
fn partition_state<S: Times>(partition: &Partition<S>) -> String {
    if !partition.is_serving() || partition.is_evicted() {
        return partition.why_not();
    }
    let conflicts = match partition.listed_conflicts() {
        (0, 0) => String::new(),
        (listed, 0) => format!(", {listed} conflicts listed"),
        (listed, dropped) => format!(", {listed} conflicts listed and {dropped} dropped from the full list"),
    };
    let gone: Vec<&str> = partition.evicted().map(|(region, _)| region).collect();
    let dependants = partition.dependants().map(|dependants| format!("; {dependants}")).unwrap_or_default();
    format!(
        "{}: serving, {} transactions ({} bytes{}) queued for other regions{conflicts}{dependants}{}{}",
        partition.index(),
        partition.unreceived(),
        partition.queued_bytes(),
        match partition.spilled_bytes() {
            0 => String::new(),
            spilled => format!(", and {spilled} in the spool"),
        },
        match partition.went_on_without() {
            [] => String::new(),
            silent => format!("; what only {} knew was given up", silent.join(", ")),
        },
        evicted(&gone, partition.is_evicting()),
    )
}

/// Which regions a partition goes on without, in words.
pub(super) fn evicted(gone: &[&str], is_under_way: bool) -> String {
    match (gone, is_under_way) {
        ([], _) => String::new(),
        (gone, true) => format!("; {} being evicted", gone.join(", ")),
        (gone, false) => format!("; {} evicted", gone.join(", ")),
    }
}
