//! The levels by their definition: a search over all commit orders (Biswas and Enea, OOPSLA 2019).
//!
//! A level holds when there is a total order of the transactions, keeping sessions and reads, such that for every read
//! of `x` by `r` from `t`: every other writer of `x` that `r` had to see comes before `t`. The levels differ only in
//! what `r` had to see. Nothing is clever here: it is the second opinion for small histories, to judge the checkers by
//! and to decide where they cannot.

use crate::accesses::{Accesses, Source};
use crate::report::Level;

/// More transactions than this are not searched.
pub(crate) const LARGEST: usize = 7;

/// The relations of a small history, as matrices.
struct Facts<'a, 'd, 'h> {
    accesses: &'a Accesses<'d, 'h>,
    level: Level,
    /// Session order and reads-from, in one step.
    direct: Vec<Vec<bool>>,
    /// The same in any number of steps.
    past: Vec<Vec<bool>>,
    in_time: Vec<Vec<bool>>,
}

/// Whether some commit order meets the level; `None` if the history is too large, or holds results that name no
/// version.
pub(crate) fn holds(accesses: &Accesses<'_, '_>, level: Level) -> Option<bool> {
    let size = accesses.units.len();
    if !accesses.complete || size > LARGEST {
        return None;
    }
    if !accesses.broken.is_empty() {
        return Some(false);
    }
    let facts = Facts::new(accesses, level);
    let mut order = Vec::with_capacity(size);
    Some(facts.extend(&mut order))
}

impl<'a, 'd, 'h> Facts<'a, 'd, 'h> {
    fn new(accesses: &'a Accesses<'d, 'h>, level: Level) -> Self {
        let size = accesses.units.len();
        let mut direct = vec![vec![false; size]; size];
        for (later, unit) in accesses.units.iter().enumerate() {
            for (earlier, other) in accesses.units.iter().enumerate() {
                let is_before = other.is_certain() && other.moment() < unit.moment();
                let is_given = unit.decoded.transaction.follows == Some(other.number());
                direct[earlier][later] = is_given || (is_before && other.session() == unit.session());
            }
        }
        let mut in_time = vec![vec![false; size]; size];
        for (reader, unit) in accesses.units.iter().enumerate() {
            for (_, source) in &unit.reads {
                if let Source::Written(writer) = source {
                    direct[*writer][reader] = true;
                }
            }
            let invoked = unit.decoded.transaction.invoked;
            for (earlier, other) in accesses.units.iter().enumerate() {
                in_time[earlier][reader] = other.answered().is_some_and(|end| end < invoked);
            }
        }
        let mut past = direct.clone();
        for middle in 0..size {
            for from in 0..size {
                for to in 0..size {
                    past[from][to] |= past[from][middle] && past[middle][to];
                }
            }
        }
        Facts { accesses, level, direct, past, in_time }
    }

    /// Tries every way to complete an order.
    fn extend(&self, order: &mut Vec<usize>) -> bool {
        let size = self.accesses.units.len();
        if order.len() == size {
            let mut rank = vec![0; size];
            order.iter().enumerate().for_each(|(place, unit)| rank[*unit] = place);
            return self.explains(&rank);
        }
        let strict = self.level == Level::StrictSerializable;
        (0..size).any(|next| {
            let must_wait = |other: usize| {
                !order.contains(&other) && (self.past[other][next] || (strict && self.in_time[other][next]))
            };
            if order.contains(&next) || (0..size).any(must_wait) {
                return false;
            }
            order.push(next);
            let found = self.extend(order);
            order.pop();
            found
        })
    }

    fn explains(&self, rank: &[usize]) -> bool {
        let units = &self.accesses.units;
        units.iter().enumerate().all(|(reader, unit)| {
            unit.reads.iter().all(|(key, seen)| {
                (0..units.len()).all(|other| {
                    let concerns = units[other].writes.contains(key)
                        && *seen != Source::Written(other)
                        && self.had_to_see(other, reader, rank);
                    !concerns || matches!(seen, Source::Written(seen) if rank[other] < rank[*seen])
                })
            })
        })
    }

    /// What a reader had to see, at the level.
    fn had_to_see(&self, other: usize, reader: usize, rank: &[usize]) -> bool {
        match self.level {
            Level::ReadAtomic => self.direct[other][reader],
            Level::Causal | Level::TransactionalCausal => self.past[other][reader],
            // Everything before something it had to see, or before a rival on a key that it wrote.
            Level::Snapshot => (0..rank.len()).any(|last| {
                let units = &self.accesses.units;
                let is_rival =
                    rank[last] < rank[reader] && !units[last].writes.is_disjoint(&units[reader].writes);
                rank[other] <= rank[last] && (self.direct[last][reader] || is_rival)
            }),
            _ => rank[other] < rank[reader],
        }
    }
}
