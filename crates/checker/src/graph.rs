//! A graph of what must come before what, its topological order, and a shortest cycle where there is none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Why one node comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason<'h> {
    /// On this key they do not commute, and the first has the lower place.
    Key(&'h [u8]),
    /// The same session ran the first before the second.
    Session,
    /// The second's session took over the context of the first's.
    Context,
    /// The first had ended when the second began. Goes by way of a moment between the two.
    RealTime,
    /// Nothing precedes the absence of everything.
    Initial,
    /// The second saw the first's version of this key.
    ReadsFrom(&'h [u8]),
    /// The second replaced the first's version of this key.
    Replaces(&'h [u8]),
    /// The first saw a version of this key that the second replaced or followed.
    Before(&'h [u8]),
    /// This reader had to see the first's version of the key, or a later one, and saw the second's.
    Outdated(&'h [u8], usize),
}

/// So many nodes are tried for a shortest cycle through them.
const TRIED: usize = 2_000;

/// Nodes are numbers from 0. Transactions come first; moments in time may follow them.
#[derive(Debug, Default)]
pub(crate) struct Graph<'h> {
    after: Vec<Vec<(usize, Reason<'h>)>>,
}

impl<'h> Graph<'h> {
    pub fn new(nodes: usize) -> Self {
        Graph { after: vec![Vec::new(); nodes] }
    }

    pub fn add_node(&mut self) -> usize {
        self.after.push(Vec::new());
        self.after.len() - 1
    }

    pub fn len(&self) -> usize {
        self.after.len()
    }

    /// What comes after a node.
    pub fn after(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.after[node].iter().map(|(to, _)| *to)
    }

    /// Orders nodes by real time without an edge for every pair: a chain of moments, one for each answer in order of
    /// time, with an edge from a node to the moment of its answer and one from the last moment before its invocation.
    /// The intervals are nodes with when they were invoked and, if the outcome is known, answered.
    pub fn add_moments(&mut self, intervals: &[(usize, u64, Option<u64>)]) {
        let mut ends: Vec<(u64, usize)> =
            intervals.iter().filter_map(|(node, _, end)| Some(((*end)?, *node))).collect();
        ends.sort_unstable();
        let moments: Vec<usize> = ends.iter().map(|_| self.add_node()).collect();
        for (index, (_, node)) in ends.iter().enumerate() {
            self.add_edge(*node, moments[index], Reason::RealTime);
            if index > 0 {
                self.add_edge(moments[index - 1], moments[index], Reason::RealTime);
            }
        }
        for (node, invoked, _) in intervals {
            let before = ends.partition_point(|(end, _)| end < invoked);
            if before > 0 {
                self.add_edge(moments[before - 1], *node, Reason::RealTime);
            }
        }
    }

    pub fn add_edge(&mut self, from: usize, to: usize, reason: Reason<'h>) {
        self.after[from].push((to, reason));
    }

    /// All nodes in an order that every edge respects, smallest rank first where there is a choice; or the nodes
    /// that lie on cycles or behind them.
    pub fn topological_order<R: Ord>(&self, rank: impl Fn(usize) -> R) -> Result<Vec<usize>, Vec<usize>> {
        let mut before = vec![0usize; self.after.len()];
        self.after.iter().flatten().for_each(|(to, _)| before[*to] += 1);
        let ready = (0..self.after.len()).filter(|node| before[*node] == 0);
        let mut ready: BinaryHeap<Reverse<(R, usize)>> =
            ready.map(|node| Reverse((rank(node), node))).collect();
        let mut order = Vec::with_capacity(self.after.len());
        while let Some(Reverse((_, node))) = ready.pop() {
            order.push(node);
            for (to, _) in &self.after[node] {
                before[*to] -= 1;
                if before[*to] == 0 {
                    ready.push(Reverse((rank(*to), *to)));
                }
            }
        }
        if order.len() == self.after.len() {
            Ok(order)
        } else {
            Err((0..self.after.len()).filter(|node| before[*node] > 0).collect())
        }
    }

    /// A shortest cycle through one of `candidates`, as steps from a node to the next. Of very many candidates only
    /// the first are tried, once a cycle is known.
    pub fn shortest_cycle(&self, candidates: &[usize]) -> Vec<(usize, Reason<'h>)> {
        let mut shortest: Vec<(usize, Reason<'h>)> = Vec::new();
        for (tried, start) in candidates.iter().enumerate() {
            if tried >= TRIED && !shortest.is_empty() {
                break;
            }
            if let Some(cycle) = self.cycle_through(*start, shortest.len()) {
                shortest = cycle;
            }
        }
        shortest
    }

    /// A shortest cycle through `start`, if it is shorter than `limit` (0 for any length).
    fn cycle_through(&self, start: usize, limit: usize) -> Option<Vec<(usize, Reason<'h>)>> {
        let mut came: Vec<Option<(usize, Reason<'h>)>> = vec![None; self.after.len()];
        let mut queue = VecDeque::from([(start, 0usize)]);
        while let Some((node, steps)) = queue.pop_front() {
            if limit > 0 && steps + 1 >= limit {
                return None;
            }
            for (to, reason) in &self.after[node] {
                if came[*to].is_none() {
                    came[*to] = Some((node, *reason));
                    if *to == start {
                        return Some(walk_back(&came, start));
                    }
                    queue.push_back((*to, steps + 1));
                }
            }
        }
        None
    }
}

fn walk_back<'h>(came: &[Option<(usize, Reason<'h>)>], start: usize) -> Vec<(usize, Reason<'h>)> {
    let mut cycle = Vec::new();
    let mut node = start;
    while let Some((from, reason)) = came[node] {
        cycle.push((from, reason));
        node = from;
        if node == start {
            break;
        }
    }
    cycle.reverse();
    cycle
}
