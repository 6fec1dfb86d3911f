//! Contention statistics: on which keys transactions conflict, and by which kinds of operations. They are counted when
//! a conflict happens, so that they cost nothing without contention.
//!
//! The space-saving algorithm chooses the keys (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent
//! and top-k elements in data streams", ICDT 2005): with k places, a key that arrives when all are taken replaces the
//! rarest one and inherits its count. Of n events a key that had more than n/k is there, and no count is too high by
//! more than what the key was given when it came. Pairs of kinds are counted since then.

use datatypes::Mode;
use std::collections::BTreeMap;
use types::{PartitionId, wire_struct};

/// Keys that a shard's replica counts.
const PLACES: usize = 64;

/// A contention event of a transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// The transaction waits for others.
    Wait,
    /// The transaction was refused because of others.
    Conflict,
    /// An older transaction took over its lock.
    Wound,
}

/// Counts of contention events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentionCounts {
    /// [`Contention::Wait`].
    pub waits: u64,
    /// [`Contention::Conflict`].
    pub conflicts: u64,
    /// [`Contention::Wound`].
    pub wounds: u64,
}
wire_struct!(ContentionCounts { waits, conflicts, wounds });

impl ContentionCounts {
    fn note(&mut self, contention: Contention) {
        match contention {
            Contention::Wait => self.waits += 1,
            Contention::Conflict => self.conflicts += 1,
            Contention::Wound => self.wounds += 1,
        }
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.waits + self.conflicts + self.wounds
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        ContentionCounts {
            waits: self.waits + other.waits,
            conflicts: self.conflicts + other.conflicts,
            wounds: self.wounds + other.wounds,
        }
    }
}

/// Two conflicting kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// What the transaction that waited or was refused wanted to do; of a wound, what took the lock away.
    pub wanted: Mode,
    /// What stood in its way; `None` for a change that had committed since it looked.
    pub met: Option<Mode>,
}
wire_struct!(Pair { wanted, met });

/// A key that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Its name.
    pub key: Box<[u8]>,
    /// How often anything happened there, at most.
    pub count: u64,
    /// By how much that may be too high.
    pub excess: u64,
    /// What happened since it is counted, by kinds.
    pub pairs: Vec<(Pair, ContentionCounts)>,
}
wire_struct!(HotKey { key, count, excess, pairs });

impl HotKey {
    /// What happened since it is counted.
    pub fn contention(&self) -> ContentionCounts {
        self.pairs.iter().fold(ContentionCounts::default(), |sum, (_, contention)| sum.and(*contention))
    }

    /// What others have counted of the same key.
    fn add(&mut self, other: &HotKey) {
        self.count += other.count;
        self.excess += other.excess;
        for (pair, contention) in &other.pairs {
            match self.pairs.iter_mut().find(|(known, _)| known == pair) {
                Some((_, sum)) => *sum = sum.and(*contention),
                None => self.pairs.push((*pair, *contention)),
            }
        }
    }
}

/// What one replica of a partition has counted, for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// The partition.
    pub partition: PartitionId,
    /// The keys that are counted, in no order.
    pub keys: Vec<HotKey>,
    /// How often anything may have happened on a key that is not there, at most.
    pub missed: u64,
}
wire_struct!(Sketch { partition, keys, missed });

/// What the replicas of some partitions have counted together, the hottest key first. As in one sketch, no count is too low,
/// nor too high by more than `excess`: what a replica may have missed of a key counts as if it had happened there (Agarwal,
/// Cormode, Huang, Phillips, Wei and Yi, "Mergeable summaries", PODS 2012).
pub fn merged(sketches: &[Sketch]) -> Vec<HotKey> {
    let mut sums: BTreeMap<(PartitionId, &[u8]), HotKey> = BTreeMap::new();
    for sketch in sketches {
        for hot in &sketch.keys {
            let fresh = || HotKey { key: hot.key.clone(), count: 0, excess: 0, pairs: Vec::new() };
            sums.entry((sketch.partition, &*hot.key)).or_insert_with(fresh).add(hot);
        }
    }
    for ((partition, key), sum) in &mut sums {
        let others = sketches.iter().filter(|sketch| sketch.partition == *partition);
        let lacks = others.filter(|sketch| !sketch.keys.iter().any(|hot| *hot.key == **key));
        let missed: u64 = lacks.map(|sketch| sketch.missed).sum();
        sum.count += missed;
        sum.excess += missed;
    }
    let mut keys: Vec<HotKey> = sums.into_values().collect();
    keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    keys
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ContentionStats {
    keys: Vec<HotKey>,
    total: ContentionCounts,
}

impl ContentionStats {
    /// Something has happened on a key.
    pub fn note(&mut self, key: &[u8], pair: Pair, contention: Contention) {
        self.total.note(contention);
        let place = self.place(key);
        let hot = &mut self.keys[place];
        hot.count += 1;
        let known = hot.pairs.iter().position(|(known, _)| *known == pair);
        let at = known.unwrap_or_else(|| {
            hot.pairs.push((pair, ContentionCounts::default()));
            hot.pairs.len() - 1
        });
        hot.pairs[at].1.note(contention);
    }

    /// Where the key is counted: its own place, a free one, or that of the rarest.
    fn place(&mut self, key: &[u8]) -> usize {
        if let Some(known) = self.keys.iter().position(|hot| *hot.key == *key) {
            return known;
        }
        let fresh = |excess| HotKey { key: key.into(), count: excess, excess, pairs: Vec::new() };
        if self.keys.len() < PLACES {
            self.keys.push(fresh(0));
            return self.keys.len() - 1;
        }
        let rarest =
            self.keys.iter().enumerate().min_by_key(|(_, hot)| hot.count).map_or(0, |(place, _)| place);
        self.keys[rarest] = fresh(self.keys[rarest].count);
        rarest
    }

    /// The keys that are counted, in no order.
    pub fn keys(&self) -> &[HotKey] {
        &self.keys
    }

    /// The same, of a replica of this partition, for others.
    pub fn sketch(&self, partition: PartitionId) -> Sketch {
        let is_full = self.keys.len() >= PLACES;
        let rarest = self.keys.iter().map(|hot| hot.count).min().unwrap_or(0);
        Sketch { partition, keys: self.keys.clone(), missed: if is_full { rarest } else { 0 } }
    }

    /// How often what happened on all keys, since the replica counts; it is never reset.
    pub fn total(&self) -> ContentionCounts {
        self.total
    }

    /// Forgets the keys.
    pub fn reset(&mut self) {
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Rng;

    const PAIR: Pair = Pair { wanted: Mode::Add, met: Some(Mode::Observe) };

    #[test]
    fn what_happens_often_is_there_and_no_count_is_too_low() {
        for seed in 0..20 {
            let (mut contention, mut random) = (ContentionStats::default(), Rng::with_seed(seed));
            let mut exact: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let events = 20_000;
            for _ in 0..events {
                // Half of it on some thousand keys, half on a few.
                let number = if random.bool() { random.u32(..5_000) } else { random.u32(..8) };
                let key = number.to_string().into_bytes();
                contention.note(&key, PAIR, Contention::Wait);
                *exact.entry(key).or_default() += 1;
            }
            assert!(contention.keys().len() == PLACES && contention.total().waits == events);
            for hot in contention.keys() {
                let is = exact[&*hot.key];
                assert!(hot.count >= is && hot.count - hot.excess <= is, "{hot:?}: {is}");
                assert!(hot.excess <= events / PLACES as u64);
                assert_eq!(hot.contention().total(), hot.count - hot.excess);
            }
            for (key, count) in exact {
                let there = contention.keys().iter().any(|hot| *hot.key == *key);
                assert!(there || count <= events / PLACES as u64, "{count} is often");
            }
        }
    }

    #[test]
    fn what_several_replicas_have_counted_is_no_less_exact_together() {
        let newer = Pair { wanted: Mode::Observe, met: None };
        for seed in 0..20 {
            let (mut contention_stats, mut random) =
                ([0; 3].map(|_| ContentionStats::default()), Rng::with_seed(seed));
            let mut exact: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for _ in 0..10_000 {
                // Each replica has a favourite of its own, and one that all have.
                let replica = random.usize(..3);
                let number = [random.u32(..2_000), replica as u32, 7][random.usize(..3)];
                let key = number.to_string().into_bytes();
                let pair = if random.bool() { PAIR } else { newer };
                contention_stats[replica].note(&key, pair, Contention::Wait);
                *exact.entry(key).or_default() += 1;
            }
            let sketches: Vec<Sketch> =
                contention_stats.iter().map(|contention| contention.sketch(PartitionId(0))).collect();
            let together = merged(&sketches);
            assert!(together.is_sorted_by(|a, b| a.count >= b.count) && *together[0].key == *b"7");
            for hot in &together {
                let is = exact[&*hot.key];
                assert!(hot.count >= is && hot.count - hot.excess <= is, "{hot:?}: {is}");
                assert_eq!(hot.contention().total(), hot.count - hot.excess);
                assert!(hot.pairs.len() <= 2, "each pair once: {hot:?}");
            }
            let mut separate = sketches.clone();
            separate[1].partition = PartitionId(1);
            let of_first = merged(&separate).into_iter().find(|hot| *hot.key == *b"0").expect("it is often");
            assert!(
                of_first.excess <= together.iter().find(|hot| *hot.key == *b"0").map_or(0, |hot| hot.excess)
            );
        }
    }

    #[test]
    fn pairs_are_counted_apart() {
        let mut contention = ContentionStats::default();
        let newer = Pair { wanted: Mode::Observe, met: None };
        contention.note(b"k", PAIR, Contention::Wait);
        contention.note(b"k", newer, Contention::Conflict);
        contention.note(b"k", PAIR, Contention::Wound);
        let [hot] = contention.keys() else { panic!("one key") };
        assert_eq!((hot.count, hot.excess), (3, 0));
        assert_eq!(hot.pairs[0], (PAIR, ContentionCounts { waits: 1, conflicts: 0, wounds: 1 }));
        assert_eq!(hot.pairs[1], (newer, ContentionCounts { waits: 0, conflicts: 1, wounds: 0 }));
        contention.reset();
        assert!(contention.keys().is_empty() && contention.total().total() == 3);
    }
}
