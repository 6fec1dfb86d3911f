//! What the protocol does not have is refused, with the name of one that has it.

use super::client::{GET, increment, step};
use super::operations::{DELETE, write, write_if_absent};
use super::scenes::{client, get, key, options, set, values, world};
use super::world::{Faults, World, replica};
use anabranch_causal::cops::Options;
use checker::render;

#[test]
fn a_write_to_several_partitions_is_refused_and_does_nothing() {
    let mut world = world(2, options(true, None));
    let own = client(0, 1);
    let reply = own.many(&mut world, &[step(&key(0), write("a")), step(&key(1), write("b"))]);
    assert!(reply.contains("PROTOCOL wren or paris"), "{reply}");
    let reply = own.many(&mut world, &[step(&key(0), GET), step(&key(1), write("b"))]);
    assert!(reply.contains("PROTOCOL wren or paris"), "{reply}");
    assert_eq!(get(&mut world, own, &key(0)), "(nil)");
}

/// The keys of one partition have one primary, which does everything in one step.
#[test]
fn keys_of_a_partition_are_written_together() {
    let mut world = world(2, Options::default());
    let own = client(0, 1);
    let (one, other) = (key(0), super::client::key_in(0, super::scenes::PARTITIONS, "other"));
    let steps =
        [step(&one, write("1")), step(&other, increment(4)), step(&one, increment(1)), step(&one, GET)];
    let id = own.send(&mut world, &steps);
    assert_eq!(values(&world.await_reply(id)), ["OK", "(integer) 4", "(integer) 2", "2"]);
    world.run_ms(200);
    let id = client(1, 2).send(&mut world, &[step(&one, GET), step(&other, GET)]);
    assert_eq!(values(&world.await_reply(id)), ["2", "4"]);
}

#[test]
fn reads_of_several_partitions_need_the_option() {
    let mut world = world(2, Options::default());
    let reply = client(0, 1).many(&mut world, &[step(&key(0), GET), step(&key(1), GET)]);
    assert!(reply.contains("TRANSACTIONS on"), "{reply}");
}

#[test]
fn watches_and_interactive_transactions_are_refused() {
    let mut world = world(2, options(true, None));
    let own = client(0, 1);
    assert!(own.watch(&mut world, &key(0)).contains("no WATCH"));
    assert!(own.watched(&mut world, &[step(&key(0), write("v"))]).contains("no WATCH"));
    assert!(own.begin(&mut world).contains("no interactive transactions"));
    assert!(own.operate(&mut world, &key(0), GET).contains("no transaction is open"));
    assert!(own.commit(&mut world).contains("no transaction is open"));
}

/// A client whose error says that nothing was done retries: a copy of the put that is under way must not do it as
/// well.
#[test]
fn a_put_that_was_refused_is_not_written_afterwards() {
    for restarted in [false, true] {
        let mut world = world(2, Options { queue_bytes: 2_000, ..Options::default() });
        let (own, other) = (client(0, 1), client(0, 2));
        world.cut(0, 1);
        let fills = |world: &mut World| other.one(world, &key(0), increment(1)).starts_with("(integer)");
        while fills(&mut world) {}
        let before = get(&mut world, other, &key(0));
        // An answer takes 300 ms, and a copy leaves every 100 ms.
        world.faults.near = (150_000, 150_000);
        let id = own.send(&mut world, &[step(&key(0), increment(1))]);
        world.run_ms(160);
        world.heal();
        if restarted {
            world.crash(replica(0, 0));
            world.start(replica(0, 0));
        }
        let reply = render(&world.await_reply(id));
        assert!(reply.contains("nothing was done"), "{reply}");
        world.run_ms(300);
        world.faults = Faults::NONE;
        assert_eq!(get(&mut world, other, &key(0)), before);
        set(&mut world, own, &key(0), "it is not full any more");
    }
}

/// The same of one that changed nothing, of which the log would not know.
#[test]
fn a_put_that_changed_nothing_is_not_written_afterwards() {
    let mut world = world(1, Options::default());
    let (own, other) = (client(0, 1), client(0, 2));
    set(&mut world, own, &key(0), "before");
    set(&mut world, other, &key(0), "before");
    world.faults.near = (150_000, 150_000);
    let id = own.send(&mut world, &[step(&key(0), write_if_absent("after"))]);
    world.run_ms(1);
    let deletion = other.send(&mut world, &[step(&key(0), DELETE)]);
    world.run_ms(155);
    world.crash(replica(0, 0));
    world.start(replica(0, 0));
    assert_eq!(render(&world.await_reply(id)), "(nil)");
    drop(world.await_reply(deletion));
    world.run_ms(300);
    world.faults = Faults::NONE;
    assert_eq!(get(&mut world, other, &key(0)), "(nil)");
}
