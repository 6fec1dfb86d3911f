//! Steps on one key that are evaluated one after the other are one question.

use crate::locking::network::Network;
use crate::locking::singles::send;
use anabranch_strict::locking::{Concurrency, Options};
use datatypes::{Operation, register};
use protocol::Step;
use std::time::Duration;

fn options() -> [Options; 2] {
    [Concurrency::Locking, Concurrency::Optimistic]
        .map(|concurrency| Options { concurrency, ..Options::default() })
}

/// The replies to a transaction, and how long it took.
fn timed(network: &mut Network, steps: &[Step<'_>]) -> (String, Duration) {
    let began = network.now;
    let id = send(network, 1, 1, steps);
    let replies = network.answer(id);
    (replies, network.now - began)
}

/// Each sees those before it, and all of them take as long as one.
#[test]
fn several_steps_on_a_key_take_no_longer_than_one() {
    for options in options() {
        let mut network = Network::new(&options);
        let [a, b] = network.keys();
        let (inc, get, take) = (|| network.increment(a), || network.get(a), network.take(a));
        let both = [inc(), network.increment(b)];
        let steps =
            [inc(), get(), network.increment(b), inc(), inc(), take, get(), inc(), network.increment(b)];
        let (replies, one) = timed(&mut network, &both);
        assert_eq!(replies, "1 1");
        network.run_for(Duration::from_millis(50));
        let (replies, several) = timed(&mut network, &steps);
        assert_eq!(replies, "2 2 2 3 4 4 null 1 3");
        assert_eq!(several, one, "{:?}", options.concurrency);
        let shown = [network.get(a), network.get(b)];
        assert_eq!(network.text(2, 2, &shown), "1 3");
    }
}

/// What needs no evaluation has its place among what does.
#[test]
fn blind_steps_are_between_the_others() {
    for options in options() {
        let mut network = Network::new(&options);
        let [a, b] = network.keys();
        let blind = || network.any(a, Operation::Register(register::Operation::Increment { by: 1 }), true);
        let (inc, get) = (|| network.increment(a), || network.get(a));
        let steps = [blind(), inc(), blind(), blind(), get(), inc(), network.increment(b), blind()];
        let shown = [get()];
        assert_eq!(timed(&mut network, &steps).0, "OK 2 OK OK 4 5 1 OK");
        assert_eq!(network.text(2, 2, &shown), "6");
    }
}

/// More of them than the coordinator requests at once.
#[test]
fn a_thousand_steps_on_a_key_are_a_few_questions() {
    for options in options() {
        let mut network = Network::new(&options);
        let [a, b] = network.keys();
        let both = [network.increment(a), network.increment(b)];
        let mut steps: Vec<Step<'_>> = (0..1_000).map(|_| network.increment(a)).collect();
        steps.push(network.increment(b));
        let (_, one) = timed(&mut network, &both);
        let (replies, all) = timed(&mut network, &steps);
        assert!(replies.starts_with("2 3 4 ") && replies.ends_with(" 1000 1001 2"), "{replies}");
        assert!(all < one * 4, "{all:?}, one {one:?}");
    }
}

/// A deletion of everything is between those before it and those behind it.
#[test]
fn a_deletion_of_everything_is_between_them() {
    for options in options() {
        let mut network = Network::new(&options);
        let [a, b] = network.keys();
        let (inc, get) = (|| network.increment(a), || network.get(a));
        let steps = [inc(), inc(), Step::Flush, inc(), get(), Step::Flush, get(), network.increment(b)];
        let shown = [get()];
        assert_eq!(timed(&mut network, &steps).0, "1 2 OK 1 1 OK null 1");
        assert_eq!(network.text(2, 2, &shown), "null");
    }
}
