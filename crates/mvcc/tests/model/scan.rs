//! Scans while keys come and go.

use crate::{Stamp, for_all};
use datatypes::{Effect, register};
use mvcc::Store;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use types::HashSeed;

const SET: Effect<'static> =
    Effect::Register(register::Effect::Set { value: b"v", deadline: register::Deadline::Clear });

fn name(key: u16) -> [u8; 2] {
    key.to_be_bytes()
}

fn change(store: &mut Store<Stamp>, key: u16, stamp: Stamp, effect: &Effect<'_>) {
    store.commit(store.hash(&name(key)), &name(key), stamp, effect);
}

/// Ranges of keys that appear or disappear between two steps of the scan, perhaps while a snapshot is open.
fn rounds() -> impl Strategy<Value = Vec<(u16, u16, bool, bool)>> {
    vec((0..600u16, 1..200u16, any::<bool>(), any::<bool>()), 1..20)
}

#[test]
fn a_key_present_all_the_time_is_visited_however_the_index_changes() {
    for_all(150, rounds(), |rounds| {
        let mut store = Store::new(HashSeed(9), (0, false));
        (0..300).for_each(|key| change(&mut store, key, (1, false), &SET));
        let mut lasting: BTreeSet<u16> = (0..300).collect();
        let mut present = lasting.clone();
        let (mut visited, mut cursor, mut time) = (BTreeSet::new(), 0, 2);
        let mut rounds = rounds.into_iter();
        loop {
            cursor = store.scan(cursor, |key, _| {
                visited.insert(u16::from_be_bytes([key[0], key[1]]));
            });
            if cursor == 0 {
                break;
            }
            let Some((from, count, appear, snapshot)) = rounds.next() else { continue };
            store.set_horizon(snapshot.then_some((time, true)));
            time += 1;
            for key in from..from + count {
                change(&mut store, key, (time, false), if appear { &SET } else { &Effect::DELETE });
                if appear {
                    present.insert(key);
                } else {
                    present.remove(&key);
                    lasting.remove(&key);
                }
            }
            prop_assert_eq!(store.len(), present.len());
        }
        prop_assert!(lasting.is_subset(&visited));
        store.assert_consistent();
        Ok(())
    });
}

#[test]
fn a_full_scan_visits_what_holds_a_value_and_scan_all_the_tombstones_too() {
    let mut store = Store::new(HashSeed(9), (0, false));
    (0..100).for_each(|key| change(&mut store, key, (1, false), &SET));
    store.set_horizon(Some((1, true)));
    (0..40).for_each(|key| change(&mut store, key, (2, false), &Effect::DELETE));
    let (mut present, mut all, mut cursor) = (BTreeSet::new(), BTreeSet::new(), 0);
    loop {
        store.scan(cursor, |key, _| present.extend([key.to_vec()]));
        cursor = store.scan_all(cursor, |key| all.extend([key.to_vec()]));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((present.len(), all.len(), store.len()), (60, 100, 60));
}
