//! Transactions of one coordinator that share locks and results, and commit as one (Claret, 4.3; Corrections 63).

use crate::network::{DELAY, Network};
use anabranch_strict::locking::{Combining, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Items, Operation, key, register, set};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, SessionId};

/// Sends a transaction of a session of its own.
fn send(network: &mut Network, session: u64, steps: &[Step<'_>]) -> RequestId {
    let session = SessionId(100 + session);
    network.request(1, Request::Many { session, steps, watched: false, multi: true })
}

fn texts(network: &mut Network, requests: &[RequestId]) -> Vec<String> {
    requests.iter().map(|id| network.answer(*id)).collect()
}

/// Transactions that come at a process at the same time: what they reply, and how many messages that takes.
fn together(options: &Options, steps: impl Fn(&Network) -> Vec<Vec<Step<'static>>>) -> (Vec<String>, u64) {
    let mut network = Network::new(options);
    // Whoever leads has nothing else to say for a while.
    network.run_for(DELAY * 10);
    let (began, sent) = (network.now, network.sent());
    let all = steps(&network);
    let requests: Vec<RequestId> =
        (0..).zip(&all).map(|(session, steps)| send(&mut network, session, steps)).collect();
    let replies = texts(&mut network, &requests);
    assert!(network.now - began < Duration::from_millis(100), "{:?}", network.now - began);
    (replies, network.sent() - sent)
}

#[test]
fn increments_that_come_together_take_the_messages_of_one() {
    let options = Options::default();
    let [one, five, parts] = [1, 5, 0].map(|count: usize| {
        together(&options, |network| {
            let [a, b] = network.keys();
            let mut all = vec![vec![network.increment(a), network.increment(b)]];
            all.extend((1..count).map(|_| vec![network.increment(a), network.increment(b)]));
            if count == 0 {
                // One of a part of the keys, and one that asks twice.
                all.push(vec![network.increment(b)]);
                all.push(vec![network.increment(a), network.increment(a), network.increment(b)]);
            }
            all
        })
    });
    assert_eq!(one.0, ["1 1"]);
    assert_eq!(five.0, ["1 1", "2 2", "3 3", "4 4", "5 5"]);
    assert_eq!(parts.0, ["1 1", "2", "2 3 3"]);
    assert_eq!((five.1, parts.1), (one.1, one.1), "messages");
    let apart = Options { combining: None, ..options };
    let alone = together(&apart, |network| {
        let [a, b] = network.keys();
        vec![vec![network.increment(a), network.increment(b)]; 5]
    });
    assert!(alone.1 > 3 * five.1, "{} messages, {} where nothing is combined", five.1, alone.1);
}

#[test]
fn reads_share_what_one_has_read() {
    let options = Options::default();
    let (replies, sent) = together(&options, |network| {
        let [a, b] = network.keys();
        let whole = Operation::Set(set::Operation::Members);
        let size = Operation::Set(set::Operation::Length);
        vec![
            vec![network.any(a, whole, false), network.get(b)],
            vec![network.any(a, size, false), network.get(b)],
            vec![network.get(b)],
        ]
    });
    let (_, one) = together(&options, |network| vec![network.keys().map(|key| network.get(key)).to_vec()]);
    assert_eq!(replies[1..], ["0 null", "null"]);
    assert_eq!(sent, one, "messages");
}

/// Blind additions need no answer of a leader: while one is committed, the others become one.
#[test]
fn blind_additions_gather_behind_one_that_is_committed() {
    let run = |combining| {
        let options = Options { combining, ..Options::default() };
        together(&options, |network| {
            let [a, _] = network.keys();
            let member = |member| Operation::Set(set::Operation::Add { members: Items::one(member) });
            let members: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
            members.map(|name| vec![network.any(a, member(name), true)]).to_vec()
        })
    };
    let (with, without) = (run(Some(Combining::default())), run(None));
    assert_eq!(with.0, ["OK"; 6]);
    assert!(2 * with.1 < without.1, "{} messages, {} where nothing is combined", with.1, without.1);
}

/// What cannot be told from what another one found out is found out by itself.
#[test]
fn who_does_not_combine_leaves() {
    let mut network = Network::new(&Options::default());
    let [a, b] = network.keys();
    let text = register::Operation::Set {
        value: b"text",
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    assert_eq!(network.text(2, 0, &[network.any(a, Operation::Register(text), false)]), "OK");
    let steps = [network.increment(a)];
    let requests: Vec<RequestId> = (0..3).map(|session| send(&mut network, session, &steps)).collect();
    for reply in texts(&mut network, &requests) {
        assert!(reply.starts_with("ERR"), "{reply}");
    }
    let both = [network.increment(b), network.get(b)];
    let requests: Vec<RequestId> = (0..3).map(|session| send(&mut network, session, &both)).collect();
    let mut replies = texts(&mut network, &requests);
    replies.sort();
    assert_eq!(replies, ["1 1", "2 2", "3 3"]);
}

#[test]
fn increments_of_keys_with_deadlines_combine_too() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    assert_eq!(network.text(1, 0, &[network.increment(a)]), "1");
    let at_millis = network.wall().as_millis() + 60_000;
    let expire = key::Operation::ExpireAt { at_millis, condition: Default::default() };
    assert_eq!(network.text(1, 0, &[network.any(a, Operation::Key(expire), false)]), "1");
    let add = Operation::Register(register::Operation::Increment { by: 1 });
    let (seen, blind) = ([network.increment(a)], [network.any(a, add, true)]);
    let requests = [&seen, &blind, &seen].map(|steps| send(&mut network, 0, steps));
    let replies = texts(&mut network, &requests);
    assert_eq!(replies[1], "OK");
    assert_eq!(network.text(2, 0, &[network.get(a)]), "4", "{replies:?}");
}

/// Increments of two keys, one session after the other; some have begun to commit when others come. What they replied,
/// and what the keys hold in the end.
fn one_after_the_other(mutants: Mutants, wait: u32) -> (Vec<String>, String) {
    let mut network = Network::new(&Options { mutants, ..Options::default() });
    let [a, b] = network.keys();
    let steps = [network.increment(a), network.increment(b)];
    let mut requests = Vec::new();
    for session in 0..12 {
        requests.push(send(&mut network, session, &steps));
        network.run_for(DELAY * wait / 2);
    }
    let mut replies = texts(&mut network, &requests);
    replies.sort_by_key(|reply| reply.split(' ').next().map(|number| number.parse::<u32>().ok()));
    (replies, network.text(2, 0, &[network.get(a), network.get(b)]))
}

#[test]
fn nobody_joins_one_that_has_begun_to_commit() {
    let right: Vec<String> = (1..=12).map(|number| format!("{number} {number}")).collect();
    for wait in 0..8 {
        let (replies, left) = one_after_the_other(Mutants::default(), wait);
        assert_eq!((&replies, left.as_str()), (&right, "12 12"), "every {wait} half delays");
    }
    let caught = |mutant: Mutant| (0..8).any(|wait| one_after_the_other(mutant.into(), wait).1 != "12 12");
    assert!(caught(Mutant::CombineAfterCommitBegan));
    assert!(caught(Mutant::MemberCountedTwice));
}

/// A leader dies while increments are under way that combine: what is answered in time, sorted, and what the keys
/// hold in the end.
fn while_a_leader_dies(mutants: Mutants, process: u16, when: u32) -> (Vec<String>, String) {
    let mut network = Network::new(&Options { mutants, ..Options::default() });
    let [a, b] = network.keys();
    let steps = [network.increment(a), network.increment(b)];
    let requests: Vec<RequestId> = (0..5).map(|session| send(&mut network, session, &steps)).collect();
    network.run_for(DELAY * when / 2);
    network.cut_off = Some(process);
    network.run_for(Duration::from_secs(4));
    network.cut_off = None;
    network.run_for(Duration::from_secs(4));
    let mut replies: Vec<String> = requests.iter().filter_map(|id| network.answered(*id)).collect();
    replies.sort();
    (replies, network.text(2, 0, &[network.get(a), network.get(b)]))
}

/// The members of a host that is refused run again, each by itself; those of one that has committed do not.
#[test]
fn members_end_with_their_host_whatever_becomes_of_it() {
    let cases = || [2, 3].into_iter().flat_map(|process| (0..16).map(move |when| (process, when)));
    for (process, when) in cases() {
        let (replies, left) = while_a_leader_dies(Mutants::default(), process, when);
        assert_eq!(replies, ["1 1", "2 2", "3 3", "4 4", "5 5"], "{process} after {when} half delays");
        assert_eq!(left, "5 5");
    }
    let orphans =
        |(process, when)| while_a_leader_dies(Mutant::OrphanSharers.into(), process, when).0.len() < 5;
    assert!(cases().any(orphans));
}

/// The log has one transaction for all of them.
#[test]
fn a_coordinator_that_dies_leaves_all_of_its_members_or_none() {
    let mut ends = std::collections::BTreeSet::new();
    for when in 0..20 {
        let mut network = Network::new(&Options::default());
        let [a, b] = network.keys();
        let steps = [network.increment(a), network.increment(b)];
        (0..5).for_each(|session| {
            send(&mut network, session, &steps);
        });
        network.run_for(DELAY * when / 2);
        network.down.insert(network.coordinator(1));
        ends.insert(network.text(2, 0, &[network.get(a), network.get(b)]));
    }
    assert_eq!(Vec::from_iter(ends), ["5 5", "null null"]);
}

/// However many come, none is told of an error, and no more than so many commit as one.
#[test]
fn groups_are_bounded() {
    let options =
        Options { combining: Some(Combining { members: 4, ..Combining::default() }), ..Options::default() };
    let steps = |network: &Network| vec![vec![network.increment(network.keys()[0])]; 16];
    let (replies, few) = together(&options, steps);
    let mut numbers: Vec<u32> = replies.iter().map(|reply| reply.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(1..=16));
    let (_, one) = together(&Options::default(), steps);
    assert!(few > 2 * one, "{few} messages for four at a time, {one} for all at once");
}
