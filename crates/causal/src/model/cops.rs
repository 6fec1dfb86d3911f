//! What a process is told of partitions of COPS, each on one process of a region.

use super::hosting::age_ms;
use super::options::Options;
use super::placement::topology;
use crate::cops::{self, Handler, Node, Partition};
use protocol::hosted::{Backlog, Hosted, HostedNodes, Hosting, Lag, Nodes, Place};
use std::sync::Arc;
use types::WallTime;

/// How nodes are set up in a process.
fn set_up(options: &Options, place: &Place<'_>) -> cops::Options {
    let standard = cops::Options::default();
    cops::Options {
        transactions: options.transactions,
        durability: place.life.durability,
        accept_loss: place.life.accept_loss,
        queue_bytes: place.life.region_queue_bytes,
        conflict_bytes: if options.ignore_conflicts { 0 } else { standard.conflict_bytes },
        keeps_siblings: options.keep_conflicts,
        ..standard
    }
}

/// The instances of a keyspace in a process.
pub(super) fn host_cops(
    options: &Options,
    handler: Option<Arc<dyn Handler>>,
    place: &Place<'_>,
) -> Box<dyn Hosted> {
    let (topology, life) = (topology(options, place), place.life);
    let set_up = set_up(options, place);
    let coordinator =
        Node::coordinator(topology.clone(), life.region, life.process, life.incarnation, set_up);
    let mut nodes = Nodes::new(place, place.coordinator(), coordinator);
    for (partition, address) in topology.held(life.region) {
        if address.process == life.process {
            let mut node = Node::partition(topology.clone(), life.region, partition, set_up);
            node.set_handler(handler.clone());
            nodes.host(address, node);
        }
    }
    Box::new(HostedNodes::new(nodes, CopsHosting))
}

struct CopsHosting;

fn partitions(nodes: &Nodes<Node>) -> impl Iterator<Item = &Partition> {
    nodes.protocols().filter_map(Node::as_partition)
}

impl Hosting for CopsHosting {
    type Protocol = Node;

    fn is_complete(&self, nodes: &Nodes<Node>) -> bool {
        partitions(nodes).all(Partition::is_serving)
    }

    fn backlog(&self, nodes: &Nodes<Node>) -> Backlog {
        partitions(nodes).fold(Backlog::default(), |backlog, partition| {
            let (listed, dropped) = partition.listed_conflicts();
            Backlog {
                queued_bytes: backlog.queued_bytes + partition.queued_bytes(),
                conflicts: backlog.conflicts + listed,
                conflicts_dropped: backlog.conflicts_dropped + dropped,
                ..backlog
            }
        })
    }

    fn lag(&self, nodes: &Nodes<Node>, wall: WallTime) -> Option<Lag> {
        let mut lag = Lag::default();
        for (region, at) in partitions(nodes).flat_map(Partition::written_of_regions) {
            let behind = lag.regions.entry(region.to_owned()).or_default();
            *behind = age_ms(at, wall).max(*behind);
        }
        lag.snapshot_ms = lag.regions.values().copied().max().unwrap_or(0);
        Some(lag)
    }

    fn state(&self, nodes: &Nodes<Node>) -> Vec<String> {
        partitions(nodes).map(state).collect()
    }
}

/// A replica of a partition in words.
fn state(partition: &Partition) -> String {
    if !partition.is_serving() {
        return partition.why_not();
    }
    format!(
        "{}: serving, {} writes ({} bytes) queued for other regions, {} of theirs wait for what they depend on",
        partition.index(),
        partition.unreceived(),
        partition.queued_bytes(),
        partition.waiting()
    )
}
