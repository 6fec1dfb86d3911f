//! Section 5.3, COPS-CD: two writes of a key of which neither observed the other are in conflict (Corrections 50).

use super::client::{Client, GET, increment, key_in, step};
use super::operations::{DELETE, MEMBERS, add, write};
use super::scenes::{PARTITIONS, client, get, key, options, partition, set, values, world};
use super::world::{World, replica};
use anabranch_causal::cops::{Mutant, Options};
use datatypes::{Items, Operation, key as of_key, register};
use types::RegionId;

const SIBLINGS: Operation<'static> = Operation::Key(of_key::Operation::Siblings);
const EXISTS: Operation<'static> = Operation::Key(of_key::Operation::Exists);
const RESOLVE: Operation<'static> = Operation::Key(of_key::Operation::Resolve { losses: Items::NONE });

pub fn append(value: &str) -> Operation<'_> {
    Operation::Register(register::Operation::Append { value: value.as_bytes() })
}

/// What a region lists of partition 0.
fn listed(world: &World, region: u16) -> Vec<String> {
    let conflicts = partition(world, replica(region, 0)).conflicts();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = |(lost, winner): (&[u8], &[u8])| format!("{} to {}", text(lost), text(winner));
    conflicts.iter().map(|conflict| line((&conflict.lost.value, &conflict.winner.value))).collect()
}

/// So many regions write a key that all of them have, without seeing one another, each once.
pub fn write_separately(world: &mut World, regions: u16, key: &str) {
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
        write_separately(&mut world, 2, &key(0));
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
    write_separately(&mut world, 3, &key(0));
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

/// Writes go on, so that what settles the loss is below the horizon and not folded yet when the partition stops.
#[test]
fn what_is_settled_stays_so_over_a_restart() {
    let mut world = world(2, Options::default());
    write_separately(&mut world, 2, &key(0));
    world.heal();
    let own = client(0, 1);
    while own.one(&mut world, &key(0), RESOLVE) != "(integer) 1" {
        world.run_ms(1);
    }
    let settled = partition(&world, replica(0, 0)).written().of(RegionId(0));
    while partition(&world, replica(0, 0)).stable() < settled {
        set(&mut world, own, &key(0), "later");
        world.run_ms(1);
    }
    world.checkpoint_beside(replica(0, 0), |_| {});
    world.crash(replica(0, 0));
    world.run_ms(20);
    world.start(replica(0, 0));
    world.run_ms(1_000);
    assert!(listed(&world, 0).is_empty(), "{:?}", listed(&world, 0));
}

#[test]
fn a_keyspace_that_ignores_conflicts_lists_none() {
    let mut world = world(2, Options { conflict_bytes: 0, ..Options::default() });
    write_separately(&mut world, 2, &key(0));
    world.heal();
    world.run_ms(500);
    assert!((0..2).all(|region| listed(&world, region).is_empty()));
    assert!(client(0, 1).one(&mut world, &key(0), RESOLVE).contains("records no conflicts"));
}

/// COPS-CD that keeps concurrent values.
pub fn keeping(transactions: bool, mutant: Option<Mutant>) -> Options {
    Options { keeps_siblings: true, ..options(transactions, mutant) }
}

/// The values of a key in a client's reply: the one that is shown, then the others.
pub fn siblings(world: &mut World, client: Client, key: &str) -> Vec<String> {
    let reply = client.one(world, key, SIBLINGS);
    let words: Vec<&str> = reply.split('"').collect();
    let value = |pair: &[&str]| (pair[0] == "value").then(|| pair[1].to_owned());
    let words: Vec<&str> = words.into_iter().skip(1).step_by(2).collect();
    words.windows(2).filter_map(value).collect()
}

/// What a region answers to GET once three regions have written apart and one of them, which has heard of all, has written again;
/// and how many values it has.
pub fn resolved(mutant: Option<Mutant>) -> (String, usize) {
    let mut world = world(3, keeping(false, mutant));
    write_separately(&mut world, 3, &key(0));
    world.heal();
    world.run_ms(500);
    set(&mut world, client(1, 2), &key(0), "merged");
    world.run_ms(500);
    let values = siblings(&mut world, client(0, 3), &key(0)).len();
    (get(&mut world, client(0, 3), &key(0)), values)
}

#[test]
fn siblings_stay_until_somebody_who_has_them_replaces_the_key() {
    assert_eq!(resolved(None), ("merged".into(), 1));
}

#[test]
fn every_region_has_the_same_siblings_and_refuses_to_read_one_of_them() {
    for transactions in [false, true] {
        let mut world = world(3, keeping(transactions, None));
        write_separately(&mut world, 3, &key(0));
        assert_eq!(get(&mut world, client(0, 2), &key(0)), "of 0", "nobody knows of another one");
        world.heal();
        world.run_ms(500);
        for region in 0..3 {
            let own = client(region, 3);
            let reply = own.one(&mut world, &key(0), GET);
            assert!(reply.starts_with("-SIBLINGS") && reply.contains("has 3 concurrent values"), "{reply}");
            assert!(own.one(&mut world, &key(0), append("more")).starts_with("-SIBLINGS"));
            assert_eq!(siblings(&mut world, own, &key(0)), ["of 2", "of 0", "of 1"]);
            assert_eq!(own.one(&mut world, &key(0), EXISTS), "(integer) 1");
        }
        // Together with the write that replaces them there is one value.
        let key = key(0);
        let steps = [step(&key, write("one")), step(&key, append(" more")), step(&key, GET)];
        let id = client(0, 3).send(&mut world, &steps);
        assert_eq!(values(&world.await_reply(id)), ["OK", "(integer) 8", "one more"]);
        world.run_ms(500);
        (0..3).for_each(|region| assert_eq!(get(&mut world, client(region, 4), &key), "one more"));
    }
}

/// A write replaces exactly what its region had: what arrives later from elsewhere is beside it (Corrections 50).
#[test]
fn a_write_replaces_the_siblings_that_it_observed_and_no_others() {
    let mut world = world(3, keeping(false, None));
    write_separately(&mut world, 3, &key(0));
    world.heal();
    world.cut(0, 2);
    world.cut(1, 2);
    world.run_ms(500);
    assert_eq!(siblings(&mut world, client(0, 3), &key(0)), ["of 1", "of 0"]);
    set(&mut world, client(0, 3), &key(0), "of both");
    set(&mut world, client(2, 3), &key(0), "again of 2");
    world.heal();
    world.run_ms(500);
    for region in 0..3 {
        let mut reply = siblings(&mut world, client(region, 4), &key(0));
        reply.sort();
        assert_eq!(reply, ["again of 2", "of both"]);
    }
    client(2, 5).one(&mut world, &key(0), DELETE);
    world.run_ms(500);
    for region in 0..3 {
        assert_eq!(get(&mut world, client(region, 6), &key(0)), "(nil)");
        assert!(siblings(&mut world, client(region, 6), &key(0)).is_empty());
        assert!(listed(&world, region).is_empty());
    }
}

/// Siblings outlive the versions that they came with, a checkpoint and a lost disk, also of whoever has not heard of them yet; and
/// what was replaced does not come back.
#[test]
fn siblings_survive_collection_recovery_and_state_transfer() {
    let mut world = world(3, keeping(false, None));
    let (conflicted, gone) = (key(0), key_in(0, PARTITIONS, "gone"));
    write_separately(&mut world, 3, &conflicted);
    (0..3).for_each(|region| set(&mut world, client(region, 1), &gone, &format!("{region}")));
    world.heal();
    world.run_ms(1_000);
    assert_eq!(partition(&world, replica(0, 0)).retained(conflicted.as_bytes()), 0, "collected");
    set(&mut world, client(1, 1), &gone, "replaced");
    world.run_ms(30);
    let own = replica(0, 0);
    world.checkpoint_beside(own, |_| {});
    let check = |world: &mut World| {
        for region in 0..3 {
            assert_eq!(siblings(world, client(region, 4), &conflicted), ["of 2", "of 0", "of 1"]);
            assert_eq!(get(world, client(region, 4), &gone), "replaced");
        }
    };
    world.run_ms(500);
    check(&mut world);
    for is_lost in [false, true] {
        if is_lost {
            world.destroy(own)
        } else {
            world.crash(own)
        }
        world.run_ms(20);
        if is_lost {
            world.start_from(own, false)
        } else {
            world.start(own)
        }
        world.run_ms(2_000);
        check(&mut world);
    }
}

/// What merges has no siblings; an operator may settle what he does not want to merge by keeping the one that is shown.
#[test]
fn values_that_merge_have_no_siblings() {
    let mut world = world(2, keeping(false, None));
    let (set_key, count, word) = (key(0), key_in(0, PARTITIONS, "count"), key_in(0, PARTITIONS, "word"));
    world.cut(0, 1);
    for region in 0..2 {
        let own = client(region, 1);
        own.one(&mut world, &set_key, add(&region.to_string()));
        own.one(&mut world, &count, increment(1));
        set(&mut world, own, &word, &region.to_string());
        world.run_ms(5);
    }
    world.heal();
    world.run_ms(500);
    for region in 0..2 {
        assert_eq!(get(&mut world, client(region, 2), &count), "2");
        assert!(!client(region, 2).one(&mut world, &set_key, MEMBERS).contains("SIBLINGS"));
    }
    assert_eq!(client(0, 2).one(&mut world, &word, RESOLVE), "(integer) 1");
    world.run_ms(500);
    (0..2).for_each(|region| assert_eq!(get(&mut world, client(region, 2), &word), "1"));
}

#[test]
fn a_keyspace_that_keeps_no_siblings_says_so() {
    let mut world = world(2, Options::default());
    assert!(client(0, 1).one(&mut world, &key(0), SIBLINGS).contains("keeps one value of a key"));
}
