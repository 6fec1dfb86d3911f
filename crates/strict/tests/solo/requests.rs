//! Every kind of request on one partition.

use crate::solo::world::{World, blind, delete, get, increment, keyed, set, shown};
use datatypes::{Items, Operation, set as sets};
use protocol::{Durability, Input, Request, Step};
use types::{ReplyBuf, RequestId, Rng, SessionId};

const SESSION: SessionId = SessionId(7);

fn add<'a>(name: &'a [u8], member: &'a [u8]) -> protocol::KeyedOperation<'a> {
    keyed(name, Operation::Set(sets::Operation::Add { members: Items::one(member) }))
}

/// A request to the partition itself, as a driver with one partition may send it.
fn direct(world: &mut World, request: Request<'_>) -> String {
    let mut inbox = crate::solo::world::Inbox::default();
    let mut batch = vec![Input::Request { id: RequestId(1), request }];
    world.replicas[0].step(world.now, &mut batch, &mut Rng::with_seed(1), &mut inbox);
    shown(&inbox.0)
}

#[test]
fn one_operation_replies_and_logs_its_effect_before() {
    let mut world = World::new(1, Durability::Written);
    assert_eq!(world.one(set(b"k", b"v")), "OK");
    assert_eq!(world.one(get(b"k")), "v");
    assert_eq!(world.log.len(), 1, "a read logs nothing");
    assert_eq!(world.one(increment(b"k", 1)), "ERR value is not an integer or out of range");
    assert_eq!(
        world.one(add(b"k", b"m")),
        "WRONGTYPE Operation against a key holding the wrong kind of value"
    );
    assert_eq!(world.log.len(), 1, "a refused operation logs nothing");
    assert_eq!((world.one(delete(b"k")), world.one(delete(b"k"))), ("1".into(), "0".into()));
    assert_eq!(world.log.len(), 2, "an operation without an effect logs nothing");
    assert_eq!(world.one(get(b"k")), "nil");
}

#[test]
fn a_reply_waits_for_the_durability_of_its_keyspace() {
    for (durability, written, synced) in
        [(Durability::Volatile, 0, 0), (Durability::Written, 9, 0), (Durability::Synced, 9, 9)]
    {
        let mut world = World::new(1, durability);
        let request = Request::One { session: SESSION, operation: set(b"k", b"v") };
        assert_eq!(direct(&mut world, request), "OK");
        assert_eq!(world.replicas[0].records().is_empty(), durability == Durability::Volatile);
        world.replicas[0].appended(9);
        let gate = world.replicas[0].reply_gate();
        assert_eq!((gate.written, gate.synced), (written, synced));
    }
}

#[test]
fn blind_operations_reply_ok_or_their_error_and_nothing_else() {
    let mut world = World::new(1, Durability::Written);
    assert_eq!(world.one(blind(increment(b"n", 5))), "OK");
    assert_eq!(world.one(blind(increment(b"n", 2))), "OK");
    assert_eq!(world.one(get(b"n")), "7");
    assert_eq!(world.one(blind(get(b"n"))), "OK", "a blind read tells nothing");
    assert_eq!(world.one(blind(add(b"n", b"m")))[..9], *"WRONGTYPE");
    assert_eq!(world.one(blind(delete(b"n"))), "OK");
    assert_eq!(world.one(blind(delete(b"n"))), "OK");
}

#[test]
fn many_steps_see_the_effects_of_earlier_ones_and_errors_stand_in_their_place() {
    let mut world = World::new(1, Durability::Written);
    let steps = [
        Step::Key(increment(b"n", 1)),
        Step::Key(add(b"n", b"m")),
        Step::Key(increment(b"n", 1)),
        Step::Count,
        Step::Scan { cursor: 0, count: 10 },
        Step::Flush,
        Step::Count,
        Step::Key(get(b"n")),
    ];
    let expected = "1 WRONGTYPE Operation against a key holding the wrong kind of value 2 1 [0 [n]] OK 0 nil";
    let request = Request::Many { session: SESSION, steps: &steps, watched: false, multi: false };
    assert_eq!(direct(&mut world, request), expected);
    assert_eq!(World::new(1, Durability::Written).many(7, false, &steps), expected, "as over partitions");
}

#[test]
fn a_partition_serves_watches_and_refuses_interactive_transactions() {
    let mut world = World::new(1, Durability::Written);
    let hash = crate::solo::world::SEED.hash(b"k");
    let watch = |world: &mut World| {
        assert_eq!(direct(world, Request::Watch { session: SESSION, keys: &[(b"k", hash)] }), "OK");
    };
    let steps = [Step::Key(get(b"k"))];
    let many = Request::Many { session: SESSION, steps: &steps, watched: true, multi: true };
    watch(&mut world);
    assert_eq!(direct(&mut world, many.clone()), "nil");
    watch(&mut world);
    assert_eq!(world.one(set(b"k", b"v")), "OK");
    assert_eq!(direct(&mut world, many.clone()), "stopped");
    assert_eq!(direct(&mut world, many.clone()), "v", "the watches are gone after the transaction");
    watch(&mut world);
    assert_eq!(world.one(set(b"k", b"w")), "OK");
    assert_eq!(direct(&mut world, Request::Unwatch { session: SESSION }), "OK");
    assert_eq!(direct(&mut world, many.clone()), "w");
    watch(&mut world);
    assert_eq!(world.one(set(b"k", b"x")), "OK");
    assert_eq!(
        direct(&mut world, Request::Close { session: SESSION }),
        "",
        "the end of a session has no reply"
    );
    assert_eq!(direct(&mut world, many), "x");
    for request in [
        Request::Begin { session: SESSION, read_only: false, watched: false },
        Request::Operate { session: SESSION, steps: &steps },
        Request::Commit { session: SESSION },
        Request::Abort { session: SESSION },
    ] {
        assert!(direct(&mut world, request).starts_with("ERR interactive transactions"));
    }
}

#[test]
fn a_batch_is_served_in_order() {
    let mut world = World::new(1, Durability::Written);
    let one = |operation| Request::One { session: SESSION, operation };
    let requests = [one(set(b"a", b"1")), one(increment(b"a", 1)), one(get(b"a"))];
    let mut batch: Vec<_> =
        (1..).zip(requests).map(|(id, request)| Input::Request { id: RequestId(id), request }).collect();
    let mut inbox = crate::solo::world::Inbox::default();
    world.replicas[0].step(world.now, &mut batch, &mut Rng::with_seed(1), &mut inbox);
    assert_eq!(shown(&inbox.0), "OK 2 2");
    assert_ne!(inbox.0, ReplyBuf::new());
}
