//! Typed values converge as in the other causal protocols (Corrections 75): each effect resets what it observed.

use super::client::{blind_step, increment};
use super::operations::{DELETE, MEMBERS, add, pop, push, remove, write_if_absent};
use super::scenes::{client, get, key, options, set, world};
use super::world::{World, replica};
use anabranch_causal::cops::{Mutant, Options};

/// What every region says of a set, sorted; all say the same.
fn members(world: &mut World, regions: u16, key: &str) -> Vec<String> {
    let mut of_region = |region: u16| {
        let reply = client(region, 10 + u64::from(region)).one(world, key, MEMBERS);
        let mut members: Vec<String> = reply
            .split_whitespace()
            .map(|member| member.trim_matches(|c: char| !c.is_alphanumeric()).to_owned())
            .filter(|member| !member.is_empty())
            .collect();
        members.sort();
        members
    };
    let first = of_region(0);
    (1..regions).for_each(|region| assert_eq!(of_region(region), first));
    first
}

#[test]
fn concurrent_increments_add_up() {
    let mut world = world(3, Options::default());
    world.cut(0, 1);
    world.cut(1, 2);
    for region in 0..3 {
        for _ in 0..=region {
            client(region, u64::from(region)).one(&mut world, &key(0), increment(1));
        }
    }
    world.heal();
    world.run_ms(500);
    (0..3).for_each(|region| assert_eq!(get(&mut world, client(region, 7), &key(0)), "6"));
}

#[test]
fn what_observes_is_exclusive_within_a_region_only() {
    let mut world = world(2, Options::default());
    let (one, other, there) = (client(0, 1), client(0, 2), client(1, 3));
    assert_eq!(one.one(&mut world, &key(0), write_if_absent("one")), "OK");
    assert_eq!(other.one(&mut world, &key(0), write_if_absent("other")), "(nil)");
    assert_eq!(there.one(&mut world, &key(0), write_if_absent("there")), "OK");
    world.run_ms(200);
    let reply = get(&mut world, one, &key(0));
    assert_eq!(get(&mut world, there, &key(0)), reply, "the last writer wins");
    one.many(&mut world, &[blind_step(&key(1), increment(2)), blind_step(&key(1), increment(3))]);
    world.run_ms(200);
    assert_eq!(get(&mut world, there, &key(1)), "5");
}

#[test]
fn a_concurrent_addition_wins_over_a_removal() {
    let mut world = world(2, Options::default());
    let (here, there) = (client(0, 1), client(1, 2));
    here.one(&mut world, &key(0), add("old"));
    world.run_ms(200);
    world.cut(0, 1);
    here.one(&mut world, &key(0), remove("old"));
    there.one(&mut world, &key(0), add("old"));
    there.one(&mut world, &key(0), add("new"));
    here.one(&mut world, &key(0), DELETE);
    world.heal();
    world.run_ms(500);
    assert_eq!(members(&mut world, 2, &key(0)), ["new", "old"]);
}

/// A value is merged with what its primary had when it was written, also where that has not arrived yet. Returns what region 2 shows of
/// a list to which two elements were added one after the other, while the first is slow to get there.
pub fn list_in_order(mutant: Option<Mutant>) -> String {
    let mut world = world(3, options(false, mutant));
    let (one, other, far) = (client(0, 1), client(1, 2), client(2, 3));
    world.part(replica(0, 0), replica(2, 0));
    one.one(&mut world, &key(0), push("first"));
    world.run_ms(100);
    other.one(&mut world, &key(0), push("second"));
    world.run_ms(300);
    far.one(&mut world, &key(0), pop())
}

#[test]
fn an_effect_that_merges_depends_on_what_it_merges_with() {
    assert_eq!(list_in_order(None), "(nil)");
}

/// A write that replaces the value depends on what its session has seen, and on nothing else.
#[test]
fn a_write_that_replaces_a_value_does_not_wait_for_what_it_replaces() {
    let mut world = world(3, Options::default());
    let (one, other, far) = (client(0, 1), client(1, 2), client(2, 3));
    world.part(replica(0, 0), replica(2, 0));
    set(&mut world, one, &key(0), "first");
    world.run_ms(100);
    set(&mut world, other, &key(0), "second");
    world.run_ms(300);
    assert_eq!(get(&mut world, far, &key(0)), "second");
    world.heal();
    world.run_ms(500);
    (0..3).for_each(|region| assert_eq!(get(&mut world, client(region, 7), &key(0)), "second"));
}

#[test]
fn every_region_ends_with_the_same() {
    let mut world = world(3, Options::default());
    let keys: Vec<String> = (0..3).map(key).collect();
    for round in 0..40u64 {
        let region = (round % 3) as u16;
        let (own, key) = (client(region, 1 + u64::from(region)), &keys[(round / 3 % 3) as usize]);
        match round % 5 {
            0 => drop(own.one(&mut world, key, remove(&(round / 2).to_string()))),
            4 if round % 2 == 0 => drop(own.one(&mut world, key, DELETE)),
            _ => drop(own.one(&mut world, key, add(&round.to_string()))),
        }
        world.run_ms(round % 7 * 5);
    }
    world.run_ms(500);
    keys.iter().for_each(|key| drop(members(&mut world, 3, key)));
}
