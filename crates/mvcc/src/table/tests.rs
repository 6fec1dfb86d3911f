//! The table against an ordered map, through many splits and joins.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proptest::prelude::*;

use types::{HashSeed, KeyHash, Rng};

use super::*;

/// A record that counts how many of its kind are alive.
struct Counted {
    key: [u8; 4],
    value: u32,
    hash: Option<KeyHash>,
    alive: Rc<Cell<usize>>,
}

impl Counted {
    fn boxed(key: u32, value: u32, alive: &Rc<Cell<usize>>) -> Box<Counted> {
        alive.set(alive.get() + 1);
        Box::new(Counted { key: key.to_be_bytes(), value, hash: None, alive: Rc::clone(alive) })
    }

    fn number(&self) -> u32 {
        u32::from_be_bytes(self.key)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

impl Keyed for Counted {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn key_hash(&self, seed: HashSeed) -> KeyHash {
        self.hash.unwrap_or_else(|| seed.hash(&self.key))
    }
}

/// A table, the map it must equal, and the number of live records, which must equal both.
struct Pair {
    table: Table<Counted>,
    model: BTreeMap<u32, u32>,
    alive: Rc<Cell<usize>>,
}

impl Pair {
    fn new() -> Pair {
        Pair { table: Table::new(HashSeed(7)), model: BTreeMap::new(), alive: Rc::default() }
    }

    fn hash(&self, key: u32) -> KeyHash {
        self.table.hash(&key.to_be_bytes())
    }

    fn insert(&mut self, key: u32, value: u32) {
        let replaced = self.table.insert(self.hash(key), Counted::boxed(key, value, &self.alive));
        assert_eq!(replaced.map(|record| record.value), self.model.insert(key, value));
    }

    fn remove(&mut self, key: u32) {
        let removed = self.table.remove(self.hash(key), &key.to_be_bytes());
        assert_eq!(removed.map(|record| record.value), self.model.remove(&key));
    }

    fn get(&mut self, key: u32) {
        let hash = self.hash(key);
        self.table.prefetch_bucket(hash);
        self.table.prefetch_record(hash);
        let found = self.table.get(hash, &key.to_be_bytes()).map(|record| record.value);
        assert_eq!(found, self.model.get(&key).copied());
        if let Some(record) = self.table.get_mut(hash, &key.to_be_bytes()) {
            record.value += 1;
            self.model.entry(key).and_modify(|value| *value += 1);
        }
    }

    /// Compares everything and checks the invariants of the module's documentation.
    fn check(&self) {
        let table = &self.table;
        assert_eq!(table.len(), self.model.len());
        assert_eq!(self.alive.get(), self.model.len());
        let listed: BTreeMap<u32, u32> = table.iter().map(|record| (record.number(), record.value)).collect();
        assert_eq!(listed, self.model);
        assert_eq!(table.iter().count(), table.len(), "a record is listed twice");
        assert!(
            table.half <= table.buckets && table.buckets < 2 * table.half && table.half.is_power_of_two()
        );
        assert!(table.len() <= table.buckets * GROW_ABOVE);
        assert_eq!(table.segments.iter().map(Vec::len).sum::<usize>(), table.buckets);
        for index in 0..table.buckets {
            for record in table.bucket(index).records() {
                assert_eq!(table.home(record.key_hash(HashSeed(7))), index);
            }
        }
        let chained: usize = table.segments.iter().flatten().map(Bucket::assert_sound).sum();
        assert_eq!(chained, table.overflow_count);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u32),
    Remove(u32),
    Get(u32),
    InsertRange(u32, u32),
    RemoveRange(u32, u32),
    Scan,
    Take,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0_u32..3000;
    prop_oneof![
        8 => (key.clone(), 0_u32..1000).prop_map(|(key, value)| Step::Insert(key, value)),
        8 => key.clone().prop_map(Step::Remove),
        8 => key.clone().prop_map(Step::Get),
        3 => (key.clone(), 0_u32..1500).prop_map(|(start, count)| Step::InsertRange(start, count)),
        3 => (key, 0_u32..1500).prop_map(|(start, count)| Step::RemoveRange(start, count)),
        2 => Just(Step::Scan),
        1 => Just(Step::Take),
    ]
}

fn scan_all(table: &Table<Counted>) -> BTreeSet<u32> {
    let (mut seen, mut cursor) = (BTreeSet::new(), 0);
    loop {
        cursor = table.scan(cursor, |record| assert!(seen.insert(record.number()), "visited twice at rest"));
        if cursor == 0 {
            return seen;
        }
    }
}

fn run(pair: &mut Pair, step: Step) {
    match step {
        Step::Insert(key, value) => pair.insert(key, value),
        Step::Remove(key) => pair.remove(key),
        Step::Get(key) => pair.get(key),
        Step::InsertRange(start, count) => (start..start + count).for_each(|key| pair.insert(key, key)),
        Step::RemoveRange(start, count) => (start..start + count).for_each(|key| pair.remove(key)),
        Step::Scan => assert_eq!(scan_all(&pair.table), pair.model.keys().copied().collect()),
        Step::Take => {
            let mut drained = pair.table.take();
            assert_eq!(drained.len(), pair.model.len());
            let more = drained.free_some(3);
            assert_eq!(more, pair.model.len() > 3);
            assert_eq!(drained.len(), pair.alive.get());
            drop(drained);
            pair.model.clear();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_a_map(steps in prop::collection::vec(step(), 1..60)) {
        let mut pair = Pair::new();
        for step in steps {
            run(&mut pair, step);
        }
        pair.check();
        let alive = Rc::clone(&pair.alive);
        drop(pair);
        prop_assert_eq!(alive.get(), 0, "a dropped table leaves no record");
    }

    /// Keys below 500 stay; the others come and go between the calls of one iteration.
    #[test]
    fn a_scan_visits_what_stays(
        changes in prop::collection::vec((any::<bool>(), 500_u32..4000, 0_u32..1500), 1..200),
        pace in 1_usize..20,
    ) {
        let mut pair = Pair::new();
        (0..500).for_each(|key| pair.insert(key, key));
        let (mut seen, mut cursor, mut changes) = (BTreeSet::new(), 0, changes.into_iter());
        loop {
            for _ in 0..pace {
                cursor = pair.table.scan(cursor, |record| {
                    seen.insert(record.number());
                });
                if cursor == 0 {
                    break;
                }
            }
            if cursor == 0 {
                break;
            }
            if let Some((grow, start, count)) = changes.next() {
                let step = if grow { Step::InsertRange(start, count) } else { Step::RemoveRange(start, count) };
                run(&mut pair, step);
            }
        }
        let missed = (0..500).filter(|key| !seen.contains(key)).count();
        prop_assert_eq!(missed, 0);
    }
}

#[test]
fn it_grows_and_shrinks_over_segments() {
    let mut pair = Pair::new();
    let empty = pair.table.memory();
    let count = 40_000;
    (0..count).for_each(|key| pair.insert(key, key));
    assert!(pair.table.segments.len() > 1);
    pair.check();
    let full = pair.table.memory();
    assert!(full <= 26 * count as usize, "{full} bytes for {count} keys");
    (0..count).for_each(|key| pair.get(key));
    (100..count).for_each(|key| pair.remove(key));
    pair.check();
    // At least SHRINK_BELOW records a bucket are left, in a segment with room for at most four times the buckets.
    let (left, buckets) = (pair.table.memory(), 100 / SHRINK_BELOW);
    let most = empty + 4 * buckets * size_of::<Bucket<Counted>>() + 1024;
    assert!(left < most, "{left} of {full} bytes are left, not {most}");
    (0..100).for_each(|key| pair.remove(key));
    pair.check();
    assert!(pair.table.memory() <= empty + 16 * size_of::<Bucket<Counted>>());
}

/// The number of chained buckets is the load's, not the history's: chains are compact after removals.
#[test]
fn churn_leaves_no_garbage() {
    let mut pair = Pair::new();
    (0..5000).for_each(|key| pair.insert(key, key));
    let before = pair.table.memory();
    for key in 0..100_000 {
        pair.insert(key + 5000, key);
        pair.remove(key);
    }
    pair.check();
    assert!(pair.table.memory() < before * 11 / 10, "{before} grew to {}", pair.table.memory());
}

#[test]
fn equal_hashes_only_cost_time() {
    let hash = KeyHash(0x1234_5678_9abc_def0);
    let alive = Rc::default();
    let mut table = Table::new(HashSeed(0));
    for key in 0..2000_u32 {
        let mut record = Counted::boxed(key, key, &alive);
        record.hash = Some(hash);
        assert!(table.insert(hash, record).is_none());
    }
    for key in (0..2000_u32).step_by(2) {
        assert_eq!(table.remove(hash, &key.to_be_bytes()).map(|record| record.value), Some(key));
    }
    for key in 0..2000_u32 {
        let found = table.get(hash, &key.to_be_bytes()).map(|record| record.value);
        assert_eq!(found, (key % 2 == 1).then_some(key));
    }
    assert_eq!(scan_all(&table).len(), 1000);
    assert!(table.random(&mut Rng::with_seed(1)).is_some());
    let chained: usize = table.segments.iter().flatten().map(Bucket::assert_sound).sum();
    assert_eq!(chained, table.overflow_count);
    drop(table);
    assert_eq!(alive.get(), 0);
}

/// A chain of 100 000 buckets, far deeper than a recursive drop would survive.
#[test]
fn a_long_chain_is_freed_without_recursion() {
    let alive = Rc::default();
    let mut bucket = Bucket::default();
    let mut overflow_count = 0;
    for key in 0..600_000 {
        bucket.push(Fingerprint::of(KeyHash(0)), Counted::boxed(key, key, &alive), &mut overflow_count);
    }
    assert_eq!(overflow_count, 99_999);
    drop(bucket);
    assert_eq!(alive.get(), 0);
}

#[test]
fn a_drained_table_is_freed_in_pieces() {
    let mut pair = Pair::new();
    (0..20_000).for_each(|key| pair.insert(key, key));
    let mut drained = pair.table.take();
    assert!(pair.table.is_empty() && pair.table.iter().next().is_none());
    let mut left = 20_000;
    while drained.free_some(64) {
        left -= 64;
        assert_eq!((drained.len(), pair.alive.get()), (left, left));
    }
    assert!(drained.is_empty());
    assert_eq!(pair.alive.get(), 0);
}

/// Two records of three are in the crowded buckets of a half-split level; each is still drawn equally often.
#[test]
fn random_draws_are_fair() {
    let mut pair = Pair::new();
    (0..1500).for_each(|key| pair.insert(key, key));
    assert!(pair.table.buckets > pair.table.half, "the level is half-split");
    let mut random = Rng::with_seed(3);
    let mut drawn = [0_u32; 1500];
    for _ in 0..1500 * 200 {
        let record = pair.table.random(&mut random).expect("the table is not empty");
        drawn[record.number() as usize] += 1;
    }
    // 200 expected each, with a standard deviation of 14.
    let (least, most) = (drawn.iter().min(), drawn.iter().max());
    assert!(least >= Some(&120) && most <= Some(&280), "between {least:?} and {most:?}");
    let empty: Table<Counted> = Table::new(HashSeed(7));
    assert!(empty.random(&mut random).is_none());
}
