//! The models that take long: `cargo xtask soak models` explores them.

use crate::model::explore::{explore, explore_with};
use crate::model::models::*;
use crate::model::setup::{Act, Setup};
use anabranch_strict::Mutant;

/// How many states a search visits that does not end.
const MOST: usize = 40_000_000;

/// The states closest to the beginning hold.
fn visit(setup: Setup) {
    explored(setup, MOST);
}

/// The pairs of replicas: the quorums of the slow path.
const PAIRS: [u8; 3] = [0b011, 0b101, 0b110];

/// The three transactions of `inversion`, each heard by two replicas only.
fn inversion_over(quorums: [u8; 3]) -> Setup {
    Setup { timers: 1, heard: quorums.to_vec(), ..inversion() }
}

/// Every choice of a pair for each of three transactions. Only replica 1 is read from, so that two choices are the same
/// but for the names of the other two replicas.
fn choices_of_quorums() -> impl Iterator<Item = [u8; 3]> {
    let mirrored = |pair: u8| match pair {
        0b011 => 0b110,
        0b110 => 0b011,
        other => other,
    };
    let all = (0..27).map(|number: usize| [PAIRS[number % 3], PAIRS[number / 3 % 3], PAIRS[number / 9]]);
    all.filter(move |quorums| *quorums <= quorums.map(mirrored))
}

#[test]
fn results_survive_a_view_change() {
    exhaust(a_view_change(), (1, 0));
}

#[test]
fn results_survive_a_restart() {
    exhaust(restart(), (1, 0));
}

#[test]
fn results_survive_a_replica_that_forgot() {
    exhaust(amnesia(), (1, 0));
}

#[test]
fn outcomes_survive_two_view_changes() {
    exhaust(two_view_changes(), (1, 0));
}

#[test]
fn a_coordinator_and_a_backup_coordinator_agree() {
    exhaust(one_backup(), (1, 1));
}

#[test]
fn two_backup_coordinators_agree() {
    visit(two_backups());
}

#[test]
fn a_recovery_survives_a_view_change() {
    exhaust(backup_and_view(), (0, 0));
}

#[test]
fn stamps_do_not_run_against_real_time() {
    exhaust(inversion(), (3, 2));
}

#[test]
fn stamps_do_not_run_against_real_time_whatever_the_quorums() {
    let mut states = 0;
    for quorums in choices_of_quorums() {
        let outcome = explore(inversion_over(quorums), 3_000_000);
        assert_eq!(outcome.violation, None, "{quorums:?}");
        assert!(outcome.exhausted, "{quorums:?}: more than {} states", outcome.states);
        assert_eq!(outcome.answered, (3, 2), "each can commit, and both that conflict can be refused");
        states += outcome.states;
    }
    println!("{states} states, all");
}

#[test]
fn validation_that_trusts_stamps_is_caught_over_some_quorums() {
    let caught = choices_of_quorums().any(|quorums| {
        let mut setup = inversion_over(quorums);
        setup.options.mutants = Mutant::TrustStamps.into();
        explore(setup, 300_000).violation.is_some()
    });
    assert!(caught, "the model sees what Corrections 1 warns of");
}

#[test]
fn quorum_reads_are_linearizable() {
    exhaust(quorum_reads(), (3, 3));
}

#[test]
fn an_observer_closes_its_base_over_blind_increments() {
    exhaust(blind_increments(), (3, 2));
}

#[test]
fn a_transaction_over_two_shards_ends_on_both_alike() {
    // Nobody is left to be answered.
    exhaust(two_shards(), (0, 0));
}

#[test]
fn write_skew_does_not_happen_over_two_shards() {
    exhaust(write_skew_over_two_shards(), (2, 2));
}

#[test]
fn one_of_two_transactions_is_left_by_its_coordinator() {
    visit(two_transactions_and_a_crash());
}

/// With names and without: the same number of states, where those that differ in names are counted again.
#[test]
fn replicas_that_are_alike_count_once() {
    for setup in [two_shards_alive(), two_increments(), write_skew(), in_turn()] {
        let whole = explore_with(setup.clone(), 3_000_000, false);
        let reduced = explore(setup, 3_000_000);
        assert!(whole.exhausted && reduced.exhausted);
        println!("{} of {}", reduced.states, whole.states);
        assert_eq!((reduced.named, reduced.answered), (whole.states, whole.answered));
    }
}

#[test]
fn one_of_two_transactions_that_meet_at_one_shard_is_left_by_its_coordinator() {
    for shard in [0, 1] {
        for acts in [&[Act::Get][..], &[Act::Set(2)], &[Act::Increment]] {
            exhaust(another_at_one_shard(shard, acts), (1, 1));
        }
    }
}

/// One replica of each shard is down: f = 1 has happened, and whatever else may happen is visited.
#[test]
fn nothing_is_lost_with_a_replica_down() {
    exhaust(two_view_changes_and_a_crash(), (1, 0));
    exhaust(quorum_reads_and_a_crash(), (3, 3));
    exhaust(blind_increments_and_a_crash(), (3, 2));
}

#[test]
fn the_transaction_of_a_dead_coordinator_ends_with_a_replica_down() {
    // Nobody is left to be answered.
    exhaust(two_backups_and_a_crash(), (0, 0));
    exhaust(backup_and_view_and_a_crash(), (0, 0));
    exhaust(two_shards_and_a_crash(), (0, 0));
}
