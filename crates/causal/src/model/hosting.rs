//! What a process is told of partitions that one process of a region keeps, and of any partition in words.

use super::options::Options;
use super::placement::topology;
use crate::stable::{self, Coordinator, Message, Node, Partition, Times};
use protocol::hosted::{Backlog, Hosted, HostedNodes, Hosting, Lag, Nodes, Place, Turn, Waits};
use protocol::model::{ClusterShape, StoredOptions, read};
use std::marker::PhantomData;
use types::{PartitionId, RegionId, Slot, Timestamp, WallTime};

/// The instances of a keyspace in a process, each partition of a region on one process.
pub fn host_partitions<S: Times>(
    options: &Options,
    set_up: stable::Options,
    place: &Place<'_>,
) -> Box<dyn Hosted> {
    let (topology, life) = (topology(options, place), place.life);
    let coordinator =
        Node::<S>::coordinator(topology.clone(), life.region, life.process, life.incarnation, set_up);
    let mut nodes = Nodes::new(place, place.coordinator(), coordinator);
    for (partition, address) in topology.held(life.region) {
        if address.process == life.process {
            nodes.host(address, Node::partition(topology.clone(), life.region, partition, set_up));
        }
    }
    Box::new(HostedNodes::new(
        nodes,
        PartitionHosting::<S> { evicting: Evicting::new(place), of: PhantomData },
    ))
}

struct PartitionHosting<S> {
    evicting: Evicting,
    of: PhantomData<fn() -> S>,
}

impl<S: Times> Hosting for PartitionHosting<S> {
    type Protocol = Node<S>;

    fn is_complete(&self, nodes: &Nodes<Node<S>>) -> bool {
        nodes.protocols().filter_map(Node::as_partition).all(Partition::is_serving)
    }

    fn backlog(&self, nodes: &Nodes<Node<S>>) -> Backlog {
        backlog(nodes.protocols())
    }

    fn lag(&self, nodes: &Nodes<Node<S>>, wall: WallTime) -> Option<Lag> {
        Some(lag(nodes.protocols(), wall))
    }

    fn state(&self, nodes: &Nodes<Node<S>>) -> Vec<String> {
        nodes.protocols().filter_map(Node::as_partition).map(partition_state).collect()
    }

    fn configure(
        &mut self,
        nodes: &mut Nodes<Node<S>>,
        options: &StoredOptions,
        turn: &mut Turn<'_>,
    ) -> Result<bool, String> {
        let Some(news) = self.evicting.news(nodes.protocols(), options)? else { return Ok(false) };
        let keyspace = nodes.keyspace();
        if news.coordinator {
            nodes.tell(Slot::coordinator(keyspace), news.message(), turn);
        }
        for partition in &news.partitions {
            nodes.tell(Slot::replica(keyspace, PartitionId(*partition)), news.message(), turn);
        }
        Ok(true)
    }
}

/// Finds who has not heard of regions that are gone for good.
pub(super) struct Evicting {
    cluster: ClusterShape,
}

/// Regions that are gone for good, and the instances here that have not heard of it.
pub(super) struct Eviction {
    regions: Vec<RegionId>,
    /// The coordinator, which may be the only instance of its region that is up.
    pub(super) coordinator: bool,
    /// These partitions.
    pub(super) partitions: Vec<u16>,
}

impl Eviction {
    /// What they are told.
    pub(super) fn message<S: Times>(&self) -> Message<S> {
        Message::Evict { regions: self.regions.clone() }
    }
}

impl Evicting {
    pub(super) fn new(place: &Place<'_>) -> Self {
        Evicting { cluster: place.cluster.clone() }
    }

    /// Nothing if all of these instances know.
    pub(super) fn news<'n, S: Times>(
        &self,
        nodes: impl Iterator<Item = &'n Node<S>> + Clone,
        options: &StoredOptions,
    ) -> Result<Option<Eviction>, String> {
        if !S::EVICTS {
            return Ok(None);
        }
        let options: Options = read(options)?;
        let regions = options.evicted.iter().filter_map(|region| self.cluster.region_of_name(region));
        let regions: Vec<RegionId> = regions.map(RegionId).collect();
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
        Ok(is_news.then_some(Eviction { regions, coordinator, partitions }))
    }
}

/// What partitions keep for other regions.
pub(super) fn backlog<'n, S: Times>(nodes: impl Iterator<Item = &'n Node<S>>) -> Backlog {
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

/// How old something of this time is, in milliseconds.
pub(super) fn age_ms(at: Timestamp, wall: WallTime) -> u64 {
    wall.0.saturating_sub(at.wall().0) / 1000
}

/// How old is what these instances know of other regions.
pub(super) fn lag<'n, S: Times>(nodes: impl Iterator<Item = &'n Node<S>> + Clone, wall: WallTime) -> Lag {
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

/// A replica of a partition in words.
pub(super) fn partition_state<S: Times>(partition: &Partition<S>) -> String {
    if !partition.is_serving() || partition.is_evicted() {
        return partition.why_not();
    }
    let conflicts = match partition.listed_conflicts() {
        (0, 0) => String::new(),
        (listed, 0) => format!(", {listed} conflicts listed"),
        (listed, dropped) => format!(", {listed} conflicts listed and {dropped} dropped from the full list"),
    };
    let gone: Vec<&str> = partition.evicted().map(|(region, _)| region).collect();
    format!(
        "{}: serving, {} transactions ({} bytes{}) queued for other regions{conflicts}{}{}",
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
        match (gone.as_slice(), partition.is_evicting()) {
            ([], _) => String::new(),
            (gone, true) => format!("; {} being evicted", gone.join(", ")),
            (gone, false) => format!("; {} evicted", gone.join(", ")),
        }
    )
}
