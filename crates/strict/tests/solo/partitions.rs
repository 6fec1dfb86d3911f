//! Requests over four partitions.

use crate::solo::for_all;
use crate::solo::world::{World, get, increment, set};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Durability, Step};
use std::collections::BTreeSet;
use strict::solo::Group;
use types::KeyHash;

fn name(key: u32) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

fn filled(partitions: usize, keys: u32) -> World {
    let mut world = World::new(partitions, Durability::Volatile);
    (0..keys).for_each(|key| drop(world.one(set(&name(key), b"v"))));
    world
}

#[test]
fn keys_are_spread_over_all_partitions_and_one_takes_all() {
    let world = filled(4, 400);
    assert!(world.replicas.iter().all(|replica| replica.protocol().len() > 50));
    assert_eq!(Group::index_of(KeyHash(u64::MAX), 1), 0);
    assert_eq!(Group::index_of(KeyHash(u64::MAX), 4), 3);
}

#[test]
fn steps_over_partitions_take_place_in_order_in_one_group_of_the_log() {
    let mut world = World::new(4, Durability::Written);
    world.writes_through = false;
    let names: Vec<Vec<u8>> = (0..8).map(name).collect();
    assert!(names.iter().map(|name| world.index_of(name)).collect::<BTreeSet<_>>().len() > 1);
    let mut steps = Vec::new();
    for round in 1..4 {
        steps.extend(names.iter().map(|name| Step::Key(increment(name, round))));
    }
    steps.push(Step::Count);
    let reply = world.many(0, false, &steps);
    assert_eq!(reply, [vec!["1"; 8], vec!["3"; 8], vec!["6"; 8], vec!["8"]].concat().join(" "));
    assert_eq!(world.pending.len(), 24);
    world.refuse();
    assert!(world.state().is_empty(), "it is in the log as a whole or not at all");
}

#[test]
fn a_flush_removes_the_keys_of_all_and_what_follows_stays() {
    let mut world = filled(4, 100);
    let steps = [Step::Count, Step::Flush, Step::Count, Step::Key(set(b"new", b"v")), Step::Count];
    assert_eq!(world.many(0, false, &steps), "100 OK 0 OK 1");
    assert_eq!(world.value(b"new"), "v");
}

#[test]
fn a_flush_under_a_snapshot_deletes_key_by_key() {
    let mut world = filled(4, 100);
    world.begin(1);
    assert_eq!(world.many(0, false, &[Step::Flush, Step::Count]), "OK 0");
    assert_eq!(world.within(1, get(&name(7))), "v");
    assert_eq!(world.commit(1), "OK");
    world.idle(2);
    assert!(world.state().is_empty());
}

/// The next cursor and the keys of one scan.
fn scan(world: &mut World, cursor: u64, count: u32) -> (u64, Vec<String>) {
    let reply = world.many(0, false, &[Step::Scan { cursor, count }]);
    let inner = reply.trim_matches(|bracket| "[]".contains(bracket));
    let (next, keys) = inner.split_once(" [").unwrap_or((inner, ""));
    let keys = keys.split(" key").filter(|key| !key.is_empty());
    (
        next.trim().parse().expect("a cursor"),
        keys.map(|key| key.trim_start_matches("key").to_owned()).collect(),
    )
}

#[test]
fn a_scan_visits_every_partition_and_its_cursors_are_positive() {
    let mut world = filled(4, 500);
    let (mut cursor, mut found, mut calls) = (0, BTreeSet::new(), 0);
    loop {
        let (next, keys) = scan(&mut world, cursor, 10);
        assert!(i64::try_from(next).is_ok(), "{next}");
        assert!(keys.len() < 40, "{} keys although about 10 were wanted", keys.len());
        found.extend(keys);
        calls += 1;
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(found.len(), 500);
    assert!((20..=70).contains(&calls), "{calls} calls");
}

#[test]
fn a_cursor_that_nobody_gave_ends_the_scan() {
    let mut world = filled(4, 10);
    for cursor in [u64::MAX, 4 << 48, 1 << 62] {
        let (next, keys) = scan(&mut world, cursor, 10);
        assert!(next == 0 && keys.is_empty(), "{cursor}");
    }
}

#[test]
fn a_key_present_during_a_whole_scan_is_visited_whatever_comes_and_goes() {
    let changes = vec((0..900u32, 1..200u32, any::<bool>(), 1..30u32), 1..30);
    for_all(60, changes, |changes| {
        let mut world = filled(4, 400);
        let mut lasting: BTreeSet<u32> = (0..400).collect();
        let (mut found, mut cursor, mut changes) = (BTreeSet::new(), 0, changes.into_iter());
        loop {
            let (from, count, appear, wanted) = changes.next().unwrap_or((0, 0, true, 10));
            let (next, keys) = scan(&mut world, cursor, wanted);
            found.extend(keys.iter().map(|key| key.trim().parse::<u32>().expect("a number")));
            cursor = next;
            if cursor == 0 {
                break;
            }
            for key in from..from + count {
                if appear {
                    world.one(set(&name(key), b"v"));
                } else {
                    world.one(crate::solo::world::delete(&name(key)));
                    lasting.remove(&key);
                }
            }
        }
        prop_assert!(lasting.is_subset(&found));
        Ok(())
    });
}
