//! Each known bug, and the model that finds it. `docs/protocols/tapir.md` has the table.

use crate::explore::explore;
use crate::models;
use crate::setup::Setup;
use anabranch_strict::Mutant;

/// Explores a model with a bug built in; it must be found within so many states.
fn assert_caught(mutant: Mutant, mut setup: Setup, states: usize) {
    setup.options.mutants = mutant.into();
    let outcome = explore(setup, states);
    assert!(outcome.violation.is_some(), "{mutant:?}: not caught in {} states", outcome.states);
    println!("{mutant:?}: {} states", outcome.states);
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
