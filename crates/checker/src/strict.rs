//! Strict serializability over typed operations, checked through the claimed commit order.
//!
//! 1. A graph: on each key a way between any two transactions that do not commute there, from the lower place to
//!    the higher (see [`crate::key_order`]); session order; and real time. It must have no cycle.
//! 2. Any topological order of it is then a serial execution with the same results as any other, because what it
//!    leaves open commutes. One is replayed, and every reply and every effect must come out as seen and claimed.
//!    Where a stray stands, a client in doubt must have requested what it leaves: see [`crate::strays`].
//! 3. Transactions that changed nothing may have taken no place. Each must find one between what had ended before it
//!    began and what began after it had ended, such that its replies come out: see [`crate::readers`].

use crate::graph::{Graph, Reason};
use crate::history::{Outcome, Transaction};
use crate::invocations::{Decoded, decode_all};
use crate::key_order::add_key_edges;
use crate::readers::{Readers, have_places};
use crate::render::readable;
use crate::replay::{Cells, replay_onto};
use crate::report::{Check, Findings};
use crate::strays::{Strays, doubts};
use std::collections::BTreeMap;

/// What a history must satisfy besides having a serial order that explains it.
#[derive(Clone, Copy)]
pub(crate) struct Demands {
    /// The order keeps real time.
    pub real_time: bool,
    /// A client requested everything that took effect. Not so in a history that goes on from what only claims tell.
    pub no_foreign_effects: bool,
}

/// Checks a history. False when it remained undecided.
pub(crate) fn check(history: &[Transaction], demands: Demands, findings: &mut Findings) -> bool {
    let Demands { real_time, no_foreign_effects } = demands;
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
    if no_foreign_effects {
        let doubts = doubts(history);
        let mut strays = Strays::new(history, &doubts);
        strays.note_in_order(&placed);
        strays.report(findings);
    }
    readers.have_all_been_found()
        || have_places(&placed, &unplaced, &order, graph_of(&placed, &unplaced, real_time))
        // A search keeps real time, which is more than this level demands.
        || real_time && readers.search(history, findings)
}

/// The placed transactions in an order that respects everything, or a cycle in words.
fn serial_order(placed: &[Decoded<'_>], real_time: bool) -> Result<Vec<usize>, (String, Vec<u64>)> {
    let graph = graph_of(placed, &[], real_time);
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

/// What must come before what: of the placed ones, and of those without a place in so far as time and sessions say so.
fn graph_of<'d>(placed: &'d [Decoded<'_>], unplaced: &'d [Decoded<'_>], real_time: bool) -> Graph<'d> {
    let all = || placed.iter().chain(unplaced).enumerate();
    let mut graph = Graph::new(placed.len() + unplaced.len());
    add_key_edges(placed, &mut graph);
    add_session_edges(all(), &mut graph);
    if real_time {
        let interval =
            |(node, t): (usize, &Decoded<'_>)| (node, t.transaction.invoked, answered(t.transaction));
        graph.add_moments(&all().map(interval).collect::<Vec<_>>());
    }
    graph
}

/// Of what a session sent at one time, in a pipeline, the numbers tell the order: nodes with a place come before those without.
fn add_session_edges<'d, 'h: 'd>(
    transactions: impl Iterator<Item = (usize, &'d Decoded<'h>)>,
    graph: &mut Graph<'_>,
) {
    let mut sessions: BTreeMap<u64, Vec<(u64, u64, usize)>> = BTreeMap::new();
    for (node, transaction) in transactions.filter(|(_, t)| !t.steps.is_empty()) {
        let Transaction { session, invoked, number, .. } = transaction.transaction;
        sessions.entry(*session).or_default().push((*invoked, *number, node));
    }
    for mut nodes in sessions.into_values() {
        nodes.sort_unstable();
        nodes.windows(2).for_each(|pair| graph.add_edge(pair[0].2, pair[1].2, Reason::Session));
    }
}

/// When a transaction was answered, if its client knows the outcome: only then must others see it.
pub(crate) fn answered(transaction: &Transaction) -> Option<u64> {
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
