//! Section 5.1: what nobody needs is forgotten.

use super::scenes::{client, get, get_trans, key, nearest, options, partition, set, world};
use super::world::replica;
use anabranch_causal::cops::Options;

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
    assert!(partition(&world, replica(0, 0)).kept(key(0).as_bytes()) > 0);
    world.run_ms(500);
    set(&mut world, own, &key(0), "last");
    world.run_ms(500);
    assert_eq!(partition(&world, replica(0, 0)).kept(key(0).as_bytes()), 0);
    assert_eq!(get_trans(&mut world, own, &[&key(0), &key(1)]), ["last", "(nil)"]);
}

/// The queue of a region that does not answer has an end; then writes are refused, and reads go on.
#[test]
fn writes_that_no_region_takes_are_refused_in_the_end() {
    let mut world = world(2, Options { queue_bytes: 2_000, ..Options::default() });
    let (own, there) = (client(0, 1), client(1, 2));
    world.cut(0, 1);
    let write = |world: &mut super::world::World, number: u32| {
        own.one(world, &key(0), super::operations::write(&number.to_string()))
    };
    let refused = (0..100).map(|number| write(&mut world, number)).find(|told| told != "OK");
    let refused = refused.expect("the queue is full");
    assert!(refused.contains("for regions that do not answer"), "{refused}");
    let last = get(&mut world, own, &key(0));
    world.heal();
    world.run_ms(500);
    assert_eq!(get(&mut world, there, &key(0)), last);
    assert_eq!(write(&mut world, 7), "OK");
}
