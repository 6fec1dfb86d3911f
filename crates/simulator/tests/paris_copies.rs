//! PaRiS with copies of its partitions in the simulator: it keeps its promise, and its known bugs are caught.

mod mistakes;
mod scripts;
mod support;

use anabranch_simulator::{Feature, Options, ParisCopiesDeployment, run, run_seeds};
use causal::paris;
use mistakes::assert_shown;
use replication::copies;
use scripts::assert_passes;
use std::ops::RangeInclusive;
use support::{assert_keeps_its_promise, options};

#[track_caller]
fn assert_caught(
    with: &[Feature],
    seeds: RangeInclusive<u64>,
    paris: paris::Mutants,
    copies: replication::Mutants,
) {
    let fails = |seed, paris, copies| {
        let build = || {
            let options = paris::Options { mutants: paris, ..paris::Options::default() };
            ParisCopiesDeployment::new(
                options,
                copies::Options { mutants: copies, ..copies::Options::default() },
            )
        };
        let options = Options { with: with.to_vec(), ..options(seed, 1) };
        !run_seeds("paris-copies", &options, build).failures.is_empty()
    };
    let is_shown = |seed| fails(seed, paris, copies) && !fails(seed, Default::default(), Default::default());
    assert_shown(seeds, (paris, copies), is_shown);
}

#[test]
fn copies_of_some_regions_are_transactionally_causal() {
    assert_keeps_its_promise("paris-copies", &options(1, 1));
}

#[test]
fn a_minority_loses_its_disks_and_nothing_is_lost() {
    let options = Options { with: vec![Feature::LostDisks, Feature::Kills], ..options(1, 3) };
    let summary = run("paris-copies", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Everybody but one had lost a transaction, or never had it. That one led again as it had recovered it, so that no copy ever
/// followed with it: the history lacked what all clients saw.
#[test]
fn what_only_a_leader_recovered_is_in_the_history() {
    assert_passes(include_bytes!("scripts/paris-copies-led-by-who-recovered.jsonl"), 17);
}

/// Corrections 22: what was promised, published or proposed is below what the next leader stamps.
#[test]
fn a_leader_that_begins_below_a_promise_is_caught() {
    assert_caught(
        &[Feature::Kills, Feature::ClockJumps],
        80..=139,
        paris::Mutant::PromiseForgotten.into(),
        replication::Mutants::default(),
    );
}

#[test]
fn effects_that_leave_before_their_entry_is_committed_are_caught() {
    assert_caught(
        &[Feature::Kills, Feature::Partitions],
        5..=64,
        paris::Mutants::default(),
        replication::Mutant::SaidBeforeCommitted.into(),
    );
}
