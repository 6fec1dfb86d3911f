//! Keys whose deadline has passed leave memory, though nobody meets them (Corrections 69).

use crate::wren::client::{Client, GET, on, step};
use crate::wren::operations::write;
use crate::wren::world::{EPOCH, World, coordinator, replica};
use anabranch_causal::wren::{Mutant, Mutants, Options};
use datatypes::key::ExpireCondition;
use datatypes::{Operation, key};
use protocol::Request;
use std::time::Duration;

/// The horizon follows what is stable within a second.
fn world(options: Options) -> World {
    let mut world = World::new(2, 1, 1, Options { lease: Duration::from_millis(300), ..options }, 1);
    world.run_ms(500);
    world
}

/// A deadline so many milliseconds from now on.
fn deadline(world: &World, after_ms: u64) -> Operation<'static> {
    let at_millis = (EPOCH + world.now) / 1000 + after_ms;
    Operation::Key(key::Operation::ExpireAt { at_millis, condition: ExpireCondition::default() })
}

fn held(world: &World, region: u16) -> usize {
    world.node(replica(region, 0)).as_partition().expect("a replica").held_keys()
}

/// Sets a key with a deadline in one request.
fn write_until(client: Client, world: &mut World, key: &str, after_ms: u64) {
    let deadline = deadline(world, after_ms);
    client.many(world, &[step(key, write("v")), step(key, deadline)]);
}

#[test]
fn overdue_keys_are_deleted_everywhere() {
    let mut world = world(Options::default());
    let client = Client::new(coordinator(0, 0), 1);
    for number in 0..250 {
        write_until(client, &mut world, &format!("k{number}"), 2_000);
    }
    client.one(&mut world, "stays", write("v"));
    world.run_ms(500);
    assert_eq!((held(&world, 0), held(&world, 1)), (251, 251));
    world.run_ms(8_000);
    assert_eq!((held(&world, 0), held(&world, 1)), (1, 1));
    let deleted = |region| world.node(replica(region, 0)).as_partition().expect("a replica").expired();
    assert!(deleted(0) > 50 && deleted(1) > 50, "each has its share: {} and {}", deleted(0), deleted(1));
    assert_eq!(deleted(0) + deleted(1), 250, "once is enough");
    assert_eq!(client.one(&mut world, "stays", GET), "\"v\"");
}

/// A log that is read again leaves nothing of the deletions among what clients may ask about.
#[test]
fn a_restart_remembers_no_decision_of_nobody() {
    let mut world = world(Options::default());
    let client = Client::new(coordinator(0, 0), 1);
    for number in 0..60 {
        write_until(client, &mut world, &format!("k{number}"), 1_000);
    }
    world.run_ms(6_000);
    assert_eq!(held(&world, 0), 0);
    world.crash(replica(0, 0));
    world.start(replica(0, 0));
    client.one(&mut world, "other", write("v"));
    world.run_ms(500);
    client.one(&mut world, "other", write("w"));
    world.run_ms(500);
    let partition = world.node(replica(0, 0)).as_partition().expect("a replica");
    assert_eq!(partition.held_keys(), 1);
    assert!(partition.remembered() < 10, "{} decisions", partition.remembered());
}

/// Both regions are apart when one of them sets a later deadline. What reads say after healing there.
fn refreshed_while_apart(mutants: Mutants) -> String {
    let mut world = world(Options { mutants, ..Options::default() });
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    write_until(here, &mut world, "session", 3_000);
    world.run_ms(1_000);
    world.cut(0, 1);
    let later = deadline(&world, 60_000);
    let refresh = Request::One { session: there.session, operation: on("session", later) };
    assert_eq!(there.ask(&mut world, refresh), "(integer) 1");
    world.run_ms(25_000);
    assert_eq!(
        here.one(&mut world, "session", GET),
        "(nil)",
        "its deadline has passed as far as is known here"
    );
    world.heal();
    world.run_ms(3_000);
    format!("{} {}", here.one(&mut world, "session", GET), there.one(&mut world, "session", GET))
}

#[test]
fn a_later_deadline_of_a_region_that_is_cut_off_stays() {
    assert_eq!(refreshed_while_apart(Mutants::default()), "\"v\" \"v\"");
}

#[test]
fn deleting_by_the_own_clock_is_caught() {
    assert_eq!(refreshed_while_apart(Mutant::ExpiredByOwnClock.into()), "(nil) (nil)");
}
