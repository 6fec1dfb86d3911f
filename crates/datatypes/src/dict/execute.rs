//! Evaluating operations.

use super::{Effect, Operation, PutReply, Until, expiry, visits};
use crate::collections::PackedMap;
use crate::items::count_distinct;
use crate::register::{LongDouble, Parsed, parse_integer};
use crate::{Context, Items};
use types::{Error, ReplySink};

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    state: Option<&PackedMap>,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let get = |field: &[u8]| state.and_then(|state| state.get(field));
    match operation {
        Operation::Put { pairs, reply } => {
            match reply {
                PutReply::Status => sink.simple("OK"),
                PutReply::Added => {
                    let fields = pairs.pairs().map(|(field, _)| field);
                    sink.integer(count_distinct(fields, |field| get(field).is_none()) as i64);
                }
            }
            return Some(Effect::put(pairs.clone()));
        }
        Operation::PutIfAbsent { field, value } => {
            let absent = get(field).is_none();
            sink.integer(i64::from(absent));
            return absent.then(|| Effect::put(Items::two(field, value)));
        }
        Operation::Delete { fields } => {
            let found = count_distinct(fields.iter(), |field| get(field).is_some());
            sink.integer(found as i64);
            return (found > 0).then(|| Effect::Remove { fields: fields.clone() });
        }
        Operation::Increment { field, by } => return increment(get(field), field, *by, sink),
        Operation::IncrementFloat { field, by } => return increment_float(state, field, *by, sink),
        Operation::ExpireAt { fields, at_millis, condition } => {
            return expiry::expire(state, fields, (*at_millis, *condition), context.now_millis, sink);
        }
        Operation::Deadlines { fields, format } => {
            expiry::deadlines(state, fields, *format, context.now_millis, sink);
        }
        Operation::FirstDeadline => {
            let first = state.map_or(0, |state| state.next_deadline(0));
            sink.integer(if first == 0 { -1 } else { first as i64 });
        }
        Operation::Persist { fields } => return expiry::persist(state, fields, sink),
        Operation::GetAndExpire { fields, at_millis } => {
            return expiry::get_and(state, fields, Some(*at_millis), context.now_millis, sink);
        }
        Operation::GetAndDelete { fields } => {
            return expiry::get_and(state, fields, None, context.now_millis, sink);
        }
        Operation::PutUntil { pairs, condition, deadline } => {
            return expiry::put(state, pairs, (*condition, *deadline), context.now_millis, sink);
        }
        Operation::Get { field } => reply_value(get(field), sink),
        Operation::GetMany { fields } => {
            sink.array(fields.len());
            fields.iter().for_each(|field| reply_value(get(field), sink));
        }
        Operation::GetAll | Operation::Fields | Operation::Values => reply_all(state, operation, sink),
        Operation::Length => sink.integer(state.map_or(0, PackedMap::len) as i64),
        Operation::Scan { cursor, count, pattern, values } => {
            visits::scan(state, (*cursor, *count), pattern, *values, sink);
        }
        Operation::Random { count, values } => visits::random(state, *count, *values, context.random, sink),
        Operation::Contains { field } => sink.integer(i64::from(get(field).is_some())),
        Operation::FieldLength { field } => sink.integer(get(field).map_or(0, <[u8]>::len) as i64),
    }
    None
}

pub(super) fn reply_value(value: Option<&[u8]>, sink: &mut dyn ReplySink) {
    match value {
        Some(value) => sink.bulk(value),
        None => sink.null(),
    }
}

fn reply_all(state: Option<&PackedMap>, operation: &Operation<'_>, sink: &mut dyn ReplySink) {
    let len = state.map_or(0, PackedMap::len);
    match operation {
        Operation::GetAll => sink.map(len),
        _ => sink.array(len),
    }
    for (field, value) in state.into_iter().flat_map(PackedMap::iter) {
        if !matches!(operation, Operation::Values) {
            sink.bulk(field);
        }
        if !matches!(operation, Operation::Fields) {
            sink.bulk(value);
        }
    }
}

fn increment<'a>(
    current: Option<&[u8]>,
    field: &'a [u8],
    by: i64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let Some(current) = current.map_or(Some(0), parse_integer) else {
        sink.error(&Error::err("hash value is not an integer"));
        return None;
    };
    let Some(sum) = current.checked_add(by) else {
        sink.error(&Error::err("increment or decrement would overflow"));
        return None;
    };
    sink.integer(sum);
    Some(Effect::Add { field, by })
}

fn increment_float(
    state: Option<&PackedMap>,
    field: &[u8],
    by: LongDouble,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'static>> {
    let current = state.and_then(|state| state.get(field));
    let Some(current) = current.map_or(Some(Parsed::Finite(LongDouble::ZERO)), LongDouble::parse) else {
        sink.error(&Error::err("hash value is not a float"));
        return None;
    };
    let sum = match current {
        Parsed::Finite(current) => current.plus(by),
        Parsed::Infinite => None,
    };
    let Some(sum) = sum else {
        sink.error(&Error::err("increment would produce NaN or Infinity"));
        return None;
    };
    let sum = sum.to_text();
    sink.bulk(&sum);
    let until = Until::each(std::iter::once(state.map_or(0, |state| state.deadline(field))));
    Some(Effect::Put { pairs: Items::collect([field, &sum].into_iter()), until })
}
