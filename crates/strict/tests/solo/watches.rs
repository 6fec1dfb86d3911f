//! WATCH over several partitions.

use crate::solo::world::{START_MILLIS, World, blind, delete, expire_at, get, increment, set, shown};
use protocol::{Durability, KeyedOperation, Request, Step};
use types::SessionId;

const READ: &[u8] = b"read";

fn world() -> World {
    let mut world = World::new(4, Durability::Written);
    for name in [&b"a"[..], b"b", b"c", READ] {
        world.one(set(name, b"1"));
    }
    world
}

/// What EXEC replies after `change` happened to the watched keys a and b.
fn exec_after(change: impl FnOnce(&mut World)) -> String {
    let mut world = world();
    assert_eq!(world.watch(1, &[b"a", b"b"]), "OK");
    change(&mut world);
    let reply = world.many(1, true, &[Step::Key(get(READ))]);
    let again = world.many(1, true, &[Step::Key(get(READ))]);
    assert_ne!(again, "stopped", "watches are good for one transaction");
    reply
}

fn one(world: &mut World, operation: KeyedOperation<'_>) {
    world.one(operation);
}

#[test]
fn a_change_of_a_watched_key_stops_the_transaction() {
    assert_eq!(exec_after(|_| ()), "1");
    assert_eq!(exec_after(|world| one(world, set(b"c", b"2"))), "1", "another key");
    assert_eq!(exec_after(|world| one(world, get(b"a"))), "1", "a read");
    assert_eq!(exec_after(|world| one(world, delete(b"absent"))), "1", "no effect");
    assert_eq!(exec_after(|world| one(world, set(b"b", b"2"))), "stopped");
    assert_eq!(exec_after(|world| one(world, blind(increment(b"a", 1)))), "stopped");
    assert_eq!(exec_after(|world| one(world, delete(b"a"))), "stopped");
    assert_eq!(exec_after(|world| one(world, expire_at(b"a", START_MILLIS + 9))), "stopped");
    assert_eq!(exec_after(|world| drop(world.many(2, false, &[Step::Key(delete(b"b"))]))), "stopped");
    assert_eq!(exec_after(|world| drop(world.many(2, false, &[Step::Flush]))), "stopped");
}

#[test]
fn a_flush_changes_only_keys_that_exist() {
    let mut world = world();
    assert_eq!(world.watch(1, &[b"absent"]), "OK");
    world.many(2, false, &[Step::Flush]);
    assert_ne!(world.many(1, true, &[Step::Key(get(READ))]), "stopped");
}

#[test]
fn a_commit_of_another_transaction_touches_watches() {
    let transact = |world: &mut World| {
        world.begin(2);
        world.within(2, set(b"b", b"5"));
        assert_eq!(world.commit(2), "OK");
    };
    assert_eq!(exec_after(transact), "stopped");
}

#[test]
fn a_watched_key_that_expires_is_touched_even_if_nobody_has_met_it() {
    let mut world = world();
    world.one(expire_at(b"a", START_MILLIS + 50));
    world.watch(1, &[b"a"]);
    world.advance_millis(49);
    assert_eq!(world.many(1, true, &[Step::Key(get(READ))]), "1");
    world.watch(1, &[b"a"]);
    world.advance_millis(1);
    assert_eq!(world.many(1, true, &[Step::Key(get(READ))]), "stopped");
}

#[test]
fn a_key_that_had_expired_before_it_was_watched_is_absent_and_stays_so() {
    let mut world = world();
    world.one(expire_at(b"a", START_MILLIS + 50));
    world.advance_millis(50);
    world.watch(1, &[b"a"]);
    assert_eq!(world.many(1, true, &[Step::Key(get(READ))]), "1");
}

#[test]
fn sessions_watch_apart_and_forget_apart() {
    let mut world = world();
    world.watch(1, &[b"a"]);
    world.watch(2, &[b"a"]);
    world.watch(3, &[b"a"]);
    world.one(set(b"a", b"2"));
    assert_eq!(shown(&world.ask(Request::Unwatch { session: SessionId(1) })), "OK");
    world.ask(Request::Close { session: SessionId(2) });
    for (session, reply) in [(1, "1"), (2, "1"), (3, "stopped")] {
        assert_eq!(world.many(session, true, &[Step::Key(get(READ))]), reply);
    }
}

#[test]
fn watches_can_guard_an_interactive_transaction() {
    let mut world = world();
    let begin = Request::Begin { session: SessionId(1), read_only: false, watched: true };
    for (touched, reply, value) in [(false, "OK", "9"), (true, "stopped", "1")] {
        world.one(set(b"c", b"1"));
        world.watch(1, &[b"a"]);
        assert_eq!(shown(&world.ask(begin.clone())), "OK");
        world.within(1, set(b"c", b"9"));
        if touched {
            world.one(set(b"a", b"2"));
        }
        assert_eq!(world.commit(1), reply);
        assert_eq!(world.value(b"c"), value);
    }
}
