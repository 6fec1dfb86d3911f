//! Wren in the simulator: it keeps its promise, and its known bugs are caught.

use anabranch_simulator::{Options, WrenDeployment, run, run_seeds};
use causal::wren;

fn options(first_seed: u64, seeds: u64) -> Options {
    Options { first_seed, seeds, ..Options::default() }
}

/// Tries one seed after the other until one shows the bug.
fn assert_caught(seeds: u64, mutants: wren::Mutants) {
    let caught = (1..=seeds).any(|seed| {
        let build = || WrenDeployment { options: wren::Options { mutants, ..wren::Options::default() } };
        !run_seeds("wren", &options(seed, 1), build).failures.is_empty()
    });
    assert!(caught, "{mutants:?}: not caught in {seeds} seeds");
}

#[test]
fn wren_is_transactionally_causal() {
    let summary = run("wren", &options(1, 30)).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}

#[test]
fn an_ungated_heartbeat_is_caught() {
    assert_caught(50, wren::Mutants { ungated_heartbeat: true, ..Default::default() });
}

#[test]
fn a_snapshot_read_above_stable_time_is_caught() {
    assert_caught(20, wren::Mutants { read_above_stable: true, ..Default::default() });
}

/// Corrections 75: a removal takes away what it never saw.
#[test]
fn a_reset_of_what_was_not_observed_is_caught() {
    assert_caught(30, wren::Mutants { reset_unobserved: true, ..Default::default() });
}

#[test]
fn a_receiver_taken_for_the_origin_is_caught() {
    assert_caught(50, wren::Mutants { receiver_as_origin: true, ..Default::default() });
}
