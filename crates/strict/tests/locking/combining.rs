//! Transactions of one coordinator that share locks and results, and commit as one (Claret, 4.3; Corrections 63).

use crate::locking::network::{DELAY, Network};
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
    let separate = Options { combining: None, ..options };
    let alone = together(&separate, |network| {
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

/// A transaction whose results do not follow from the host's answers runs by itself.
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
    let [a, b] = network.keys();
    assert_eq!(network.text(1, 0, &[network.increment(a)]), "1");
    let at_millis = network.wall().as_millis() + 60_000;
    let expire = key::Operation::ExpireAt { at_millis, condition: Default::default() };
    assert_eq!(network.text(1, 0, &[network.any(a, Operation::Key(expire), false)]), "1");
    let add = Operation::Register(register::Operation::Increment { by: 1 });
    let (seen, blind) = ([network.increment(a), network.increment(b)], [network.any(a, add, true)]);
    let requests = [&seen[..], &blind, &seen].map(|steps| send(&mut network, 0, steps));
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

/// However many come, none gets an error, and no more than so many commit as one.
#[test]
fn groups_are_bounded() {
    let options =
        Options { combining: Some(Combining { members: 4, ..Combining::default() }), ..Options::default() };
    let steps = |network: &Network| vec![network.keys().map(|key| network.increment(key)).to_vec(); 16];
    let (replies, few) = together(&options, steps);
    let parts = replies.iter().flat_map(|reply| reply.split(' '));
    let mut numbers: Vec<u32> = parts.map(|part| part.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter((1..=16).flat_map(|number| [number; 2])));
    let (_, one) = together(&Options::default(), steps);
    assert!(few > 2 * one, "{few} messages for four at a time, {one} for all at once");
}

/// Looks at one set and adds to another one, some the other way round: each would wait for others, and none has all the keys
/// of another one.
fn overlapping(network: &Network, count: usize) -> Vec<Vec<Step<'static>>> {
    let [a, b, c, d] = network.four_keys(2);
    let names: [&'static [u8]; 4] = [b"1", b"2", b"3", b"4"];
    let look = |key: &'static str| network.any(key, Operation::Set(set::Operation::Length), false);
    let add = |key: &'static str, name: &'static [u8]| {
        network.any(key, Operation::Set(set::Operation::Add { members: Items::one(name) }), true)
    };
    let one = |index: usize| match index % 4 {
        0 => vec![look(a), add(b, names[index / 4 % 4])],
        1 => vec![look(b), add(c, names[index / 4 % 4]), look(b)],
        2 => vec![look(c), add(d, names[index / 4 % 4])],
        _ => vec![add(a, names[index / 4 % 4]), look(a), look(d)],
    };
    (0..count).map(one).collect()
}

/// Claret's merged lock sets: no matter which keys, those that would wait for one another ask for their locks as one.
#[test]
fn those_that_would_wait_for_one_another_become_one() {
    let run = |combining| {
        let options = Options { combining, ..Options::default() };
        together(&options, |network| overlapping(network, 16))
    };
    let (with, without) = (run(Some(Combining::default())), run(None));
    for (index, reply) in with.0.iter().enumerate() {
        let sizes: Vec<&str> = reply.split(' ').filter(|part| *part != "OK").collect();
        assert!(sizes.iter().all(|size| size.parse::<u32>().is_ok_and(|size| size <= 4)), "{reply}");
        // Looks of one transaction at one set, and at what it has added to.
        assert!(index % 4 != 1 || sizes[0] == sizes[1], "{reply}");
        assert!(index % 4 != 3 || sizes[0] != "0", "{reply}");
    }
    assert!(2 * with.1 < without.1, "{} messages, {} where nothing is combined", with.1, without.1);
}

/// A step behind another one's answer takes its result from that answer where it can; else the coordinator requests
/// it.
#[test]
fn steps_of_a_group_are_evaluated_one_transaction_after_the_other() {
    let mut network = Network::new(&Options::default());
    let [a, b, c, d] = network.four_keys(2);
    let first = [network.increment(a), network.increment(b)];
    let second = [network.increment(b), network.increment(c)];
    let third = [network.increment(c), network.increment(d), network.increment(a)];
    let all = [&first[..], &second, &third].into_iter().cycle().take(12);
    let requests: Vec<RequestId> =
        (0..).zip(all).map(|(session, steps)| send(&mut network, session, steps)).collect();
    let replies = texts(&mut network, &requests);
    assert!(
        replies.iter().all(|reply| reply.split(' ').all(|part| part.parse::<u32>().is_ok())),
        "{replies:?}"
    );
    // Every number once.
    let part = |kind: usize, step: usize| {
        let of_kind = replies.iter().skip(kind).step_by(3);
        of_kind.map(move |reply| reply.split(' ').nth(step).and_then(|part| part.parse::<u32>().ok()))
    };
    for parts in [[(0, 0), (2, 2)], [(0, 1), (1, 0)], [(1, 1), (2, 0)]] {
        let mut numbers: Vec<_> =
            parts.into_iter().flat_map(|(kind, step)| part(kind, step)).flatten().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(1..=8));
    }
    assert_eq!(network.text(2, 0, &[a, b, c, d].map(|key| network.get(key))), "8 8 8 4");
}

/// A leader dies while a group waits for its locks, holds them or is committed.
#[test]
fn a_group_ends_as_one_or_falls_apart() {
    for when in 0..24 {
        let mut network = Network::new(&Options::default());
        let [a, b, c, _] = network.four_keys(2);
        let kinds = [[a, b], [b, c], [c, a]].map(|keys| keys.map(|key| network.increment(key)));
        let requests: Vec<RequestId> =
            (0..9).map(|session| send(&mut network, session, &kinds[session as usize % 3])).collect();
        network.run_for(DELAY * when / 2);
        network.cut_off = Some(2 + when as u16 % 2);
        network.run_for(Duration::from_secs(4));
        network.cut_off = None;
        network.run_for(Duration::from_secs(4));
        let replies: Vec<Option<String>> = requests.iter().map(|id| network.answered(*id)).collect();
        assert!(
            replies.iter().all(|reply| reply.as_ref().is_some_and(|it| !it.contains("ERR"))),
            "{replies:?}"
        );
        assert_eq!(
            network.text(3, 0, &[a, b, c].map(|key| network.get(key))),
            "6 6 6",
            "{when}: {replies:?}"
        );
    }
}

/// Also what the host has requested for other members only.
#[test]
fn what_a_group_holds_is_free_when_it_is_given_up() {
    let mut network = Network::new(&Options::default());
    let [a, b, c, _] = network.four_keys(2);
    network.stop(1);
    let requests = [vec![b, c], vec![c, b], vec![b, a]].map(|keys| {
        let steps: Vec<Step<'_>> = keys.iter().map(|key| network.increment(key)).collect();
        send(&mut network, 9, &steps)
    });
    network.run_for(Duration::from_millis(5_010));
    for id in requests {
        let reply = network.answered(id);
        assert!(reply.as_ref().is_some_and(|reply| reply.contains("UNAVAILABLE")), "{reply:?}");
    }
    let began = network.now;
    assert_eq!(network.text(3, 0, &[network.increment(a)]), "1");
    assert!(network.now - began < Duration::from_millis(100), "{:?}", network.now - began);
}
