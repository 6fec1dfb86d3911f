//! Optimistic transactions that a session would have to begin again meet one that was answered, and is not decided
//! everywhere yet.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::{Concurrency, Options};
use datatypes::{Items, Operation, register, set};
use protocol::{Request, Step};
use types::SessionId;

const SESSION: SessionId = SessionId(7);

fn options() -> Options {
    Options { concurrency: Concurrency::Optimistic, ..Options::default() }
}

/// A transaction over both shards is answered; its decision is on its way to the first one: of shards that answer at the same time the
/// last is the first participant, which writes it.
fn answered(options: &Options) -> Network {
    let mut network = Network::new(options);
    let [a, b] = network.keys();
    assert_eq!(network.text(1, 0, &[network.increment(a), network.increment(b)]), "1 1");
    network
}

/// What a session hears that does these steps in a transaction of several requests, as RENAME does: what was seen, and how it
/// ended.
fn interactively(network: &mut Network, process: u16, steps: &[Step<'_>]) -> (String, String) {
    let begin = Request::Begin { session: SESSION, read_only: false, watched: false };
    let mut seen = Vec::new();
    for request in [begin, Request::Operate { session: SESSION, steps }] {
        let id = network.request(process, request);
        seen.push(network.answer(id));
    }
    let id = network.request(process, Request::Commit { session: SESSION });
    (seen.pop().unwrap_or_default(), network.answer(id))
}

fn set<'n>(network: &Network, key: &'n str) -> Step<'n> {
    let operation = register::Operation::Set {
        value: b"new",
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    network.any(key, Operation::Register(operation), false)
}

#[test]
fn a_look_waits_for_the_decision_that_was_answered() {
    for process in [1, 2, 3] {
        let mut network = answered(&options());
        let [b, _] = network.keys();
        let steps = [network.increment(b)];
        assert_eq!(interactively(&mut network, process, &steps), ("2".into(), "OK".into()));
    }
}

#[test]
fn a_vote_without_a_look_is_requested_again_when_the_decision_has_come() {
    let mut network = answered(&options());
    let [a, b] = network.keys();
    let steps = [set(&network, a), set(&network, b)];
    assert_eq!(interactively(&mut network, 2, &steps), ("OK OK".into(), "OK".into()));
    assert_eq!(network.text(3, 0, &[network.get(a), network.get(b)]), "new new");
}

/// As it is without waiting: what the others of this file show would not be seen if it could not happen. Who was shown nothing
/// is run again.
#[test]
fn a_transaction_that_does_not_wait_gets_conflict_if_it_was_shown_something() {
    let mut network = answered(&Options { patient: false, ..options() });
    let [b, _] = network.keys();
    let steps = [network.increment(b)];
    let (seen, ended) = interactively(&mut network, 2, &steps);
    assert!(seen == "1" && ended.starts_with("CONFLICT"), "{seen} {ended}");
    let mut network = answered(&Options { patient: false, ..options() });
    let steps = [set(&network, b)];
    assert_eq!(interactively(&mut network, 2, &steps), ("OK".into(), "OK".into()));
    assert_eq!(network.text(3, 0, &[network.get(b)]), "new");
}

/// The decision does not come from its coordinator: the shard has to ask for it.
#[test]
fn the_wait_outlasts_a_coordinator_that_died() {
    for look in [true, false] {
        let mut network = answered(&options());
        let [b, _] = network.keys();
        network.stop(0);
        network.run_for(DELAY);
        network.down.clear();
        network.down.insert(network.coordinator(1));
        let began = network.now;
        let steps = [if look { network.increment(b) } else { set(&network, b) }];
        assert_eq!(interactively(&mut network, 2, &steps).1, "OK");
        let waited = network.now - began;
        assert!(waited > options().prepared_timeout / 2, "the decision came by itself: {waited:?}");
    }
}

/// What was seen has changed before the vote: that is a conflict, and none to wait for.
#[test]
fn a_change_after_the_look_is_still_a_conflict() {
    let mut network = answered(&options());
    let [b, _] = network.keys();
    let begin = Request::Begin { session: SESSION, read_only: false, watched: false };
    let id = network.request(2, begin);
    assert_eq!(network.answer(id), "OK");
    let steps = [network.increment(b)];
    let id = network.request(2, Request::Operate { session: SESSION, steps: &steps });
    assert_eq!(network.answer(id), "2");
    assert_eq!(network.text(3, 0, &[network.increment(b)]), "2");
    let id = network.request(2, Request::Commit { session: SESSION });
    assert!(network.answer(id).starts_with("CONFLICT"));
}

/// Somebody is always being committed on the key; a look waits for those that were there before it, not for those after.
#[test]
fn others_that_keep_coming_do_not_keep_a_look_waiting() {
    let mut network = Network::new(&Options { combining: None, ..options() });
    let [_, b] = network.keys();
    let add = |network: &mut Network, session: u64| {
        let add = set::Operation::Add { members: Items::one(b"member") };
        let steps = [network.any(b, Operation::Set(add), true)];
        let request =
            Request::Many { session: SessionId(session), steps: &steps, watched: false, multi: true };
        network.request(session as u16 % 3 + 1, request);
        network.run_for(DELAY / 2);
    };
    let id = network.request(2, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(id), "OK");
    (100..110).for_each(|session| add(&mut network, session));
    let size = [network.any(b, Operation::Set(set::Operation::Length), false)];
    let id = network.request(2, Request::Operate { session: SESSION, steps: &size });
    let mut rounds = 0;
    while network.answered(id).is_none() && rounds < 100 {
        add(&mut network, 200 + rounds);
        rounds += 1;
    }
    assert!(rounds < 20, "it waited for {rounds} others that came later");
}
