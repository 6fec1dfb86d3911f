//! A region that is gone for good, and the others that go on without it (Corrections 36).

use crate::wren::client::{Client, GET, blind_step, increment, key_in, step};
use crate::wren::operations::{DELETE, write};
use crate::wren::world::{Faults, World, coordinator, replica};
use anabranch_causal::wren::{Message, Mutant, Mutants, Options};
use protocol::Durability;
use std::time::Duration;
use types::RegionId;

/// Horizons rise soon, so that what all have seen is folded.
fn world(regions: u16, mutants: Mutants) -> World {
    let lease = Duration::from_millis(100);
    let options = Options { durability: Durability::Synced, mutants, lease, ..Options::default() };
    let mut world = World::new(regions, 2, 2, options, 3);
    world.faults = Faults { log: 500, ..Faults::NONE };
    world.run_ms(300);
    world
}

/// The whole region burns down.
fn lose(world: &mut World, region: u16) {
    (0..2).for_each(|index| world.destroy(replica(region, index)));
    (0..2).for_each(|number| world.crash(coordinator(region, number)));
}

/// An operator tells one replica of one that survives.
fn evict(world: &mut World, at: u16, lost: u16) {
    world.tell(replica(at, 1), Message::Evict { regions: vec![RegionId(lost)] });
}

fn keys() -> [String; 2] {
    [key_in(0, 2, "a"), key_in(1, 2, "b")]
}

fn client(region: u16) -> Client {
    Client::new(coordinator(region, 0), 1 + u64::from(region))
}

fn add(world: &mut World, region: u16, by: i64) {
    let [a, b] = keys();
    client(region).many(world, &[blind_step(&a, increment(by)), blind_step(&b, increment(by))]);
}

fn read(world: &mut World, region: u16) -> String {
    let [a, b] = keys();
    client(region).many(world, &[step(&a, GET), step(&b, GET)])
}

fn both(value: i64) -> String {
    format!("\"{value}\"; \"{value}\"")
}

fn is_over(world: &World, region: u16) -> bool {
    (0..2).all(|index| {
        let partition = world.node(replica(region, index)).as_partition().expect("a replica");
        partition.evicted().next().is_some() && !partition.is_evicting()
    })
}

/// What one survivor lacks of the lost region another one gives it, from its histories or, where they are folded, from
/// its cells; and the stable times of all go on.
#[test]
fn survivors_forward_what_they_hold_and_go_on() {
    for pause in [30, 3_000] {
        let mut world = world(3, Mutants::default());
        add(&mut world, 2, 1);
        world.run_ms(200);
        world.cut(2, 1);
        add(&mut world, 2, 10);
        world.run_ms(100);
        assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(11), both(1)), "only region 0 heard");
        lose(&mut world, 2);
        world.run_ms(pause);
        add(&mut world, 0, 100);
        world.run_ms(1_000);
        assert_eq!(read(&mut world, 1), both(1), "stable times stand still");
        evict(&mut world, 1, 2);
        world.run_ms(3_000);
        assert!(is_over(&world, 0) && is_over(&world, 1));
        assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(111), both(111)), "pause {pause}");
        add(&mut world, 1, 1_000);
        world.run_ms(300);
        assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(1111), both(1111)));
        let queued = |index| world.node(replica(0, index)).as_partition().map(|p| p.unreceived());
        assert_eq!((queued(0), queued(1)), (Some(0), Some(0)), "nothing is kept for the lost region");
    }
}

/// Region 0 has increments that region 2 deleted without having seen them. Region 1 has all that region 0 did, and region
/// 0 alone what region 2 did when it is lost. What the others read in the end.
fn deleted_unseen(mutants: Mutants) -> [String; 2] {
    let mut world = world(3, mutants);
    world.cut_one_way(0, 2);
    add(&mut world, 0, 5);
    world.run_ms(500);
    // Region 0 still reads what it was like now, so region 1 has forgotten more and takes effects, not cells.
    assert_eq!(Client::new(coordinator(0, 1), 50).begin(&mut world), "OK");
    world.run_ms(500);
    world.cut_one_way(2, 1);
    let [a, b] = keys();
    client(2).many(&mut world, &[blind_step(&a, DELETE), blind_step(&b, DELETE)]);
    world.run_ms(300);
    assert_eq!(
        (read(&mut world, 0), read(&mut world, 1)),
        (both(5), both(5)),
        "the deletions saw no increment"
    );
    lose(&mut world, 2);
    evict(&mut world, 1, 2);
    world.run_ms(3_000);
    assert!(is_over(&world, 0) && is_over(&world, 1));
    add(&mut world, 1, 10);
    world.run_ms(300);
    [0, 1].map(|region| read(&mut world, region))
}

/// What a survivor is given late may have observed less than what all survivors have observed: they must not forget it
/// before everything of the lost region is there.
#[test]
fn what_is_forwarded_late_resets_only_what_it_observed() {
    assert_eq!(deleted_unseen(Mutants::default()), [both(15), both(15)]);
}

#[test]
fn survivors_that_forget_too_early_are_found_out() {
    assert_eq!(deleted_unseen(Mutant::ForgottenForLost.into()), [both(15), both(10)]);
}

/// Region 2's last transaction has reached the first partition only of these other regions.
fn half_arrived(world: &mut World, others: &[u16]) {
    add(world, 2, 1);
    world.run_ms(300);
    others.iter().for_each(|region| world.crash(replica(*region, 1)));
    add(world, 2, 10);
    world.run_ms(100);
    lose(world, 2);
    others.iter().for_each(|region| world.start(replica(*region, 1)));
    world.run_ms(300);
}

#[test]
fn a_transaction_that_lost_a_part_is_given_up_everywhere() {
    let mut world = world(3, Mutants::default());
    half_arrived(&mut world, &[0, 1]);
    assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(1), both(1)), "it was never stable");
    evict(&mut world, 0, 2);
    world.run_ms(3_000);
    assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(1), both(1)));
    let [a, _] = keys();
    assert_eq!(client(1).one(&mut world, &a, increment(1)), "(integer) 2");
    // Neither a log nor a peer brings it back.
    for round in 0..4 {
        let down = replica(round % 2, round / 2);
        if round == 3 {
            world.destroy(down);
            world.start_from(down, false);
        } else {
            world.crash(down);
            world.start(down);
        }
        world.run_ms(2_000);
        let expected = "\"2\"; \"1\"";
        assert_eq!((read(&mut world, 0), read(&mut world, 1)), (expected.into(), expected.into()), "{round}");
    }
}

/// What is above the cut on one partition only is half of a transaction.
#[test]
fn a_survivor_that_keeps_what_is_above_the_cut_is_found_out() {
    let mut world = world(3, Mutant::KeptAboveCut.into());
    half_arrived(&mut world, &[0, 1]);
    evict(&mut world, 0, 2);
    world.run_ms(3_000);
    assert_eq!(read(&mut world, 0), "\"11\"; \"1\"");
}

#[test]
fn survivors_that_forward_nothing_are_found_out() {
    let mut world = world(3, Mutant::CutNotReached.into());
    world.cut(2, 1);
    add(&mut world, 2, 10);
    world.run_ms(200);
    lose(&mut world, 2);
    evict(&mut world, 0, 2);
    world.run_ms(3_000);
    assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(10), "(nil); (nil)".to_owned()));
}

/// Whoever dies whenever, the survivors agree.
#[test]
fn survivors_that_die_meanwhile_agree() {
    for pause in crate::some_of((0..1_500).step_by(90)) {
        let mut world = world(3, Mutants::default());
        add(&mut world, 2, 1);
        world.run_ms(300);
        world.cut(2, 1);
        add(&mut world, 2, 10);
        world.run_ms(60);
        world.crash(replica(0, 1));
        add(&mut world, 2, 100);
        world.run_ms(60);
        lose(&mut world, 2);
        world.start(replica(0, 1));
        evict(&mut world, 0, 2);
        world.run_ms(pause);
        for down in [replica(0, 0), replica(1, (pause % 2) as u16), replica(0, 1)] {
            world.crash(down);
            world.run_ms(40);
            world.start(down);
            world.run_ms(pause % 400);
        }
        world.run_ms(4_000);
        assert!(is_over(&world, 0) && is_over(&world, 1), "after {pause} ms");
        assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(11), both(11)), "after {pause} ms");
    }
}

/// A region that is thought dead and comes back learns that it is out, and disturbs nobody.
#[test]
fn an_evicted_region_that_comes_back_serves_nothing() {
    let mut world = world(3, Mutants::default());
    add(&mut world, 2, 1);
    world.run_ms(200);
    world.cut(2, 0);
    world.cut(2, 1);
    add(&mut world, 2, 10);
    evict(&mut world, 0, 2);
    world.run_ms(3_000);
    add(&mut world, 0, 100);
    assert_eq!(read(&mut world, 2), both(11), "it does not know yet");
    world.heal();
    world.run_ms(1_000);
    let refused = read(&mut world, 2);
    assert!(refused.starts_with("-UNAVAILABLE region 2 was evicted"), "{refused}");
    assert!(
        client(2).one(&mut world, &keys()[0], write("x")).starts_with("-UNAVAILABLE region 2 was evicted")
    );
    world.crash(replica(2, 0));
    world.start(replica(2, 0));
    world.run_ms(500);
    assert!(read(&mut world, 2).starts_with("-UNAVAILABLE region 2 was evicted"), "its log remembers");
    world.crash(coordinator(2, 0));
    world.start(coordinator(2, 0));
    world.run_ms(500);
    let refused = read(&mut world, 2);
    assert!(
        refused.starts_with("-UNAVAILABLE region 2 was evicted"),
        "a gateway that starts again: {refused}"
    );
    let refused = client(2).begin(&mut world);
    assert!(refused.starts_with("-UNAVAILABLE region 2 was evicted"), "{refused}");
    assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(101), both(101)));
}

/// The second loss comes while the first one is being dealt with, and takes with it what only it had of the first.
#[test]
fn a_second_region_may_be_lost_meanwhile() {
    for pause in crate::some_of((0..1_200).step_by(150)) {
        let mut world = world(4, Mutants::default());
        add(&mut world, 3, 1);
        world.run_ms(300);
        world.cut(3, 0);
        world.cut(3, 1);
        add(&mut world, 3, 10);
        world.run_ms(200);
        lose(&mut world, 3);
        evict(&mut world, 0, 3);
        world.run_ms(pause);
        lose(&mut world, 2);
        world.run_ms(300);
        evict(&mut world, 1, 2);
        world.run_ms(4_000);
        assert!(is_over(&world, 0) && is_over(&world, 1), "after {pause} ms");
        let seen = read(&mut world, 0);
        assert_eq!(seen, read(&mut world, 1), "after {pause} ms");
        assert!(seen == both(1) || seen == both(11), "after {pause} ms: {seen}");
        add(&mut world, 1, 100);
        world.run_ms(300);
        assert_ne!(read(&mut world, 0), seen, "after {pause} ms");
    }
}

/// Region 1 has not heard of the cut when region 0 has given up what is above and gone on; then region 3 is lost.
#[test]
fn what_was_given_up_stays_so_when_a_second_region_is_lost() {
    let mut world = world(4, Mutants::default());
    half_arrived(&mut world, &[0, 1, 3]);
    world.cut_one_way(0, 1);
    world.cut_one_way(3, 1);
    evict(&mut world, 0, 2);
    evict(&mut world, 1, 2);
    world.run_ms(4_000);
    assert!(is_over(&world, 0) && !is_over(&world, 1));
    lose(&mut world, 3);
    world.heal();
    evict(&mut world, 1, 3);
    world.run_ms(4_000);
    assert!(is_over(&world, 0) && is_over(&world, 1));
    assert_eq!((read(&mut world, 0), read(&mut world, 1)), (both(1), both(1)));
}

/// A region that has gone on and restarts as a whole shows again what it had shown, though the other one does not answer.
#[test]
fn a_region_that_restarts_later_goes_on_by_itself() {
    let mut world = world(3, Mutants::default());
    // Region 0 lacks nothing that region 1 holds.
    world.cut_one_way(2, 1);
    world.run_ms(100);
    lose(&mut world, 2);
    evict(&mut world, 0, 2);
    world.run_ms(4_000);
    add(&mut world, 1, 1);
    world.run_ms(500);
    (0..2).for_each(|index| world.crash(replica(1, index)));
    for down in [replica(0, 0), replica(0, 1), coordinator(0, 0), coordinator(0, 1)] {
        world.crash(down);
        world.start(down);
    }
    world.run_ms(3_000);
    assert!(is_over(&world, 0));
    assert_eq!(read(&mut world, 0), both(1));
}

#[test]
fn the_last_region_goes_on_alone() {
    let mut world = world(2, Mutants::default());
    add(&mut world, 1, 1);
    world.run_ms(200);
    lose(&mut world, 1);
    evict(&mut world, 0, 1);
    world.run_ms(2_000);
    add(&mut world, 0, 10);
    assert_eq!(read(&mut world, 0), both(11));
    let other = Client::new(coordinator(0, 1), 9);
    world.run_ms(100);
    let [a, b] = keys();
    assert_eq!(other.many(&mut world, &[step(&a, GET), step(&b, GET)]), both(11));
}
