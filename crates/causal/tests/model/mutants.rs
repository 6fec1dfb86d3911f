//! Each known bug, and the model that finds it.

use crate::model::explore::explore;
use crate::model::models;
use crate::model::setup::Setup;
use anabranch_causal::wren::Mutant;

/// Explores a model with a bug built in: it must be found within so many states, in which the code as it is has none.
fn assert_caught(mutant: Mutant, setup: Setup, most: usize) {
    let mut mutated = setup.clone();
    mutated.options.mutants = mutant.into();
    let outcome = explore(mutated, most, 100);
    assert!(outcome.violation.is_some(), "{mutant:?}: not caught in {} states", outcome.states);
    println!("{} states", outcome.states);
    let sound = explore(setup, outcome.states, 0).violation;
    assert_eq!(sound, None, "without {mutant:?}");
}

/// Corrections 20.
#[test]
fn an_effect_left_out_at_the_bound_is_caught() {
    assert_caught(Mutant::ApplyBelow, models::two_regions(), 1000);
}

/// Corrections 21: within a region, and between two.
#[test]
fn a_forgotten_bound_is_caught() {
    let mutant = Mutant::BoundNotRemembered;
    assert_caught(mutant, models::a_writer_and_a_reader_with_clocks(), 50_000);
    assert_caught(mutant, models::two_regions_with_a_clock(), 1000);
}

/// Corrections 22.
#[test]
fn a_forgotten_promise_is_caught() {
    assert_caught(Mutant::PromiseForgotten, models::a_restart(), 20_000);
}

/// Corrections 24.
#[test]
fn a_heartbeat_past_the_stream_is_caught() {
    assert_caught(Mutant::UngatedHeartbeat, models::two_regions(), 1000);
}

/// Corrections 27.
#[test]
fn a_remote_time_above_the_local_one_is_caught() {
    assert_caught(Mutant::RemoteNotBelowLocal, models::two_regions(), 1000);
}

/// The stabilization tree: one in its middle speaks for itself alone.
#[test]
fn a_minimum_without_those_below_is_caught() {
    assert_caught(Mutant::SubtreeLeftOut, models::a_chain_of_partitions(), 10_000);
}

/// Corrections 73: together with 23, for the decider aborts what it knows nothing of.
#[test]
fn a_decision_that_only_the_coordinator_knows_is_caught() {
    assert_caught(Mutant::AnsweredBeforeDecision, models::a_dead_coordinator(), 100_000);
}

/// The reader's coordinator has a fast clock.
#[test]
fn a_snapshot_above_the_stable_time_is_caught() {
    let walls = vec![vec![0], vec![0], vec![0], vec![10]];
    let setup = Setup { walls, ..models::a_writer_and_a_reader() };
    assert_caught(Mutant::ReadAboveStable, setup, 20_000);
}
