//! A black-box search for an order that explains a history and respects real time (Wing and Gong's algorithm with
//! Lowe's memory of visited configurations), over transactions of typed operations. Exponential in the worst case:
//! for small histories, as a second opinion that believes no claim.

use crate::history::{Outcome, Transaction};
use crate::invocations::Decoded;
use crate::replay::{Cells, execute};
use std::collections::BTreeSet;

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
    let relevant = history.iter().filter(|transaction| transaction.outcome != Outcome::Aborted);
    let Some(transactions) = relevant.map(Decoded::new).collect::<Option<Vec<_>>>() else {
        return SearchOutcome::GaveUp;
    };
    let mut done = vec![false; transactions.len()];
    let mut visited: BTreeSet<(Vec<bool>, Vec<u8>)> = BTreeSet::new();
    let first = Frame { state: Cells::default(), candidates: candidates(&transactions, &done), taken: None };
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
        if execute(&transactions[next], &mut state).is_err() {
            continue;
        }
        done[next] = true;
        if visited.len() >= limit {
            return SearchOutcome::GaveUp;
        }
        if !visited.insert((done.clone(), state.encode())) {
            done[next] = false;
            continue;
        }
        frame.taken = Some(next);
        let candidates = candidates(&transactions, &done);
        path.push(Frame { state, candidates, taken: None });
    }
    SearchOutcome::Impossible
}

/// Those that may come next: none that is certain and not yet done ended before they began. The one that began last
/// comes first in the list, and so is tried last.
fn candidates(transactions: &[Decoded<'_>], done: &[bool]) -> Vec<usize> {
    let open = || transactions.iter().enumerate().filter(|(index, _)| !done[*index]);
    let certain = open().filter(|(_, t)| t.transaction.outcome == Outcome::Committed);
    let first_end = certain.filter_map(|(_, t)| t.transaction.responded).min().unwrap_or(u64::MAX);
    let mut next: Vec<usize> =
        open().filter(|(_, t)| t.transaction.invoked <= first_end).map(|(index, _)| index).collect();
    next.sort_by_key(|index| std::cmp::Reverse(transactions[*index].transaction.invoked));
    next
}
