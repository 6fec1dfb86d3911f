//! Queues for regions that are silent, most of which lies in the spool (decision 0016).

use crate::wren::client::{Client, GET, blind_step, increment, key_in, step};
use crate::wren::operations::write;
use crate::wren::world::{EPOCH, World, coordinator, replica};
use anabranch_causal::wren::{Mutant, Mutants, Options, Partition};
use replication::Window;

/// How much of a queue stays in memory, in bytes.
const SMALL: usize = 8_000;

fn world(regions: u16, queue_bytes: usize, spill_bytes: u64) -> World {
    let window = Window { items: 16, bytes: 20_000 };
    let options = Options { queue_bytes, spill_bytes, window, ..Options::default() };
    let mut world = World::new(regions, 2, 1, options, 3);
    world.run_ms(300);
    world
}

fn partition(world: &World, region: u16, index: u16) -> &Partition {
    world.node(replica(region, index)).as_partition().expect("it is a partition")
}

fn partitions(world: &World) -> impl Iterator<Item = (u16, u16)> + use<> {
    let regions = world.topology.regions.len() as u16;
    (0..regions).flat_map(|region| (0..2).map(move |index| (region, index)))
}

/// Every region writes to both partitions so often. What is queued in memory stays within its bound.
fn write_on(world: &mut World, clients: &[Client], rounds: u32) {
    let ([a, b], large) = (keys(), key_in(0, 2, "large"));
    for round in 0..rounds {
        let value = format!("{round}-{}", "v".repeat(200));
        for client in clients {
            client.many(
                world,
                &[step(&large, write(&value)), blind_step(&a, increment(1)), blind_step(&b, increment(1))],
            );
        }
        for (region, index) in partitions(world) {
            let queued = partition(world, region, index).queued_bytes();
            // Beside the queue, what its peers are sent next.
            assert!(queued <= 3 * world.options.queue_bytes, "{queued} bytes are in memory");
        }
        world.run_ms(5);
    }
}

fn keys() -> [String; 2] {
    [key_in(0, 2, "a"), key_in(1, 2, "b")]
}

/// All clients read the same, and so often has been incremented; nothing is queued any more.
fn assert_converged(world: &mut World, clients: &[Client], increments: u32) {
    let [a, b] = keys();
    let seen: Vec<String> =
        clients.iter().map(|client| client.many(world, &[step(&a, GET), step(&b, GET)])).collect();
    assert!(seen.iter().all(|read| *read == seen[0]), "{seen:?}");
    assert!(seen[0].ends_with(&format!("; \"{increments}\"")), "{}", seen[0]);
    for (region, index) in partitions(world) {
        let held = partition(world, region, index);
        assert_eq!((held.unreceived(), held.queued_bytes(), held.spilled_bytes()), (0, 0, 0));
        assert_eq!(world.spooled(replica(region, index)), 0, "what nobody needs is freed");
    }
}

fn transfers(world: &World) -> u64 {
    partitions(world).map(|(region, index)| partition(world, region, index).transfers()).sum()
}

fn clients(regions: u16) -> Vec<Client> {
    (0..regions).map(|region| Client::new(coordinator(region, 0), u64::from(region) + 1)).collect()
}

#[test]
fn a_region_cut_off_for_long_is_sent_what_was_spilled() {
    let (mut world, clients) = (world(2, SMALL, 1 << 30), clients(2));
    world.cut(0, 1);
    write_on(&mut world, &clients, 300);
    for (region, index) in partitions(&world) {
        let (held, spooled) = (partition(&world, region, index), world.spooled(replica(region, index)));
        assert_eq!(held.spilled_bytes(), spooled as u64);
        assert!(spooled > 0, "what memory has no room for is in the spool");
    }
    assert!(world.spooled(replica(0, 0)) > 5 * SMALL, "the values are there");
    world.heal();
    write_on(&mut world, &clients, 100);
    world.run_ms(3_000);
    assert_eq!(transfers(&world), 0, "nobody had to take the state");
    assert_converged(&mut world, &clients, 800);
}

/// The third one is not cut off, and is no further behind for it.
#[test]
fn each_region_is_fed_from_where_it_stands() {
    let (mut world, clients) = (world(3, SMALL, 1 << 30), clients(3));
    world.cut(0, 1);
    world.cut(1, 2);
    write_on(&mut world, &clients, 200);
    world.run_ms(300);
    // Its clients see nothing of that, since something older may come from the one that is silent.
    let received = partition(&world, 2, 0).received_of_regions().find(|(region, _)| *region == "0");
    let behind = (EPOCH + world.now).saturating_sub(received.map_or(0, |(_, at)| at.wall().0));
    assert!(behind < 100_000, "{behind} us behind");
    world.heal();
    world.cut(0, 2);
    write_on(&mut world, &clients, 100);
    world.heal();
    world.run_ms(3_000);
    assert_eq!(transfers(&world), 0);
    assert_converged(&mut world, &clients, 900);
}

#[test]
fn who_lacks_what_the_spool_has_lost_takes_the_state() {
    let (mut world, clients) = (world(2, SMALL, 1 << 30), clients(2));
    world.cut(0, 1);
    write_on(&mut world, &clients, 200);
    world.spool_loss = 100;
    world.heal();
    world.run_ms(1_000);
    world.spool_loss = 0;
    world.run_ms(3_000);
    assert!(transfers(&world) > 0);
    assert_converged(&mut world, &clients, 400);
}

#[test]
fn beyond_what_the_spool_may_hold_a_region_takes_the_state() {
    let (mut world, clients) = (world(2, SMALL, 20_000), clients(2));
    world.cut(0, 1);
    write_on(&mut world, &clients, 300);
    for (region, index) in partitions(&world) {
        assert!(world.spooled(replica(region, index)) <= 20_000);
    }
    world.heal();
    world.run_ms(3_000);
    assert!(transfers(&world) > 0);
    assert_converged(&mut world, &clients, 600);
}

/// The spool ends with the life: neither a log nor a checkpoint brings back what was in it.
#[test]
fn a_restart_loses_the_spool_and_says_so() {
    let (mut world, clients) = (world(2, SMALL, 1 << 30), clients(2));
    world.cut(0, 1);
    write_on(&mut world, &clients, 100);
    for (region, index) in partitions(&world) {
        world.checkpoint(replica(region, index));
    }
    write_on(&mut world, &clients, 100);
    for (region, index) in partitions(&world) {
        world.crash(replica(region, index));
        world.start(replica(region, index));
    }
    world.run_ms(500);
    world.heal();
    world.run_ms(3_000);
    assert!(transfers(&world) > 0);
    assert_converged(&mut world, &clients, 400);
}

/// A checkpoint is written while so much is committed that effects not yet sent leave memory; then the process
/// restarts from it. What each region reads of the counter in the end.
fn counted_after_such_a_checkpoint(spill_bytes: u64, mutants: Mutants) -> Vec<String> {
    let (mut world, clients) = (world(2, 200_000, spill_bytes), clients(2));
    let node = replica(0, 0);
    world.options.mutants = mutants;
    world.crash(node);
    world.start(node);
    world.cut(0, 1);
    write_on(&mut world, &clients, 500);
    let mut is_written = false;
    let pieces = world.checkpoint_beside(node, |world| {
        if !std::mem::replace(&mut is_written, true) {
            write_on(world, &clients, 400);
        }
    });
    assert!(pieces > 3, "its queue is told in several pieces");
    world.crash(node);
    world.start(node);
    world.heal();
    world.run_ms(5_000);
    let [a, _] = keys();
    clients.iter().map(|client| client.one(&mut world, &a, GET)).collect()
}

#[test]
fn what_leaves_memory_while_a_checkpoint_is_written_is_missing_in_it() {
    // Without a spool in soak only.
    for spill_bytes in [1 << 30, 0].into_iter().take(if crate::soaks() { 2 } else { 1 }) {
        let seen = counted_after_such_a_checkpoint(spill_bytes, Mutants::default());
        assert_eq!(seen, ["\"1800\"", "\"1800\""]);
    }
    assert_ne!(
        counted_after_such_a_checkpoint(1 << 30, Mutant::SpilledNotTold.into())[1],
        "\"1800\"",
        "the mistake shows"
    );
}
