//! Naive dicts and sets.

use super::{Bytes, bulk_or_null, bulks, expect, integer};
use crate::properties::NOW_MILLIS;
use datatypes::Items;
use datatypes::dict::{Operation as Dict, PutCondition, PutReply};
use datatypes::key::TimeFormat;
use datatypes::register::Deadline;
use datatypes::set::Operation as Set;
use std::collections::{BTreeMap, BTreeSet};
use types::{Error, ReplyBuf, ReplySink};

pub(super) fn perform_dict(
    state: &mut BTreeMap<Bytes, Bytes>,
    operation: &Dict<'_>,
    actual: &ReplyBuf,
) -> ReplyBuf {
    let number = |number: usize| expect(|reply| reply.integer(number as i64));
    match operation {
        Dict::Put { pairs, reply } => {
            let before = state.len();
            for (field, value) in pairs.pairs() {
                state.insert(field.to_vec(), value.to_vec());
            }
            match reply {
                PutReply::Added => number(state.len() - before),
                PutReply::Status => expect(|reply| reply.simple("OK")),
            }
        }
        Dict::PutIfAbsent { field, value } => {
            let absent = !state.contains_key(*field);
            state.entry(field.to_vec()).or_insert(value.to_vec());
            number(usize::from(absent))
        }
        Dict::Get { field } => expect(|reply| bulk_or_null(reply, state.get(*field).map(|value| &value[..]))),
        Dict::GetMany { fields } => expect(|reply| {
            reply.array(fields.len());
            fields.iter().for_each(|field| bulk_or_null(reply, state.get(field).map(|value| &value[..])));
        }),
        Dict::GetAll => {
            let listed = bulks(actual);
            let pairs: BTreeMap<_, _> =
                listed.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            assert_eq!(&pairs, state);
            expect(|reply| {
                reply.map(state.len());
                listed.iter().for_each(|bytes| reply.bulk(bytes));
            })
        }
        Dict::Fields => unordered(state.keys().cloned().collect(), actual, ReplyBuf::array),
        Dict::Values => unordered(state.values().cloned().collect(), actual, ReplyBuf::array),
        Dict::Length => number(state.len()),
        Dict::Contains { field } => number(usize::from(state.contains_key(*field))),
        Dict::FieldLength { field } => number(state.get(*field).map_or(0, Vec::len)),
        Dict::Delete { fields } => {
            number(fields.iter().filter(|field| state.remove(*field).is_some()).count())
        }
        Dict::Increment { field, by } => {
            let current = state.get(*field).map_or(Some(0), |value| integer(value));
            match current.map(|current| current.checked_add(*by)) {
                None => expect(|reply| reply.error(&Error::err("hash value is not an integer"))),
                Some(None) => {
                    expect(|reply| reply.error(&Error::err("increment or decrement would overflow")))
                }
                Some(Some(sum)) => {
                    state.insert(field.to_vec(), sum.to_string().into_bytes());
                    expect(|reply| reply.integer(sum))
                }
            }
        }
        Dict::Scan { cursor, pattern, values, .. } => {
            let wanted = |field: &Bytes| datatypes::glob::matches(pattern, field, false);
            let fields: BTreeSet<Bytes> = state.keys().filter(|field| wanted(field)).cloned().collect();
            piece(fields, *cursor, actual, |listed| match values {
                false => listed.to_vec(),
                true => listed
                    .chunks(2)
                    .map(|pair| {
                        assert_eq!(state.get(&pair[0]), Some(&pair[1]));
                        pair[0].clone()
                    })
                    .collect(),
            })
        }
        Dict::IncrementFloat { field, by } => {
            let current = state.get(*field).map_or(Some(0.0), float);
            let Some(current) = current else {
                return expect(|reply| reply.error(&Error::err("hash value is not a float")));
            };
            let by = float(by.to_text()).expect("it is a number");
            let sum = (current + by).to_string().into_bytes();
            state.insert(field.to_vec(), sum.clone());
            expect(|reply| reply.bulk(&sum))
        }
        Dict::Random { count, values } => random_fields(state, *count, *values, &bulks(actual)),
        other => unreachable!("{other:?} is about deadlines"),
    }
}

/// Fields, some of which have deadlines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dated {
    pub(super) values: BTreeMap<Bytes, Bytes>,
    pub(super) deadlines: BTreeMap<Bytes, u64>,
}

impl Dated {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(super) fn perform(&mut self, operation: &Dict<'_>, actual: &ReplyBuf) -> ReplyBuf {
        let written: Vec<Bytes> = match operation {
            Dict::Put { pairs, .. } => pairs.pairs().map(|(field, _)| field.to_vec()).collect(),
            Dict::PutIfAbsent { field, .. } if !self.values.contains_key(*field) => vec![field.to_vec()],
            Dict::Delete { fields } => fields.iter().map(<[u8]>::to_vec).collect(),
            _ => Vec::new(),
        };
        self.deadlines.retain(|field, _| !written.contains(field));
        let reply = match operation {
            Dict::ExpireAt { fields, at_millis, condition } => numbers(fields, |field| {
                let present = self.deadlines.get(field).copied();
                let holds = if condition.if_none {
                    present.is_none()
                } else if condition.if_some {
                    present.is_some()
                } else if condition.if_later {
                    present.is_some_and(|present| *at_millis > present)
                } else if condition.if_earlier {
                    present.is_none_or(|present| *at_millis < present)
                } else {
                    true
                };
                match () {
                    () if !self.values.contains_key(field) => -2,
                    () if !holds => 0,
                    () => self.give(field, *at_millis),
                }
            }),
            Dict::Deadlines { fields, format } => numbers(fields, |field| {
                let shown = |at: u64| match format {
                    TimeFormat::SecondsLeft => (at - NOW_MILLIS).div_ceil(1000),
                    TimeFormat::MillisLeft => at - NOW_MILLIS,
                    TimeFormat::SecondsAt => at.div_ceil(1000),
                    TimeFormat::MillisAt => at,
                };
                match self.values.contains_key(field) {
                    false => -2,
                    true => self.deadlines.get(field).map_or(-1, |at| shown(*at) as i64),
                }
            }),
            Dict::Persist { fields } => numbers(fields, |field| match self.values.contains_key(field) {
                false => -2,
                true => self.deadlines.remove(field).map_or(-1, |_| 1),
            }),
            Dict::GetAndExpire { fields, at_millis } => values(fields, |field| {
                let value = self.values.get(field).cloned()?;
                match at_millis {
                    0 => self.deadlines.remove(field).is_some(),
                    at => self.give(field, *at) == 1,
                };
                Some(value)
            }),
            Dict::GetAndDelete { fields } => values(fields, |field| {
                self.deadlines.remove(field);
                self.values.remove(field)
            }),
            Dict::PutUntil { pairs, condition, deadline } => {
                let there = pairs.pairs().filter(|(field, _)| self.values.contains_key(*field)).count();
                let holds = match condition {
                    PutCondition::Always => true,
                    PutCondition::IfAbsent => there == 0,
                    PutCondition::IfPresent => there == pairs.len() / 2,
                };
                for (field, value) in pairs.pairs().filter(|_| holds) {
                    self.values.insert(field.to_vec(), value.to_vec());
                    match deadline {
                        Deadline::Clear => self.deadlines.remove(field).is_some(),
                        Deadline::Keep => false,
                        Deadline::At { millis } => self.give(field, *millis) == 1,
                    };
                }
                expect(|reply| reply.integer(holds.into()))
            }
            other => perform_dict(&mut self.values, other, actual),
        };
        self.deadlines.retain(|field, _| self.values.contains_key(field));
        reply
    }

    /// Gives a field a deadline; one that has passed removes it.
    fn give(&mut self, field: &[u8], at_millis: u64) -> i64 {
        if at_millis <= NOW_MILLIS {
            self.deadlines.remove(field);
            self.values.remove(field);
            return 2;
        }
        self.deadlines.insert(field.to_vec(), at_millis);
        1
    }
}

fn numbers(fields: &Items<'_>, mut each: impl FnMut(&[u8]) -> i64) -> ReplyBuf {
    expect(|reply| {
        reply.array(fields.len());
        fields.iter().for_each(|field| reply.integer(each(field)));
    })
}

fn values(fields: &Items<'_>, mut each: impl FnMut(&[u8]) -> Option<Bytes>) -> ReplyBuf {
    expect(|reply| {
        reply.array(fields.len());
        fields.iter().for_each(|field| bulk_or_null(reply, each(field).as_deref()));
    })
}

fn float(bytes: impl AsRef<[u8]>) -> Option<f64> {
    std::str::from_utf8(bytes.as_ref()).ok()?.parse().ok()
}

/// True for a sum that has more digits than the model's numbers.
pub(super) fn is_rounded(state: &BTreeMap<Bytes, Bytes>, operation: &Dict<'_>) -> bool {
    let Dict::IncrementFloat { field, .. } = operation else { return false };
    state.get(*field).and_then(float).is_some_and(|value| value.abs() > 1e9)
}

fn random_fields(
    state: &BTreeMap<Bytes, Bytes>,
    count: Option<i64>,
    values: bool,
    chosen: &[Bytes],
) -> ReplyBuf {
    let fields: Vec<&Bytes> = chosen.iter().step_by(1 + usize::from(values)).collect();
    assert!(fields.iter().all(|field| state.contains_key(*field)));
    let negative = count.is_some_and(|count| count < 0) && !state.is_empty();
    let wanted = count.unwrap_or(1).unsigned_abs() as usize;
    assert_eq!(fields.len(), if negative { wanted } else { wanted.min(state.len()) });
    assert!(negative || fields.iter().collect::<BTreeSet<_>>().len() == fields.len());
    if !values || state.is_empty() {
        return listing(chosen, count.is_some().then_some(ReplyBuf::array));
    }
    expect(|reply| {
        reply.pairs(fields.len());
        for field in fields {
            reply.pair();
            reply.bulk(field);
            reply.bulk(&state[field]);
        }
    })
}

/// The reply is a piece of a scan of these elements: all of them if it is the first and the last one, else some, each of
/// them once. `elements` takes them from what is listed.
fn piece(
    wanted: BTreeSet<Bytes>,
    cursor: u64,
    actual: &ReplyBuf,
    elements: impl FnOnce(&[Bytes]) -> Vec<Bytes>,
) -> ReplyBuf {
    let bulks = bulks(actual);
    let (next, listed) = bulks.split_first().expect("a cursor comes first");
    let found = elements(listed);
    let distinct: BTreeSet<Bytes> = found.iter().cloned().collect();
    assert!(distinct.len() == found.len() && distinct.is_subset(&wanted));
    assert!(cursor != 0 || next != b"0" || distinct == wanted, "a scan of one piece is complete");
    expect(|reply| {
        reply.array(2);
        reply.bulk(next);
        reply.array(listed.len());
        listed.iter().for_each(|bytes| reply.bulk(bytes));
    })
}

/// The reply lists these byte strings, in whatever order.
fn unordered(mut expected: Vec<Bytes>, actual: &ReplyBuf, header: fn(&mut ReplyBuf, usize)) -> ReplyBuf {
    let listed = bulks(actual);
    let mut sorted = listed.clone();
    sorted.sort();
    expected.sort();
    assert_eq!(sorted, expected);
    expect(|reply| {
        header(reply, listed.len());
        listed.iter().for_each(|bytes| reply.bulk(bytes));
    })
}

pub(super) fn perform_set(state: &mut BTreeSet<Bytes>, operation: &Set<'_>, actual: &ReplyBuf) -> ReplyBuf {
    let number = |number: usize| expect(|reply| reply.integer(number as i64));
    let chosen = bulks(actual);
    let at_most = |count: usize| count.min(state.len());
    match operation {
        Set::Add { members } => number(members.iter().filter(|member| state.insert(member.to_vec())).count()),
        Set::Remove { members } => number(members.iter().filter(|member| state.remove(*member)).count()),
        Set::Contains { member } => number(usize::from(state.contains(*member))),
        Set::ContainsMany { members } => expect(|reply| {
            reply.array(members.len());
            members.iter().for_each(|member| reply.integer(i64::from(state.contains(member))));
        }),
        Set::Members => unordered(state.iter().cloned().collect(), actual, ReplyBuf::set),
        Set::Length => number(state.len()),
        Set::Pop { count } => {
            assert_eq!(chosen.len(), at_most(count.unwrap_or(1) as usize));
            assert!(chosen.iter().all(|member| state.remove(member)), "different members are chosen");
            listing(&chosen, count.is_some().then_some(ReplyBuf::set))
        }
        Set::Random { count } => {
            let negative = count.is_some_and(|count| count < 0) && !state.is_empty();
            let wanted = count.unwrap_or(1).unsigned_abs() as usize;
            assert_eq!(chosen.len(), if negative { wanted } else { at_most(wanted) });
            assert!(chosen.iter().all(|member| state.contains(member)));
            assert!(negative || chosen.iter().collect::<BTreeSet<_>>().len() == chosen.len());
            listing(&chosen, count.is_some().then_some(ReplyBuf::array))
        }
        Set::Scan { cursor, pattern, .. } => {
            let wanted = |member: &&Bytes| datatypes::glob::matches(pattern, member, false);
            piece(state.iter().filter(wanted).cloned().collect(), *cursor, actual, <[Bytes]>::to_vec)
        }
    }
}

/// Strings behind a header, or without one a single string or null.
fn listing(chosen: &[Bytes], header: Option<fn(&mut ReplyBuf, usize)>) -> ReplyBuf {
    expect(|reply| match header {
        None => bulk_or_null(reply, chosen.first().map(|bytes| &bytes[..])),
        Some(header) => {
            header(reply, chosen.len());
            chosen.iter().for_each(|bytes| reply.bulk(bytes));
        }
    })
}
