//! Section 5.1: what nobody needs is forgotten.

use super::client::step;
use super::operations::write;
use super::scenes::{client, get, get_trans, key, nearest, options, partition, set, world};
use super::world::{EPOCH, replica};
use anabranch_causal::cops::Options;
use datatypes::{Operation, key as of_key};
use protocol::Request;

#[test]
fn what_every_region_has_written_is_no_dependency() {
    let mut world = world(3, Options::default());
    let (own, other) = (client(0, 1), client(0, 2));
    set(&mut world, own, &key(0), "v");
    get(&mut world, other, &key(0));
    assert_eq!(nearest(&world, other), 1);
    world.run_ms(500);
    get(&mut world, other, &key(0));
    assert_eq!(nearest(&world, other), 0, "it is flagged");
}

/// While a region is cut off, nothing is flagged.
#[test]
fn a_region_that_is_cut_off_holds_dependencies_up() {
    let mut world = world(3, Options::default());
    let (own, other) = (client(0, 1), client(0, 2));
    world.cut(0, 2);
    set(&mut world, own, &key(0), "v");
    world.run_ms(500);
    get(&mut world, other, &key(0));
    assert_eq!(nearest(&world, other), 1);
    world.heal();
    world.run_ms(500);
    get(&mut world, other, &key(0));
    assert_eq!(nearest(&world, other), 0);
}

#[test]
fn versions_are_forgotten_when_no_transaction_may_ask_for_them() {
    let lease = std::time::Duration::from_millis(300);
    let mut world = world(2, Options { lease, ..options(true, None) });
    let own = client(0, 1);
    (0..20).for_each(|number| set(&mut world, own, &key(0), &number.to_string()));
    assert!(partition(&world, replica(0, 0)).retained(key(0).as_bytes()) > 0);
    world.run_ms(500);
    set(&mut world, own, &key(0), "last");
    world.run_ms(500);
    assert_eq!(partition(&world, replica(0, 0)).retained(key(0).as_bytes()), 0);
    assert_eq!(get_trans(&mut world, own, &[&key(0), &key(1)]), ["last", "(nil)"]);
}

/// The queue of a region that does not answer has an end; then writes are refused, and reads go on.
#[test]
fn writes_that_no_region_takes_are_refused_in_the_end() {
    let mut world = world(2, Options { queue_bytes: 2_000, ..Options::default() });
    let (own, there) = (client(0, 1), client(1, 2));
    world.cut(0, 1);
    let put =
        |world: &mut super::world::World, number: u32| own.one(world, &key(0), write(&number.to_string()));
    let refused = (0..100).map(|number| put(&mut world, number)).find(|reply| reply != "OK");
    let refused = refused.expect("the queue is full");
    assert!(refused.contains("for regions that do not answer"), "{refused}");
    let last = get(&mut world, own, &key(0));
    world.heal();
    world.run_ms(500);
    assert_eq!(get(&mut world, there, &key(0)), last);
    assert_eq!(put(&mut world, 7), "OK");
}

/// Corrections 69: what deletes a key whose deadline has passed is of nobody's session, and nobody repeats it.
#[test]
fn expired_keys_leave_nothing_behind() {
    let mut world = world(2, Options::default());
    let own = client(0, 1);
    let at_millis = (EPOCH + world.now) / 1000 + 100;
    let deadline = Operation::Key(of_key::Operation::ExpireAt { at_millis, condition: Default::default() });
    for number in 0..10 {
        let key = super::client::key_in(0, super::scenes::PARTITIONS, &format!("key{number}-"));
        own.many(&mut world, &[step(&key, write("v")), step(&key, deadline.clone())]);
    }
    world.run_ms(3_000);
    for region in 0..2 {
        let remembered = partition(&world, replica(region, 0)).remembered();
        assert!(remembered <= 1, "{remembered}: the last put may be repeated, and nothing else");
    }
}

/// A put in doubt at a partition that is down holds no answers of the others, and ends when its client has gone.
#[test]
fn a_put_in_doubt_holds_up_no_other_partition() {
    let mut world = world(1, Options::default());
    let (own, other) = (client(0, 1), client(0, 3));
    assert_eq!(own.at, other.at);
    (0..3).for_each(|index| set(&mut world, own, &key(index), "v"));
    world.crash(replica(0, 0));
    let reply = own.one(&mut world, &key(0), write("in doubt"));
    assert!(reply.starts_with("-UNKNOWNOUTCOME"), "{reply}");
    (0..20).for_each(|_| set(&mut world, other, &key(1), "w"));
    assert_eq!(partition(&world, replica(0, 1)).remembered(), 1);
    let coordinator =
        |world: &super::world::World| world.node(own.at).as_coordinator().expect("one").unsettled();
    assert_eq!(coordinator(&world), 1);
    let _closed = world.request(own.at, Request::Close { session: own.session });
    world.run_ms(2_000);
    assert_eq!(coordinator(&world), 0);
}
