//! A scan lists every element that is there at each of its calls, and lists it once, whatever version of the collection
//! answers a call: elements come and go, leave and come back, and a copy may have got them in another order.

use crate::properties::for_all;
use datatypes::collections::{PackedMap, PackedSet, ScoredTree};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::Rng;

/// What is scanned.
trait Collection: Clone + Default {
    fn add(&mut self, name: &[u8]);
    fn take(&mut self, name: &[u8]);
    fn names(&self) -> Vec<Vec<u8>>;
    fn piece(&self, cursor: u64, count: usize, visit: impl FnMut(&[u8])) -> u64;
}

impl Collection for PackedMap {
    fn add(&mut self, name: &[u8]) {
        self.insert(name, b"value");
    }

    fn take(&mut self, name: &[u8]) {
        self.remove(name);
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.iter().map(|(field, _)| field.to_vec()).collect()
    }

    fn piece(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8])) -> u64 {
        self.scan(cursor, count, |field, _| visit(field))
    }
}

impl Collection for PackedSet {
    fn add(&mut self, name: &[u8]) {
        self.insert(name);
    }

    fn take(&mut self, name: &[u8]) {
        self.remove(name);
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.iter().map(|member| member.to_vec()).collect()
    }

    fn piece(&self, cursor: u64, count: usize, visit: impl FnMut(&[u8])) -> u64 {
        self.scan(cursor, count, visit)
    }
}

impl Collection for ScoredTree {
    fn add(&mut self, name: &[u8]) {
        self.insert(name, name.len() as f64);
    }

    fn take(&mut self, name: &[u8]) {
        self.remove(name);
    }

    fn names(&self) -> Vec<Vec<u8>> {
        self.iter().map(|(_, member)| member.to_vec()).collect()
    }

    fn piece(&self, cursor: u64, count: usize, mut visit: impl FnMut(&[u8])) -> u64 {
        self.scan(cursor, count, |_, member| visit(member))
    }
}

/// More than a packed form holds.
const STAYING: usize = 140;

fn name(number: usize) -> Vec<u8> {
    format!("name {number}").into_bytes()
}

/// The same elements, which came in another order.
fn rebuilt<C: Collection>(collection: &C, rng: &mut Rng) -> C {
    let mut names = collection.names();
    rng.shuffle(&mut names);
    let mut other = C::default();
    names.iter().for_each(|name| other.add(name));
    other
}

/// What may happen between two calls. Those that stay are numbered below `staying`.
fn change<C: Collection>(collection: &mut C, staying: usize, rng: &mut Rng) {
    match rng.usize(..8) {
        0 => *collection = rebuilt(collection, rng),
        1 => {
            let returns = name(rng.usize(..staying));
            collection.take(&returns);
            collection.add(&returns);
        }
        2 => {
            let before = collection.clone();
            collection.take(&name(rng.usize(..staying)));
            *collection = before;
        }
        3 => (0..rng.usize(..2000)).for_each(|_| collection.add(&name(staying + rng.usize(..4000)))),
        _ => (0..rng.usize(..500)).for_each(|_| collection.take(&name(staying + rng.usize(..4000)))),
    }
}

fn check<C: Collection>(seed: u64, staying: usize, count: usize) -> Result<(), TestCaseError> {
    let mut rng = Rng::with_seed(seed);
    let mut collection = C::default();
    (0..staying + rng.usize(..1000)).for_each(|number| collection.add(&name(number)));
    let mut listed = BTreeMap::new();
    let mut cursor = 0;
    loop {
        let next = collection.piece(cursor, count, |name| *listed.entry(name.to_vec()).or_insert(0) += 1);
        prop_assert!(next == 0 || next > cursor, "cursors grow");
        prop_assert!(i64::try_from(next).is_ok(), "drivers read cursors as signed integers");
        cursor = next;
        if cursor == 0 {
            break;
        }
        change(&mut collection, staying, &mut rng);
    }
    for number in 0..staying {
        prop_assert_eq!(listed.get(&name(number)), Some(&1), "{}", number);
    }
    Ok(())
}

#[test]
fn what_is_there_at_every_call_is_listed_once() {
    let scan = (any::<u64>(), STAYING..1500usize, prop_oneof![1..30usize, 30..400usize]);
    for_all(16, scan, |(seed, staying, count)| {
        check::<PackedMap>(seed, staying, count)?;
        check::<PackedSet>(seed, staying, count)?;
        check::<ScoredTree>(seed, staying, count)
    });
}

#[test]
fn a_small_collection_comes_whole() {
    let mut map = PackedMap::default();
    (0..20).for_each(|number| map.add(&name(number)));
    for cursor in [0, 1, u64::MAX] {
        let mut listed = 0;
        assert_eq!(map.piece(cursor, 1, |_| listed += 1), 0);
        assert_eq!(listed, 20);
    }
}
