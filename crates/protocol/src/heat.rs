//! Which keys transactions are in each other's way on, and by which kinds of operations: counted when it happens, so that
//! nothing is paid where nobody meets anybody.
//!
//! Keys are kept by the space-saving algorithm (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k
//! elements in data streams", ICDT 2005): with k places, whoever comes when all are taken takes the place of the rarest,
//! with its count. Of n events a key that had more than n/k is there, and no count is too high by more than what the key
//! was given when it came. Pairs of kinds are counted since then.

use datatypes::Mode;
use std::collections::BTreeMap;
use types::{PartitionId, wire_struct};

/// Keys that a shard's replica counts.
const PLACES: usize = 64;

/// What happened to a transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It waits for others.
    Wait,
    /// It was refused for others.
    Conflict,
    /// What it held was taken away for an older one.
    Wound,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meetings {
    /// [`Meeting::Wait`].
    pub waits: u64,
    /// [`Meeting::Conflict`].
    pub conflicts: u64,
    /// [`Meeting::Wound`].
    pub wounds: u64,
}
wire_struct!(Meetings { waits, conflicts, wounds });

impl Meetings {
    fn note(&mut self, meeting: Meeting) {
        match meeting {
            Meeting::Wait => self.waits += 1,
            Meeting::Conflict => self.conflicts += 1,
            Meeting::Wound => self.wounds += 1,
        }
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.waits + self.conflicts + self.wounds
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Meetings {
            waits: self.waits + other.waits,
            conflicts: self.conflicts + other.conflicts,
            wounds: self.wounds + other.wounds,
        }
    }
}

/// Two kinds of operations that met.
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
    pub pairs: Vec<(Pair, Meetings)>,
}
wire_struct!(HotKey { key, count, excess, pairs });

impl HotKey {
    /// What happened since it is counted.
    pub fn meetings(&self) -> Meetings {
        self.pairs.iter().fold(Meetings::default(), |sum, (_, meetings)| sum.and(*meetings))
    }

    /// What others have counted of the same key.
    fn add(&mut self, other: &HotKey) {
        self.count += other.count;
        self.excess += other.excess;
        for (pair, meetings) in &other.pairs {
            match self.pairs.iter_mut().find(|(known, _)| known == pair) {
                Some((_, sum)) => *sum = sum.and(*meetings),
                None => self.pairs.push((*pair, *meetings)),
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
pub struct Heat {
    keys: Vec<HotKey>,
    total: Meetings,
}

impl Heat {
    /// Something has happened on a key.
    pub fn note(&mut self, key: &[u8], pair: Pair, meeting: Meeting) {
        self.total.note(meeting);
        let place = self.place(key);
        let hot = &mut self.keys[place];
        hot.count += 1;
        let known = hot.pairs.iter().position(|(known, _)| *known == pair);
        let at = known.unwrap_or_else(|| {
            hot.pairs.push((pair, Meetings::default()));
            hot.pairs.len() - 1
        });
        hot.pairs[at].1.note(meeting);
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
    pub fn total(&self) -> Meetings {
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
            let (mut heat, mut random) = (Heat::default(), Rng::with_seed(seed));
            let mut exact: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let events = 20_000;
            for _ in 0..events {
                // Half of it on some thousand keys, half on a few.
                let number = if random.bool() { random.u32(..5_000) } else { random.u32(..8) };
                let key = number.to_string().into_bytes();
                heat.note(&key, PAIR, Meeting::Wait);
                *exact.entry(key).or_default() += 1;
            }
            assert!(heat.keys().len() == PLACES && heat.total().waits == events);
            for hot in heat.keys() {
                let is = exact[&*hot.key];
                assert!(hot.count >= is && hot.count - hot.excess <= is, "{hot:?}: {is}");
                assert!(hot.excess <= events / PLACES as u64);
                assert_eq!(hot.meetings().total(), hot.count - hot.excess);
            }
            for (key, count) in exact {
                let there = heat.keys().iter().any(|hot| *hot.key == *key);
                assert!(there || count <= events / PLACES as u64, "{count} is often");
            }
        }
    }

    #[test]
    fn what_several_replicas_have_counted_is_no_less_exact_together() {
        let newer = Pair { wanted: Mode::Observe, met: None };
        for seed in 0..20 {
            let (mut heats, mut random) = ([0; 3].map(|_| Heat::default()), Rng::with_seed(seed));
            let mut exact: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for _ in 0..10_000 {
                // Each replica has a favourite of its own, and one that all have.
                let replica = random.usize(..3);
                let number = [random.u32(..2_000), replica as u32, 7][random.usize(..3)];
                let key = number.to_string().into_bytes();
                let pair = if random.bool() { PAIR } else { newer };
                heats[replica].note(&key, pair, Meeting::Wait);
                *exact.entry(key).or_default() += 1;
            }
            let sketches: Vec<Sketch> = heats.iter().map(|heat| heat.sketch(PartitionId(0))).collect();
            let together = merged(&sketches);
            assert!(together.is_sorted_by(|a, b| a.count >= b.count) && *together[0].key == *b"7");
            for hot in &together {
                let is = exact[&*hot.key];
                assert!(hot.count >= is && hot.count - hot.excess <= is, "{hot:?}: {is}");
                assert_eq!(hot.meetings().total(), hot.count - hot.excess);
                assert!(hot.pairs.len() <= 2, "each pair once: {hot:?}");
            }
            let mut apart = sketches.clone();
            apart[1].partition = PartitionId(1);
            let of_first = merged(&apart).into_iter().find(|hot| *hot.key == *b"0").expect("it is often");
            assert!(
                of_first.excess <= together.iter().find(|hot| *hot.key == *b"0").map_or(0, |hot| hot.excess)
            );
        }
    }

    #[test]
    fn pairs_are_counted_apart() {
        let mut heat = Heat::default();
        let newer = Pair { wanted: Mode::Observe, met: None };
        heat.note(b"k", PAIR, Meeting::Wait);
        heat.note(b"k", newer, Meeting::Conflict);
        heat.note(b"k", PAIR, Meeting::Wound);
        let [hot] = heat.keys() else { panic!("one key") };
        assert_eq!((hot.count, hot.excess), (3, 0));
        assert_eq!(hot.pairs[0], (PAIR, Meetings { waits: 1, conflicts: 0, wounds: 1 }));
        assert_eq!(hot.pairs[1], (newer, Meetings { waits: 0, conflicts: 1, wounds: 0 }));
        heat.reset();
        assert!(heat.keys().is_empty() && heat.total().total() == 3);
    }
}
