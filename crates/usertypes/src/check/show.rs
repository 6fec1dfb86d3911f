//! Scenes in words, in one line: an error reply has no more.

use super::draw::Drawn;
use super::scene::{Scene, Step};
use crate::Module;
use crate::abi::{Argument, Reply};
use crate::codec::Codec;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The most bytes of a state that are shown.
const SHOWN_BYTES: usize = 48;

const NAMES: [&str; 3] = ["A", "B", "C"];

/// `bid("a", 3)`.
pub(crate) fn call(module: &Module, drawn: &Drawn) -> String {
    let name = &module.spec().operations[usize::from(drawn.operation)].name;
    let arguments: Vec<String> = drawn.arguments.iter().map(argument).collect();
    format!("{name}({})", arguments.join(", "))
}

fn argument(argument: &Argument) -> String {
    match argument {
        Argument::Integer(value) => value.to_string(),
        Argument::Bytes(text) => bytes(text),
    }
}

fn bytes(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn reply_text(reply: &Reply) -> String {
    match reply {
        Reply::Ok => "OK".to_string(),
        Reply::Integer(value) => value.to_string(),
        Reply::Bytes(text) => bytes(text),
        Reply::Null => "nothing".to_string(),
        Reply::Array(replies) => {
            let replies: Vec<String> = replies.iter().map(reply_text).collect();
            format!("[{}]", replies.join(", "))
        }
        Reply::Error(text) => format!("the error \"{text}\""),
    }
}

fn calls(module: &Module, drawn: &[Drawn]) -> String {
    let calls: Vec<String> = drawn.iter().map(|drawn| call(module, drawn)).collect();
    if calls.is_empty() { "nothing".to_string() } else { calls.join(", ") }
}

/// What is done, and on which state.
pub(crate) fn scene(module: &Module, scene: &Scene) -> String {
    let step = |(name, step): (&&str, &Step)| match &step.elsewhere {
        None => format!("{name} = {}", call(module, &step.operation)),
        Some(elsewhere) => {
            let (call, before) = (call(module, &step.operation), calls(module, elsewhere));
            format!("{name} = the effect that {call} has after {before}")
        }
    };
    let steps: Vec<String> = NAMES.iter().zip(&scene.steps).map(step).collect();
    format!("{}; on the state after {}: ", steps.join("; "), calls(module, &scene.before))
}

fn order(order: &[usize]) -> String {
    let names: Vec<&str> = order.iter().map(|place| NAMES[*place]).collect();
    names.join(" ")
}

/// The predicted reply of an operation, and its real one.
pub(crate) fn wrong_reply(place: usize, predicted: &Reply, now: &Reply) -> String {
    format!("{} is told {}, but replies {}", NAMES[place], reply_text(predicted), reply_text(now))
}

/// A step's name.
pub(crate) fn name(place: usize) -> &'static str {
    NAMES[place]
}

/// A step sees something else in an order than where it was evaluated.
pub(crate) fn reply(of: &[usize], place: usize, seen: &Reply, now: &Reply) -> String {
    format!(
        "{} replies {}, but {} in the order {}",
        NAMES[place],
        reply_text(seen),
        reply_text(now),
        order(of)
    )
}

/// A step would choose another effect in an order than where it was evaluated.
pub(crate) fn effect(of: &[usize], place: usize) -> String {
    format!("{} has an effect that does something else in the order {}", NAMES[place], order(of))
}

/// Two orders leave different states: shown by a read that tells them apart, or else by their bytes.
pub(crate) fn different(module: &Module, one: (&[usize], &[u8]), other: (&[usize], &[u8])) -> String {
    let none = {
        let mut none = Vec::new();
        Vec::<Argument>::new().encode(&mut none);
        none
    };
    let reads = (0u8..).zip(&module.spec().operations);
    let telling =
        reads.filter(|(_, spec)| spec.reads && spec.arguments.is_empty()).find_map(|(number, spec)| {
            let [a, b] = [one.1, other.1].map(|state| module.execute(state, number, &none).ok());
            let (a, b) = (a?.reply, b?.reply);
            (a != b).then(|| (spec.name.clone(), reply_text(&a), reply_text(&b)))
        });
    let (one_order, other_order) = (order(one.0), order(other.0));
    match telling {
        Some((name, a, b)) => {
            format!("then {name}() is {a} in the order {one_order}, but {b} in the order {other_order}")
        }
        None => {
            let [a, b] = [one.1, other.1].map(|state| bytes(&state[..state.len().min(SHOWN_BYTES)]));
            format!("the order {one_order} leaves the state {a}, the order {other_order} leaves {b}")
        }
    }
}
