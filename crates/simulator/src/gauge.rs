//! A user-defined type for simulated clients: a level that only rises. It has all that such a type may have: operations that
//! commute, replies that narrow what was seen, blind calls, lock modes, and calls that combine.
//!
//! Raises commute, with each other and with whoever has seen that the level reaches a bound. A lid stops them, and conflicts
//! with them; a later lid changes nothing.

use datatypes::{Operation, user};
use std::hash::Hasher;
use types::Rng;
use usertypes::{
    Answer, Argument, Call, Codec, Input, Kind, LockMode, Module, Operation as Described, Reply, UserType,
};

/// The type's name.
const NAME: &str = "gauge";

/// Makes the type known to this process: histories with its operations can be read from then on.
pub fn register() {
    // A version of its source: histories of another one are refused.
    let mut digest = xxhash_rust::xxh3::Xxh3::new();
    digest.write(include_bytes!("gauge.rs"));
    let registered = user::register(NAME, digest.finish(), Module::native::<Gauge>());
    debug_assert!(registered.is_ok(), "nobody else registers types here: {registered:?}");
}

#[derive(Debug)]
struct Gauge;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    level: i64,
    has_lid: bool,
}

impl Codec for State {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.level, self.has_lid).encode(out);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Some(State { level: Codec::decode(input)?, has_lid: Codec::decode(input)? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    Raise(i64),
    Cover,
}

impl Codec for Effect {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Raise(by) => by.encode(out),
            Effect::Cover => 0i64.encode(out),
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Some(match i64::decode(input)? {
            0 => Effect::Cover,
            by => Effect::Raise(by),
        })
    }
}

impl UserType for Gauge {
    type State = State;
    type Effect = Effect;

    const OPERATIONS: &'static [Described] = &[
        Described::writes("raise", &[("by", Kind::Integer, &["1", "7"])]).in_mode("raise"),
        Described::writes("cover", &[]),
        Described::reads("level", &[]),
        Described::reads("reaches", &[("bound", Kind::Integer, &["0", "5"])]),
        Described::reads("covered", &[]).in_mode("ask"),
    ];
    const MODES: &'static [LockMode] =
        &[LockMode::new("raise", &["raise", "ask"]), LockMode::new("ask", &["ask"])];
    const COMBINES: bool = true;

    fn execute(state: &State, call: &Call<'_>) -> Answer<Effect> {
        let flag = |yes: bool| Reply::Integer(yes.into());
        match (call.operation, call.arguments) {
            ("raise", _) if state.has_lid => Answer::refused("there is a lid"),
            ("raise", [Argument::Integer(by @ 1..1_000)]) => Answer::with(Reply::Ok, Effect::Raise(*by)),
            ("raise", _) => Answer::refused("it rises by 1 to 999"),
            ("cover", _) if state.has_lid => Answer::only(flag(false)),
            ("cover", _) => Answer::with(flag(true), Effect::Cover),
            ("level", _) => Answer::only(Reply::Integer(state.level)),
            ("reaches", [Argument::Integer(bound)]) => Answer::only(flag(state.level >= *bound)),
            ("covered", _) => Answer::only(flag(state.has_lid)),
            _ => Answer::refused("there is no such operation"),
        }
    }

    fn apply(state: &mut State, effect: &Effect) {
        match effect {
            Effect::Raise(by) if !state.has_lid => state.level = state.level.saturating_add(*by),
            Effect::Raise(_) => {}
            Effect::Cover => state.has_lid = true,
        }
    }

    fn commute(a: &Effect, b: &Effect) -> bool {
        a == b || matches!((a, b), (Effect::Raise(_), Effect::Raise(_)))
    }

    fn unchanged(call: &Call<'_>, reply: Option<&Reply>, effect: &Effect) -> bool {
        let replied = |value| reply == Some(&Reply::Integer(value));
        match (call.operation, effect) {
            ("raise" | "cover" | "covered", Effect::Raise(_)) | ("level" | "reaches", Effect::Cover) => true,
            ("reaches", Effect::Raise(_)) | ("covered", Effect::Cover) => replied(1),
            // It was covered already.
            ("cover", Effect::Cover) => replied(0),
            _ => false,
        }
    }

    fn blind(call: &Call<'_>) -> Option<Effect> {
        match (call.operation, call.arguments) {
            ("raise", [Argument::Integer(by @ 1..1_000)]) => Some(Effect::Raise(*by)),
            ("cover", _) => Some(Effect::Cover),
            _ => None,
        }
    }

    fn combine(held: &Call<'_>, _: &Reply, second: &Call<'_>) -> Option<Answer<Effect>> {
        match (held.operation, second.operation) {
            // One was taken, so there is no lid.
            ("raise", "raise") => Self::blind(second).map(|raise| Answer::with(Reply::Ok, raise)),
            ("cover", "cover") => Some(Answer::only(Reply::Integer(0))),
            _ => None,
        }
    }
}

fn call(operation: &str, arguments: &[&[u8]]) -> Option<Operation<'static>> {
    let gauge = user::find(NAME.as_bytes())?;
    user::Operation::new(gauge, operation.as_bytes(), arguments).ok().map(Operation::User)
}

/// The read that shows most.
pub(crate) fn level() -> Option<Operation<'static>> {
    call("level", &[])
}

/// The smallest write. Under a lid it is refused.
pub(crate) fn raise() -> Option<Operation<'static>> {
    call("raise", &[b"1"])
}

pub(crate) fn read(random: &mut Rng) -> Option<Operation<'static>> {
    let bound = random.u32(..100).to_string();
    if random.bool() { call("reaches", &[bound.as_bytes()]) } else { call("covered", &[]) }
}

pub(crate) fn write(random: &mut Rng) -> Option<Operation<'static>> {
    let by = random.u32(1..8).to_string();
    if random.u32(..20) == 0 { call("cover", &[]) } else { call("raise", &[by.as_bytes()]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_keeps_its_own_specification() {
        let report = usertypes::check::check(&Module::native::<Gauge>());
        assert!(report.as_ref().is_ok_and(|report| report.commuting > 100), "{report:?}");
    }
}
