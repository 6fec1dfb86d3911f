//! Serializable keyspaces, and clocks that are far off (the paper's 6.3, 6.5 and 6.6).

use crate::tapir::network::{Network, address, ir_of, text};
use crate::tapir::scripts::assert_settled;
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Isolation, Options, Vote};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const SECOND: i64 = 1_000_000;

fn network(isolation: Isolation) -> Network {
    Network::new(1, 2, 3, 3, &Options { isolation, ..Options::default() })
}

/// A write of a fast clock, and one of a right clock after it: what is left.
fn overwritten(isolation: Isolation) -> String {
    let mut network = network(isolation);
    let a = network.key_of(0);
    network.set_skew(address(1, None), 30 * SECOND);
    assert_eq!(text(&network.one(1, &network.set(a, "fast"))), "OK");
    network.run_for(Duration::from_millis(50));
    let began = network.now;
    assert_eq!(text(&network.one(2, &network.set(a, "right"))), "OK");
    if isolation == Isolation::Serializable {
        assert!(network.now - began <= 2 * network.delay, "one round trip, nothing to retry");
    }
    network.run_for(Duration::from_secs(1));
    assert_settled(&network);
    text(&network.one(1, &network.get(a)))
}

#[test]
fn a_write_of_the_past_is_accepted_where_only_the_order_of_stamps_counts() {
    assert_eq!(overwritten(Isolation::Strict), "right");
    assert_eq!(overwritten(Isolation::Serializable), "fast", "Thomas's write rule");
}

/// A transaction that reads from a replica that has missed a write of a fast clock.
fn read_behind(isolation: Isolation) -> String {
    let mut network = network(isolation);
    let (a, b) = network.two_keys();
    network.set_skew(address(1, None), 30 * SECOND);
    let behind = address(2, Some(0));
    network.filter = Some(Box::new(move |_, to, message| to == behind && ir_of(message).is_some()));
    assert_eq!(text(&network.one(1, &network.set(a, "new"))), "OK");
    network.filter = None;
    let steps = [network.get(a), network.set(b, "seen")];
    let id = network.many(2, 2, &steps);
    text(&network.answer(id))
}

#[test]
fn a_read_of_the_past_is_accepted_where_only_the_order_of_stamps_counts() {
    assert_eq!(read_behind(Isolation::Strict), "new OK");
    assert_eq!(read_behind(Isolation::Serializable), "null OK", "strict keyspaces have refused that");
}

#[test]
fn nobody_writes_what_somebody_above_has_not_seen() {
    let mut network = network(Isolation::Serializable);
    let (a, b) = network.two_keys();
    network.set_skew(address(1, None), 30 * SECOND);
    // Reads a at a stamp of the fast clock.
    let steps = [network.get(a), network.set(b, "looked")];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "null OK");
    network.run_for(Duration::from_millis(50));
    assert_eq!(text(&network.one(2, &network.set(a, "after"))), "OK");
    let claims = network.node_mut(address(2, None)).take_claims();
    let at = claims.last().and_then(|claim| claim.commit).expect("committed").at;
    assert!(at.wall().0 >= 1_700_000_000_000_000 + 30 * SECOND as u64, "it came above the reader");
}

#[test]
fn a_clock_too_far_ahead_costs_one_refusal() {
    for (bound, skew) in [(Duration::from_secs(60), 3_600 * SECOND), (Duration::from_millis(20), SECOND)] {
        let options = Options { clock_bound: bound, ..Options::default() };
        let mut network = Network::new(1, 2, 3, 2, &options);
        let a = network.key_of(0);
        network.set_skew(address(1, None), skew);
        let began = network.now;
        assert_eq!(text(&network.one(1, &network.set(a, "1"))), "OK");
        assert!(network.now - began < Duration::from_millis(200), "{:?}", network.now - began);
        let again = network.now;
        assert_eq!(text(&network.one(1, &network.increment(a, false))), "2");
        assert!(network.now - again <= 5 * network.delay, "it knows from then on");
        assert_eq!(text(&network.one(2, &network.increment(a, false))), "3");
        network.run_for(Duration::from_secs(1));
        assert_settled(&network);
    }
}

/// Pairs of writes of one key, 5 ms apart, the first by a clock that is 30 ms ahead: how often a replica said RETRY.
fn retries(skew_wait: Duration) -> u64 {
    const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let options = Options { skew_wait, ..Options::default() };
    let mut network = Network::new(1, 2, 3, 2, &options);
    network.set_skew(address(1, None), 30_000);
    let counted = Rc::new(Cell::new(0));
    let count = Rc::clone(&counted);
    network.filter = Some(Box::new(move |_, _, message| {
        if let Some(Ir::Reply { result: Vote::Retry { .. }, .. }) = ir_of(message) {
            count.set(count.get() + 1);
        }
        false
    }));
    for key in KEYS {
        let steps = [network.set(key, "first")];
        let first = network.many(1, 1, &steps);
        network.run_for(Duration::from_millis(5));
        let steps = [network.set(key, "second")];
        let second = network.many(2, 2, &steps);
        assert_eq!(text(&network.answer(first)), "OK");
        assert_eq!(text(&network.answer(second)), "OK");
        network.run_for(Duration::from_millis(200));
    }
    assert_settled(&network);
    counted.get()
}

#[test]
fn replicas_that_wait_meet_transactions_in_the_order_of_their_timestamps() {
    let (at_once, waiting) = (retries(Duration::ZERO), retries(Duration::from_millis(40)));
    assert!(at_once >= 8, "the second of each pair is told to come again: {at_once}");
    assert_eq!(waiting, 0);
}
