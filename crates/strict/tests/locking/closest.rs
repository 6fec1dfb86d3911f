//! Optimistic transactions that read at the closest replica, which may lag behind.

use crate::locking::network::Network;
use anabranch_strict::locking::{Concurrency, Options, Reads};
use anabranch_strict::{Mutant, Mutants};
use protocol::Request;
use std::time::Duration;
use types::{ProcessId, SessionId};

/// The process whose replicas everybody reads at.
const NEAR: u16 = 3;

/// A network in which one of the other processes and the near one hear nothing of each other, so that the near replica
/// lags behind if that one leads; the key has been incremented once since. Returns the process to send requests to.
fn lagging(mutants: Mutants, cut_from: u16) -> (Network, u16) {
    let options = Options {
        concurrency: Concurrency::Optimistic,
        reads: Reads::Closest,
        near: Some(ProcessId(NEAR)),
        mutants,
        ..Options::default()
    };
    let mut network = Network::new(&options);
    let ([a, _], process) = (network.keys(), 3 - cut_from);
    network.depose(NEAR, 0);
    network.run_for(Duration::from_secs(1));
    network.cut_pair = Some([cut_from, NEAR]);
    assert_eq!(network.text(process, 0, &[network.increment(a)]), "1");
    network.run_for(Duration::from_millis(10));
    (network, process)
}

/// Increments the key, and reads it beside another one.
fn incremented_and_read(mutants: Mutants, cut_from: u16) -> (String, String) {
    let (mut network, process) = lagging(mutants, cut_from);
    let [a, b] = network.keys();
    let read = network.text(process, 1, &[network.get(a), network.get(b)]);
    (network.text(process, 0, &[network.increment(a)]), read)
}

#[test]
fn what_a_lagging_replica_says_is_refused_and_read_at_the_leader() {
    let said = [1, 2].map(|cut_from| incremented_and_read(Mutants::default(), cut_from));
    let expected = ("2".to_owned(), "1 null".to_owned());
    assert!(said.iter().all(|said| *said == expected), "{said:?}");
    // One of the two leads: it is the near replica's leader that it hears nothing of.
    let said = [1, 2].map(|cut_from| incremented_and_read(Mutant::SkipValidation.into(), cut_from));
    assert!(said.contains(&("1".to_owned(), "null null".to_owned())), "nobody asked the replica: {said:?}");
}

/// What a session hears that increments the key in a transaction of its own, at once and once more.
fn twice_interactively(cut_from: u16) -> [String; 2] {
    let (mut network, process) = lagging(Mutants::default(), cut_from);
    let ([a, _], session) = (network.keys(), SessionId(7));
    [(); 2].map(|()| {
        let id = network.request(process, Request::Begin { session, read_only: false, watched: false });
        assert_eq!(network.answer(id), "OK");
        let steps = [network.increment(a)];
        let id = network.request(process, Request::Operate { session, steps: &steps });
        network.answer(id);
        let id = network.request(process, Request::Commit { session });
        network.answer(id).split(' ').next().unwrap_or_default().to_owned()
    })
}

#[test]
fn a_session_that_was_refused_reads_at_the_leader() {
    let said = [1, 2].map(twice_interactively);
    assert!(said.contains(&["CONFLICT".to_owned(), "OK".to_owned()]), "nobody was refused: {said:?}");
    assert!(said.iter().all(|said| said[1] == "OK"), "the replica lags still: {said:?}");
}

#[test]
fn a_closest_replica_that_does_not_answer_holds_nobody_up_for_long() {
    let (mut network, process) = lagging(Mutants::default(), 1);
    let [a, b] = network.keys();
    network.down.insert(network.replica(NEAR, 0));
    let began = network.now;
    assert_eq!(network.text(process, 0, &[network.increment(a), network.increment(b)]), "2 1");
    assert!(network.now - began < 2 * Options::default().resend_every, "{:?}", network.now - began);
}
