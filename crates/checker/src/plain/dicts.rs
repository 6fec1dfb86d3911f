//! Dicts, whose fields may have deadlines.

use super::model::number;
use super::{Answer, Held, Key, Text, array, braces, bulk, flag, held_as, integer, maybe, ok};
use crate::touches::quoted;
use datatypes::key::TimeFormat;
use datatypes::{Items, dict, register};
use std::collections::BTreeMap;

type Fields = BTreeMap<Text, (Text, u64)>;

impl Key {
    pub(super) fn dict(&mut self, operation: &dict::Operation<'_>, now_millis: u64) -> Answer {
        use dict::{Operation, PutReply};
        let dict = held_as!(self.held, Dict);
        let value = |dict: &Fields, field: &[u8]| dict.get(field).map(|(value, _)| value.clone());
        match operation {
            Operation::Put { pairs, reply } => {
                let put = |(field, value): (&[u8], &[u8])| {
                    dict.insert(field.to_vec(), (value.to_vec(), 0)).is_none()
                };
                let added = pairs.pairs().map(put).filter(|new| *new).count();
                if *reply == PutReply::Added { integer(added) } else { ok() }
            }
            Operation::PutIfAbsent { field, value } => {
                let absent = !dict.contains_key(*field);
                dict.entry(field.to_vec()).or_insert_with(|| (value.to_vec(), 0));
                flag(absent)
            }
            Operation::Get { field } => bulk(value(dict, field)),
            Operation::GetMany { fields } => array(fields.iter().map(|field| maybe(value(dict, field)))),
            Operation::GetAll => {
                let pair = |(field, (value, _)): (&Text, &(Text, u64))| {
                    format!("{}: {}", quoted(field), quoted(value))
                };
                braces(dict.iter().map(pair))
            }
            Operation::Fields => Answer::Some(dict.keys().map(quoted).collect()),
            Operation::Values => Answer::Some(dict.values().map(|(value, _)| quoted(value)).collect()),
            Operation::Length => integer(dict.len()),
            Operation::Contains { field } => flag(dict.contains_key(*field)),
            Operation::FieldLength { field } => integer(value(dict, field).map_or(0, |value| value.len())),
            Operation::Delete { fields } => {
                integer(fields.iter().filter(|field| dict.remove(*field).is_some()).count())
            }
            // No workload asks for these.
            Operation::Scan { .. } | Operation::Random { .. } | Operation::IncrementFloat { .. } => {
                Answer::NotJudged
            }
            Operation::Increment { field, by } => {
                let before = dict.get(*field).map_or(Some(0), |(value, _)| number(value));
                let Some(sum) = before.and_then(|before| before.checked_add(*by)) else {
                    return Answer::Refusal;
                };
                dict.entry(field.to_vec()).or_default().0 = sum.to_string().into_bytes();
                integer(sum)
            }
            Operation::ExpireAt { .. }
            | Operation::Deadlines { .. }
            | Operation::FirstDeadline
            | Operation::Persist { .. }
            | Operation::GetAndExpire { .. }
            | Operation::GetAndDelete { .. }
            | Operation::PutUntil { .. } => deadlines(dict, operation, now_millis),
        }
    }
}

fn each(fields: &Items<'_>, reply: impl FnMut(&[u8]) -> i64) -> Answer {
    array(fields.iter().map(reply).map(|reply| format!("(integer) {reply}")))
}

/// HEXPIRE and its kin: one field after the other.
fn deadlines(dict: &mut Fields, operation: &dict::Operation<'_>, now_millis: u64) -> Answer {
    use dict::Operation;
    match operation {
        Operation::ExpireAt { fields, at_millis, condition } => each(fields, |field| {
            let Some((_, deadline)) = dict.get_mut(field) else { return -2 };
            let (has, at) = (*deadline != 0, *at_millis);
            let done = !(condition.if_none && has || condition.if_some && !has)
                && (has && at > *deadline || !condition.if_later)
                && (!has || at < *deadline || !condition.if_earlier);
            if done && at <= now_millis {
                dict.remove(field);
                return 2;
            }
            if done {
                *deadline = at;
            }
            i64::from(done)
        }),
        Operation::Deadlines { fields, format } => each(fields, |field| match dict.get(field) {
            None => -2,
            Some((_, 0)) => -1,
            Some((_, at)) => {
                let (from, unit) = match format {
                    TimeFormat::SecondsLeft => (now_millis, 1000),
                    TimeFormat::MillisLeft => (now_millis, 1),
                    TimeFormat::SecondsAt => (0, 1000),
                    TimeFormat::MillisAt => (0, 1),
                };
                ((at - from).div_ceil(unit)) as i64
            }
        }),
        Operation::FirstDeadline => {
            let deadlines = dict.values().map(|(_, at)| *at).filter(|at| *at != 0);
            integer(deadlines.min().map_or(-1, |at| at as i64))
        }
        Operation::Persist { fields } => each(fields, |field| match dict.get_mut(field) {
            None => -2,
            Some((_, 0)) => -1,
            Some((_, at)) => {
                *at = 0;
                1
            }
        }),
        Operation::GetAndExpire { fields, at_millis } => array(fields.iter().map(|field| {
            let Some((value, at)) = dict.get_mut(field) else { return maybe(None::<Text>) };
            *at = *at_millis;
            let reply = maybe(Some(&*value));
            if *at_millis != 0 && *at_millis <= now_millis {
                dict.remove(field);
            }
            reply
        })),
        Operation::GetAndDelete { fields } => {
            array(fields.iter().map(|field| maybe(dict.remove(field).map(|(value, _)| value))))
        }
        Operation::PutUntil { pairs, condition, deadline } => {
            put_until(dict, pairs, (*condition, *deadline), now_millis)
        }
        _ => Answer::NotJudged,
    }
}

/// HSETEX.
fn put_until(
    dict: &mut Fields,
    pairs: &Items<'_>,
    (condition, deadline): (dict::PutCondition, register::Deadline),
    now_millis: u64,
) -> Answer {
    let mut fields = pairs.pairs().map(|(field, _)| field);
    let refused = match condition {
        dict::PutCondition::Always => false,
        dict::PutCondition::IfAbsent => fields.any(|field| dict.contains_key(field)),
        dict::PutCondition::IfPresent => fields.any(|field| !dict.contains_key(field)),
    };
    if !refused {
        for (field, value) in pairs.pairs() {
            let entry = dict.entry(field.to_vec()).or_default();
            entry.0 = value.to_vec();
            match deadline {
                register::Deadline::Clear => entry.1 = 0,
                register::Deadline::Keep => {}
                register::Deadline::At { millis } if millis <= now_millis => {
                    dict.remove(field);
                }
                register::Deadline::At { millis } => entry.1 = millis,
            }
        }
    }
    flag(!refused)
}
