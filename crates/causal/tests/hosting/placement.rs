//! Where partitions and their copies are, and what a process hosts.

use anabranch_causal::model::{Causal, Options, Protocol, groups, topology};
use anabranch_causal::stable::RegionTopology;
use protocol::Durability;
use protocol::hosted::{Life, Place};
use protocol::model::{ClusterShape, Model, RegionShape, store};
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
        transactions: false,
        partitions: 3,
        protocol,
        replicas,
        copies,
        regions: Vec::new(),
        ignore_conflicts: false,
        keep_conflicts: false,
        handler: None,
        keeps_dependants: false,
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
    let host = |options: &Options| Causal::BARE.host(&store(options), &place).unwrap();
    assert_eq!(host(&options(None, 1)).partitions(), [1]);
    assert_eq!(host(&options(None, 3)).partitions(), [0, 1, 2]);
    assert_eq!(host(&options(Some(2), 1)).partitions(), [2]);
    assert_eq!(host(&options(Some(2), 3)).partitions(), [0, 2]);
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
