//! Fields with deadlines: giving, telling and dropping them.

use super::{Effect, PutCondition, Until, execute};
use crate::collections::{MAX_DEADLINE, PackedMap};
use crate::key::{ExpireCondition, TimeFormat};
use crate::{Items, register};
use std::collections::BTreeSet;
use types::ReplySink;

/// The reply for a field that is not there.
const ABSENT: i64 = -2;
/// The reply for a field without a deadline.
const WITHOUT: i64 = -1;
/// The reply for a field that a deadline in the past has removed.
const REMOVED: i64 = 2;

/// Fields, each once.
type Fields<'f> = BTreeSet<&'f [u8]>;

/// What becomes of fields that get a deadline.
fn dated<'a>(fields: &Fields<'_>, at_millis: u64, now_millis: u64) -> Option<Effect<'a>> {
    let fields = (!fields.is_empty()).then(|| Items::collect(fields.iter().copied()))?;
    Some(match at_millis {
        1.. if at_millis <= now_millis => Effect::Remove { fields },
        _ => Effect::SetDeadline { fields, at_millis },
    })
}

/// HEXPIRE and its kin. A field that is named twice is looked at twice, one after the other.
pub(super) fn expire<'a>(
    state: Option<&PackedMap>,
    fields: &Items<'_>,
    (at_millis, condition): (u64, ExpireCondition),
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    // No deadline is 0, which says that there is none.
    let at_millis = at_millis.clamp(1, MAX_DEADLINE);
    let is_over = at_millis <= now_millis;
    let mut changed = Fields::new();
    sink.array(fields.len());
    for field in fields.iter() {
        let is_changed = changed.contains(field);
        let reply = match state.filter(|state| state.contains(field) && !(is_changed && is_over)) {
            None => ABSENT,
            Some(state) => {
                let present = if is_changed { at_millis } else { state.deadline(field) };
                let allowed = condition.allows(present, at_millis);
                if allowed {
                    changed.insert(field);
                }
                if allowed && is_over { REMOVED } else { i64::from(allowed) }
            }
        };
        sink.integer(reply);
    }
    dated(&changed, at_millis, now_millis)
}

/// HTTL and its kin.
pub(super) fn deadlines(
    state: Option<&PackedMap>,
    fields: &Items<'_>,
    format: TimeFormat,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) {
    let shown = |at: u64| {
        let left = at.saturating_sub(now_millis);
        match format {
            TimeFormat::SecondsLeft => left.div_ceil(1000) as i64,
            TimeFormat::MillisLeft => left as i64,
            TimeFormat::SecondsAt => at.div_ceil(1000) as i64,
            TimeFormat::MillisAt => at as i64,
        }
    };
    sink.array(fields.len());
    for field in fields.iter() {
        let deadline = state.filter(|state| state.contains(field)).map(|state| state.deadline(field));
        sink.integer(match deadline {
            None => ABSENT,
            Some(0) => WITHOUT,
            Some(at) => shown(at),
        });
    }
}

/// HPERSIST.
pub(super) fn persist<'a>(
    state: Option<&PackedMap>,
    fields: &Items<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let mut changed = Fields::new();
    sink.array(fields.len());
    for field in fields.iter() {
        let deadline = state.filter(|state| state.contains(field)).map(|state| state.deadline(field));
        sink.integer(match deadline {
            None => ABSENT,
            Some(at) if at != 0 && changed.insert(field) => 1,
            Some(_) => WITHOUT,
        });
    }
    dated(&changed, 0, 0)
}

/// HGETEX, and HGETDEL where `at_millis` is `None`. A field that is gone has no value when it is named again.
pub(super) fn get_and<'a>(
    state: Option<&PackedMap>,
    fields: &Items<'_>,
    at_millis: Option<u64>,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let at_millis = at_millis.map(|at| at.min(MAX_DEADLINE));
    let removes = at_millis.is_none_or(|at| at != 0 && at <= now_millis);
    let mut found = Fields::new();
    sink.array(fields.len());
    for field in fields.iter() {
        let value = state.and_then(|state| state.get(field));
        let is_new = value.is_some() && found.insert(field);
        execute::reply_value(value.filter(|_| is_new || !removes), sink);
    }
    match at_millis {
        None => (!found.is_empty()).then(|| Effect::Remove { fields: Items::collect(found.into_iter()) }),
        Some(0) => {
            found.retain(|field| state.is_some_and(|state| state.deadline(field) != 0));
            dated(&found, 0, now_millis)
        }
        Some(at) => dated(&found, at, now_millis),
    }
}

/// HSETEX.
pub(super) fn put<'a>(
    state: Option<&PackedMap>,
    pairs: &Items<'a>,
    (condition, deadline): (PutCondition, register::Deadline),
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let is_there = |field: &[u8]| state.is_some_and(|state| state.contains(field));
    let mut fields = pairs.pairs().map(|(field, _)| field);
    let holds = match condition {
        PutCondition::Always => true,
        PutCondition::IfAbsent => !fields.any(is_there),
        PutCondition::IfPresent => fields.all(is_there),
    };
    sink.integer(i64::from(holds));
    if !holds {
        return None;
    }
    let until = match deadline {
        register::Deadline::Clear => Until::NEVER,
        register::Deadline::Keep => {
            let unchanged = |field: &[u8]| state.map_or(0, |state| state.deadline(field));
            Until::each(pairs.pairs().map(|(field, _)| unchanged(field)))
        }
        // Also where none of the fields is there: who commits later must know that the deadline has passed (Corrections 69).
        register::Deadline::At { millis } if millis <= now_millis => {
            let fields: Fields<'_> = pairs.pairs().map(|(field, _)| field).collect();
            return Some(Effect::Remove { fields: Items::collect(fields.into_iter()) });
        }
        register::Deadline::At { millis } => Until::each(pairs.pairs().map(|_| millis.min(MAX_DEADLINE))),
    };
    Some(Effect::Put { pairs: pairs.clone(), until })
}
