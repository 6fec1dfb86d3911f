//! What Claret's evaluation shows whatever the costs are, on few keys and for a short time.

use anabranch_figures::claret::{LOCAL, Measured, Setup, System, WIDE_AREA, run};
use bench::claret::{RawMix, Retwis, Rubis, Unmodified, Workload};

fn raw_mix(keys: u32, zipf: f64, adds: u8) -> Workload {
    Workload::RawMix(RawMix { keys, zipf, adds, operations: 4 })
}

fn measure(system: System, workload: Workload, clients: usize) -> Measured {
    run(&setup(system, workload, clients))
}

fn setup(system: System, workload: Workload, clients: usize) -> Setup {
    Setup { system, environment: LOCAL, workload, clients, warm_up: 10_000, measured: 40_000, seed: 1 }
}

#[test]
fn a_seed_is_a_run_and_every_system_commits() {
    let rubis = Workload::Rubis(Rubis { items: 60, bid_heavy: true });
    let retwis = Workload::Retwis(Retwis { scale: 5, edge_factor: 4, post_heavy: true });
    let applications = [System::Claret, System::Optimistic];
    let runs: [(Workload, &[System]); 3] =
        [(raw_mix(40, 0.8, 50), &System::ALL), (rubis, &applications), (retwis, &applications)];
    for (workload, systems) in runs {
        for system in systems {
            let first = measure(*system, workload.clone(), 12);
            let kinds = first.committed.len();
            assert!(kinds >= 2 && first.throughput > 500.0, "{first:?}");
            if *system == System::Claret {
                assert_eq!(first, measure(*system, workload.clone(), 12));
            }
        }
    }
}

#[test]
fn additions_wait_for_nobody_in_the_types_modes() {
    let all_add = |system| measure(system, raw_mix(8, 0.0, 100), 16);
    let (baseline, typed) = (all_add(System::ReadWrite), all_add(System::Typed));
    assert_eq!((typed.waits, typed.conflicts, typed.wounds), (0, 0, 0), "{typed:?}");
    assert!(baseline.waits > 0, "{baseline:?}");
    assert!(typed.throughput > 3.0 * baseline.throughput, "{typed:?} {baseline:?}");
}

#[test]
fn posts_lock_their_own_places_in_a_timeline() {
    let retwis = Workload::Retwis(Retwis { scale: 8, edge_factor: 8, post_heavy: true });
    let post = |system| measure(system, retwis.clone(), 32);
    let (baseline, claret) = (post(System::ReadWrite), post(System::Claret));
    assert!(claret.throughput > 2.0 * baseline.throughput, "{claret:?} {baseline:?}");
    let met = claret.pairs.iter().filter(|conflict| conflict.keys == "timeline");
    assert!(met.map(|conflict| &conflict.wanted).all(|wanted| wanted != "write"), "{:?}", claret.pairs);
}

#[test]
fn looks_that_combine_send_less() {
    let all_look = |system| measure(system, raw_mix(4, 1.5, 0), 32);
    let (alone, together) = (all_look(System::TypedPhased), all_look(System::Claret));
    assert_eq!(alone.combined, 0);
    assert!(together.combined > 0 && together.packets < 0.8 * alone.packets, "{together:?} {alone:?}");
}

#[test]
fn who_meets_nobody_pays_nothing() {
    let calm = |system| measure(system, raw_mix(2_000, 0.0, 50), 2);
    let (baseline, claret) = (calm(System::ReadWrite), calm(System::Claret));
    assert!((claret.throughput / baseline.throughput - 1.0).abs() < 0.03, "{claret:?} {baseline:?}");
    assert!((claret.messages / baseline.messages - 1.0).abs() < 0.03, "{claret:?} {baseline:?}");
}

/// Where many meet, phases take those first that can hold a lock side by side.
#[test]
fn phases_let_more_transactions_through() {
    let throughput = |system| {
        let setup = setup(system, raw_mix(10_000, 0.6, 50), 256);
        // It takes some time until queues are as long as they come to be.
        run(&Setup { warm_up: 100_000, measured: 50_000, ..setup }).throughput
    };
    let [without, with] = [System::Typed, System::TypedPhased].map(throughput);
    assert!(with > 1.25 * without, "{with} and {without}");
}

/// A transaction leaves the shard that is wanted most to the end (decision 0031): nearly as many as of operations by themselves.
#[test]
fn what_many_want_is_held_over_no_round_trip() {
    let throughput = |system| {
        let setup = setup(system, raw_mix(10_000, 0.6, 50), 256);
        run(&Setup { warm_up: 200_000, measured: 100_000, ..setup }).throughput
    };
    let systems = [System::ReadWrite, System::TypedPhased, System::Claret, System::Unlocked];
    let [readwrite, held, claret, none] = systems.map(throughput);
    assert!(claret > 2.3 * readwrite, "{claret} {readwrite}");
    assert!(claret > 1.25 * held, "{claret} {held}");
    assert!(claret > 0.9 * none, "{claret} {none}");
}

#[test]
fn transactions_that_would_wait_for_one_another_become_one() {
    let skewed = |system| {
        let (workload, clients) = (raw_mix(1_000, 1.2, 50), 256);
        run(&Setup { warm_up: 50_000, measured: 100_000, ..setup(system, workload, clients) })
    };
    let (baseline, claret) = (skewed(System::ReadWrite), skewed(System::Claret));
    assert!(claret.throughput > 4.0 * baseline.throughput, "{claret:?} {baseline:?}");
}

/// Corrections 89: what unmodified clients send, over the ways of the wide area.
#[test]
fn single_commands_cross_the_wide_area() {
    let workload = || Workload::Unmodified(Unmodified { keys: 1_000, zipf: 0.0 });
    let (environment, warm_up, measured) = (WIDE_AREA, 500_000, 1_000_000);
    for system in [System::Claret, System::Optimistic] {
        let wide = run(&Setup { environment, warm_up, measured, ..setup(system, workload(), 32) });
        assert_eq!(wide.committed.len(), 4, "{wide:?}");
        let shortest = 2 * WIDE_AREA.delay(0, 1);
        assert!(wide.p99_us > shortest && wide.mean_us < 5.0 * shortest as f64, "{wide:?}");
    }
}

/// Corrections 89: single commands at a leader follow one another through its log, though each shows what the one before
/// it did.
#[test]
fn single_commands_hold_no_lock_over_a_round_trip() {
    let workload = Workload::Unmodified(Unmodified { keys: 1, zipf: 0.0 });
    let (environment, warm_up, measured) = (WIDE_AREA, 500_000, 1_000_000);
    let wide = run(&Setup { environment, warm_up, measured, ..setup(System::Claret, workload, 64) });
    // 64 clients, of whom half stand in the leader's region, 111 ms from the nearest majority, the others 111 ms or 167 further.
    assert!(wide.throughput > 200.0, "a lock that is held for 111 ms would allow 9 a second: {wide:?}");
    assert!(wide.p99_us < 300_000 && wide.failed == 0, "{wide:?}");
}

#[test]
fn however_many_clients_want_one_key_they_go_on_gathering() {
    let workload = raw_mix(10_000, 2.0, 50);
    let all = run(&Setup { warm_up: 100_000, measured: 200_000, ..setup(System::Claret, workload, 384) });
    assert!(all.throughput > 10_000.0 && all.unevenness < 0.3, "{all:?}");
}
