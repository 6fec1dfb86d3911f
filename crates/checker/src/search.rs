//! A black-box search for an order that explains a history and respects real time, or sessions only (Wing and Gong's algorithm with
//! Lowe's memory of visited configurations), over transactions of typed operations. Exponential in the worst case:
//! for small histories, as a second opinion that believes no claim.

use crate::history::{Outcome, Transaction};
use crate::invocations::Decoded;
use crate::replay::{Cells, execute};
use crate::report::{Check, Findings};
use std::collections::{BTreeMap, BTreeSet};
use types::HashSeed;

/// What the search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchOutcome {
    /// This order of transactions, by number, explains every reply.
    Serial(Vec<u64>),
    /// No order does.
    Impossible,
    /// The limit of configurations was reached, or a binary form is malformed.
    GaveUp,
}

/// How many configurations a check without claims may look at.
const LIMIT: usize = 50_000;
/// How many transactions a history without claims may have: each configuration takes time in proportion.
const LARGEST: usize = 10_000;

/// Checks a history in which nobody claims anything. False when the search gave up, so that nothing is known.
pub(crate) fn check(history: &[Transaction], real_time: bool, findings: &mut Findings) -> bool {
    if history.len() > LARGEST {
        return false;
    }
    match search_order(history, real_time, LIMIT) {
        SearchOutcome::Serial(_) => true,
        SearchOutcome::GaveUp => false,
        SearchOutcome::Impossible => {
            let (end, numbers) = shortest_impossible(history, real_time);
            let respects = if real_time { "real time" } else { "every session's own" };
            let message = format!(
                "no order that respects {respects} explains the replies given up to {end} us; the last of them were \
                 those of {numbers:?}"
            );
            findings.add(Check::Order, message, numbers);
            true
        }
    }
}

/// The earliest answer at which what clients had seen became inexplicable: its time, and the transactions answered
/// last.
fn shortest_impossible(history: &[Transaction], real_time: bool) -> (u64, Vec<u64>) {
    let mut ends: Vec<(u64, u64)> = history.iter().filter_map(|t| Some((t.responded?, t.number))).collect();
    ends.sort_unstable();
    let possible = |end: &(u64, u64)| {
        search_order(&seen_until(history, end.0), real_time, LIMIT) != SearchOutcome::Impossible
    };
    let last = ends.partition_point(possible).min(ends.len().saturating_sub(1));
    let shown = ends[..=last].iter().rev().take(SHOWN).map(|(_, number)| *number).collect();
    (ends[last].0, shown)
}

/// How many transactions a counterexample names.
const SHOWN: usize = 4;

/// The history as it was known at a time.
fn seen_until(history: &[Transaction], end: u64) -> Vec<Transaction> {
    let known = history.iter().filter(|transaction| transaction.invoked <= end).cloned();
    known
        .map(|transaction| match transaction.responded {
            Some(responded) if responded > end => {
                Transaction { responded: None, outcome: Outcome::Unknown, ..transaction }
            }
            _ => transaction,
        })
        .collect()
}

/// One transaction taken, and what may be tried beside it.
struct Frame<'h> {
    /// The state before the choice.
    state: Cells<'h>,
    candidates: Vec<usize>,
    /// The one taken now.
    taken: Option<usize>,
}

/// Searches for a strictly serial order of the committed transactions, among which any of unknown outcome may stand.
/// Gives up after `limit` configurations.
pub fn search_strict_order(history: &[Transaction], limit: usize) -> SearchOutcome {
    search_order(history, true, limit)
}

/// The same for an order that respects sessions only.
pub fn search_serial_order(history: &[Transaction], limit: usize) -> SearchOutcome {
    search_order(history, false, limit)
}

fn search_order(history: &[Transaction], real_time: bool, limit: usize) -> SearchOutcome {
    let relevant = history.iter().filter(|transaction| transaction.outcome != Outcome::Aborted);
    let Some(transactions) = relevant.map(Decoded::new).collect::<Option<Vec<_>>>() else {
        return SearchOutcome::GaveUp;
    };
    let mut done = vec![false; transactions.len()];
    let mut visited: BTreeSet<(u64, u64)> = BTreeSet::new();
    let first = Frame {
        state: Cells::default(),
        candidates: candidates(&transactions, &done, real_time),
        taken: None,
    };
    let mut path = vec![first];
    while let Some(frame) = path.last_mut() {
        if let Some(taken) = frame.taken.take() {
            done[taken] = false;
        }
        let certain = |index: usize| transactions[index].transaction.outcome == Outcome::Committed;
        if (0..done.len()).all(|index| done[index] || !certain(index)) {
            let taken = path.iter().filter_map(|frame| frame.taken);
            return SearchOutcome::Serial(taken.map(|index| transactions[index].number()).collect());
        }
        let Some(next) = frame.candidates.pop() else {
            path.pop();
            continue;
        };
        let mut state = frame.state.clone();
        if execute(&transactions[next], None, &mut state).is_err() {
            continue;
        }
        done[next] = true;
        if visited.len() >= limit {
            return SearchOutcome::GaveUp;
        }
        if !visited.insert(fingerprint(&done, &state)) {
            done[next] = false;
            continue;
        }
        frame.taken = Some(next);
        let candidates = candidates(&transactions, &done, real_time);
        path.push(Frame { state, candidates, taken: None });
    }
    SearchOutcome::Impossible
}

/// Those that may come next: none that is certain and not yet done ended before they began. They are tried from the
/// back: certain ones first, in order of invocation and, in a pipeline, of the history; one of unknown outcome only where those lead nowhere, so that it
/// enters the order where its effect is first needed.
fn candidates(transactions: &[Decoded<'_>], done: &[bool], real_time: bool) -> Vec<usize> {
    let open = || transactions.iter().enumerate().filter(|(index, _)| !done[*index]);
    let is_certain = |index: usize| transactions[index].transaction.outcome == Outcome::Committed;
    // The first answer of each session, or of all together.
    let line = |t: &Decoded<'_>| if real_time { 0 } else { t.transaction.session };
    let mut first_ends: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, t) in open().filter(|(index, _)| is_certain(*index)) {
        let end = first_ends.entry(line(t)).or_insert(u64::MAX);
        *end = (*end).min(t.transaction.responded.unwrap_or(u64::MAX));
    }
    let may_begin =
        |t: &Decoded<'_>| first_ends.get(&line(t)).is_none_or(|end| t.transaction.invoked <= *end);
    let mut next: Vec<usize> = open().filter(|(_, t)| may_begin(t)).map(|(index, _)| index).collect();
    next.sort_by_key(|index| {
        (is_certain(*index), std::cmp::Reverse((transactions[*index].transaction.invoked, *index)))
    });
    next
}

/// A fingerprint of what is done and what state it left; two differ where their contents do, but for a chance of
/// about one in 2^128.
fn fingerprint(done: &[bool], state: &Cells<'_>) -> (u64, u64) {
    let mut bytes = state.encode();
    bytes.extend(done.iter().map(|done| u8::from(*done)));
    (HashSeed(0).hash(&bytes).0, HashSeed(1).hash(&bytes).0)
}
