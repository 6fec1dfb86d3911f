//! Each known bug, and the model that finds it.

use crate::model::explore::explore;
use crate::model::models;
use crate::model::routes;
use crate::model::setup::Setup;
use anabranch_strict::Mutant;

/// Explores a model with a bug built in: it must be found within so many states, in which the code as it is has none.
fn assert_caught(mutant: Mutant, setup: Setup, most: usize) {
    let mut mutated = setup.clone();
    mutated.options.mutants = mutant.into();
    let outcome = explore(mutated, most);
    assert!(outcome.violation.is_some(), "{mutant:?}: not caught in {} states", outcome.states);
    println!("{mutant:?}: {} states", outcome.states);
    let sound = explore(setup, outcome.states).violation;
    assert_eq!(sound, None, "without {mutant:?}");
}

#[test]
fn lenient_validation_is_caught() {
    assert_caught(Mutant::SkipValidation, models::in_turn(), 1000);
    assert_caught(Mutant::TrustStamps, models::in_turn(), 1000);
    assert_caught(Mutant::StampBelowReads, models::in_turn(), 1000);
    assert_caught(Mutant::AbsentReadsPass, models::in_turn(), 1000);
    assert_caught(Mutant::ObservedByMaximum, models::blind_increments(), 60_000);
}

#[test]
fn a_fast_quorum_of_two_is_caught() {
    assert_caught(Mutant::WrongQuorum, models::one_backup(), 20_000);
}

#[test]
fn a_commit_without_its_effects_is_caught() {
    assert_caught(Mutant::CommitWithoutEffects, models::in_turn(), 1000);
}

#[test]
fn a_read_of_one_replica_is_caught() {
    assert_caught(Mutant::SingleReplicaReads, routes::write_then_quorum_read(), 100_000);
}

#[test]
fn forgotten_tombstones_are_caught() {
    assert_caught(Mutant::NoTombstones, routes::acknowledged(), 100_000);
}

#[test]
fn a_replica_that_forgot_and_serves_is_caught() {
    assert_caught(Mutant::ForgetRecovery, routes::amnesia_and_backup(), 300_000);
}

#[test]
fn mixed_attempts_are_caught() {
    assert_caught(Mutant::MixAttempts, routes::two_attempts(), 300_000);
}

#[test]
fn a_view_without_its_record_is_caught() {
    assert_caught(Mutant::StartViewWithoutRecord, routes::two_leaders(), 300_000);
}

#[test]
fn a_choice_of_an_earlier_view_is_caught() {
    assert_caught(Mutant::FinalizeWithoutView, routes::late_choice(), 300_000);
}

#[test]
fn a_raw_poll_is_caught() {
    assert_caught(Mutant::RawPollDecides, routes::two_polls(), 300_000);
}

#[test]
fn an_early_refusal_is_caught() {
    assert_caught(Mutant::TellRefusalEarly, routes::refusal_and_backup(), 300_000);
}

#[test]
fn a_refusal_judged_again_is_caught() {
    assert_caught(Mutant::RevalidateRefusals, routes::refusal_and_view(), 300_000);
}

#[test]
fn a_promise_that_loses_is_caught() {
    assert_caught(Mutant::NoVoteLosesToAttempts, routes::promise_and_view(), 300_000);
}

/// The models with a replica down that are explored to their end see what they are for.
#[test]
fn bugs_are_caught_with_a_replica_down() {
    assert_caught(Mutant::TrustStamps, models::quorum_reads_and_a_crash(), 10_000);
    assert_caught(Mutant::ObservedByMaximum, models::blind_increments_and_a_crash(), 60_000);
    assert_caught(Mutant::NoTombstones, models::two_backups_and_a_crash(), 3000);
    assert_caught(Mutant::NoTombstones, models::two_shards_and_a_crash(), 3000);
    assert_caught(Mutant::FinalizeWithoutView, models::backup_and_view_and_a_crash(), 5000);
    assert_caught(Mutant::FinalizeWithoutView, models::two_view_changes_and_a_crash(), 10_000);
}

/// Hundreds of thousands of states; the simulator has a short script that shows it.
mod soak {
    use super::*;

    #[test]
    fn a_record_of_an_earlier_view_is_caught() {
        assert_caught(Mutant::MergeEveryView, routes::slept_through_a_view(), 1_000_000);
    }
}
