//! KEYS, SCAN, DBSIZE and FLUSHDB inside transactions.

use crate::solo::world::{START_MILLIS, World, delete, get, keyed, set, set_until, shown};
use datatypes::register::Deadline;
use datatypes::{Items, Operation, set as sets};
use protocol::{Durability, Request, Step};
use types::SessionId;

fn world() -> World {
    let mut world = World::new(3, Durability::Written);
    for name in [&b"a"[..], b"b", b"c"] {
        world.one(set(name, b"1"));
    }
    world
}

const CONFLICT: &str =
    "CONFLICT keys were created or deleted by a concurrent transaction; retry the transaction";

/// The keys of a reply to KEYS, in order, without spaces.
fn sorted(reply: &str) -> String {
    let mut names: Vec<&str> = reply.trim_matches(['[', ']']).split(' ').collect();
    names.sort_unstable();
    names.concat()
}

fn keys(world: &mut World, session: u64) -> String {
    sorted(&world.operate(session, &[Step::Keys]))
}

fn count(world: &mut World, session: u64) -> String {
    world.operate(session, &[Step::Count])
}

#[test]
fn one_request_lists_the_keys_between_its_own_changes() {
    for partitions in [1, 3] {
        let mut world = World::new(partitions, Durability::Written);
        let steps = [
            Step::Key(set(b"a", b"1")),
            Step::Keys,
            Step::Key(set(b"b", b"1")),
            Step::Keys,
            Step::Flush,
            Step::Keys,
        ];
        let reply = world.many(0, false, &steps);
        assert!(["OK [a] OK [a b] OK []", "OK [a] OK [b a] OK []"].contains(&&*reply), "{reply}");
        world.one(set_until(b"dies", b"1", Deadline::At { millis: START_MILLIS + 10 }));
        world.advance_millis(10);
        assert_eq!(world.many(0, false, &[Step::Keys]), "[]");
    }
}

#[test]
fn a_transaction_sees_the_keys_of_its_snapshot_and_its_own() {
    let mut world = world();
    world.begin(1);
    world.one(set(b"new", b"1"));
    world.one(delete(b"c"));
    assert_eq!((keys(&mut world, 1), count(&mut world, 1)), ("abc".into(), "3".into()));
    world.within(1, set(b"d", b"1"));
    world.within(1, delete(b"a"));
    world.within(1, get(b"b"));
    assert_eq!((keys(&mut world, 1), count(&mut world, 1)), ("bcd".into(), "3".into()));
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let reply = world.operate(1, &[Step::Scan { cursor, count: 1 }]);
        let (next, piece) = reply.trim_start_matches('[').split_once(' ').expect("a cursor and keys");
        found.extend(sorted(piece).into_bytes());
        cursor = next.parse().expect("a cursor");
        if cursor == 0 {
            break;
        }
    }
    found.sort_unstable();
    assert_eq!(found, b"bcd");
    assert_eq!(world.commit(1), CONFLICT);
    assert_eq!(world.value(b"d"), "nil");
}

#[test]
fn what_comes_and_goes_is_a_conflict_and_a_changed_value_is_none() {
    for look in [Step::Keys, Step::Count, Step::Scan { cursor: 0, count: 1 }] {
        let mut outcomes = Vec::new();
        for foreign in [None, Some(set(b"a", b"2")), Some(set(b"x", b"1")), Some(delete(b"a"))] {
            let mut world = world();
            world.begin(1);
            world.operate(1, std::slice::from_ref(&look));
            world.within(1, set(b"mine", b"1"));
            if let Some(foreign) = foreign {
                world.one(foreign);
            }
            outcomes.push(world.commit(1));
        }
        assert_eq!(outcomes, ["OK", "OK", CONFLICT, CONFLICT], "{look:?}");
    }
}

/// Neither removal takes the key away by itself.
#[test]
fn a_set_that_another_removal_empties_beside_the_transactions_own_is_a_conflict() {
    let add = |member| keyed(b"set", Operation::Set(sets::Operation::Add { members: Items::one(member) }));
    let remove =
        |member| keyed(b"set", Operation::Set(sets::Operation::Remove { members: Items::one(member) }));
    for look in [Step::Keys, Step::Count, Step::Scan { cursor: 0, count: 1 }] {
        for (foreign, outcome) in [(None, "OK"), (Some(remove(b"y")), "CONFLICT key 'set'")] {
            let mut world = world();
            world.one(add(b"x"));
            world.one(add(b"y"));
            world.begin(1);
            world.within(1, remove(b"x"));
            world.operate(1, std::slice::from_ref(&look));
            foreign.into_iter().for_each(|foreign| drop(world.one(foreign)));
            let reply = world.commit(1);
            assert!(reply.starts_with(outcome), "{look:?}: {reply}");
        }
    }
}

/// A write that overwrites, or only adds, leaves nothing of what others do that the look could have seen.
#[test]
fn a_key_that_a_transaction_wrote_may_be_written_by_others_beside_its_look() {
    for look in [Step::Keys, Step::Count, Step::Scan { cursor: 0, count: 1 }] {
        let mut world = world();
        world.begin(1);
        world.within(1, set(b"a", b"2"));
        world.operate(1, std::slice::from_ref(&look));
        world.one(set(b"a", b"3"));
        assert_eq!(world.commit(1), "OK", "{look:?}");
    }
}

#[test]
fn a_reader_of_keys_commits_whatever_came() {
    let mut world = world();
    world.begin(1);
    world.one(set(b"x", b"1"));
    assert_eq!(keys(&mut world, 1), "abc");
    assert_eq!(world.commit(1), "OK", "it took place at its snapshot");
}

#[test]
fn a_key_that_expires_meanwhile_is_a_conflict_and_one_that_had_expired_is_none() {
    for (deadline, outcome) in [(10, "OK"), (50, CONFLICT)] {
        let mut world = world();
        world.one(set_until(b"dies", b"1", Deadline::At { millis: START_MILLIS + deadline }));
        world.advance_millis(20);
        world.begin(1);
        let alive = if deadline == 10 { "abc" } else { "abcdies" };
        let expected: String = {
            let mut names: Vec<char> = alive.chars().collect();
            names.sort_unstable();
            names.into_iter().collect()
        };
        let mut seen: Vec<char> = keys(&mut world, 1).chars().collect();
        seen.sort_unstable();
        assert_eq!(seen.into_iter().collect::<String>(), expected);
        world.within(1, set(b"mine", b"1"));
        world.idle(2);
        assert_eq!(world.commit(1), outcome, "deadline {deadline}");
    }
}

#[test]
fn a_flush_inside_a_transaction_removes_everything_when_it_commits() {
    let mut world = world();
    world.begin(1);
    world.within(1, set(b"before", b"1"));
    assert_eq!(world.operate(1, &[Step::Flush, Step::Count, Step::Keys]), "OK 0 []");
    assert_eq!(world.within(1, get(b"a")), "nil");
    world.within(1, set(b"after", b"1"));
    assert_eq!((keys(&mut world, 1), count(&mut world, 1)), ("after".into(), "1".into()));
    assert_eq!(world.value(b"a"), "1", "nobody else sees it yet");
    world.one(set(b"foreign", b"1"));
    world.one(set(b"a", b"2"));
    assert_eq!(world.commit(1), "OK", "it has observed nothing but its own");
    assert_eq!(sorted(&world.many(0, false, &[Step::Keys])), "after");
    assert_eq!(World::recovered(3, &[], &world.log).state(), world.state());
}

#[test]
fn a_flush_does_not_forget_what_was_observed_before_it() {
    let mut world = world();
    world.begin(1);
    assert_eq!(world.within(1, get(b"a")), "1");
    world.operate(1, &[Step::Flush]);
    world.one(set(b"a", b"2"));
    assert!(world.commit(1).starts_with("CONFLICT key 'a'"));
    assert_eq!(world.value(b"b"), "1");
}

#[test]
fn a_read_only_transaction_refuses_a_flush() {
    let mut world = world();
    let request = Request::Begin { session: SessionId(1), read_only: true, watched: false };
    assert_eq!(shown(&world.ask(request)), "OK");
    let refusal = "ERR the transaction was begun READONLY; writes are refused";
    assert_eq!(world.operate(1, &[Step::Flush, Step::Count]), format!("{refusal} 3"));
    assert_eq!(world.commit(1), "OK");
}

#[test]
fn a_flush_that_the_log_refuses_is_taken_back() {
    let mut world = world();
    world.writes_through = false;
    world.begin(1);
    world.operate(1, &[Step::Flush]);
    assert_eq!(world.commit(1), "OK");
    world.refuse();
    assert_eq!(sorted(&world.many(0, false, &[Step::Keys])), "abc");
}

/// What so many draws come to, sorted.
fn drawn(mut draw: impl FnMut() -> String) -> String {
    let found: std::collections::BTreeSet<String> = (0..200).map(|_| draw()).collect();
    found.into_iter().collect()
}

#[test]
fn keys_are_drawn_from_every_partition_and_never_expired_ones() {
    let mut world = world();
    assert_eq!(drawn(|| world.many(0, false, &[Step::Random])), "abc");
    for name in [&b"a"[..], b"b", b"d", b"e"] {
        world.one(set_until(name, b"1", Deadline::At { millis: START_MILLIS + 10 }));
    }
    world.advance_millis(10);
    assert_eq!(drawn(|| world.many(0, false, &[Step::Random])), "c");
    world.one(delete(b"c"));
    assert_eq!(world.many(0, false, &[Step::Random]), "nil");
}

#[test]
fn a_transaction_draws_from_what_it_sees() {
    let mut world = world();
    world.begin(1);
    world.one(set(b"new", b"1"));
    world.one(delete(b"c"));
    assert_eq!(drawn(|| world.operate(1, &[Step::Random])), "abc");
    world.within(1, set(b"d", b"1"));
    world.within(1, delete(b"a"));
    assert_eq!(drawn(|| world.operate(1, &[Step::Random])), "bcd");
    // Which key was drawn is no observation; the keys that came and went are no conflict.
    assert_eq!(world.commit(1), "OK");
    world.begin(1);
    assert_eq!(world.operate(1, &[Step::Flush, Step::Random]), "OK nil");
    world.within(1, set(b"d", b"1"));
    assert_eq!(drawn(|| world.operate(1, &[Step::Random])), "d");
}

#[test]
fn that_there_is_no_key_to_draw_is_an_observation() {
    let mut world = World::new(3, Durability::Written);
    world.begin(1);
    assert_eq!(world.operate(1, &[Step::Random]), "nil");
    world.one(set(b"a", b"1"));
    world.within(1, set(b"b", b"1"));
    assert_eq!(world.commit(1), CONFLICT);
}
