//! Looks for one serial execution that explains a history: the proof that it is serializable, found step by step.
//!
//! Transactions are executed in an order of the dependencies, first the one that must take effect first. One waits while somebody has
//! still to read a version that it would replace, or while its operations would reply something else than its client
//! saw. Whether waiting helps is never reconsidered, so a history may have an execution that this does not find: no
//! result means undecided. What is found is a proof, whatever the operations: every reply came out as it was seen.

use crate::accesses::{Accesses, Source};
use crate::dependencies::Dependencies;
use crate::replay::{Cells, execute};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// So many times may transactions wait, through the number of transactions.
const PATIENCE: usize = 50;

struct Schedule<'a, 'd, 'h> {
    accesses: &'a Accesses<'d, 'h>,
    cells: Cells<'h>,
    /// Whose version is at each key.
    newest: Vec<Source>,
    /// Who has still to read a version.
    unread: BTreeMap<(usize, Source), usize>,
}

/// True if a serial execution was found. Nodes of the graph beyond the units are passed over.
pub(crate) fn finds_execution(accesses: &Accesses<'_, '_>, dependencies: &Dependencies<'_, '_, '_>) -> bool {
    let (graph, spans) = (&dependencies.graph, &dependencies.spans);
    let units = accesses.units.len();
    let mut before = vec![0usize; graph.len()];
    (0..graph.len()).for_each(|node| graph.after(node).for_each(|to| before[to] += 1));
    // What stands for a moment goes first.
    let rank = |node: usize| {
        let (begin, end) = spans.get(node).copied().unwrap_or_default();
        (node < units, end, begin, node)
    };
    let first = (0..graph.len()).filter(|node| before[*node] == 0);
    let mut ready: BinaryHeap<_> = first.map(|node| Reverse(rank(node))).collect();
    let mut schedule = Schedule::new(accesses);
    let (mut waiting, mut waits, mut done) = (Vec::new(), 0, 0);
    while let Some(Reverse((is_unit, end, begin, node))) = ready.pop() {
        if is_unit && !schedule.try_execute(node) {
            waiting.push(Reverse((is_unit, end, begin, node)));
            waits += 1;
            if waits > PATIENCE * (units + 10) {
                return false;
            }
            continue;
        }
        done += 1;
        for to in graph.after(node) {
            before[to] -= 1;
            if before[to] == 0 {
                ready.push(Reverse(rank(to)));
            }
        }
        if is_unit {
            ready.extend(waiting.drain(..));
        }
    }
    done == graph.len()
}

impl<'a, 'd, 'h> Schedule<'a, 'd, 'h> {
    fn new(accesses: &'a Accesses<'d, 'h>) -> Self {
        let mut unread = BTreeMap::new();
        for read in accesses.units.iter().flat_map(|unit| &unit.reads) {
            *unread.entry(*read).or_default() += 1;
        }
        let newest = vec![Source::Initial; accesses.keys.len()];
        Schedule { accesses, cells: Cells::default(), newest, unread }
    }

    fn try_execute(&mut self, node: usize) -> bool {
        let unit = &self.accesses.units[node];
        let replaces_unread = unit.writes.iter().any(|key| {
            let version = (*key, self.newest[*key]);
            let own = unit.reads.iter().filter(|read| **read == version).count();
            self.unread.get(&version).copied().unwrap_or(0) > own
        });
        if replaces_unread || unit.reads.iter().any(|(key, source)| self.newest[*key] != *source) {
            return false;
        }
        let mut touched = self.cells.touched(unit.decoded);
        if execute(unit.decoded, None, &mut touched).is_err() {
            return false;
        }
        self.cells.update(touched);
        for read in &unit.reads {
            if let Some(count) = self.unread.get_mut(read) {
                *count -= 1;
            }
        }
        unit.writes.iter().for_each(|key| self.newest[*key] = Source::Written(node));
        true
    }
}
