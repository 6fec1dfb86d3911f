//! The store against a naive model that keeps every effect and computes every state by replay.
//!
//! A test fixes its seed; `PROPTEST_RNG_SEED=n cargo test -p anabranch-mvcc` explores another one. With the feature
//! `mutants` the harness itself is tested: it must notice a store that leaves an undo out.

extern crate anabranch_mvcc as mvcc;

mod actions;
mod checker;
mod losses;
mod merge;
mod naive;
mod order;
mod scan;
mod space;
#[path = "../../../datatypes/tests/properties/strategies.rs"]
mod strategies;
mod work;

use actions::actions;
use checker::Checker;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestError, TestRunner};

/// A commit time, and whether the effect comes from another region, as in Wren.
type Stamp = (u32, bool);

/// Runs `check` on `cases` random values.
fn run<S: Strategy>(
    cases: u32,
    strategy: S,
    check: impl Fn(S::Value) -> TestCaseResult,
) -> Result<(), TestError<S::Value>> {
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20);
    }
    TestRunner::new(config).run(&strategy, check)
}

fn for_all<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> TestCaseResult) {
    if let Err(failure) = run(cases, strategy, check) {
        panic!("{failure}");
    }
}

#[test]
fn the_store_is_the_replay_of_its_effects() {
    for_all(600, actions(60), |actions| {
        let mut checker = Checker::new();
        actions.iter().try_for_each(|action| checker.perform(action))?;
        checker.finish()
    });
}

#[cfg(feature = "mutants")]
#[test]
fn an_undo_left_out_is_noticed() {
    let outcome = run(600, actions(60), |actions| {
        let mut checker = Checker::new();
        checker.store.leave_out_undo();
        actions.iter().try_for_each(|action| checker.perform(action))
    });
    assert!(matches!(outcome, Err(TestError::Fail(..))), "the model accepted a store without undo");
}
