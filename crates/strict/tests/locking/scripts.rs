//! These scripts show how coordinators and leaders deal with transactions that do not go on.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::{Concurrency, Coordinates, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Items, Operation, counter, dict, key, register};
use protocol::{Request, Step};
use std::time::Duration;
use types::SessionId;

const SESSION: SessionId = SessionId(7);

/// Begins an interactive transaction and increments a key in it.
fn begin(network: &mut Network, process: u16, key: &'static str) {
    let id = network.request(process, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(id), "OK");
    assert_eq!(operate(network, process, key), "1");
}

fn operate(network: &mut Network, process: u16, key: &'static str) -> String {
    let steps = [network.increment(key)];
    let id = network.request(process, Request::Operate { session: SESSION, steps: &steps });
    network.answer(id)
}

fn commit(network: &mut Network, process: u16) -> String {
    let id = network.request(process, Request::Commit { session: SESSION });
    network.answer(id)
}

#[test]
fn a_vote_that_was_given_up_on_its_way_through_the_log_holds_nobody_up() {
    let options = Options { concurrency: Concurrency::Optimistic, ..Options::default() };
    let mut network = Network::new(&options);
    let [a, b] = network.keys();
    // One shard refuses at once, and the coordinator gives up while the other's vote is in its log.
    begin(&mut network, 1, a);
    assert_eq!(operate(&mut network, 1, b), "1");
    assert_eq!(network.text(2, 0, &[network.increment(b)]), "1");
    assert!(commit(&mut network, 1).starts_with("CONFLICT"));
    let began = network.now;
    assert_eq!(network.text(2, 0, &[network.increment(a)]), "1");
    assert!(network.now - began < options.resend_every, "it waited until the coordinator gave up once more");
}

#[test]
fn a_transaction_that_waits_for_its_session_keeps_its_locks() {
    let options = Options::default();
    let mut network = Network::new(&options);
    let [a, _] = network.keys();
    begin(&mut network, 1, a);
    network.run_for(options.lock_timeout * 3);
    assert_eq!(commit(&mut network, 1), "OK");
    assert_eq!(network.text(2, 0, &[network.get(a)]), "1");
}

#[test]
fn the_locks_of_a_coordinator_that_died_are_taken_away() {
    let options = Options::default();
    let mut network = Network::new(&options);
    let [a, _] = network.keys();
    begin(&mut network, 1, a);
    network.down.insert(network.coordinator(1));
    let began = network.now;
    assert_eq!(network.text(2, 0, &[network.increment(a)]), "1", "what was not committed never happened");
    let waited = network.now - began;
    assert!(waited < options.lock_timeout + options.prepared_timeout, "{waited:?}");
}

#[test]
fn a_transaction_that_was_wounded_says_so_until_its_session_ends_it() {
    let mut network = Network::new(&Options::default());
    let [a, b] = network.keys();
    let older = network.request(2, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(older), "OK");
    network.run_for(DELAY);
    begin(&mut network, 1, a);
    assert_eq!(operate(&mut network, 2, a), "1", "the older one takes the lock");
    network.run_for(DELAY * 2);
    for _ in 0..2 {
        assert!(operate(&mut network, 1, b).starts_with("CONFLICT key"));
    }
    assert!(commit(&mut network, 1).starts_with("CONFLICT key"));
    assert!(commit(&mut network, 1).starts_with("ERR no transaction is open"));
    assert_eq!(commit(&mut network, 2), "OK");
    begin_again(&mut network, 1, a);
}

/// The session may begin another transaction.
fn begin_again(network: &mut Network, process: u16, key: &'static str) {
    let id = network.request(process, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(id), "OK");
    assert_eq!(operate(network, process, key), "2");
    assert_eq!(commit(network, process), "OK");
}

/// A process stands still, cut off, while the others replace the leaders that it had, and a key is incremented a second
/// time; then it goes on and gets a read of the key. Returns its reply, for each of the processes.
fn read_by_who_was_away(mutants: Mutants) -> Vec<String> {
    let away = |process: u16| {
        let mut network = Network::new(&Options { mutants, ..Options::default() });
        let [a, _] = network.keys();
        assert_eq!(network.text(process, 0, &[network.increment(a)]), "1");
        network.run_for(DELAY * 10);
        network.stand_still(process, true);
        network.run_for(Duration::from_secs(5));
        assert_eq!(network.text(process % 3 + 1, 1, &[network.increment(a)]), "2");
        network.stand_still(process, false);
        network.text(process, 2, &[network.get(a)])
    };
    (1..=3).map(away).collect()
}

#[test]
fn a_leader_that_was_replaced_unawares_answers_nothing() {
    let said = read_by_who_was_away(Mutants::default());
    assert!(said.iter().all(|said| said.starts_with("UNAVAILABLE")), "{said:?}");
    let said = read_by_who_was_away(Mutant::UnconfirmedReads.into());
    assert!(said.contains(&"1".to_owned()), "the mutant says what is no longer so: {said:?}");
}

/// A watched key that is absent appears and vanishes; or nothing happens to it. What the transaction replies.
fn watched_while_absent(concurrency: Concurrency, appears: bool) -> String {
    let mut network = Network::new(&Options { concurrency, ..Options::default() });
    let [a, b] = network.keys();
    let keys = [network.watched(a)];
    let id = network.request(1, Request::Watch { session: SESSION, keys: &keys });
    assert_eq!(network.answer(id), "OK");
    if appears {
        assert_eq!(network.text(2, 0, &[network.increment(a)]), "1");
        assert_eq!(network.text(2, 0, &[network.take(a)]), "1");
    }
    let steps = [network.increment(b)];
    let id =
        network.request(1, Request::Many { session: SESSION, steps: &steps, watched: true, multi: true });
    network.answer(id)
}

/// Whoever writes blindly does not know of the deadline; the leader does, and has the write evaluated.
#[test]
fn a_blind_write_on_a_key_with_a_deadline_is_done() {
    for concurrency in [Concurrency::Locking, Concurrency::Optimistic] {
        let mut network = Network::new(&Options { concurrency, ..Options::default() });
        let [a, b] = network.keys();
        for key in [a, b] {
            assert_eq!(network.text(1, 0, &[network.increment(key)]), "1");
            let at_millis = network.wall().as_millis() + 60_000;
            let expire = key::Operation::ExpireAt { at_millis, condition: Default::default() };
            assert_eq!(network.text(1, 0, &[network.any(key, Operation::Key(expire), false)]), "1");
        }
        let add = Operation::Register(register::Operation::Increment { by: 1 });
        let both = [network.any(a, add.clone(), true), network.any(b, add, true)];
        assert_eq!(network.text(2, 0, &both[..1]), "OK", "{concurrency:?}");
        assert_eq!(network.text(3, 0, &both), "OK OK", "{concurrency:?}");
        assert_eq!(network.text(1, 0, &[network.get(a), network.get(b)]), "3 2");
    }
}

/// A process whose clock is ahead leads, and writes a field until a moment that has passed for it: the field is absent, before
/// and after. Whoever writes the field next, until the same moment, comes later: it has passed, also by the next leader's clock.
#[test]
fn a_moment_that_has_passed_for_who_wrote_a_field_has_passed_for_whoever_writes_it_next() {
    for concurrency in [Concurrency::Locking, Concurrency::Optimistic] {
        let mut network = Network::new(&Options { concurrency, ..Options::default() });
        let ([a, _], leader) = (network.keys(), network.leader(0));
        network.ahead = Some((leader, Duration::from_secs(20)));
        let at_millis = network.wall().as_millis() + 10_000;
        let put = dict::Operation::PutUntil {
            pairs: Items::two(b"field", b"value"),
            condition: dict::PutCondition::Always,
            deadline: register::Deadline::At { millis: at_millis },
        };
        let put = [network.any(a, Operation::Dict(put), false)];
        assert_eq!(network.text(leader, 0, &put), "1");
        network.depose(leader, 0);
        assert!(network.wall().as_millis() < at_millis, "by the other clocks it has not passed");
        // Where transactions validate, it may also be refused as long as its coordinator's clock is behind.
        network.text(leader % 3 + 1, 0, &put);
        let get = dict::Operation::Get { field: b"field" };
        let get = [network.any(a, Operation::Dict(get), false)];
        assert_eq!(network.text(leader % 3 + 1, 0, &get), "null", "{concurrency:?}");
    }
}

/// Whoever only writes blindly asks no leader before it votes, and learns of its term from that.
#[test]
fn blind_writes_reach_a_leader_of_a_later_term() {
    for concurrency in [Concurrency::Locking, Concurrency::Optimistic] {
        let mut network = Network::new(&Options { concurrency, ..Options::default() });
        let [a, _] = network.keys();
        let add = [network.any(a, Operation::Register(register::Operation::Increment { by: 1 }), true)];
        assert_eq!(network.text(2, 0, &add), "OK");
        (1..=3).for_each(|process| network.depose(process, 0));
        assert_eq!(network.text(2, 0, &add), "OK", "{concurrency:?}");
        assert_eq!(network.text(1, 0, &[network.get(a)]), "2");
    }
}

/// An operation that others may have a part in beside it has seen the type and nothing else.
#[test]
fn an_addition_to_a_key_of_another_type_says_so() {
    for concurrency in [Concurrency::Locking, Concurrency::Optimistic] {
        let mut network = Network::new(&Options { concurrency, ..Options::default() });
        let [a, _] = network.keys();
        assert_eq!(network.text(1, 0, &[network.increment(a)]), "1");
        let add = Operation::Counter(counter::Operation::Add { by: 1 });
        let said = network.text(1, 0, &[network.any(a, add, false)]);
        assert!(said.starts_with("WRONGTYPE"), "{concurrency:?}: {said}");
    }
}

#[test]
fn an_absent_key_that_came_and_went_was_touched() {
    for concurrency in [Concurrency::Locking, Concurrency::Optimistic] {
        assert_eq!(watched_while_absent(concurrency, false), "1");
        assert_eq!(watched_while_absent(concurrency, true), "NullArray", "{concurrency:?}");
    }
}

/// Whoever leads the shards, and wherever the coordinator is: of two processes that hear nothing of each other one may lead
/// the one shard and one the other, and the third one must not wait for what they have not ended.
#[test]
fn a_decision_is_learned_from_any_replica() {
    let processes = [1, 2, 3];
    let optimistic = (Concurrency::Optimistic, Coordinates::Client);
    let locking = (Concurrency::Locking, Coordinates::Client);
    let collected = (Concurrency::Locking, Coordinates::Participant);
    let last_agent = (Concurrency::Locking, Coordinates::LastAgent);
    for (concurrency, coordinates) in [optimistic, locking, collected, last_agent] {
        for (deposed, gateway) in processes.into_iter().flat_map(|deposed| processes.map(|at| (deposed, at)))
        {
            // At every fourth moment, others in each place; `cargo xtask soak` goes through all.
            let cases = processes.into_iter().flat_map(|alone| (0..8).map(move |wait| (alone, wait)));
            let is_tried =
                |(alone, wait): &(u16, u32)| crate::soaks() || (wait + u32::from(alone + gateway)) % 4 == 0;
            for (alone, wait) in cases.filter(is_tried) {
                let options = Options { concurrency, coordinates, ..Options::default() };
                let mut network = Network::new(&options);
                let [a, b] = network.keys();
                network.depose(deposed, 0);
                let steps = [network.increment(a), network.increment(b)];
                let request = Request::Many { session: SESSION, steps: &steps, watched: false, multi: true };
                network.request(gateway, request);
                network.run_for(DELAY * wait);
                network.cut_pair = Some([alone % 3 + 1, (alone + 1) % 3 + 1]);
                network.run_for(options.request_timeout + 2 * options.prepared_timeout);
                let seen = network.text(alone, 0, &steps);
                assert!(["1 1", "2 2"].contains(&seen.as_str()), "{seen}");
            }
        }
    }
}

#[test]
fn keys_are_drawn_from_all_shards_and_from_what_the_transaction_wrote() {
    let mut network = Network::new(&Options::default());
    let [a, b] = network.keys();
    assert_eq!(network.text(1, 0, &[Step::Random]), "0", "nothing was found, which nobody vouches for");
    for key in [a, b] {
        assert_eq!(network.text(1, 0, &[network.increment(key)]), "1");
    }
    let drawn = |network: &mut Network, steps: &[Step<'_>]| -> Vec<String> {
        let ask = |_| {
            let id = network.request(1, Request::Operate { session: SESSION, steps });
            network.answer(id)
        };
        let found: std::collections::BTreeSet<String> = (0..100).map(ask).collect();
        found.into_iter().collect()
    };
    begin_with(&mut network, a);
    let mut both = [a, b];
    both.sort_unstable();
    assert_eq!(drawn(&mut network, &[Step::Random]), both);
    assert_eq!(commit(&mut network, 1), "OK");
}

/// Begins a transaction that overwrites a key which is there.
fn begin_with(network: &mut Network, key: &'static str) {
    let id = network.request(1, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(id), "OK");
    assert_eq!(operate(network, 1, key), "2");
}
