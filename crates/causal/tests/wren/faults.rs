//! What a client may rely on when links, nodes and coordinators fail.

use crate::wren::client::{Client, GET, blind_step, increment, key_in, step};
use crate::wren::operations::write;
use crate::wren::world::{Faults, World, coordinator, replica};
use anabranch_causal::wren::{Mutant, Mutants, Options};
use protocol::{Durability, Request};
use std::time::Duration;

fn world(log: u64) -> World {
    let options = Options { durability: Durability::Synced, ..Options::default() };
    let mut world = World::new(2, 2, 2, options, 3);
    world.faults = Faults { log, ..Faults::NONE };
    world.run_ms(300);
    world
}

/// Wren, section 4.3.4: availability between regions.
#[test]
fn a_region_cut_off_reads_and_writes_on_and_converges_when_healed() {
    let mut world = world(0);
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let neighbour = Client::new(coordinator(0, 1), 3);
    world.cut(0, 1);
    for round in 1..=200 {
        assert_eq!(here.one(&mut world, "here", write(&round.to_string())), "OK");
        there.many(&mut world, &[blind_step("n", increment(1))]);
        world.run_ms(10);
    }
    world.run_ms(40);
    assert_eq!(neighbour.one(&mut world, "here", GET), "\"200\"");
    assert_eq!(there.one(&mut world, "here", GET), "(nil)");
    world.heal();
    world.run_ms(1500);
    assert_eq!(there.one(&mut world, "here", GET), "\"200\"");
    assert_eq!(here.one(&mut world, "n", GET), "\"200\"");
}

/// A region is cut off, writes, and restarts as a whole. What its clients read then of what they wrote.
fn restarted_while_cut_off(mutants: Mutants) -> String {
    let options = Options { mutants, ..Options::default() };
    let mut world = World::new(2, 2, 1, options, 3);
    world.run_ms(300);
    let client = Client::new(coordinator(0, 0), 1);
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    world.cut(0, 1);
    for _ in 0..50 {
        client.many(&mut world, &[step(&a, increment(1)), step(&b, increment(1))]);
    }
    world.run_ms(300);
    let all = [replica(0, 0), replica(0, 1), coordinator(0, 0)];
    all.into_iter().for_each(|address| world.crash(address));
    world.run_ms(100);
    all.into_iter().for_each(|address| world.start(address));
    world.run_ms(3_000);
    Client::new(coordinator(0, 0), 2).many(&mut world, &[step(&a, GET), step(&b, GET)])
}

/// The other region has been silent in effects, not in times: its own writes depend on these.
#[test]
fn a_region_that_restarts_while_it_is_cut_off_shows_what_it_wrote() {
    assert_eq!(restarted_while_cut_off(Mutants::default()), "\"50\"; \"50\"");
}

#[test]
fn forgetting_what_was_heard_is_caught() {
    assert_eq!(restarted_while_cut_off(Mutant::HeardNotLogged.into()), "(nil); (nil)");
}

/// A partition restarted from its log has lost nothing that was acknowledged, and stamps above what it published.
#[test]
fn a_restarted_partition_has_lost_nothing() {
    let mut world = world(2_000);
    let client = Client::new(coordinator(0, 0), 1);
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    for round in 0..20 {
        let value = round.to_string();
        client.many(&mut world, &[step(&a, write(&value)), step(&b, write(&value))]);
        client.one(&mut world, &a, increment(1));
        let down = replica(0, round % 2);
        world.crash(down);
        world.run_ms(30);
        world.start(down);
        world.run_ms(30);
        let seen = client.many(&mut world, &[step(&a, GET), step(&b, GET)]);
        assert_eq!(seen, format!("\"{}\"; \"{round}\"", round + 1));
    }
    world.run_ms(1000);
    let there = Client::new(coordinator(1, 0), 2);
    assert_eq!(there.many(&mut world, &[step(&a, GET), step(&b, GET)]), "\"20\"; \"19\"");
}

/// What a replica had streamed to a peer that died is streamed again to the peer's next life, and a replica that died
/// itself sends on from its log.
#[test]
fn a_restarted_peer_receives_what_it_lacks() {
    let mut world = world(1_000);
    let here = Client::new(coordinator(0, 0), 1);
    let there = Client::new(coordinator(1, 0), 2);
    let keys = [key_in(0, 2, "a"), key_in(1, 2, "b")];
    let steps = [blind_step(&keys[0], increment(1)), blind_step(&keys[1], increment(1))];
    for round in 0..12 {
        here.many(&mut world, &steps);
        let down = [replica(1, 0), replica(0, 1), replica(1, 1), replica(0, 0)][round % 4];
        world.crash(down);
        world.run_ms(50);
        world.start(down);
        here.many(&mut world, &steps);
    }
    world.run_ms(1500);
    let both = [step(&keys[0], GET), step(&keys[1], GET)];
    assert_eq!(there.many(&mut world, &both), "\"24\"; \"24\"");
    assert_eq!(here.many(&mut world, &both), "\"24\"; \"24\"");
}

/// A partition tells a root that answers nothing only so much. A root whose earlier life heard all of that, while
/// another partition was down, needs the report again in its next life.
#[test]
fn stable_times_rise_again_after_the_root_restarts_twice_beside_a_partition_that_is_down() {
    let options = Options { durability: Durability::Synced, ..Options::default() };
    let mut world = World::new(1, 3, 2, options, 3);
    world.run_ms(300);
    world.crash(replica(0, 2));
    for _ in 0..2 {
        world.crash(replica(0, 0));
        world.start(replica(0, 0));
        world.run_ms(3_000);
    }
    world.start(replica(0, 2));
    world.run_ms(1_000);
    let key = key_in(1, 3, "a");
    let (here, neighbour) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    assert_eq!(here.one(&mut world, &key, write("x")), "OK");
    world.run_ms(1_000);
    assert_eq!(neighbour.one(&mut world, &key, GET), "\"x\"");
}

/// A checkpoint says all that the log said.
#[test]
fn a_partition_restored_from_a_checkpoint_goes_on() {
    let mut world = world(0);
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let keys = [key_in(0, 2, "a"), key_in(1, 2, "b")];
    for round in 0..10u16 {
        here.many(&mut world, &[step(&keys[0], increment(1)), step(&keys[1], increment(1))]);
        world.checkpoint(replica(0, round % 2));
        here.many(&mut world, &[blind_step(&keys[0], increment(1)), blind_step(&keys[1], increment(1))]);
        world.crash(replica(0, round % 2));
        world.start(replica(0, round % 2));
        world.checkpoint(replica(1, round % 2));
    }
    world.run_ms(1000);
    let both = [step(&keys[0], GET), step(&keys[1], GET)];
    assert_eq!(here.many(&mut world, &both), "\"20\"; \"20\"");
    assert_eq!(there.many(&mut world, &both), "\"20\"; \"20\"");
}

/// Corrections 23: a coordinator that dies between `Prepare` and `Commit` holds nobody up for long, and its
/// transaction has no effect anywhere.
#[test]
fn a_dead_coordinators_transaction_is_aborted_by_its_participants() {
    let mut world = world(0);
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let doomed = Client::new(coordinator(0, 0), 1);
    doomed.send(&mut world, &[step(&a, write("x")), step(&b, write("x"))]);
    world.run_us(150);
    world.crash(coordinator(0, 0));
    world.run_ms(50);
    let undecided =
        |world: &World, index| world.node(replica(0, index)).as_partition().map(|p| p.undecided());
    assert_eq!((undecided(&world, 0), undecided(&world, 1)), (Some(1), Some(1)));
    let other = Client::new(coordinator(0, 1), 2);
    assert_eq!(other.one(&mut world, &a, write("y")), "OK", "blind writes pass");
    world.run_ms(2500);
    assert_eq!((undecided(&world, 0), undecided(&world, 1)), (Some(0), Some(0)));
    assert_eq!(other.many(&mut world, &[step(&a, GET), step(&b, GET)]), "\"y\"; (nil)");
    let there = Client::new(coordinator(1, 0), 3);
    assert_eq!(there.many(&mut world, &[step(&a, GET), step(&b, GET)]), "\"y\"; (nil)");
}

/// Corrections 73: once the decider has logged the decision, the transaction takes effect everywhere although its
/// coordinator died before it notified the others.
#[test]
fn a_logged_decision_is_carried_out_without_its_coordinator() {
    let mut world = world(0);
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let doomed = Client::new(coordinator(0, 0), 1);
    doomed.send(&mut world, &[step(&a, write("x")), step(&b, write("x"))]);
    world.run_us(350);
    world.crash(coordinator(0, 0));
    world.run_ms(3000);
    let other = Client::new(coordinator(0, 1), 2);
    assert_eq!(other.many(&mut world, &[step(&a, GET), step(&b, GET)]), "\"x\"; \"x\"");
}

#[test]
fn without_a_partition_the_others_keys_are_served_and_errors_name_it() {
    let mut world = world(0);
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let client = Client::new(coordinator(0, 0), 1);
    world.crash(replica(0, 1));
    assert_eq!(client.one(&mut world, &a, write("x")), "OK");
    assert_eq!(client.one(&mut world, &a, GET), "\"x\"");
    let both = [step(&a, write("y")), step(&b, write("y"))];
    let refused = "-UNAVAILABLE partition 1 of the region did not answer in time; nothing was done";
    assert_eq!(client.many(&mut world, &both), refused);
    assert_eq!(client.one(&mut world, &b, GET), refused);
    assert!(client.one(&mut world, &b, write("z")).starts_with("-UNKNOWNOUTCOME partition 1"));
    let other = Client::new(client.at, 2);
    (0..20).for_each(|_| assert_eq!(other.one(&mut world, &a, write("x")), "OK"));
    let remembered = world.node(replica(0, 0)).as_partition().expect("a replica").remembered();
    assert!(remembered <= 1, "{remembered} decisions: one in doubt elsewhere holds up none here");
    world.start(replica(0, 1));
    // The write is still sought; the session's next request waits until its outcome is known.
    assert_eq!(client.many(&mut world, &[step(&a, GET), step(&b, GET)]), "\"x\"; \"z\"");
}

/// What is left of a transaction whose step could not be evaluated does not commit without it, and is not in the way of
/// the session's next one.
#[test]
fn a_step_that_cannot_be_evaluated_ends_its_transaction() {
    let mut world = world(0);
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let client = Client::new(coordinator(0, 0), 1);
    client.begin(&mut world);
    assert_eq!(client.operate(&mut world, &a, write("half")), "OK");
    world.crash(replica(0, 1));
    let refused = "-UNAVAILABLE partition 1 of the region did not answer in time; nothing was done";
    assert_eq!(client.operate(&mut world, &b, increment(1)), refused);
    world.start(replica(0, 1));
    world.run_ms(300);
    assert_eq!(client.operate(&mut world, &b, increment(1)), refused);
    assert_eq!(client.commit(&mut world), refused);
    assert_eq!(client.one(&mut world, &a, GET), "(nil)");
    let other = Client::new(coordinator(0, 1), 2);
    other.one(&mut world, &a, write("new"));
    world.run_ms(100);
    assert_eq!(client.begin(&mut world), "OK");
    assert_eq!(client.operate(&mut world, &a, GET), "\"new\"");
    assert_eq!(client.commit(&mut world), "OK");
}

/// Corrections 33: below the horizon there is an error, never "absent".
#[test]
fn a_transaction_open_for_too_long_gets_an_error() {
    let open_for = Duration::from_millis(200);
    let mut world = World::new(1, 2, 1, Options { open_for, ..Options::default() }, 3);
    world.run_ms(300);
    let client = Client::new(coordinator(0, 0), 1);
    client.begin(&mut world);
    world.run_ms(300);
    assert!(client.operate(&mut world, "k", GET).starts_with("-SNAPSHOTTOOOLD"));
    assert!(client.commit(&mut world).starts_with("-SNAPSHOTTOOOLD"));
    assert_eq!(client.begin(&mut world), "OK");
    let abort = Request::Abort { session: client.session };
    assert_eq!(client.ask(&mut world, abort), "OK");
}
