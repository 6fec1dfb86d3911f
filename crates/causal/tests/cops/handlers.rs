//! Section 5.3, COPS-CD with a handler: concurrent values are read as what the application makes of them (Corrections 50).

use super::client::{Client, GET, increment};
use super::conflicts::{append, keeping, siblings, write_separately};
use super::scenes::{client, get, key, set, world};
use super::world::{World, replica};
use anabranch_causal::cops::{Handler, check_laws};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Words that are separated by commas, all of both; it refuses values with `!`.
#[derive(Debug)]
struct Union;

impl Handler for Union {
    fn source(&self) -> &str {
        "union"
    }

    fn merge(&self, _: &[u8], one: &[u8], other: &[u8]) -> Result<Vec<u8>, String> {
        if one.contains(&b'!') || other.contains(&b'!') {
            return Err("it does not read '!'".to_owned());
        }
        let words =
            |value: &[u8]| value.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect::<BTreeSet<_>>();
        let both: Vec<Vec<u8>> = words(one).union(&words(other)).cloned().collect();
        Ok(both.join(&b','))
    }
}

/// Three regions whose partition 0 has the handler, and what each has written of a key apart from the others.
fn merging() -> World {
    let mut world = world(3, keeping(false, None));
    handle(&mut world);
    write_separately(&mut world, 3, &key(0));
    world.heal();
    world.run_ms(500);
    world
}

fn handle(world: &mut World) {
    for region in 0..3 {
        let host = world.host(replica(region, 0));
        host.replica.as_mut().expect("it is up").protocol_mut().set_handler(Some(Arc::new(Union)));
    }
}

fn everywhere(world: &mut World, value: &str) {
    (0..3).for_each(|region| assert_eq!(get(world, client(region, 8), &key(0)), value));
}

#[test]
fn every_region_reads_what_the_handler_makes_of_the_same_values() {
    let mut world = merging();
    everywhere(&mut world, "of 0,of 1,of 2");
    // Reading wrote nothing: the values are what they were.
    for region in 0..3 {
        assert_eq!(siblings(&mut world, client(region, 3), &key(0)), ["of 2", "of 0", "of 1"]);
    }
}

/// Corrections 50: what the handler returns is no version. Two regions that read, and write what they made of it, are in
/// conflict with one another, and with nothing that both of them replaced.
#[test]
fn a_write_on_what_was_merged_replaces_the_values_that_were_merged() {
    let mut world = merging();
    world.cut(0, 1);
    let reply = client(0, 1).one(&mut world, &key(0), append(",more"));
    assert_eq!(reply, "(integer) 19");
    assert_eq!(get(&mut world, client(0, 2), &key(0)), "of 0,of 1,of 2,more");
    let own: Client = client(1, 1);
    assert_eq!(own.one(&mut world, &key(0), GET), "\"of 0,of 1,of 2\"");
    set(&mut world, own, &key(0), "other");
    world.heal();
    world.run_ms(500);
    // Appended bytes merge by their type, on top of the last writer's value.
    for region in 0..3 {
        assert_eq!(siblings(&mut world, client(region, 4), &key(0)).len(), 2);
    }
    let reply = get(&mut world, client(2, 4), &key(0));
    everywhere(&mut world, &reply);
    assert!(reply.contains("of 0,of 1") && reply.contains("other"), "{reply}");
    set(&mut world, client(2, 4), &key(0), "one");
    world.run_ms(500);
    everywhere(&mut world, "one");
}

/// A handler that fails stops nobody: reads show the key as it is.
#[test]
fn values_that_a_handler_refuses_are_siblings() {
    let mut world = merging();
    world.cut(0, 1);
    set(&mut world, client(0, 1), &key(0), "a!");
    set(&mut world, client(1, 1), &key(0), "b");
    world.heal();
    world.run_ms(500);
    for region in 0..3 {
        let own = client(region, 2);
        let reply = own.one(&mut world, &key(0), GET);
        assert!(
            reply.starts_with("-SIBLINGS") && reply.contains("did not merge them: it does not read '!'"),
            "{reply}"
        );
        assert!(own.one(&mut world, &key(0), increment(1)).starts_with("-SIBLINGS"));
    }
    set(&mut world, client(2, 3), &key(0), "settled");
    world.run_ms(500);
    everywhere(&mut world, "settled");
}

#[test]
fn the_handler_keeps_the_laws() {
    assert_eq!(check_laws(&Union), Ok(()));
}
