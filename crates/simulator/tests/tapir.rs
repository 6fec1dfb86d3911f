//! TAPIR in the simulator: it keeps its promise, and its known bugs are caught.

use anabranch_simulator::{Feature, Options, TapirDeployment, run, run_seeds};
use checker::Level;
use std::time::Duration;
use strict::{Mutant, tapir};

fn options(first_seed: u64, seeds: u64) -> Options {
    Options { first_seed, seeds, ..Options::default() }
}

/// Tries one seed after the other until one shows the bug.
fn assert_caught(seeds: u64, mutant: Mutant) {
    assert_caught_with(&[], seeds, mutant);
}

/// The same, where every seed brings these features.
fn assert_caught_with(features: &[Feature], seeds: u64, mutant: Mutant) {
    let caught = (1..=seeds).any(|seed| {
        let build = || TapirDeployment {
            options: tapir::Options { mutants: mutant.into(), ..tapir::Options::default() },
            ..TapirDeployment::default()
        };
        let options = Options { with: features.to_vec(), ..options(seed, 1) };
        !run_seeds("tapir", &options, build).failures.is_empty()
    });
    assert!(caught, "{mutant:?}: not caught in {seeds} seeds");
}

#[test]
fn tapir_is_strictly_serializable() {
    let summary = run("tapir", &options(1, 30)).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}

#[test]
fn transactions_on_the_whole_keyspace_are_strictly_serializable() {
    let options = Options { with: vec![Feature::Keyset], ..options(1, 30) };
    let summary = run("tapir", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_skipped_validation_is_caught() {
    assert_caught(20, Mutant::SkipValidation);
}

#[test]
fn a_wrong_quorum_is_caught() {
    assert_caught(100, Mutant::WrongQuorum);
}

#[test]
fn a_commit_without_its_effects_is_caught() {
    assert_caught(20, Mutant::CommitWithoutEffects);
}

#[test]
fn a_read_of_one_replica_is_caught() {
    assert_caught(100, Mutant::SingleReplicaReads);
}

#[test]
fn keys_that_come_and_go_unnoticed_are_caught() {
    assert_caught_with(&[Feature::Keyset], 40, Mutant::KeysetUnvalidated);
}

#[test]
fn a_blind_write_that_ignores_a_deadline_is_caught() {
    let features = [Feature::Expiry, Feature::BlindExpiry];
    assert_caught_with(&features, 40, Mutant::BlindWritesIgnoreDeadlines);
}

#[test]
fn the_serializable_mode_is_serializable() {
    let summary = run("tapir-serializable", &options(1, 40)).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}

/// It is weaker by more than its name: some seed shows an order that contradicts real time.
#[test]
fn the_serializable_mode_is_not_strict() {
    let strict =
        || TapirDeployment { level: Some(Level::StrictSerializable), ..TapirDeployment::serializable() };
    let differs = (1..=60).any(|seed| !run_seeds("tapir", &options(seed, 1), strict).failures.is_empty());
    assert!(differs, "60 seeds of the serializable mode were strictly serializable");
}

/// Replicas believe nothing that is 100 ms ahead, and clocks are seconds apart and jump: everybody makes progress, and
/// the promise is kept.
#[test]
fn clocks_farther_apart_than_the_bound_stop_nobody() {
    let build = || TapirDeployment {
        options: tapir::Options {
            clock_bound: Duration::from_millis(100),
            skew_wait: Duration::from_millis(10),
            ..tapir::Options::default()
        },
        ..TapirDeployment::default()
    };
    let options = Options { with: vec![Feature::ClockJumps], ..options(1, 30) };
    let summary = run_seeds("tapir", &options, build);
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(summary.committed > 10 * summary.seeds, "{} of {}", summary.committed, summary.transactions);
}
