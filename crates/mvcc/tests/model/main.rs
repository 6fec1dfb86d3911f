//! The store against a naive model that keeps every effect and computes every state by replay.
//!
//! A failure tells its seed; `PROPTEST_RNG_SEED=n cargo test -p anabranch-mvcc` repeats it. The harness
//! itself is tested too: it must notice a store that leaves an undo out.

extern crate anabranch_mvcc as mvcc;

mod actions;
mod checker;
mod losses;
mod merge;
mod naive;
mod order;
#[path = "../../../datatypes/tests/properties/runner.rs"]
mod runner;
mod scan;
mod space;
#[path = "../../../datatypes/tests/properties/strategies.rs"]
mod strategies;
mod work;

use actions::actions;
use checker::Checker;
use runner::for_all;

/// A commit time, and whether the effect comes from another region, as in Wren.
type Stamp = (u32, bool);

/// A tenth of so many, of seeds or of what they show; `cargo xtask soak` goes through all.
#[expect(clippy::disallowed_methods, reason = "how long tests run")]
fn fewer(many: u32) -> u32 {
    if std::env::var_os("ANABRANCH_SOAK").is_some() { many } else { many / 10 }
}

#[test]
fn the_store_is_the_replay_of_its_effects() {
    for_all(fewer(600), actions(60), |actions| {
        let mut checker = Checker::new();
        actions.iter().try_for_each(|action| checker.perform(action))?;
        checker.finish()
    });
}

#[test]
fn an_undo_left_out_is_noticed() {
    use proptest::test_runner::{Config, TestError, TestRunner};
    let config = Config { max_shrink_iters: 0, ..runner::config(600) };
    let outcome = TestRunner::new(config).run(&actions(60), |actions| {
        let mut checker = Checker::new();
        checker.store = checker.store.with_mutants(mvcc::Mutant::UndoLeftOut.into());
        actions.iter().try_for_each(|action| checker.perform(action))
    });
    assert!(matches!(outcome, Err(TestError::Fail(..))), "the model accepted a store without undo");
}
