//! What a write comes to right after another one, as far as the first one's result tells.

use super::{Outstanding, as_integer, flag, integer, ok, refusal, reply};
use crate::register::{self, Condition, SetReply};
use crate::{Effect, Items, Operation, counter, dict, key, list, scored_set, set, summary, top};
use types::{Reply, ReplyBuf, ReplySink};

/// Its result and its effect.
type Came<'a> = (ReplyBuf, Option<Effect<'a>>);

/// The result of `next` after the held write, whose result a client has seen.
pub(super) fn follow<'a>(held: &Outstanding<'a, '_>, next: &Operation<'a>) -> Option<Came<'a>> {
    if let Some(refusal) = refusal(held, next) {
        return Some((refusal, None));
    }
    if held.reply.as_error().is_some() {
        return None;
    }
    let seen = held.reply;
    match (held.operation, next) {
        // It looks at nothing, whatever was done before.
        (_, Operation::Register(register::Operation::Set { condition, reply, .. }))
            if *condition == Condition::Always && *reply == SetReply::Status =>
        {
            Some((ok(), Some(next.blind_effect()?)))
        }
        (Operation::Key(key::Operation::Delete), Operation::Key(key::Operation::Delete)) => {
            Some((flag(false), None))
        }
        (
            Operation::Register(register::Operation::Increment { .. }),
            Operation::Register(register::Operation::Increment { by }),
        ) => {
            let sum = as_integer(seen)?.checked_add(*by)?;
            Some((integer(sum), next.blind_effect()))
        }
        (Operation::Dict(held), Operation::Dict(it)) => in_dict(held, seen, it, next),
        (Operation::Set(held), Operation::Set(it)) => in_set(held, it),
        (Operation::ScoredSet(held), Operation::ScoredSet(it)) => in_scored_set(held, it),
        (Operation::List(held), Operation::List(it)) => in_list(held, seen, it, next),
        (Operation::Counter(held), Operation::Counter(it)) => in_counter(held, seen, it, next),
        (
            Operation::SummaryBag(summary::Operation::Add { .. }),
            Operation::SummaryBag(summary::Operation::Add { .. }),
        )
        | (Operation::Top(_), Operation::Top(top::Operation::Add { .. })) => {
            Some((ok(), next.blind_effect()))
        }
        (Operation::User(held), Operation::User(next)) => {
            let (reply, effect) = next.after(held, seen)?;
            Some((reply, effect.map(Effect::User)))
        }
        _ => None,
    }
}

/// True if every one of `part` is in `whole`.
fn is_part(part: &Items<'_>, whole: &Items<'_>) -> bool {
    part.iter().all(|item| whole.iter().any(|other| other == item))
}

fn in_dict<'a>(
    held: &dict::Operation<'a>,
    seen: &ReplyBuf,
    it: &dict::Operation<'a>,
    next: &Operation<'a>,
) -> Option<Came<'a>> {
    use dict::{Operation as O, PutReply};
    match (held, it) {
        // The type is right, and that is all it looks at.
        (O::Put { .. }, O::Put { reply: PutReply::Status, .. }) => Some((ok(), next.blind_effect())),
        (O::Put { pairs: there, .. }, O::Put { pairs, reply: PutReply::Added })
            if is_part(&pairs.keys_of_pairs(), &there.keys_of_pairs()) =>
        {
            Some((integer(0), next.blind_effect()))
        }
        (O::Put { pairs, .. }, O::PutIfAbsent { field, .. })
            if is_part(&Items::one(field), &pairs.keys_of_pairs()) =>
        {
            Some((integer(0), None))
        }
        (O::PutIfAbsent { field: there, .. }, O::PutIfAbsent { field, .. }) if there == field => {
            Some((integer(0), None))
        }
        (O::Delete { fields: gone }, O::Delete { fields }) if is_part(fields, gone) => {
            Some((integer(0), None))
        }
        (O::Increment { field: same, .. }, O::Increment { field, by }) if same == field => {
            let sum = as_integer(seen)?.checked_add(*by)?;
            Some((integer(sum), next.blind_effect()))
        }
        _ => None,
    }
}

fn in_set<'a>(held: &set::Operation<'_>, it: &set::Operation<'_>) -> Option<Came<'a>> {
    use set::Operation as O;
    match (held, it) {
        (O::Add { members: there }, O::Add { members }) if is_part(members, there) => {
            Some((integer(0), None))
        }
        (O::Remove { members: gone }, O::Remove { members }) if is_part(members, gone) => {
            Some((integer(0), None))
        }
        _ => None,
    }
}

fn in_scored_set<'a>(held: &scored_set::Operation<'_>, it: &scored_set::Operation<'_>) -> Option<Came<'a>> {
    use scored_set::Operation as O;
    match (held, it) {
        (O::Add { flags, items: there }, O::Add { flags: next, items })
            if *flags == scored_set::AddFlags::default() && *next == *flags && items == there =>
        {
            Some((integer(0), None))
        }
        (O::Remove { members: gone }, O::Remove { members }) if is_part(members, gone) => {
            Some((integer(0), None))
        }
        _ => None,
    }
}

fn in_list<'a>(
    held: &list::Operation<'a>,
    seen: &ReplyBuf,
    it: &list::Operation<'a>,
    next: &Operation<'a>,
) -> Option<Came<'a>> {
    use list::Operation as O;
    match (held, it) {
        (O::Push { end: of, only_if_exists: false, .. }, O::Push { end, values, only_if_exists: false })
            if of == end =>
        {
            let length = as_integer(seen)? + values.len() as i64;
            Some((integer(length), next.blind_effect()))
        }
        // Nothing was left to pop, or nothing was there.
        (O::Pop { count: None, .. }, O::Pop { count: None, .. }) if seen.first()? == Reply::Null => {
            Some((reply(|reply| reply.null()), None))
        }
        _ => None,
    }
}

fn in_counter<'a>(
    held: &counter::Operation,
    seen: &ReplyBuf,
    it: &counter::Operation,
    next: &Operation<'a>,
) -> Option<Came<'a>> {
    use counter::Operation as O;
    match (held, it) {
        (_, O::Add { .. }) => Some((ok(), next.blind_effect())),
        // What did not suffice does not suffice for as much or more, with nothing added since.
        (O::Take { by: x, floor: a }, O::Take { by: y, floor: b }) if as_integer(seen)? == 0 => {
            let bound = |by: i64, floor: i64| i128::from(by) + i128::from(floor);
            (bound(*y, *b) >= bound(*x, *a)).then(|| (integer(0), None))
        }
        _ => None,
    }
}
