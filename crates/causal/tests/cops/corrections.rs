//! Where the paper is wrong or silent (`docs/internals/corrections.md`, 45 to 50).

use super::client::{Client, increment};
use super::operations::write;
use super::scenes::{client, get, key, options, set, world};
use super::world::{coordinator, replica};
use anabranch_causal::cops::Mutant;
use types::RequestId;

/// Corrections 45. w1, then x3, which depends on it, then y1, which depends on x3. Region 2 has x4, concurrent and with a higher Lamport
/// time, and lacks x3 and w1. Returns what region 2 shows of y and of w.
pub fn concurrent_version(mutant: Option<Mutant>) -> (String, String) {
    let mut world = world(3, options(false, mutant));
    let (w, x, y) = (key(0), key(1), key(2));
    world.host(replica(1, 1)).skew = 2_000_000;
    world.part(replica(0, 0), replica(2, 0));
    world.part(replica(0, 1), replica(2, 1));
    let (one, other, far) = (client(0, 1), client(1, 2), client(2, 3));
    set(&mut world, one, &w, "w1");
    set(&mut world, one, &x, "x3");
    set(&mut world, other, &x, "x4");
    set(&mut world, one, &y, "y1");
    world.run_ms(500);
    assert_eq!(get(&mut world, far, &x), "x4");
    (get(&mut world, far, &y), get(&mut world, far, &w))
}

#[test]
fn corrections_45_a_later_version_of_somebody_else_is_no_dependency() {
    assert_eq!(concurrent_version(None), ("(nil)".into(), "(nil)".into()));
}

/// Corrections 49: an answer to a put is lost for so long that its client gets UNKNOWNOUTCOME. Returns what is shown
/// elsewhere of a write that the session does then, while the first has not arrived there.
pub fn unknown_outcome(mutant: Option<Mutant>) -> String {
    let mut world = world(2, options(false, mutant));
    let (first, second) = (key(0), key(1));
    let (own, there) = (Client::new(coordinator(0, 0), 1), client(1, 2));
    world.part(replica(0, 0), own.at);
    world.part(replica(0, 0), replica(1, 0));
    let reply = own.one(&mut world, &first, write("v"));
    assert!(reply.starts_with("-UNKNOWNOUTCOME"), "{reply}");
    let id = world.request(
        own.at,
        protocol::Request::One { session: own.session, operation: super::client::on(&second, write("w")) },
    );
    world.run_ms(1_000);
    let before = get(&mut world, there, &second);
    finish(&mut world, id);
    before
}

fn finish(world: &mut super::world::World, id: RequestId) {
    world.heal();
    world.run_ms(1_000);
    drop(world.await_reply(id));
}

#[test]
fn corrections_49_an_unknown_outcome_stays_in_the_context() {
    assert_eq!(unknown_outcome(None), "(nil)");
}

/// Corrections 49: the coordinator repeats a put whose answer is lost, and it is written once.
pub fn lost_answer(mutant: Option<Mutant>) -> String {
    let mut world = world(1, options(false, mutant));
    let own = Client::new(coordinator(0, 0), 1);
    world.part(replica(0, 0), own.at);
    let request =
        protocol::Request::One { session: own.session, operation: super::client::on("n", increment(1)) };
    let counter = (0..3).find(|partition| key_of("n") == *partition).expect("one of them");
    world.part(replica(0, counter), own.at);
    let id = world.request(own.at, request);
    world.run_ms(500);
    world.heal();
    drop(world.await_reply(id));
    get(&mut world, own, "n")
}

fn key_of(key: &str) -> u16 {
    super::world::SEED.hash(key.as_bytes()).share(super::scenes::PARTITIONS)
}

#[test]
fn corrections_49_a_put_is_written_once() {
    assert_eq!(lost_answer(None), "1");
}

/// Corrections 21: a clock steps back after the partition reported its time. Returns what another region shows of a
/// write then.
pub fn clock_that_steps_back(mutant: Option<Mutant>) -> String {
    let mut world = world(2, options(false, mutant));
    let (own, there) = (client(0, 1), client(1, 2));
    set(&mut world, own, &key(0), "before");
    world.run_ms(50);
    world.host(replica(0, 0)).skew = -20_000;
    set(&mut world, own, &key(0), "after");
    world.run_ms(500);
    get(&mut world, there, &key(0))
}

#[test]
fn corrections_21_nothing_is_stamped_below_a_reported_time() {
    assert_eq!(clock_that_steps_back(None), "after");
}
