//! A stabilization tree of several levels: the partitions of a region below one another, as a chain and in twos.

use crate::wren::client::{Client, GET, increment, key_in, step};
use crate::wren::operations::write;
use crate::wren::world::{EPOCH, Faults, World, coordinator, replica};
use anabranch_causal::wren::{Message, Mutant, Mutants, Options};
use protocol::Durability;
use std::time::Duration;
use types::{RegionId, Timestamp};

const PARTITIONS: u16 = 5;

fn world(regions: u16, fan_out: u16, mutants: Mutants) -> World {
    let lease = Duration::from_millis(100);
    let options = Options { durability: Durability::Synced, fan_out, mutants, lease, ..Options::default() };
    let mut world = World::new(regions, PARTITIONS, 2, options, 3);
    world.faults = Faults { log: 500, ..Faults::NONE };
    world.run_ms(300);
    world
}

fn keys() -> Vec<String> {
    (0..PARTITIONS).map(|partition| key_in(partition, PARTITIONS, "k")).collect()
}

fn client(region: u16, number: u16) -> Client {
    Client::new(coordinator(region, number), 1 + u64::from(2 * region + number))
}

fn write_all(world: &mut World, region: u16, value: &str) {
    let keys = keys();
    let steps: Vec<_> = keys.iter().map(|key| step(key, write(value))).collect();
    let reply = client(region, 0).many(world, &steps);
    assert!(reply.split("; ").all(|reply| reply == "OK"), "{reply}");
}

/// Through another coordinator than the one that writes.
fn read_all(world: &mut World, region: u16) -> Vec<String> {
    let keys = keys();
    let steps: Vec<_> = keys.iter().map(|key| step(key, GET)).collect();
    client(region, 1).many(world, &steps).split("; ").map(str::to_owned).collect()
}

fn all(value: &str) -> Vec<String> {
    vec![format!("\"{value}\""); usize::from(PARTITIONS)]
}

fn local(world: &World, region: u16, index: u16) -> Timestamp {
    world.node(replica(region, index)).as_partition().expect("a replica").stable().local
}

#[test]
fn what_is_written_becomes_visible_through_trees_of_any_depth() {
    for fan_out in [1, 2, 3, 8] {
        let mut world = world(2, fan_out, Mutants::default());
        write_all(&mut world, 0, "x");
        world.run_ms(200);
        assert_eq!((read_all(&mut world, 0), read_all(&mut world, 1)), (all("x"), all("x")), "{fan_out}");
    }
}

/// The stable time goes on only while all of the region report; a partition that begins a new life between others says nothing
/// of those below before they have spoken to it.
#[test]
fn a_tree_waits_for_who_is_down_whoever_restarts_meanwhile() {
    for (down, between) in [(4, 2), (4, 3), (3, 1), (4, 0)] {
        let mut world = world(1, 1, Mutants::default());
        world.crash(replica(0, down));
        world.run_ms(100);
        let stood_at = local(&world, 0, 0);
        world.crash(replica(0, between));
        world.run_ms(50);
        world.start(replica(0, between));
        world.run_ms(2_000);
        assert!(local(&world, 0, 0) <= stood_at, "{down} and what is below it said nothing");
        world.start(replica(0, down));
        world.run_ms(1_000);
        write_all(&mut world, 0, "x");
        world.run_ms(200);
        assert_eq!(read_all(&mut world, 0), all("x"), "{down} and {between} are back");
        let known: Vec<Timestamp> = (0..PARTITIONS).map(|index| local(&world, 0, index)).collect();
        assert!(known.iter().all(|at| *at > stood_at), "{known:?}");
    }
}

#[test]
fn a_minimum_without_those_below_is_found_out() {
    let mut world = world(1, 1, Mutant::SubtreeLeftOut.into());
    world.crash(replica(0, 4));
    world.run_ms(100);
    let stood_at = local(&world, 0, 0);
    world.run_ms(1_000);
    assert!(local(&world, 0, 0) > stood_at, "it goes on as if nobody were down");
}

/// How long it takes until what is written through one coordinator is read through another one, in milliseconds.
fn delay(world: &mut World, value: &str) -> u64 {
    write_all(world, 0, value);
    (1..)
        .find(|_| {
            world.run_ms(1);
            read_all(world, 0) == all(value)
        })
        .expect("a delay")
}

/// The fastest clock of a region is followed by all, wherever it stands in the tree: nobody's snapshots are held back by how
/// much another one is ahead.
#[test]
fn slow_clocks_follow_the_fastest_one_through_the_tree() {
    for fast in 0..PARTITIONS {
        let mut world = world(1, 1, Mutants::default());
        world.skew(replica(0, fast), 500_000);
        world.run_ms(300);
        let waited = delay(&mut world, "x");
        assert!(waited < 100, "{fast} is half a second ahead: visible after {waited} ms");
    }
}

/// Region 2 is lost. Partition 3 has reported more than its log knows when it restarts: those above it in the tree say
/// so, and what has been read stays.
#[test]
fn an_evicted_region_is_cut_above_what_was_shown_whoever_restarted() {
    for fan_out in [1, 2] {
        for pause in crate::some_of((0..1_200).step_by(300)) {
            let mut world = world(3, fan_out, Mutants::default());
            write_all(&mut world, 2, "seen");
            world.run_ms(300);
            assert_eq!(read_all(&mut world, 0), all("seen"));
            world.cut(2, 1);
            write_all(&mut world, 2, "heard");
            world.run_ms(100);
            let read = read_all(&mut world, 0);
            (0..PARTITIONS).for_each(|index| world.destroy(replica(2, index)));
            (0..2).for_each(|number| world.crash(coordinator(2, number)));
            world.crash(replica(0, 3));
            world.run_ms(40);
            world.start(replica(0, 3));
            world.tell(replica(1, 1), Message::Evict { regions: vec![RegionId(2)] });
            world.run_ms(pause);
            for down in [replica(0, 1), replica(0, 3), replica(1, 2)] {
                world.crash(down);
                world.run_ms(40);
                world.start(down);
                world.run_ms(pause % 400);
            }
            world.run_ms(5_000);
            let (here, there) = (read_all(&mut world, 0), read_all(&mut world, 1));
            assert_eq!(here, there, "fan-out {fan_out}, after {pause} ms");
            assert_eq!(here, read, "what was read stays; fan-out {fan_out}, after {pause} ms");
            let key = key_in(4, PARTITIONS, "k");
            client(1, 0).one(&mut world, &key, write("7"));
            world.run_ms(300);
            assert_eq!(client(0, 0).one(&mut world, &key, increment(1)), "(integer) 8", "they go on");
        }
    }
}

/// Of a region of 64 partitions whose clocks are up to a tick apart, so that they tick at different times: how many messages of
/// stabilization pass in a second in all, how many its busiest partition sends and receives, and how old what partitions call
/// stable is on average, in microseconds.
fn costs(fan_out: u16) -> [u64; 3] {
    const MANY: u16 = 64;
    let mut world = World::new(1, MANY, 0, Options { fan_out, ..Options::default() }, 3);
    world.faults = Faults { near: (100, 200), ..Faults::NONE };
    for index in 0..MANY {
        let behind = world.random.i64(0..5_000);
        world.skew(replica(0, index), -behind);
    }
    world.run_ms(500);
    world.stabilization.clear();
    let (mut age, mut looks) = (0, 0);
    for _ in crate::some_of(0..100) {
        world.run_us(4_001);
        for index in 0..MANY {
            let now = EPOCH + world.now;
            (age, looks) = (age + now.saturating_sub(local(&world, 0, index).wall().0), looks + 1);
        }
    }
    let counts = &world.stabilization;
    let busiest = counts.values().max().copied().unwrap_or_default();
    [counts.values().sum::<u64>() / 2, busiest, age / looks]
}

/// Takes seconds.
mod soak {
    use super::*;

    /// A tree costs as many messages as none, and spares the root nearly all of them.
    #[test]
    fn a_tree_takes_the_load_off_the_root() {
        let [flat, tree] = [costs(64), costs(8)];
        let ([_, busiest_of_flat, age_in_flat], [_, busiest, age]) = (flat, tree);
        assert!(5 * busiest < busiest_of_flat, "{flat:?}, {tree:?}");
        assert!(age < age_in_flat + 10_000, "a level costs about a tick: {flat:?}, {tree:?}");
    }
}
