//! Interactive transactions.

use crate::solo::world::{World, blind, delete, get, increment, keyed, set, shown};
use datatypes::{Items, Operation, set as sets};
use protocol::{Durability, KeyedOperation, Request, Step};
use std::time::Duration;
use types::SessionId;

const NONE: &str = "ERR no transaction is open in this session";

fn world() -> World {
    let mut world = World::new(4, Durability::Written);
    for name in [&b"a"[..], b"b", b"c", b"n"] {
        world.one(set(name, b"1"));
    }
    world
}

fn add<'a>(name: &'a [u8], member: &'a [u8]) -> KeyedOperation<'a> {
    keyed(name, Operation::Set(sets::Operation::Add { members: Items::one(member) }))
}

fn members(name: &[u8]) -> KeyedOperation<'_> {
    keyed(name, Operation::Set(sets::Operation::Members))
}

fn conflict(name: &str) -> String {
    format!("CONFLICT key '{name}' was changed by a concurrent transaction; retry the transaction")
}

#[test]
fn reads_come_from_the_snapshot_of_all_partitions() {
    let mut world = world();
    world.begin(1);
    for name in [&b"a"[..], b"b", b"c"] {
        world.one(set(name, b"2"));
    }
    world.one(delete(b"n"));
    world.one(set(b"new", b"2"));
    for name in [&b"a"[..], b"b", b"c", b"n"] {
        assert_eq!(world.within(1, get(name)), "1");
    }
    assert_eq!(world.within(1, get(b"new")), "nil");
    assert_eq!(world.commit(1), "OK", "a transaction that only read took place at its snapshot");
    assert_eq!(world.value(b"a"), "2");
}

#[test]
fn a_transaction_sees_its_own_effects_and_nobody_else_does() {
    let mut world = world();
    world.begin(1);
    assert_eq!(world.within(1, increment(b"n", 4)), "5");
    assert_eq!(world.within(1, increment(b"n", 4)), "9");
    assert_eq!(world.within(1, delete(b"a")), "1");
    assert_eq!(world.within(1, get(b"a")), "nil");
    assert_eq!(world.within(1, add(b"a", b"m")), "1", "another type now");
    assert_eq!(world.within(1, members(b"a")), "[m]");
    assert_eq!((world.value(b"n"), world.value(b"a")), ("1".into(), "1".into()));
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"n"), "9");
    assert_eq!(world.one(members(b"a")), "[m]");
    assert_eq!(World::recovered(4, &[], &world.log).state(), world.state());
}

#[test]
fn an_abort_leaves_nothing_behind() {
    let mut world = world();
    let logged = world.log.len();
    world.begin(1);
    world.within(1, increment(b"n", 4));
    world.abort(1);
    assert_eq!(world.value(b"n"), "1");
    assert_eq!(world.log.len(), logged);
    assert!(!world.retains(), "nobody needs a history any more");
    assert_eq!((world.commit(1), world.within(1, get(b"n"))), (NONE.into(), NONE.into()));
    world.abort(1);
}

#[test]
fn what_was_read_and_changed_since_is_a_conflict_that_names_the_key() {
    let mut world = world();
    world.begin(1);
    world.within(1, get(b"a"));
    world.within(1, set(b"b", b"9"));
    world.one(set(b"a", b"2"));
    assert_eq!(world.commit(1), conflict("a"));
    assert_eq!(world.value(b"b"), "1");
    assert_eq!(world.commit(1), NONE, "it is over");
    assert!(!world.retains());
}

#[test]
fn write_skew_is_a_conflict() {
    let mut world = world();
    for session in [1, 2] {
        world.begin(session);
    }
    world.within(1, get(b"a"));
    world.within(1, set(b"b", b"9"));
    world.within(2, get(b"b"));
    world.within(2, set(b"a", b"9"));
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.commit(2), conflict("b"));
}

#[test]
fn an_update_is_not_lost() {
    let mut world = world();
    for session in [1, 2] {
        world.begin(session);
        assert_eq!(world.within(session, increment(b"n", 1)), "2");
    }
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.commit(2), conflict("n"));
    assert_eq!(world.value(b"n"), "2");
}

#[test]
fn blind_increments_and_additions_of_many_transactions_commute() {
    let mut world = world();
    let sessions = 1..=5u64;
    for session in sessions.clone() {
        world.begin(session);
        assert_eq!(world.within(session, blind(increment(b"n", session as i64))), "OK");
        assert_eq!(world.within(session, add(b"set", &[b'a' + session as u8])), "1");
    }
    for session in sessions {
        assert_eq!(world.commit(session), "OK");
    }
    assert_eq!(world.value(b"n"), "16");
    assert_eq!(world.one(members(b"set")).split(' ').count(), 5);
}

#[test]
fn a_blind_write_is_performed_whatever_came_between() {
    let mut world = world();
    world.begin(1);
    world.within(1, blind(set(b"a", b"9")));
    world.within(1, blind(add(b"set", b"m")));
    world.one(set(b"a", b"2"));
    world.one(add(b"set", b"m"));
    world.one(keyed(b"set", Operation::Set(sets::Operation::Remove { members: Items::one(b"m") })));
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"a"), "9");
    assert_eq!(world.one(members(b"set")), "[m]", "although the snapshot or somebody else had it meanwhile");
}

#[test]
fn a_member_that_was_found_and_removed_since_is_a_conflict() {
    let mut world = world();
    world.one(add(b"set", b"m"));
    world.begin(1);
    assert_eq!(world.within(1, add(b"set", b"m")), "0");
    world.within(1, set(b"a", b"9"));
    world.one(keyed(b"set", Operation::Set(sets::Operation::Remove { members: Items::one(b"m") })));
    assert_eq!(world.commit(1), conflict("set"));
}

#[test]
fn a_read_only_transaction_refuses_writes_and_always_commits() {
    let mut world = world();
    let request = Request::Begin { session: SessionId(1), read_only: true, watched: false };
    assert_eq!(shown(&world.ask(request)), "OK");
    assert_eq!(world.within(1, get(b"a")), "1");
    let refusal = "ERR the transaction was begun READONLY; writes are refused";
    assert_eq!(world.within(1, set(b"a", b"9")), refusal);
    assert_eq!(world.within(1, blind(increment(b"n", 1))), refusal);
    world.one(set(b"a", b"2"));
    world.many(0, false, &[Step::Flush]);
    assert_eq!(world.within(1, get(b"a")), "1");
    assert_eq!(world.commit(1), "OK");
}

#[test]
fn a_session_has_one_transaction() {
    let mut world = world();
    world.begin(1);
    let again = Request::Begin { session: SessionId(1), read_only: false, watched: false };
    assert!(shown(&world.ask(again)).starts_with("ERR a transaction is already open"));
    assert_eq!(world.transactions.len(), 1);
    world.ask(Request::Close { session: SessionId(1) });
    assert!(world.transactions.is_empty() && !world.retains());
    assert_eq!((world.within(2, get(b"a")), world.commit(2)), (NONE.into(), NONE.into()));
}

#[test]
fn an_operations_own_error_stops_nothing() {
    let mut world = world();
    world.begin(1);
    assert!(world.within(1, add(b"a", b"m")).starts_with("WRONGTYPE"));
    assert_eq!(world.within(1, set(b"b", b"9")), "OK");
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"b"), "9");
}

#[test]
fn the_refusal_of_a_type_is_an_observation() {
    let mut world = world();
    world.begin(1);
    assert!(world.within(1, add(b"a", b"m")).starts_with("WRONGTYPE"));
    world.within(1, set(b"b", b"9"));
    world.one(delete(b"a"));
    assert_eq!(world.commit(1), conflict("a"));
}

#[test]
fn a_lease_ends_after_a_minute() {
    let mut world = world();
    world.begin(1);
    world.advance(Duration::from_secs(30));
    world.begin(2);
    world.one(set(b"a", b"2"));
    assert_eq!(world.transactions.deadline().map(|at| at - world.now.instant), Some(Duration::from_secs(30)));
    world.advance(Duration::from_secs(30));
    world.expire_leases();
    let text =
        "SNAPSHOTTOOOLD the transaction was open for more than 60 seconds and was given up; begin it again";
    assert_eq!(world.within(1, get(b"a")), text);
    assert_eq!(world.commit(1), text);
    assert_eq!(world.within(2, get(b"a")), "1", "the other one has half a minute left");
    assert!(world.retains());
    world.begin(1);
    assert_eq!(world.within(1, get(b"a")), "2");
    world.advance(Duration::from_secs(60));
    world.expire_leases();
    assert!(world.transactions.is_empty() && !world.retains() && world.transactions.deadline().is_none());
    world.abort(1);
    assert_eq!(world.commit(1), NONE, "an abort acknowledges that it was given up");
    world.ask(Request::Close { session: SessionId(2) });
    assert_eq!(world.commit(2), NONE);
}

#[test]
fn the_oldest_snapshot_sets_the_horizon() {
    let mut world = world();
    world.begin(1);
    world.one(set(b"a", b"2"));
    world.begin(2);
    world.one(set(b"a", b"3"));
    assert_eq!((world.within(1, get(b"a")), world.within(2, get(b"a"))), ("1".into(), "2".into()));
    world.abort(1);
    assert_eq!(world.within(2, get(b"a")), "2");
    assert!(world.retains());
    world.abort(2);
    assert!(!world.retains());
    world.idle(1);
    assert_eq!(world.value(b"a"), "3");
    world.state();
}
