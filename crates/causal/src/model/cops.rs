//! What a process shows of partitions of COPS.

use super::copied::host_groups;
use super::hosting::{Eviction, EvictionTracker, HostedNode, NodeFactory, age_ms, evicted, host_each};
use super::options::Options;
use super::placement::topology;
use crate::cops::{self, Handler, Message, Node, Partition};
use protocol::Durability;
use protocol::hosted::{Backlog, Holdings, Hosted, Lag, Place};
use protocol::model::{StoredOptions, read};
use std::sync::Arc;
use types::WallTime;

/// How nodes are set up in a process. What a copy says waits for the group's log, however durable that is at each of them.
fn set_up(options: &Options, serialized: bool, place: &Place<'_>) -> cops::Options {
    let (copied, standard) = (options.is_copied(), cops::Options::default());
    cops::Options {
        transactions: options.transactions,
        serialized,
        durability: if copied { Durability::Written } else { place.life.durability },
        accept_loss: place.life.accept_loss,
        queue_bytes: place.life.region_queue_bytes,
        conflict_bytes: if options.ignore_conflicts { 0 } else { standard.conflict_bytes },
        copied,
        keeps_siblings: options.keep_conflicts,
        ..standard
    }
}

/// The instances of a keyspace in a process; `serialized` as in [`cops::Options::serialized`].
pub fn host_cops(
    options: &Options,
    serialized: bool,
    handler: Option<Arc<dyn Handler>>,
    place: &Place<'_>,
) -> Box<dyn Hosted> {
    let (topology, life, set_up) = (topology(options, place), place.life, set_up(options, serialized, place));
    let (process, incarnation) = (life.process, life.incarnation);
    let factory = NodeFactory {
        coordinator: Node::coordinator(topology.clone(), life.region, process, incarnation, set_up),
        partition: |partition| {
            let mut node = Node::partition(topology.clone(), life.region, partition, set_up);
            node.set_handler(handler.clone());
            node
        },
    };
    match options.is_copied() {
        true => host_groups(options, &topology, place, factory),
        false => host_each(&topology, place, factory),
    }
}

impl HostedNode for Node {
    fn index(&self) -> Option<u16> {
        self.as_partition().map(Partition::index)
    }

    fn is_complete(&self) -> bool {
        self.as_partition().is_none_or(Partition::is_serving)
    }

    fn state(&self) -> String {
        self.as_partition().map(state).unwrap_or_default()
    }

    fn backlog<'n>(nodes: impl Iterator<Item = &'n Self>) -> Backlog {
        nodes.filter_map(Node::as_partition).fold(Backlog::default(), |backlog, partition| {
            let (listed, dropped) = partition.listed_conflicts();
            Backlog {
                queued_bytes: backlog.queued_bytes + partition.queued_bytes(),
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
        let mut lag = Lag::default();
        let partitions = nodes.filter_map(Node::as_partition);
        for (region, at) in partitions.flat_map(Partition::written_of_regions) {
            let behind = lag.regions.entry(region.to_owned()).or_default();
            *behind = age_ms(at, wall).max(*behind);
        }
        lag.snapshot_ms = lag.regions.values().copied().max().unwrap_or(0);
        lag
    }

    fn news<'n>(
        tracker: &EvictionTracker,
        nodes: impl Iterator<Item = &'n Self> + Clone,
        options: &StoredOptions,
    ) -> Result<Option<Eviction<Message>>, String> {
        let regions = tracker.lost(&read(options)?);
        let partitions = nodes.filter_map(Node::as_partition);
        let late = partitions.filter(|partition| !partition.knows_of_lost(&regions));
        let partitions: Vec<u16> = late.map(Partition::index).collect();
        let (is_news, message) = (!partitions.is_empty(), Message::Evict { regions });
        Ok(is_news.then_some(Eviction { message, coordinator: false, partitions }))
    }
}

/// A replica of a partition in words.
fn state(partition: &Partition) -> String {
    if !partition.is_serving() || partition.is_evicted() {
        return partition.why_not();
    }
    let gone: Vec<&str> = partition.evicted().map(|(region, _)| region).collect();
    let given_up = partition.given_up().map(|given_up| format!("; {given_up}")).unwrap_or_default();
    format!(
        "{}: serving, {} writes ({} bytes) queued for other regions, {} of theirs wait for what they depend on{given_up}{}",
        partition.index(),
        partition.unreceived(),
        partition.queued_bytes(),
        partition.waiting(),
        evicted(&gone, partition.is_evicting())
    )
}
