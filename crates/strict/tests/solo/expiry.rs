//! Expiry is a write (Corrections 69).

use crate::solo::world::{START_MILLIS, World, blind, expire_at, get, increment, set, set_until};
use datatypes::register::Deadline;
use protocol::{Durability, Step};

/// A world in which `k` holds 5 until 100 ms after the start.
fn world(partitions: usize) -> World {
    let mut world = World::new(partitions, Durability::Written);
    world.one(set_until(b"k", b"5", Deadline::At { millis: START_MILLIS + 100 }));
    world
}

#[test]
fn whoever_meets_an_expired_key_logs_its_deletion_first() {
    let mut world = world(1);
    world.advance_millis(99);
    assert_eq!(world.value(b"k"), "5");
    assert_eq!(world.log.len(), 1);
    world.advance_millis(1);
    assert_eq!(world.value(b"k"), "nil");
    assert_eq!(world.log.len(), 2, "the deletion is in the log");
    assert!(World::recovered(1, &[], &world.log).state().is_empty());
    assert_eq!(world.value(b"k"), "nil");
    assert_eq!(world.log.len(), 2, "once");
}

#[test]
fn a_clock_that_goes_back_does_not_bring_an_expired_key_back() {
    let mut world = world(1);
    world.advance_millis(200);
    assert_eq!(world.value(b"k"), "nil");
    world.now.wall.0 -= 150_000;
    assert_eq!(world.value(b"k"), "nil");
}

#[test]
fn a_write_to_an_expired_key_starts_from_nothing() {
    for snapshot in [false, true] {
        let mut world = world(1);
        if snapshot {
            world.begin(1);
        }
        world.advance_millis(100);
        assert_eq!(world.one(increment(b"k", 1)), "1");
        assert_eq!(world.log.len(), 3, "set, deletion, increment");
        world.advance_millis(1000);
        assert_eq!(world.value(b"k"), "1", "the new value has no deadline");
        assert_eq!(World::recovered(1, &[], &world.log).state(), world.state());
    }
}

#[test]
fn housekeeping_deletes_what_nobody_meets() {
    let mut world = World::new(4, Durability::Written);
    for key in 0..1000u32 {
        let (name, millis) = (key.to_be_bytes(), START_MILLIS + 150 + u64::from(key % 2) * 100_000);
        world.one(set_until(&name, b"v", Deadline::At { millis }));
    }
    world.idle(1);
    assert_eq!(world.many(0, false, &[Step::Count]), "1000");
    world.idle(1);
    let count: usize = world.many(0, false, &[Step::Count]).parse().expect("a number");
    assert!((200..1000).contains(&count), "{count}: a turn deletes some, so that it is short");
    world.idle(5);
    assert_eq!(world.many(0, false, &[Step::Count]), "500");
    assert_eq!(world.replicas.iter().map(|replica| replica.protocol().deadlines()).sum::<usize>(), 500);
    assert_eq!(World::recovered(4, &[], &world.log).state(), world.state());
}

#[test]
fn housekeeping_rests_when_nothing_is_left() {
    let mut world = world(1);
    world.many(0, false, &[Step::Flush]);
    world.idle(3);
    let pause = world.replicas[0].deadline().expect("housekeeping is always armed") - world.now.instant;
    assert!(pause.as_millis() >= 100, "{pause:?}: freeing is over");
}

#[test]
fn scans_do_not_show_expired_keys_and_counts_do() {
    let mut world = world(1);
    world.one(set(b"lasting", b"v"));
    world.advance_millis(100);
    let reply = world.many(0, false, &[Step::Count, Step::Scan { cursor: 0, count: 10 }]);
    assert_eq!(reply, "2 [0 [lasting]]");
}

#[test]
fn a_transaction_compares_deadlines_with_the_time_it_began() {
    let mut world = world(4);
    world.begin(1);
    world.advance_millis(200);
    assert_eq!(world.within(1, get(b"k")), "5");
    assert_eq!(world.value(b"k"), "nil", "others see it expired");
    assert_eq!(world.within(1, get(b"k")), "5", "the snapshot stays");
    assert_eq!(world.commit(1), "OK", "it only read");
}

#[test]
fn a_transaction_that_saw_a_key_before_it_expired_cannot_change_it_after() {
    let mut world = world(4);
    world.begin(1);
    assert_eq!(world.within(1, increment(b"k", 1)), "6");
    world.advance_millis(200);
    assert!(world.commit(1).starts_with("CONFLICT key 'k'"), "its deletion came between");
    assert_eq!(world.value(b"k"), "nil");
}

#[test]
fn a_blind_change_of_a_key_that_expired_meanwhile_starts_from_nothing() {
    let mut world = world(4);
    world.begin(1);
    assert_eq!(world.within(1, blind(increment(b"k", 1))), "OK");
    world.advance_millis(200);
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"k"), "1");
}

#[test]
fn a_transaction_that_meets_an_expired_key_deletes_it_for_everybody() {
    let mut world = world(4);
    world.advance_millis(100);
    world.begin(1);
    assert_eq!(world.within(1, get(b"k")), "nil");
    world.now.wall.0 -= 50_000;
    assert_eq!(world.value(b"k"), "nil", "a slower clock does not see it again");
    assert_eq!(world.within(1, increment(b"k", 3)), "3");
    assert_eq!(world.within(1, get(b"k")), "3");
    assert_eq!(world.commit(1), "OK", "the deletion it met is no conflict");
    assert_eq!(world.value(b"k"), "3");
    assert_eq!(World::recovered(4, &[], &world.log).state(), world.state());
}

#[test]
fn a_change_after_the_foreseen_deletion_is_a_conflict() {
    let mut world = world(4);
    world.advance_millis(100);
    world.begin(1);
    assert_eq!(world.within(1, increment(b"k", 3)), "3");
    assert_eq!(world.one(increment(b"k", 1)), "1");
    assert!(world.commit(1).starts_with("CONFLICT"));
    assert_eq!(world.value(b"k"), "1");
}

#[test]
fn a_deadline_that_a_transaction_sets_in_its_own_past_deletes() {
    let mut world = world(4);
    world.begin(1);
    assert_eq!(world.within(1, expire_at(b"k", START_MILLIS)), "1");
    assert_eq!(world.within(1, get(b"k")), "nil");
    assert_eq!(world.within(1, set_until(b"k", b"9", Deadline::At { millis: 1 })), "OK");
    assert_eq!(world.within(1, get(b"k")), "nil", "it set a value that had expired");
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"k"), "nil");
}

#[test]
fn what_follows_a_deadline_in_the_transactions_own_past_starts_from_nothing() {
    let mut world = world(4);
    world.begin(1);
    assert_eq!(world.within(1, set_until(b"k", b"9", Deadline::At { millis: 1 })), "OK");
    assert_eq!(world.within(1, increment(b"k", 1)), "1");
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"k"), "1");
}
