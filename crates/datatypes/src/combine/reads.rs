//! What one read tells of another.

use super::{Outstanding, as_integer, flag, integer, refusal, reply, strings};
use crate::scored_set::{RangeBy, ScoreBound};
use crate::{Items, Operation, counter, dict, key, list, register, scored_set, set, summary, top};
use types::{Reply, ReplyBuf, ReplySink};

/// The result of `next`, if the held read has it in its own.
pub(super) fn answer(held: &Outstanding<'_, '_>, next: &Operation<'_>) -> Option<ReplyBuf> {
    if let Some(refusal) = refusal(held, next) {
        return Some(refusal);
    }
    if held.reply.as_error().is_some() {
        return None;
    }
    if held.operation == next && !is_chosen(next) {
        return Some(held.reply.clone());
    }
    let seen = held.reply;
    match (held.operation, next) {
        (Operation::Key(key::Operation::Type), Operation::Key(key::Operation::Exists)) => {
            Some(flag(seen.first()? != Reply::Simple("none")))
        }
        (Operation::Register(register::Operation::Get), Operation::Register(register::Operation::Length)) => {
            Some(integer(length(seen.first()?)?))
        }
        (Operation::Dict(held), Operation::Dict(next)) => in_dict(held, seen, next),
        (Operation::Set(held), Operation::Set(next)) => in_set(held, seen, next),
        (Operation::ScoredSet(held), Operation::ScoredSet(next)) => in_scored_set(held, seen, next),
        (Operation::List(held), Operation::List(next)) => in_list(held, seen, next),
        (Operation::Counter(held), Operation::Counter(next)) => in_counter(held, seen, next),
        (Operation::SummaryBag(summary::Operation::ReadAll), Operation::SummaryBag(next)) => {
            in_summary(seen, next)
        }
        (Operation::Top(held), Operation::Top(next)) => in_top(held, seen, next),
        (Operation::User(held), Operation::User(next)) => next.after(held, seen).map(|(reply, _)| reply),
        _ => None,
    }
}

/// True for what draws, or tells the time that is left.
fn is_chosen(operation: &Operation<'_>) -> bool {
    use key::TimeFormat::{MillisLeft, SecondsLeft};
    if let Operation::Stream(operation) = operation {
        return operation.tells_time();
    }
    matches!(
        operation,
        Operation::Set(set::Operation::Random { .. })
            | Operation::Dict(dict::Operation::Random { .. })
            | Operation::ScoredSet(scored_set::Operation::Random { .. })
            | Operation::Key(key::Operation::Deadline(MillisLeft | SecondsLeft))
            | Operation::Dict(dict::Operation::Deadlines { format: MillisLeft | SecondsLeft, .. })
    )
}

fn length(value: Reply<'_>) -> Option<i64> {
    match value {
        Reply::Bulk(bytes) => i64::try_from(bytes.len()).ok(),
        Reply::Null => Some(0),
        _ => None,
    }
}

/// The value of a field as far as the held read tells: `None` if it does not.
fn field_value<'r>(held: &dict::Operation<'_>, seen: &'r ReplyBuf, field: &[u8]) -> Option<Reply<'r>> {
    match held {
        dict::Operation::GetAll => {
            let all = strings(seen)?;
            let found = all.as_chunks::<2>().0.iter().find(|[name, _]| *name == field);
            Some(found.map_or(Reply::Null, |[_, value]| Reply::Bulk(value)))
        }
        dict::Operation::GetMany { fields } => {
            let place = fields.iter().position(|name| name == field)?;
            seen.elements().nth(1 + place)
        }
        dict::Operation::Get { field: name } if *name == field => seen.first(),
        _ => None,
    }
}

fn in_dict(held: &dict::Operation<'_>, seen: &ReplyBuf, next: &dict::Operation<'_>) -> Option<ReplyBuf> {
    use dict::Operation as O;
    let value = |field: &[u8]| field_value(held, seen, field);
    match next {
        O::Get { field } => value(field).map(|value| reply(|reply| value.write(reply))),
        O::Contains { field } => Some(flag(value(field)? != Reply::Null)),
        O::FieldLength { field } => Some(integer(length(value(field)?)?)),
        O::GetMany { fields } => {
            let values: Vec<Reply<'_>> = fields.iter().map(value).collect::<Option<_>>()?;
            Some(reply(|reply| {
                reply.array(values.len());
                values.iter().for_each(|value| value.write(reply));
            }))
        }
        O::Length => match held {
            O::GetAll => Some(integer(strings(seen)?.len() as i64 / 2)),
            O::Fields | O::Values => Some(integer(strings(seen)?.len() as i64)),
            _ => None,
        },
        _ => None,
    }
}

fn in_set(held: &set::Operation<'_>, seen: &ReplyBuf, next: &set::Operation<'_>) -> Option<ReplyBuf> {
    use set::Operation as O;
    let has = |member: &[u8]| match held {
        O::Members => Some(strings(seen)?.contains(&member)),
        O::Contains { member: other } => (*other == member).then(|| as_integer(seen) == Some(1)),
        O::ContainsMany { members } => {
            let place = members.iter().position(|other| other == member)?;
            Some(seen.elements().nth(1 + place)? == Reply::Integer(1))
        }
        _ => None,
    };
    match next {
        O::Contains { member } => has(member).map(flag),
        O::ContainsMany { members } => {
            let all: Vec<bool> = members.iter().map(has).collect::<Option<_>>()?;
            Some(reply(|reply| {
                reply.array(all.len());
                all.iter().for_each(|has| reply.integer((*has).into()));
            }))
        }
        O::Length => match held {
            O::Members => Some(integer(strings(seen)?.len() as i64)),
            _ => None,
        },
        _ => None,
    }
}

/// The first element and how many follow it, of a range between places that count from the front.
fn inner_range(outer: (i64, i64), inner: (i64, i64)) -> Option<(usize, usize)> {
    let within = |place: i64| place >= outer.0 && (outer == (0, -1) || place <= outer.1);
    if outer.0 < 0 || (outer.1 < 0 && outer != (0, -1)) || inner.0 < 0 {
        return None;
    }
    if outer == (0, -1) && inner.1 == -1 {
        return Some((usize::try_from(inner.0).ok()?, usize::MAX));
    }
    if inner.1 < 0 || !within(inner.0) || !within(inner.1) {
        return None;
    }
    let count = inner.1.checked_sub(inner.0)?.checked_add(1)?.max(0);
    Some((usize::try_from(inner.0 - outer.0).ok()?, usize::try_from(count).ok()?))
}

fn in_list(held: &list::Operation<'_>, seen: &ReplyBuf, next: &list::Operation<'_>) -> Option<ReplyBuf> {
    use list::Operation as O;
    let O::Range { start, stop } = held else { return None };
    let all = strings(seen)?;
    match next {
        O::Range { start: from, stop: to } => {
            let (first, count) = inner_range((*start, *stop), (*from, *to))?;
            let part: Vec<&[u8]> = all.into_iter().skip(first).take(count).collect();
            Some(reply(|reply| {
                reply.array(part.len());
                part.iter().for_each(|element| reply.bulk(element));
            }))
        }
        O::Length if (*start, *stop) == (0, -1) => Some(integer(all.len() as i64)),
        O::Index { index } => {
            let (first, _) = inner_range((*start, *stop), (*index, *index))?;
            Some(reply(|reply| match all.get(first) {
                Some(element) => reply.bulk(element),
                None => reply.null(),
            }))
        }
        _ => None,
    }
}

/// Members with their scores.
fn scored(seen: &ReplyBuf) -> Option<Vec<(f64, &[u8])>> {
    let elements: Vec<Reply<'_>> = seen.elements().collect();
    let [Reply::Pairs(_), pairs @ ..] = elements.as_slice() else { return None };
    pairs.as_chunks::<3>().0.iter().map(scored_member).collect()
}

fn scored_member<'r>(pair: &[Reply<'r>; 3]) -> Option<(f64, &'r [u8])> {
    match pair {
        [Reply::Pair, Reply::Bulk(member), Reply::Double(score)] => Some((*score, *member)),
        _ => None,
    }
}

fn write_scored(items: &[(f64, &[u8])], with_scores: bool) -> ReplyBuf {
    reply(|reply| {
        if with_scores {
            reply.pairs(items.len());
        } else {
            reply.array(items.len());
        }
        for (score, member) in items {
            if with_scores {
                reply.pair();
            }
            reply.bulk(member);
            if with_scores {
                reply.double(*score);
            }
        }
    })
}

fn includes(min: ScoreBound, max: ScoreBound, score: f64) -> bool {
    let above = match min {
        ScoreBound::Inclusive(min) => score >= min,
        ScoreBound::Exclusive(min) => score > min,
    };
    let below = match max {
        ScoreBound::Inclusive(max) => score <= max,
        ScoreBound::Exclusive(max) => score < max,
    };
    above && below
}

/// True if every score in the second range is in the first.
fn covers(outer: (ScoreBound, ScoreBound), inner: (ScoreBound, ScoreBound)) -> bool {
    let (ScoreBound::Inclusive(low) | ScoreBound::Exclusive(low)) = inner.0;
    let (ScoreBound::Inclusive(high) | ScoreBound::Exclusive(high)) = inner.1;
    let from = includes(outer.0, ScoreBound::HIGHEST, low) || inner.0 == outer.0;
    let to = includes(ScoreBound::LOWEST, outer.1, high) || inner.1 == outer.1;
    from && to
}

fn in_scored_set(
    held: &scored_set::Operation<'_>,
    seen: &ReplyBuf,
    next: &scored_set::Operation<'_>,
) -> Option<ReplyBuf> {
    use scored_set::Operation as O;
    if let O::Scores { members } = held {
        return scores_of(seen, members, next);
    }
    let O::Range { by, reverse, limit: None, with_scores: true } = held else { return None };
    let all = scored(seen)?;
    let whole = *by == RangeBy::Index { start: 0, stop: -1 };
    let score_of = |member: &[u8]| all.iter().find(|(_, other)| *other == member).map(|(score, _)| *score);
    match (by, next) {
        (_, O::Length) if whole => Some(integer(all.len() as i64)),
        (_, O::Score { member }) if whole => Some(reply(|reply| match score_of(member) {
            Some(score) => reply.double(score),
            None => reply.null(),
        })),
        (_, O::Count { min, max }) if whole => {
            Some(integer(all.iter().filter(|(score, _)| includes(*min, *max, *score)).count() as i64))
        }
        (RangeBy::Score { min: low, max: high }, O::Count { min, max })
            if covers((*low, *high), (*min, *max)) =>
        {
            Some(integer(all.iter().filter(|(score, _)| includes(*min, *max, *score)).count() as i64))
        }
        (_, O::Range { by: part, reverse: turned, limit: None, with_scores }) if turned == reverse => {
            match (by, part) {
                (RangeBy::Index { start, stop }, RangeBy::Index { start: from, stop: to }) => {
                    let (first, count) = inner_range((*start, *stop), (*from, *to))?;
                    let part: Vec<_> = all.into_iter().skip(first).take(count).collect();
                    Some(write_scored(&part, *with_scores))
                }
                (RangeBy::Score { min: low, max: high }, RangeBy::Score { min, max })
                    if covers((*low, *high), (*min, *max)) =>
                {
                    let part: Vec<_> =
                        all.into_iter().filter(|(score, _)| includes(*min, *max, *score)).collect();
                    Some(write_scored(&part, *with_scores))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The scores of some members, out of those of others.
fn scores_of(seen: &ReplyBuf, members: &Items<'_>, next: &scored_set::Operation<'_>) -> Option<ReplyBuf> {
    use scored_set::Operation as O;
    let score = |member: &[u8]| {
        let place = members.iter().position(|other| other == member)?;
        seen.elements().nth(1 + place)
    };
    match next {
        O::Score { member } => score(member).map(|score| reply(|reply| score.write(reply))),
        O::Scores { members } => {
            let scores: Vec<Reply<'_>> = members.iter().map(score).collect::<Option<_>>()?;
            Some(reply(|reply| {
                reply.array(scores.len());
                scores.iter().for_each(|score| score.write(reply));
            }))
        }
        _ => None,
    }
}

fn in_counter(held: &counter::Operation, seen: &ReplyBuf, next: &counter::Operation) -> Option<ReplyBuf> {
    use counter::Operation as O;
    let O::AtLeast { bound, .. } = next else { return None };
    match held {
        O::Get => Some(flag(as_integer(seen)? >= *bound)),
        O::AtLeast { bound: known, .. } => match as_integer(seen)? == 1 {
            true => (known >= bound).then(|| flag(true)),
            false => (known <= bound).then(|| flag(false)),
        },
        _ => None,
    }
}

fn in_summary(seen: &ReplyBuf, next: &summary::Operation) -> Option<ReplyBuf> {
    let summary::Operation::Read { figure } = next else { return None };
    let place = summary::Figure::ALL.iter().position(|other| other == figure)?;
    let value = seen.elements().nth(2 + 2 * place)?;
    Some(reply(|reply| value.write(reply)))
}

fn in_top(held: &top::Operation<'_>, seen: &ReplyBuf, next: &top::Operation<'_>) -> Option<ReplyBuf> {
    use top::Operation as O;
    let O::Range { start, stop, with_scores: true } = held else { return None };
    let all = scored(seen)?;
    let whole = (*start, *stop) == (0, -1);
    let place_of = |member: &[u8]| all.iter().position(|(_, other)| *other == member);
    match next {
        O::Range { start: from, stop: to, with_scores } => {
            let (first, count) = inner_range((*start, *stop), (*from, *to))?;
            let part: Vec<_> = all.into_iter().skip(first).take(count).collect();
            Some(write_scored(&part, *with_scores))
        }
        O::Length if whole => Some(integer(all.len() as i64)),
        O::Score { member } if whole => Some(reply(|reply| match place_of(member) {
            Some(place) => reply.double(all[place].0),
            None => reply.null(),
        })),
        O::Rank { member } if whole => Some(reply(|reply| match place_of(member) {
            Some(place) => reply.integer(place as i64),
            None => reply.null(),
        })),
        O::DownTo { score, member } if whole => {
            let down_to = |item: &(f64, &[u8])| (item.0, item.1) >= (*score, *member);
            let part: Vec<_> = all.into_iter().filter(down_to).collect();
            Some(write_scored(&part, true))
        }
        _ => None,
    }
}
