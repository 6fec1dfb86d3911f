//! Evaluating operations.

use super::bounds::{lex_ranks, score_ranks};
use super::{AddFlags, Effect, End, Operation, RangeBy, ScoredItems};
use super::{near, visits};
use crate::collections::ScoredTree;
use crate::items::{count_distinct, has_duplicates};
use crate::{Context, Items};
use std::collections::BTreeMap;
use std::ops::Range;
use types::{Error, ReplySink};

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    state: Option<&ScoredTree>,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let score = |member: &[u8]| state.and_then(|state| state.score(member));
    match operation {
        Operation::Add { flags, items } => return add(state, *flags, items, sink),
        Operation::Increment { flags, by, member } => {
            return increment(score(member), *flags, *by, member, sink);
        }
        Operation::Remove { members } => {
            let found = count_distinct(members.iter(), |member| score(member).is_some());
            sink.integer(found as i64);
            return (found > 0).then(|| Effect::Remove { members: members.clone() });
        }
        Operation::RemoveRange { by } => return remove_range(state, by, sink),
        Operation::Pop { end, count } => return pop(state, *end, *count, sink),
        Operation::Score { member } => reply_score(score(member), sink),
        Operation::Scores { members } => {
            sink.array(members.len());
            members.iter().for_each(|member| reply_score(score(member), sink));
        }
        Operation::Length => sink.integer(state.map_or(0, ScoredTree::len) as i64),
        Operation::Rank { member, reverse } => match rank(state, member, *reverse) {
            Some(rank) => sink.integer(rank as i64),
            None => sink.null(),
        },
        Operation::RankWithScore { member, reverse } => {
            match rank(state, member, *reverse).zip(score(member)) {
                Some((rank, score)) => {
                    sink.array(2);
                    sink.integer(rank as i64);
                    sink.double(score);
                }
                None => sink.null_array(),
            }
        }
        Operation::Range { by, reverse, limit, with_scores } => {
            let ranks = state.map_or(0..0, |state| limited(by.ranks(state, *reverse), *reverse, *limit));
            reply_range(state, ranks, *reverse, *with_scores, sink);
        }
        Operation::Count { min, max } => {
            sink.integer(state.map_or(0, |state| score_ranks(state, *min, *max).len()) as i64);
        }
        Operation::LexCount { min, max } => {
            sink.integer(state.map_or(0, |state| lex_ranks(state, *min, *max).len()) as i64);
        }
        Operation::Random { count, with_scores } => {
            visits::random(state, *count, *with_scores, context.random, sink);
        }
        Operation::Positions { members } => near::positions(state, members, sink),
        Operation::Geohashes { members } => near::geohashes(state, members, sink),
        Operation::Distance { from, to, unit } => near::distance(score(from), score(to), *unit, sink),
        Operation::Search { search, listing } => near::list(state, search, *listing, sink),
        Operation::Scan { cursor, count, pattern } => visits::scan(state, *cursor, *count, pattern, sink),
        Operation::SearchScores { search, by_distance } => {
            near::list_scores(state, search, *by_distance, sink)
        }
    }
    None
}

fn rank(state: Option<&ScoredTree>, member: &[u8], reverse: bool) -> Option<usize> {
    if reverse { state?.reverse_rank(member) } else { state?.rank(member) }
}

/// What becomes of one member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The flags forbid it.
    Forbidden,
    /// It has the score already.
    Same,
    Added,
    Updated,
}

fn outcome(flags: AddFlags, current: Option<f64>, score: f64) -> Outcome {
    match current {
        None if flags.if_present => Outcome::Forbidden,
        None => Outcome::Added,
        Some(_) if flags.if_absent => Outcome::Forbidden,
        Some(current) if flags.if_greater && score <= current => Outcome::Forbidden,
        Some(current) if flags.if_less && score >= current => Outcome::Forbidden,
        Some(current) if score == current => Outcome::Same,
        Some(_) => Outcome::Updated,
    }
}

/// A member that is named twice meets its own first score.
fn add<'a>(
    state: Option<&ScoredTree>,
    flags: AddFlags,
    items: &ScoredItems<'a>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let mut written: Option<BTreeMap<&[u8], f64>> =
        has_duplicates(items.iter().map(|(_, member)| *member)).then(BTreeMap::new);
    let (mut added, mut updated) = (0, 0);
    let mut changes = ScoredItems::default();
    for &(score, member) in items.iter() {
        let own = written.as_ref().and_then(|written| written.get(member).copied());
        let current = own.or_else(|| state.and_then(|state| state.score(member)));
        match outcome(flags, current, score) {
            Outcome::Forbidden | Outcome::Same => continue,
            Outcome::Added => added += 1,
            Outcome::Updated => updated += 1,
        }
        changes.push((score, member));
        if let Some(written) = &mut written {
            written.insert(member, score);
        }
    }
    sink.integer(if flags.count_changed { added + updated } else { added });
    (!changes.is_empty()).then_some(Effect::Put { items: changes })
}

fn increment<'a>(
    current: Option<f64>,
    flags: AddFlags,
    by: f64,
    member: &'a [u8],
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    // A new member keeps the sign of minus zero, which a sum with zero would lose.
    let score = current.map_or(by, |current| current + by);
    if score.is_nan() && !flags.if_absent {
        sink.error(&Error::err("resulting score is not a number (NaN)"));
        return None;
    }
    let outcome = outcome(flags, current, score);
    match outcome {
        Outcome::Forbidden => sink.null(),
        _ => sink.double(score),
    }
    let changes = matches!(outcome, Outcome::Added | Outcome::Updated);
    let conditional = flags.is_conditional();
    changes.then(|| match conditional {
        true => Effect::Put { items: ScoredItems::one(score, member) },
        false => Effect::Add { member, by },
    })
}

fn reply_score(score: Option<f64>, sink: &mut dyn ReplySink) {
    match score {
        Some(score) => sink.double(score),
        None => sink.null(),
    }
}

/// The ranks that remain when some are skipped and so many are listed, from the end where the listing starts.
fn limited(ranks: Range<usize>, reverse: bool, limit: Option<(i64, i64)>) -> Range<usize> {
    let Some((offset, count)) = limit else { return ranks };
    let skipped = usize::try_from(offset).map_or(ranks.len(), |offset| offset.min(ranks.len()));
    let left = ranks.len() - skipped;
    let listed = usize::try_from(count).map_or(left, |count| count.min(left));
    let start = if reverse { ranks.end - skipped - listed } else { ranks.start + skipped };
    start..start + listed
}

fn reply_range(
    state: Option<&ScoredTree>,
    ranks: Range<usize>,
    reverse: bool,
    with_scores: bool,
    sink: &mut dyn ReplySink,
) {
    reply_length(ranks.len(), with_scores, sink);
    let Some(state) = state else { return };
    let write = |entry| reply_entry(entry, with_scores, sink);
    match reverse {
        true => state.range(ranks).rev().for_each(write),
        false => state.range(ranks).for_each(write),
    }
}

/// Announces so many members.
pub(super) fn reply_length(len: usize, with_scores: bool, sink: &mut dyn ReplySink) {
    if with_scores { sink.pairs(len) } else { sink.array(len) }
}

/// Replies a member.
pub(super) fn reply_entry((score, member): (f64, &[u8]), with_scores: bool, sink: &mut dyn ReplySink) {
    if with_scores {
        sink.pair();
    }
    sink.bulk(member);
    if with_scores {
        sink.double(score);
    }
}

fn remove_range(
    state: Option<&ScoredTree>,
    by: &RangeBy<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'static>> {
    let ranks = state.map_or(0..0, |state| by.ranks(state, false));
    sink.integer(ranks.len() as i64);
    removal(state?, ranks)
}

fn removal(state: &ScoredTree, ranks: Range<usize>) -> Option<Effect<'static>> {
    let members = Items::collect(state.range(ranks).map(|(_, member)| member));
    (!members.is_empty()).then_some(Effect::Remove { members })
}

fn pop(
    state: Option<&ScoredTree>,
    end: End,
    count: Option<u64>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'static>> {
    let Some(state) = state else {
        sink.array(0);
        return None;
    };
    let taken = usize::try_from(count.unwrap_or(1)).map_or(state.len(), |count| count.min(state.len()));
    let ranks = match end {
        End::Min => 0..taken,
        End::Max => state.len() - taken..state.len(),
    };
    if count.is_some() {
        reply_range(Some(state), ranks.clone(), end == End::Max, true, sink);
    } else {
        let (score, member) = state.range(ranks.clone()).next()?;
        sink.array(2);
        sink.bulk(member);
        sink.double(score);
    }
    removal(state, ranks)
}
