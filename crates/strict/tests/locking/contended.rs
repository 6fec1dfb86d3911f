//! Transactions of several requests whose blind writes were refused a vote: the next one waits for its locks first.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::Options;
use datatypes::{Items, Operation, set};
use protocol::{Request, Step};
use types::{RequestId, SessionId};

const READER: SessionId = SessionId(7);
const WRITER: SessionId = SessionId(8);

fn begin(network: &mut Network, session: SessionId, steps: &[Step<'_>]) {
    for request in
        [Request::Begin { session, read_only: false, watched: false }, Request::Operate { session, steps }]
    {
        let id = network.request(1, request);
        network.answer(id);
    }
}

/// A member for a set on each shard, blindly.
fn additions<'n>(network: &Network, keys: [&'n str; 2]) -> [Step<'n>; 2] {
    keys.map(|key| network.any(key, Operation::Set(set::Operation::Add { members: Items::one(b"m") }), true))
}

fn commit(network: &mut Network, session: SessionId) -> RequestId {
    network.request(1, Request::Commit { session })
}

/// What a writer hears who commits while somebody has looked at its keys, as long as that one goes on; and then. It was shown
/// another key: otherwise it would be run again by itself.
fn beside_a_reader(network: &mut Network, keys: [&'static str; 2]) -> (Option<String>, String) {
    let card = |key| network.any(key, Operation::Set(set::Operation::Length), false);
    let (cards, shown) = (keys.map(card), card(network.four_keys(2)[2]));
    begin(network, READER, &cards);
    let [first, second] = additions(network, keys);
    begin(network, WRITER, &[shown, first, second]);
    let writer = commit(network, WRITER);
    network.run_for(DELAY * 50);
    let meanwhile = network.answered(writer);
    let reader = commit(network, READER);
    assert_eq!(network.answer(reader), "OK");
    (meanwhile, network.answer(writer))
}

#[test]
fn whoever_comes_after_a_refused_vote_waits_for_its_locks() {
    let mut network = Network::new(&Options::default());
    let keys = network.four_keys(2);
    let keys = [keys[0], keys[1]];
    let (meanwhile, reply) = beside_a_reader(&mut network, keys);
    assert!(meanwhile.is_some_and(|it| it.starts_with("CONFLICT")), "{reply}");
    assert_eq!(beside_a_reader(&mut network, keys), (None, "OK".to_owned()));
    let cards = keys.map(|key| network.any(key, Operation::Set(set::Operation::Length), false));
    assert_eq!(network.text(2, 0, &cards), "1 1");
}

#[test]
fn a_writer_that_was_shown_nothing_is_run_again() {
    let mut network = Network::new(&Options::default());
    let keys = network.four_keys(2);
    let cards = [network.any(keys[0], Operation::Set(set::Operation::Length), false)];
    begin(&mut network, READER, &cards);
    let additions = additions(&network, [keys[0], keys[1]]);
    begin(&mut network, WRITER, &additions);
    let writer = commit(&mut network, WRITER);
    network.run_for(DELAY * 50);
    assert_eq!(network.answered(writer), None);
    let reader = commit(&mut network, READER);
    assert_eq!((network.answer(reader), network.answer(writer)), ("OK".into(), "OK".into()));
}

/// It is remembered for a second: then a vote is tried again, which takes a round trip less.
#[test]
fn a_refusal_is_forgotten() {
    let mut network = Network::new(&Options::default());
    let keys = network.four_keys(2);
    let keys = [keys[0], keys[1]];
    let took = |network: &mut Network| {
        let additions = additions(network, keys);
        begin(network, WRITER, &additions);
        let began = network.now;
        let id = commit(network, WRITER);
        assert_eq!(network.answer(id), "OK");
        network.now - began
    };
    let before = took(&mut network);
    beside_a_reader(&mut network, keys);
    assert_eq!(took(&mut network), before + 2 * DELAY);
    network.run_for(DELAY * 1200);
    assert_eq!(took(&mut network), before);
}
