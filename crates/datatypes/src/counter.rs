//! Counter: a sum that is added to without being read, so that additions never conflict (Claret, table 1).
//!
//! Redis's `INCR` replies with the sum, and so observes it; an addition to a counter replies OK. The sum is exact:
//! additions neither wrap nor are refused, and only reading a sum beyond 64 bits is an error.
//!
//! A bounded subtraction ([`Operation::Take`]) is no escrow: three that each fit may not fit together, and quorums meet
//! in pairs only (Corrections 66). So it observes that the sum suffices, which whatever adds leaves true and whatever
//! subtracts may not: it commutes with additions of positive numbers, not with another subtraction.

use crate::observation::Footprint;
use crate::{Aspect, Kind, Observation};
use std::cmp::Ordering;
use types::{Error, Malformed, Reader, Reply, ReplyBuf, ReplySink, Wire, put_varint, wire_enum};

/// An operation on a counter.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Adds: OK.
    Add {
        /// The summand.
        by: i64,
    },
    /// The sum; 0 for an absent counter.
    Get,
    /// Subtracts if at least the floor is left: 1, or else 0.
    Take {
        /// How much.
        by: i64,
        /// What must be left.
        floor: i64,
    },
    /// Whether the sum is at least so much: 1 or 0.
    AtLeast {
        /// How much.
        bound: i64,
        /// What the reply was, where there has been one: the sum must cross the bound to make it untrue.
        known: Option<bool>,
    },
}
wire_enum!(Operation { 0 => Add { by }, 1 => Get, 2 => Take { by, floor }, 3 => AtLeast { bound, known } });

/// A mutation of a counter.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Adds.
    Add {
        /// The summand.
        by: i64,
    },
}
wire_enum!(Effect { 0 => Add { by } });

/// The state. What was never added to is an absent key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counter {
    additions: u64,
    sum: i128,
}

impl Counter {
    /// True when nothing was ever added.
    pub fn is_empty(&self) -> bool {
        self.additions == 0
    }

    /// The sum.
    pub fn sum(&self) -> i128 {
        self.sum
    }
}

impl Operation {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        matches!(self, Operation::Get | Operation::AtLeast { .. })
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'static> {
        match self {
            Operation::Add { .. } => Observation::only_kind(Kind::Counter),
            Operation::Get | Operation::Take { .. } | Operation::AtLeast { known: None, .. } => {
                Observation::of(Kind::Counter, Aspect::Whole)
            }
            Operation::AtLeast { known: Some(true), .. } => Observation::of(Kind::Counter, Aspect::Fall),
            Operation::AtLeast { known: Some(false), .. } => Observation::of(Kind::Counter, Aspect::Rise),
        }
    }

    /// See [`crate::Operation::narrowed`].
    pub fn narrowed(&self, reply: &ReplyBuf) -> Option<Operation> {
        let bound = match self {
            Operation::Take { by, floor } => floor.checked_add(*by)?,
            Operation::AtLeast { bound, .. } => *bound,
            Operation::Add { .. } | Operation::Get => return None,
        };
        match reply.first()? {
            Reply::Integer(yes) => Some(Operation::AtLeast { bound, known: Some(yes == 1) }),
            _ => None,
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect> {
        match self {
            Operation::Add { by } => Some(Effect::Add { by: *by }),
            Operation::Get | Operation::Take { .. } | Operation::AtLeast { .. } => None,
        }
    }
}

impl Effect {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        let Effect::Add { by } = self;
        let moved = match by.cmp(&0) {
            Ordering::Less => Some(Aspect::Fall),
            Ordering::Equal => None,
            Ordering::Greater => Some(Aspect::Rise),
        };
        Footprint { aspects: std::iter::once(Aspect::Existence).chain(moved).collect() }
    }
}

/// Sums do not depend on the order.
pub fn effects_commute(_: &Effect, _: &Effect) -> bool {
    true
}

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare(
    state: Option<&Counter>,
    operation: &Operation,
    _: &mut crate::Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect> {
    let sum = state.map_or(0, Counter::sum);
    match operation {
        Operation::Add { .. } => sink.simple("OK"),
        Operation::Get => match i64::try_from(sum) {
            Ok(sum) => sink.integer(sum),
            Err(_) => sink.error(&Error::err("the counter's sum is beyond 64 bits; nothing of it is lost")),
        },
        Operation::Take { by, floor } => {
            let taken = by.checked_neg().filter(|_| sum - i128::from(*by) >= i128::from(*floor));
            sink.integer(i64::from(taken.is_some()));
            return taken.map(|by| Effect::Add { by });
        }
        Operation::AtLeast { bound, .. } => sink.integer(i64::from(sum >= i128::from(*bound))),
    }
    operation.blind_effect()
}

/// What to add, and how often that counts as an addition.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    by: i64,
    undoes: bool,
}

/// Performs an effect; see [`crate::apply`].
pub fn apply<const UNDO: bool>(state: &mut Counter, effect: &Effect) -> Option<Patch> {
    let Effect::Add { by } = effect;
    state.additions += 1;
    state.sum += i128::from(*by);
    UNDO.then_some(Patch { by: *by, undoes: true })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut Counter, patch: &mut Patch) {
    let by = i128::from(patch.by);
    if patch.undoes {
        state.additions -= 1;
        state.sum -= by;
    } else {
        state.additions += 1;
        state.sum += by;
    }
    patch.undoes = !patch.undoes;
}

/// Appends a state's binary form.
pub fn encode_state(state: &Counter, out: &mut Vec<u8>) {
    put_varint(out, state.additions);
    out.extend_from_slice(&state.sum.to_le_bytes());
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<Counter, Malformed> {
    let additions = u64::decode(input)?;
    let sum = input.take(16)?.try_into().map_err(|_| Malformed("counter"))?;
    let sum = i128::from_le_bytes(sum);
    // No other sums can come of so many additions, and none of these overflows for ages.
    let possible = i64::try_from(additions).is_ok() && sum.unsigned_abs() <= u128::from(additions) << 63;
    if possible { Ok(Counter { additions, sum }) } else { Err(Malformed("counter")) }
}
