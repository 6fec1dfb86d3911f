//! A log that fails: what it did not take has never been, writes are refused, reads go on.

use crate::solo::for_all;
use crate::solo::traffic::{Traffic, call, perform, traffic};
use crate::solo::world::{START_MILLIS, World, get, increment, set, set_until, shown};
use datatypes::register::Deadline;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Durability, Request, Step};
use types::SessionId;

#[derive(Clone, Debug)]
enum Event {
    Traffic(Traffic),
    WriteOut,
    /// The log refuses, these are attempted, and it is healed.
    Refuse(Vec<Traffic>),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let refused = vec(call().prop_map(Traffic::One), 0..4);
    vec(
        prop_oneof![
            20 => traffic().prop_map(Event::Traffic),
            2 => Just(Event::WriteOut),
            1 => refused.prop_map(Event::Refuse),
        ],
        1..80,
    )
}

#[test]
fn a_refusal_leads_back_to_the_last_state_that_was_logged() {
    for_all(400, (events(), vec(traffic(), 0..15)), |(events, after)| {
        let mut world = World::new(3, Durability::Written);
        world.writes_through = false;
        let mut durable = world.state();
        for event in events {
            match event {
                Event::Traffic(traffic) => drop(perform(&mut world, &traffic)),
                Event::WriteOut => {
                    world.write_out();
                    durable = world.state();
                }
                Event::Refuse(attempts) => {
                    world.refuse();
                    prop_assert_eq!(&world.state(), &durable);
                    attempts.iter().for_each(|attempt| drop(perform(&mut world, attempt)));
                    prop_assert!(world.pending.is_empty(), "a fenced partition logs nothing");
                    prop_assert_eq!(&world.state(), &durable);
                    world.heal();
                }
            }
        }
        world.write_out();
        prop_assert_eq!(World::recovered(3, &[], &world.log).state(), world.state());
        let (beginning, pieces) = (world.log.len(), world.checkpoint());
        after.iter().for_each(|traffic| drop(perform(&mut world, traffic)));
        world.write_out();
        prop_assert_eq!(World::recovered(3, &pieces, &world.log[beginning..]).state(), world.state());
        Ok(())
    });
}

fn failed() -> World {
    let mut world = World::new(2, Durability::Written);
    world.one(set(b"a", b"1"));
    world.one(set_until(b"dies", b"1", Deadline::At { millis: START_MILLIS + 50 }));
    world.writes_through = false;
    world.one(increment(b"a", 1));
    world.refuse();
    world
}

const MISCONF: &str = "MISCONF the log cannot be written (disk full or I/O error, see the server's log); \
    writes are refused until it can, reads go on";

#[test]
fn while_the_log_is_failed_writes_are_refused_and_reads_go_on() {
    let mut world = failed();
    assert_eq!(world.value(b"a"), "1");
    assert_eq!(world.one(set(b"a", b"2")), MISCONF);
    assert_eq!(world.one(crate::solo::world::blind(increment(b"a", 1))), MISCONF);
    assert_eq!(world.many(0, false, &[Step::Key(get(b"a")), Step::Count]), "1 2");
    let mixed = [Step::Key(get(b"a")), Step::Key(set(b"b", b"2"))];
    assert_eq!(world.many(0, false, &mixed), MISCONF, "all or nothing");
    assert_eq!(world.many(0, false, &[Step::Flush]), MISCONF);
    world.heal();
    assert_eq!(world.many(0, false, &mixed), "1 OK");
    assert_eq!(world.value(b"b"), "2");
}

#[test]
fn while_the_log_is_failed_expired_keys_read_as_absent_and_wait_for_their_deletion() {
    let mut world = failed();
    world.advance_millis(60);
    assert_eq!(world.value(b"dies"), "nil");
    world.idle(3);
    assert!(world.pending.is_empty(), "neither readers nor housekeeping log a deletion");
    assert_eq!(world.many(0, false, &[Step::Count]), "2");
    world.heal();
    world.idle(1);
    assert_eq!(world.many(0, false, &[Step::Count]), "1");
}

#[test]
fn one_partition_that_is_still_fenced_refuses_the_writes_of_all() {
    let mut world = World::new(2, Durability::Written);
    let names: Vec<Vec<u8>> = (0..20u8).map(|key| vec![key]).collect();
    let [first, second] =
        [0, 1].map(|index| names.iter().find(|name| world.index_of(name) == index).expect("one of twenty"));
    assert!(world.replicas[1].refused(0));
    let steps = [Step::Key(set(first, b"1")), Step::Key(set(second, b"1"))];
    assert_eq!(world.many(0, false, &steps), MISCONF);
    assert_eq!(world.many(0, false, &[Step::Flush]), MISCONF);
    assert_eq!(world.many(0, false, &[Step::Count]), "0");
    world.begin(1);
    world.within(1, set(first, b"1"));
    assert_eq!(world.commit(1), MISCONF, "a commit is refused as a whole");
    assert_eq!(world.one(set(first, b"1")), "OK", "a single write of another partition is not");
}

#[test]
fn a_flush_that_is_refused_brings_everything_back() {
    let mut world = World::new(2, Durability::Written);
    (0..500u32).for_each(|key| drop(world.one(set(&key.to_be_bytes(), b"v"))));
    world.one(set_until(b"dies", b"1", Deadline::At { millis: START_MILLIS + 50_000 }));
    let before = world.state();
    world.writes_through = false;
    assert_eq!(world.many(0, false, &[Step::Flush]), "OK");
    world.one(set(b"new", b"v"));
    world.begin(1);
    world.one(set(b"newer", b"v"));
    world.idle(1);
    world.refuse();
    assert_eq!(world.state(), before);
    world.heal();
    world.abort(1);
    world.idle(3);
    assert_eq!(world.state(), before);
}

#[test]
fn what_a_commit_did_is_taken_back_although_its_snapshot_has_ended() {
    let mut world = World::new(2, Durability::Written);
    world.one(set(b"a", b"1"));
    world.writes_through = false;
    world.begin(1);
    world.within(1, increment(b"a", 1));
    assert_eq!(world.commit(1), "OK");
    assert_eq!(world.value(b"a"), "2");
    assert!(world.retains(), "the history is needed until the log has the effect");
    world.refuse();
    assert_eq!(world.value(b"a"), "1");
    assert!(!world.retains());
}

#[test]
fn histories_end_when_the_log_has_everything() {
    let mut world = World::new(2, Durability::Written);
    world.writes_through = false;
    world.begin(1);
    world.one(set(b"a", b"1"));
    world.one(set(b"b", b"1"));
    world.abort(1);
    assert!(world.retains());
    world.write_out();
    assert!(!world.retains());
    world.one(set(b"a", b"2"));
    world.refuse();
    assert_eq!(world.value(b"a"), "1");
}

#[test]
fn a_transaction_that_may_have_read_what_was_refused_is_given_up() {
    let mut world = World::new(2, Durability::Written);
    world.one(set(b"a", b"1"));
    world.writes_through = false;
    world.one(increment(b"a", 1));
    world.begin(1);
    world.begin(2);
    assert_eq!(world.within(1, get(b"a")), "2");
    world.within(1, set(b"copy", b"2"));
    world.refuse();
    world.heal();
    assert!(world.commit(1).starts_with("CONFLICT"), "it copied a value that never was");
    assert_eq!(world.value(b"copy"), "nil");
    assert!(world.within(2, get(b"a")).starts_with("CONFLICT"));
    assert_eq!(world.within(2, get(b"a")), "ERR no transaction is open in this session");
    world.begin(2);
    assert_eq!(world.within(2, get(b"a")), "1");
}

#[test]
fn a_refused_change_touches_watches_again() {
    let mut world = World::new(2, Durability::Written);
    world.one(set(b"a", b"1"));
    world.writes_through = false;
    world.one(increment(b"a", 1));
    world.watch(1, &[b"a"]);
    assert_eq!(world.value(b"a"), "2");
    world.refuse();
    world.heal();
    assert_eq!(world.many(1, true, &[Step::Key(get(b"a"))]), "stopped");
}

#[test]
fn a_keyspace_that_stops_logging_takes_back_in_order() {
    let mut world = World::new(1, Durability::Written);
    world.one(set(b"a", b"1"));
    world.writes_through = false;
    world.one(set(b"a", b"2"));
    world.replicas[0].protocol_mut().set_durability(Durability::Volatile);
    world.one(set(b"a", b"3"));
    assert_eq!(world.pending.len(), 1);
    world.refuse();
    assert_eq!(world.value(b"a"), "1", "what came after the refused change goes with it");
    world.heal();
    world.one(set(b"a", b"4"));
    assert_eq!(world.value(b"a"), "4");
}

#[test]
fn a_session_may_end_while_the_log_is_failed() {
    let mut world = failed();
    world.begin(1);
    assert_eq!(shown(&world.ask(Request::Close { session: SessionId(1) })), "");
    assert!(world.transactions.is_empty() && !world.retains());
}
