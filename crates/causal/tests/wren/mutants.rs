//! The harness is tested too: each deliberate mistake is caught within a stated number of seeds.

use crate::random::{CALM, FORGETTING, LOSING, Plan, REMOVING, play};
use anabranch_causal::wren::Mutants;

fn caught(mutants: Mutants, seeds: u64) {
    caught_in(Plan { mutants, rounds: 150, jumps: true, near: 12_000, ..CALM }, seeds);
}

fn caught_in(plan: Plan, seeds: u64) {
    let mutants = plan.mutants;
    let found = (0..seeds).find(|seed| !play(*seed, plan).ok);
    assert!(found.is_some(), "{mutants:?} was not caught in {seeds} seeds");
}

#[test]
fn reading_above_the_stable_time_is_caught() {
    caught(Mutants { read_above_stable: true, ..Mutants::default() }, 5);
}

#[test]
fn a_heartbeat_past_the_gate_is_caught() {
    caught(Mutants { ungated_heartbeat: true, ..Mutants::default() }, 10);
}

#[test]
fn a_receiver_taken_for_the_origin_is_caught() {
    caught(Mutants { receiver_as_origin: true, ..Mutants::default() }, 10);
}

#[test]
fn overwritten_stable_times_are_caught() {
    caught(Mutants { non_monotone_snapshot: true, ..Mutants::default() }, 10);
}

/// Corrections 21: a clock that jumps back stamps below what was published.
#[test]
fn a_forgotten_bound_is_caught() {
    caught(Mutants { bound_not_remembered: true, ..Mutants::default() }, 40);
}

/// Corrections 20.
#[test]
fn an_effect_left_out_at_the_bound_is_caught() {
    caught(Mutants { apply_below: true, ..Mutants::default() }, 40);
}

/// Corrections 67: a partition that lost records serves at once, from what is left.
#[test]
fn serving_before_the_refill_is_caught() {
    let mutants = Mutants { stamp_before_refill: true, ..Mutants::default() };
    caught_in(Plan { mutants, ..LOSING }, 20);
}

/// Stable times that count what was lost.
#[test]
fn vouching_for_what_is_lost_is_caught() {
    let mutants = Mutants { vouch_for_lost: true, ..Mutants::default() };
    caught_in(Plan { mutants, ..LOSING }, 20);
}

/// Corrections 75: a deletion takes away what it never saw.
#[test]
fn a_reset_of_what_was_not_observed_is_caught() {
    caught_in(Plan { mutants: Mutants { reset_unobserved: true, ..Mutants::default() }, ..REMOVING }, 10);
}

/// Who did what is forgotten while an effect may come that has not observed it.
#[test]
fn a_forgotten_context_is_caught() {
    let mutants = Mutants { forget_context: true, ..Mutants::default() };
    caught_in(Plan { mutants, near: 500, rounds: 300, ..REMOVING }, 40);
}

#[test]
fn a_dropped_queue_that_counts_as_sent_is_caught() {
    let mutants = Mutants { dropped_counts_as_sent: true, ..Mutants::default() };
    caught_in(Plan { mutants, ..FORGETTING }, 20);
}
