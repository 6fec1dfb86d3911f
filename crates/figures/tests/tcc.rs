//! What a run of Wren, PaRiS and their baselines shows whatever the costs are. Few clients, so that nothing but the protocols
//! stands in a transaction's way.

use anabranch_figures::tcc::{COSTS, Costs, Load, Measured, Mix, SKEW, Setup, System, run};

const MIX: Mix = Mix { writes: 2, partitions: 2, local: 100, read_only: 0 };

fn setup(regions: u16, replicas: u16) -> Setup {
    Setup {
        regions,
        partitions: if replicas == regions { 2 } else { regions },
        replicas,
        // With blocking reads a client does little.
        clients: if replicas == regions { 1 } else { 8 },
        think: 0,
        load: Load::Transactions(MIX),
        costs: COSTS,
        skew: SKEW,
        measured: 200,
        seed: 1,
    }
}

fn measure(system: System, setup: &Setup) -> Measured {
    let measured = run(system, setup);
    assert!(measured.committed > 50 && measured.failed == 0, "{measured:?}");
    measured
}

#[test]
fn stable_snapshots_are_read_without_waiting_and_fresh_ones_are_not() {
    for system in [System::Wren, System::NoCc] {
        assert_eq!(measure(system, &setup(3, 3)).waited_share, 0.0);
    }
    let cure = measure(System::Cure, &setup(3, 3));
    assert!(cure.waited_share > 0.1 && cure.wait_us > 100.0, "clocks are apart: {cure:?}");
    assert!(cure.wait_us < 2.0 * SKEW as f64 + 2_000.0, "but not farther than that: {cure:?}");
    assert_eq!(measure(System::Paris, &setup(3, 2)).waited_share, 0.0);
    let bpr = measure(System::Bpr, &setup(3, 2));
    assert!(bpr.wait_us > 30_000.0, "the other replica is some 40 ms away: {bpr:?}");
}

/// The thesis, section 4.5.2: hybrid clocks spare reads the wait for clocks, but not the one for what is undecided.
#[test]
fn hybrid_clocks_save_waiting_for_clocks() {
    let waited = |system, setup: &Setup| {
        let measured = measure(system, setup);
        measured.waited_share * measured.wait_us
    };
    let cure = waited(System::Cure, &setup(3, 3));
    let hybrid = waited(System::HybridCure, &setup(3, 3));
    assert!(0.0 < hybrid && hybrid < cure / 2.0, "{hybrid} {cure}");
    let together = waited(System::Cure, &Setup { skew: 0, ..setup(3, 3) });
    assert!(together < cure / 2.0, "{together} {cure}");
}

/// The thesis, section 4.5.2, has some 2 ms: what commits is applied every 5 ms, and only then read there.
#[test]
fn a_read_that_waits_for_an_application_waits_for_half_an_interval() {
    let applied = measure(System::HybridCureApplied, &setup(3, 3));
    assert!(applied.waited_share > 0.9, "{applied:?}");
    assert!((1_500.0..5_000.0).contains(&applied.wait_us), "{applied:?}");
}

/// The thesis, section 4.5.6: two timestamps in Wren, whatever the number of regions and of partitions; one in PaRiS.
#[test]
fn metadata_grows_with_the_regions_in_cure_only() {
    let bytes = |system, regions, replicas, partitions| {
        let setup = Setup { measured: 50, ..setup(regions, replicas) };
        let load = Load::Transactions(Mix { partitions: 1, ..MIX });
        let measured = measure(system, &Setup { partitions, load, ..setup });
        // To every other region that keeps the partition the same.
        measured.replication_bytes / f64::from(setup.replicas - 1)
    };
    let grown = |system, replicas: fn(u16) -> u16, partitions: fn(u16) -> u16| {
        let of = |regions, times| bytes(system, regions, replicas(regions), times * partitions(regions));
        let few = of(3, 1);
        [of(5, 1) - few, of(3, 2) - few]
    };
    let everywhere = |system| grown(system, |regions| regions, |_| 2);
    for [regions, partitions] in [everywhere(System::Wren), grown(System::Paris, |_| 2, |regions| regions)] {
        assert!(regions.abs() < 2.0 && partitions.abs() < 2.0, "{regions} {partitions}");
    }
    let [regions, partitions] = everywhere(System::Cure);
    assert!(regions > 1.5 * 8.0 && partitions.abs() < 2.0, "{regions} {partitions}");
}

/// The thesis, sections 4.5.7 and 5.5.5.
#[test]
fn fresh_snapshots_show_writes_sooner() {
    let (wren, cure) = (measure(System::Wren, &setup(3, 3)), measure(System::Cure, &setup(3, 3)));
    assert!(cure.local_visible_us.0 < wren.local_visible_us.0, "{wren:?} {cure:?}");
    assert!(wren.local_visible_us.1 < 30_000, "{wren:?}");
    let (paris, bpr) = (measure(System::Paris, &setup(3, 2)), measure(System::Bpr, &setup(3, 2)));
    assert!(bpr.remote_visible_us.0 < paris.remote_visible_us.0, "{paris:?} {bpr:?}");
    assert!(bpr.age_us < paris.age_us);
}

#[test]
fn a_seed_is_a_run_and_costs_are_counted() {
    let once = measure(System::Cure, &setup(3, 3));
    assert_eq!(once, measure(System::Cure, &setup(3, 3)));
    let slower = Setup { costs: Costs { message: 5 * COSTS.message, ..COSTS }, ..setup(3, 3) };
    assert!(measure(System::Cure, &slower).mean_us > once.mean_us);
}

/// The thesis, section 3.8.2: POCC returns the newest version that a partition has received; Cure hides what is not stable yet.
#[test]
fn optimistic_reads_return_the_newest_version_that_was_received() {
    let setup = Setup { clients: 100, think: 25, load: Load::Gets(2), ..setup(3, 3) };
    let items = |system| {
        let measured = measure(system, &setup);
        assert!(measured.waited_share < 0.1, "{measured:?}");
        measured.commands.unwrap()
    };
    let pocc = items(System::Pocc);
    assert!(pocc.read > 1_000 && pocc.stale_share == 0.0, "{pocc:?}");
    let cure = items(System::HybridCure);
    assert!(cure.unstable_share > 0.001 && cure.behind >= 1.0, "{cure:?}");
}
