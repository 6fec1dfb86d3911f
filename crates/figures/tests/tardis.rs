//! What a run of TARDiS and of the same store without branches shows whatever the costs are.

use anabranch_figures::tardis::{
    BRANCHING, COSTS, Costs, Load, Measured, Mergeable, Setup, Slice, System, run,
};
use bench::transactions::Keys;

const TARDIS: System = System::Tardis(BRANCHING);

/// A few clients on few keys, which all write.
fn contended(system: System) -> Setup {
    Setup {
        system,
        sites: 1,
        processors: 4,
        clients: 8,
        load: Load::Micro { writers: 100, keys: Keys::new(60, Some(0.99)) },
        costs: COSTS,
        round_trip: 150_000,
        keep: 10,
        ceilings: None,
        warm_up: 50,
        measured: 200,
        seed: 1,
    }
}

fn measure(setup: &Setup) -> Measured {
    let measured = run(setup);
    assert!(measured.committed > 20, "{measured:?}");
    measured
}

/// Section 7.1.3: what conflicts forks. Without branches it waits, or fails.
#[test]
fn where_branches_are_allowed_nothing_fails() {
    let ours = measure(&contended(TARDIS));
    assert_eq!(ours.failed, 0);
    assert!(ours.heads > 1.0, "{ours:?}");
    for system in [System::Plain, System::Locking, System::Typed, System::Occ] {
        let theirs = measure(&contended(system));
        assert!(theirs.failed > 0 && theirs.throughput < ours.throughput, "{theirs:?} {ours:?}");
        assert!(theirs.heads <= 1.0);
    }
}

/// Section 7.1.5: with collection there are not more states later than sooner.
#[test]
fn states_are_collected_as_fast_as_they_are_made() {
    let grown = |system| {
        let measured = measure(&Setup { measured: 800, ..contended(system) });
        let (sooner, later) = measured.slices.split_at(measured.slices.len() / 2);
        let states = |slices: &[Slice]| slices.iter().map(|slice| slice.states).sum::<usize>() as f64;
        states(later) / states(sooner)
    };
    let (ours, hoarding) = (grown(TARDIS), grown(System::Hoarding));
    assert!(ours < 1.3 && hoarding > 1.6, "{ours} {hoarding}");
}

/// Section 7.1.5: what clients' ceilings let go goes, and by its own policy a site keeps at most twice what it would if
/// collection took no time.
#[test]
fn states_are_at_most_twice_the_fewest_possible() {
    let load = Load::Micro { writers: 100, keys: Keys::new(10_000, Some(0.99)) };
    let policy = Setup { clients: 32, keep: 100, warm_up: 400, load, ..contended(TARDIS) };
    let measured = measure(&policy);
    assert!(measured.states < 2.0 * measured.ideal_states as f64, "{measured:?}");
    // By clients' ceilings, longer ago than merges are.
    let placed = Setup { keep: 0, ceilings: Some(100), ..policy };
    let measured = measure(&placed);
    let ideal = 32.0 * 100.0;
    assert!((0.3 * ideal..2.0 * ideal).contains(&measured.states), "{measured:?}");
}

/// A site that has time to spare merges the heads of many clients often, and collects what that leaves: most keys have one version.
#[test]
fn heads_lie_side_by_side_for_a_short_time_only() {
    const KEYS: u32 = 10_000;
    let load = Load::Micro { writers: 100, keys: Keys::new(KEYS, Some(0.99)) };
    let many = Setup { clients: 32, load, keep: 0, warm_up: 400, ..contended(TARDIS) };
    let measured = measure(&many);
    assert!(measured.busy < 0.5 && measured.versions < 1.6 * f64::from(KEYS), "{measured:?}");
}

/// Section 7.1.6: no transaction waits for another site.
#[test]
fn sites_add_up() {
    let one = Setup {
        load: Load::Micro { writers: 25, keys: Keys::new(1_000, None) },
        clients: 4,
        ..contended(TARDIS)
    };
    let alone = measure(&one).throughput;
    let three = measure(&Setup { sites: 3, ..one }).throughput;
    assert!(three > 2.8 * alone, "{three} {alone}");
}

/// Section 7.2.1: a write of a type on branches is one command, which nothing of its site refuses.
#[test]
fn types_on_branches_are_written_without_reading_first() {
    let types = |system, flat| {
        let load = Load::Types { of: Mergeable::Counter, flat, values: 2, sites: 1 };
        measure(&Setup { load, ..contended(system) })
    };
    let (ours, flat) = (types(TARDIS, false), types(System::Locking, true));
    assert_eq!(ours.failed, 0);
    assert!(ours.throughput > 1.2 * flat.throughput, "{} {}", ours.throughput, flat.throughput);
}

#[test]
fn a_seed_is_a_run_and_costs_are_counted() {
    for system in [TARDIS, System::Locking, System::Occ] {
        let retwis = Setup { load: Load::Retwis { posts: 30, follows: 5, users: 20 }, ..contended(system) };
        let once = measure(&retwis);
        assert_eq!(once, measure(&retwis));
        let costs = Costs { operation: 10 * COSTS.operation, ..COSTS };
        assert!(measure(&Setup { costs, ..retwis }).mean_us > once.mean_us);
    }
}
