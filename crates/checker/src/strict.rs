//! Strict serializability over typed operations, checked through the claimed commit order.
//!
//! 1. A graph: on each key an edge between any two transactions that do not commute there, from the lower place to
//!    the higher; session order; and real time. It must have no cycle.
//! 2. Any topological order of it is then a serial execution with the same results as any other, because what it
//!    leaves open commutes. One is replayed, and every reply and every effect must come out as seen and claimed.
//! 3. Transactions that changed nothing may have taken no place. Each must find one between what had ended before it
//!    began and what began after it had ended, such that its replies come out: in that execution, or, as others are
//!    possible too, in one that a search finds.

use crate::graph::{Graph, Reason};
use crate::history::{Outcome, Transaction};
use crate::invocations::{Decoded, conflict, decode_all};
use crate::render::readable;
use crate::replay::{Cells, execute, replay_onto};
use crate::report::{Check, Findings};
use crate::search::{SearchOutcome, search_strict_order};
use std::collections::BTreeMap;

/// How many configurations are looked at for the sake of transactions without a place.
const SEARCHED: usize = 50_000;

/// Checks a history; without `real_time` for serializability only. False when it remained undecided.
pub(crate) fn check(history: &[Transaction], real_time: bool, findings: &mut Findings) -> bool {
    let decoded = decode_all(history, findings);
    let (placed, unplaced): (Vec<_>, Vec<_>) =
        decoded.into_iter().partition(|t| t.transaction.place().is_some());
    for transaction in &unplaced {
        if transaction.steps.iter().any(|step| !step.operation.is_read()) && !transaction.effects.is_empty() {
            let message =
                format!("transaction {} changed something but claims no place", transaction.number());
            findings.add(Check::Claims, message, vec![transaction.number()]);
        }
    }
    let order = match serial_order(&placed, real_time) {
        Ok(order) => order,
        Err((message, numbers)) => {
            findings.add(Check::Order, message, numbers);
            return true;
        }
    };
    let mut readers = Readers::new(&placed, &order, &unplaced, real_time);
    let mut state = Cells::default();
    readers.try_at(0, &state);
    for (index, transaction) in order.iter().map(|node| &placed[*node]).enumerate() {
        replay_onto(transaction, &mut state, "the serial execution", findings);
        if !findings.is_empty() {
            return true;
        }
        readers.try_at(index + 1, &state);
    }
    match readers.0.iter().all(|reader| reader.found.is_some()) {
        true => true,
        // A search keeps real time, which is more than is asked for.
        false => real_time && readers.search(history, findings),
    }
}

/// The placed transactions in an order that respects everything, or a cycle in words.
fn serial_order(placed: &[Decoded<'_>], real_time: bool) -> Result<Vec<usize>, (String, Vec<u64>)> {
    let mut graph = Graph::new(placed.len());
    add_key_edges(placed, &mut graph);
    add_session_edges(placed, &mut graph);
    if real_time {
        let interval =
            |(node, t): (usize, &Decoded<'_>)| (node, t.transaction.invoked, answered(t.transaction));
        graph.add_moments(&placed.iter().enumerate().map(interval).collect::<Vec<_>>());
    }
    // Moments go first, so that what follows them becomes ready in order of its place.
    let rank = |node: usize| placed.get(node).map(|transaction| transaction.transaction.place());
    match graph.topological_order(rank) {
        Ok(order) => Ok(order.into_iter().filter(|node| *node < placed.len()).collect()),
        Err(stuck) => {
            let candidates: Vec<usize> = stuck.into_iter().filter(|node| *node < placed.len()).collect();
            Err(describe_cycle(placed, &graph.shortest_cycle(&candidates)))
        }
    }
}

fn add_key_edges<'d>(placed: &'d [Decoded<'_>], graph: &mut Graph<'d>) {
    let mut keys: BTreeMap<&'d [u8], Vec<(usize, Vec<datatypes::Invocation<'d>>)>> = BTreeMap::new();
    for (node, transaction) in placed.iter().enumerate() {
        for (key, invocations) in transaction.by_key() {
            keys.entry(key).or_default().push((node, invocations));
        }
    }
    for (key, mut users) in keys {
        users.sort_by_key(|(node, _)| placed[*node].transaction.place());
        for (index, (later, invocations)) in users.iter().enumerate() {
            for (earlier, others) in &users[..index] {
                if conflict(others, invocations) {
                    graph.add_edge(*earlier, *later, Reason::Key(key));
                }
            }
        }
    }
}

fn add_session_edges(placed: &[Decoded<'_>], graph: &mut Graph<'_>) {
    let mut sessions: BTreeMap<u64, Vec<(u64, usize)>> = BTreeMap::new();
    for (node, transaction) in placed.iter().enumerate().filter(|(_, t)| !t.steps.is_empty()) {
        let Transaction { session, invoked, .. } = transaction.transaction;
        sessions.entry(*session).or_default().push((*invoked, node));
    }
    for mut nodes in sessions.into_values() {
        nodes.sort_unstable();
        nodes.windows(2).for_each(|pair| graph.add_edge(pair[0].1, pair[1].1, Reason::Session));
    }
}

/// When a transaction was answered, if its outcome was told: only then must others see it.
fn answered(transaction: &Transaction) -> Option<u64> {
    transaction.responded.filter(|_| transaction.outcome == Outcome::Committed)
}

fn describe_cycle(placed: &[Decoded<'_>], cycle: &[(usize, Reason<'_>)]) -> (String, Vec<u64>) {
    // A cycle begins at a transaction; moments are passed over.
    let stations: Vec<(usize, Reason<'_>)> =
        cycle.iter().copied().filter(|(node, _)| *node < placed.len()).collect();
    let mut lines = vec!["the claimed order cannot be kept:".to_owned()];
    for (index, (node, reason)) in stations.iter().enumerate() {
        let (from, to) = (&placed[*node], &placed[stations[(index + 1) % stations.len()].0]);
        let (a, b) = (from.number(), to.number());
        lines.push(match reason {
            Reason::Key(key) => format!(
                "  {a} before {b}: lower place on {}, and {} does not commute with {}",
                key.escape_ascii(),
                on_key(from, key),
                on_key(to, key)
            ),
            Reason::Session => format!("  {a} before {b}: in session {}", from.transaction.session),
            Reason::RealTime => format!(
                "  {a} before {b}: {a} ended at {} us, {b} began at {} us",
                from.transaction.responded.unwrap_or_default(),
                to.transaction.invoked
            ),
            // Claimed orders are made of the others.
            _ => continue,
        });
    }
    (lines.join("\n"), stations.iter().map(|(node, _)| placed[*node].number()).collect())
}

fn on_key(transaction: &Decoded<'_>, key: &[u8]) -> String {
    let steps = transaction.steps.iter().filter(|step| step.key == key);
    let texts: Vec<String> = steps.map(|step| readable(&format!("{:?}", step.operation))).collect();
    texts.join(" + ")
}

/// A transaction without a place, and where it may go: after that many placed ones.
struct Reader<'d, 'h> {
    transaction: &'d Decoded<'h>,
    first: usize,
    last: usize,
    found: Option<usize>,
}

/// The transactions without a place, in order of invocation.
struct Readers<'d, 'h>(Vec<Reader<'d, 'h>>);

impl<'d, 'h> Readers<'d, 'h> {
    fn new(placed: &[Decoded<'h>], order: &[usize], unplaced: &'d [Decoded<'h>], real_time: bool) -> Self {
        let reader = |transaction: &'d Decoded<'h>| {
            let me = transaction.transaction;
            let precedes = |earlier: &Transaction, later: &Transaction| {
                let in_time = answered(earlier).is_some_and(|end| end < later.invoked);
                in_time && (real_time || earlier.session == later.session)
            };
            let others = || order.iter().map(|node| placed[*node].transaction).enumerate();
            let first = others().filter(|(_, other)| precedes(other, me)).map(|(index, _)| index + 1).max();
            let last = others().filter(|(_, other)| precedes(me, other)).map(|(index, _)| index).min();
            Reader { transaction, first: first.unwrap_or(0), last: last.unwrap_or(order.len()), found: None }
        };
        let mut readers: Vec<Reader<'d, 'h>> = unplaced.iter().map(reader).collect();
        readers.sort_by_key(|reader| (reader.transaction.transaction.invoked, reader.transaction.number()));
        Readers(readers)
    }

    /// Tries every reader that has no place yet at this one.
    fn try_at(&mut self, position: usize, state: &Cells<'h>) {
        for index in 0..self.0.len() {
            let reader = &self.0[index];
            if reader.found.is_some() || position < reader.first || position > reader.last {
                continue;
            }
            let invoked = reader.transaction.transaction.invoked;
            let waits = |other: &Reader<'_, '_>| {
                other.found.is_none()
                    && answered(other.transaction.transaction).is_some_and(|end| end < invoked)
            };
            let matches = !self.0[..index].iter().any(waits)
                && execute(self.0[index].transaction, None, &mut state.clone()).is_ok();
            if matches {
                self.0[index].found = Some(position);
            }
        }
    }

    /// The replayed execution is one of several that the claims allow, and readers may need another: only if a search
    /// finds none is it a violation. False if the search gave up.
    fn search(&self, history: &[Transaction], findings: &mut Findings) -> bool {
        match search_strict_order(history, SEARCHED) {
            SearchOutcome::Serial(_) => true,
            SearchOutcome::GaveUp => false,
            SearchOutcome::Impossible => {
                self.report(findings);
                true
            }
        }
    }

    fn report(&self, findings: &mut Findings) {
        for reader in self.0.iter().filter(|reader| reader.found.is_none()) {
            let number = reader.transaction.number();
            let seen: Vec<&str> = reader.transaction.steps.iter().filter_map(|step| step.observed).collect();
            let message = format!(
                "transaction {number} took no place, and what it saw ([{}]) was true at no moment between its \
                 invocation at {} us and its answer",
                seen.join(", "),
                reader.transaction.transaction.invoked
            );
            findings.add(Check::Replies, message, vec![number]);
        }
    }
}
