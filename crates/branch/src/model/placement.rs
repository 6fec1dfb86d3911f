//! Where the sites of a branch keyspace are: computed alike by every process. The site of keyspace k is in each region on its
//! process number k modulo the region's processes. Records that lie in partitions of their own follow, partition p on the
//! process number k + p; the site itself has the number 0.

use super::options::Options;
use crate::{Handler, Instance, site};
use protocol::hosted::{Nodes, Place};
use types::Address;

/// Who keeps what.
pub fn topology(options: &Options, place: &Place<'_>) -> site::Topology {
    let at = |region: u16, partition: u16| -> Address {
        let processes = place.cluster.processes_of(region);
        let index = (usize::from(place.keyspace.0) + usize::from(partition)) % processes.len();
        place.address(processes[index], partition)
    };
    let partitions = if options.partitions > 1 { options.partitions } else { 0 };
    let records = |region| (1..=partitions).map(|partition| at(region, partition)).collect();
    let regions = 0..place.cluster.region_count();
    site::Topology {
        sites: regions.clone().map(|region| at(region, 0)).collect(),
        partitions: regions.map(records).collect(),
        keyspace: place.keyspace,
    }
}

/// The instances in a process: the site of its region or the way to it, and records.
pub(super) fn nodes(
    options: &Options,
    handler: Option<Box<dyn Handler>>,
    place: &Place<'_>,
) -> Nodes<Instance> {
    let (topology, life) = (topology(options, place), place.life);
    let set_up = site::Options { durability: life.durability, ..options.set_up() };
    let region = usize::from(life.region.0);
    let (site, records) = (topology.sites[region], topology.partitions[region].clone());
    let mut nodes = if site.process == life.process {
        let mut instance = Instance::site(topology, region, life.incarnation, set_up);
        if let Some(site) = instance.as_site_mut() {
            site.set_handler(handler);
        }
        Nodes::new(place, site, instance)
    } else {
        Nodes::new(place, place.coordinator(), Instance::forward(site, life.incarnation))
    };
    for at in records.into_iter().filter(|at| at.process == life.process) {
        nodes.host(at, Instance::part(site, set_up.durability, set_up.mutants));
    }
    nodes
}
