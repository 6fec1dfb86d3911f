//! Sessions that know what they depend on: clocks that leap, restarts, watches, pipelines.

use super::client::{Client, GET, increment, key_in, step};
use super::degraded::world;
use super::under_test::Options;
use super::world::{EPOCH, World, coordinator, replica};
use crate::wren::operations::write;
use anabranch_causal::pocc::Scope;
use protocol::Request;
use std::time::Duration;

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
    let (ahead, second) = (key_in(1, 2, "ahead"), key_in(1, 2, "beside"));
    assert_eq!(client(FAR, 1).one(&mut world, &ahead, write("early")), "OK");
    world.run_ms(200);
    let begun = world.now;
    for session in 2..4 {
        let (client, other) = (client(HERE, session), format!("other{session}"));
        assert_eq!(client.one(&mut world, &ahead, GET), "(nil)");
        assert_eq!(client.many(&mut world, &[step(&ahead, GET), step(&other, GET)]), "(nil); (nil)");
        assert!(client.one(&mut world, &second, increment(1)).starts_with("(integer)"));
        assert_eq!(client.one(&mut world, &other, write("v")), "OK");
        assert_eq!(client.one(&mut world, &other, GET), "\"v\"");
        assert_eq!(client.begin(&mut world), "OK");
        assert_eq!(client.operate(&mut world, &other, write("w")), "OK");
        assert_eq!(client.commit(&mut world), "OK");
        world.run_ms(100);
    }
    assert!(world.now - begun < 600_000, "nobody waits");
}

/// After a restart nothing is known to be stable, and while the region is cut off nobody says so.
fn writes_after_a_restart(region: u16) {
    let lease = Duration::from_millis(150);
    let mut world = of(Options { claims: true, lease, ..Options::default() });
    assert_eq!(client(region, 1).one(&mut world, "k", write("v")), "OK");
    world.run_ms(1_000);
    (0..3).filter(|other| *other != region).for_each(|other| world.cut(region, other));
    let cut_at = EPOCH + world.now;
    world.run_ms(1_000);
    let nodes = [replica(region, 0), replica(region, 1), coordinator(region, 0), coordinator(region, 1)];
    nodes.into_iter().for_each(|node| world.crash(node));
    nodes.into_iter().for_each(|node| world.start(node));
    world.claims.clear();
    let begun = world.now;
    assert_eq!(client(region, 2).one(&mut world, "k", write("w")), "OK");
    assert!(world.now - begun < 200_000, "nobody waits");
    let commit = world.claims.last().and_then(|claim| claim.commit).expect("it wrote");
    let observed = commit.depends_on.wall().0;
    assert!((1..cut_at).contains(&observed), "it claims to have observed {observed}, cut off at {cut_at}");
}

#[test]
fn a_region_that_restarts_while_it_is_cut_off_writes_on() {
    [HERE, 1, FAR].into_iter().for_each(writes_after_a_restart);
}

#[test]
fn a_partition_that_lost_its_disk_has_everything_of_the_other_regions_again() {
    let mut world = of(Options::default());
    let client = client(HERE, 1);
    assert_eq!(client.one(&mut world, "k", write("v")), "OK");
    world.run_ms(1_000);
    let lost: Vec<_> = (0..2).map(|index| replica(HERE, index)).collect();
    lost.iter().for_each(|partition| world.destroy(*partition));
    lost.iter().for_each(|partition| world.start_from(*partition, false));
    world.run_ms(3_000);
    assert_eq!(client.one(&mut world, "k", GET), "\"v\"");
}

/// The clock of one process is behind that of another one: what it commits after a `WATCH` is a change all the same.
#[test]
fn a_watch_notices_what_a_slower_clock_places_later() {
    let mut world = of(Options::default());
    world.host(coordinator(HERE, 0)).skew = 100_000;
    let (watcher, writer) = (client(HERE, 1), Client::new(coordinator(HERE, 1), 2));
    assert_eq!(watcher.watch(&mut world, "k"), "OK");
    assert_eq!(writer.one(&mut world, "k", write("changed")), "OK");
    assert_eq!(watcher.watched(&mut world, &[step("k", write("lost"))]), "(nil array)");
    assert_eq!(watcher.one(&mut world, "k", GET), "\"changed\"");
    assert_eq!(watcher.one(&mut world, "k", write("mine")), "OK");
    assert_eq!(watcher.watch(&mut world, "k"), "OK");
    assert_eq!(watcher.watched(&mut world, &[step("k", write("next"))]), "OK");
}

fn coordinator_of(world: &World) -> &anabranch_causal::pocc::Coordinator {
    world.node(coordinator(HERE, 0)).as_coordinator().expect("it is one")
}

#[test]
fn nothing_that_a_session_wrote_is_cached() {
    let mut world = of(Options::default());
    world.cut(HERE, FAR);
    let client = client(HERE, 1);
    assert_eq!(client.one(&mut world, "k", write("v")), "OK");
    assert_eq!(coordinator_of(&world).cached(), 0);
    assert_eq!(client.one(&mut world, "k", GET), "\"v\"");
}

/// Its last transaction is in doubt when it is closed, and ends later.
#[test]
fn nothing_is_retained_of_a_session_that_was_closed_late() {
    let mut world = of(Options::default());
    let (client, key) = (client(HERE, 1), key_in(0, 2, "k"));
    world.crash(replica(HERE, 0));
    client.send(&mut world, &[step(&key, write("v"))]);
    world.run_ms(1_000);
    world.request(client.at, Request::Close { session: client.session });
    world.run_ms(11_000);
    world.start(replica(HERE, 0));
    world.run_ms(2_000);
    assert_eq!(coordinator_of(&world).unsettled(), 0);
    assert_eq!(coordinator_of(&world).retained_sessions(), 0);
}

/// What a coordinator hears, and says, of what is received, in a second.
fn gossip(world: &mut World) -> u64 {
    let count = |world: &World| world.stabilization[&coordinator(HERE, 0)];
    let before = count(world);
    world.run_ms(1_000);
    count(world) - before
}

#[test]
fn a_coordinator_that_nobody_asks_is_quiet() {
    let mut world = of(Options::default());
    assert_eq!(client(HERE, 1).one(&mut world, "k", write("v")), "OK");
    assert!(gossip(&mut world) > 700, "two partitions, there and back, at every tick");
    let quiet = gossip(&mut world);
    assert!(quiet < 150, "{quiet} messages");
    let (one, another) = (key_in(0, 2, "a"), key_in(1, 2, "a"));
    assert_eq!(client(HERE, 2).many(&mut world, &[step(&one, GET), step(&another, GET)]), "(nil); (nil)");
    assert!(gossip(&mut world) > 700, "somebody asks again");
}

/// A partition tells with each answer what it has received: only the one that serves the stable times is asked beside that.
#[test]
fn who_answers_reads_is_not_asked_as_well() {
    let mut world = of(Options::default());
    let (keys, client) = ([0, 1].map(|index| key_in(index, 2, "a")), client(HERE, 1));
    let count = |world: &World| world.stabilization[&coordinator(HERE, 0)];
    assert_eq!(client.one(&mut world, &keys[0], GET), "(nil)");
    let (before, end) = (count(&world), world.now + 1_000_000);
    while world.now < end {
        keys.iter().for_each(|key| assert_eq!(client.one(&mut world, key, GET), "(nil)"));
    }
    let sent = count(&world) - before;
    assert!((300..=700).contains(&sent), "{sent} messages");
}
