//! The specification of the types, checked against executions on random states.
//!
//! Alphabets are small so that collisions happen: few fields and members, few scores, short lists. A failure tells its
//! seed; `PROPTEST_RNG_SEED=n cargo test -p anabranch-datatypes` repeats it.

mod codecs;
mod combining;
mod commutativity;
mod maps;
mod models;
mod runner;
mod strategies;
mod undo;
mod visits;

use datatypes::{Cell, Context, Effect, Operation, prepare};
use runner::for_all;
use types::{ReplyBuf, Rng};

/// The time at which operations are evaluated; every deadline that a strategy makes is later.
const NOW_MILLIS: u64 = 1000;

/// Evaluates an operation; the same randomness every time.
fn evaluate<'a>(cell: &Cell, operation: &Operation<'a>) -> (ReplyBuf, Option<Effect<'a>>) {
    let mut reply = ReplyBuf::new();
    let mut random = Rng::with_seed(7);
    let mut context = Context { now_millis: NOW_MILLIS, random: &mut random, site: None };
    let effect = prepare(cell, operation, &mut context, &mut reply);
    (reply, effect)
}
