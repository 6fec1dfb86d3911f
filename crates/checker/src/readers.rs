//! Transactions that took no place, because they changed nothing: some moment between invocation and answer must explain
//! what they saw, and that there was nothing to change. A write that was answered and is nowhere has no such moment.
//!
//! First they are tried along one serial execution. Where several are possible, since what commutes has no order, a reader
//! may need another one. So those that are left without a moment are put into the graph, one after the other: each behind a
//! set of transactions, closed under what must come before, whose effects explain what it saw, and before the others
//! that would change it. Any order that the graph then allows has them all; one is replayed as the proof. Which set is taken is not
//! reconsidered for the sake of later readers, so only a search can say that there is no order.

use crate::graph::{Graph, Reason};
use crate::history::Transaction;
use crate::invocations::{Decoded, conflict};
use crate::replay::{Cells, changes_nothing};
use crate::report::{Check, Findings};
use crate::search::{SearchOutcome, search_strict_order};
use crate::strict::answered;
use std::collections::BTreeSet;

/// How many configurations are looked at for the sake of transactions without a place.
const SEARCHED: usize = 50_000;
/// How many sets are tried for one reader, and how many transactions each of them passes over that the first execution had
/// earlier than the last of the set.
const TRIED: usize = 5_000;
const MOST_SKIPPED: usize = 4;
/// How many transactions a history may have for that: it takes time in proportion to the square.
const LARGEST: usize = 3_000;

/// A transaction without a place, and where it may go: after that many placed ones.
struct Reader<'d, 'h> {
    transaction: &'d Decoded<'h>,
    first: usize,
    last: usize,
    found: Option<usize>,
}

/// The transactions without a place, in order of invocation.
pub(crate) struct Readers<'d, 'h>(Vec<Reader<'d, 'h>>);

impl<'d, 'h> Readers<'d, 'h> {
    pub fn new(
        placed: &[Decoded<'h>],
        order: &[usize],
        unplaced: &'d [Decoded<'h>],
        real_time: bool,
    ) -> Self {
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
    pub fn try_at(&mut self, position: usize, state: &Cells<'h>) {
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
            let matches =
                !self.0[..index].iter().any(waits) && changes_nothing(self.0[index].transaction, state);
            if matches {
                self.0[index].found = Some(position);
            }
        }
    }

    /// True if each has found a place.
    pub fn have_all_been_found(&self) -> bool {
        self.0.iter().all(|reader| reader.found.is_some())
    }

    /// The replayed execution is one of several that the claims allow, and readers may need another: only if a search
    /// finds none is it a violation. False if the search gave up.
    pub fn search(&self, history: &[Transaction], findings: &mut Findings) -> bool {
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
            let writes = reader.transaction.steps.iter().any(|step| !step.operation.is_read());
            let message = format!(
                "transaction {number} took no place, and what it saw ([{}]){} was true at no moment between its \
                 invocation at {} us and its answer",
                seen.join(", "),
                if writes { ", with nothing for its writes to change," } else { "" },
                reader.transaction.transaction.invoked
            );
            findings.add(Check::Replies, message, vec![number]);
        }
    }
}

/// The graph of everything, readers included: nodes are the placed ones, then the readers, then moments.
struct Placing<'d, 'h> {
    placed: &'d [Decoded<'h>],
    readers: &'d [Decoded<'h>],
    /// The placed ones in an order in which they may have taken place.
    order: &'d [usize],
    graph: Graph<'d>,
    before: Vec<Vec<usize>>,
}

/// True if there is an order that gives every reader a moment. `graph` has an edge from each of `placed` to those that must
/// come after it, and room for the readers behind them; `order` is one that it allows.
pub(crate) fn have_places<'d, 'h>(
    placed: &'d [Decoded<'h>],
    readers: &'d [Decoded<'h>],
    order: &'d [usize],
    graph: Graph<'d>,
) -> bool {
    if placed.len() + readers.len() > LARGEST {
        return false;
    }
    let mut before = vec![Vec::new(); graph.len()];
    (0..graph.len()).for_each(|node| graph.after(node).for_each(|to| before[to].push(node)));
    let mut placing = Placing { placed, readers, order, graph, before };
    let mut by_invocation: Vec<usize> = (0..readers.len()).collect();
    by_invocation.sort_by_key(|index| (readers[*index].transaction.invoked, readers[*index].number()));
    by_invocation.into_iter().all(|reader| placing.place(reader)) && placing.is_explained()
}

/// Which of the relevant transactions come before a reader: those before `at` have been decided on.
struct Choice<'c> {
    relevant: &'c [usize],
    at: usize,
    /// How many may still be passed over.
    skips: usize,
    skipped: Vec<usize>,
}

impl<'h> Placing<'_, 'h> {
    /// Gives a reader a place among the placed ones; false if none was found.
    fn place(&mut self, reader: usize) -> bool {
        let (node, transaction) = (self.placed.len() + reader, &self.readers[reader]);
        let first = self.closed(node, |node| self.before[node].to_vec());
        let later = self.closed(node, |node| self.graph.after(node).collect());
        let seen = transaction.by_key();
        let in_the_way = |index: &usize| {
            let others = self.placed[*index].by_key();
            seen.iter()
                .any(|(key, invocations)| others.get(key).is_some_and(|other| conflict(other, invocations)))
        };
        let disturbing: Vec<usize> = self.order.iter().copied().filter(in_the_way).collect();
        let relevant: Vec<usize> =
            disturbing.iter().copied().filter(|index| !later.contains(index)).collect();
        let Some(behind) = self.explained_by(transaction, &relevant, &first) else { return false };
        for index in disturbing {
            let (from, to) = if behind.contains(&index) { (index, node) } else { (node, index) };
            // Reasons are not recorded: only the order counts.
            self.graph.add_edge(from, to, Reason::Initial);
            self.before[to].push(from);
        }
        true
    }

    /// A node and all that is reached from it.
    fn closed(&self, node: usize, next: impl Fn(usize) -> Vec<usize>) -> BTreeSet<usize> {
        let (mut reached, mut open) = (BTreeSet::from([node]), vec![node]);
        while let Some(node) = open.pop() {
            open.extend(next(node).into_iter().filter(|node| reached.insert(*node)));
        }
        reached
    }

    /// A set of nodes, with all that must come before them, that explains what a reader saw: `first`, and the `relevant`
    /// ones up to some place in their order, but for a few.
    fn explained_by(
        &self,
        reader: &Decoded<'h>,
        relevant: &[usize],
        first: &BTreeSet<usize>,
    ) -> Option<BTreeSet<usize>> {
        let mut tried = 0;
        (0..=MOST_SKIPPED).find_map(|skips| {
            let choice = Choice { relevant, at: 0, skips, skipped: Vec::new() };
            self.chosen(reader, choice, first.clone(), &mut tried)
        })
    }

    /// Goes on with a choice that has come to this set so far.
    fn chosen(
        &self,
        reader: &Decoded<'h>,
        choice: Choice<'_>,
        set: BTreeSet<usize>,
        tried: &mut usize,
    ) -> Option<BTreeSet<usize>> {
        *tried += 1;
        if *tried > TRIED {
            return None;
        }
        let Choice { relevant, at, mut skips, mut skipped } = choice;
        let mut cells = Cells::default();
        for index in relevant.iter().filter(|index| set.contains(index)) {
            self.placed[*index].effects.iter().for_each(|(key, effect)| cells.apply(key, effect));
        }
        if changes_nothing(reader, &cells) {
            return Some(set);
        }
        for (place, next) in relevant.iter().enumerate().skip(at).filter(|(_, next)| !set.contains(next)) {
            let mut more = self.closed(*next, |node| self.before[node].clone());
            if !skipped.iter().any(|index| more.contains(index)) {
                more.extend(set.iter().copied());
                let choice = Choice { relevant, at: place + 1, skips, skipped: skipped.clone() };
                if let Some(found) = self.chosen(reader, choice, more, tried) {
                    return Some(found);
                }
            }
            skips = skips.checked_sub(1)?;
            skipped.push(*next);
        }
        None
    }

    /// Replays an order that the graph allows: every reader must see there what it saw.
    fn is_explained(&self) -> bool {
        let rank = |node: usize| self.placed.get(node).map(|transaction| transaction.transaction.place());
        let Ok(order) = self.graph.topological_order(rank) else { return false };
        let mut cells = Cells::default();
        order.into_iter().all(|node| match node.checked_sub(self.placed.len()) {
            None => {
                self.placed[node].effects.iter().for_each(|(key, effect)| cells.apply(key, effect));
                true
            }
            Some(reader) => {
                let reader = self.readers.get(reader);
                reader.is_none_or(|reader| changes_nothing(reader, &cells))
            }
        })
    }
}
