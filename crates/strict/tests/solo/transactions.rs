//! Interactive transactions.

use crate::solo::world::{World, blind, delete, get, increment, keyed, set, shown};
use datatypes::{Items, Operation, register, set as sets, user};
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

fn remove<'a>(name: &'a [u8], members: Items<'a>) -> KeyedOperation<'a> {
    keyed(name, Operation::Set(sets::Operation::Remove { members }))
}

fn contains<'a>(name: &'a [u8], member: &'a [u8]) -> KeyedOperation<'a> {
    keyed(name, Operation::Set(sets::Operation::Contains { member }))
}

fn append<'a>(name: &'a [u8], value: &'a [u8]) -> KeyedOperation<'a> {
    keyed(name, Operation::Register(register::Operation::Append { value }))
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

/// The reply to a session on whether `k` holds `m`, after it appended to `k` without looking.
fn contained_after_append(world: &mut World, session: u64) -> String {
    world.begin(session);
    assert_eq!(world.within(session, blind(append(b"k", b"x"))), "OK");
    world.within(session, contains(b"k", b"m"))
}

/// The snapshot has no key, so that the APPEND makes a string; at the commit there is a set, which it leaves alone.
#[test]
fn a_refusal_because_of_an_own_blind_effect_is_overtaken_by_whoever_makes_the_key_before() {
    let mut world = world();
    assert!(contained_after_append(&mut world, 1).starts_with("WRONGTYPE"));
    world.one(add(b"k", b"other"));
    assert_eq!(world.commit(1), conflict("k"));
    assert_eq!(world.one(members(b"k")), "[other]");
}

/// The snapshot has a set, which the APPEND leaves alone; at the commit there is no key, and it would make a string.
#[test]
fn a_reply_behind_a_blind_effect_of_another_type_is_overtaken_by_whoever_removes_the_key() {
    let mut world = world();
    world.one(add(b"k", b"other"));
    assert_eq!(contained_after_append(&mut world, 1), "0");
    world.one(remove(b"k", Items::one(b"other")));
    assert_eq!(world.commit(1), conflict("k"));
}

#[test]
fn a_reply_behind_blind_effects_of_its_own_type_is_overtaken_by_what_changes_it_only() {
    let mut world = world();
    for session in [1, 2] {
        world.begin(session);
        assert_eq!(world.within(session, blind(add(b"k", b"n"))), "OK");
        assert_eq!(world.within(session, contains(b"k", b"m")), "0");
    }
    world.one(add(b"k", b"other"));
    assert_eq!(world.commit(1), "OK");
    world.one(add(b"k", b"m"));
    assert_eq!(world.commit(2), conflict("k"));
}

#[test]
fn a_reply_behind_a_write_that_replaces_the_key_does_not_depend_on_others() {
    let mut world = world();
    world.begin(1);
    world.within(1, blind(append(b"k", b"x")));
    world.within(1, set(b"k", b"1"));
    assert!(world.within(1, contains(b"k", b"m")).starts_with("WRONGTYPE"));
    world.one(add(b"k", b"other"));
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"k"), "1");
}

/// The auction's module says that a leader stays one when the auction closes; but whose bid comes after that never leads.
#[test]
fn a_reply_of_a_user_defined_type_behind_a_blind_effect_is_overtaken_by_any_change() {
    let auction = user::register("auction", 1, usertypes::Module::native::<auction::Auction>());
    let auction = auction.expect("it is the only one");
    let call = |name: &str, arguments: &[&[u8]]| {
        let operation = user::Operation::new(auction, name.as_bytes(), arguments);
        keyed(b"k", Operation::User(operation.expect("it has such an operation")))
    };
    let mut world = world();
    world.begin(1);
    assert_eq!(world.within(1, blind(call("bid", &[b"ann", b"5"]))), "OK");
    assert_eq!(world.within(1, call("leader", &[])), "[ann 5]");
    world.one(call("close", &[]));
    assert_eq!(world.commit(1), conflict("k"));
    assert_eq!(world.one(call("leader", &[])), "nil");
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
