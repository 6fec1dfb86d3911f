//! What a run shows whatever the costs are: how many round trips, and how many messages. One client, so that nothing
//! stands in a transaction's way, unless a test says otherwise.

use anabranch_figures::{
    COST, DATA_CENTER, Environment, LOCAL, Load, Measured, Setup, System, WIDE_AREA, run,
};
use bench::transactions::{Keys, Workload};

/// Reads and writes one key in each of `touched` shards of four. The client is in the last region, leaders in the first.
fn rmw(system: System, environment: Environment, touched: u16) -> Measured {
    let setup = Setup {
        environment,
        cost: COST,
        shards: 4,
        clients: 1,
        client_regions: vec![environment.regions.len() - 1],
        load: Load::Shards(touched, Keys::new(100_000, None)),
        measured: if environment.regions.len() > 1 { 8_000_000 } else { 1_000_000 },
        seed: 1,
    };
    let measured = run(system, &setup);
    assert!(measured.committed > 3 && measured.aborts == 0, "{measured:?}");
    measured
}

#[test]
fn tapir_commits_in_one_wide_area_round_trip_however_many_shards_take_part() {
    for touched in [1, 2, 4] {
        let measured = rmw(System::Tapir, WIDE_AREA, touched);
        assert_eq!(measured.round_trips, 1.0, "reads are local: {measured:?}");
        let farthest = 262_500;
        let local_reads = u64::from(touched) * 11_000;
        assert!((farthest..farthest + local_reads + 2_000).contains(&measured.p50_us), "{measured:?}");
    }
}

#[test]
fn a_leader_costs_more_round_trips_and_more_with_every_shard() {
    // With locks, to the leader for every read; to the leader, which needs a follower, to commit. Over two shards the votes
    // and the decision are each written by a quorum; a client that coordinates hears of the votes in between.
    let (reads, commit, votes, between) = (1.0, 2.0, 1.0, 1.0);
    let stamp = 1.0;
    let expected = [
        (System::TxnLocking, reads + commit, 2.0 * reads + commit + votes + between),
        (System::SpanLocking, reads + commit, 2.0 * reads + commit + votes),
        // Reads at the closest replicas cross no ocean.
        (System::TxnOcc, stamp + commit, stamp + commit + votes + between),
        (System::SpanOcc, commit, commit + votes),
    ];
    for (system, for_one, for_two) in expected {
        let (one, two) = (rmw(system, WIDE_AREA, 1), rmw(system, WIDE_AREA, 2));
        assert_eq!(one.round_trips, for_one, "{one:?}");
        assert_eq!(two.round_trips, for_two, "{two:?}");
        assert!(one.p50_us > rmw(System::Tapir, WIDE_AREA, 1).p50_us, "{one:?}");
    }
}

/// Section 7.3, figure 6: within a cluster Txn-OCC is the slowest because of its round trip to a timestamp server.
#[test]
fn a_timestamp_server_costs_a_round_trip() {
    for touched in [1, 2] {
        let [with, without] = [System::TxnOcc, System::TxnLocking].map(|system| rmw(system, LOCAL, touched));
        assert_eq!(with.round_trips, without.round_trips + 1.0, "{with:?} {without:?}");
        assert!(with.p50_us > without.p50_us, "{with:?} {without:?}");
    }
}

#[test]
fn qwstore_reads_locally_and_writes_in_a_round_trip_for_each_key() {
    for touched in [1, 2] {
        let measured = rmw(System::QwStore, WIDE_AREA, touched);
        assert_eq!(measured.round_trips, f64::from(touched), "{measured:?}");
    }
}

#[test]
fn messages_are_those_of_the_protocols_and_grow_with_the_shards_touched() {
    // Read and its answer; Prepare, vote, Commit and acknowledgement at three replicas.
    let tapir = 2 + 4 * 3;
    // Read and its answer; Write and acknowledgement at three replicas.
    let qwstore = 2 + 2 * 3;
    for (system, each) in [(System::Tapir, tapir), (System::QwStore, qwstore)] {
        for touched in [1, 2, 4] {
            let expected = f64::from(each * i32::from(touched));
            let found = rmw(system, DATA_CENTER, touched).messages;
            // A transaction is cut off at either end of what is measured.
            assert!((found / expected - 1.0).abs() < 0.02, "{}: {found}, not {expected}", system.name());
        }
    }
    // Execute, Prepare and their answers; the entry and that it is committed, with answers, at two followers.
    let one = |system| rmw(system, DATA_CENTER, 1).messages;
    for (system, each) in [(System::TxnLocking, 12.0), (System::SpanLocking, 12.0), (System::TxnOcc, 14.0)] {
        assert!((one(system) / each - 1.0).abs() < 0.02, "{}: {}", system.name(), one(system));
    }
    let indexed = |system| [2, 4].map(|touched| rmw(system, DATA_CENTER, touched).messages);
    let [two, four] = indexed(System::TxnLocking);
    assert!((four / two - 2.0).abs() < 0.05, "twice the shards, twice the messages: {two}, {four}");
    // The first participant writes its vote with the decision: an entry less, which it tells nobody by itself, and a
    // vote goes one way only.
    assert!(indexed(System::SpanLocking)[0] < two - 6.0, "{:?}, {two}", indexed(System::SpanLocking));
}

/// Many clients on few keys: conflicts, aborts, and all of it decided by the seed.
fn contended(system: System, seed: u64) -> Measured {
    let setup = Setup {
        environment: DATA_CENTER,
        cost: COST,
        shards: 2,
        clients: 12,
        client_regions: vec![0],
        load: Load::Mix(Workload::Retwis, Keys::new(40, Some(0.75))),
        measured: 1_000_000,
        seed,
    };
    run(system, &setup)
}

#[test]
fn a_seed_is_a_run() {
    for system in System::ALL {
        let first = contended(system, 7);
        assert_eq!(first, contended(system, 7));
        assert_ne!(first, contended(system, 8));
        assert!(first.committed > 50, "{first:?}");
        assert_eq!(first.aborts > 0, system != System::QwStore, "{first:?}");
    }
}

/// All replicas of TAPIR share the work; a leader does more than its followers, so that it is busy first.
#[test]
fn the_busiest_replica_has_less_to_do_without_a_leader() {
    let busy_each = |system| {
        let setup = Setup {
            environment: DATA_CENTER,
            cost: COST,
            shards: 1,
            clients: 6,
            client_regions: vec![0],
            load: Load::Mix(Workload::ReadModifyWrite { most_keys: 1 }, Keys::new(100_000, None)),
            measured: 300_000,
            seed: 1,
        };
        let measured = run(system, &setup);
        measured.busiest / measured.throughput
    };
    let (tapir, qwstore) = (busy_each(System::Tapir), busy_each(System::QwStore));
    let conventional = System::CONVENTIONAL.map(busy_each);
    let least = conventional.into_iter().fold(f64::INFINITY, f64::min);
    assert!(qwstore < tapir && tapir * 1.5 < least, "{qwstore} {tapir} {conventional:?}");
}
