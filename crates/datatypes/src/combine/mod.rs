//! Combining (Claret 4.3, 5.3): what an operation comes to right after one that holds its lock and has not committed
//! yet, without asking whoever has the state.
//!
//! ```text
//!   held:  HGETALL h  -> {a: 1, b: 2}        next: HGET h b           -> 2
//!   held:  ZRANGE z 0 9                      next: ZRANGE z 2 4       -> a part of it
//!   held:  INCR n     -> 7, adds 1           next: INCRBY n 5         -> 12, both add 6
//!   held:  SADD s x   -> 1, adds x           next: SADD s x           -> 0, both add x
//!   held:  BLIND INCR n                      next: BLIND INCR n       -> OK, both add 2
//! ```
//!
//! Reads share what another one has read, or part of it. Writes share a lock when the second one's result follows from
//! the first one's; their effects become one. A read never joins a write, nor a write a read: that would need another
//! lock. The rule is a pure function, checked by property tests: the shared result and the one effect are those of the
//! two operations executed one after the other, the held one first. Whoever combines keeps the transactions together:
//! they commit as one or not at all (Corrections 63). `UID.NEXT` needs new randomness, not a shared result: it combines
//! only where it is blind.

mod effects;
mod reads;
mod writes;

pub use effects::then;

use crate::{Cell, Context, Effect, Operation, counter, list, prepare};
use types::{Error, Reply, ReplyBuf, ReplySink, Rng};

/// An operation that was evaluated under its lock and has not committed yet.
#[derive(Clone, Debug)]
pub struct Outstanding<'a, 'r> {
    /// The evaluated operation; of several that were combined, the last.
    pub operation: &'r Operation<'a>,
    /// Nobody sees its result, and nothing is known of the state.
    pub blind: bool,
    /// Its result.
    pub reply: &'r ReplyBuf,
    /// Its effect; of several that were combined, that of all.
    pub effect: Option<&'r Effect<'a>>,
}

/// Two operations as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined<'a> {
    /// The result of the second.
    pub reply: ReplyBuf,
    /// The effect of both.
    pub effect: Option<Effect<'a>>,
}

/// What `next` comes to right after `held`, on the same key and at the same time, if the held reply determines it.
pub fn combine<'a>(
    held: &Outstanding<'a, '_>,
    next: &Operation<'a>,
    next_blind: bool,
) -> Option<Combined<'a>> {
    if next.is_read() != held.operation.is_read() || (held.blind && !next_blind) {
        return None;
    }
    if next.is_read() {
        let reply = if next_blind { ok() } else { reads::answer(held, next)? };
        return Some(Combined { reply, effect: None });
    }
    let (reply, own) = if next_blind { blind(held, next)? } else { writes::follow(held, next)? };
    let effect = match (held.effect, own) {
        (None, own) => own,
        (Some(first), None) => Some(first.clone()),
        (Some(first), Some(second)) => Some(then(first, &second)?),
    };
    Some(Combined { reply, effect })
}

/// True if `next` is likely enough to combine with `held`, which has no result yet, that it is worth waiting for that: on
/// an absent key it would. `LPOP` and `COUNTER.TAKE` follow only where nothing is left, which is not likely. Each comes
/// with whether it is blind.
pub fn may_combine(held: (&Operation<'_>, bool), next: (&Operation<'_>, bool), random: &mut Rng) -> bool {
    let ((held, held_blind), (next, next_blind)) = (held, next);
    let is_rare = matches!(
        next,
        Operation::List(list::Operation::Pop { .. }) | Operation::Counter(counter::Operation::Take { .. })
    );
    if next.is_read() != held.is_read() || (!next_blind && is_rare) {
        return false;
    }
    let mut reply = ReplyBuf::new();
    let effect = prepare(&Cell::ABSENT, held, &mut Context { now_millis: 0, random, site: None }, &mut reply);
    let held = Outstanding { operation: held, blind: held_blind, reply: &reply, effect: effect.as_ref() };
    combine(&held, next, next_blind).is_some()
}

/// A blind write of the same type: it is refused if the held one was.
fn blind<'a>(held: &Outstanding<'a, '_>, next: &Operation<'a>) -> Option<(ReplyBuf, Option<Effect<'a>>)> {
    let same_type = next.kind() == held.operation.kind();
    let known = if held.blind { same_type } else { same_type && held.reply.as_error().is_none() };
    let effect = next.blind_effect()?;
    (known || effect.kind().is_none()).then(|| (ok(), Some(effect)))
}

/// The refusal of a type, which both get.
fn refusal(held: &Outstanding<'_, '_>, next: &Operation<'_>) -> Option<ReplyBuf> {
    let (of, wanted) = (held.operation.observation().kind?, next.observation().kind?);
    let error = held.reply.as_error()?;
    (of == wanted && error == Error::wrong_type()).then(|| held.reply.clone())
}

/// A reply of one element or more, as `write` makes it.
fn reply(write: impl FnOnce(&mut ReplyBuf)) -> ReplyBuf {
    let mut reply = ReplyBuf::new();
    write(&mut reply);
    reply
}

fn ok() -> ReplyBuf {
    reply(|reply| reply.simple("OK"))
}

fn integer(value: i64) -> ReplyBuf {
    reply(|reply| reply.integer(value))
}

fn flag(value: bool) -> ReplyBuf {
    integer(value.into())
}

/// The byte strings of an array, a set or a map; `None` for anything else.
fn strings(reply: &ReplyBuf) -> Option<Vec<&[u8]>> {
    let mut elements = reply.elements();
    match elements.next()? {
        Reply::Array(_) | Reply::Set(_) | Reply::Map(_) => {}
        _ => return None,
    }
    let bulk = |element| match element {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    };
    elements.map(bulk).collect()
}

/// The integer that a reply is.
fn as_integer(reply: &ReplyBuf) -> Option<i64> {
    match reply.first()? {
        Reply::Integer(value) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Items, dict, register, set};

    #[test]
    fn it_is_worth_waiting_for_what_combines_on_most_states() {
        let increment = |by| Operation::Register(register::Operation::Increment { by });
        let get = Operation::Register(register::Operation::Get);
        let add = |member: &'static [u8]| Operation::Set(set::Operation::Add { members: Items::one(member) });
        let all = Operation::Dict(dict::Operation::GetAll);
        let field = Operation::Dict(dict::Operation::Get { field: b"f" });
        let pop = Operation::List(list::Operation::Pop { end: list::End::Front, count: None });
        let take = Operation::Counter(counter::Operation::Take { by: 1, floor: 0 });
        let seen = |held: &Operation<'_>, next: &Operation<'_>| {
            may_combine((held, false), (next, false), &mut Rng::with_seed(1))
        };
        assert!(seen(&increment(1), &increment(5)));
        assert!(seen(&all, &field) && !seen(&field, &all), "a part of what was read");
        assert!(!seen(&increment(1), &get) && !seen(&get, &increment(1)), "they need other locks");
        assert!(seen(&add(b"a"), &add(b"a")) && !seen(&add(b"a"), &add(b"b")));
        let blind = may_combine((&add(b"a"), true), (&add(b"b"), true), &mut Rng::with_seed(1));
        assert!(blind, "nobody sees whether it was new");
        assert!(!seen(&pop, &pop) && !seen(&take, &take), "only where nothing is left");
    }
}
