//! The normal path: fast and slow, conflicts, retries, messages out of order and repeated.

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Decided, Options};
use datatypes::register;
use protocol::Request;
use std::time::Duration;
use types::SessionId;

fn network(members: u16, options: &Options) -> Network {
    Network::new(1, 2, members, 2, options)
}

/// Every replica of every shard holds the same committed and aborted transactions, and nothing is undecided.
pub fn assert_settled(network: &Network) {
    let mut decided = std::collections::BTreeMap::new();
    for (at, replica) in network.replicas() {
        assert_eq!(replica.prepared(), 0, "{at} still holds locks");
        for (id, outcome) in replica.decided() {
            let committed = matches!(outcome, Decided::Committed { .. });
            assert_eq!(*decided.entry(id).or_insert(committed), committed, "{id} at {at}");
        }
    }
}

#[test]
fn a_transaction_over_two_shards_commits_in_one_round_trip_and_is_read_back() {
    let mut network = network(3, &Options::default());
    let (a, b) = network.two_keys();
    let steps = [network.set(a, "1"), network.set(b, "2")];
    let began = network.now;
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK OK");
    assert!(network.now - began <= 2 * network.delay, "nothing was read and nothing was finalized");
    let steps = [network.get(a), network.get(b)];
    let id = network.many(2, 2, &steps);
    assert_eq!(text(&network.answer(id)), "1 2");
    network.run_for(Duration::from_secs(1));
    assert_settled(&network);
    assert_eq!(network.node_mut(address(1, None)).take_claims().len(), 1);
}

#[test]
fn with_one_replica_down_the_slow_path_commits() {
    let mut network = network(3, &Options::default());
    network.down.extend([address(3, Some(0)), address(3, Some(1))]);
    let (a, b) = network.two_keys();
    let steps = [network.increment(a, false), network.increment(b, false)];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "1 1");
    assert_eq!(text(&network.one(2, &network.get(a))), "1");
    network.run_for(Duration::from_secs(1));
    assert_settled(&network);
}

#[test]
fn with_two_of_three_down_reads_are_unavailable_and_blind_writes_unknown() {
    let mut network = network(3, &Options::default());
    let (a, _) = network.two_keys();
    network.down.extend([address(2, Some(0)), address(3, Some(0))]);
    let reply = text(&network.one(1, &network.get(a)));
    assert!(reply.starts_with("UNAVAILABLE shard 0: 1 of 3"), "{reply}");
    let reply = text(&network.one(1, &network.set(a, "x")));
    assert!(reply.starts_with("UNKNOWNOUTCOME shard 0: 1 of 3"), "{reply}");
}

#[test]
fn blind_increments_from_two_coordinators_commute_in_one_round_trip() {
    let mut network = network(3, &Options::default());
    let a = network.key_of(0);
    let began = network.now;
    let steps = [network.increment(a, true)];
    let ids: Vec<_> = (0..40).map(|n| network.many(1 + n % 2, 1, &steps)).collect();
    for id in ids {
        assert_eq!(text(&network.answer(id)), "OK");
    }
    assert!(network.now - began <= 2 * network.delay, "none waited for another");
    assert_eq!(text(&network.one(1, &network.get(a))), "40");
}

#[test]
fn conflicting_increments_are_retried_until_each_has_counted_once() {
    let mut network = network(3, &Options::default());
    let a = network.key_of(0);
    let steps = [network.increment(a, false)];
    let ids: Vec<_> = (0..6).map(|n| network.many(1 + n % 2, 1, &steps)).collect();
    let mut seen: Vec<String> = ids.into_iter().map(|id| text(&network.answer(id))).collect();
    seen.sort();
    assert_eq!(seen, ["1", "2", "3", "4", "5", "6"]);
    network.run_for(Duration::from_secs(2));
    assert_settled(&network);
}

#[test]
fn a_conflict_that_does_not_go_away_names_the_key_and_says_to_retry() {
    let options = Options { retries: 2, ..Options::default() };
    let mut network = network(3, &options);
    let a = network.key_of(0);
    let open = Request::Begin { session: SessionId(9), read_only: false, watched: false };
    let id = network.request(1, open);
    network.answer(id);
    let read = [network.get(a)];
    let id = network.request(1, Request::Operate { session: SessionId(9), steps: &read });
    assert_eq!(text(&network.answer(id)), "null");
    assert_eq!(text(&network.one(2, &network.set(a, "other"))), "OK");
    let write = [network.set(a, "mine")];
    let id = network.request(1, Request::Operate { session: SessionId(9), steps: &write });
    network.answer(id);
    let id = network.request(1, Request::Commit { session: SessionId(9) });
    let reply = text(&network.answer(id));
    assert!(reply.starts_with(&format!("CONFLICT key '{a}'")) && reply.ends_with("retry"), "{reply}");
    assert_eq!(text(&network.one(1, &network.get(a))), "other");
}

#[test]
fn an_interactive_transaction_that_failed_says_so_until_its_session_ends_it() {
    let mut network = network(3, &Options::default());
    let a = network.key_of(0);
    let session = SessionId(9);
    let begin = || Request::Begin { session, read_only: false, watched: false };
    let id = network.request(1, begin());
    network.answer(id);
    let replicas = network.topology.replicas(0).to_vec();
    network.down.extend(&replicas);
    let read = [network.get(a)];
    for _ in 0..2 {
        let id = network.request(1, Request::Operate { session, steps: &read });
        assert!(text(&network.answer(id)).starts_with("UNAVAILABLE shard 0"));
        network.down.clear();
    }
    let id = network.request(1, Request::Commit { session });
    assert!(text(&network.answer(id)).starts_with("UNAVAILABLE shard 0"));
    let id = network.request(1, begin());
    assert_eq!(text(&network.answer(id)), "OK");
    let id = network.request(1, Request::Operate { session, steps: &read });
    assert_eq!(text(&network.answer(id)), "null");
}

#[test]
fn an_interactive_transaction_reads_its_own_effects_and_commits_them() {
    let mut network = network(3, &Options::default());
    let (a, b) = network.two_keys();
    let session = SessionId(5);
    let id = network.request(1, Request::Begin { session, read_only: false, watched: false });
    network.answer(id);
    let steps = [network.set(a, "7"), network.increment(a, false), network.get(b)];
    let id = network.request(1, Request::Operate { session, steps: &steps });
    assert_eq!(text(&network.answer(id)), "OK 8 null");
    assert_eq!(text(&network.one(2, &network.get(a))), "null");
    let id = network.request(1, Request::Commit { session });
    assert_eq!(text(&network.answer(id)), "OK");
    assert_eq!(text(&network.one(2, &network.get(a))), "8");
}

#[test]
fn a_touched_watch_stops_the_transaction_and_an_untouched_one_does_not() {
    let mut network = network(3, &Options::default());
    let (a, b) = network.two_keys();
    let session = SessionId(5);
    for touched in [false, true] {
        let keys = [(a.as_bytes(), network.topology.seed.hash(a.as_bytes()))];
        let id = network.request(1, Request::Watch { session, keys: &keys });
        assert_eq!(text(&network.answer(id)), "OK");
        if touched {
            assert_eq!(text(&network.one(2, &network.set(a, "x"))), "OK");
        }
        let steps = [network.set(b, "y")];
        let id = network.request(1, Request::Many { session, steps: &steps, watched: true, multi: true });
        assert_eq!(text(&network.answer(id)), if touched { "null array" } else { "OK" });
    }
}

#[test]
fn a_slow_clock_learns_where_to_retry_and_commits_there() {
    let mut network = network(3, &Options::default());
    let a = network.key_of(0);
    network.set_skew(address(1, None), 60_000_000);
    assert_eq!(text(&network.one(1, &network.set(a, "fast"))), "OK");
    network.run_for(Duration::from_millis(100));
    assert_eq!(text(&network.one(2, &network.set(a, "slow"))), "OK");
    network.run_for(Duration::from_millis(100));
    assert_eq!(text(&network.one(1, &network.get(a))), "slow");
    let claims = network.node_mut(address(2, None)).take_claims();
    let at = claims[0].commit.expect("committed").at;
    assert!(at.wall().0 >= 1_700_000_000_000_000 + 60_000_000, "it was stamped above the fast clock");
    network.run_for(Duration::from_secs(1));
    let attempts: Vec<usize> = network.replicas().map(|(_, replica)| replica.decided().count()).collect();
    assert_eq!(attempts.iter().max(), Some(&2), "both attempts were one transaction");
}

#[test]
fn a_commit_that_overtakes_its_prepare_is_executed_whole() {
    let mut network = network(3, &Options::default());
    let (a, b) = network.two_keys();
    // Replica 3 never sees Prepare; Commit carries everything (Corrections 11).
    network.filter = Some(Box::new(|_, to, message| {
        to.process.0 == 3 && matches!(ir_of(message), Some(Ir::Propose { .. } | Ir::Finalize { .. }))
    }));
    let steps = [network.set(a, "1"), network.increment(b, true)];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK OK");
    network.run_for(Duration::from_secs(1));
    for key in [a, b] {
        let cells: Vec<Vec<u8>> = network.replicas().map(|(_, r)| r.cell(key.as_bytes())).collect();
        let holds = cells.iter().filter(|cell| **cell != cells_absent()).count();
        assert_eq!(holds, 3, "every replica of the key's shard has it");
    }
}

fn cells_absent() -> Vec<u8> {
    let mut bytes = Vec::new();
    datatypes::Cell::ABSENT.encode(&mut bytes);
    bytes
}

#[test]
fn repeated_and_reordered_messages_count_once() {
    let mut network = network(3, &Options::default());
    network.duplication = 2;
    network.delay = Duration::from_millis(40);
    let a = network.key_of(0);
    let steps = [network.increment(a, true)];
    let ids: Vec<_> = (0..20).map(|n| network.many(1 + n % 2, 1, &steps)).collect();
    for id in ids {
        assert_eq!(text(&network.answer(id)), "OK");
    }
    assert_eq!(text(&network.one(1, &network.get(a))), "20");
    network.run_for(Duration::from_secs(3));
    assert_settled(&network);
}

#[test]
fn an_expired_key_is_deleted_by_whoever_observes_it() {
    let mut network = network(3, &Options::default());
    let a = network.key_of(0);
    let millis = (1_700_000_000_000_000 + network.now.0) / 1000 + 100;
    let set = network.step(
        a,
        register::Operation::Set {
            value: b"soon gone",
            deadline: register::Deadline::At { millis },
            condition: register::Condition::Always,
            reply: register::SetReply::Status,
        },
        false,
    );
    assert_eq!(text(&network.one(1, &set)), "OK");
    assert_eq!(text(&network.one(1, &network.get(a))), "soon gone");
    network.run_for(Duration::from_millis(200));
    assert_eq!(text(&network.one(1, &network.get(a))), "null");
    // A clock that is far behind does not see it again (Corrections 69).
    network.set_skew(address(2, None), -10_000_000);
    assert_eq!(text(&network.one(2, &network.get(a))), "null");
}

#[test]
fn count_scan_and_flush_visit_every_shard() {
    let mut network = network(3, &Options::default());
    for key in ["a", "b", "c", "d", "e"] {
        assert_eq!(text(&network.one(1, &network.set(key, "1"))), "OK");
    }
    network.run_for(Duration::from_millis(100));
    assert_eq!(text(&network.one(1, &protocol::Step::Count)), "5");
    let (mut cursor, mut keys) = (0, Vec::new());
    loop {
        let reply = network.one(1, &protocol::Step::Scan { cursor, count: 2 });
        let elements: Vec<types::Reply<'_>> = reply.elements().collect();
        let types::Reply::Integer(next) = elements[1] else { panic!("{elements:?}") };
        keys.extend(elements[3..].iter().map(|element| format!("{element:?}")));
        cursor = next as u64;
        if cursor == 0 {
            break;
        }
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 5);
    assert_eq!(text(&network.one(1, &protocol::Step::Flush)), "OK");
    network.run_for(Duration::from_millis(100));
    assert_eq!(text(&network.one(2, &protocol::Step::Count)), "0");
    let steps = [network.get("a"), protocol::Step::Count];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "null 0");
}

#[test]
fn five_replicas_commit_with_two_down() {
    let mut network = network(5, &Options::default());
    network.down.extend([4, 5].map(|process| address(process, Some(0))));
    let (a, b) = network.two_keys();
    let steps = [network.increment(a, false), network.increment(b, false)];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "1 1");
    assert_eq!(text(&network.one(2, &network.get(a))), "1");
}

#[test]
fn one_replica_is_its_own_quorum() {
    let mut network = Network::new(1, 2, 1, 1, &Options::default());
    let (a, b) = network.two_keys();
    let steps = [network.increment(a, false), network.set(b, "x")];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "1 OK");
    assert_eq!(text(&network.one(1, &network.get(b))), "x");
}
