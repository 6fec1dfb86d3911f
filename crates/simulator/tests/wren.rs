//! Wren in the simulator: it keeps its promise, and its known bugs are caught.

mod support;

use anabranch_simulator::{Feature, Options, WrenDeployment, run, run_seeds};
use causal::wren;
use std::time::Duration;
use support::{assert_keeps_its_promise, options};

/// Tries one seed after the other until one shows the bug.
fn assert_caught(seeds: u64, mutants: wren::Mutants) {
    assert_caught_with(&[], seeds, mutants);
}

fn assert_caught_with(with: &[Feature], seeds: u64, mutants: wren::Mutants) {
    let caught = (1..=seeds).any(|seed| {
        let build = || WrenDeployment::new(wren::Options { mutants, ..wren::Options::default() });
        let options = Options { with: with.to_vec(), ..options(seed, 1) };
        !run_seeds("wren", &options, build).failures.is_empty()
    });
    assert!(caught, "{mutants:?}: not caught in {seeds} seeds");
}

#[test]
fn wren_is_transactionally_causal() {
    assert_keeps_its_promise("wren", &options(1, 10));
}

#[test]
fn an_ungated_heartbeat_is_caught() {
    assert_caught(50, wren::Mutants { ungated_heartbeat: true, ..Default::default() });
}

#[test]
fn a_snapshot_read_above_stable_time_is_caught() {
    assert_caught(20, wren::Mutants { read_above_stable: true, ..Default::default() });
}

/// BiST over a tree: one in its middle speaks for itself alone.
#[test]
fn a_minimum_without_those_below_is_caught() {
    assert_caught(30, wren::Mutants { subtree_left_out: true, ..Default::default() });
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

/// Corrections 27: a snapshot shows effects of other regions, and not what of its own region they depend on.
#[test]
fn a_remote_time_above_the_local_one_is_caught() {
    assert_caught(20, wren::Mutants { remote_not_below_local: true, ..Default::default() });
}

/// Corrections 32: several transactions may share a place, and the first of them speaks for all.
#[test]
fn effects_that_vouch_for_their_place_are_caught() {
    let mutants = wren::Mutants { effects_vouch: true, ..Default::default() };
    assert_caught_with(&[Feature::CoarseClocks], 20, mutants);
}

/// Corrections 70: two who observe a key in one region at the same time both win.
#[test]
fn what_observes_past_something_undecided_is_caught() {
    assert_caught(10, wren::Mutants { undecided_ignored: true, ..Default::default() });
}

/// Corrections 73: a coordinator dies with a decision that nobody else has.
#[test]
fn a_decision_that_only_the_coordinator_knows_is_caught() {
    let mutants = wren::Mutants { answered_before_decision: true, ..Default::default() };
    assert_caught_with(&[Feature::LastReplies], 20, mutants);
}

/// Leases so short that snapshots in use fall below the horizon when a coordinator is not heard for a moment.
fn out_of_lease(mutants: wren::Mutants) -> WrenDeployment {
    let lease = Duration::from_millis(50);
    WrenDeployment::new(wren::Options { mutants, lease, ..wren::Options::default() })
}

/// Corrections 33: what is no longer kept is refused.
#[test]
fn snapshots_that_fall_below_the_horizon_are_refused() {
    let with = vec![Feature::Partitions, Feature::Interactive];
    let summary = run_seeds("wren", &Options { with, ..options(1, 10) }, || out_of_lease(Default::default()));
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_snapshot_read_below_the_horizon_is_caught() {
    let mutants = wren::Mutants { read_below_horizon: true, ..Default::default() };
    let caught = (1..=20).any(|seed| {
        let with = vec![Feature::Partitions, Feature::Interactive];
        let options = Options { with, ..options(seed, 1) };
        !run_seeds("wren", &options, || out_of_lease(mutants)).failures.is_empty()
    });
    assert!(caught, "not caught in 20 seeds");
}

/// Elements that two regions replace or remove, and increments of what others set to words: what is lost is listed.
#[test]
fn what_an_earlier_write_hides_is_listed() {
    let options = Options { with: vec![Feature::Encounters], ..options(1, 15) };
    assert_keeps_its_promise("wren", &options);
}

#[test]
fn clients_take_contexts_over_from_one_another() {
    let options = Options { with: vec![Feature::Contexts], ..options(1, 20) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    let mut history = Vec::new();
    summary.write_history(&mut history).unwrap();
    let history = checker::read_history(&history[..]).unwrap();
    let taken = history.iter().filter(|t| t.follows.is_some() && t.outcome == checker::Outcome::Committed);
    assert!(taken.count() > 10, "the last seed's clients took over too few");
}

#[test]
fn a_context_that_is_ignored_is_caught() {
    assert_caught_with(
        &[Feature::Contexts],
        10,
        wren::Mutants { context_ignored: true, ..Default::default() },
    );
}

/// Corrections 35.
#[test]
fn a_foreign_local_time_that_is_believed_is_caught() {
    let mutants = wren::Mutants { foreign_local_time: true, ..Default::default() };
    assert_caught_with(&[Feature::Contexts], 20, mutants);
}

#[test]
fn a_region_is_lost_and_the_others_go_on() {
    let options = Options { with: vec![Feature::Eviction, Feature::Partitions], ..options(1, 20) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_survivor_that_keeps_what_is_above_the_cut_is_caught() {
    let mutants = wren::Mutants { kept_above_cut: true, ..Default::default() };
    assert_caught_with(&[Feature::Eviction, Feature::Partitions], 50, mutants);
}

#[test]
fn survivors_that_do_not_take_what_they_lack_are_caught() {
    let mutants = wren::Mutants { cut_not_reached: true, ..Default::default() };
    assert_caught_with(&[Feature::Eviction, Feature::Partitions], 50, mutants);
}

/// Leases so short that replicas forget effects while clients write: what these have lost is listed for good.
fn forgetful(mutants: wren::Mutants) -> WrenDeployment {
    let lease = Duration::from_millis(300);
    WrenDeployment::new(wren::Options { mutants, lease, ..wren::Options::default() })
}

#[test]
fn every_lost_write_is_listed_and_nothing_else() {
    let options = Options { with: vec![Feature::Resolutions], ..options(1, 30) };
    let summary = run_seeds("wren", &options, || forgetful(wren::Mutants::default()));
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

fn assert_caught_forgetting(with: &[Feature], seeds: u64, mutants: wren::Mutants) {
    let caught = (1..=seeds).any(|seed| {
        let options = Options { with: with.to_vec(), ..options(seed, 1) };
        !run_seeds("wren", &options, || forgetful(mutants)).failures.is_empty()
    });
    assert!(caught, "{mutants:?}: not caught in {seeds} seeds");
}

#[test]
fn losses_forgotten_by_a_restart_are_caught() {
    let mutants = wren::Mutants { losses_not_in_checkpoint: true, ..Default::default() };
    assert_caught_forgetting(&[Feature::Kills], 60, mutants);
}

#[test]
fn what_is_settled_in_one_region_only_is_caught() {
    let mutants = wren::Mutants { settled_here_only: true, ..Default::default() };
    assert_caught_forgetting(&[Feature::Resolutions], 20, mutants);
}

/// Counters, summaries, tops and identifiers.
#[test]
fn types_of_our_own_keep_the_promise_too() {
    let options = Options { with: vec![Feature::Types], ..options(1, 10) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Commands of a pipeline that run as one transaction keep its promise, also where it fails.
#[test]
fn merged_pipelines_keep_the_promise_too() {
    let options = Options { with: vec![Feature::MergedPipelines], ..options(1, 8) };
    let summary = run("wren", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Queues of which most is spilled, to spools that lose some of it; and partitions that restart without theirs.
#[test]
fn queues_that_spill_keep_the_promise_too() {
    let with = vec![Feature::SmallQueues, Feature::Partitions, Feature::Kills];
    assert_keeps_its_promise("wren", &Options { with, ..options(1, 12) });
}

#[test]
fn a_chunk_that_counts_as_sent_before_it_is_there_is_caught() {
    let mutants = wren::Mutants { awaited_counts_as_sent: true, ..Default::default() };
    assert_caught_with(&[Feature::SmallQueues, Feature::Partitions], 20, mutants);
}

#[test]
fn a_lost_chunk_that_counts_as_sent_is_caught() {
    let mutants = wren::Mutants { dropped_counts_as_sent: true, ..Default::default() };
    assert_caught_with(&[Feature::SmallQueues, Feature::Partitions], 20, mutants);
}
