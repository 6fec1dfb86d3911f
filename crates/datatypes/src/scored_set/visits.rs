//! Reads of members piece by piece and at random.

use super::execute::{reply_entry, reply_length};
use crate::collections::ScoredTree;
use crate::glob::Pattern;
use crate::set::sample;
use types::{ReplySink, Rng};

/// Replies the piece at a cursor with about so many members.
pub(super) fn scan(
    state: Option<&ScoredTree>,
    cursor: u64,
    count: u64,
    pattern: &[u8],
    sink: &mut dyn ReplySink,
) {
    let (mut found, pattern) = (Vec::new(), Pattern::new(pattern, false));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let next = state.map_or(0, |state| {
        state.scan(cursor, count, |score, member| {
            if pattern.matches(member) {
                found.push((score, member));
            }
        })
    });
    sink.array(2);
    sink.bulk(itoa::Buffer::new().format(next).as_bytes());
    sink.array(2 * found.len());
    for (score, member) in found {
        sink.bulk(member);
        sink.double(score);
    }
}

/// Replies members at random; see [`super::Operation::Random`].
pub(super) fn random(
    state: Option<&ScoredTree>,
    count: Option<i64>,
    with_scores: bool,
    random: &mut Rng,
    sink: &mut dyn ReplySink,
) {
    let Some(state) = state else {
        match count {
            None => sink.null(),
            Some(_) => sink.array(0),
        }
        return;
    };
    match count {
        None => match state.random(random) {
            Some((_, member)) => sink.bulk(member),
            None => sink.null(),
        },
        Some(count) if count < 0 => {
            let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            reply_length(count, with_scores, sink);
            for entry in (0..count).map_while(|_| state.random(random)) {
                reply_entry(entry, with_scores, sink);
                if sink.is_full() {
                    break;
                }
            }
        }
        Some(count) => {
            let count = usize::try_from(count).map_or(state.len(), |count| count.min(state.len()));
            reply_length(count, with_scores, sink);
            let ranks = sample(state.len(), count, random);
            let entries = ranks.into_iter().filter_map(|rank| state.entry_at(rank));
            entries.for_each(|entry| reply_entry(entry, with_scores, sink));
        }
    }
}
