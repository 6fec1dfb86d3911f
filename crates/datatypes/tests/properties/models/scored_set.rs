//! A naive scored set: a sorted vector, searched from end to end.

use super::{Bytes, bulks, expect, map};
use datatypes::scored_set::{AddFlags, End, LexBound, Operation, RangeBy, ScoreBound};
use std::collections::BTreeSet;
use types::{Error, Reply, ReplyBuf, ReplySink};

pub(super) type State = Vec<(f64, Bytes)>;

pub(super) fn perform(state: &mut State, operation: &Operation<'_>, actual: &ReplyBuf) -> ReplyBuf {
    let number = |number: usize| expect(|reply| reply.integer(number as i64));
    match operation {
        Operation::Add { flags, items } => {
            let (mut added, mut changed) = (0, 0);
            for (score, member) in items.iter() {
                let before = score_of(state, member);
                if let Ok(Some(_)) = write(state, *flags, *score, member, false) {
                    added += usize::from(before.is_none());
                    changed += usize::from(before != score_of(state, member));
                }
            }
            number(if flags.count_changed { changed } else { added })
        }
        Operation::Increment { flags, by, member } => match write(state, *flags, *by, member, true) {
            Err(()) => expect(|reply| reply.error(&Error::err("resulting score is not a number (NaN)"))),
            Ok(score) => expect(|reply| double_or_null(reply, score)),
        },
        Operation::Remove { members } => {
            number(members.iter().filter(|member| take(state, member).is_some()).count())
        }
        Operation::Score { member } => expect(|reply| double_or_null(reply, score_of(state, member))),
        Operation::Scores { members } => expect(|reply| {
            reply.array(members.len());
            members.iter().for_each(|member| double_or_null(reply, score_of(state, member)));
        }),
        Operation::Length => number(state.len()),
        Operation::Rank { member, reverse } => {
            let mut listed = state.clone();
            if *reverse {
                listed.reverse();
            }
            match listed.iter().position(|(_, other)| other == member) {
                Some(rank) => number(rank),
                None => expect(ReplyBuf::null),
            }
        }
        Operation::Range { by, reverse, limit, with_scores } => {
            let mut listed = range(state, by, *reverse);
            if let Some((offset, count)) = limit {
                let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
                let count = usize::try_from(*count).unwrap_or(usize::MAX);
                listed = listed.into_iter().skip(offset).take(count).collect();
            }
            expect(|reply| list(reply, &listed, *with_scores))
        }
        Operation::Count { min, max } => {
            number(state.iter().filter(|(score, _)| above(*min, *score) && below(*max, *score)).count())
        }
        Operation::LexCount { min, max } => {
            number(range(state, &RangeBy::Lex { min: *min, max: *max }, false).len())
        }
        Operation::RemoveRange { by } => {
            let removed = range(state, by, false);
            state.retain(|entry| !removed.contains(entry));
            number(removed.len())
        }
        Operation::Pop { end, count } => pop(state, *end, *count),
        Operation::RankWithScore { member, reverse } => {
            let place = state.iter().position(|(_, other)| other == member);
            expect(|reply| match place {
                None => reply.null_array(),
                Some(place) => {
                    reply.array(2);
                    reply.integer(if *reverse { state.len() - 1 - place } else { place } as i64);
                    reply.double(state[place].0);
                }
            })
        }
        operation => read(state, operation, actual),
    }
}

/// What chooses, visits, or looks at the map.
fn read(state: &State, operation: &Operation<'_>, actual: &ReplyBuf) -> ReplyBuf {
    match operation {
        Operation::Random { count, with_scores } => {
            let chosen = entries(state, actual);
            let negative = count.is_some_and(|count| count < 0) && !state.is_empty();
            let wanted = count.unwrap_or(1).unsigned_abs() as usize;
            assert_eq!(chosen.len(), if negative { wanted } else { wanted.min(state.len()) });
            assert!(negative || distinct(&chosen));
            expect(|reply| match count {
                None => match chosen.first() {
                    Some((_, member)) => reply.bulk(member),
                    None => reply.null(),
                },
                Some(_) => list(reply, &chosen, *with_scores && !state.is_empty()),
            })
        }
        Operation::Scan { cursor, pattern, .. } => {
            let mut elements = actual.elements().skip(1);
            let Some(Reply::Bulk(next)) = elements.next() else { panic!("a cursor comes first") };
            let listed = entries(state, &expect(|reply| elements.for_each(|element| element.write(reply))));
            let wanted = |entry: &(f64, Bytes)| datatypes::glob::matches(pattern, &entry.1, false);
            assert!(distinct(&listed) && listed.iter().all(wanted));
            let all = state.iter().filter(|entry| wanted(entry)).count();
            assert!(*cursor != 0 || next != b"0" || listed.len() == all, "a scan of one piece is complete");
            expect(|reply| {
                reply.array(2);
                reply.bulk(next);
                reply.array(2 * listed.len());
                for (score, member) in &listed {
                    reply.bulk(member);
                    reply.double(*score);
                }
            })
        }
        operation => map::read(state, operation),
    }
}

/// The members that a reply lists, with the scores that they have.
fn entries(state: &State, reply: &ReplyBuf) -> State {
    let entry = |member: Bytes| (score_of(state, &member).expect("it is a member"), member);
    bulks(reply).into_iter().map(entry).collect()
}

fn distinct(entries: &State) -> bool {
    entries.iter().map(|(_, member)| member).collect::<BTreeSet<_>>().len() == entries.len()
}

pub(super) fn score_of(state: &State, member: &[u8]) -> Option<f64> {
    state.iter().find(|(_, other)| other == member).map(|(score, _)| *score)
}

fn take(state: &mut State, member: &[u8]) -> Option<f64> {
    let place = state.iter().position(|(_, other)| other == member)?;
    Some(state.remove(place).0)
}

/// The score that the member has after it, nothing if the flags forbid it, an error if it is not a number.
fn write(
    state: &mut State,
    flags: AddFlags,
    score: f64,
    member: &[u8],
    add: bool,
) -> Result<Option<f64>, ()> {
    let before = score_of(state, member);
    if (before.is_some() && flags.if_absent) || (before.is_none() && flags.if_present) {
        return Ok(None);
    }
    let after = if add { before.map_or(score, |before| before + score) } else { score };
    if after.is_nan() {
        return Err(());
    }
    if before
        .is_some_and(|before| (flags.if_greater && after <= before) || (flags.if_less && after >= before))
    {
        return Ok(None);
    }
    // A stored zero has no sign; a reply to the one who gave it has.
    let stored = if after == 0.0 { 0.0 } else { after };
    take(state, member);
    state.push((stored, member.to_vec()));
    state.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    Ok(Some(after))
}

fn above(min: ScoreBound, score: f64) -> bool {
    match min {
        ScoreBound::Inclusive(min) => score >= min,
        ScoreBound::Exclusive(min) => score > min,
    }
}

fn below(max: ScoreBound, score: f64) -> bool {
    match max {
        ScoreBound::Inclusive(max) => score <= max,
        ScoreBound::Exclusive(max) => score < max,
    }
}

/// Where scores differ, Redis leaves open what a range of members is.
pub(super) fn is_unspecified(state: &State, operation: &Operation<'_>) -> bool {
    let by_lex = match operation {
        Operation::Range { by, .. } | Operation::RemoveRange { by } => matches!(by, RangeBy::Lex { .. }),
        _ => matches!(operation, Operation::LexCount { .. }),
    };
    by_lex && state.iter().any(|(score, _)| *score != state[0].0)
}

/// The entries of a range, in the order in which they are listed.
fn range(state: &State, by: &RangeBy<'_>, reverse: bool) -> State {
    let mut listed = state.clone();
    if reverse {
        listed.reverse();
    }
    let from_front = |index: i64| i128::from(index) + if index < 0 { state.len() as i128 } else { 0 };
    let inside = |place: usize, score: f64, member: &[u8]| match by {
        RangeBy::Index { start, stop } => (from_front(*start)..=from_front(*stop)).contains(&(place as i128)),
        RangeBy::Score { min, max } => above(*min, score) && below(*max, score),
        RangeBy::Lex { min, max } => {
            let from = match min {
                LexBound::Lowest => true,
                LexBound::Highest => false,
                LexBound::Inclusive(min) => member >= *min,
                LexBound::Exclusive(min) => member > *min,
            };
            let to = match max {
                LexBound::Lowest => false,
                LexBound::Highest => true,
                LexBound::Inclusive(max) => member <= *max,
                LexBound::Exclusive(max) => member < *max,
            };
            from && to
        }
    };
    let mut place = 0;
    listed.retain(|(score, member)| {
        place += 1;
        inside(place - 1, *score, member)
    });
    listed
}

fn double_or_null(reply: &mut ReplyBuf, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

pub(super) fn list(reply: &mut ReplyBuf, entries: &State, with_scores: bool) {
    if with_scores {
        reply.pairs(entries.len());
    } else {
        reply.array(entries.len());
    }
    for (score, member) in entries {
        if with_scores {
            reply.pair();
        }
        reply.bulk(member);
        if with_scores {
            reply.double(*score);
        }
    }
}

fn pop(state: &mut State, end: End, count: Option<u64>) -> ReplyBuf {
    let mut popped = State::new();
    let absent = state.is_empty();
    while (popped.len() as u64) < count.unwrap_or(1) && !state.is_empty() {
        popped.push(if end == End::Min { state.remove(0) } else { state.remove(state.len() - 1) });
    }
    expect(|reply| match count {
        _ if absent => reply.array(0),
        Some(_) => list(reply, &popped, true),
        None => {
            reply.array(2);
            reply.bulk(&popped[0].1);
            reply.double(popped[0].0);
        }
    })
}
