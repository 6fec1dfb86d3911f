//! A history as operations, for checkers that execute them against a model: registers with integers, lists, sets.
//!
//! A transaction is one operation on the whole store. The reads of a transaction of unknown outcome are unknown: the
//! export has only its writes, and it returns after everything.

use super::{ExportError, LeftOut, unless_all};
use crate::history::Outcome;
use crate::invocations::{Decoded, DecodedStep};
use crate::touches::{elements, members, quoted};
use crate::variables::inexpressible;
use datatypes::register::{Condition, Deadline, SetReply};
use datatypes::{Items, Operation, key, list, register, set};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// An operation of the model, as JSON, and its result if the client saw one.
struct Modelled {
    input: Value,
    output: Option<Value>,
}

/// A value without its quotes.
fn bare(quoted: &str) -> Value {
    json!(quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted))
}

fn value(bytes: &[u8]) -> Value {
    bare(&quoted(bytes))
}

fn values(items: &Items<'_>) -> Value {
    items.iter().map(value).collect()
}

/// A reply as JSON; `None` for an error and for what is no reply of the model.
fn result(reply: &str) -> Option<Value> {
    if let Some(number) = reply.strip_prefix("(integer) ") {
        return number.parse::<i64>().ok().map(Value::from);
    }
    match reply.as_bytes().first()? {
        b'(' if reply == "(nil)" => Some(Value::Null),
        b'"' => Some(bare(reply)),
        b'[' => Some(elements(reply)?.iter().map(|element| bare(element)).collect()),
        b'{' => {
            let bare = |member: &String| bare(member).as_str().map(str::to_owned);
            let members: Option<BTreeSet<String>> = members(reply)?.iter().map(bare).collect();
            Some(json!(members?))
        }
        _ => None,
    }
}

/// The operations of the model that a step is; `None` if it is none. An operation whose result no client saw is blind.
fn modelled(step: &DecodedStep<'_>) -> Option<Vec<Modelled>> {
    let key = step.key.escape_ascii().to_string();
    let seen = match step.observed {
        Some("OK") => None,
        Some(reply) => Some(result(reply)?),
        None => None,
    };
    let input = match &step.operation {
        Operation::Register(register::Operation::Set {
            value: written,
            deadline: Deadline::Clear | Deadline::Keep,
            condition: Condition::Always,
            reply,
        }) => {
            let put =
                Modelled { input: json!({"op": "put", "key": key, "value": value(written)}), output: None };
            let old = seen.filter(|_| *reply == SetReply::Old);
            let get = old.map(|old| Modelled { input: json!({"op": "get", "key": key}), output: Some(old) });
            return Some(get.into_iter().chain([put]).collect());
        }
        Operation::Register(register::Operation::Get) => json!({"op": "get"}),
        Operation::Register(register::Operation::Length) => json!({"op": "strlen"}),
        Operation::Register(register::Operation::Increment { by }) => json!({"op": "incr", "by": by}),
        Operation::Key(key::Operation::Delete) => json!({"op": "del"}),
        Operation::Key(key::Operation::Exists) => json!({"op": "exists"}),
        Operation::List(list::Operation::Push { end, values: pushed, only_if_exists: false }) => {
            let op = if *end == list::End::Front { "lpush" } else { "rpush" };
            json!({"op": op, "values": values(pushed)})
        }
        Operation::List(list::Operation::Range { start: 0, stop: -1 }) => json!({"op": "lrange"}),
        Operation::List(list::Operation::Length) => json!({"op": "llen"}),
        Operation::Set(set::Operation::Add { members }) => json!({"op": "sadd", "values": values(members)}),
        Operation::Set(set::Operation::Remove { members }) => {
            json!({"op": "srem", "values": values(members)})
        }
        Operation::Set(set::Operation::Members) => json!({"op": "smembers"}),
        Operation::Set(set::Operation::Length) => json!({"op": "scard"}),
        Operation::Set(set::Operation::Contains { member }) => {
            json!({"op": "sismember", "value": value(member)})
        }
        _ => return None,
    };
    let mut input = input;
    input["key"] = json!(key);
    if seen.is_none() {
        input["blind"] = json!(true);
    }
    Some(vec![Modelled { input, output: seen }])
}

/// What is known of a key.
#[derive(Default)]
struct Facts {
    /// Something else is done with it than to get and put.
    is_typed: bool,
    /// The values that somebody got.
    seen: BTreeSet<String>,
}

fn facts<'h>(history: &[Decoded<'h>]) -> (BTreeMap<&'h [u8], Facts>, LeftOut) {
    let (mut facts, mut left_out) = (BTreeMap::<&[u8], Facts>::new(), LeftOut::default());
    let happened = |one: &&Decoded<'_>| one.transaction.outcome != Outcome::Aborted;
    for transaction in history.iter().filter(happened) {
        for (index, step) in transaction.steps.iter().enumerate() {
            let of_key = facts.entry(step.key).or_default();
            let Some(modelled) = modelled(step) else {
                if !step.operation.is_read() {
                    left_out.key(step.key, || inexpressible(transaction, index));
                }
                continue;
            };
            of_key.is_typed |=
                modelled.iter().any(|one| one.input["op"] != "get" && one.input["op"] != "put");
            let seen = modelled.iter().filter_map(|one| one.output.as_ref()?.as_str());
            of_key.seen.extend(seen.map(str::to_owned));
        }
    }
    left_out.of_keys = facts.len();
    (facts, left_out)
}

/// True if no reader saw what a transaction wrote: registers only, and no value that a client got.
fn went_unseen(modelled: &[Modelled], keys: &BTreeMap<String, &Facts>) -> bool {
    let unseen = |one: &Modelled| {
        let facts = one.input["key"].as_str().and_then(|key| keys.get(key));
        let value = one.input["value"].as_str();
        facts.zip(value).is_some_and(|(facts, value)| !facts.is_typed && !facts.seen.contains(value))
    };
    modelled.iter().all(unseen)
}

/// The exported steps of a transaction, without reads whose results no client saw.
fn modelled_steps(transaction: &Decoded<'_>, left_out: &mut LeftOut) -> Vec<Modelled> {
    let mut steps = Vec::new();
    for step in &transaction.steps {
        let is_unseen = step.operation.is_read() && step.observed.is_none();
        if is_unseen || left_out.has(step.key) {
            continue;
        }
        match modelled(step) {
            Some(modelled) => steps.extend(modelled),
            None => left_out.reads += 1,
        }
    }
    steps
}

/// One operation a line, in order of its call. Clients are numbered from 0. The times are microseconds of one clock; who
/// was never answered returns after everybody.
pub(super) fn porcupine(history: &[Decoded<'_>], output: &mut impl Write) -> Result<LeftOut, ExportError> {
    let (facts, left_out) = facts(history);
    let mut left_out = unless_all(left_out)?;
    let by_name = facts.iter().map(|(key, facts)| (key.escape_ascii().to_string(), facts)).collect();
    let times = history.iter().flat_map(|one| [Some(one.transaction.invoked), one.transaction.responded]);
    let after_all = times.flatten().max().unwrap_or(0) + 1;
    let mut clients: BTreeMap<u64, usize> = BTreeMap::new();
    for one in history.iter().filter(|one| one.transaction.outcome != Outcome::Aborted) {
        let is_certain = one.transaction.outcome == Outcome::Committed;
        let steps = modelled_steps(one, &mut left_out);
        if steps.is_empty() || !is_certain && went_unseen(&steps, &by_name) {
            continue;
        }
        let answer = one.transaction.responded.filter(|_| is_certain);
        let next = clients.len();
        let line = json!({
            "client": clients.entry(one.transaction.session).or_insert(next),
            "call": one.transaction.invoked,
            "return": answer.unwrap_or(after_all),
            "input": steps.iter().map(|step| &step.input).collect::<Vec<_>>(),
            "output": steps.iter().filter_map(|step| step.output.as_ref()).collect::<Vec<_>>(),
        });
        writeln!(output, "{line}")?;
    }
    Ok(left_out)
}
