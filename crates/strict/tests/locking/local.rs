//! A transaction of one request whose keys are on one shard is one message to its leader.

use crate::locking::network::{DELAY, Network};
use crate::locking::singles::{assert_counted_once, send};
use anabranch_strict::locking::Options;
use datatypes::{Operation, register};
use protocol::Request;
use std::time::Duration;
use types::SessionId;

const SESSION: SessionId = SessionId(7);

/// Its steps see one another, on its own keys and on those of others before it.
#[test]
fn steps_follow_one_another_in_one_round_trip() {
    let mut network = Network::new(&Options::default());
    let [a, b, c, _] = network.four_keys(1);
    let steps =
        [network.increment(a), network.increment(b), network.increment(a), network.get(c), network.take(b)];
    let began = network.now;
    let first = send(&mut network, 1, 1, &steps);
    let second = send(&mut network, 2, 2, &steps);
    assert_eq!(network.answer(first), "1 1 2 null 1");
    assert_eq!(network.answer(second), "3 1 4 null 1");
    assert!(network.now - began <= DELAY * 4, "to the leader, to a quorum, and back each time");
}

/// The leader's replica is gone at any moment between the question and the answer: all of it has been done once, or nothing.
#[test]
fn each_counts_once_whatever_becomes_of_its_leader() {
    assert_counted_once(2);
}

fn hold(network: &mut Network, key: &'static str) {
    let begin = Request::Begin { session: SESSION, read_only: false, watched: false };
    let id = network.request(1, begin);
    assert_eq!(network.answer(id), "OK");
    let steps = [network.increment(key)];
    let id = network.request(1, Request::Operate { session: SESSION, steps: &steps });
    assert_eq!(network.answer(id), "1");
}

/// It waits for the locks of a session, and goes on when they are free.
#[test]
fn it_waits_for_the_locks_of_others() {
    for patience in [20, 800] {
        let mut network = Network::new(&Options::default());
        let [a, b, ..] = network.four_keys(1);
        hold(&mut network, a);
        let steps = [network.increment(a), network.increment(b)];
        let waits = send(&mut network, 2, 2, &steps);
        network.run_for(Duration::from_millis(patience));
        assert_eq!(network.answered(waits), None);
        let commit = network.request(1, Request::Commit { session: SESSION });
        assert_eq!(network.answer(commit), "OK");
        let began = network.now;
        assert_eq!(network.answer(waits), "2 1");
        assert!(network.now - began < DELAY * 10, "{patience}: {:?}", network.now - began);
    }
}

/// A session that asks for nothing for a second gives its locks up to whoever waits, and hears of it.
#[test]
fn it_gets_the_locks_of_an_idle_session() {
    let mut network = Network::new(&Options::default());
    let [a, b, ..] = network.four_keys(1);
    hold(&mut network, a);
    network.run_for(Duration::from_secs(10));
    let steps = [network.increment(a), network.increment(b)];
    let waits = send(&mut network, 2, 2, &steps);
    let began = network.now;
    assert_eq!(network.answer(waits), "1 1");
    assert!(network.now - began < Duration::from_millis(500), "{:?}", network.now - began);
    let commit = network.request(1, Request::Commit { session: SESSION });
    let reply = network.answer(commit);
    assert!(reply.starts_with("CONFLICT") && reply.contains("was idle"), "{reply}");
}

/// Where they are not free in time the transaction has no effect, and its client gets an error.
#[test]
fn it_is_not_in_doubt_where_locks_were_not_free() {
    let mut network = Network::new(&Options::default());
    let [a, b, ..] = network.four_keys(1);
    hold(&mut network, a);
    let steps = [network.increment(a), network.increment(b)];
    let waits = send(&mut network, 2, 2, &steps);
    // A session that asks for something now and then keeps its locks.
    let reply = loop {
        network.run_for(Duration::from_millis(500));
        if let Some(reply) = network.answered(waits) {
            break reply;
        }
        let steps = [network.get(a)];
        let id = network.request(1, Request::Operate { session: SESSION, steps: &steps });
        assert_eq!(network.answer(id), "1");
    };
    assert!(reply.starts_with("UNAVAILABLE") && reply.contains("locks were not free"), "{reply}");
    let commit = network.request(1, Request::Commit { session: SESSION });
    assert_eq!(network.answer(commit), "OK");
    assert_eq!(network.text(3, 3, &[network.get(a), network.get(b)]), "1 null");
}

/// What it reads would be in the log with its results: the coordinator reads large values step by step.
#[test]
fn much_that_is_read_is_not_written() {
    let mut network = Network::new(&Options::default());
    let [a, b, ..] = network.four_keys(1);
    let large = vec![b'v'; 100_000];
    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
    let deadline = register::Deadline::Clear;
    let set = Operation::Register(register::Operation::Set { value: &large, deadline, condition, reply });
    let steps = [network.any(a, set, true)];
    let written = send(&mut network, 1, 1, &steps);
    assert_eq!(network.answer(written), "OK");
    let steps = [network.get(a), network.increment(b)];
    let expected = format!("{} 1", String::from_utf8_lossy(&large));
    assert_eq!(network.text(2, 2, &steps), expected);
    let began = network.now;
    let steps = [network.get(a), network.get(b)];
    assert_eq!(network.text(3, 3, &steps), expected);
    assert!(network.now - began <= DELAY * 4, "what only reads is in no entry");
}
