//! The specification of the types, checked against executions on random states.
//!
//! Alphabets are small so that collisions happen: few fields and members, few scores, short lists. A test fixes
//! its seed; `PROPTEST_RNG_SEED=n cargo test -p anabranch-datatypes` explores another one.

extern crate anabranch_datatypes as datatypes;

mod codecs;
mod combining;
mod commutativity;
mod models;
mod strategies;
mod undo;

use datatypes::{Cell, Context, Effect, Operation, prepare};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseResult, TestRunner};
use types::{ReplyBuf, Rng};

/// The time at which operations are evaluated; every deadline that a strategy makes is later.
const NOW_MILLIS: u64 = 1000;

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

/// Evaluates an operation; the same randomness every time.
fn evaluate<'a>(cell: &Cell, operation: &Operation<'a>) -> (ReplyBuf, Option<Effect<'a>>) {
    let mut reply = ReplyBuf::new();
    let mut random = Rng::with_seed(7);
    let mut context = Context { now_millis: NOW_MILLIS, random: &mut random };
    let effect = prepare(cell, operation, &mut context, &mut reply);
    (reply, effect)
}
