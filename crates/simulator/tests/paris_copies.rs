//! PaRiS with copies of its partitions in the simulator: it keeps its promise, and its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::scripts::assert_passes;
use crate::support::options;
use anabranch_simulator::{Feature, Options, ParisCopiesDeployment, run};
use causal::paris;
use replication::copies;
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(
    with: &[Feature],
    seeds: RangeInclusive<u64>,
    paris: paris::Mutants,
    copies: replication::Mutants,
) {
    let name = format!("{paris:?}{copies:?}").replace("no mutant", "");
    mistakes::assert_caught(
        &Bug::new("paris-copies", name, with, seeds),
        (paris, copies),
        |(paris, copies)| {
            let options = paris::Options { mutants: paris, ..paris::Options::default() };
            ParisCopiesDeployment::new(
                options,
                copies::Options { mutants: copies, ..copies::Options::default() },
            )
        },
    );
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
    assert_passes(include_bytes!("scripts/paris-copies-led-by-who-recovered.jsonl"), 16);
}

mod soak {
    use super::*;

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
