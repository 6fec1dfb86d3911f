//! PaRiS in the simulator: it keeps its promise, and its known bugs are caught.

mod support;

use anabranch_simulator::{Feature, Options, ParisDeployment, run, run_seeds};
use causal::paris;
use support::{assert_keeps_its_promise, options};

/// Tries one seed after the other until one shows the bug.
fn assert_caught(seeds: u64, mutants: paris::Mutants) {
    let caught = (1..=seeds).any(|seed| {
        let build = || ParisDeployment::new(paris::Options { mutants, ..paris::Options::default() });
        !run_seeds("paris", &options(seed, 1), build).failures.is_empty()
    });
    assert!(caught, "{mutants:?}: not caught in {seeds} seeds");
}

#[test]
fn paris_is_transactionally_causal() {
    assert_keeps_its_promise("paris", &options(1, 10));
}

/// 23 and 45: a session went on with a transaction of which a step had been refused. 98: a claim that came late was taken
/// for one of a later transaction of its pipeline.
#[test]
fn seeds_that_showed_bugs_pass() {
    for seed in [23, 45, 98] {
        let summary = run("paris", &options(seed, 1)).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    }
}

#[test]
fn a_snapshot_read_above_the_universal_stable_time_is_caught() {
    assert_caught(20, paris::Mutants { read_above_stable: true, ..Default::default() });
}

#[test]
fn an_ungated_heartbeat_is_caught() {
    assert_caught(50, paris::Mutants { ungated_heartbeat: true, ..Default::default() });
}

/// Corrections 20.
#[test]
fn an_effect_left_out_at_the_bound_is_caught() {
    assert_caught(50, paris::Mutants { apply_below: true, ..Default::default() });
}

/// Corrections 21.
#[test]
fn a_forgotten_bound_is_caught() {
    assert_caught(50, paris::Mutants { bound_not_remembered: true, ..Default::default() });
}

/// Corrections 29.
#[test]
fn a_region_that_vouches_for_what_it_has_not_received_is_caught() {
    assert_caught(20, paris::Mutants { own_entry_only: true, ..Default::default() });
}

/// Corrections 30.
#[test]
fn a_commit_to_another_replica_than_the_one_that_prepared_is_caught() {
    assert_caught(20, paris::Mutants { target_chosen_twice: true, ..Default::default() });
}

/// Commands of a pipeline that run as one transaction keep its promise, also where it fails.
#[test]
fn merged_pipelines_keep_the_promise_too() {
    let options = Options { with: vec![Feature::MergedPipelines], ..options(1, 15) };
    let summary = run("paris", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}
