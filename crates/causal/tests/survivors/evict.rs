//! A region that is gone for good, and the others that go on without it (Corrections 36 and 44).
//!
//! Partition 0 is in the regions 0 and 1, partition 1 in 1 and 2, partition 2 in 2 and 0.

use crate::survivors::client::{Client, GET, blind_step, increment, key_in, step};
use crate::survivors::world::{Faults, KEYSPACE, SEED, World, coordinator, replica};
use anabranch_causal::paris::{Message, Mutant, Mutants, Options, RegionTopology, Times, Topology};
use protocol::{Durability, Request};
use std::time::Duration;
use types::{RegionId, SessionId, Timestamp};

/// As many regions and partitions, of which each is in so many regions. Horizons rise soon.
fn world_of(regions: u16, replicas: u16, mutants: Mutants) -> World {
    let lease = Duration::from_millis(100);
    let options = Options { durability: Durability::Synced, mutants, lease, ..Options::default() };
    let holds = |region: u16, partition: u16| (region + regions - partition) % regions < replicas;
    let of_region = |region: u16| RegionTopology {
        name: region.to_string(),
        partitions: (0..regions)
            .filter(|partition| holds(region, *partition))
            .map(|partition| (partition, replica(region, partition)))
            .collect(),
    };
    let topology =
        Topology { regions: (0..regions).map(of_region).collect(), keyspace: KEYSPACE, seed: SEED };
    let mut world = World::of(topology, 2, options, 3);
    world.faults = Faults { log: 500, ..Faults::NONE };
    world.run_ms(1_000);
    world
}

fn world(mutants: Mutants) -> World {
    world_of(3, 2, mutants)
}

fn held(world: &World, region: u16) -> Vec<u16> {
    world.topology.regions[usize::from(region)].partitions.keys().copied().collect()
}

/// The whole region burns down.
fn lose(world: &mut World, region: u16) {
    held(world, region).into_iter().for_each(|index| world.destroy(replica(region, index)));
    (0..2).for_each(|number| world.crash(coordinator(region, number)));
}

/// An operator tells one replica of one that survives.
fn evict(world: &mut World, at: u16, lost: u16) {
    let index = held(world, at)[0];
    world.tell(replica(at, index), Message::Evict { regions: vec![RegionId(lost)] });
}

fn keys(partitions: u16) -> Vec<String> {
    (0..partitions).map(|index| key_in(index, partitions, "k")).collect()
}

fn client(region: u16) -> Client {
    Client::new(coordinator(region, 0), 1 + u64::from(region))
}

/// Who has written nothing.
fn reader(region: u16) -> Client {
    Client::new(coordinator(region, 1), 100 + u64::from(region))
}

/// Adds to the keys of these partitions in one transaction.
fn add(world: &mut World, region: u16, on: &[u16], by: i64) -> String {
    let keys = keys(held_partitions(world));
    let steps: Vec<_> =
        on.iter().map(|index| blind_step(&keys[usize::from(*index)], increment(by))).collect();
    client(region).many(world, &steps)
}

fn held_partitions(world: &World) -> u16 {
    world.topology.partitions()
}

fn read_by(world: &mut World, client: Client) -> Vec<i64> {
    let keys = keys(held_partitions(world));
    let steps: Vec<_> = keys.iter().map(|key| step(key, GET)).collect();
    let reply = client.many(world, &steps);
    let number = |text: &str| match text {
        "(nil)" => 0,
        text => text.trim_matches('"').parse().unwrap_or_else(|_| panic!("{reply}")),
    };
    reply.split("; ").map(number).collect()
}

fn read(world: &mut World, region: u16) -> Vec<i64> {
    read_by(world, reader(region))
}

fn is_over(world: &World, region: u16) -> bool {
    held(world, region).into_iter().all(|index| {
        let partition = world.node(replica(region, index)).as_partition().expect("a replica");
        partition.evicted().next().is_some() && !partition.is_evicting() && partition.undecided() == 0
    })
}

/// All that are left have gone on; what they read alike.
fn agreed(world: &mut World, regions: &[u16], about: &str) -> Vec<i64> {
    for region in regions {
        assert!(is_over(world, *region), "region {region}, {about}");
    }
    let seen = read(world, regions[0]);
    for region in regions {
        assert_eq!(read(world, *region), seen, "region {region}, {about}");
        let cached = read_by(world, Client::new(coordinator(*region, 0), 50));
        assert_eq!(cached, seen, "region {region}, {about}");
    }
    seen
}

#[test]
fn survivors_go_on_with_what_they_hold() {
    let mut world = world(Mutants::default());
    add(&mut world, 2, &[0, 1, 2], 1);
    world.run_ms(500);
    lose(&mut world, 2);
    world.run_ms(500);
    add(&mut world, 0, &[0], 10);
    world.run_ms(1_000);
    assert_eq!(read(&mut world, 1), [1, 1, 1], "the stable time stands still");
    evict(&mut world, 1, 2);
    world.run_ms(4_000);
    assert_eq!(agreed(&mut world, &[0, 1], "both"), [11, 1, 1]);
    for region in [0, 1] {
        let reply = add(&mut world, region, &[0, 1, 2], 100);
        assert!(!reply.starts_with('-'), "{reply}");
    }
    world.run_ms(500);
    assert_eq!(agreed(&mut world, &[0, 1], "later"), [211, 201, 201]);
}

/// Whoever asks for it, and wherever it is when a region burns down: all of a transaction is there in the end, or nothing.
#[test]
fn a_transaction_in_flight_survives_or_is_given_up_as_a_whole() {
    let (mut survived, mut all) = (0, 0);
    for gateway in [0, 1, 2] {
        for pause in crate::some_of((0..160).step_by(16)) {
            let mut world = world(Mutants::default());
            add(&mut world, 1, &[0, 1, 2], 1);
            world.run_ms(500);
            let about = format!("gateway {gateway}, after {pause} ms");
            let keys = keys(3);
            let steps: Vec<_> = keys.iter().map(|key| blind_step(key, increment(10))).collect();
            client(gateway).send(&mut world, &steps);
            world.run_ms(pause);
            lose(&mut world, 2);
            world.run_ms(300);
            evict(&mut world, 0, 2);
            world.run_ms(4_000);
            let seen = agreed(&mut world, &[0, 1], &about);
            assert!(seen == [1, 1, 1] || seen == [11, 11, 11], "{about}: {seen:?}");
            (survived, all) = (survived + usize::from(seen[0] == 11), all + 1);
            // A session whose transaction was given up gets its error first.
            client(0).one(&mut world, &keys[0], GET);
            add(&mut world, 0, &[0, 1, 2], 100);
            world.run_ms(500);
            let later: Vec<i64> = seen.iter().map(|value| value + 100).collect();
            assert_eq!(agreed(&mut world, &[0, 1], &about), later, "{about}");
        }
    }
    assert!(survived > 0 && survived < all, "both happen: {survived} of {all}");
}

/// Partition 1 of region 1 is down, so that region 0 writes it in region 2, and hears nothing of what is written there.
fn half_elsewhere(world: &mut World) {
    add(world, 1, &[0, 1, 2], 1);
    world.run_ms(500);
    world.crash(replica(1, 1));
    world.run_ms(1_000);
    let reply = add(world, 0, &[0, 1], 10);
    assert!(!reply.starts_with('-'), "{reply}");
    let reply = add(world, 0, &[0], 100);
    assert!(!reply.starts_with('-'), "{reply}");
    world.run_ms(100);
    assert_eq!(read_by(world, client(0)), [111, 11, 1], "its session reads what it wrote");
    lose(world, 2);
    world.start(replica(1, 1));
    world.run_ms(300);
}

/// The part in a region that is left goes with the lost one; what the session did there afterwards stays, and the
/// session gets an error.
#[test]
fn a_part_elsewhere_is_given_up_with_the_lost_one() {
    let mut world = world(Mutants::default());
    half_elsewhere(&mut world);
    assert_eq!(read(&mut world, 0), [1, 1, 1], "it was never stable");
    evict(&mut world, 0, 2);
    world.run_ms(4_000);
    let keys = keys(3);
    let reply = client(0).one(&mut world, &keys[0], GET);
    assert!(
        reply.starts_with("-UNAVAILABLE region 2 was evicted, and what this session had written"),
        "{reply}"
    );
    assert_eq!(read_by(&mut world, client(0)), [101, 1, 1]);
    assert_eq!(agreed(&mut world, &[0, 1], "all"), [101, 1, 1]);
    // Neither a log nor a peer brings it back.
    for round in 0..4 {
        let down = replica(0, 0);
        if round == 3 {
            world.destroy(down);
            world.start_from(down, false);
        } else {
            world.crash(down);
            if round == 1 {
                world.crash(replica(1, 0));
                world.start(replica(1, 0));
            }
            world.start(down);
        }
        world.run_ms(4_000);
        assert_eq!(agreed(&mut world, &[0, 1], "restarted"), [101, 1, 1], "{round}");
    }
}

#[test]
fn a_survivor_that_keeps_a_part_elsewhere_is_found_out() {
    let mut world = world(Mutant::PartKept.into());
    half_elsewhere(&mut world);
    evict(&mut world, 0, 2);
    world.run_ms(4_000);
    assert_eq!(read(&mut world, 1), [111, 1, 1]);
}

#[test]
fn a_coordinator_that_says_nothing_of_what_was_given_up_is_found_out() {
    let mut world = world(Mutant::GivenUpCached.into());
    half_elsewhere(&mut world);
    evict(&mut world, 0, 2);
    world.run_ms(4_000);
    assert_eq!(read_by(&mut world, client(0)), [101, 1, 1], "without a word");
}

/// An interactive transaction that reads what is given up cannot go on, and a watch of it is touched.
#[test]
fn what_reads_the_given_up_ends() {
    let mut world = world(Mutants::default());
    half_elsewhere(&mut world);
    let keys = keys(3);
    let (open, watching) = (Client::new(coordinator(0, 0), 70), Client::new(coordinator(0, 0), 71));
    assert_eq!(open.begin(&mut world), "OK");
    assert_eq!(open.operate(&mut world, &keys[0], GET), "\"111\"");
    assert_eq!(watching.watch(&mut world, &keys[0]), "OK");
    evict(&mut world, 1, 2);
    world.run_ms(4_000);
    let reply = open.operate(&mut world, &keys[1], GET);
    assert!(reply.starts_with("-UNAVAILABLE region 2 was evicted"), "{reply}");
    let reply = open.commit(&mut world);
    assert!(reply.starts_with("-UNAVAILABLE region 2 was evicted"), "{reply}");
    assert_eq!(open.one(&mut world, &keys[0], GET), "\"101\"", "it had written nothing itself");
    let reply = watching.watched(&mut world, &[step(&keys[0], increment(1))]);
    assert_eq!(reply, "(nil array)");
}

/// A session with an open transaction that ends with the session's lost writes gets an error, even if its next request
/// only ends the transaction.
#[test]
fn an_abort_gets_the_error_too() {
    let mut world = world(Mutants::default());
    half_elsewhere(&mut world);
    let keys = keys(3);
    assert_eq!(client(0).begin(&mut world), "OK");
    evict(&mut world, 1, 2);
    world.run_ms(4_000);
    let reply = client(0).ask(&mut world, Request::Abort { session: SessionId(1) });
    assert!(reply.starts_with("-UNAVAILABLE region 2 was evicted, and what this session had"), "{reply}");
    assert_eq!(client(0).begin(&mut world), "OK");
    assert_eq!(client(0).operate(&mut world, &keys[0], GET), "\"101\"");
}

/// Region 2 decides on partition 1 and tells the replica in region 1; region 0, whose coordinator dies, does not hear it.
fn decided_in_the_lost_region(world: &mut World) {
    add(world, 1, &[0, 1, 2], 1);
    world.run_ms(500);
    world.crash(replica(1, 1));
    world.run_ms(1_000);
    let keys = keys(3);
    client(0).send(world, &[blind_step(&keys[1], increment(10)), blind_step(&keys[2], increment(10))]);
    world.run_ms(70);
    world.crash(coordinator(0, 0));
    world.start(replica(1, 1));
    world.run_ms(200);
    let undecided = world.node(replica(0, 2)).as_partition().map(|partition| partition.undecided());
    assert_eq!(undecided, Some(1));
    lose(world, 2);
    world.start(coordinator(0, 0));
    evict(world, 0, 2);
    world.run_ms(4_000);
}

/// A decision that only the lost region knew is found where its effects are.
#[test]
fn what_is_undecided_ends_as_where_its_effects_are() {
    let mut world = world(Mutants::default());
    decided_in_the_lost_region(&mut world);
    assert_eq!(agreed(&mut world, &[0, 1], "decided"), [1, 11, 11]);
}

#[test]
fn a_survivor_that_aborts_what_others_have_is_found_out() {
    let mut world = world(Mutant::UndecidedGivenUp.into());
    decided_in_the_lost_region(&mut world);
    assert_eq!(read(&mut world, 0), [1, 11, 1]);
}

/// Region 1 hears nothing more of region 3, regions 0 and 2 do.
fn unevenly_heard(mutants: Mutants) -> World {
    let mut world = world_of(4, 3, mutants);
    add(&mut world, 2, &[0, 1, 2, 3], 1);
    world.run_ms(500);
    world.cut_one_way(3, 1);
    add(&mut world, 3, &[1, 2, 3], 10);
    world.run_ms(200);
    lose(&mut world, 3);
    evict(&mut world, 0, 3);
    world.run_ms(5_000);
    world
}

/// What one survivor lacks of the lost region another one gives it.
#[test]
fn survivors_forward_what_they_hold() {
    let mut world = unevenly_heard(Mutants::default());
    assert_eq!(agreed(&mut world, &[0, 1, 2], "forwarded"), [1, 11, 11, 11]);
}

#[test]
fn survivors_that_forward_nothing_are_found_out() {
    let mut world = unevenly_heard(Mutant::CutNotReached.into());
    let seen = [1, 2].map(|region| read(&mut world, region)[1]);
    assert_eq!(seen, [1, 11]);
}

/// Whoever dies whenever, the survivors agree.
#[test]
fn survivors_that_die_meanwhile_agree() {
    for pause in crate::some_of((0..3_000).step_by(150)) {
        let mut world = world(Mutants::default());
        half_elsewhere(&mut world);
        let about = format!("after {pause} ms");
        evict(&mut world, 1, 2);
        world.run_ms(pause);
        for down in [replica(0, 0), replica(1, (pause % 2) as u16), replica(0, 2), replica(1, 0)] {
            world.crash(down);
            world.run_ms(40);
            world.start(down);
            world.run_ms(pause % 400);
        }
        world.run_ms(6_000);
        assert_eq!(agreed(&mut world, &[0, 1], &about), [101, 1, 1], "{about}");
        add(&mut world, 1, &[0, 1, 2], 1_000);
        world.run_ms(600);
        assert_eq!(agreed(&mut world, &[0, 1], &about), [1_101, 1_001, 1_001], "{about}");
    }
}

/// Region 0 has five partitions, one below the other or in twos. Partition 0 is nowhere else, partition 3 also in region 2, all
/// others in region 1; it is far from one region to another.
fn world_of_trees(fan_out: u16) -> World {
    let lease = Duration::from_millis(100);
    let options = Options { durability: Durability::Synced, fan_out, lease, ..Options::default() };
    let of_region = |(region, held): (u16, &[u16])| RegionTopology {
        name: region.to_string(),
        partitions: held.iter().map(|index| (*index, replica(region, *index))).collect(),
    };
    let regions = [(0, &[0, 1, 2, 3, 4][..]), (1, &[1, 2, 4]), (2, &[3])];
    let topology = Topology { regions: regions.map(of_region).into(), keyspace: KEYSPACE, seed: SEED };
    let mut world = World::of(topology, 2, options, 3);
    world.faults = Faults { log: 500, far: (400_000, 400_000), ..Faults::NONE };
    world.run_ms(2_000);
    world
}

/// Lets some milliseconds pass. Returns the latest snapshot that anybody who has not gone on without the lost
/// region calls stable meanwhile.
fn shown_during(world: &mut World, ms: u64) -> Timestamp {
    let mut shown = Timestamp::ZERO;
    for _ in 0..ms {
        world.run_ms(1);
        for region in [0, 1] {
            for index in held(world, region) {
                let partition = world.node(replica(region, index)).as_partition();
                let tracker = partition.filter(|partition| partition.is_evicting());
                shown = tracker.map_or(shown, |partition| shown.max(partition.stable().whole()));
            }
        }
    }
    shown
}

/// Partition 3 has reported more than its log knows when it restarts. The root of its region is down meanwhile, and
/// perhaps others above it are, so that only those that are left between them know; what they tell the root when it is
/// back comes to be stable in the other region.
#[test]
fn a_cut_is_not_below_what_those_above_in_a_tree_still_come_to_call_stable() {
    for (fan_out, above) in [(1, &[0][..]), (1, &[0, 1]), (2, &[0])] {
        for pause in crate::some_of((0..300).step_by(100)) {
            let mut world = world_of_trees(fan_out);
            let about = format!("fan-out {fan_out}, {above:?}, after {pause} ms");
            above.iter().for_each(|index| world.crash(replica(0, *index)));
            world.run_ms(100);
            lose(&mut world, 2);
            world.crash(replica(0, 3));
            world.run_ms(10);
            world.start(replica(0, 3));
            // All that was on its way from region 2 is there before any partition learns of the loss.
            world.run_ms(450);
            let up = |index: &u16| !above.contains(index);
            let notified = (0..5).filter(up).map(|index| (0, index)).chain([(1, 1)]);
            notified.for_each(|(region, index)| {
                world.tell(replica(region, index), Message::Evict { regions: vec![RegionId(2)] });
            });
            world.run_ms(400 + pause);
            above.iter().for_each(|index| world.start(replica(0, *index)));
            let shown = shown_during(&mut world, 2_000);
            world.run_ms(8_000);
            agreed(&mut world, &[0, 1], &about);
            let cut = world.node(replica(0, 3)).as_partition().and_then(|node| node.cut_of(RegionId(2)));
            assert!(cut.is_some_and(|cut| shown <= cut), "{about}: {shown:?} was shown, the cut is {cut:?}");
        }
    }
}

/// The second loss comes while the first one is being dealt with, and takes with it what only it had of the first.
#[test]
fn a_second_region_may_be_lost_meanwhile() {
    for pause in crate::some_of((0..3_500).step_by(500)) {
        let mut world = world_of(4, 3, Mutants::default());
        let about = format!("after {pause} ms");
        add(&mut world, 3, &[0, 1, 2, 3], 1);
        world.run_ms(500);
        world.cut(3, 0);
        world.cut(3, 1);
        // Only region 2 hears of this.
        let keys = keys(4);
        client(3)
            .send(&mut world, &[blind_step(&keys[1], increment(10)), blind_step(&keys[2], increment(10))]);
        world.run_ms(200);
        lose(&mut world, 3);
        evict(&mut world, 0, 3);
        world.run_ms(pause);
        lose(&mut world, 2);
        world.run_ms(300);
        evict(&mut world, 1, 2);
        world.run_ms(6_000);
        let seen = agreed(&mut world, &[0, 1], &about);
        assert!(seen == [1, 1, 1, 1] || seen == [1, 11, 11, 1], "{about}: {seen:?}");
        add(&mut world, 1, &[0, 1, 2, 3], 100);
        world.run_ms(600);
        let later: Vec<i64> = seen.iter().map(|value| value + 100).collect();
        assert_eq!(agreed(&mut world, &[0, 1], &about), later, "{about}");
    }
}

/// A region that is thought dead and comes back learns that it is out, and disturbs nobody.
#[test]
fn an_evicted_region_that_comes_back_serves_nothing() {
    let mut world = world(Mutants::default());
    add(&mut world, 2, &[0, 1, 2], 1);
    world.run_ms(500);
    world.cut(2, 0);
    world.cut(2, 1);
    add(&mut world, 2, &[1, 2], 10);
    evict(&mut world, 0, 2);
    world.run_ms(4_000);
    add(&mut world, 0, &[0, 1, 2], 100);
    world.run_ms(500);
    assert_eq!(agreed(&mut world, &[0, 1], "without it"), [101, 101, 101]);
    world.heal();
    world.run_ms(1_000);
    let key = &keys(3)[1];
    for _ in 0..2 {
        let refused = client(2).one(&mut world, key, GET);
        assert!(refused.starts_with("-UNAVAILABLE region 2 was evicted"), "{refused}");
        for down in [replica(2, 1), replica(2, 2), coordinator(2, 0)] {
            world.crash(down);
            world.start(down);
        }
        world.run_ms(1_000);
    }
    assert_eq!(agreed(&mut world, &[0, 1], "with it"), [101, 101, 101]);
}

/// What nobody else has cannot be cut off.
#[test]
fn a_region_that_alone_holds_a_partition_stays() {
    let mut world = world_of(3, 1, Mutants::default());
    evict(&mut world, 0, 2);
    world.run_ms(1_000);
    let partition = world.node(replica(0, 0)).as_partition().expect("a replica");
    assert!(partition.evicted().next().is_none());
}

#[test]
fn the_last_region_goes_on_alone() {
    let mut world = world_of(2, 2, Mutants::default());
    add(&mut world, 1, &[0, 1], 1);
    world.run_ms(500);
    lose(&mut world, 1);
    evict(&mut world, 0, 1);
    world.run_ms(4_000);
    add(&mut world, 0, &[0, 1], 10);
    world.run_ms(300);
    assert_eq!(agreed(&mut world, &[0], "alone"), [11, 11]);
}
