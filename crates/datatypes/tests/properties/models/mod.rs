//! Evaluating and applying gives what a naive model says: one obvious structure of the standard library a type,
//! Redis's replies spelled out.

mod collections;
mod list;
mod map;
mod merged;
mod register;
mod scored_set;
mod stream;

use crate::properties::strategies::{KINDS, operation_of};
use crate::properties::{evaluate, for_all};
use datatypes::key::Operation as KeyOperation;
use datatypes::register::{Condition, Operation as RegisterOperation, SetReply};
use datatypes::{Cell, Kind, Operation, Value, apply};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;
use types::{Error, Reply, ReplyBuf, ReplySink};

type Bytes = Vec<u8>;

/// What a key holds.
#[derive(Clone, Debug, Default, PartialEq)]
enum Model {
    #[default]
    Absent,
    Register(Bytes),
    Dict(collections::Dated),
    Set(BTreeSet<Bytes>),
    /// Ordered by score, then member.
    ScoredSet(Vec<(f64, Bytes)>),
    List(Vec<Bytes>),
    /// What was added.
    Counter(Vec<i64>),
    /// What was added.
    SummaryBag(Vec<f64>),
    Top(merged::Top),
    UidGenerator(Vec<()>),
    Stream(stream::Naive),
}

impl Model {
    /// What the real cell holds; `None` for the types that keep less than was added, and are judged by what they
    /// reply.
    fn of(cell: &Cell) -> Option<Model> {
        Some(match &cell.value {
            None => Model::Absent,
            Some(Value::Register(register)) => Model::Register(register.with_bytes(<[u8]>::to_vec)),
            Some(Value::Dict(dict)) => {
                let dated = dict.iter().filter(|(field, _)| dict.deadline(field) != 0);
                Model::Dict(collections::Dated {
                    values: dict.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect(),
                    deadlines: dated.map(|(field, _)| (field.to_vec(), dict.deadline(field))).collect(),
                })
            }
            Some(Value::Set(set)) => Model::Set(set.iter().map(|member| member.to_vec()).collect()),
            Some(Value::ScoredSet(set)) => {
                Model::ScoredSet(set.iter().map(|(score, member)| (score, member.to_vec())).collect())
            }
            Some(Value::List(list)) => Model::List(list.iter().map(<[u8]>::to_vec).collect()),
            Some(Value::Counter(_) | Value::SummaryBag(_) | Value::Top(_) | Value::UidGenerator(_)) => {
                return None;
            }
            Some(Value::Stream(stream)) => Model::Stream(stream::Naive::of(stream)),
            Some(Value::User(_)) => unreachable!("the kinds of these tests are built in"),
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Model::Absent => "none",
            Model::Register(_) => "string",
            Model::Dict(_) => "hash",
            Model::Set(_) => "set",
            Model::ScoredSet(_) => "zset",
            Model::List(_) => "list",
            Model::Counter(_) => "counter",
            Model::SummaryBag(_) => "summary",
            Model::Top(_) => "top",
            Model::UidGenerator(_) => "uid",
            Model::Stream(_) => "stream",
        }
    }

    /// Performs an operation. `actual` is the real reply: operations that choose take their choice from it, and the
    /// order of unordered replies is taken over. Returns the reply it should have been.
    fn perform(&mut self, operation: &Operation<'_>, actual: &ReplyBuf) -> ReplyBuf {
        /// Takes the state out, or a fresh one, and puts it back unless it is empty.
        macro_rules! typed {
            ($variant:ident, $perform:expr, $operation:expr) => {{
                let mut state = match self {
                    Model::Absent => Default::default(),
                    Model::$variant(state) => std::mem::take(state),
                    _ => return expect(|reply| reply.error(&Error::wrong_type())),
                };
                let reply = $perform(&mut state, $operation, actual);
                *self = if state.is_empty() { Model::Absent } else { Model::$variant(state) };
                reply
            }};
        }
        match operation {
            Operation::Key(operation) => self.perform_key(operation),
            Operation::Register(operation) => self.perform_register(operation),
            Operation::Dict(operation) => typed!(Dict, collections::Dated::perform, operation),
            Operation::Set(operation) => typed!(Set, collections::perform_set, operation),
            Operation::ScoredSet(operation) => typed!(ScoredSet, scored_set::perform, operation),
            Operation::List(operation) => typed!(List, list::perform, operation),
            Operation::Counter(operation) => typed!(Counter, merged::perform_counter, operation),
            Operation::SummaryBag(operation) => typed!(SummaryBag, merged::perform_summary, operation),
            Operation::Top(operation) => typed!(Top, merged::perform_top, operation),
            Operation::UidGenerator(operation) => typed!(UidGenerator, merged::perform_uid, operation),
            Operation::Stream(operation) => typed!(Stream, stream::perform, operation),
            Operation::User(_) => unreachable!("the kinds of these tests are built in"),
        }
    }

    /// True where Redis says that the result is unspecified, or the model knows no better.
    fn leaves_open(&self, operation: &Operation<'_>) -> bool {
        match (self, operation) {
            (Model::ScoredSet(state), Operation::ScoredSet(operation)) => {
                scored_set::is_unspecified(state, operation)
            }
            (Model::Dict(state), Operation::Dict(operation)) => {
                collections::is_rounded(&state.values, operation)
            }
            _ => false,
        }
    }

    fn perform_key(&mut self, operation: &KeyOperation<'_>) -> ReplyBuf {
        let exists = *self != Model::Absent;
        match operation {
            KeyOperation::Type => expect(|reply| reply.simple(self.name())),
            KeyOperation::Exists => expect(|reply| reply.integer(i64::from(exists))),
            KeyOperation::Delete => {
                *self = Model::Absent;
                expect(|reply| reply.integer(i64::from(exists)))
            }
            other => unreachable!("{other:?} is not among the model's operations"),
        }
    }

    fn perform_register(&mut self, operation: &RegisterOperation<'_>) -> ReplyBuf {
        use RegisterOperation as O;
        let old = match self {
            Model::Absent => None,
            Model::Register(bytes) => Some(bytes.clone()),
            _ if matches!(operation, O::Set { reply: SetReply::Status | SetReply::Flag, .. }) => {
                Some(Vec::new())
            }
            _ => return expect(|reply| reply.error(&Error::wrong_type())),
        };
        let held = old.clone().unwrap_or_default();
        match operation {
            O::Get => expect(|reply| bulk_or_null(reply, old.as_deref())),
            O::Length => expect(|reply| reply.integer(held.len() as i64)),
            O::GetDelete => {
                *self = Model::Absent;
                expect(|reply| bulk_or_null(reply, old.as_deref()))
            }
            O::Append { value } => {
                let joined = [&held[..], value].concat();
                let len = joined.len() as i64;
                *self = Model::Register(joined);
                expect(|reply| reply.integer(len))
            }
            O::Increment { by } => {
                let current = if old.is_none() { Some(0) } else { integer(&held) };
                match current.map(|current| current.checked_add(*by)) {
                    None => expect(|reply| reply.error(&Error::not_an_integer())),
                    Some(None) => {
                        expect(|reply| reply.error(&Error::err("increment or decrement would overflow")))
                    }
                    Some(Some(sum)) => {
                        *self = Model::Register(sum.to_string().into_bytes());
                        expect(|reply| reply.integer(sum))
                    }
                }
            }
            O::Set { value, condition, reply: kind, .. } => {
                let done = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => old.is_none(),
                    Condition::IfPresent => old.is_some(),
                };
                if done {
                    *self = Model::Register(value.to_vec());
                }
                expect(|reply| match kind {
                    SetReply::Status if done => reply.simple("OK"),
                    SetReply::Status => reply.null(),
                    SetReply::Flag => reply.integer(i64::from(done)),
                    SetReply::Old => bulk_or_null(reply, old.as_deref()),
                })
            }
            other => {
                let mut held = old;
                let reply = register::perform(&mut held, other);
                *self = held.map_or(Model::Absent, Model::Register);
                reply
            }
        }
    }
}

/// A reply.
fn expect(write: impl FnOnce(&mut ReplyBuf)) -> ReplyBuf {
    let mut reply = ReplyBuf::new();
    write(&mut reply);
    reply
}

fn bulk_or_null(reply: &mut ReplyBuf, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
}

/// The number whose decimal form the bytes are.
fn integer(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

/// The byte strings of a reply, in order.
fn bulks(reply: &ReplyBuf) -> Vec<Bytes> {
    let bulk = |element| match element {
        Reply::Bulk(bytes) => Some(bytes.to_vec()),
        _ => None,
    };
    reply.elements().filter_map(bulk).collect()
}

/// Operations of mostly one type, sometimes of another, and on the key itself.
fn operations() -> impl Strategy<Value = Vec<Operation<'static>>> {
    select(&KINDS[..]).prop_flat_map(|kind: Kind| {
        let whole = select(&[KeyOperation::Delete, KeyOperation::Exists, KeyOperation::Type][..]);
        let operation = prop_oneof![
            12 => operation_of(kind),
            1 => select(&KINDS[..]).prop_flat_map(operation_of),
            1 => whole.prop_map(Operation::Key),
        ];
        vec(operation, 1..24)
    })
}

#[test]
fn histories_of_operations_give_what_the_naive_models_say() {
    for_all(1000, operations(), |operations| {
        let (mut cell, mut model) = (Cell::ABSENT, Model::Absent);
        for operation in &operations {
            if model.leaves_open(operation) {
                continue;
            }
            let (reply, effect) = evaluate(&cell, operation);
            let expected = model.perform(operation, &reply);
            prop_assert!(
                reply == expected,
                "{:?} replied {:?} instead of {:?}",
                operation,
                reply.elements().collect::<Vec<_>>(),
                expected.elements().collect::<Vec<_>>()
            );
            if let Some(effect) = &effect {
                apply::<false>(&mut cell, effect);
            }
            prop_assert_eq!(cell.kind().map_or("none", Kind::redis_name), model.name());
            if let Some(held) = Model::of(&cell) {
                prop_assert_eq!(&held, &model, "after {:?}", operation);
            }
        }
        Ok(())
    });
}
