//! A second model of the plain types: registers, counters, sets, dicts, lists and streams, written from what their commands are
//! documented to do, and naive. Replays evaluate with the type library that servers use; what both have wrong in the same
//! way shows here. Of the library it reads operations and states, and evaluates nothing with it.
//!
//! A transaction is executed on what its keys held. Where an operation is not of these types, or chooses at random, the rest
//! of its key is not judged. The model itself is in `model`, `lists`, `dicts` and `streams`, 700 lines in all.

use crate::invocations::{Decoded, DecodedStep};
use crate::replay::Cells;
use crate::touches::{elements, quoted};
use datatypes::{Cell, Value};
use std::collections::{BTreeMap, BTreeSet};

mod dicts;
mod lists;
mod model;
mod streams;
pub(crate) use model::number;
pub(crate) use streams::Stream;
#[cfg(test)]
mod tests;

pub(crate) type Text = Vec<u8>;

/// What a key holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Held {
    Register(Text),
    Counter(i128),
    Set(BTreeSet<Text>),
    /// Values with their deadlines in milliseconds, 0 for none.
    Dict(BTreeMap<Text, (Text, u64)>),
    List(Vec<Text>),
    Stream(Stream),
}

/// A key: what it holds, and its deadline in milliseconds, 0 for none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Key {
    pub held: Option<Held>,
    deadline: u64,
}

/// Gets the collection that a key holds, an empty one if it holds nothing, or refuses.
macro_rules! held_as {
    ($held:expr, $variant:ident) => {
        match $held.get_or_insert_with(|| Held::$variant(Default::default())) {
            Held::$variant(collection) => collection,
            _ => return Answer::Refusal,
        }
    };
}
use held_as;

/// What an operation replies.
enum Answer {
    Text(String),
    /// Elements in any order.
    Some(Vec<String>),
    Refusal,
    NotJudged,
}

/// What both models make of a transaction differently, if anything: `executed` is what it has left of `base`.
pub(crate) fn disagreement(
    transaction: &Decoded<'_>,
    only: Option<&[u8]>,
    now_millis: u64,
    (base, executed): (&Cells<'_>, &Cells<'_>),
) -> Option<String> {
    let mut keys: BTreeMap<&[u8], Option<Key>> = BTreeMap::new();
    for step in transaction.steps.iter().filter(|step| only.is_none_or(|only| only == step.key)) {
        let key = keys.entry(step.key).or_insert_with(|| Key::read(base.cell(step.key)));
        let Some(held) = key else { continue };
        let answer = held.execute(&step.operation, now_millis);
        match answer.differs_from(step) {
            None => *key = None,
            Some(Some(expected)) => {
                let (name, seen) = (step.key.escape_ascii(), step.observed.unwrap_or("nothing"));
                return Some(format!("{:?} on {name} replied {seen}, not {expected}", step.operation));
            }
            Some(None) => {}
        }
    }
    let differs = |(key, held): (&[u8], Option<Key>)| {
        let (held, mut left) = (held?, Key::read(executed.cell(key))?);
        left.expire(now_millis);
        (held != left).then(|| format!("{} is {left:?}, not {held:?}", key.escape_ascii()))
    };
    keys.into_iter().find_map(differs)
}

impl Key {
    /// `None` for what a key holds of another type.
    pub fn read(cell: &Cell) -> Option<Key> {
        let held = match &cell.value {
            None => None,
            Some(Value::Register(register)) => Some(Held::Register(register.with_bytes(<[u8]>::to_vec))),
            Some(Value::Counter(counter)) => Some(Held::Counter(counter.sum())),
            Some(Value::Set(set)) => Some(Held::Set(set.iter().map(|member| member.to_vec()).collect())),
            Some(Value::Dict(dict)) => {
                let entry =
                    |(field, value): (&[u8], &[u8])| (field.to_vec(), (value.to_vec(), dict.deadline(field)));
                Some(Held::Dict(dict.iter().map(entry).collect()))
            }
            Some(Value::Stream(stream)) => Some(Held::Stream(Stream::read(stream))),
            Some(Value::List(list)) => Some(Held::List(list.iter().map(<[u8]>::to_vec).collect())),
            Some(_) => return None,
        };
        Some(Key { held, deadline: cell.expires_at })
    }
}

impl Key {
    /// True if it will be gone some day.
    pub fn has_deadline(&self) -> bool {
        let dated = |held: &Held| match held {
            Held::Dict(dict) => dict.values().any(|(_, at)| *at != 0),
            _ => false,
        };
        self.deadline != 0 || self.held.as_ref().is_some_and(dated)
    }
}

impl Answer {
    /// `None` if nothing is to be judged; else what was to be seen, if it was not.
    fn differs_from(self, step: &DecodedStep<'_>) -> Option<Option<String>> {
        let seen = step.observed;
        let (same, expected) = match self {
            Answer::NotJudged => return None,
            Answer::Text(text) => (seen.is_none_or(|seen| seen == text), text),
            Answer::Refusal => (seen.is_none_or(|seen| seen.starts_with('-')), "an error".into()),
            Answer::Some(mut wanted) => {
                let sorted = |seen: &str| {
                    let mut found = elements(seen)?;
                    found.sort();
                    Some(found)
                };
                wanted.sort();
                (
                    seen.is_none_or(|seen| sorted(seen).as_ref() == Some(&wanted)),
                    format!("{wanted:?} in some order"),
                )
            }
        };
        Some((!same).then_some(expected))
    }
}

fn integer(number: impl TryInto<i64>) -> Answer {
    number.try_into().map_or(Answer::Refusal, |number| Answer::Text(format!("(integer) {number}")))
}
fn flag(yes: bool) -> Answer {
    integer(i64::from(yes))
}
fn ok() -> Answer {
    Answer::Text("OK".into())
}
fn maybe(value: Option<impl AsRef<[u8]>>) -> String {
    value.map_or_else(|| "(nil)".into(), |value| quoted(value.as_ref()))
}
fn bulk(value: Option<impl AsRef<[u8]>>) -> Answer {
    Answer::Text(maybe(value))
}
fn array(values: impl Iterator<Item = String>) -> Answer {
    Answer::Text(format!("[{}]", values.collect::<Vec<_>>().join(", ")))
}
fn braces(values: impl Iterator<Item = String>) -> Answer {
    let mut values: Vec<String> = values.collect();
    values.sort();
    Answer::Text(format!("{{{}}}", values.join(", ")))
}
