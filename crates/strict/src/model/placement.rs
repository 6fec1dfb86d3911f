//! Where the replicas of a strict keyspace are: computed alike by every process. A shard has 2f+1 replicas over all regions:
//! on every process, or on as many as the keyspace says, shard s from process number s modulo the processes on.

use super::locking::LockingHosting;
use super::options::{Concurrency, LockingOptions, Options};
use super::tapir::{self, TapirHosting};
use crate::Topology;
use crate::ir::Configuration;
use crate::locking;
use protocol::Protocol;
use protocol::hosted::{Hosted, HostedNodes, Nodes, Place};
use types::Address;

/// Who keeps what.
pub fn topology(options: &Options, place: &Place<'_>) -> Topology {
    let processes = place.cluster.processes();
    let shard = |partition: u16| -> Vec<Address> {
        let replicas = options.replicas.map_or(processes.len(), usize::from);
        // Where every process keeps a replica, all name them in one order.
        let first = if replicas < processes.len() { usize::from(partition) % processes.len() } else { 0 };
        let from = processes.iter().cycle().skip(first).take(replicas.min(processes.len()));
        from.map(|process| place.address(*process, partition)).collect()
    };
    let shards = (0..options.partitions).map(shard).collect();
    let (keyspace, seed) = (place.keyspace, place.cluster.seed);
    let mut topology = Topology { shards, epochs: Default::default(), keyspace, seed };
    for (partition, moved) in options.moved.iter().filter(|(_, moved)| moved.epoch > 0) {
        let members = moved.processes.iter().map(|process| place.address(*process, *partition)).collect();
        topology.learn(*partition, &Configuration { epoch: moved.epoch, members });
    }
    topology
}

/// A keyspace's instances in a process.
pub(super) fn host(options: Options, place: &Place<'_>) -> Result<Box<dyn Hosted>, String> {
    let topology = topology(&options, place);
    Ok(match &options.concurrency {
        Concurrency::Optimistic(optimistic) => {
            let nodes = tapir::nodes(&topology, &options, optimistic, place);
            Box::new(HostedNodes::new(nodes, TapirHosting::new(options, place)))
        }
        Concurrency::Locking(locking) => host_locking(&topology, locking_options(locking, place), place),
        Concurrency::Occ => {
            let locks = LockingOptions { phasing: true, combining: true };
            let concurrency = locking::Concurrency::Optimistic;
            let options = locking::Options { concurrency, ..locking_options(&locks, place) };
            host_locking(&topology, options, place)
        }
        Concurrency::Solo(_) => return Err("one process keeps it by itself, without instances".to_owned()),
    })
}

/// How replicas with leaders are set up in a process.
pub fn locking_options(options: &LockingOptions, place: &Place<'_>) -> locking::Options {
    let phasing = options.phasing.then(locking::Phasing::default);
    locking::Options {
        coordinates: locking::Coordinates::over(place.cluster.regions.len()),
        locks: locking::LockOptions { phasing, readers_and_writers: false },
        combining: options.combining.then(locking::Combining::default),
        durability: place.life.durability,
        near: Some(place.life.process),
        region: place.life.region,
        ..locking::Options::default()
    }
}

/// The instances of a keyspace with leaders in a process.
pub fn host_locking(topology: &Topology, options: locking::Options, place: &Place<'_>) -> Box<dyn Hosted> {
    let life = place.life;
    let coordinator =
        locking::Node::coordinator(topology.clone(), life.process, life.incarnation, options.clone());
    let nodes = host_shards(topology, place, coordinator, |shard, index| {
        locking::Node::replica(topology.clone(), shard, index, life.incarnation, options.clone())
    });
    Box::new(HostedNodes::new(nodes, LockingHosting::new(place.cluster.seed)))
}

/// The coordinator of a process and its replicas of every shard.
pub fn host_shards<P: Protocol>(
    topology: &Topology,
    place: &Place<'_>,
    coordinator: P,
    replica: impl Fn(u16, usize) -> P,
) -> Nodes<P> {
    let mut nodes = Nodes::new(place, place.coordinator(), coordinator);
    for (shard, members) in (0..).zip(&topology.shards) {
        if let Some(index) = members.iter().position(|member| member.process == place.life.process) {
            nodes.host(members[index], replica(shard, index));
        }
    }
    nodes
}
