//! Transactions on lent partitions: all of what they did, or nothing.

use crate::solo::for_all;
use crate::solo::traffic::{Call, call, perform, traffic};
use crate::solo::world::{START_MILLIS, World, get, increment, set, set_until};
use datatypes::register::Deadline;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Durability, KeyedOperation, Step};

#[test]
fn a_transaction_on_lent_partitions_is_one_of_many_steps() {
    for durability in [Durability::Volatile, Durability::Written] {
        for_all(200, (vec(traffic(), 0..40), vec(call(), 1..8)), |(before, calls)| {
            let [mut lent, mut many] = [(); 2].map(|()| World::new(3, durability));
            for world in [&mut lent, &mut many] {
                before.iter().for_each(|traffic| drop(perform(world, traffic)));
            }
            let operations: Vec<KeyedOperation<'_>> = calls.iter().map(Call::keyed).collect();
            let steps: Vec<Step<'_>> = operations.iter().cloned().map(Step::Key).collect();
            prop_assert_eq!(lent.lent(&operations, true), many.many(0, false, &steps));
            prop_assert_eq!(lent.state(), many.state());
            prop_assert_eq!(lent.records(), many.records());
            Ok(())
        });
    }
}

#[test]
fn what_was_taken_back_touches_no_watch_and_leaves_those_that_were_touched() {
    let mut world = World::new(2, Durability::Written);
    for (session, name) in [(1, &b"a"[..]), (2, b"b")] {
        world.one(set(name, b"1"));
        world.watch(session, &[name]);
    }
    world.one(increment(b"b", 1));
    assert_eq!(world.lent(&[increment(b"a", 1), increment(b"b", 1)], false), "2 3");
    let steps = [Step::Key(get(b"a")), Step::Key(get(b"b"))];
    assert_eq!([1, 2].map(|session| world.many(session, true, &steps)), ["1 2", "stopped"]);
    world.watch(1, &[b"a"]);
    world.lent(&[increment(b"a", 1)], true);
    assert_eq!(world.many(1, true, &steps), "stopped");
}

#[test]
fn what_was_taken_back_is_no_conflict() {
    for (stays, outcome) in [(false, "OK"), (true, "CONFLICT keys were created or deleted")] {
        let mut world = World::new(2, Durability::Written);
        world.one(set(b"a", b"1"));
        world.begin(1);
        assert_eq!(world.operate(1, &[Step::Count, Step::Key(set(b"b", b"1"))]), "1 OK");
        world.lent(&[increment(b"a", 1), set(b"new", b"1")], stays);
        let reply = world.commit(1);
        assert!(reply.starts_with(outcome), "{reply}");
    }
}

#[test]
fn whoever_meets_an_expired_key_next_deletes_it_if_that_was_taken_back() {
    let mut world = World::new(1, Durability::Written);
    world.one(set_until(b"dies", b"1", Deadline::At { millis: START_MILLIS + 50 }));
    world.replicas[0].protocol_mut().note_expired(true);
    world.advance_millis(60);
    assert_eq!(world.lent(&[get(b"dies")], false), "nil");
    assert_eq!(world.records(), 1);
    assert!(world.replicas[0].protocol_mut().take_expired().is_empty());
    assert_eq!(world.lent(&[get(b"dies")], true), "nil");
    assert_eq!(world.records(), 2);
    assert_eq!(world.replicas[0].protocol_mut().take_expired(), [b"dies".to_vec().into()]);
}

#[test]
fn where_nothing_is_logged_nothing_is_remembered() {
    let mut world = World::new(1, Durability::Volatile);
    world.begin(1);
    world.lent(&[set(b"a", b"1"), set(b"a", b"2")], true);
    world.abort(1);
    assert!(!world.retains(), "no undo needs the history");
    assert_eq!(world.value(b"a"), "2");
}

#[test]
fn a_log_that_refuses_takes_back_what_stayed() {
    let mut world = World::new(2, Durability::Written);
    world.one(set(b"a", b"1"));
    world.writes_through = false;
    world.lent(&[increment(b"a", 1), set(b"b", b"1")], true);
    world.lent(&[increment(b"a", 1), set(b"c", b"1")], false);
    world.lent(&[increment(b"b", 1)], true);
    assert_eq!([&b"a"[..], b"b", b"c"].map(|name| world.value(name)), ["2", "2", "nil"]);
    world.refuse();
    assert_eq!([&b"a"[..], b"b", b"c"].map(|name| world.value(name)), ["1", "nil", "nil"]);
}
