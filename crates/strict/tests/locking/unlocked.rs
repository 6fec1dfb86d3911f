//! Without locks every operation is linearizable by itself, and nothing holds several together.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::{Concurrency, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Operation, register};
use protocol::Request;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{RequestId, SessionId};

fn options(mutants: Mutants) -> Options {
    Options { concurrency: Concurrency::Unlocked, mutants, ..Options::default() }
}

/// The replies to clients that increment two keys, one of each shard.
#[derive(Default)]
struct Sums {
    /// By key: the sums.
    sums: [BTreeSet<u64>; 2],
    /// How many sums came twice.
    twice: usize,
    /// Requests of unknown outcome.
    unknown: usize,
}

/// Nine clients at three processes increment both keys in one request, again and again; from time to time a process does not
/// hear anything for a while. Returns the replies, and what the keys hold in the end.
fn increments(mutants: Mutants, faults: bool) -> (Sums, [u64; 2]) {
    const CLIENTS: usize = 9;
    let mut network = Network::new(&options(mutants));
    let keys = network.keys();
    let mut sums_seen = Sums::default();
    let ask = |network: &mut Network, client: usize| {
        let steps = [network.increment(keys[0]), network.increment(keys[1])];
        let session = SessionId(client as u64 + 10);
        network.request(
            client as u16 % 3 + 1,
            Request::Many { session, steps: &steps, watched: false, multi: true },
        )
    };
    let mut open: Vec<RequestId> = (0..CLIENTS).map(|client| ask(&mut network, client)).collect();
    let end = network.now + Duration::from_secs(if faults { 15 } else { 1 });
    let mut events = 0;
    while network.now < end && network.go_on(end) {
        events += 1;
        if faults && events % 4_000 == 0 {
            // Both replicas of a process, but not its coordinator, stand still, or go on.
            let process = (events / 8_000) as u16 % 3 + 1;
            let coordinator = network.coordinator(process);
            network.stand_still(process, events % 8_000 != 0);
            network.down.remove(&coordinator);
            network.cut_off = None;
        }
        for (client, request) in open.iter_mut().enumerate() {
            let Some(answer) = network.answered(*request) else { continue };
            note(&mut sums_seen, &answer);
            *request = ask(&mut network, client);
        }
    }
    network.down.clear();
    for request in open {
        let answer = network.answer(request);
        note(&mut sums_seen, &answer);
    }
    network.run_for(Duration::from_secs(1));
    let held = network.text(1, 0, &[network.get(keys[0]), network.get(keys[1])]);
    let held: Vec<u64> = held.split(' ').map(|sum| sum.parse().expect("a sum")).collect();
    (sums_seen, [held[0], held[1]])
}

fn note(sums_seen: &mut Sums, answer: &str) {
    let sums: Vec<u64> = answer.split(' ').filter_map(|sum| sum.parse().ok()).collect();
    match sums[..] {
        [a, b] => {
            sums_seen.twice +=
                usize::from(!sums_seen.sums[0].insert(a)) + usize::from(!sums_seen.sums[1].insert(b))
        }
        _ => {
            assert!(answer.starts_with("UNKNOWNOUTCOME"), "{answer}");
            sums_seen.unknown += 1;
        }
    }
}

#[test]
fn every_increment_counts_once_and_sees_those_before() {
    let (sums_seen, held) = increments(Mutants::default(), false);
    assert_eq!((sums_seen.twice, sums_seen.unknown), (0, 0));
    for (sums, held) in sums_seen.sums.iter().zip(held) {
        assert!(held > 600 && sums.len() as u64 == held && sums.last() == Some(&held), "{held}");
    }
    let (sums_seen, _) = increments(Mutant::EvaluateOnApplied.into(), false);
    assert!(sums_seen.twice > 0, "the mutant tells a sum twice");
}

#[test]
fn so_it_is_when_leaders_go() {
    let (sums_seen, held) = increments(Mutants::default(), true);
    assert_eq!(sums_seen.twice, 0);
    for (sums, held) in sums_seen.sums.iter().zip(held) {
        assert!(held > 500 && sums.last() <= Some(&held), "{held}");
        let missing = held - sums.len() as u64;
        assert!(
            missing <= sums_seen.unknown as u64,
            "{missing} of {held} were not told, {} replies are missing",
            sums_seen.unknown
        );
    }
}

#[test]
fn nobody_waits_for_anybody() {
    let mut network = Network::new(&options(Mutants::default()));
    let [a, b] = network.keys();
    let began = network.now;
    let session = |number: u64| SessionId(100 + number);
    let steps = [network.increment(a), network.increment(b)];
    let many: Vec<RequestId> = (0..50)
        .map(|number| {
            network.request(
                1,
                Request::Many { session: session(number), steps: &steps, watched: false, multi: false },
            )
        })
        .collect();
    for request in many {
        network.answer(request);
    }
    assert!(network.now - began <= DELAY * 8, "one round trip and one of the log: {:?}", network.now - began);
}

#[test]
fn there_are_no_transactions() {
    let mut network = Network::new(&options(Mutants::default()));
    let [a, _] = network.keys();
    let begin =
        network.request(1, Request::Begin { session: SessionId(1), read_only: false, watched: false });
    assert!(network.answer(begin).contains("LOCKS none"));
    let keys = [network.watched(a)];
    let watch = network.request(1, Request::Watch { session: SessionId(1), keys: &keys });
    assert!(network.answer(watch).contains("LOCKS none"));
}

#[test]
fn deadlines_are_met() {
    let mut network = Network::new(&options(Mutants::default()));
    let [a, _] = network.keys();
    let millis = network.wall().as_millis() + 200;
    let set = register::Operation::Set {
        value: b"9",
        deadline: register::Deadline::At { millis },
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    assert_eq!(network.text(1, 0, &[network.any(a, Operation::Register(set), false)]), "OK");
    assert_eq!(network.text(2, 0, &[network.increment(a)]), "10", "it keeps the deadline");
    network.run_for(Duration::from_millis(300));
    assert_eq!(network.text(3, 0, &[network.get(a)]), "null");
    assert_eq!(network.text(2, 0, &[network.increment(a)]), "1");
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.text(1, 0, &[network.get(a)]), "1");
}

/// A read that comes while a write is on its way to a key that has expired deletes nothing.
#[test]
fn a_read_leaves_what_is_on_its_way() {
    let mut network = Network::new(&options(Mutants::default()));
    let [a, _] = network.keys();
    let set = |value, deadline| {
        let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
        Operation::Register(register::Operation::Set { value, deadline, condition, reply })
    };
    let millis = network.wall().as_millis() + 50;
    let first = set(b"old", register::Deadline::At { millis });
    assert_eq!(network.text(1, 0, &[network.any(a, first, false)]), "OK");
    network.run_for(Duration::from_millis(100));
    let renew = [network.any(a, set(b"new", register::Deadline::Clear), false)];
    let look = [network.get(a)];
    let ask = |network: &mut Network, session, steps: &[protocol::Step<'_>]| {
        let session = SessionId(session);
        network.request(2, Request::Many { session, steps, watched: false, multi: false })
    };
    let (written, read) = (ask(&mut network, 20, &renew), ask(&mut network, 21, &look));
    assert_eq!([written, read].map(|id| network.answer(id)), ["OK", "null"]);
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.text(1, 0, &look), "new");
}
