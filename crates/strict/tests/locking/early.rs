//! Locks are free as soon as the decision is in the log: whoever comes next is evaluated behind it, and shows nobody what may be lost.

use crate::locking::network::{DELAY, Network};
use crate::locking::singles::send;
use anabranch_strict::locking::Options;
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Operation, register, set};
use protocol::Request;
use std::time::Duration;
use types::{RequestId, SessionId};

const SESSION: SessionId = SessionId(7);

/// Each has its locks for the way of their answers and the way back of its question to commit, and not for the log's round.
#[test]
fn transactions_follow_one_another_while_the_log_is_replicated() {
    const CLIENTS: u64 = 12;
    let options = Options { combining: None, ..Options::default() };
    let mut network = Network::new(&options);
    let [a, b, ..] = network.four_keys(1);
    let steps = [network.increment(a), network.increment(b)];
    let began = network.now;
    let requests = (0..CLIENTS).map(|client| send(&mut network, client as u16 % 3 + 1, client, &steps));
    let requests: Vec<RequestId> = requests.collect();
    let mut replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    let took = network.now - began;
    assert!(
        took <= DELAY * (2 * CLIENTS as u32 + 6),
        "each had to wait until the one before was applied: {took:?}"
    );
    replies.sort_unstable();
    let mut expected = Vec::from_iter((1..=CLIENTS).map(|count| format!("{count} {count}")));
    expected.sort_unstable();
    assert_eq!(replies, expected);
}

/// What a session of the leader's process reads while a decision is in the log that reaches nobody.
fn shown_meanwhile(mutants: Mutants) -> Option<String> {
    let mut network = Network::new(&Options { mutants, ..Options::default() });
    let [a, _] = network.keys();
    let leader = network.leader(0);
    assert_eq!(network.text(leader, 0, &[network.increment(a)]), "1");
    network.stop_followers(0, true);
    let steps = [network.increment(a), network.get(a)];
    let lost = send(&mut network, leader, 0, &steps);
    network.run_for(DELAY * 4);
    let begin =
        network.request(leader, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(begin), "OK");
    let steps = [network.get(a)];
    let reads = network.request(leader, Request::Operate { session: SESSION, steps: &steps });
    network.run_for(DELAY * 20);
    assert_eq!(network.answered(lost), None);
    network.answered(reads)
}

/// A session sees what it reads before it commits, and its watches are compared with what others have committed.
#[test]
fn a_session_is_shown_nothing_that_may_be_lost() {
    assert_eq!(shown_meanwhile(Mutants::default()), None);
    assert_eq!(shown_meanwhile(Mutant::ShowUnapplied.into()), Some("2".into()), "the mutant shows it");
}

#[test]
fn transactions_that_only_read_are_answered_when_what_they_saw_is_applied() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let leader = network.leader(0);
    network.stop_followers(0, true);
    let steps = [network.increment(a), network.get(a)];
    let writes = send(&mut network, leader, 0, &steps);
    network.run_for(DELAY * 4);
    let steps = [network.get(a), network.get(a)];
    let reads = send(&mut network, leader, 9, &steps);
    network.run_for(DELAY * 20);
    assert_eq!([writes, reads].map(|id| network.answered(id)), [None, None]);
    network.stop_followers(0, false);
    assert_eq!([writes, reads].map(|id| network.answer(id)), ["1 1", "1 1"]);
}

/// A deadline that is on its way counts: the write that did not look at it is evaluated.
#[test]
fn a_deadline_that_is_not_applied_is_not_ignored() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let now = network.wall().as_millis();
    let deadline = register::Deadline::At { millis: now + 30 };
    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
    let write = Operation::Register(register::Operation::Set { value: b"v", deadline, condition, reply });
    let steps = [network.get(a), network.any(a, write, true)];
    let first = send(&mut network, 1, 1, &steps);
    network.run_for(DELAY * 4);
    let append = Operation::Register(register::Operation::Append { value: b"w" });
    let steps = [network.any(a, append, true)];
    let second = send(&mut network, 2, 2, &steps);
    assert_eq!(network.answer(first), "null OK");
    assert_eq!(network.answer(second), "OK");
    assert_eq!(network.text(3, 3, &[network.get(a)]), "vw");
    network.run_for(Duration::from_millis(40));
    assert_eq!(network.text(3, 3, &[network.get(a)]), "null", "it kept its deadline");
}

/// Additions hold the key's lock beside one another, so what is evaluated behind some of them goes on with those that come later.
#[test]
fn additions_that_decide_out_of_turn_are_all_seen() {
    let mut network = Network::new(&Options::default());
    let [a, b] = network.keys();
    let member = |network: &Network, key: &'static str, member: &'static [u8]| {
        let add = set::Operation::Add { members: datatypes::Items::one(member) };
        network.any(key, Operation::Set(add), true)
    };
    let mut requests = Vec::new();
    let members: [&'static [u8]; 6] = [b"u", b"v", b"w", b"x", b"y", b"z"];
    for (client, name) in members.into_iter().enumerate() {
        let both = [member(&network, a, name), member(&network, b, name)];
        requests.push(send(&mut network, client as u16 % 3 + 1, client as u64, &both));
        network.run_for(DELAY);
        let size = [network.any(a, Operation::Set(set::Operation::Length), false), network.get("other")];
        requests.push(send(&mut network, client as u16 % 3 + 1, 20 + client as u64, &size));
    }
    requests.into_iter().for_each(|id| drop(network.answer(id)));
    let size = |key| [network.any(key, Operation::Set(set::Operation::Length), false)];
    let sizes = [size(a), size(b)];
    assert_eq!(sizes.map(|size| network.text(1, 50, &size)), ["6", "6"]);
}
