//! Which process keeps what: computed alike by every process from the cluster's file.
//!
//! A strict keyspace has 2f+1 replicas of every shard over all regions: on every process, or on as many as it says,
//! shard s from process number s modulo the processes on. A causal one has every partition once in every region:
//! partition p on the process number p modulo the region's processes; with copies, on as many from that one on. One that says how
//! many replicas it has, has partition p in as many regions, from region number p modulo its regions on, and a region's n-th
//! partition where Wren has partition n.

use crate::cluster::config::{
    ClusterConcurrency, ClusterFile, ClusterIsolation, ClusterKeyspace, ClusterModel, ClusterMove,
    ClusterProtocol,
};
use crate::cluster::keyspace::ReplicatedKeyspace;
use crate::cluster::nodes::Nodes;
use crate::recovery::NoReplies;
use branch::{Keep, Policy, site};
use causal::stable::{self, RegionTopology, Times, Topology};
use protocol::{Durability, Input, Now, Protocol, Replica};
use replication::copies::{self, Groups};
use std::collections::BTreeSet;
use std::time::Duration;
use strict::ir::Configuration;
use strict::{locking, qwstore, tapir};
use types::{Address, HashSeed, Incarnation, KeyspaceId, PartitionId, ProcessId, RegionId, Rng, Slot};

/// This process in this life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) process: ProcessId,
    pub(crate) region: RegionId,
    pub(crate) incarnation: Incarnation,
    pub(crate) durability: Durability,
    /// What is lost is given up; see `ClusterOptions`.
    pub(crate) accept_loss: bool,
    /// See `Options`.
    pub(crate) region_queue_bytes: usize,
    /// 0 where there is no disk.
    pub(crate) region_spill_bytes: u64,
}

fn address(process: u16, keyspace: KeyspaceId, partition: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(keyspace, PartitionId(partition)) }
}

fn strict_topology(file: &ClusterFile, keyspace: KeyspaceId, entry: &ClusterKeyspace) -> tapir::Topology {
    let mut processes: Vec<u16> = file.processes.iter().map(|process| process.id).collect();
    processes.sort_unstable();
    let shard = |partition: u16| match entry.replicas.map(usize::from) {
        Some(replicas) if replicas < processes.len() => {
            let from = processes.iter().cycle().skip(usize::from(partition) % processes.len());
            from.take(replicas).map(|process| address(*process, keyspace, partition)).collect()
        }
        _ => processes.iter().map(|process| address(*process, keyspace, partition)).collect(),
    };
    let shards = (0..entry.partitions).map(shard).collect();
    let mut topology =
        tapir::Topology { shards, epochs: Default::default(), keyspace, seed: HashSeed(file.seed) };
    for (partition, moved) in entry.moved.iter().filter(|(_, moved)| moved.epoch > 0) {
        let members = moved.processes.iter().map(|process| address(*process, keyspace, *partition)).collect();
        topology.learn(*partition, &Configuration { epoch: moved.epoch, members });
    }
    topology
}

/// The partitions that a region holds, each with the addresses of its copies there.
fn held(
    file: &ClusterFile,
    keyspace: KeyspaceId,
    entry: &ClusterKeyspace,
    region: u16,
) -> impl Iterator<Item = (u16, Vec<Address>)> {
    let (processes, copies) = (file.processes_of(region), usize::from(entry.copies.unwrap_or(1)));
    let held =
        (0..entry.partitions).filter(move |partition| entry.holders(file, *partition).contains(&region));
    held.enumerate().map(move |(place, partition)| {
        let from = processes.iter().cycle().skip(place % processes.len()).take(copies);
        (partition, from.map(|process| address(*process, keyspace, partition)).collect())
    })
}

fn causal_topology(file: &ClusterFile, keyspace: KeyspaceId, entry: &ClusterKeyspace) -> Topology {
    let region = |region| {
        let first = |(partition, copies): (u16, Vec<Address>)| Some((partition, *copies.first()?));
        let partitions = held(file, keyspace, entry, region).filter_map(first).collect();
        RegionTopology { name: file.region_name(region), partitions }
    };
    Topology { regions: (0..file.regions()).map(region).collect(), keyspace, seed: HashSeed(file.seed) }
}

/// The instances of one keyspace that this process hosts.
pub(crate) fn build(
    file: &ClusterFile,
    id: KeyspaceId,
    entry: &ClusterKeyspace,
    life: Life,
) -> ReplicatedKeyspace {
    if entry.dropped {
        return ReplicatedKeyspace::Dropped;
    }
    match entry.model {
        ClusterModel::Strict => strict_keyspace(file, strict_topology(file, id, entry), entry, life),
        ClusterModel::Causal => {
            let topology = causal_topology(file, id, entry);
            if entry.is_copied() {
                let groups = groups(file, id, entry);
                return match entry.is_partial() {
                    true => ReplicatedKeyspace::PartialCopied(copied_nodes(topology, groups, entry, life)),
                    false => ReplicatedKeyspace::Copied(copied_nodes(topology, groups, entry, life)),
                };
            }
            match entry.protocol {
                ClusterProtocol::Usual if entry.is_partial() => {
                    ReplicatedKeyspace::Partial(causal_nodes(topology, entry, life))
                }
                ClusterProtocol::Usual => ReplicatedKeyspace::Causal(causal_nodes(topology, entry, life)),
                ClusterProtocol::Cure | ClusterProtocol::CureApplied => {
                    ReplicatedKeyspace::Cure(causal_nodes(topology, entry, life))
                }
                ClusterProtocol::HCure | ClusterProtocol::HCureApplied => {
                    ReplicatedKeyspace::HybridCure(causal_nodes(topology, entry, life))
                }
                ClusterProtocol::Bpr => ReplicatedKeyspace::Blocking(causal_nodes(topology, entry, life)),
                ClusterProtocol::Nocc => {
                    ReplicatedKeyspace::Uncoordinated(causal_nodes(topology, entry, life))
                }
            }
        }
        ClusterModel::Branch => {
            ReplicatedKeyspace::Branch(branch_nodes(branch_topology(file, id, entry), entry, life))
        }
    }
}

fn strict_keyspace(
    file: &ClusterFile,
    topology: tapir::Topology,
    entry: &ClusterKeyspace,
    life: Life,
) -> ReplicatedKeyspace {
    let concurrency = match entry.concurrency {
        ClusterConcurrency::Optimistic => {
            let mut nodes = tapir_nodes(topology.clone(), entry, life);
            for partition in joining(entry, life) {
                nodes.host(tapir_replica(&topology, entry, partition, life));
            }
            return ReplicatedKeyspace::Strict(nodes);
        }
        ClusterConcurrency::Locking if entry.without_locks => locking::Concurrency::Unlocked,
        ClusterConcurrency::Locking => locking::Concurrency::Locking,
        ClusterConcurrency::Occ => locking::Concurrency::Optimistic,
        ClusterConcurrency::QwStore => return ReplicatedKeyspace::QwStore(unordered_nodes(topology, life)),
    };
    let regions: BTreeSet<_> = file.processes.iter().map(|process| process.region).collect();
    let phasing = (!entry.without_phases).then(locking::Phasing::default);
    let options = locking::Options {
        concurrency,
        coordinates: locking::Coordinates::over(regions.len()),
        locks: locking::LockOptions { phasing, readers_and_writers: entry.readers_and_writers },
        combining: (!entry.without_combining).then(locking::Combining::default),
        durability: life.durability,
        near: Some(life.process),
        region: life.region,
        ..locking::Options::default()
    };
    let coordinator =
        locking::Node::coordinator(topology.clone(), life.process, life.incarnation, options.clone());
    ReplicatedKeyspace::Locking(shard_nodes(&topology, life, coordinator, |shard, index| {
        locking::Node::replica(topology.clone(), shard, index, life.incarnation, options.clone())
    }))
}

/// The replicas and the coordinator of a keyspace without transactions.
fn unordered_nodes(topology: tapir::Topology, life: Life) -> Nodes<qwstore::Node> {
    let options = qwstore::Options { durability: life.durability, ..qwstore::Options::default() };
    let coordinator =
        qwstore::Node::coordinator(topology.clone(), life.process, life.incarnation, options.clone());
    shard_nodes(&topology, life, coordinator, |_, _| qwstore::Node::replica(&topology, &options))
}

/// What may be altered of a keyspace's options.
pub(crate) fn clocks(entry: &ClusterKeyspace) -> tapir::Clocks {
    let standard = tapir::Clocks::default();
    tapir::Clocks {
        bound: entry.clock_bound_ms.map_or(standard.bound, Duration::from_millis),
        wait: entry.skew_wait_ms.map_or(standard.wait, Duration::from_millis),
    }
}

/// The partitions whose replicas this process was to join.
fn joining(entry: &ClusterKeyspace, life: Life) -> impl Iterator<Item = u16> + '_ {
    let here = move |(_, moved): &(&u16, &ClusterMove)| moved.joining.contains(&life.process.0);
    entry.moved.iter().filter(here).map(|(partition, _)| *partition)
}

/// Hosts the replicas that were asked to join since the keyspace was built: they have never said anything, so they miss
/// nothing. True if there were any.
pub(crate) fn join(
    file: &ClusterFile,
    id: KeyspaceId,
    entry: &ClusterKeyspace,
    life: Life,
    keyspace: &mut ReplicatedKeyspace,
    now: Now,
) -> bool {
    let ReplicatedKeyspace::Strict(nodes) = keyspace else { return false };
    let known = nodes.partitions();
    let mut any = false;
    for partition in joining(entry, life).filter(|partition| !known.contains(partition)) {
        let mut replica = tapir_replica(&strict_topology(file, id, entry), entry, partition, life);
        replica.step(
            now,
            &mut vec![Input::Recovered { complete: true }],
            &mut Rng::new(),
            &mut NoReplies::new(),
        );
        any |= nodes.host(replica);
    }
    any
}

fn tapir_options(entry: &ClusterKeyspace, life: Life) -> tapir::Options {
    tapir::Options {
        durability: life.durability,
        near: Some(life.process),
        region: life.region,
        isolation: match entry.isolation {
            ClusterIsolation::Strict => tapir::Isolation::Strict,
            ClusterIsolation::Serializable => tapir::Isolation::Serializable,
        },
        clock_bound: clocks(entry).bound,
        skew_wait: clocks(entry).wait,
        ..tapir::Options::default()
    }
}

fn tapir_replica(
    topology: &tapir::Topology,
    entry: &ClusterKeyspace,
    partition: u16,
    life: Life,
) -> Replica<tapir::Node> {
    let node = tapir::Node::replica_at(
        topology.clone(),
        partition,
        life.process,
        life.incarnation,
        tapir_options(entry, life),
    );
    Replica::new(address(life.process.0, topology.keyspace, partition).at(life.incarnation), node)
}

fn tapir_nodes(topology: tapir::Topology, entry: &ClusterKeyspace, life: Life) -> Nodes<tapir::Node> {
    let options = tapir_options(entry, life);
    let coordinator =
        tapir::Node::coordinator(topology.clone(), life.process, life.incarnation, options.clone());
    shard_nodes(&topology, life, coordinator, |shard, index| {
        tapir::Node::replica(topology.clone(), shard, index, life.incarnation, options.clone())
    })
}

/// The coordinator of this process and its replicas of every shard.
fn shard_nodes<P: Protocol>(
    topology: &tapir::Topology,
    life: Life,
    coordinator: P,
    replica: impl Fn(u16, usize) -> P,
) -> Nodes<P> {
    let at = |address: Address| address.at(life.incarnation);
    let mut replicas = vec![Replica::new(at(topology.coordinator(life.process)), coordinator)];
    for (shard, members) in (0..).zip(&topology.shards) {
        if let Some(index) = members.iter().position(|member| member.process == life.process) {
            replicas.push(Replica::new(at(members[index]), replica(shard, index)));
        }
    }
    Nodes::new(life.process, topology.keyspace, replicas)
}

/// The groups of a causal keyspace whose partitions have copies, each named by the address that its topology has.
fn groups(file: &ClusterFile, keyspace: KeyspaceId, entry: &ClusterKeyspace) -> Groups {
    let of_region = |region| held(file, keyspace, entry, region).map(|(_, copies)| copies);
    Groups::new((0..file.regions()).flat_map(of_region))
}

fn copied_nodes<S: Times>(
    topology: Topology,
    groups: Groups,
    entry: &ClusterKeyspace,
    life: Life,
) -> Nodes<copies::Node<stable::Node<S>>> {
    let of_group = copies::Options { durability: life.durability, ..copies::Options::default() };
    // What a copy says waits for the group's log, however durable that is at each of them.
    let options =
        stable::Options { durability: Durability::Written, copied: true, ..causal_options(entry, life) };
    let keyspace = topology.keyspace;
    let at = |slot| Address { process: life.process, slot }.at(life.incarnation);
    let coordinator =
        stable::Node::coordinator(topology.clone(), life.region, life.process, life.incarnation, options);
    let place = at(Slot::coordinator(keyspace));
    let mut replicas = vec![Replica::new(place, copies::Node::guest(place, coordinator, groups.clone()))];
    for (partition, group) in topology.held(life.region) {
        let members = groups.members(group).iter();
        for _ in members.filter(|member| member.process == life.process) {
            let place = at(group.slot);
            let node = stable::Node::partition(topology.clone(), life.region, partition, options);
            replicas.push(Replica::new(place, copies::Node::member(place, node, groups.clone(), of_group)));
        }
    }
    Nodes::new(life.process, keyspace, replicas)
}

fn causal_options(entry: &ClusterKeyspace, life: Life) -> stable::Options {
    let options = stable::Options {
        durability: life.durability,
        accept_loss: life.accept_loss,
        queue_bytes: life.region_queue_bytes,
        spill_bytes: life.region_spill_bytes,
        applied_reads: entry.protocol.is_applied(),
        ..stable::Options::default()
    };
    let conflict_bytes = if entry.ignore_conflicts { 0 } else { options.conflict_bytes };
    stable::Options { conflict_bytes, ..options }
}

fn causal_nodes<S: Times>(topology: Topology, entry: &ClusterKeyspace, life: Life) -> Nodes<stable::Node<S>> {
    let options = causal_options(entry, life);
    let keyspace = topology.keyspace;
    let coordinator =
        stable::Node::coordinator(topology.clone(), life.region, life.process, life.incarnation, options);
    let at = |slot| Address { process: life.process, slot }.at(life.incarnation);
    let mut replicas = vec![Replica::new(at(Slot::coordinator(keyspace)), coordinator)];
    for (partition, address) in
        topology.held(life.region).filter(|(_, address)| address.process == life.process)
    {
        let node = stable::Node::partition(topology.clone(), life.region, partition, options);
        replicas.push(Replica::new(at(address.slot), node));
    }
    Nodes::new(life.process, keyspace, replicas)
}

/// The sites of keyspace k are dealt out as causal partitions are: in each region on its process number k modulo the
/// region's processes. Records that lie in partitions of their own follow, partition p on the process number k + p; the
/// site itself has the number 0.
fn branch_topology(file: &ClusterFile, keyspace: KeyspaceId, entry: &ClusterKeyspace) -> site::Topology {
    let at = |region: u16, partition: u16| {
        let processes = file.processes_of(region);
        let place = (usize::from(keyspace.0) + usize::from(partition)) % processes.len();
        address(processes[place], keyspace, partition)
    };
    let apart = if entry.partitions > 1 { entry.partitions } else { 0 };
    let records = |region| (1..=apart).map(|partition| at(region, partition)).collect();
    site::Topology {
        sites: (0..file.regions()).map(|region| at(region, 0)).collect(),
        partitions: (0..file.regions()).map(records).collect(),
        keyspace,
    }
}

/// What may be altered of a branch keyspace.
pub(crate) fn branching(entry: &ClusterKeyspace) -> site::Options {
    let branching = &entry.branching;
    let every = Duration::from_millis(branching.merge_every_ms);
    let merging = match branching.merges_by_handler {
        _ if every.is_zero() => site::Merging::Manual,
        true => site::Merging::Handler { every },
        false => site::Merging::Auto { every },
    };
    let local = if branching.forks_locally { site::Local::Branch } else { site::Local::Serialize };
    let policy = if branching.newest_wins { Policy::Newest } else { Policy::Refuse };
    let collect = match branching.collects_early {
        true => site::Collecting::Optimistic,
        false => site::Collecting::Pessimistic,
    };
    let keep =
        Keep { states: branching.keep, time: Duration::from_millis(branching.keep_for_ms.unwrap_or(0)) };
    let queue = branching.queue_bytes;
    site::Options { merging, local, policy, keep, collect, queue, ..site::Options::default() }
}

/// The merge handler of a branch keyspace. It was read when it was given: one that is not read now comes from another
/// version of the program, and is as good as none: nothing is merged by it.
pub(crate) fn handler(entry: &ClusterKeyspace) -> Option<Box<dyn branch::Handler>> {
    let source = entry.branching.handler.as_deref()?;
    match scripts::Program::new(source) {
        Ok(program) => Some(Box::new(program)),
        Err(reason) => {
            tracing::error!(keyspace = entry.name, %reason, "the merge handler cannot be used");
            None
        }
    }
}

fn branch_nodes(topology: site::Topology, entry: &ClusterKeyspace, life: Life) -> Nodes<branch::Instance> {
    let options = site::Options { durability: life.durability, ..branching(entry) };
    let (keyspace, region) = (topology.keyspace, usize::from(life.region.0));
    let site = topology.sites[region];
    let here = topology.partitions[region].iter().filter(|place| place.process == life.process);
    let records: Vec<_> = here
        .map(|place| {
            let part = branch::Instance::part(site, options.durability, options.mutants);
            Replica::new(place.at(life.incarnation), part)
        })
        .collect();
    let first = if site.process == life.process {
        let mut instance = branch::Instance::site(topology, region, life.incarnation, options);
        if let Some(site) = instance.as_site_mut() {
            site.set_handler(handler(entry));
        }
        Replica::new(site.at(life.incarnation), instance)
    } else {
        let address = Address { process: life.process, slot: Slot::coordinator(keyspace) };
        Replica::new(address.at(life.incarnation), branch::Instance::forward(site, life.incarnation))
    };
    Nodes::new(life.process, keyspace, std::iter::once(first).chain(records).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::config::ClusterProcess;
    use std::path::PathBuf;

    fn file(regions: u16, each: u16) -> ClusterFile {
        let process = |id: u16| ClusterProcess {
            id,
            region: (id - 1) / each,
            region_name: char::from(b'a' + ((id - 1) / each) as u8).to_string(),
            peer_address: ([127, 0, 0, 1], id).into(),
        };
        ClusterFile {
            seed: 7,
            processes: (1..=regions * each).map(process).collect(),
            catalog: PathBuf::new(),
        }
    }

    fn entry(model: ClusterModel, replicas: Option<u16>) -> ClusterKeyspace {
        ClusterKeyspace { replicas, ..ClusterKeyspace::new("any".to_owned(), model, 3) }
    }

    #[test]
    fn strict_shards_are_on_as_many_processes_as_they_say() {
        let on = |processes: u16, replicas| {
            let topology =
                strict_topology(&file(processes, 1), KeyspaceId(0), &entry(ClusterModel::Strict, replicas));
            let processes = |members: &Vec<Address>| members.iter().map(|member| member.process.0).collect();
            topology.shards.iter().map(processes).collect::<Vec<Vec<u16>>>()
        };
        assert_eq!(on(3, None), [[1, 2, 3], [1, 2, 3], [1, 2, 3]]);
        assert_eq!(on(3, Some(3)), on(3, None));
        assert_eq!(on(5, Some(3)), [[1, 2, 3], [2, 3, 4], [3, 4, 5]]);
    }

    #[test]
    fn causal_partitions_are_dealt_out_inside_each_region() {
        let topology = causal_topology(&file(2, 2), KeyspaceId(1), &entry(ClusterModel::Causal, None));
        let processes = |region: usize| -> Vec<u16> {
            topology.regions[region].partitions.values().map(|replica| replica.process.0).collect()
        };
        assert_eq!((processes(0), processes(1)), (vec![1, 2, 1], vec![3, 4, 3]));
    }

    #[test]
    fn partly_replicated_partitions_are_in_as_many_of_their_regions_as_they_say() {
        let held = |entry: &ClusterKeyspace| -> Vec<Vec<(u16, u16)>> {
            let topology = causal_topology(&file(3, 2), KeyspaceId(1), entry);
            let region = |region: &RegionTopology| {
                region.partitions.iter().map(|(partition, replica)| (*partition, replica.process.0)).collect()
            };
            topology.regions.iter().map(region).collect()
        };
        let mut partial = entry(ClusterModel::Causal, Some(2));
        assert_eq!(held(&partial), [vec![(0, 1), (2, 2)], vec![(0, 3), (1, 4)], vec![(1, 5), (2, 6)]]);
        partial.regions = vec!["c".to_owned(), "a".to_owned()];
        assert_eq!(held(&partial), [vec![(0, 1), (1, 2), (2, 1)], vec![], vec![(0, 5), (1, 6), (2, 5)]]);
        partial.replicas = Some(1);
        assert_eq!(held(&partial), [vec![(1, 1)], vec![], vec![(0, 5), (2, 6)]]);
    }

    #[test]
    fn records_of_a_branch_keyspace_go_to_the_processes_after_its_site() {
        let topology = |partitions| {
            let entry = ClusterKeyspace { partitions, ..entry(ClusterModel::Branch, None) };
            let topology = branch_topology(&file(2, 3), KeyspaceId(4), &entry);
            let process =
                |place: &Address| (place.process.0, place.slot.partition.map(|partition| partition.0));
            let sites: Vec<_> = topology.sites.iter().map(process).collect();
            let records: Vec<Vec<_>> =
                topology.partitions.iter().map(|places| places.iter().map(process).collect()).collect();
            (sites, records)
        };
        let sites = vec![(2, Some(0)), (5, Some(0))];
        assert_eq!(topology(1), (sites.clone(), vec![vec![], vec![]]));
        let records = vec![vec![(3, Some(1)), (1, Some(2))], vec![(6, Some(1)), (4, Some(2))]];
        assert_eq!(topology(2), (sites, records));
    }

    #[test]
    fn a_process_hosts_what_is_placed_on_it() {
        let life = Life {
            process: ProcessId(2),
            region: RegionId(0),
            incarnation: Incarnation(1),
            durability: Durability::Written,
            accept_loss: false,
            region_queue_bytes: 1 << 20,
            region_spill_bytes: 0,
        };
        let partitions =
            |model, replicas| build(&file(3, 3), KeyspaceId(4), &entry(model, replicas), life).partitions();
        assert_eq!(partitions(ClusterModel::Strict, None), [0, 1, 2]);
        assert_eq!(partitions(ClusterModel::Strict, Some(3)), [0, 1]);
        assert_eq!(partitions(ClusterModel::Causal, None), [1]);
        let copied = ClusterKeyspace { copies: Some(3), ..entry(ClusterModel::Causal, None) };
        assert_eq!(copied.check_copies(&file(3, 3)), Ok(()));
        assert_eq!(build(&file(3, 3), KeyspaceId(4), &copied, life).partitions(), [0, 1, 2]);
        assert!(copied.check_copies(&file(3, 2)).is_err_and(|why| why.contains("region 'a' has 2")));
        let baseline = ClusterKeyspace { protocol: ClusterProtocol::Bpr, ..copied };
        assert!(baseline.check_copies(&file(3, 3)).is_err_and(|why| why.contains("PROTOCOL bpr")));
    }

    /// Region a holds partitions 0 and 2, the second one from its second process on.
    #[test]
    fn partly_replicated_partitions_have_copies_in_each_of_their_regions() {
        let entry = ClusterKeyspace { copies: Some(3), ..entry(ClusterModel::Causal, Some(2)) };
        assert_eq!(entry.check_copies(&file(3, 3)), Ok(()));
        let topology = causal_topology(&file(3, 3), KeyspaceId(1), &entry);
        let groups = groups(&file(3, 3), KeyspaceId(1), &entry);
        let members = |region: usize, partition: u16| -> Vec<u16> {
            let group = topology.regions[region].partitions[&partition];
            groups.members(group).iter().map(|member| member.process.0).collect()
        };
        assert_eq!((members(0, 0), members(0, 2)), (vec![1, 2, 3], vec![2, 3, 1]));
        assert_eq!((members(1, 0), members(1, 1)), (vec![4, 5, 6], vec![5, 6, 4]));
        assert!(!topology.regions[0].partitions.contains_key(&1));
    }

    #[test]
    fn a_region_that_holds_nothing_needs_no_processes_for_copies() {
        let regions = vec!["a".to_owned(), "b".to_owned()];
        let entry = ClusterKeyspace { copies: Some(3), regions, ..entry(ClusterModel::Causal, Some(2)) };
        let mut file = file(3, 3);
        file.processes.pop();
        assert_eq!(entry.check_copies(&file), Ok(()));
        let everywhere = ClusterKeyspace { regions: Vec::new(), ..entry };
        assert!(everywhere.check_copies(&file).is_err_and(|why| why.contains("region 'c' has 2")));
    }
}
