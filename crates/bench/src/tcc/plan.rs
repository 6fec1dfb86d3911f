//! The workload of both evaluations: transactions of 20 operations, all reads first, then all writes, on the keys of some
//! partitions, in each by Zipf's law (the thesis, sections 4.5.1 and 5.5.1).

use crate::transactions::{Keys, PlannedStep};

/// Operations of a transaction.
pub const OPERATIONS: u16 = 20;

/// What clients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// How many of the operations write, at most one less than there are.
    pub writes: u16,
    /// How many partitions a transaction touches, if there are so many.
    pub partitions: u16,
    /// Of a hundred transactions, how many touch only partitions that the client's region holds.
    pub local: u8,
    /// Of a hundred transactions, how many read only, with as many operations.
    pub read_only: u8,
}

/// Which keys transactions are about.
#[derive(Clone, Debug)]
pub struct Plan {
    mix: Mix,
    /// The keys by partition, by number.
    keys: Vec<Vec<u32>>,
    /// Draws one of a partition's.
    ranks: Keys,
    /// By server: the partitions that its region holds.
    held: Vec<Vec<u16>>,
}

impl Plan {
    /// A plan. `keys` are those of each partition, `exponent` is that of Zipf's law, and `held` are the partitions that
    /// the region of each server holds.
    ///
    /// # Panics
    /// If there is no partition, or if a server's region holds none.
    pub fn new(mix: Mix, keys: Vec<Vec<u32>>, exponent: Option<f64>, held: Vec<Vec<u16>>) -> Self {
        assert!(!keys.is_empty() && held.iter().all(|held| !held.is_empty()), "somebody holds something");
        let fewest = keys.iter().map(Vec::len).min().unwrap_or(0);
        let ranks = Keys::new(u32::try_from(fewest).unwrap_or(u32::MAX), exponent);
        Plan { mix, keys, ranks, held }
    }

    /// Draws a key of a partition.
    pub fn draw_of(&self, partition: u16, random: &mut fastrand::Rng) -> u32 {
        self.keys[usize::from(partition)][self.ranks.draw(random) as usize]
    }

    /// Draws a transaction of a client of this server: different keys, spread evenly over the partitions that it touches.
    pub fn draw(&self, server: usize, random: &mut fastrand::Rng) -> PlannedStep {
        let mix = self.mix;
        let mut from: Vec<u16> = match random.u8(..100) < mix.local {
            true => self.held[server % self.held.len()].clone(),
            false => (0..self.keys.len() as u16).collect(),
        };
        let touched: Vec<u16> = (0..usize::from(mix.partitions.max(1)).min(from.len()))
            .map(|_| from.swap_remove(random.usize(..from.len())))
            .collect();
        let writes = if random.u8(..100) < mix.read_only { 0 } else { mix.writes.min(OPERATIONS - 1) };
        let mut drawn: Vec<u32> = Vec::with_capacity(usize::from(OPERATIONS));
        // Where there are too few keys, some are drawn twice.
        let distinct = self.ranks.count() as usize * touched.len() >= usize::from(4 * OPERATIONS);
        while drawn.len() < usize::from(OPERATIONS) {
            let of = &self.keys[usize::from(touched[drawn.len() % touched.len()])];
            let key = of[self.ranks.draw(random) as usize];
            if !distinct || !drawn.contains(&key) {
                drawn.push(key);
            }
        }
        // The last ones are written, so that they are spread over the partitions as well.
        let writes = drawn.split_off(usize::from(OPERATIONS - writes));
        let kind = if writes.is_empty() { "read-only" } else { "update" };
        PlannedStep { kind, reads: drawn, writes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Four partitions with the keys that are their number modulo 4; the first server's region holds two of them.
    fn plan(mix: Mix) -> Plan {
        let keys = (0..4).map(|partition| (0..500).map(|index| index * 4 + partition).collect()).collect();
        Plan::new(mix, keys, Some(0.99), vec![vec![0, 1], vec![0, 1, 2, 3]])
    }

    fn touched(planned: &PlannedStep) -> BTreeSet<u32> {
        planned.reads.iter().chain(&planned.writes).map(|key| key % 4).collect()
    }

    #[test]
    fn a_transaction_has_twenty_operations_on_different_keys_of_so_many_partitions() {
        let mut random = fastrand::Rng::with_seed(1);
        for partitions in [1, 2, 4] {
            let plan = plan(Mix { writes: 2, partitions, local: 100, read_only: 0 });
            let planned = plan.draw(1, &mut random);
            assert_eq!((planned.kind, planned.reads.len(), planned.writes.len()), ("update", 18, 2));
            let all: BTreeSet<u32> = planned.reads.iter().chain(&planned.writes).copied().collect();
            assert_eq!((all.len(), touched(&planned).len()), (20, usize::from(partitions)));
        }
    }

    #[test]
    fn local_transactions_stay_where_their_region_holds_partitions() {
        let mut random = fastrand::Rng::with_seed(2);
        let plan = plan(Mix { writes: 1, partitions: 4, local: 90, read_only: 25 });
        let drawn: Vec<PlannedStep> = (0..4000).map(|_| plan.draw(0, &mut random)).collect();
        let here = drawn.iter().filter(|planned| touched(planned).iter().all(|partition| *partition < 2));
        let share = here.count() as f64 / 4000.0;
        assert!((share - 0.9).abs() < 0.03, "{share}");
        let only_read = drawn.iter().filter(|planned| planned.kind == "read-only").count() as f64 / 4000.0;
        assert!((only_read - 0.25).abs() < 0.03, "{only_read}");
    }

    #[test]
    fn few_keys_are_enough() {
        let mix = Mix { writes: 19, partitions: 9, local: 0, read_only: 0 };
        let plan = Plan::new(mix, vec![vec![3], vec![5]], None, vec![vec![0]]);
        let planned = plan.draw(7, &mut fastrand::Rng::with_seed(3));
        assert_eq!((planned.reads.len(), planned.writes.len()), (1, 19));
    }
}
