//! PaRiS in the simulator: it keeps its promise, and its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::scripts::assert_passes;
use crate::support::{options, soaks, whole};
use anabranch_simulator::{Feature, Options, ParisDeployment, run};
use causal::paris;
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(seeds: RangeInclusive<u64>, mutant: paris::Mutant) {
    assert_caught_with(&[], seeds, mutant);
}

#[track_caller]
fn assert_caught_with(with: &[Feature], seeds: RangeInclusive<u64>, mutant: paris::Mutant) {
    let bug = Bug::new("paris", mutant, with, seeds);
    mistakes::assert_caught(&bug, paris::Mutants::from(mutant), |mutants| {
        ParisDeployment::new(paris::Options { mutants, ..paris::Options::default() })
    });
}

/// It had been refused before its session lost a write with a region, and read again without that write.
#[test]
fn a_transaction_is_not_tried_again_before_its_session_is_told_of_a_loss() {
    assert_passes(include_bytes!("scripts/paris-retried-by-who-lost-writes.jsonl"), 32);
}

#[test]
fn a_snapshot_read_above_the_universal_stable_time_is_caught() {
    assert_caught(4..=23, paris::Mutant::ReadAboveStable);
}

#[test]
fn an_ungated_heartbeat_is_caught() {
    assert_caught(16..=65, paris::Mutant::UngatedHeartbeat);
}

/// Corrections 20.
#[test]
fn an_effect_left_out_at_the_bound_is_caught() {
    assert_caught(19..=68, paris::Mutant::ApplyBelow);
}

/// Corrections 21.
#[test]
fn a_forgotten_bound_is_caught() {
    assert_caught(12..=61, paris::Mutant::BoundNotRemembered);
}

/// Corrections 29.
#[test]
fn a_region_that_vouches_for_what_it_has_not_received_is_caught() {
    assert_caught(4..=23, paris::Mutant::OwnEntryOnly);
}

/// Corrections 30.
#[test]
fn a_commit_to_another_replica_than_the_one_that_prepared_is_caught() {
    assert_caught(12..=31, paris::Mutant::TargetChosenTwice);
}

/// Commands of a pipeline that run as one transaction keep its promise, also where it fails.
#[test]
fn merged_pipelines_keep_the_promise_too() {
    let options = Options { with: vec![Feature::MergedPipelines], ..options(11, 3) };
    let summary = run("paris", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Corrections 75: an effect resets what it did not observe.
#[test]
fn a_reset_of_what_was_not_observed_is_caught() {
    assert_caught(11..=40, paris::Mutant::ResetUnobserved);
}

#[test]
fn every_lost_write_is_listed_and_nothing_else() {
    let options = Options { with: vec![Feature::Resolutions, Feature::Encounters], ..options(101, 3) };
    let summary = run("paris", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// What was resolved in one region stays listed in another one.
#[test]
fn a_loss_that_is_settled_in_one_region_only_is_caught() {
    assert_caught_with(&[Feature::Resolutions], 11..=40, paris::Mutant::SettledHereOnly);
}

/// Corrections 72: sessions of a process share a causal thread unless an option says otherwise.
#[test]
fn sessions_that_share_a_thread_keep_the_promise_too() {
    let options = Options { with: vec![Feature::SharedThreads], ..options(11, 3) };
    let summary = run("paris", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_shared_cache_without_versions_is_caught() {
    assert_caught_with(
        &[Feature::SharedThreads, Feature::Interactive],
        11..=20,
        paris::Mutant::CacheUnversioned,
    );
}

mod soak {
    use super::*;

    /// 23 and 45: a session went on with a transaction of which a step had been refused. 98: a claim that came late was taken
    /// for one of a later transaction of its pipeline.
    #[test]
    fn seeds_that_showed_bugs_pass() {
        for seed in [23, 45, 98] {
            let summary = run("paris", &whole(seed, 1)).unwrap();
            assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
        }
    }

    /// Corrections 31.
    #[test]
    fn a_tie_that_is_not_broken_alike_is_caught() {
        assert_caught_with(
            &[Feature::CoarseClocks, Feature::FewKeys],
            17..=56,
            paris::Mutant::OwnFirstAtATie,
        );
    }

    #[test]
    fn a_survivor_that_keeps_what_is_above_the_cut_is_caught() {
        assert_caught_evicting(1..=50, paris::Mutant::KeptAboveCut);
    }

    /// The tree inside a region: one in its middle speaks for itself alone.
    #[test]
    fn a_minimum_without_those_below_is_caught() {
        assert_caught(28..=57, paris::Mutant::SubtreeLeftOut);
    }
}

#[test]
fn histories_of_registers_are_decided_without_claims() {
    let with = vec![Feature::Registers, Feature::SharedThreads];
    let summary = run("paris", &Options { with, ..options(11, 3) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert_eq!(summary.undecided_unclaimed, 0);
}

/// A region is lost in every seed, with transactions under way between it and the others, and nothing else goes wrong.
const FADING: [Feature; 2] = [Feature::FadingRegions, Feature::Focus];

#[test]
fn a_region_is_lost_and_the_others_go_on() {
    let ways = [FADING.to_vec(), vec![Feature::FadingRegions], vec![Feature::Eviction, Feature::Partitions]];
    for with in ways.into_iter().take(if soaks() { 3 } else { 1 }) {
        let summary = run("paris", &Options { with, ..whole(11, 3) }).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    }
}

/// A partition that is not right below its region's root restarts when all have gone on, and goes on, too.
#[test]
fn who_restarts_after_an_eviction_goes_on() {
    let with = vec![Feature::FadingRegions, Feature::Kills, Feature::LostDisks, Feature::Partitions];
    let summary = run("paris", &Options { with, ..whole(50, 1) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[track_caller]
fn assert_caught_evicting(seeds: RangeInclusive<u64>, mutant: paris::Mutant) {
    assert_caught_with(&FADING, seeds, mutant);
}

#[test]
fn a_survivor_that_keeps_a_part_of_what_is_given_up_is_caught() {
    assert_caught_evicting(1..=50, paris::Mutant::PartKept);
}

#[test]
fn a_survivor_that_aborts_what_others_have_is_caught() {
    assert_caught_evicting(277..=676, paris::Mutant::UndecidedGivenUp);
}

#[test]
fn a_session_without_an_error_for_lost_writes_is_caught() {
    assert_caught_evicting(9..=58, paris::Mutant::GivenUpCached);
}
