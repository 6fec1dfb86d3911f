//! Section 5.3, COPS-CD: two writes of a key of which neither observed the other are in conflict (Corrections 50).

use super::scenes::{client, get, key, options, partition, set, world};
use super::world::{World, replica};
use anabranch_causal::cops::Options;
use datatypes::{Items, Operation, key as of_key};

const RESOLVE: Operation<'static> = Operation::Key(of_key::Operation::Resolve { losses: Items::NONE });

/// What a region lists of partition 0.
fn listed(world: &World, region: u16) -> Vec<String> {
    let conflicts = partition(world, replica(region, 0)).conflicts();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let told = |(lost, kept): (&[u8], &[u8])| format!("{} to {}", text(lost), text(kept));
    conflicts.iter().map(|conflict| told((&conflict.lost.value, &conflict.kept.value))).collect()
}

/// So many regions write a key that all of them have, without seeing one another, each once.
fn write_apart(world: &mut World, regions: u16, key: &str) {
    set(world, client(0, 9), key, "old");
    world.run_ms(300);
    (0..regions).for_each(|one| (one + 1..regions).for_each(|other| world.cut(one, other)));
    for region in 0..regions {
        set(world, client(region, 1), key, &format!("of {region}"));
        world.run_ms(5);
    }
}

#[test]
fn of_two_concurrent_writes_every_region_lists_the_one_that_is_lost() {
    for transactions in [false, true] {
        let mut world = world(2, options(transactions, None));
        write_apart(&mut world, 2, &key(0));
        assert!((0..2).all(|region| listed(&world, region).is_empty()), "nobody knows of both");
        world.heal();
        world.run_ms(500);
        for region in 0..2 {
            assert_eq!(listed(&world, region), ["of 0 to of 1"]);
            assert_eq!(get(&mut world, client(region, 2), &key(0)), "of 1");
        }
        assert_eq!(client(0, 1).one(&mut world, &key(0), RESOLVE), "(integer) 1");
        world.run_ms(500);
        assert!((0..2).all(|region| listed(&world, region).is_empty()));
    }
}

/// Who writes over a value that it has seen loses nothing of anybody.
#[test]
fn a_write_that_observed_another_is_in_no_conflict() {
    let mut world = world(2, Options::default());
    set(&mut world, client(0, 1), &key(0), "one");
    world.run_ms(300);
    set(&mut world, client(1, 2), &key(0), "two");
    world.run_ms(500);
    assert!((0..2).all(|region| listed(&world, region).is_empty()));
}

/// What is listed survives a checkpoint, and a lost disk.
#[test]
fn what_is_lost_stays_listed() {
    let mut world = world(3, Options::default());
    write_apart(&mut world, 3, &key(0));
    world.heal();
    world.run_ms(1_000);
    let before = listed(&world, 0);
    assert_eq!(before.len(), 2, "{before:?}");
    world.checkpoint_beside(replica(0, 0), |_| {});
    world.crash(replica(0, 0));
    world.run_ms(20);
    world.start(replica(0, 0));
    world.run_ms(1_000);
    assert_eq!(listed(&world, 0), before);
    world.destroy(replica(0, 0));
    world.run_ms(20);
    world.start_from(replica(0, 0), false);
    world.run_ms(2_000);
    assert_eq!(listed(&world, 0), before);
    assert_eq!(client(0, 1).one(&mut world, &key(0), RESOLVE), "(integer) 2");
}

#[test]
fn a_keyspace_that_ignores_conflicts_lists_none() {
    let mut world = world(2, Options { conflict_bytes: 0, ..Options::default() });
    write_apart(&mut world, 2, &key(0));
    world.heal();
    world.run_ms(500);
    assert!((0..2).all(|region| listed(&world, region).is_empty()));
    assert!(client(0, 1).one(&mut world, &key(0), RESOLVE).contains("records no conflicts"));
}
