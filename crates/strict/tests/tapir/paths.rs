//! Which path a transaction takes, in round trips and messages: fast where every replica answers in time, slow at
//! once where one is down or far (Corrections 18).

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::{Ending, Message as Ir};
use anabranch_strict::tapir::{Options, Transactions};
use protocol::{Request, Step};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{Address, ProcessId, SessionId};

/// Messages sent, by kind.
type Counts = Rc<RefCell<BTreeMap<&'static str, u64>>>;

/// By process: of each Execute sent to its replica, whether it said everything.
type Endings = Rc<RefCell<BTreeMap<u16, Vec<bool>>>>;

fn count(network: &mut Network) -> Counts {
    let counts = Counts::default();
    let seen = Rc::clone(&counts);
    network.filter = Some(Box::new(move |_, _, message| {
        let kind = match ir_of(message) {
            Some(Ir::Propose { .. }) => "propose",
            Some(Ir::Reply { .. }) => "reply",
            Some(Ir::Finalize { .. }) => "finalize",
            Some(Ir::Execute { .. }) => "execute",
            Some(_) => "other",
            None => "read",
        };
        *seen.borrow_mut().entry(kind).or_default() += 1;
        false
    }));
    counts
}

/// Runs blind writes of two shards and returns how long each took.
fn write(network: &mut Network, times: usize) -> Vec<Duration> {
    let (a, b) = network.two_keys();
    let mut took = Vec::new();
    for _ in 0..times {
        let steps = [network.set(a, "1"), network.set(b, "2")];
        let began = network.now;
        let id = network.many(1, 1, &steps);
        assert_eq!(text(&network.answer(id)), "OK OK");
        took.push(network.now - began);
        network.run_for(Duration::from_millis(20));
    }
    took
}

#[test]
fn a_commit_takes_one_round_trip_and_one_message_each_way_to_every_participant() {
    let mut network = Network::new(1, 2, 3, 1, &Options::default());
    let counts = count(&mut network);
    let took = write(&mut network, 1);
    assert!(took[0] <= 2 * network.delay);
    let expected = BTreeMap::from([("propose", 6), ("reply", 6), ("execute", 6), ("other", 6)]);
    assert_eq!(*counts.borrow(), expected, "nothing was read, nothing was finalized; `other` acknowledges");
}

#[test]
fn a_read_modify_write_reads_at_one_replica_and_commits_in_one_round_trip_however_many_shards() {
    for shards in 1..=4u16 {
        let mut network = Network::new(8, shards, 3, 1, &Options::default());
        let keys: Vec<&str> = (0..shards).map(|shard| network.key_of(shard)).collect();
        let counts = count(&mut network);
        let session = SessionId(1);
        let took = |network: &mut Network, request: Request<'_>| {
            let (began, id) = (network.now, network.request(1, request));
            assert!(network.answer(id).as_error().is_none());
            network.now - began
        };
        took(&mut network, Request::Begin { session, read_only: false, watched: false });
        let gets: Vec<Step<'_>> = keys.iter().map(|key| network.get(key)).collect();
        assert!(took(&mut network, Request::Operate { session, steps: &gets }) <= 2 * network.delay);
        let sets: Vec<Step<'_>> = keys.iter().map(|key| network.set(key, "1")).collect();
        assert_eq!(took(&mut network, Request::Operate { session, steps: &sets }), Duration::ZERO);
        assert!(took(&mut network, Request::Commit { session }) <= 2 * network.delay);
        network.run_for(Duration::from_millis(20));
        let each = 3 * u64::from(shards);
        let expected = BTreeMap::from([
            ("read", 2 * u64::from(shards)),
            ("propose", each),
            ("reply", each),
            ("execute", each),
            ("other", each),
        ]);
        assert_eq!(*counts.borrow(), expected, "{shards} shards");
    }
}

#[test]
fn reads_ask_a_quorum_first_and_the_others_where_one_is_silent() {
    let mut network = Network::new(9, 1, 3, 1, &Options::default());
    write_one(&mut network);
    let counts = count(&mut network);
    let (get, both) = (network.get("a"), [network.get("a"), network.get("b")]);
    let id = network.many(1, 1, &both);
    assert_eq!(text(&network.answer(id)), "1 null");
    network.run_for(Duration::from_millis(20));
    assert_eq!(
        *counts.borrow(),
        BTreeMap::from([("read", 4)]),
        "Read and its reply, Check and its reply: who was read from has answered the check"
    );
    counts.borrow_mut().clear();
    assert_eq!(text(&network.one(1, &get)), "1");
    network.run_for(Duration::from_millis(20));
    assert_eq!(*counts.borrow(), BTreeMap::from([("read", 4)]), "Read and its reply twice");
    network.down.insert(address(2, Some(0)));
    for _ in 0..4 {
        let began = network.now;
        let id = network.many(1, 1, &both);
        assert_eq!(text(&network.answer(id)), "1 null");
        assert_eq!(text(&network.one(1, &get)), "1");
        assert!(network.now - began <= 20 * network.delay, "{:?}", network.now - began);
    }
    let began = network.now;
    assert_eq!(text(&network.one(1, &get)), "1");
    assert!(network.now - began <= 2 * network.delay, "the silent one is asked last");
}

/// Commits sent to each replica: whole, or the part that it lacks.
fn endings(
    network: &mut Network,
    lost: impl Fn(&Ir<Transactions>, Address, usize) -> bool + 'static,
) -> Endings {
    let endings = Endings::default();
    let seen = Rc::clone(&endings);
    network.filter = Some(Box::new(move |_, to, message| {
        let Some(ir) = ir_of(message) else { return false };
        let mut seen = seen.borrow_mut();
        let before = seen.get(&to.process.0).map_or(0, Vec::len);
        if let Ir::Execute { operation, .. } = ir {
            let whole = matches!(operation, Ending::Whole(_));
            seen.entry(to.process.0).or_default().push(whole);
        }
        lost(ir, to, before)
    }));
    endings
}

#[test]
fn a_commit_says_to_a_replica_what_its_vote_has_not_said_and_all_of_it_to_any_other() {
    let mut network = Network::new(5, 1, 3, 1, &Options::default());
    // The second loses the first news of the end; the third has not heard of the transaction.
    let seen = endings(&mut network, |message, to, before| match message {
        Ir::Propose { .. } | Ir::Finalize { .. } => to.process.0 == 3,
        Ir::Execute { .. } => to.process.0 == 2 && before == 0,
        _ => false,
    });
    let set = network.set("a", "1");
    assert_eq!(text(&network.one(1, &set)), "OK");
    network.run_for(Duration::from_secs(1));
    let expected = BTreeMap::from([(1, vec![false]), (2, vec![false, true]), (3, vec![true])]);
    assert_eq!(*seen.borrow(), expected, "true where all was told");
    let cells: Vec<Vec<u8>> = network.replicas().map(|(_, replica)| replica.cell(b"a")).collect();
    assert!(cells.iter().all(|cell| *cell == cells[0]), "all of them have executed it");
}

#[test]
fn a_replica_that_has_forgotten_its_vote_gets_the_whole_commit() {
    let mut network = Network::new(6, 1, 3, 1, &Options::default());
    let forgetful = address(2, Some(0));
    let seen = endings(&mut network, |message, to, before| {
        matches!(message, Ir::Execute { .. }) && to.process.0 == 2 && before == 0
    });
    let set = network.set("a", "1");
    assert_eq!(text(&network.one(1, &set)), "OK");
    // It comes back without its log, and learns from the others that nothing is undecided: one has executed it.
    network.restart(forgetful, 0, false);
    network.run_for(Duration::from_secs(2));
    assert_eq!(seen.borrow().get(&2).map(|commits| commits[..2].to_vec()), Some(vec![false, true]));
    let cells: Vec<Vec<u8>> = network.replicas().map(|(_, replica)| replica.cell(b"a")).collect();
    assert!(cells.iter().all(|cell| *cell == cells[0]), "all of them have executed it");
}

#[test]
fn with_a_replica_down_only_the_first_transactions_wait_for_it() {
    let mut network = Network::new(2, 2, 3, 1, &Options::default());
    write(&mut network, 5);
    network.down.extend([address(3, Some(0)), address(3, Some(1))]);
    let took = write(&mut network, 10);
    let slow_path = 4 * network.delay;
    assert!(took[2..].iter().all(|took| *took <= slow_path), "two round trips and no wait: {took:?}");
}

#[test]
fn a_replica_that_was_down_from_the_beginning_is_not_waited_for_long() {
    let mut network = Network::new(3, 2, 3, 1, &Options::default());
    network.down.extend([address(3, Some(0)), address(3, Some(1))]);
    let took = write(&mut network, 10);
    assert!(took[3..].iter().all(|took| *took <= 4 * network.delay), "{took:?}");
}

#[test]
fn a_replica_that_answers_again_counts_again() {
    let mut network = Network::new(4, 2, 3, 1, &Options::default());
    write(&mut network, 5);
    network.down.extend([address(3, Some(0)), address(3, Some(1))]);
    write(&mut network, 5);
    network.down.clear();
    write(&mut network, 2);
    let counts = count(&mut network);
    write(&mut network, 20);
    let finalized = counts.borrow().get("finalize").copied().unwrap_or(0);
    assert!(finalized <= 12, "two shards, three replicas: {finalized} messages are at most two slow paths");
}

#[test]
fn a_far_replica_does_not_slow_commits_down_to_its_distance() {
    let mut network = Network::new(5, 2, 3, 1, &Options::default());
    network.far = Some((ProcessId(3), Duration::from_millis(100)));
    let took = write(&mut network, 10);
    assert!(took[2..].iter().all(|took| *took <= 4 * network.delay), "{took:?}");
}

#[test]
fn a_replica_that_is_not_much_farther_than_the_others_is_waited_for() {
    let mut network = Network::new(6, 2, 3, 1, &Options::default());
    network.far = Some((ProcessId(3), Duration::from_millis(1)));
    write(&mut network, 5);
    let counts = count(&mut network);
    write(&mut network, 20);
    let finalized = counts.borrow().get("finalize").copied().unwrap_or(0);
    assert!(finalized <= 24, "{finalized} messages of the slow path for 40 votes of shards");
}

#[test]
fn reads_pass_over_a_closest_replica_that_is_down() {
    let options = Options { quorum_reads: false, ..Options::default() };
    let mut network = Network::new(7, 1, 3, 1, &options);
    write_one(&mut network);
    network.down.insert(address(1, Some(0)));
    network.one(1, &network.get("a"));
    let began = network.now;
    assert_eq!(text(&network.one(1, &network.get("a"))), "1");
    assert!(network.now - began <= 6 * network.delay, "a read and the slow path: {:?}", network.now - began);
}

fn write_one(network: &mut Network) {
    for _ in 0..3 {
        assert_eq!(text(&network.one(1, &network.set("a", "1"))), "OK");
        network.run_for(Duration::from_millis(20));
    }
}
