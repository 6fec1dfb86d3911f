//! Commands of a pipeline that run as one transaction: what a client sees is as if they had run one by one.

use crate::client::{Client, DELETE, GET, increment, key_in, on, pop, push, write, write_if_absent};
use crate::world::{World, coordinator, replica};
use anabranch_causal::wren::Options;
use checker::render;
use datatypes::Operation;
use protocol::Request;
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
    let asked: Vec<RequestId> = commands.iter().map(send).collect();
    asked.into_iter().map(|id| render(&world.await_reply(id))).collect()
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
        let (mut together, mut apart) = (world(seed), world(seed));
        let client = Client::new(coordinator(0, 0), 1);
        let keys = [key_in(0, 2, "k"), key_in(0, 2, "l"), key_in(1, 2, "k")];
        let mut random = Rng::with_seed(seed);
        for _ in 0..12 {
            let drawn = (0..random.usize(1..40)).map(|_| draw(&mut random));
            let commands: Vec<(String, Operation<'static>)> =
                drawn.map(|(key, operation)| (keys[key].clone(), operation)).collect();
            let one_by_one =
                commands.iter().map(|(key, operation)| client.one(&mut apart, key, operation.clone()));
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

/// Whoever waits for a partition that is gone is told so.
#[test]
fn every_command_is_answered_when_a_partition_is_down() {
    let mut world = world(5);
    let client = Client::new(coordinator(0, 0), 1);
    world.crash(replica(0, 1));
    let keys = [key_in(0, 2, "up"), key_in(1, 2, "down")];
    let commands: Vec<(String, Operation<'static>)> =
        (0..20).map(|number| (keys[number % 2].clone(), write("v"))).collect();
    for reply in pipeline(client, &mut world, &commands) {
        let (known, error) =
            (reply == "OK", reply.contains("UNAVAILABLE") || reply.contains("UNKNOWNOUTCOME"));
        assert!(known || error, "{reply}");
    }
}
