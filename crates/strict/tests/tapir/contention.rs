//! Many transactions on few keys: all of them commit, none starves (Corrections 12).

use crate::network::{Network, text};
use crate::scripts::assert_settled;
use anabranch_strict::tapir::Options;
use protocol::Step;
use std::time::Duration;
use types::{Instant, RequestId};

/// The keys that everybody wants, most wanted first.
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

struct Client {
    session: u64,
    process: u16,
    left: usize,
    waiting: Option<(RequestId, Instant)>,
}

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    committed: usize,
    increments: usize,
    refused: Vec<String>,
    longest: Duration,
    took: Duration,
}

/// Clients of three coordinators, each of which sends its next transaction when the last one is answered. As in
/// Retwis most transactions read and change several keys, of which some are hot.
fn contend(seed: u64, clients: usize, each: usize, options: &Options) -> Outcome {
    let mut network = Network::new(seed, 2, 3, 3, options);
    network.delay = Duration::from_millis(2);
    let mut all: Vec<Client> = (0..clients)
        .map(|n| Client { session: n as u64 + 1, process: 1 + (n % 3) as u16, left: each, waiting: None })
        .collect();
    let mut outcome = Outcome {
        committed: 0,
        increments: 0,
        refused: Vec::new(),
        longest: Duration::ZERO,
        took: Duration::ZERO,
    };
    while all.iter().any(|client| client.left > 0 || client.waiting.is_some()) {
        for client in &mut all {
            if let Some((id, since)) = client.waiting {
                let Some(reply) = network.replies.0.get(&id) else { continue };
                outcome.longest = outcome.longest.max(network.replied_at[&id] - since);
                match reply.as_error() {
                    None => outcome.committed += 1,
                    Some(error) => outcome.refused.push(error.to_string()),
                }
                client.waiting = None;
            }
            if client.left > 0 {
                client.left -= 1;
                let steps = steps(&mut network);
                let writes =
                    |step: &&Step<'_>| matches!(step, Step::Key(keyed) if !keyed.operation.is_read());
                outcome.increments += steps.iter().filter(writes).count();
                let id = network.many(client.process, client.session, &steps);
                client.waiting = Some((id, network.now));
            }
        }
        network.run_for(Duration::from_micros(500));
    }
    outcome.took = network.now - Instant(0);
    network.run_for(Duration::from_secs(2));
    assert_settled(&network);
    let sum: usize =
        KEYS.iter().map(|key| text(&network.one(1, &network.get(key))).parse().unwrap_or(0)).sum();
    assert_eq!(sum, outcome.increments, "every increment counted once");
    outcome
}

/// A follow, a post or a timeline: two increments, one, or none, and some reads.
fn steps(network: &mut Network) -> Vec<Step<'static>> {
    let mut key = || KEYS[network.rng.usize(0..KEYS.len()).min(network.rng.usize(0..KEYS.len()))];
    let (first, second, third) = (key(), key(), key());
    match network.rng.u8(0..10) {
        0..3 => vec![network.increment(first, false), network.increment(second, false)],
        3..7 => vec![network.get(second), network.increment(first, false), network.get(third)],
        _ => vec![network.get(first), network.get(second), network.get(third)],
    }
}

#[test]
fn coordinators_far_from_each_other_that_want_a_key_at_once_all_get_it_in_time() {
    for seed in 1..=20 {
        let mut network = Network::new(seed, 1, 3, 3, &Options::default());
        network.delay = Duration::from_millis(300);
        let steps = [network.increment("a", false)];
        let ids: Vec<RequestId> = (1..=3).map(|process| network.many(process, 1, &steps)).collect();
        let mut sums: Vec<String> = ids.into_iter().map(|id| text(&network.answer(id))).collect();
        sums.sort();
        assert_eq!(sums, ["1", "2", "3"], "seed {seed}");
    }
}

#[test]
fn sixteen_clients_on_hot_keys_all_commit_within_their_retries() {
    for seed in 1..=4 {
        let outcome = contend(seed, 16, 12, &Options::default());
        assert_eq!(outcome.refused, Vec::<String>::new(), "seed {seed}");
        assert_eq!(outcome.committed, 192, "seed {seed}");
        // 16 transactions one after the other, each at most a few round trips and some conflicts with the two
        // other coordinators.
        assert!(outcome.longest < Duration::from_secs(1), "seed {seed}: {outcome:?}");
    }
}
