//! Single commands follow one another through their leader's log, and single reads wait only for what may have been decided.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::Options;
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Operation, register};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, SessionId};

pub fn send(network: &mut Network, process: u16, session: u64, steps: &[Step<'_>]) -> RequestId {
    let session = SessionId(100 + session);
    network.request(process, Request::Many { session, steps, watched: false, multi: steps.len() > 1 })
}

/// The numbers that were replied, in order; panics on any other reply.
fn numbers(replies: impl IntoIterator<Item = String>) -> Vec<u64> {
    let number = |reply: String| reply.parse().unwrap_or_else(|_| panic!("{reply}"));
    let mut numbers: Vec<u64> = replies.into_iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// Increments of one key by clients of three processes that come at the same time: their replies, and how long those
/// took.
fn together(mutants: Mutants, count: u64) -> (Vec<u64>, Duration) {
    let mut network = Network::new(&Options { mutants, ..Options::default() });
    let [a, _] = network.keys();
    let steps = [network.increment(a)];
    let began = network.now;
    let requests: Vec<RequestId> =
        (0..count).map(|session| send(&mut network, session as u16 % 3 + 1, session, &steps)).collect();
    let replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    (numbers(replies), network.now - began)
}

#[test]
fn many_on_one_key_take_one_round_trip_of_the_log() {
    let (counts, took) = together(Mutants::default(), 60);
    assert_eq!(counts, Vec::from_iter(1..=60));
    assert!(took <= DELAY * 5, "to the leader, to a quorum, and back each time: {took:?}");
    let (counts, _) = together(Mutant::EvaluateOnApplied.into(), 60);
    assert!(counts.windows(2).any(|pair| pair[0] == pair[1]), "the mutant tells a number twice");
}

/// The leader's replica is gone at any moment between the question and the answer. Its entry is in the next leader's log, which
/// answers as it would have, or is lost, and then the command runs anew.
#[test]
fn each_counts_once_and_the_next_leader_acknowledges_it() {
    assert_counted_once(1);
}

/// The same of transactions that increment so many keys of one shard.
pub fn assert_counted_once(keys: usize) {
    let cases = (1..=3).flat_map(|process| (0..10).map(move |when| (process, when)));
    for (process, when) in cases {
        let mut network = Network::new(&Options::default());
        let keys: Vec<&'static str> = network.four_keys(1).into_iter().take(keys).collect();
        let steps: Vec<Step<'_>> = keys.iter().map(|key| network.increment(key)).collect();
        let each = |count: u64| vec![count.to_string(); keys.len()].join(" ");
        let requests: Vec<RequestId> =
            (0..6).map(|session| send(&mut network, session as u16 % 3 + 1, session, &steps)).collect();
        network.run_for(DELAY * when / 2);
        let replica = network.replica(process, 0);
        network.down.insert(replica);
        network.run_for(Duration::from_secs(3));
        let mut counts: Vec<String> = requests.iter().filter_map(|id| network.answered(*id)).collect();
        counts.sort_unstable();
        assert_eq!(counts, Vec::from_iter((1..=6).map(each)), "{process} is gone after {when} half delays");
        network.down.remove(&replica);
        network.run_for(Duration::from_secs(1));
        let reads: Vec<Step<'_>> = keys.iter().map(|key| network.get(key)).collect();
        assert_eq!(network.text(2, 0, &reads), each(6));
    }
}

/// Clients that send one command after the other until somebody else has been answered.
struct Stream {
    open: Vec<RequestId>,
    replies: Vec<String>,
}

impl Stream {
    fn begin(network: &mut Network, clients: u64, key: &'static str) -> Self {
        let steps = [network.increment(key)];
        let open = (0..clients).map(|client| send(network, client as u16 % 2 + 2, client, &steps)).collect();
        Stream { open, replies: Vec::new() }
    }

    fn go_on_for(&mut self, network: &mut Network, duration: Duration, key: &'static str) {
        let end = network.now + duration;
        while network.now < end && network.go_on(end) {
            self.turn(network, key);
        }
    }

    /// Who was answered sends the next one.
    fn turn(&mut self, network: &mut Network, key: &'static str) {
        let steps = [network.increment(key)];
        for (client, request) in (0..).zip(&mut self.open) {
            if let Some(reply) = network.answered(*request) {
                self.replies.push(reply);
                *request = send(network, client as u16 % 2 + 2, client, &steps);
            }
        }
    }

    fn answer(&mut self, network: &mut Network, request: RequestId, key: &'static str) -> String {
        let limit = network.now + Duration::from_secs(5);
        loop {
            if let Some(reply) = network.answered(request) {
                return reply;
            }
            assert!(network.go_on(limit), "nobody answers");
            self.turn(network, key);
        }
    }

    /// All numbers in replies.
    fn end(mut self, network: &mut Network) -> Vec<u64> {
        let last: Vec<String> = self.open.iter().map(|id| network.answer(*id)).collect();
        self.replies.extend(last);
        numbers(self.replies)
    }
}

#[test]
fn a_transaction_behind_a_stream_of_them_has_its_turn() {
    let mut network = Network::new(&Options::default());
    let [a, b] = network.keys();
    let mut stream = Stream::begin(&mut network, 12, a);
    stream.go_on_for(&mut network, Duration::from_millis(100), a);
    let (mut own, mut longest) = (Vec::new(), Duration::ZERO);
    for session in 0..20 {
        let steps = [network.increment(a), network.increment(b)];
        let began = network.now;
        let request = send(&mut network, 1, 50 + session, &steps);
        let reply = stream.answer(&mut network, request, a);
        longest = longest.max(network.now - began);
        own.push(reply.split(' ').next().expect("two numbers").to_owned());
    }
    let replies = stream.end(&mut network);
    assert!(longest < DELAY * 20, "{longest:?}");
    assert!(replies.len() > 200, "the stream goes on: {}", replies.len());
    let all = numbers(own.into_iter().chain(replies.iter().map(u64::to_string)));
    assert_eq!(all, Vec::from_iter(1..=all.len() as u64));
}

/// A transaction of several requests on the key, committed or answered CONFLICT, and one that watches it.
#[test]
fn transactions_of_several_requests_stay_right_beside_them() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let mut stream = Stream::begin(&mut network, 6, a);
    let session = SessionId(7);
    let (mut own, mut touched) = (Vec::new(), 0);
    for _ in 0..20 {
        let begin = network.request(1, Request::Begin { session, read_only: false, watched: false });
        assert_eq!(stream.answer(&mut network, begin, a), "OK");
        let (look, add) = ([network.get(a)], [network.increment(a)]);
        let look = network.request(1, Request::Operate { session, steps: &look });
        let seen = stream.answer(&mut network, look, a);
        let add = network.request(1, Request::Operate { session, steps: &add });
        let sum = stream.answer(&mut network, add, a);
        let commit = network.request(1, Request::Commit { session });
        if stream.answer(&mut network, commit, a) == "OK" {
            let seen: u64 = seen.parse().unwrap_or(0);
            assert_eq!(sum, (seen + 1).to_string(), "nobody comes between");
            own.push(sum);
        }
        let keys = [network.watched(a)];
        let watch = network.request(1, Request::Watch { session, keys: &keys });
        assert_eq!(stream.answer(&mut network, watch, a), "OK");
        let steps = [network.increment(a)];
        let many = Request::Many { session, steps: &steps, watched: true, multi: true };
        let many = network.request(1, many);
        match stream.answer(&mut network, many, a).as_str() {
            "NullArray" => touched += 1,
            sum => own.push(sum.to_owned()),
        }
    }
    let replies = stream.end(&mut network);
    assert!(own.len() >= 20 && touched > 0, "{} committed, {touched} were touched", own.len());
    let all = numbers(own.into_iter().chain(replies.iter().map(u64::to_string)));
    assert_eq!(all, Vec::from_iter(1..=all.len() as u64));
}

/// What changes nothing has seen what is on its way, and is answered after that.
#[test]
fn a_late_creation_of_a_key_fails_once_the_key_is_there() {
    for process in 1..=3 {
        let mut network = Network::new(&Options::default());
        let [a, _] = network.keys();
        let set = register::Operation::Set {
            value: b"mine",
            deadline: register::Deadline::Clear,
            condition: register::Condition::IfAbsent,
            reply: register::SetReply::Status,
        };
        let steps = [network.any(a, Operation::Register(set), false)];
        let wrong = [network.increment(a)];
        let requests: Vec<RequestId> =
            (0..4).map(|session| send(&mut network, process, session, &steps)).collect();
        let fails = send(&mut network, process, 9, &wrong);
        let replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
        assert_eq!(replies.iter().filter(|reply| *reply == "OK").count(), 1, "{replies:?}");
        assert_eq!(replies.iter().filter(|reply| *reply == "null").count(), 3, "{replies:?}");
        assert!(network.answer(fails).starts_with("ERR"));
        let began = network.now;
        assert!(network.text(process, 0, &[network.increment(a)]).starts_with("ERR"));
        assert!(network.now - began <= DELAY * 4, "it is answered like a read");
    }
}

#[test]
fn deadlines_that_are_on_their_way_count() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let millis = network.wall().as_millis() + 200;
    let set = |deadline| {
        let (condition, reply) = (register::Condition::Always, register::SetReply::Old);
        Operation::Register(register::Operation::Set { value: b"9", deadline, condition, reply })
    };
    assert_eq!(network.text(1, 0, &[network.any(a, set(register::Deadline::At { millis }), false)]), "null");
    network.run_for(Duration::from_millis(150));
    assert_eq!(network.text(2, 0, &[network.increment(a)]), "10", "it keeps the deadline");
    network.run_for(Duration::from_millis(200));
    let steps = [network.increment(a)];
    let requests: Vec<RequestId> = (0..3).map(|session| send(&mut network, 2, session, &steps)).collect();
    let replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    assert_eq!(numbers(replies), [1, 2, 3], "the first one finds the key expired");
    // What takes the deadline away comes just before it, and is not applied when the next one comes just after it.
    let millis = network.wall().as_millis() + 20;
    let sets = [register::Deadline::At { millis }, register::Deadline::Clear];
    let sets = sets.map(|deadline| [network.any(a, set(deadline), false)]);
    let first = send(&mut network, 2, 10, &sets[0]);
    network.run_for(Duration::from_micros(millis * 1_000 - 1_500 - network.wall().0));
    let second = send(&mut network, 2, 11, &sets[1]);
    network.run_for(DELAY);
    let third = send(&mut network, 2, 12, &steps);
    assert_eq!([first, second, third].map(|id| network.answer(id)), ["3", "9", "10"]);
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.text(1, 0, &[network.get(a)]), "10");
}

/// What a single read says right after the reply of a transaction over two shards, from each process for each of the keys.
fn read_after_reply(mutants: Mutants) -> Vec<String> {
    let mut said = Vec::new();
    for (process, far) in
        (1..=3).flat_map(|process| [None, Some(1), Some(2), Some(3)].map(|far| (process, far)))
    {
        for key in 0..2 {
            let mut network = Network::new(&Options { mutants, ..Options::default() });
            network.far = far;
            let keys = network.keys();
            assert_eq!(network.text(1, 0, &keys.map(|key| network.increment(key))), "1 1");
            said.push(network.text(process, 1, &[network.get(keys[key])]));
        }
    }
    said
}

#[test]
fn a_read_waits_for_what_another_shard_may_have_decided() {
    let said = read_after_reply(Mutants::default());
    assert!(said.iter().all(|said| said == "1"), "{said:?}");
    let said = read_after_reply(Mutant::ReadsPastVotes.into());
    assert!(said.contains(&"null".to_owned()), "the mutant misses what was answered: {said:?}");
}

#[test]
fn a_read_waits_for_nobody_who_has_not_begun_to_commit() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    let session = SessionId(7);
    let begin = network.request(1, Request::Begin { session, read_only: false, watched: false });
    assert_eq!(network.answer(begin), "OK");
    let steps = [network.increment(a)];
    let add = network.request(1, Request::Operate { session, steps: &steps });
    assert_eq!(network.answer(add), "1");
    let began = network.now;
    assert_eq!(network.text(2, 0, &[network.get(a)]), "null");
    assert!(network.now - began <= DELAY * 4, "{:?}", network.now - began);
    let commit = network.request(1, Request::Commit { session });
    assert_eq!(network.answer(commit), "OK");
    assert_eq!(network.text(2, 0, &[network.get(a)]), "1");
}
