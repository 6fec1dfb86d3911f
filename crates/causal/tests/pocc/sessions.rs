//! Sessions that know what they depend on: clocks that leap, restarts, watches, pipelines.

use super::client::{Client, GET, increment, key_in, step};
use super::degraded::world;
use super::under_test::Options;
use super::world::{World, coordinator, replica};
use crate::wren::operations::write;
use anabranch_causal::pocc::Scope;

const HERE: u16 = 0;
const FAR: u16 = 2;
const HOURS_US: i64 = 3 * 3_600_000_000;

fn client(region: u16, session: u64) -> Client {
    Client::new(coordinator(region, 0), session)
}

fn of(options: Options) -> World {
    let mut world = world(Options { scope: Scope::Session, ..options }, 1);
    world.run_ms(200);
    world
}

/// As in Wren: what is hours ahead is seen hours later, and nobody else notices.
#[test]
fn a_clock_of_another_region_that_leaps_ahead_stops_nobody() {
    let mut world = of(Options::default());
    world.host(replica(FAR, 1)).skew = HOURS_US;
    let (ahead, beside) = (key_in(1, 2, "ahead"), key_in(1, 2, "beside"));
    assert_eq!(client(FAR, 1).one(&mut world, &ahead, write("early")), "OK");
    world.run_ms(200);
    let begun = world.now;
    for session in 2..4 {
        let (client, other) = (client(HERE, session), format!("other{session}"));
        assert_eq!(client.one(&mut world, &ahead, GET), "(nil)");
        assert_eq!(client.many(&mut world, &[step(&ahead, GET), step(&other, GET)]), "(nil); (nil)");
        assert!(client.one(&mut world, &beside, increment(1)).starts_with("(integer)"));
        assert_eq!(client.one(&mut world, &other, write("v")), "OK");
        assert_eq!(client.one(&mut world, &other, GET), "\"v\"");
        assert_eq!(client.begin(&mut world), "OK");
        assert_eq!(client.operate(&mut world, &other, write("w")), "OK");
        assert_eq!(client.commit(&mut world), "OK");
        world.run_ms(100);
    }
    assert!(world.now - begun < 600_000, "nobody waits");
}
