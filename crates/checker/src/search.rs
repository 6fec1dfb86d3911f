//! A black-box search for an order that explains a history and respects real time, or sessions only (Wing and Gong's
//! algorithm with Lowe's memory of visited configurations), over transactions of typed operations.
//!
//! Exponential in the worst case. What keeps it short: keys that no transaction joins are searched apart where real time
//! orders everything (Herlihy and Wing: linearizability is local); what changes nothing and can be explained now is taken
//! at once, since waiting gains nothing; and claimed places, where there are some, say what to try first, no more.

use crate::configuration::{Configuration, Item};
use crate::history::{Outcome, Transaction};
use crate::invocations::Decoded;
use crate::replay::{Cells, time_of};
use crate::report::{Check, Findings};
use crate::strays::{Strays, doubts};
use std::collections::{BTreeMap, BTreeSet};

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
const LIMIT: usize = 200_000;
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

/// Searches for a strictly serial order of the committed transactions, among which any of unknown outcome may stand.
/// Effects without a client's transaction are applied as claimed. Gives up after `limit` configurations.
pub fn search_strict_order(history: &[Transaction], limit: usize) -> SearchOutcome {
    search_order(history, true, limit)
}

/// The same for an order that respects sessions only.
pub fn search_serial_order(history: &[Transaction], limit: usize) -> SearchOutcome {
    search_order(history, false, limit)
}

/// Searches for a strictly serial order of what clients requested and saw, without claims: the search ignores effects,
/// and leaves out what no client requested. Claims say what to try first and, where keys expire, when a transaction
/// looked at deadlines.
pub fn search_requested<'h>(history: &'h [Transaction], limit: usize) -> SearchOutcome {
    let Some(hints) = Hints::of(history) else { return SearchOutcome::GaveUp };
    let requested = history.iter().filter(|t| t.outcome != Outcome::Aborted && !t.steps.is_empty());
    let Some(decoded) = requested.map(Decoded::new).collect::<Option<Vec<_>>>() else {
        return SearchOutcome::GaveUp;
    };
    let item = |transaction: Decoded<'h>| {
        let stray = hints.0.get(&transaction.number());
        let place = stray.map_or(transaction.transaction.place(), |stray| stray.transaction.place());
        let now_millis = stray.map_or(time_of(&transaction), time_of);
        Item { place, now_millis, is_idle: false, transaction }
    };
    search(decoded.into_iter().map(item).collect(), true, limit)
}

/// Of clients in doubt, by the numbers of their transactions, what took effect and is taken for these.
struct Hints<'h>(BTreeMap<u64, Decoded<'h>>);

impl<'h> Hints<'h> {
    /// `None` for a malformed history.
    fn of(history: &'h [Transaction]) -> Option<Self> {
        let doubts = doubts(history);
        let mut strays = Strays::new(history, &doubts);
        let placed = history.iter().filter(|t| t.place().is_some()).map(Decoded::new);
        let placed = placed.collect::<Option<Vec<_>>>()?;
        strays.note_in_order(&placed);
        let mut by_number: BTreeMap<u64, Decoded<'h>> =
            placed.into_iter().map(|transaction| (transaction.number(), transaction)).collect();
        let pair = |(doubt, stray)| Some((doubt, by_number.remove(&stray)?));
        Some(Hints(strays.pairs().into_iter().filter_map(pair).collect()))
    }
}

fn search_order<'h>(history: &'h [Transaction], real_time: bool, limit: usize) -> SearchOutcome {
    let relevant = history.iter().filter(|transaction| transaction.outcome != Outcome::Aborted);
    let Some(decoded) = relevant.map(Decoded::new).collect::<Option<Vec<_>>>() else {
        return SearchOutcome::GaveUp;
    };
    let item = |transaction: Decoded<'h>| {
        let Transaction { claim, outcome, .. } = transaction.transaction;
        let is_placeless = claim.as_ref().is_some_and(|claim| claim.commit.is_none());
        Item {
            place: transaction.transaction.place(),
            now_millis: time_of(&transaction),
            is_idle: is_placeless && *outcome == Outcome::Committed,
            transaction,
        }
    };
    search(decoded.into_iter().map(item).collect(), real_time, limit)
}

fn search(items: Vec<Item<'_>>, real_time: bool, mut limit: usize) -> SearchOutcome {
    // Real time alone tells each group's order: what all of them allow together exists.
    let groups = if real_time { disjoint_groups(items) } else { vec![items] };
    let mut order: Vec<(u64, u64)> = Vec::new();
    for group in groups {
        let mut configuration = Configuration::new(&group, real_time);
        let found = explore(&group, &mut configuration, &mut limit);
        let taken = match found {
            SearchOutcome::Serial(taken) => taken,
            other => return other,
        };
        // Each stands at the first moment at which all before it have been invoked.
        let by_number: BTreeMap<u64, u64> = group
            .iter()
            .map(|item| (item.transaction.number(), item.transaction.transaction.invoked))
            .collect();
        let mut moment = 0;
        for number in taken {
            moment = by_number[&number].max(moment);
            order.push((moment, number));
        }
    }
    if real_time {
        order.sort_by_key(|(moment, _)| *moment);
    }
    SearchOutcome::Serial(order.into_iter().map(|(_, number)| number).collect())
}

/// Groups of transactions that have no key in common.
fn disjoint_groups(items: Vec<Item<'_>>) -> Vec<Vec<Item<'_>>> {
    let mut groups: Vec<(BTreeSet<&[u8]>, Vec<Item<'_>>)> = Vec::new();
    for item in items {
        let mut keys = item.transaction.keys();
        let (joined, rest): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|(known, _)| !known.is_disjoint(&keys));
        let mut all = Vec::new();
        for (known, items) in joined {
            keys.extend(known);
            all.extend(items);
        }
        all.push(item);
        groups = rest;
        groups.push((keys, all));
    }
    groups.into_iter().map(|(_, items)| items).collect()
}

/// One transaction taken, and the alternatives to it.
struct Frame<'h> {
    candidates: Vec<usize>,
    /// The one taken now, and what it changed.
    taken: Option<(usize, Cells<'h>)>,
}

/// Goes through the configurations of a group, from a fresh one on; `limit` becomes what is left of it.
fn explore<'h>(
    items: &[Item<'h>],
    configuration: &mut Configuration<'_, 'h>,
    limit: &mut usize,
) -> SearchOutcome {
    let mut visited: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut path: Vec<Frame<'h>> = Vec::new();
    while !configuration.is_complete() {
        path.push(Frame { candidates: configuration.candidates(), taken: None });
        loop {
            let Some(frame) = path.last_mut() else { return SearchOutcome::Impossible };
            if let Some((index, before)) = frame.taken.take() {
                configuration.put_back(index, before);
            }
            let Some(next) = frame.candidates.pop() else {
                path.pop();
                continue;
            };
            let Some((before, changes)) = configuration.take(next) else { continue };
            if !changes && items[next].is_certain() {
                // Waiting would gain nothing.
                frame.candidates.clear();
            }
            if *limit == 0 {
                return SearchOutcome::GaveUp;
            }
            *limit -= 1;
            let is_needless = !changes && !items[next].is_certain();
            if is_needless || !visited.insert(configuration.fingerprint()) {
                configuration.put_back(next, before);
                continue;
            }
            frame.taken = Some((next, before));
            break;
        }
    }
    let taken = path.iter().filter_map(|frame| Some(frame.taken.as_ref()?.0));
    SearchOutcome::Serial(taken.map(|index| items[index].transaction.number()).collect())
}
