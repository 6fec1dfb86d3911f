//! COPS and COPS-GT with copies of their partitions in the simulator: they keep their promises, and known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::support::{assert_clean, assert_keeps_its_promise, options};
use anabranch_simulator::{CopsCopiesDeployment, Feature, Options, run};
use causal::cops;
use replication::copies;
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(with: &[Feature], seeds: RangeInclusive<u64>, mutant: replication::Mutant) {
    mistakes::assert_caught(
        &Bug::new("cops-copies", mutant, with, seeds),
        replication::Mutants::from(mutant),
        |mutants| {
            let options = copies::Options { mutants, ..copies::Options::default() };
            CopsCopiesDeployment::new(cops::Options::default(), options)
        },
    );
}

#[test]
fn cops_keeps_its_promise() {
    assert_keeps_its_promise("cops-copies", &options(1, 3));
}

#[test]
fn cops_gt_keeps_its_promise() {
    assert_keeps_its_promise("cops-gt-copies", &options(1, 3));
}

#[test]
fn a_minority_loses_its_disks_and_nothing_is_lost() {
    let options = Options { with: vec![Feature::LostDisks, Feature::Kills], ..options(2, 3) };
    assert_clean(&run("cops-copies", &options).unwrap());
}

/// Leaders that do not know that they were deposed: what they answer is read by who has seen more elsewhere.
#[test]
fn a_deposed_leader_that_answers_reads_is_caught() {
    assert_caught(&[Feature::Partitions, Feature::ClockJumps], 1..=60, replication::Mutant::ReadsUnconfirmed);
}

#[test]
fn writes_that_are_told_before_their_entry_is_committed_are_caught() {
    assert_caught(&[Feature::Kills, Feature::Partitions], 1..=60, replication::Mutant::SaidBeforeCommitted);
}

#[test]
fn a_deposed_leaders_state_that_is_kept_is_caught() {
    assert_caught(&[Feature::Partitions], 1..=60, replication::Mutant::StateKept);
}
