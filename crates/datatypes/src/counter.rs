//! Counter: a sum that is added to without being read, so that additions never conflict (Claret, table 1).
//!
//! Redis's `INCR` replies with the sum, and so observes it; an addition to a counter replies OK. The sum is exact:
//! additions neither wrap nor are refused, and only reading a sum beyond 64 bits is an error.

use crate::observation::Footprint;
use crate::{Aspect, Kind, Observation};
use types::{Error, Malformed, Reader, ReplySink, Wire, put_varint, wire_enum};

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
}
wire_enum!(Operation { 0 => Add { by }, 1 => Get });

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
        matches!(self, Operation::Get)
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'static> {
        match self {
            Operation::Add { .. } => Observation::only_kind(Kind::Counter),
            Operation::Get => Observation::of(Kind::Counter, Aspect::Whole),
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect> {
        match self {
            Operation::Add { by } => Some(Effect::Add { by: *by }),
            Operation::Get => None,
        }
    }
}

impl Effect {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
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
    match operation {
        Operation::Add { .. } => sink.simple("OK"),
        Operation::Get => match i64::try_from(state.map_or(0, Counter::sum)) {
            Ok(sum) => sink.integer(sum),
            Err(_) => sink.error(&Error::err("the counter's sum is beyond 64 bits; nothing of it is lost")),
        },
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
