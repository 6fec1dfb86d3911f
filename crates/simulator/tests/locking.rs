//! Two-phase commit over replicated logs in the simulator: it keeps its promise with locks and with validation, and
//! its known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::scripts::assert_passes;
use crate::support::{assert_keeps_its_promise, options, soaks};
use anabranch_simulator::{Feature, LockingDeployment, Options, run, run_seeds};
use std::ops::RangeInclusive;
use strict::locking::{self, Concurrency, LockOptions};
use strict::{Mutant, Mutants};

#[track_caller]
fn assert_caught(concurrency: Concurrency, seeds: RangeInclusive<u64>, mutant: Mutant) {
    assert_caught_with(&[], concurrency, seeds, mutant);
}

/// The same where seeds have these features.
#[track_caller]
fn assert_caught_with(
    with: &[Feature],
    concurrency: Concurrency,
    seeds: RangeInclusive<u64>,
    mutant: Mutant,
) {
    let protocol = if concurrency == Concurrency::Optimistic { "occ" } else { "locking" };
    let bug = Bug::new(protocol, mutant, with, seeds);
    mistakes::assert_caught(&bug, Mutants::from(mutant), |mutants| LockingDeployment {
        options: locking::Options { concurrency, mutants, ..locking::Options::default() },
    });
}

/// A disk was copied while it was damaged, and the process whose disk the copy became refused to start for good.
#[test]
fn an_older_copy_of_a_disk_has_no_damage() {
    assert_passes(include_bytes!("scripts/locking-copy-of-a-damaged-disk.jsonl"), 9);
}

#[test]
fn a_vote_before_its_entry_is_committed_is_caught() {
    assert_caught(Concurrency::Locking, 22..=1021, Mutant::VoteBeforeLog);
}

#[test]
fn decisions_without_the_votes_of_all_are_caught() {
    assert_caught(Concurrency::Locking, 3..=42, Mutant::DecideBeforeVotes);
}

#[test]
fn a_vote_without_its_locks_is_caught() {
    assert_caught(Concurrency::Locking, 205..=664, Mutant::UnprotectedReads);
}

#[test]
fn single_commands_that_do_not_see_those_before_them_are_caught() {
    assert_caught(Concurrency::Locking, 1..=40, Mutant::EvaluateOnApplied);
}

/// Sessions see what is in a leader's log and not applied, and reads show it: it may be lost with the leader.
#[test]
fn what_is_shown_before_it_is_applied_is_caught() {
    assert_caught(Concurrency::Locking, 0..=199, Mutant::ShowUnapplied);
}

#[test]
fn members_of_a_batch_that_get_each_others_results_are_caught() {
    assert_caught(Concurrency::Locking, 1..=40, Mutant::MixResults);
}

#[test]
fn a_last_shard_that_minds_no_locks_is_caught() {
    assert_caught(Concurrency::Locking, 5..=44, Mutant::PassHolders);
}

#[test]
fn a_read_that_passes_votes_is_caught() {
    assert_caught(Concurrency::Locking, 29..=328, Mutant::ReadsPastVotes);
}

#[test]
fn a_vote_without_validation_is_caught() {
    assert_caught(Concurrency::Optimistic, 1..=20, Mutant::SkipValidation);
}

#[test]
fn keys_that_come_and_go_unnoticed_are_caught() {
    for concurrency in [Concurrency::Locking, Concurrency::Optimistic] {
        assert_caught_with(&[Feature::Keyset], concurrency, 3..=42, Mutant::KeysetUnvalidated);
    }
}

/// Seed 19 of locking: several clients of one coordinator are in doubt about what committed as one. Seed 122 of occ: over
/// several shards one looked at all keys, and what came later at one of them, and left all keys as they were, got a lower
/// timestamp. Seed 780 of locking: a deletion of everything wounded one that had been granted its lock at the same
/// moment, which then got its vote and the answer that it was refused.
#[test]
fn commands_on_the_whole_keyspace_keep_the_promise_inside_transactions() {
    for (protocol, seeds) in [("locking", vec![0..8, 19..20, 780..781]), ("occ", vec![0..8, 122..123])] {
        for seeds in seeds.into_iter().take(if soaks() { 3 } else { 1 }) {
            let count = seeds.end - seeds.start;
            let options = Options { with: vec![Feature::Keyset], ..options(seeds.start, count) };
            assert_keeps_its_promise(protocol, &options);
        }
    }
}

#[test]
fn combining_with_one_that_has_begun_to_commit_is_caught() {
    assert_caught(Concurrency::Locking, 21..=60, Mutant::CombineAfterCommitBegan);
}

#[test]
fn members_that_run_again_though_they_have_committed_are_caught() {
    assert_caught(Concurrency::Locking, 7..=46, Mutant::MemberCountedTwice);
}

/// Locks that are handed out the oldest first, and the modes of readers and writers.
#[test]
fn locks_keep_the_promise_without_phases_and_without_types_too() {
    for locks in [
        LockOptions { phasing: None, readers_and_writers: false },
        LockOptions { phasing: None, readers_and_writers: true },
        LockOptions { readers_and_writers: true, ..LockOptions::default() },
    ] {
        let build =
            || LockingDeployment { options: locking::Options { locks, ..locking::Options::default() } };
        let options = Options { with: vec![Feature::Types], ..options(1, 4) };
        let summary = run_seeds("locking", &options, build);
        assert!(summary.failures.is_empty(), "{locks:?}: {:#?}", summary.failures);
    }
}

/// Counters, summaries, tops and identifiers.
#[test]
fn types_of_our_own_keep_the_promise_too() {
    let options = Options { with: vec![Feature::Types], ..options(1, 4) };
    let summary = run("locking", &options).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
}
