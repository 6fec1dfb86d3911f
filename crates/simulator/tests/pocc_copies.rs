//! POCC with copies of its partitions in the simulator: it keeps its promise, and known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::support::{assert_clean, assert_keeps_its_promise, options};
use anabranch_simulator::{Feature, Options, PoccCopiesDeployment, run};
use causal::pocc;
use replication::copies;
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(
    with: &[Feature],
    seeds: RangeInclusive<u64>,
    pocc: pocc::Mutants,
    copies: replication::Mutants,
) {
    let name = format!("{pocc:?}{copies:?}").replace("no mutant", "");
    mistakes::assert_caught(&Bug::new("pocc-copies", name, with, seeds), (pocc, copies), |(pocc, copies)| {
        let options = pocc::Options { mutants: pocc, ..pocc::Options::default() };
        PoccCopiesDeployment::new(options, copies::Options { mutants: copies, ..copies::Options::default() })
    });
}

#[test]
fn it_keeps_its_promise() {
    assert_keeps_its_promise("pocc-copies", &options(1, 3));
}

#[test]
fn a_minority_loses_its_disks_and_nothing_is_lost() {
    let options = Options { with: vec![Feature::LostDisks, Feature::Kills], ..options(2, 3) };
    assert_clean(&run("pocc-copies", &options).unwrap());
}

/// Corrections 42: local items count as there only if who leads next has every write that was told.
#[test]
fn writes_that_are_told_before_their_entry_is_committed_are_caught() {
    assert_caught(
        &[Feature::Kills, Feature::Partitions],
        1..=60,
        pocc::Mutants::default(),
        replication::Mutant::SaidBeforeCommitted.into(),
    );
}

/// Corrections 22 and 40: what was promised or told is below what the next leader stamps.
#[test]
fn a_leader_that_begins_below_a_promise_is_caught() {
    assert_caught(
        &[Feature::Kills, Feature::ClockJumps],
        1..=60,
        pocc::Mutant::PromiseForgotten.into(),
        replication::Mutants::default(),
    );
}
