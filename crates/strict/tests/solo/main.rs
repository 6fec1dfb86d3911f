//! One-replica strict partitions, driven through `protocol::Replica` as a process drives them.
//!
//! A test fixes its seed; `PROPTEST_RNG_SEED=n cargo test -p anabranch-strict` explores another one.

extern crate anabranch_strict as strict;

mod checkpoints;
mod expiry;
mod keysets;
mod log_failure;
mod partitions;
mod recovery;
mod requests;
#[path = "../../../datatypes/tests/properties/strategies.rs"]
mod strategies;
mod traffic;
mod transactions;
mod transactions_random;
mod watches;
mod world;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

/// Runs `check` on `cases` random values.
fn for_all<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> TestCaseResult) {
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20);
    }
    if let Err(failure) = TestRunner::new(config).run(&strategy, check) {
        panic!("{failure}");
    }
}
