//! Where the partitions of a causal keyspace are: computed alike by every process. Every region has every partition once:
//! partition p on the process number p modulo the region's processes; with copies, on as many from that one on. A keyspace that
//! says how many replicas it has, has partition p in as many regions, from region number p modulo its regions on, and a
//! region's n-th partition where it would have partition n.

use super::options::Options;
use crate::stable::{self, RegionTopology, Topology};
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

/// The groups of a keyspace whose partitions have copies, each named by the address that its topology has.
pub fn groups(options: &Options, place: &Place<'_>) -> Groups {
    let of_region = |region| held(options, place, region).map(|(_, copies)| copies);
    Groups::new((0..place.cluster.region_count()).flat_map(of_region))
}

/// How nodes are set up in a process.
pub fn set_up(options: &Options, place: &Place<'_>) -> stable::Options {
    let standard = stable::Options::default();
    stable::Options {
        durability: place.life.durability,
        accept_loss: place.life.accept_loss,
        queue_bytes: place.life.region_queue_bytes,
        spill_bytes: place.life.region_spill_bytes,
        conflict_bytes: if options.ignore_conflicts { 0 } else { standard.conflict_bytes },
        ..standard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Protocol, host};
    use protocol::Durability;
    use protocol::hosted::Life;
    use protocol::model::{ClusterShape, RegionShape};
    use types::{HashSeed, Incarnation, KeyspaceId, ProcessId, RegionId};

    const LIFE: Life = Life {
        process: ProcessId(2),
        region: RegionId(0),
        incarnation: Incarnation(1),
        durability: Durability::Written,
        accept_loss: false,
        region_queue_bytes: 1 << 20,
        region_spill_bytes: 0,
    };

    fn cluster(regions: u16, each: u16) -> ClusterShape {
        let region = |region: u16| RegionShape {
            name: char::from(b'a' + region as u8).to_string(),
            processes: (region * each + 1..=(region + 1) * each).collect(),
        };
        ClusterShape { seed: HashSeed(7), regions: (0..regions).map(region).collect() }
    }

    fn options(replicas: Option<u16>, copies: u16) -> Options {
        let protocol = if replicas.is_some() { Protocol::Paris } else { Protocol::Wren };
        Options {
            partitions: 3,
            protocol,
            replicas,
            copies,
            regions: Vec::new(),
            ignore_conflicts: false,
            evicted: Vec::new(),
        }
    }

    fn held_of(cluster: &ClusterShape, options: &Options) -> Vec<Vec<(u16, u16)>> {
        let topology = topology(options, &Place { cluster, keyspace: KeyspaceId(1), life: LIFE });
        let region = |region: &RegionTopology| {
            region.partitions.iter().map(|(partition, replica)| (*partition, replica.process.0)).collect()
        };
        topology.regions.iter().map(region).collect()
    }

    #[test]
    fn partitions_are_dealt_out_inside_each_region() {
        let held = held_of(&cluster(2, 2), &options(None, 1));
        assert_eq!(held, [vec![(0, 1), (1, 2), (2, 1)], vec![(0, 3), (1, 4), (2, 3)]]);
    }

    #[test]
    fn partly_replicated_partitions_are_in_as_many_of_their_regions_as_they_say() {
        let held = |options: &Options| held_of(&cluster(3, 2), options);
        let mut partial = options(Some(2), 1);
        assert_eq!(held(&partial), [vec![(0, 1), (2, 2)], vec![(0, 3), (1, 4)], vec![(1, 5), (2, 6)]]);
        partial.regions = vec!["c".to_owned(), "a".to_owned()];
        assert_eq!(held(&partial), [vec![(0, 1), (1, 2), (2, 1)], vec![], vec![(0, 5), (1, 6), (2, 5)]]);
        partial.replicas = Some(1);
        assert_eq!(held(&partial), [vec![(1, 1)], vec![], vec![(0, 5), (2, 6)]]);
    }

    #[test]
    fn a_process_hosts_what_is_placed_on_it() {
        let cluster = cluster(3, 3);
        let place = Place { cluster: &cluster, keyspace: KeyspaceId(4), life: LIFE };
        assert_eq!(host(&options(None, 1), &place).partitions(), [1]);
        assert_eq!(host(&options(None, 3), &place).partitions(), [0, 1, 2]);
        assert_eq!(host(&options(Some(2), 1), &place).partitions(), [2]);
        assert_eq!(host(&options(Some(2), 3), &place).partitions(), [0, 2]);
    }

    /// Region a holds partitions 0 and 2, the second one from its second process on.
    #[test]
    fn partly_replicated_partitions_have_copies_in_each_of_their_regions() {
        let (cluster, options) = (cluster(3, 3), options(Some(2), 3));
        assert_eq!(options.check(&cluster), Ok(()));
        let place = Place { cluster: &cluster, keyspace: KeyspaceId(1), life: LIFE };
        let (topology, groups) = (topology(&options, &place), groups(&options, &place));
        let members = |region: usize, partition: u16| -> Vec<u16> {
            let group = topology.regions[region].partitions[&partition];
            groups.members(group).iter().map(|member| member.process.0).collect()
        };
        assert_eq!((members(0, 0), members(0, 2)), (vec![1, 2, 3], vec![2, 3, 1]));
        assert_eq!((members(1, 0), members(1, 1)), (vec![4, 5, 6], vec![5, 6, 4]));
        assert!(!topology.regions[0].partitions.contains_key(&1));
    }
}
