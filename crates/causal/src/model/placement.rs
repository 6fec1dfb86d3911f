//! Where the partitions of a causal keyspace are: computed alike by every process. Every region has every partition once:
//! partition p on the process number p modulo the region's processes; with copies, on as many from that one on. A keyspace that
//! says how many replicas it has, has partition p in as many regions, from region number p modulo its regions on, and a
//! region's n-th partition where it would have partition n.

use super::options::{Options, Protocol};
use crate::stable::{self, RegionTopology, Scope, Topology};
use protocol::hosted::Place;
use replication::copies::Groups;
use types::Address;

/// The partitions that a region holds, each with the addresses of its copies there.
fn held<'p>(
    options: &'p Options,
    place: &'p Place<'_>,
    region: u16,
) -> impl Iterator<Item = (u16, Vec<Address>)> + 'p {
    let processes = place.cluster.processes_of(region);
    let is_held = move |partition: &u16| options.holders(place.cluster, *partition).contains(&region);
    (0..options.partitions).filter(is_held).enumerate().map(move |(position, partition)| {
        let from = processes.iter().cycle().skip(position % processes.len());
        let copies = from.take(usize::from(options.copies));
        (partition, copies.map(|process| place.address(*process, partition)).collect())
    })
}

/// Who keeps what.
pub fn topology(options: &Options, place: &Place<'_>) -> Topology {
    let region = |region| {
        let first = |(partition, copies): (u16, Vec<Address>)| Some((partition, *copies.first()?));
        let partitions = held(options, place, region).filter_map(first).collect();
        RegionTopology { name: place.cluster.region_name(region).to_owned(), partitions }
    };
    let regions = (0..place.cluster.region_count()).map(region).collect();
    Topology { regions, keyspace: place.keyspace, seed: place.cluster.seed }
}

/// By partition: the processes that keep it, region by region.
pub(super) fn processes(options: &Options, place: &Place<'_>) -> Vec<Vec<u16>> {
    let mut processes = vec![Vec::new(); usize::from(options.partitions)];
    for (partition, copies) in
        (0..place.cluster.region_count()).flat_map(|region| held(options, place, region))
    {
        processes[usize::from(partition)].extend(copies.iter().map(|copy| copy.process.0));
    }
    processes
}

/// The groups of a keyspace whose partitions have copies, each named by the address that its topology has.
pub fn groups(options: &Options, place: &Place<'_>) -> Groups {
    let of_region = |region| held(options, place, region).map(|(_, copies)| copies);
    Groups::new((0..place.cluster.region_count()).flat_map(of_region))
}

/// How nodes are set up in a process.
pub fn set_up(options: &Options, place: &Place<'_>) -> stable::Options {
    let standard = stable::Options::default();
    // Where sessions know what they depend on, a shared thread would let each wait for what others have seen (Corrections 72).
    let scope = if options.protocol == Protocol::Pocc { Scope::Session } else { standard.scope };
    stable::Options {
        durability: place.life.durability,
        accept_loss: place.life.accept_loss,
        queue_bytes: place.life.region_queue_bytes,
        spill_bytes: place.life.region_spill_bytes,
        scope,
        conflict_bytes: if options.ignore_conflicts { 0 } else { standard.conflict_bytes },
        keeps_dependants: options.keeps_dependants,
        ..standard
    }
}
