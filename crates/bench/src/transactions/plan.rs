//! Which transactions are run, on which keys.

use crate::tcc;
use std::sync::Arc;

/// A mix of transactions.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Add a user, follow, post, read a timeline.
    Retwis,
    /// Reads and writes 1 to so many keys.
    ReadModifyWrite {
        /// The most keys of one transaction.
        most_keys: usize,
    },
    /// The workload of Wren and PaRiS, with its keys.
    Tcc(Arc<tcc::Plan>),
    /// Six operations: six reads, or three reads and then three writes, in the mixes of TARDiS (section 7.1).
    Tardis {
        /// How many of a hundred transactions write.
        writers: u8,
    },
}

/// Operations of a transaction of [`Workload::Tardis`], half of which write where some do.
const TARDIS_OPERATIONS: usize = 6;

/// One transaction: the keys it reads and those it writes, by number. Keys that it reads and writes come first in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStep {
    /// What it is called in reports.
    pub kind: &'static str,
    /// Read first.
    pub reads: Vec<u32>,
    /// Written then.
    pub writes: Vec<u32>,
}

/// The most keys that a timeline reads.
const TIMELINE_KEYS: usize = 10;

impl Workload {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Retwis => "retwis",
            Workload::ReadModifyWrite { .. } => "rmw",
            Workload::Tcc(_) => "tcc",
            Workload::Tardis { .. } => "tardis",
        }
    }

    /// Draws a transaction of a client of this server.
    pub fn draw(&self, keys: &Keys, server: usize, random: &mut fastrand::Rng) -> PlannedStep {
        let (kind, gets, puts) = match self {
            Workload::Tcc(plan) => return plan.draw(server, random),
            Workload::Tardis { writers } if random.u8(..100) < *writers => {
                let mut reads = keys.draw_distinct(TARDIS_OPERATIONS, random);
                let writes = reads.split_off(reads.len().div_ceil(2));
                return PlannedStep { kind: "update", reads, writes };
            }
            Workload::Tardis { .. } => ("read", TARDIS_OPERATIONS, 0),
            Workload::Retwis => match random.u8(..100) {
                0..5 => ("add_user", 1, 3),
                5..20 => ("follow", 2, 2),
                20..50 => ("post", 3, 5),
                _ => ("timeline", random.usize(1..=TIMELINE_KEYS), 0),
            },
            Workload::ReadModifyWrite { most_keys } => {
                let count = random.usize(1..=(*most_keys).max(1));
                ("rmw", count, count)
            }
        };
        let drawn = keys.draw_distinct(gets.max(puts), random);
        let first = |count: usize| drawn[..count.min(drawn.len())].to_vec();
        PlannedStep { kind, reads: first(gets), writes: first(puts) }
    }
}

/// How keys are drawn.
#[derive(Clone, Debug)]
pub struct Keys {
    count: u32,
    /// The probability of the first key, of the first two, ...; nothing where all are alike.
    cumulative: Option<Arc<[f64]>>,
}

impl Keys {
    /// So many keys. With an exponent the key of rank `i` is drawn in proportion to `1 / i^exponent` (Zipf's law, with
    /// the exact sum of all ranks); without, all are drawn alike.
    pub fn new(count: u32, exponent: Option<f64>) -> Self {
        let count = count.max(1);
        let cumulative = exponent.map(|exponent| {
            let mut sum = 0.0;
            let sums: Vec<f64> = (1..=count)
                .map(|rank| {
                    sum += f64::from(rank).powf(-exponent);
                    sum
                })
                .collect();
            sums.into_iter().map(|partial| partial / sum).collect()
        });
        Keys { count, cumulative }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Draws one, from 0.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        match &self.cumulative {
            None => random.u32(..self.count),
            Some(cumulative) => {
                let point = random.f64();
                let rank = cumulative.partition_point(|sum| *sum <= point) as u32;
                rank.min(self.count - 1)
            }
        }
    }

    /// Draws so many different ones, or all there are.
    fn draw_distinct(&self, count: usize, random: &mut fastrand::Rng) -> Vec<u32> {
        let mut drawn: Vec<u32> = Vec::with_capacity(count);
        while drawn.len() < count.min(self.count as usize) {
            let key = self.draw(random);
            if !drawn.contains(&key) {
                drawn.push(key);
            }
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn retwis_has_the_mix_of_the_paper() {
        let (keys, mut random) = (Keys::new(10_000, None), fastrand::Rng::with_seed(1));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for _ in 0..20_000 {
            let planned = Workload::Retwis.draw(&keys, 0, &mut random);
            *counts.entry(planned.kind).or_default() += 1;
            let (gets, puts) = (planned.reads.len(), planned.writes.len());
            match planned.kind {
                "add_user" => assert_eq!((gets, puts), (1, 3)),
                "follow" => assert_eq!((gets, puts), (2, 2)),
                "post" => assert_eq!((gets, puts), (3, 5)),
                _ => assert!((1..=10).contains(&gets) && puts == 0),
            }
            assert!(planned.reads.iter().zip(&planned.writes).all(|(read, written)| read == written));
        }
        for (kind, share) in [("add_user", 0.05), ("follow", 0.15), ("post", 0.30), ("timeline", 0.50)] {
            let found = counts[kind] as f64 / 20_000.0;
            assert!((found - share).abs() < 0.015, "{kind}: {found}");
        }
    }

    #[test]
    fn zipf_draws_ranks_by_the_law() {
        let (keys, mut random) = (Keys::new(1000, Some(0.75)), fastrand::Rng::with_seed(2));
        let mut counts = vec![0u32; 1000];
        let draws = 200_000;
        (0..draws).for_each(|_| counts[keys.draw(&mut random) as usize] += 1);
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.75)).sum();
        for rank in [1u32, 2, 5, 20, 100] {
            let expected = f64::from(draws) * f64::from(rank).powf(-0.75) / sum;
            let found = f64::from(counts[rank as usize - 1]);
            // Five standard deviations of a Poisson count.
            assert!(
                (found - expected).abs() < 5.0 * expected.sqrt(),
                "rank {rank}: {found}, expected {expected}"
            );
        }
        let rare: u32 = counts[500..].iter().sum();
        let expected: f64 = (501..=1000).map(|rank| f64::from(rank).powf(-0.75)).sum::<f64>() / sum;
        assert!((f64::from(rare) / f64::from(draws) - expected).abs() < 0.01);
    }

    #[test]
    fn a_transaction_of_tardis_has_six_operations() {
        let (keys, mut random) = (Keys::new(1000, None), fastrand::Rng::with_seed(5));
        let mut updates = 0;
        for _ in 0..10_000 {
            let planned = Workload::Tardis { writers: 25 }.draw(&keys, 0, &mut random);
            let counts = (planned.reads.len(), planned.writes.len());
            updates += usize::from(counts == (3, 3));
            assert!(counts == (3, 3) || counts == (6, 0), "{counts:?}");
        }
        assert!((2_250..2_750).contains(&updates), "{updates}");
    }

    #[test]
    fn few_keys_are_enough() {
        let (keys, mut random) = (Keys::new(2, Some(0.75)), fastrand::Rng::with_seed(3));
        let planned = Workload::ReadModifyWrite { most_keys: 5 }.draw(&keys, 0, &mut random);
        assert!((1..=2).contains(&planned.reads.len()) && planned.reads == planned.writes);
        assert_eq!(Keys::new(0, None).count(), 1);
    }
}
