//! A partition that lost its log, and a region that was cut off for too long (Corrections 36, 67 and 84).

use crate::wren::client::{Client, GET, blind_step, increment, key_in, step};
use crate::wren::operations::write;
use crate::wren::world::{Faults, World, coordinator, replica};
use anabranch_causal::wren::{Message, Mutant, Mutants, Options};
use protocol::Durability;
use std::time::Duration;

const SMALL: usize = 20_000;

fn world(regions: u16, options: Options) -> World {
    let mut world = World::new(regions, 2, 2, Options { durability: Durability::Synced, ..options }, 3);
    world.faults = Faults { log: 500, ..Faults::NONE };
    world.run_ms(300);
    world
}

fn lose(world: &mut World, region: u16, index: u16) {
    world.destroy(replica(region, index));
    world.run_ms(50);
    world.start_from(replica(region, index), false);
}

fn keys() -> [String; 2] {
    [key_in(0, 2, "a"), key_in(1, 2, "b")]
}

fn read(world: &mut World, client: Client) -> String {
    let [a, b] = keys();
    client.many(world, &[step(&a, GET), step(&b, GET)])
}

#[test]
fn a_partition_that_lost_everything_takes_it_from_its_peer_and_goes_on() {
    let mut world = world(2, Options::default());
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let [a, b] = keys();
    for round in 0..8u16 {
        for client in [here, there] {
            client.many(&mut world, &[blind_step(&a, increment(1)), blind_step(&b, increment(1))]);
        }
        world.run_ms(if round % 3 == 0 { 1_000 } else { 60 });
        lose(&mut world, round % 2, round / 2 % 2);
        world.run_ms(300);
        let expected = (2 * round + 2).to_string();
        for client in [here, there] {
            assert_eq!(read(&mut world, client), format!("\"{expected}\"; \"{expected}\""), "round {round}");
        }
    }
}

/// What was taken is in no log until a checkpoint holds it.
#[test]
fn a_partition_that_dies_again_begins_again_unless_a_checkpoint_holds_what_it_took() {
    let mut world = world(2, Options::default());
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let [_, b] = keys();
    let at = replica(0, 1);
    there.one(&mut world, &b, increment(1));
    here.one(&mut world, &b, increment(1));
    world.run_ms(100);
    lose(&mut world, 0, 1);
    world.run_ms(300);
    here.one(&mut world, &b, increment(1));
    world.run_ms(10);
    world.crash(at);
    world.cut(0, 1);
    world.start(at);
    world.run_ms(50);
    let refused = here.one(&mut world, &b, GET);
    assert!(refused.contains("waits for partition 1 of region 1"), "{refused}");
    world.heal();
    world.run_ms(600);
    assert_eq!(here.one(&mut world, &b, GET), "\"3\"");
    world.checkpoint(at);
    world.crash(at);
    world.cut(0, 1);
    world.start(at);
    world.run_ms(100);
    assert_eq!(here.one(&mut world, &b, GET), "\"3\"");
    world.heal();
    world.run_ms(600);
    assert_eq!(there.one(&mut world, &b, GET), "\"3\"");
}

/// A transfer that a crash, of either end, interrupts leaves nothing behind.
#[test]
fn a_transfer_cut_short_by_a_crash_begins_again() {
    let mut world = world(2, Options::default());
    let there = Client::new(coordinator(1, 0), 2);
    let here = Client::new(coordinator(0, 0), 1);
    let names: Vec<String> = (0..60).map(|number| key_in(1, 2, &format!("big{number}-"))).collect();
    let value = "v".repeat(20_000);
    for name in &names {
        assert_eq!(there.one(&mut world, name, write(&value)), "OK");
    }
    world.run_ms(1_500);
    world.destroy(replica(0, 1));
    for pause in [45, 90, 130, 170, 250, 330] {
        world.start_from(replica(0, 1), false);
        world.run_ms(pause);
        let died = if pause % 2 == 0 { replica(0, 1) } else { replica(1, 1) };
        world.crash(died);
        if died == replica(1, 1) {
            world.start(died);
            world.run_ms(100);
            world.crash(replica(0, 1));
        }
    }
    world.start_from(replica(0, 1), false);
    world.run_ms(4_000);
    for name in &names {
        assert_eq!(here.one(&mut world, name, GET), format!("\"{value}\""));
    }
}

/// What three regions read at rest after the first one lost a partition of which only the second held the last write.
fn read_after_a_loss_behind_a_cut(mutants: Mutants) -> Vec<String> {
    let mut world = world(3, Options { mutants, ..Options::default() });
    let clients = [0, 1, 2].map(|region| Client::new(coordinator(region, 0), 1));
    let [a, b] = keys();
    world.cut(0, 2);
    clients[0].many(&mut world, &[step(&a, write("x")), step(&b, write("x"))]);
    world.run_ms(60);
    lose(&mut world, 0, 1);
    world.run_ms(500);
    let refused = clients[0].one(&mut world, &b, GET);
    assert!(refused.contains("waits for partition 1 of region 2"), "{refused}");
    assert_eq!(clients[0].one(&mut world, &a, GET), "\"x\"", "the other partition goes on");
    world.heal();
    world.run_ms(1_500);
    clients.iter().map(|client| read(&mut world, *client)).collect()
}

/// Corrections 36: what one survivor holds of the lost life, the others get.
#[test]
fn what_one_region_holds_of_a_lost_life_reaches_the_others() {
    assert_eq!(read_after_a_loss_behind_a_cut(Mutants::default()), ["\"x\"; \"x\""; 3]);
}

#[test]
fn a_survivors_knowledge_that_is_not_forwarded_is_missed() {
    let mutants = Mutant::NothingForwarded.into();
    let seen = read_after_a_loss_behind_a_cut(mutants);
    assert_eq!(seen, ["\"x\"; \"x\"", "\"x\"; \"x\"", "\"x\"; (nil)"]);
}

/// What only the lost log held is gone, in all regions alike, and the partition goes on above everything it had said.
#[test]
fn what_nobody_else_held_is_lost_everywhere_alike() {
    let mut world = world(2, Options::default());
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let [a, b] = keys();
    here.many(&mut world, &[step(&a, write("old")), step(&b, write("old"))]);
    world.run_ms(500);
    world.cut(0, 1);
    here.many(&mut world, &[step(&a, write("new")), step(&b, write("new"))]);
    world.run_ms(200);
    world.skew(replica(0, 1), -5_000_000);
    lose(&mut world, 0, 1);
    world.heal();
    world.run_ms(1_000);
    let seen = [here, there].map(|client| read(&mut world, client));
    assert_eq!(seen, ["\"new\"; \"old\"", "\"new\"; \"old\""]);
    here.many(&mut world, &[step(&a, write("newest")), step(&b, write("newest"))]);
    world.run_ms(500);
    let seen = [here, there].map(|client| read(&mut world, client));
    assert_eq!(seen, ["\"newest\"; \"newest\"", "\"newest\"; \"newest\""]);
}

#[test]
fn both_replicas_that_lost_their_unsynced_suffix_give_one_another_what_is_left() {
    let mut world = world(2, Options::default());
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let [a, b] = keys();
    here.many(&mut world, &[step(&a, write("x")), step(&b, write("x"))]);
    world.run_ms(500);
    for region in [0, 1] {
        for index in [0, 1] {
            world.crash(replica(region, index));
        }
    }
    world.run_ms(50);
    for region in [0, 1] {
        for index in [0, 1] {
            world.start_from(replica(region, index), false);
        }
    }
    world.run_ms(1_500);
    for client in [here, there] {
        assert_eq!(read(&mut world, client), "\"x\"; \"x\"");
    }
    there.many(&mut world, &[step(&a, write("y")), step(&b, write("y"))]);
    world.run_ms(200);
    assert_eq!(read(&mut world, here), "\"y\"; \"y\"");
}

#[test]
fn without_another_region_the_loss_must_be_accepted() {
    let mut world = world(1, Options::default());
    let client = Client::new(coordinator(0, 0), 1);
    let [a, b] = keys();
    client.many(&mut world, &[step(&a, write("x")), step(&b, write("x"))]);
    world.run_ms(100);
    lose(&mut world, 0, 1);
    world.run_ms(100);
    for operation in [GET, write("y"), increment(1)] {
        let reply = client.one(&mut world, &b, operation);
        assert!(reply.starts_with("-UNAVAILABLE partition 1 of region 0 lost records"), "{reply}");
        assert!(reply.contains("no other region has them") && reply.contains("--accept-loss"), "{reply}");
    }
    world.crash(replica(0, 1));
    world.options.accept_loss = true;
    world.start_from(replica(0, 1), false);
    world.run_ms(3_000);
    assert_eq!(read(&mut world, client), "\"x\"; (nil)");
    client.many(&mut world, &[step(&a, write("y")), step(&b, write("y"))]);
    assert_eq!(read(&mut world, client), "\"y\"; \"y\"");
}

/// Corrections 23 and 67: the decider's log lost the decision, but not everybody did.
#[test]
fn a_decider_that_forgot_asks_before_it_aborts() {
    let mut world = world(2, Options::default());
    let [a, b] = keys();
    let doomed = Client::new(coordinator(0, 0), 1);
    // Partition 0 decides; partition 1 hears it from the coordinator, and both regions have it. Partition 0 forgets.
    doomed.send(&mut world, &[step(&a, write("x")), step(&b, write("x"))]);
    world.run_us(1_000);
    world.crash(coordinator(0, 0));
    let undecided =
        |world: &World, index| world.node(replica(0, index)).as_partition().map(|p| p.undecided());
    assert_eq!((undecided(&world, 0), undecided(&world, 1)), (Some(0), Some(1)), "only the decider knows");
    world.run_ms(200);
    lose(&mut world, 0, 0);
    world.run_ms(3_000);
    assert_eq!((undecided(&world, 0), undecided(&world, 1)), (Some(0), Some(0)));
    let other = Client::new(coordinator(0, 1), 2);
    assert_eq!(read(&mut world, other), "\"x\"; \"x\"", "the other region had the decider's part");
}

/// Wren, section 4.3.4, with a bound: the queue for a region that is cut off is dropped, and the region takes the state
/// when it returns.
#[test]
fn a_region_cut_off_for_long_takes_the_state_when_it_returns() {
    let mut world = world(2, Options { queue_bytes: SMALL, ..Options::default() });
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let [a, b] = keys();
    world.cut(0, 1);
    for round in 0..400 {
        let value = format!("{round}-{}", "v".repeat(100));
        for client in [here, there] {
            let steps = [step(&a, write(&value)), blind_step(&b, increment(1))];
            client.many(&mut world, &steps);
        }
        for region in [0, 1] {
            for index in [0, 1] {
                let at = replica(region, index);
                let queued = world.node(at).as_partition().map_or(0, |partition| partition.queued_bytes());
                assert!(queued <= SMALL, "{queued} bytes are queued");
                assert!(world.unacknowledged(at) < 4_300, "what is on its way is bounded");
            }
        }
        world.run_ms(5);
    }
    world.heal();
    world.run_ms(3_000);
    let seen = [here, there].map(|client| read(&mut world, client));
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].ends_with("; \"800\""), "{}", seen[0]);
    here.one(&mut world, &b, increment(1));
    world.run_ms(300);
    assert!(read(&mut world, there).ends_with("; \"801\""));
}

/// How many increments were made beside transfers of the state, and what two regions then say they are.
fn counted_beside_transfers(mutants: Mutants) -> (String, [String; 2]) {
    let options = Options { lease: Duration::from_millis(400), mutants, ..Options::default() };
    let mut world = World::new(2, 1, 1, options, 7);
    world.run_ms(1_000);
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let reader = Client::new(coordinator(1, 0), 3);
    // So that it is given in many pieces.
    for number in 0..400 {
        here.many(&mut world, &[step(&format!("large:{number}"), write(&"v".repeat(20_000)))]);
    }
    let mut increments = 0;
    for pause in [10, 20, 40, 80, 160, 320] {
        // The horizon is the older one there when it asks, and goes on when nobody reads the old snapshot any more.
        reader.begin(&mut world);
        reader.operate(&mut world, "count", GET);
        world.run_ms(300);
        world.tell_from(replica(0, 0), replica(1, 0), Message::TransferRequired);
        world.run_ms(pause);
        reader.commit(&mut world);
        for _ in 0..50 {
            there.many(&mut world, &[blind_step("count", increment(1))]);
            increments += 1;
            world.run_ms(7);
        }
    }
    world.run_ms(2_000);
    let seen = [here, there].map(|client| client.one(&mut world, "count", GET));
    (format!("\"{increments}\""), seen)
}

/// `TransferRequired` goes beside the stream, so it may arrive once more when the state has been taken. It is taken once more then, beside
/// what goes on: what is committed meanwhile, and folded, is not in the store that was taken.
#[test]
fn what_is_committed_while_the_state_is_taken_once_more_stays() {
    let (made, [here, there]) = counted_beside_transfers(Mutants::default());
    assert_eq!((&here, &there), (&made, &made));
}

#[test]
fn a_horizon_that_rises_while_the_state_is_taken_is_caught() {
    let (made, seen) = counted_beside_transfers(Mutant::HorizonWhileReplaced.into());
    assert!(seen.iter().any(|seen| *seen != made), "{made} made, {seen:?} seen");
}
