//! Single commands of one key that come to a process while others of it are under way are sent together.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::{Combining, Options};
use datatypes::{Operation, list, register};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, SessionId};

fn send(network: &mut Network, process: u16, session: u64, steps: &[Step<'_>]) -> RequestId {
    let session = SessionId(100 + session);
    network.request(process, Request::Many { session, steps, watched: false, multi: false })
}

fn numbers(replies: impl IntoIterator<Item = String>) -> Vec<u64> {
    let number = |reply: String| reply.parse().unwrap_or_else(|_| panic!("{reply}"));
    let mut numbers: Vec<u64> = replies.into_iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Increments of one key that come to a process at the same time: their replies, how long those take, and how many
/// messages leave until then.
fn together(options: &Options, count: u64) -> (Vec<u64>, Duration, u64) {
    let mut network = Network::new(options);
    let [a, _] = network.keys();
    // Whoever leads has nothing else to say for a while.
    network.run_for(DELAY * 10);
    let (began, sent) = (network.now, network.sent());
    let steps = [network.increment(a)];
    let requests: Vec<RequestId> = (0..count).map(|session| send(&mut network, 2, session, &steps)).collect();
    let replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    (numbers(replies), network.now - began, network.sent() - sent)
}

#[test]
fn many_that_come_to_one_process_take_few_messages() {
    let options = Options::default();
    let (counts, took, sent) = together(&options, 40);
    assert_eq!(counts, Vec::from_iter(1..=40));
    assert!(took <= DELAY * 8, "two round trips and two of the log: {took:?}");
    let (counts, took, separate) = together(&Options { combining: None, ..options }, 40);
    assert_eq!(counts, Vec::from_iter(1..=40));
    assert!(took <= DELAY * 5, "one of each: {took:?}");
    assert!(3 * sent < separate, "{sent} messages, {separate} where each is sent by itself");
}

#[test]
fn a_batch_is_bounded() {
    let limits = Combining { members: 4, ..Combining::default() };
    let (counts, _, sent) = together(&Options { combining: Some(limits), ..Options::default() }, 40);
    assert_eq!(counts, Vec::from_iter(1..=40));
    let (_, _, fewer) = together(&Options::default(), 40);
    assert!(sent > fewer, "{sent} messages in batches of four, {fewer} in larger ones");
}

/// However long those take that are under way: of a key whose leader is far away, too.
#[test]
fn nobody_waits_for_longer_than_a_millisecond() {
    for process in 1..=3 {
        let mut network = Network::new(&Options::default());
        let [a, _] = network.keys();
        network.far = Some(process);
        let steps = [network.increment(a)];
        let mut took = [1, 8].map(|count| {
            let began = network.now;
            let requests: Vec<RequestId> =
                (0..count).map(|session| send(&mut network, process, session, &steps)).collect();
            requests.into_iter().for_each(|id| drop(network.answer(id)));
            network.now - began
        });
        took[0] += Combining::default().hold;
        assert!(took[1] <= took[0], "{:?} and no more than {:?}, from {process}", took[1], took[0]);
    }
}

/// Only the command that fails gets an error; what only fails is answered like a read.
#[test]
fn members_of_a_batch_fail_each_for_itself() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let push = |network: &Network| {
        let values = datatypes::Items::one(b"v");
        let push = list::Operation::Push { end: list::End::Back, values, only_if_exists: false };
        [network.any(a, Operation::List(push), false)]
    };
    let (adds, pushes) = ([network.increment(a)], push(&network));
    let requests: Vec<RequestId> = (0..20)
        .map(|session| {
            let steps = if session % 2 == 0 { &adds } else { &pushes };
            send(&mut network, 3, session, steps)
        })
        .collect();
    let replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    let (answers, failed): (Vec<String>, Vec<String>) =
        replies.into_iter().partition(|reply| reply.parse::<u64>().is_ok());
    assert_eq!(numbers(answers), Vec::from_iter(1..=10));
    assert!(failed.len() == 10 && failed.iter().all(|reply| reply.starts_with("WRONGTYPE")), "{failed:?}");
    let requests: Vec<RequestId> = (0..20).map(|session| send(&mut network, 3, session, &pushes)).collect();
    for id in requests {
        assert!(network.answer(id).starts_with("WRONGTYPE"));
    }
    assert_eq!(network.text(1, 0, &[network.get(a)]), "10");
}

/// The leader's replica, or a process with its clients, is gone at any moment: an entry is in the next leader's log with the result of
/// each, or none of them has happened, and they run anew.
#[test]
fn each_counts_once_whoever_goes() {
    for (process, when) in (1..=3).flat_map(|process| (0..14).map(move |when| (process, when))) {
        let mut network = Network::new(&Options::default());
        let [a, _] = network.keys();
        let steps = [network.increment(a)];
        let requests: Vec<RequestId> =
            (0..24).map(|session| send(&mut network, session as u16 % 2 + 1, session, &steps)).collect();
        network.run_for(DELAY * when / 2);
        let replica = network.replica(process, 0);
        network.down.insert(replica);
        network.run_for(Duration::from_secs(3));
        let answers = numbers(requests.iter().filter_map(|id| network.answered(*id)));
        assert_eq!(answers, Vec::from_iter(1..=24), "{process} is gone after {when} half delays");
        network.down.remove(&replica);
        network.run_for(Duration::from_secs(1));
        assert_eq!(network.text(2, 0, &[network.get(a)]), "24");
    }
}

/// No leader is to be found while they wait for their answers: all get an error.
#[test]
fn all_of_a_batch_hear_of_its_end() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let steps = [network.increment(a)];
    let requests: Vec<RequestId> = (0..12).map(|session| send(&mut network, 2, session, &steps)).collect();
    network.run_for(DELAY * 3);
    network.stop(0);
    for id in requests {
        let reply = network.answer(id);
        assert!(reply.parse::<u64>().is_ok() || reply.starts_with("UNKNOWNOUTCOME"), "{reply}");
    }
}

/// A deadline that passes between two batches: the first of the second finds the key expired.
#[test]
fn a_batch_finds_its_key_expired_once() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let millis = network.wall().as_millis() + 50;
    let set = register::Operation::Set {
        value: b"7",
        deadline: register::Deadline::At { millis },
        condition: register::Condition::Always,
        reply: register::SetReply::Old,
    };
    assert_eq!(network.text(1, 0, &[network.any(a, Operation::Register(set), false)]), "null");
    network.run_for(Duration::from_millis(100));
    let steps = [network.increment(a)];
    let requests: Vec<RequestId> = (0..20).map(|session| send(&mut network, 2, session, &steps)).collect();
    let replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    assert_eq!(numbers(replies), Vec::from_iter(1..=20));
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.text(1, 0, &[network.get(a)]), "20");
}
