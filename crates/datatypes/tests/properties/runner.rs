//! Runs properties on random values: from the seed in `PROPTEST_RNG_SEED`, or else from another one each time, which a
//! failure tells.

use proptest::prelude::Rng as _;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};

/// So many cases, and a seed that is known.
pub fn config(cases: u32) -> Config {
    let mut config = Config { cases, failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(TestRunner::default().rng().next_u64());
    }
    config
}

/// Runs `check` on `cases` random values.
pub fn for_all<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> TestCaseResult) {
    let config = config(cases);
    let seed = config.rng_seed;
    if let Err(failure) = TestRunner::new(config).run(&strategy, check) {
        panic!("{failure}\nrepeat it with PROPTEST_RNG_SEED={seed}");
    }
}
