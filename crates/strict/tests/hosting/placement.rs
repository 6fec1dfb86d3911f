//! Where shards are, and what a process hosts.

use protocol::Durability;
use protocol::hosted::{Life, Place};
use protocol::model::{ClusterShape, Model, RegionShape, store};
use strict::model::{Concurrency, LockingOptions, OptimisticOptions, Options, Strict, topology};
use types::Address;
use types::{HashSeed, Incarnation, KeyspaceId, ProcessId, RegionId};

fn cluster(processes: u16) -> ClusterShape {
    let region = |id| RegionShape { name: format!("r{id}"), processes: vec![id] };
    ClusterShape { seed: HashSeed(7), regions: (1..=processes).map(region).collect() }
}

const LIFE: Life = Life {
    process: ProcessId(2),
    region: RegionId(1),
    incarnation: Incarnation(1),
    durability: Durability::Written,
    accept_loss: false,
    region_queue_bytes: 1 << 20,
    region_spill_bytes: 0,
};

fn options(replicas: Option<u16>) -> Options {
    let concurrency = Concurrency::Optimistic(OptimisticOptions::default());
    Options {
        partitions: 3,
        replicas,
        concurrency,
        moved: Default::default(),
        eviction: None,
        max_memory: None,
    }
}

#[test]
fn shards_are_on_as_many_processes_as_they_say() {
    let on = |processes: u16, replicas| {
        let cluster = cluster(processes);
        let place = Place { cluster: &cluster, keyspace: KeyspaceId(0), life: LIFE };
        let topology = topology(&options(replicas), &place);
        let processes = |members: &Vec<Address>| members.iter().map(|member| member.process.0).collect();
        topology.shards.iter().map(processes).collect::<Vec<Vec<u16>>>()
    };
    assert_eq!(on(3, None), [[1, 2, 3], [1, 2, 3], [1, 2, 3]]);
    assert_eq!(on(3, Some(3)), on(3, None));
    assert_eq!(on(5, Some(3)), [[1, 2, 3], [2, 3, 4], [3, 4, 5]]);
}

#[test]
fn a_process_hosts_what_is_placed_on_it() {
    let cluster = cluster(9);
    let place = Place { cluster: &cluster, keyspace: KeyspaceId(4), life: LIFE };
    let host = |options: Options| Strict.host(&store(&options), &place).unwrap();
    assert_eq!(host(options(None)).partitions(), [0, 1, 2]);
    assert_eq!(host(options(Some(3))).partitions(), [0, 1]);
    let locking = LockingOptions { phasing: true, combining: true };
    let locking = Options { concurrency: Concurrency::Locking(locking), ..options(Some(3)) };
    assert_eq!(host(locking).partitions(), [0, 1]);
}
