//! TAPIR in the simulator: it keeps its promise, and its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::scripts::assert_passes;
use crate::support::{options, soaks, whole};
use anabranch_simulator::{Feature, Options, TapirDeployment, run, run_seeds};
use checker::Level;
use std::ops::RangeInclusive;
use std::time::Duration;
use strict::{Mutant, Mutants, tapir};

/// Each of the seeds brings these features.
#[track_caller]
fn assert_caught_with(features: &[Feature], seeds: RangeInclusive<u64>, mutant: Mutant) {
    let bug = Bug::new("tapir", mutant, features, seeds);
    mistakes::assert_caught(&bug, Mutants::from(mutant), |mutants| TapirDeployment {
        options: tapir::Options { mutants, ..tapir::Options::default() },
        ..TapirDeployment::default()
    });
}

/// Each twice, as no seed of `cargo xtask test sim` brings these by itself.
#[test]
fn what_only_tests_ask_for_breaks_no_promise_and_runs_alike() {
    use Feature::{Bounds, CrashLoops, FewKeys, Focus, LossyLinks, ReadErrors, SleepingReplicas};
    let with = [
        &[Focus, CrashLoops, FewKeys][..],
        &[Focus, SleepingReplicas, LossyLinks, FewKeys],
        &[Bounds, ReadErrors],
    ];
    for with in with {
        let options = Options { once: false, with: with.to_vec(), ..options(1, 6) };
        let summary = run("tapir", &options).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
        assert!(summary.committed > 20 * summary.seeds, "{with:?}: {} committed", summary.committed);
    }
}

/// Corrections 85: who met a clock that is hours ahead waits; what is answered is right.
#[test]
fn leaping_clocks_break_no_promise() {
    let with = vec![Feature::ClockLeaps];
    let summary = run("tapir", &Options { with, ..options(2_000_000, 6) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Five replicas: the leader of a new view was down when an interval was closed, and refused a look that four replicas had
/// accepted, as it saw what that interval had closed.
#[test]
fn a_leader_behind_the_base_judges_votes_as_those_who_gave_them() {
    assert_passes(include_bytes!("scripts/tapir-leader-behind-base.jsonl"), 20);
}

/// The leader's clock leaps by hours: it closed what its own gateway had begun though the others had refused that, and
/// the gateway was refused by one or the others from then on.
#[test]
fn a_leader_whose_clock_leaps_by_hours_does_not_shut_its_own_gateway_out() {
    assert_passes(include_bytes!("scripts/tapir-leader-with-a-clock-ahead.jsonl"), 9);
}

#[test]
fn shards_move_while_everything_else_goes_wrong() {
    let moves = |seed: &u64| {
        let with = vec![Feature::Reconfiguration];
        let summary = run("tapir", &Options { readable: true, with, ..whole(*seed, 1) }).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
        summary.trace.iter().any(|line| line.contains("EpochReady"))
    };
    // `cargo xtask soak` goes through all.
    let wanted = if soaks() { 5 } else { 1 };
    let moved = (1..=24).filter(moves).take(if soaks() { 24 } else { 1 }).count();
    assert!(moved >= wanted, "in only {moved} of 24 seeds a replica has joined a shard");
}

/// In these a replica missed that its shard had moved: one that was replaced held transactions for ever (398), one that was
/// to join never did, and coordinators waited for it.
#[test]
fn replicas_that_missed_a_move_learn_of_it() {
    for seed in [398, 604, 661, 898] {
        let summary = run("tapir", &whole(seed, 1)).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    }
}

/// A look was undecided below the observed base of an increment that did not wait for it, and the leader of the next view
/// refused it though it had been prepared.
#[test]
fn an_undecided_look_below_an_observed_base_is_waited_for() {
    let with = vec![Feature::LastReplies, Feature::Reconfiguration, Feature::Partitions];
    let summary = run("tapir", &Options { with, ..whole(352, 1) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// A blind write began after a transaction with KEYS had ended, and one replica alone answered that it may commit
/// below it. The leader of the next view judged that vote as if it might have succeeded.
#[test]
fn a_vote_that_cannot_have_succeeded_is_judged_as_a_first_one() {
    let summary = run("tapir", &whole(951, 1)).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn transactions_on_the_whole_keyspace_are_strictly_serializable() {
    let options = Options { with: vec![Feature::Keyset], ..options(1, 6) };
    let summary = run("tapir", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// A test for each known bug that the simulator finds, with the seeds within which it must. What it finds too rarely has
/// a model or a script in `crates/strict/tests`.
macro_rules! caught {
    ($($name:ident: $mutant:ident, $features:expr, $seeds:expr;)*) => {
        $(
            #[test]
            fn $name() {
                assert_caught_with(&$features, $seeds, Mutant::$mutant);
            }
        )*
    };
}
caught! {
    keys_that_come_and_go_unnoticed_are_caught: KeysetUnvalidated, [Feature::Keyset], 2..=41;
    a_skipped_validation_is_caught: SkipValidation, [], 1..=20;
    a_validation_that_trusts_stamps_is_caught: TrustStamps, [], 2..=31;
    a_stamp_below_what_was_read_is_caught: StampBelowReads, [], 3..=62;
    a_read_of_nothing_that_is_not_validated_is_caught: AbsentReadsPass, [], 2..=31;
    an_observation_by_its_greatest_stamp_is_caught: ObservedByMaximum, [], 2..=61;
    an_expiry_that_is_no_write_is_caught: ExpiryIsNoWrite, [Feature::Expiry], 2..=31;
    a_blind_write_that_ignores_a_deadline_is_caught:
        BlindWritesIgnoreDeadlines, [Feature::Expiry, Feature::BlindExpiry], 17..=166;
    a_read_of_one_replica_is_caught: SingleReplicaReads, [], 2..=101;
    a_commit_without_its_effects_is_caught: CommitWithoutEffects, [], 1..=20;
    an_operation_applied_twice_is_caught: ExecuteAgain, [], 2..=21;
    a_missing_tombstone_is_caught: NoTombstones, [], 70..=369;
    a_replica_that_forgot_and_serves_is_caught: ForgetRecovery, [], 131..=430;
    a_view_without_its_record_is_caught: StartViewWithoutRecord, [], 86..=285;
    an_interval_closed_over_what_is_undecided_is_caught: CloseUndecided, [], 117..=416;
    a_wrong_quorum_is_caught: WrongQuorum, [Feature::LastReplies], 91..=290;
    refusals_that_are_judged_again_are_caught: RevalidateRefusals, [Feature::LastReplies], 269..=568;
    bounds_that_hold_in_pairs_are_caught: PairwiseBounds, [Feature::Bounds, Feature::FewKeys], 176..=255;
    records_of_views_slept_through_are_caught:
        MergeEveryView, [Feature::Focus, Feature::CrashLoops, Feature::FewKeys], 239..=358;
    locks_that_a_view_does_not_mention_are_caught:
        DropUnmentionedLocks, [Feature::SleepingReplicas, Feature::FewKeys], 30..=69;
    an_epoch_without_what_was_undecided_is_caught: DropUndecidedAtChange, [Feature::Reconfiguration], 6..=105;
    a_loss_that_takes_what_was_voted_for_with_it_is_caught: DropUndecidedAtChange, [Feature::AcceptLoss], 31..=70;
}

/// It is weaker by more than its name: some seed shows an order that contradicts real time.
#[test]
fn the_serializable_mode_is_not_strict() {
    let bug = Bug::new("tapir-serializable", "NotStrict", &[], 23..=82);
    mistakes::assert_caught(&bug, Some(Level::StrictSerializable), |level| TapirDeployment {
        level,
        ..TapirDeployment::serializable()
    });
}

/// Replicas believe nothing that is 100 ms ahead, and clocks are seconds apart and jump.
#[test]
fn clocks_farther_apart_than_the_bound_break_no_promise() {
    let build = || TapirDeployment {
        options: tapir::Options { clock_bound: Duration::from_millis(100), ..tapir::Options::default() },
        ..TapirDeployment::default()
    };
    let options = Options { with: vec![Feature::ClockJumps], ..options(1, 5) };
    let summary = run_seeds("tapir", &options, build);
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(summary.committed > 10 * summary.seeds, "{} of {}", summary.committed, summary.transactions);
}

/// Replicas wait 10 ms for proposals that may have been stamped earlier, and clocks jump.
#[test]
fn waits_for_skewed_clocks_break_no_promise() {
    let build = || TapirDeployment {
        options: tapir::Options { skew_wait: Duration::from_millis(10), ..tapir::Options::default() },
        ..TapirDeployment::default()
    };
    let options = Options { with: vec![Feature::ClockJumps], ..options(21, 5) };
    let summary = run_seeds("tapir", &options, build);
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(summary.committed > 10 * summary.seeds, "{} of {}", summary.committed, summary.transactions);
}

/// More than f replicas are lost for good, and an operator lets the others go on: what these have is one state, on which
/// everything goes on. 995: a coordinator says again what was lost, after others have missed it.
#[test]
fn those_that_are_left_after_an_accepted_loss_go_on_with_what_they_have() {
    let (mut gone_on, seeds) = (0, options(1, 12).seeds);
    for seed in 1..=seeds {
        let with = vec![Feature::AcceptLoss];
        let summary = run("tapir", &Options { readable: true, with, ..whole(seed, 1) }).unwrap();
        assert!(summary.failures.is_empty() && summary.undecided == 0, "{:#?}", summary.failures);
        gone_on += u64::from(summary.trace.iter().any(|line| line.contains("have gone on")));
    }
    assert!(4 * gone_on >= 3 * seeds, "in only {gone_on} of {seeds} seeds has anybody gone on");
    let with = vec![Feature::AcceptLoss];
    let summary = run("tapir", &Options { with, ..whole(995, 1) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Counters, summaries, tops and identifiers.
#[test]
fn types_of_our_own_keep_the_promise_too() {
    let options = Options { with: vec![Feature::Types], ..options(1, 6) };
    let summary = run("tapir", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Commands of a pipeline that run as one transaction keep its promise, also where it fails.
#[test]
fn merged_pipelines_keep_the_promise_too() {
    let options = Options { with: vec![Feature::MergedPipelines], ..options(1, 4) };
    let summary = run("tapir", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}
