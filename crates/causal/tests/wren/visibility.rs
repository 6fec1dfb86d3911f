//! How long it takes until sessions of another region see a write, and how many messages that costs.

use crate::wren::client::{Client, GET, key_in};
use crate::wren::operations::write;
use crate::wren::world::{Faults, World, coordinator, replica};
use anabranch_causal::wren::Options;

const PARTITIONS: u16 = 3;
/// From one region to another, in microseconds: half a round trip.
const WAY: u64 = 20_000;

/// Two regions, with partitions whose clocks are so many microseconds off at most, to either side.
fn world(off: i64) -> World {
    let mut world = World::new(2, PARTITIONS, 2, Options::default(), 5);
    world.faults = Faults { near: (100, 200), far: (WAY, WAY), ..Faults::NONE };
    for (region, index) in (0..2).flat_map(|region| (0..PARTITIONS).map(move |index| (region, index))) {
        let skew = world.random.i64(-off..=off);
        world.skew(replica(region, index), skew);
    }
    world.run_ms(1_500);
    world
}

/// So many writes, one after another, each at another moment between two ticks: how long after its commit each is read in the
/// other region, in microseconds, in ascending order.
fn delays(off: i64, writes: u64) -> Vec<u64> {
    let mut world = world(off);
    let (writer, reader) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 1), 2));
    let delay = |number: u64| {
        let (key, value) = (key_in(number as u16 % PARTITIONS, PARTITIONS, "k"), number.to_string());
        let wait = world.random.u64(..5_000);
        world.run_us(wait);
        assert_eq!(writer.one(&mut world, &key, write(&value)), "OK");
        let committed = world.now;
        while reader.one(&mut world, &key, GET) != format!("\"{value}\"") {
            world.run_us(100);
        }
        world.now - committed
    };
    let mut delays: Vec<u64> = (0..writes).map(delay).collect();
    delays.sort_unstable();
    delays
}

/// How many messages tell of stable times in a second, while this is done again and again.
fn messages(world: &mut World, mut act: impl FnMut(&mut World)) -> u64 {
    world.stabilization.clear();
    let end = world.now + 1_000_000;
    while world.now < end {
        act(world);
    }
    world.stabilization.values().sum::<u64>() / 2
}

/// One way and a tick, and another half where clocks are off by as much as a tick takes.
#[test]
fn half_a_round_trip_and_8_ms_after_its_commit_a_write_is_visible_elsewhere() {
    for off in [0, 1_000, 2_500] {
        let delays = delays(off, 60);
        let (median, most) = (delays[delays.len() / 2], delays[delays.len() - 1]);
        assert!(median <= WAY + 8_000, "clocks are {off} us off: {median} in the median, {most} at most");
    }
}

/// Two partitions below the root of each region, and four coordinators: with each tick of 5 ms a report and an answer for each of
/// the former, and for each of the latter no more than a question and an answer. Without clients it is less.
#[test]
fn what_is_stable_costs_no_more_than_a_question_a_tick() {
    for off in [0, 1_000] {
        let mut world = world(off);
        let idle = messages(&mut world, |world| world.run_us(1_000));
        let places = (0..2).flat_map(|region| (0..2).map(move |number| coordinator(region, number)));
        let clients: Vec<Client> = (1..).zip(places).map(|(session, at)| Client::new(at, session)).collect();
        let busy = messages(&mut world, |world| {
            clients.iter().for_each(|client| drop(client.one(world, "k", GET)));
            world.run_us(1_000);
        });
        let tree = 2 * 2 * u64::from(PARTITIONS - 1) * 200;
        let asking = 4 * 2 * 200;
        assert!(idle <= tree + asking / 3, "{idle} a second");
        assert!(busy <= tree + asking, "{busy} a second");
    }
}
