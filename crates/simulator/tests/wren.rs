//! Wren in the simulator: it keeps its promise, and its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::support::{assert_keeps_its_promise, options};
use anabranch_simulator::{Feature, Options, Summary, WrenDeployment, run, run_seeds};
use causal::wren;
use checker::Transaction;
use std::ops::RangeInclusive;
use std::time::Duration;

#[track_caller]
fn assert_caught(seeds: RangeInclusive<u64>, mutant: wren::Mutant) {
    assert_caught_with(&[], seeds, mutant);
}

#[track_caller]
fn assert_caught_with(with: &[Feature], seeds: RangeInclusive<u64>, mutant: wren::Mutant) {
    let bug = Bug::new("wren", mutant, with, seeds);
    mistakes::assert_caught(&bug, wren::Mutants::from(mutant), |mutants| {
        WrenDeployment::new(wren::Options { mutants, ..wren::Options::default() })
    });
}

/// The history of the last seed.
fn history_of(summary: &Summary) -> Vec<Transaction> {
    let mut history = Vec::new();
    summary.write_history(&mut history).expect("a history can be written to memory");
    checker::read_history(&history[..]).expect("what was written can be read")
}

/// Corrections 72: sessions of a process share a causal thread unless an option says otherwise.
#[test]
fn sessions_that_share_a_thread_keep_the_promise_too() {
    let summary = run("wren", &Options { with: vec![Feature::SharedThreads], ..options(1, 3) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    let history = history_of(&summary);
    let shares =
        |t: &&Transaction| t.thread.is_some() && t.claim.as_ref().is_some_and(|claim| claim.thread.is_some());
    assert!(history.iter().filter(shares).count() > 20, "the last seed's clients shared too little");
}

/// Corrections 72: the cache that they share is as it was when a transaction began.
#[test]
fn a_shared_cache_without_versions_is_caught() {
    assert_caught_with(
        &[Feature::SharedThreads, Feature::Interactive],
        1..=10,
        wren::Mutant::CacheUnversioned,
    );
}

/// Corrections 72: what an older snapshot does not show is still to be read from the cache.
#[test]
fn a_cache_that_forgets_what_only_the_newest_snapshot_shows_is_caught() {
    assert_caught_with(
        &[Feature::SharedThreads, Feature::Interactive],
        1..=20,
        wren::Mutant::PrunedForNewest,
    );
    assert_caught_with(&[Feature::Interactive], 2..=21, wren::Mutant::PrunedForNewest);
}

#[test]
fn an_ungated_heartbeat_is_caught() {
    assert_caught(1..=50, wren::Mutant::UngatedHeartbeat);
}

#[test]
fn a_snapshot_read_above_stable_time_is_caught() {
    assert_caught(1..=20, wren::Mutant::ReadAboveStable);
}

/// BiST over a tree: one in its middle speaks for itself alone.
#[test]
fn a_minimum_without_those_below_is_caught() {
    assert_caught(1..=30, wren::Mutant::SubtreeLeftOut);
}

/// Corrections 75: a removal takes away what it never saw.
#[test]
fn a_reset_of_what_was_not_observed_is_caught() {
    assert_caught(1..=30, wren::Mutant::ResetUnobserved);
}

#[test]
fn a_receiver_taken_for_the_origin_is_caught() {
    assert_caught(1..=50, wren::Mutant::ReceiverAsOrigin);
}

/// Corrections 27: a snapshot shows effects of other regions, and not what of its own region they depend on.
#[test]
fn a_remote_time_above_the_local_one_is_caught() {
    assert_caught(8..=27, wren::Mutant::RemoteNotBelowLocal);
}

/// Corrections 32: several transactions may share a place, and the first of them speaks for all.
#[test]
fn effects_that_vouch_for_their_place_are_caught() {
    assert_caught_with(&[Feature::CoarseClocks], 12..=31, wren::Mutant::EffectsVouch);
}

/// Corrections 31: two regions commit at the same time, which each takes for the earlier one of its own.
#[test]
fn a_tie_that_is_not_broken_alike_is_caught() {
    assert_caught_with(&[Feature::CoarseClocks, Feature::FewKeys], 27..=66, wren::Mutant::OwnFirstAtATie);
}

/// Corrections 85: who met a clock that is hours ahead waits; what is answered is right.
#[test]
fn leaping_clocks_break_no_promise() {
    let with = vec![Feature::ClockLeaps];
    let summary = run("wren", &Options { with, ..options(2_000_000, 4) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// What is dropped from queues for a region that is cut off it takes with the state, beside what goes on.
const CUT_OFF: &[Feature] =
    &[Feature::SmallQueues, Feature::Partitions, Feature::SlowLinks, Feature::Focus, Feature::FewKeys];

#[test]
fn regions_that_take_the_state_after_a_cut_keep_the_promise_too() {
    let summary = run("wren", &Options { with: CUT_OFF.to_vec(), ..options(1, 3) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_dropped_queue_that_counts_as_sent_is_caught() {
    assert_caught_with(CUT_OFF, 2..=11, wren::Mutant::DroppedCountsAsSent);
}

/// What is folded while the state is taken is in neither store afterwards.
#[test]
fn a_horizon_that_rises_while_the_state_is_taken_is_caught() {
    assert_caught_with(CUT_OFF, 39..=78, wren::Mutant::HorizonWhileReplaced);
}

/// Nothing but registers, whose versions replies name: the promise is decided without believing any claim, by other people's
/// checkers as well.
#[test]
fn histories_of_registers_are_decided_without_claims() {
    for seed in 1..=options(1, 3).seeds {
        let with = vec![Feature::Registers, Feature::SharedThreads];
        let summary = run("wren", &Options { with, ..options(seed, 1) }).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
        assert_eq!(summary.undecided_unclaimed, 0, "seed {seed}");
        let history = checker::read_history(&summary.history[..]).unwrap();
        for (_, format) in checker::Format::ALL {
            let mut exported = Vec::new();
            checker::export(&history, format, &mut exported).unwrap();
            assert!(!exported.is_empty());
        }
    }
}

/// The check that believes no claim sees mistakes by itself.
#[test]
fn a_mistake_is_seen_without_claims() {
    let mutants = wren::Mutant::ReadAboveStable.into();
    let is_seen = (1..=20).any(|seed| {
        let build = || WrenDeployment::new(wren::Options { mutants, ..wren::Options::default() });
        let options = Options { with: vec![Feature::Registers], ..options(seed, 1) };
        let history = history_of(&run_seeds("wren", &options, build));
        !checker::check_unclaimed(&history, checker::Level::TransactionalCausal).ok
    });
    assert!(is_seen, "not by seeds 1 to 20");
}

/// Corrections 70: two who observe a key in one region at the same time both win.
#[test]
fn what_observes_past_something_undecided_is_caught() {
    assert_caught(1..=10, wren::Mutant::UndecidedIgnored);
}

/// Corrections 73: a coordinator dies with a decision that nobody else has.
#[test]
fn a_decision_that_only_the_coordinator_knows_is_caught() {
    assert_caught_with(&[Feature::LastReplies], 1..=20, wren::Mutant::AnsweredBeforeDecision);
}

/// Leases so short that snapshots in use fall below the horizon when a coordinator is not heard for a moment.
fn out_of_lease(mutants: wren::Mutants) -> WrenDeployment {
    let lease = Duration::from_millis(50);
    WrenDeployment::new(wren::Options { mutants, lease, ..wren::Options::default() })
}

/// Corrections 33: what is no longer retained is refused.
#[test]
fn snapshots_that_fall_below_the_horizon_are_refused() {
    let with = vec![Feature::Partitions, Feature::Interactive];
    let summary = run_seeds("wren", &Options { with, ..options(1, 3) }, || out_of_lease(Default::default()));
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_snapshot_read_below_the_horizon_is_caught() {
    let mutant = wren::Mutant::ReadBelowHorizon;
    let bug = Bug::new("wren", mutant, &[Feature::Partitions, Feature::Interactive], 8..=27);
    mistakes::assert_caught(&bug, wren::Mutants::from(mutant), out_of_lease);
}

/// Elements that two regions replace or remove, and increments of what others set to words: what is lost is listed.
#[test]
fn what_an_earlier_write_hides_is_listed() {
    let options = Options { with: vec![Feature::Encounters], ..options(1, 4) };
    assert_keeps_its_promise("wren", &options);
}

#[test]
fn clients_take_contexts_over_from_one_another() {
    let options = Options { with: vec![Feature::Contexts], ..options(1, 3) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    let history = history_of(&summary);
    let taken = history.iter().filter(|t| t.follows.is_some() && t.outcome == checker::Outcome::Committed);
    assert!(taken.count() > 10, "the last seed's clients took over too few");
}

#[test]
fn a_context_that_is_ignored_is_caught() {
    assert_caught_with(&[Feature::Contexts], 1..=10, wren::Mutant::ContextIgnored);
}

/// Corrections 35.
#[test]
fn a_foreign_local_time_that_is_believed_is_caught() {
    assert_caught_with(&[Feature::Contexts], 1..=20, wren::Mutant::ForeignLocalTime);
}

#[test]
fn a_region_is_lost_and_the_others_go_on() {
    let options = Options { with: vec![Feature::Eviction, Feature::Partitions], ..options(1, 3) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_survivor_that_keeps_what_is_above_the_cut_is_caught() {
    assert_caught_with(&[Feature::Eviction, Feature::Partitions], 3..=52, wren::Mutant::KeptAboveCut);
}

#[test]
fn survivors_that_do_not_take_what_they_lack_are_caught() {
    assert_caught_with(&[Feature::Eviction, Feature::Partitions], 6..=55, wren::Mutant::CutNotReached);
}

/// Leases so short that replicas forget effects while clients write: what these have lost is listed for good.
fn forgetful(mutants: wren::Mutants) -> WrenDeployment {
    let lease = Duration::from_millis(300);
    WrenDeployment::new(wren::Options { mutants, lease, ..wren::Options::default() })
}

#[test]
fn every_lost_write_is_listed_and_nothing_else() {
    let options = Options { with: vec![Feature::Resolutions], ..options(1, 4) };
    let summary = run_seeds("wren", &options, || forgetful(wren::Mutants::default()));
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[track_caller]
fn assert_caught_forgetting(with: &[Feature], seeds: RangeInclusive<u64>, mutant: wren::Mutant) {
    mistakes::assert_caught(&Bug::new("wren", mutant, with, seeds), wren::Mutants::from(mutant), forgetful);
}

#[test]
fn losses_forgotten_by_a_restart_are_caught() {
    assert_caught_forgetting(&[Feature::Kills], 3..=62, wren::Mutant::LossesNotInCheckpoint);
}

#[test]
fn what_is_settled_in_one_region_only_is_caught() {
    assert_caught_forgetting(&[Feature::Resolutions], 1..=20, wren::Mutant::SettledHereOnly);
}

/// Counters, summaries, tops and identifiers.
#[test]
fn types_of_our_own_keep_the_promise_too() {
    let options = Options { with: vec![Feature::Types], ..options(1, 3) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Commands of a pipeline that run as one transaction keep its promise, also where it fails.
#[test]
fn merged_pipelines_keep_the_promise_too() {
    let options = Options { with: vec![Feature::MergedPipelines], ..options(1, 4) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Queues of which most is spilled, to spools that lose some of it; and partitions that restart without theirs.
#[test]
fn queues_that_spill_keep_the_promise_too() {
    let with = vec![Feature::SmallQueues, Feature::Partitions, Feature::Kills];
    assert_keeps_its_promise("wren", &Options { with, ..options(1, 3) });
}

#[test]
fn a_chunk_that_counts_as_sent_before_it_is_there_is_caught() {
    assert_caught_with(
        &[Feature::SmallQueues, Feature::Partitions],
        1..=20,
        wren::Mutant::AwaitedCountsAsSent,
    );
}

#[test]
fn a_lost_chunk_that_counts_as_sent_is_caught() {
    assert_caught_with(
        &[Feature::SmallQueues, Feature::Partitions],
        4..=23,
        wren::Mutant::DroppedCountsAsSent,
    );
}
