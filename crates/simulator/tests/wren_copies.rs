//! Wren with copies of its partitions in the simulator: it keeps its promise, and its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::support::{options, whole};
use anabranch_simulator::{Feature, Options, WrenCopiesDeployment, run};
use causal::wren;
use replication::copies;
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(
    with: &[Feature],
    seeds: RangeInclusive<u64>,
    wren: wren::Mutants,
    copies: replication::Mutants,
) {
    let name = format!("{wren:?}{copies:?}").replace("no mutant", "");
    mistakes::assert_caught(&Bug::new("wren-copies", name, with, seeds), (wren, copies), |(wren, copies)| {
        let options = wren::Options { mutants: wren, ..wren::Options::default() };
        WrenCopiesDeployment::new(options, copies::Options { mutants: copies, ..copies::Options::default() })
    });
}

/// Corrections 72: sessions of a process share a causal thread unless an option says otherwise.
#[test]
fn sessions_that_share_a_thread_keep_the_promise_too() {
    let options = Options { with: vec![Feature::SharedThreads, Feature::Interactive], ..options(1, 3) };
    let summary = run("wren-copies", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

#[test]
fn a_minority_loses_its_disks_and_nothing_is_lost() {
    let options = Options { with: vec![Feature::LostDisks, Feature::Kills], ..options(1, 3) };
    let summary = run("wren-copies", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// Corrections 22: what was promised, published or proposed is below what the next leader stamps.
#[test]
fn a_leader_that_begins_below_a_promise_is_caught() {
    assert_caught(
        &[Feature::Kills, Feature::ClockJumps],
        278..=530,
        wren::Mutant::PromiseForgotten.into(),
        replication::Mutants::default(),
    );
}

#[test]
fn effects_that_leave_before_their_entry_is_committed_are_caught() {
    assert_caught(
        &[Feature::Kills, Feature::Partitions],
        7..=66,
        wren::Mutants::default(),
        replication::Mutant::SaidBeforeCommitted.into(),
    );
}

#[test]
fn a_member_that_forgot_and_votes_is_caught() {
    assert_caught(
        &[Feature::LostDisks],
        18..=77,
        wren::Mutants::default(),
        replication::Mutant::TrustMemory.into(),
    );
}

/// A region is lost while leaders of the others die, stand still and are cut off.
#[test]
fn the_others_go_on_without_a_lost_region_whoever_leads() {
    let options =
        Options { with: vec![Feature::Eviction, Feature::Kills, Feature::Partitions], ..options(1, 3) };
    let summary = run("wren-copies", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}

/// A script of seconds with nine processes.
mod soak {
    use super::*;

    /// 87: when everything had come to rest a group was without a leader for a moment, and so nobody listed what it had lost.
    #[test]
    fn seeds_that_showed_bugs_pass() {
        let summary = run("wren-copies", &whole(87, 1)).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    }

    #[test]
    fn a_deposed_leaders_state_that_stays_is_caught() {
        assert_caught(
            &[Feature::Partitions],
            244..=303,
            wren::Mutants::default(),
            replication::Mutant::StateKept.into(),
        );
    }
}
