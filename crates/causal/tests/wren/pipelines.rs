//! Commands of a pipeline that run as one transaction: what a client sees is as if they had run one by one.

use crate::wren::client::{Client, GET, increment, key_in, on};
use crate::wren::operations::{DELETE, pop, push, write, write_if_absent};
use crate::wren::world::{World, coordinator, replica};
use anabranch_causal::wren::Options;
use checker::render;
use datatypes::Operation;
use protocol::{KeyedOperation, Request};
use types::{RequestId, Rng};

fn world(seed: u64) -> World {
    let mut world = World::new(2, 2, 1, Options::default(), seed);
    world.run_ms(200);
    world
}

/// Sends everything at once and waits for all replies.
fn pipeline(client: Client, world: &mut World, commands: &[(String, Operation<'_>)]) -> Vec<String> {
    let send = |(key, operation): &(String, Operation<'_>)| {
        let operation = on(key, operation.clone());
        world.request(client.at, Request::One { session: client.session, operation })
    };
    let requests: Vec<RequestId> = commands.iter().map(send).collect();
    requests.into_iter().map(|id| render(&world.await_reply(id))).collect()
}

/// A command on one of three keys of two partitions, of which one may hold a list.
fn draw(random: &mut Rng) -> (usize, Operation<'static>) {
    let key = random.usize(..3);
    let operation = match random.u32(..12) {
        0..4 => GET,
        4..7 => write(["1", "2", "x"][random.usize(..3)]),
        7 => write_if_absent("5"),
        8 => increment(3),
        9 => push("e"),
        10 => pop(),
        _ => DELETE,
    };
    (key, operation)
}

#[test]
fn replies_are_those_of_one_command_after_the_other() {
    for seed in 0..30 {
        let (mut together, mut one_by_one) = (world(seed), world(seed));
        let client = Client::new(coordinator(0, 0), 1);
        let keys = [key_in(0, 2, "k"), key_in(0, 2, "l"), key_in(1, 2, "k")];
        let mut random = Rng::with_seed(seed);
        for _ in 0..12 {
            let drawn = (0..random.usize(1..40)).map(|_| draw(&mut random));
            let commands: Vec<(String, Operation<'static>)> =
                drawn.map(|(key, operation)| (keys[key].clone(), operation)).collect();
            let one_by_one =
                commands.iter().map(|(key, operation)| client.one(&mut one_by_one, key, operation.clone()));
            let one_by_one: Vec<String> = one_by_one.collect();
            assert_eq!(pipeline(client, &mut together, &commands), one_by_one, "seed {seed}: {commands:?}");
        }
    }
}

/// Writes of a pipeline become visible in their order, in every region.
#[test]
fn nobody_sees_a_later_command_without_an_earlier_one() {
    let mut world = world(3);
    let (first, second) = (key_in(1, 2, "first"), key_in(0, 2, "second"));
    let writer = Client::new(coordinator(0, 0), 1);
    let readers = [Client::new(coordinator(1, 0), 7), Client::new(coordinator(0, 0), 8)];
    for round in 1..80 {
        let value = round.to_string();
        let commands = [&first, &second].map(|key| (key.clone(), write(&value)));
        for (key, operation) in &commands {
            let operation = on(key, operation.clone());
            world.request(writer.at, Request::One { session: writer.session, operation });
        }
        for reader in readers {
            let later: i32 = reader.one(&mut world, &second, GET).trim_matches('"').parse().unwrap_or(0);
            let earlier: i32 = reader.one(&mut world, &first, GET).trim_matches('"').parse().unwrap_or(0);
            assert!(earlier >= later, "round {round}: {earlier} {later}");
        }
        world.run_ms(7);
    }
}

#[test]
fn a_pipeline_takes_as_many_transactions_as_a_command() {
    let mut world = world(4);
    let client = Client::new(coordinator(0, 0), 1);
    let key = key_in(0, 2, "n");
    let commands: Vec<(String, Operation<'static>)> = (0..64).map(|_| (key.clone(), increment(1))).collect();
    let began = world.now;
    let replies = pipeline(client, &mut world, &commands);
    assert_eq!(replies.last().map(String::as_str), Some("(integer) 64"));
    assert!(world.now - began < 2_000, "the first alone, then all others: {} us", world.now - began);
}

/// Sends commands at once, behind one that is under way, so that they run as one; waits for their replies.
fn together(client: Client, world: &mut World, commands: &[KeyedOperation<'_>]) -> Vec<String> {
    let ahead = key_in(0, 2, "ahead");
    let ahead = on(&ahead, GET);
    let requests: Vec<RequestId> = std::iter::once(&ahead)
        .chain(commands)
        .map(|operation| {
            world.request(client.at, Request::One { session: client.session, operation: operation.clone() })
        })
        .collect();
    requests[1..].iter().map(|id| render(&world.await_reply(*id))).collect()
}

fn count_up(key: &str) -> KeyedOperation<'_> {
    KeyedOperation { blind: true, ..on(key, increment(1)) }
}

/// Only commands on a partition that is gone fail, and what was done is done once.
#[test]
fn a_partition_that_is_down_fails_its_own_commands_only() {
    let mut world = world(5);
    let client = Client::new(coordinator(0, 0), 1);
    let (up, down) = (key_in(0, 2, "up"), key_in(1, 2, "down"));
    world.crash(replica(0, 1));
    let commands: Vec<KeyedOperation<'_>> = (0..20)
        .map(|number| count_up([&up, &down][number % 2]))
        .chain([on(&up, GET), on(&down, GET)])
        .collect();
    let replies = together(client, &mut world, &commands);
    let silent = "-UNAVAILABLE partition 1 of the region did not answer in time; nothing was done";
    for (number, reply) in replies[..20].iter().enumerate() {
        assert_eq!(reply, ["OK", silent][number % 2], "{number}");
    }
    assert_eq!(replies[20..], ["\"10\"", silent]);
    // What waits behind has not waited for its own turn.
    let reads = [on(&down, GET), on(&up, write_if_absent("x")), on(&up, GET)];
    assert_eq!(together(client, &mut world, &reads), [silent, "(nil)", "\"10\""]);
    world.start(replica(0, 1));
    world.run_ms(3_000);
    assert_eq!(client.one(&mut world, &down, GET), "(nil)");
    assert_eq!(client.one(&mut world, &up, GET), "\"10\"");
}

/// Where the only partition that is written is gone, it is in doubt what it did; what was read elsewhere is known.
#[test]
fn reads_are_answered_although_writes_are_in_doubt() {
    let mut world = world(6);
    let client = Client::new(coordinator(0, 0), 1);
    let (up, down) = (key_in(0, 2, "up"), key_in(1, 2, "down"));
    client.one(&mut world, &up, write("v"));
    world.crash(replica(0, 1));
    let commands = [on(&up, GET), on(&down, write("1"))];
    let replies = together(client, &mut world, &commands);
    assert_eq!(replies[0], "\"v\"");
    assert!(replies[1].starts_with("-UNKNOWNOUTCOME partition 1"), "{replies:?}");
    world.start(replica(0, 1));
    world.run_ms(3_000);
    let other = Client::new(coordinator(0, 0), 2);
    let seen = other.one(&mut world, &down, GET);
    assert!(["\"1\"", "(nil)"].contains(&&*seen), "{seen}");
    assert_eq!(client.one(&mut world, &down, write("2")), "OK", "the session goes on");
    assert_eq!(client.one(&mut world, &down, GET), "\"2\"");
}

/// A command that cannot be done does not keep the others from being done: they have all failed, and run one by one.
#[test]
fn what_a_partition_refuses_runs_one_by_one() {
    let mut world = world(7);
    let client = Client::new(coordinator(0, 0), 1);
    let keys = [key_in(0, 2, "up"), key_in(1, 2, "down")];
    world.destroy(replica(0, 1));
    world.cut(0, 1);
    world.start_from(replica(0, 1), false);
    world.run_ms(20);
    let commands: Vec<KeyedOperation<'_>> = (0..8).map(|number| count_up(&keys[number % 2])).collect();
    let replies = together(client, &mut world, &commands);
    for (number, reply) in replies.iter().enumerate() {
        match number % 2 {
            0 => assert_eq!(reply, "OK"),
            _ => assert!(reply.starts_with("-UNAVAILABLE"), "{reply}"),
        }
    }
    assert_eq!(client.one(&mut world, &keys[0], GET), "\"4\"");
}
