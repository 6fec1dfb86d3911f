//! Where sites and their record partitions are, and what a process hosts.

use anabranch_branch::model::{Branch, Options, topology};
use protocol::Durability;
use protocol::hosted::{Life, Place};
use protocol::model::{ClusterShape, Model, RegionShape, store};
use types::Address;
use types::{HashSeed, Incarnation, KeyspaceId, ProcessId, RegionId};

#[test]
fn records_go_to_the_processes_after_their_site() {
    let region = |name: &str, processes: [u16; 3]| RegionShape {
        name: name.to_owned(),
        processes: processes.to_vec(),
    };
    let regions = vec![region("a", [1, 2, 3]), region("b", [4, 5, 6])];
    let cluster = ClusterShape { seed: HashSeed(7), regions };
    let life = Life {
        process: ProcessId(1),
        region: RegionId(0),
        incarnation: Incarnation(1),
        durability: Durability::Written,
        accept_loss: false,
        region_queue_bytes: 0,
        region_spill_bytes: 0,
    };
    let place = Place { cluster: &cluster, keyspace: KeyspaceId(4), life };
    let topology = |partitions| {
        let topology = topology(&Options { partitions, ..Options::default() }, &place);
        let process = |place: &Address| (place.process.0, place.slot.partition.map(|partition| partition.0));
        let sites: Vec<_> = topology.sites.iter().map(process).collect();
        let records: Vec<Vec<_>> =
            topology.partitions.iter().map(|places| places.iter().map(process).collect()).collect();
        (sites, records)
    };
    let sites = vec![(2, Some(0)), (5, Some(0))];
    assert_eq!(topology(1), (sites.clone(), vec![vec![], vec![]]));
    let records = vec![vec![(3, Some(1)), (1, Some(2))], vec![(6, Some(1)), (4, Some(2))]];
    assert_eq!(topology(2), (sites, records));
    let branch = Branch::new(|_| Err(String::new()));
    let hosted = branch.host(&store(&Options { partitions: 2, ..Options::default() }), &place).unwrap();
    assert_eq!(hosted.partitions(), [2]);
}
