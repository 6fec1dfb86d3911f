//! The log and the checkpoint: what a partition had it has again.

use super::client::{Client, increment};
use super::operations::{add, remove};
use super::scenes::{client, get, get_trans, key, options, partition, set, world};
use super::world::{World, coordinator, replica};
use anabranch_causal::cops::{Options, Record};
use protocol::Request;
use std::time::Duration;
use types::{Address, Reader, Timestamp};

fn restart(world: &mut World, at: Address) {
    world.crash(at);
    world.run_ms(20);
    world.start(at);
    world.run_ms(300);
}

/// What is in the cells, what is above, what other regions lack; also what comes between the pieces.
#[test]
fn a_checkpoint_holds_everything() {
    for transactions in [false, true] {
        let mut world = world(2, options(transactions, None));
        let (own, there) = (client(0, 1), client(1, 2));
        let (x, y) = (key(0), key(1));
        own.one(&mut world, "n", increment(3));
        set(&mut world, own, &x, "folded");
        world.run_ms(500);
        world.cut(0, 1);
        set(&mut world, own, &x, "x");
        set(&mut world, own, &y, "y");
        own.one(&mut world, "n", increment(1));
        let mut pieces = 0;
        for index in 0..3 {
            pieces += world.checkpoint_beside(replica(0, index), |world| {
                own.one(world, "n", increment(1));
            });
        }
        (0..3).for_each(|index| restart(&mut world, replica(0, index)));
        let count = (4 + pieces).to_string();
        assert_eq!((get(&mut world, own, &x), get(&mut world, own, "n")), ("x".into(), count.clone()));
        world.heal();
        world.run_ms(500);
        assert_eq!((get(&mut world, there, &x), get(&mut world, there, &y)), ("x".into(), "y".into()));
        assert_eq!(get(&mut world, there, "n"), count);
        if transactions {
            assert_eq!(get_trans(&mut world, there, &[&x, &y]), ["x", "y"]);
        }
    }
}

/// A copy that follows applies the leader's records, as a recovery does: they say what is stable, and what other regions have.
#[test]
fn who_follows_a_leader_keeps_no_more_than_it_does() {
    let left_by_records = |copied: bool| {
        let lease = Duration::from_millis(300);
        let mut world = world(2, Options { copied, lease, ..options(true, None) });
        for number in 0..10 {
            set(&mut world, client(0, 1), &key(0), &number.to_string());
        }
        world.run_ms(1_500);
        let at = replica(0, 0);
        let leader = partition(&world, at).retained(key(0).as_bytes());
        world.crash(at);
        world.start(at);
        let follower = partition(&world, at);
        let retained = follower.retained(key(0).as_bytes());
        (retained <= leader, follower.unreceived(), follower.stable() > Timestamp::ZERO)
    };
    assert_eq!(left_by_records(true), (true, 0, true));
    assert_eq!(left_by_records(false), (false, 0, false), "it learns the rest again");
}

/// Who did what is in a checkpoint, too, while effects may come that have not observed it.
#[test]
fn concurrent_effects_merge_after_a_checkpoint() {
    let mut world = world(2, Options::default());
    let (own, there) = (client(0, 1), client(1, 2));
    own.one(&mut world, &key(0), add("member"));
    world.run_ms(300);
    world.cut(0, 1);
    there.one(&mut world, &key(0), add("member"));
    own.one(&mut world, &key(0), remove("member"));
    world.run_ms(300);
    (0..2).for_each(|region| world.checkpoint(replica(region, 0)));
    (0..2).for_each(|region| restart(&mut world, replica(region, 0)));
    world.heal();
    world.run_ms(500);
    for client in [own, there] {
        assert!(client.one(&mut world, &key(0), super::operations::MEMBERS).contains("member"));
    }
}

/// Corrections 49: after a restart a partition recognizes a put that a coordinator without an answer repeats.
#[test]
fn a_put_is_known_after_a_restart() {
    for checkpointed in [false, true] {
        let mut world = world(1, Options::default());
        let own = Client::new(coordinator(0, 0), 1);
        (0..3).for_each(|index| world.part(replica(0, index), own.at));
        let operation = super::client::on("n", increment(1));
        let id = world.request(own.at, Request::One { session: own.session, operation });
        world.run_ms(50);
        for index in 0..3 {
            if checkpointed {
                world.checkpoint(replica(0, index));
            }
            restart(&mut world, replica(0, index));
        }
        world.heal();
        drop(world.await_reply(id));
        assert_eq!(get(&mut world, own, "n"), "1");
    }
}

/// What has arrived and waits is in no log: it is sent again.
#[test]
fn what_waits_is_sent_again() {
    let mut world = world(2, Options::default());
    let (own, there) = (client(0, 1), client(1, 2));
    world.part(replica(0, 0), replica(1, 0));
    set(&mut world, own, &key(0), "photo");
    set(&mut world, own, &key(1), "album");
    world.run_ms(300);
    world.checkpoint(replica(1, 1));
    restart(&mut world, replica(1, 1));
    assert_eq!(partition(&world, replica(1, 1)).waiting(), 1);
    world.heal();
    world.run_ms(500);
    assert_eq!(get(&mut world, there, &key(1)), "album");
}

/// In COPS-GT: how many causes the latest checkpoint of a partition holds.
fn reported_dependencies(world: &mut World, at: Address) -> usize {
    let mut dependencies = 0;
    for chunk in &world.host(at).snapshot {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            let record =
                Record::decode(&mut Reader::new(reader.bytes().expect("a record"))).expect("a record");
            dependencies += usize::from(matches!(record, Record::RetainedDependencies(..)));
        }
    }
    dependencies
}

/// While a region is cut off, what versions depend on grows with what is written. No step tells all of it.
#[test]
fn dependencies_are_sent_in_pieces() {
    let mut world = world(2, options(true, None));
    let (own, at) = (client(0, 1), replica(0, 0));
    world.cut(0, 1);
    for number in 0..1_500 {
        set(&mut world, own, &key(1), &number.to_string());
        set(&mut world, own, &key(0), &number.to_string());
    }
    for _ in 0..2 {
        world.checkpoint(at);
        let longest = world.host(at).snapshot.iter().map(Vec::len).max();
        assert!(longest.is_some_and(|longest| longest < 80_000), "{longest:?} bytes in a step");
        assert!(reported_dependencies(&mut world, at) >= 2_999);
        restart(&mut world, at);
    }
    assert_eq!(get_trans(&mut world, own, &[&key(0), &key(1)]), ["1499", "1499"]);
}
