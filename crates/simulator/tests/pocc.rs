//! POCC in the simulator: it keeps its promise, and its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::scripts::assert_passes;
use crate::support::{assert_keeps_its_promise, options, soaks};
use anabranch_simulator::{Feature, PoccDeployment, Script, run, simulate};
use causal::pocc::{Mutant, Mutants, Options};
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(with: &[Feature], seeds: RangeInclusive<u64>, mutant: Mutant) {
    mistakes::assert_caught(&Bug::new("pocc", mutant, with, seeds), Mutants::from(mutant), |mutants| {
        PoccDeployment::new(Options { mutants, ..Options::default() })
    });
}

/// A session that got an error for a loss gives a context that has only what it did since.
#[test]
fn a_context_given_after_a_loss_has_nothing_from_before() {
    assert_passes(include_bytes!("scripts/pocc-context-after-a-loss.jsonl"), 22);
}

/// A survivor's disk lost writes of the evicted region that had been stable: a session that only read was said to depend on them.
#[test]
fn what_was_stable_and_is_given_up_is_no_dependency() {
    assert_passes(include_bytes!("scripts/pocc-stable-and-given-up.jsonl"), 18);
}

/// A repeated `Prepare` came after its partition had taken a checkpoint, and restarted: it committed a second time.
#[test]
fn a_repetition_from_before_a_checkpoint_is_refused_after_a_restart() {
    assert_passes(include_bytes!("scripts/pocc-repeated-after-a-restart.jsonl"), 46);
}

/// A client left while its session waited for a region that was cut off. What it had sent behind that ran without what the
/// session had written before.
#[test]
fn what_waits_in_a_session_that_is_closed_does_not_run_with_less_than_it_had_seen() {
    assert_passes(include_bytes!("scripts/pocc-degraded-unheard.jsonl"), 150);
}

#[test]
fn it_keeps_its_promise() {
    assert_keeps_its_promise("pocc", &options(1, 8));
}

/// Corrections 44: what depends on what is lost goes with it, and sessions that have seen it get an error.
#[test]
fn a_region_is_lost_and_the_others_go_on() {
    let with = vec![Feature::Eviction, Feature::Partitions];
    let summary = run("pocc", &anabranch_simulator::Options { with, ..options(1, 3) }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// A session that gets an error for the loss begins anew, also without a context that it had taken over and not used.
#[test]
fn a_session_that_begins_anew_does_not_follow_a_context() {
    let script = Script::draw("pocc", &PoccDeployment::default(), 1026, &[Feature::Eviction]);
    let run = simulate(PoccDeployment::default(), &script, Default::default(), false);
    assert!(run.report.ok, "{:#?}", run.report.violations);
}

/// Algorithm 1, lines 4 and 5: who reads something must be shown what it depends on.
#[test]
fn a_read_that_joins_no_dependencies_is_caught() {
    assert_caught(&[], 1..=40, Mutant::ReadsNotTracked);
}

/// Algorithm 2, lines 2 and 25.
#[test]
fn a_read_of_what_has_not_arrived_is_caught() {
    assert_caught(&[], 1..=40, Mutant::ReadNotInstalled);
}

/// Corrections 39: the versions of an older snapshot are forgotten.
#[test]
fn a_horizon_by_the_maximum_is_caught() {
    assert_caught(&[Feature::Interactive], 1..=40, Mutant::HorizonByMaximum);
}

/// Corrections 41: a slice is read before what its own region places below it is decided.
#[test]
fn a_slice_that_ignores_the_local_entry_is_caught() {
    assert_caught(&[], 1..=50, Mutant::LocalEntryIgnored);
}

/// HA-POCC: links are cut for long enough that sessions go on without what is missing, and are promoted: what they see is checked.
#[test]
fn sessions_go_on_without_what_is_missing() {
    let degraded = |seed| {
        let deployment = PoccDeployment::default();
        let script = Script::draw("pocc", &deployment, seed, &[Feature::Partitions]);
        let run = simulate(deployment, &script, Default::default(), false);
        assert!(run.report.ok, "seed {seed}: {:#?}", run.report.violations);
        run.degraded
    };
    // `cargo xtask soak` goes through all.
    let seen = (1..=12).filter(|seed| degraded(*seed) > 0);
    assert!(seen.take(if soaks() { usize::MAX } else { 1 }).count() > 0);
}

/// Corrections 43: an item of an optimistic session is shown to a pessimistic one without what it depends on, because it is local.
#[test]
fn a_local_item_that_is_always_visible_is_caught() {
    assert_caught(&[Feature::Partitions], 1..=60, Mutant::LocalAlwaysVisible);
}

mod soak {
    use super::*;

    /// Corrections 40: a heartbeat vouches for a time that is still given to a write. Wren's tests catch the same line of code.
    #[test]
    fn a_bound_that_the_clock_forgets_is_caught() {
        assert_caught(&[], 1..=400, Mutant::BoundNotRemembered);
    }
}
