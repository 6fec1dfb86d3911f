//! Many transactions on few keys: all of them commit, none starves (Corrections 12).

use crate::tapir::network::{Network, text};
use crate::tapir::scripts::assert_settled;
use anabranch_strict::tapir::{Message, Options};
use datatypes::{Items, Operation, set};
use protocol::{KeyedOperation, Request, Step};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::{Instant, RequestId, SessionId};

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
        network.delay = Duration::from_millis(250);
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

/// What came of clients that add beside others that look.
#[derive(Debug, Default)]
struct MixedLoad {
    added: usize,
    looked: usize,
    refused: Vec<String>,
    longest: Duration,
}

/// Clients of three coordinators that add to two of four sets, and observe nothing, beside others that count the members
/// of two of them; each sends its next transaction when the last one is answered.
fn add_while_others_look(
    seed: u64,
    shards: u16,
    (adders, lookers): (usize, usize),
    each: usize,
) -> MixedLoad {
    let mut network = Network::new(seed, shards, 3, 3, &Options::default());
    network.delay = Duration::from_millis(1);
    let mut waiting: Vec<Option<(RequestId, Instant)>> = vec![None; adders + lookers];
    let mut outcome = MixedLoad::default();
    let end = network.now + Duration::from_secs(1);
    while network.now < end || waiting.iter().any(Option::is_some) {
        for (client, waiting) in waiting.iter_mut().enumerate() {
            if let Some((id, since)) = *waiting {
                let Some(reply) = network.replies.0.remove(&id) else { continue };
                outcome.longest = outcome.longest.max(network.replied_at[&id] - since);
                match reply.as_error() {
                    Some(error) => outcome.refused.push(error.to_string()),
                    None if client < adders => outcome.added += 1,
                    None => outcome.looked += 1,
                }
                *waiting = None;
            }
            if network.now < end {
                let steps: Vec<Step<'_>> =
                    (0..each).map(|_| set_step(&mut network, client < adders)).collect();
                let id = network.many(1 + (client % 3) as u16, client as u64 + 1, &steps);
                *waiting = Some((id, network.now));
            }
        }
        network.run_for(Duration::from_micros(200));
    }
    network.run_for(Duration::from_secs(2));
    assert_settled(&network);
    outcome
}

fn set_step(network: &mut Network, adds: bool) -> Step<'static> {
    let key = KEYS[network.rng.usize(0..4)].as_bytes();
    let member = network.rng.u64(0..1_000_000).to_string();
    let members = Items::collect([member.as_bytes()].into_iter());
    let operation = if adds { set::Operation::Add { members } } else { set::Operation::Length };
    let (hash, operation) = (network.topology.seed.hash(key), Operation::Set(operation));
    Step::Key(KeyedOperation { key, hash, operation, blind: adds })
}

#[test]
fn who_looks_at_keys_that_many_add_to_all_the_time_gets_an_answer() {
    for (seed, shards, each) in
        crate::some_of([(3, 4, 2), (1, 1, 2), (2, 1, 2), (4, 4, 2), (5, 1, 1)].into_iter())
    {
        let outcome = add_while_others_look(seed, shards, (24, 8), each);
        assert_eq!(outcome.refused, Vec::<String>::new(), "seed {seed}: {outcome:?}");
        // Each of them takes a few round trips, of 1 ms on average, when its turn has come.
        assert!(outcome.looked > 200 && outcome.added > 600, "seed {seed}: {outcome:?}");
        assert!(outcome.longest < Duration::from_millis(500), "seed {seed}: {outcome:?}");
    }
}

/// How a client of a key that others add to all the time changes it as a function of what it saw, and tries again until
/// it succeeds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loop {
    /// `WATCH`, `GET`, `MULTI`, `SET`, `EXEC`.
    Watching,
    /// `TXN BEGIN`, `GET`, `SET`, `COMMIT`.
    Interactive,
}

/// Runs such a client beside adders; how often it tried for each of its successes.
fn tries(seed: u64, how: Loop, adders: usize, successes: usize) -> Vec<usize> {
    let mut network = Network::new(seed, 1, 3, 3, &Options::default());
    network.delay = Duration::from_millis(1);
    let mut waiting: Vec<Option<RequestId>> = vec![None; adders];
    let (session, mut tries) = (SessionId(100), vec![0]);
    let last = if how == Loop::Watching { 2 } else { 3 };
    let (mut pending, mut at) = (None, 0);
    while tries.len() <= successes {
        for (client, waiting) in waiting.iter_mut().enumerate() {
            if waiting.is_none_or(|id| network.replies.0.remove(&id).is_some()) {
                let add = [network.increment("a", true)];
                *waiting = Some(network.many(2 + (client % 2) as u16, client as u64 + 1, &add));
            }
        }
        let reply = pending.and_then(|id| network.replies.0.remove(&id));
        if let Some(reply) = &reply {
            let lost = reply.as_error().is_some() || text(reply) == "null array";
            if at == last && !lost {
                tries.push(0);
            }
            at = if at == last || lost { 0 } else { at + 1 };
        }
        if pending.is_none() || reply.is_some() {
            let (get, set) = ([network.get("a")], [network.set("a", "1")]);
            let keys = [(&b"a"[..], network.topology.seed.hash(b"a"))];
            let request = match (how, at) {
                (Loop::Watching, 0) => Request::Watch { session, keys: &keys },
                (Loop::Watching, 1) => Request::Many { session, steps: &get, watched: false, multi: false },
                (Loop::Watching, _) => Request::Many { session, steps: &set, watched: true, multi: true },
                (Loop::Interactive, 0) => Request::Begin { session, read_only: false, watched: false },
                (Loop::Interactive, 1) => Request::Operate { session, steps: &get },
                (Loop::Interactive, 2) => Request::Operate { session, steps: &set },
                (Loop::Interactive, _) => Request::Commit { session },
            };
            *tries.last_mut().expect("one is under way") += usize::from(at == 0);
            pending = Some(network.request(1, request));
        }
        network.run_for(Duration::from_micros(200));
        assert!(network.now < Instant(60_000_000), "{how:?}, seed {seed}: {tries:?}");
    }
    tries.pop();
    tries
}

#[test]
fn who_tries_again_by_itself_wins_beside_many_that_add() {
    for seed in crate::some_of(1..=2) {
        for how in [Loop::Watching, Loop::Interactive] {
            let tries = tries(seed, how, 12, if crate::soaks() { 20 } else { 10 });
            assert!(tries.iter().all(|tries| *tries <= 12), "{how:?}, seed {seed}: {tries:?}");
            assert!(tries.iter().any(|tries| *tries > 4), "{how:?}, seed {seed}: nothing to win: {tries:?}");
        }
    }
}

#[test]
fn a_look_at_a_key_that_many_have_added_to_closes_it_for_those_that_come() {
    let mut network = Network::new(1, 1, 3, 3, &Options::default());
    for _ in 0..300 {
        let add = network.increment("a", true);
        network.one(1, &add);
    }
    let named = Rc::new(RefCell::new(Vec::new()));
    let names = named.clone();
    network.filter = Some(Box::new(move |_, _, message| {
        if let Message::ReadReply { answers, .. } = message {
            names.borrow_mut().extend(answers.iter().map(|(_, answer)| answer.observed.above().len()));
        }
        false
    }));
    for _ in 0..5 {
        let get = network.get("a");
        assert_eq!(text(&network.one(2, &get)), "300");
        network.run_for(Duration::from_millis(20));
    }
    let named = named.borrow();
    assert!(named[0] > 100, "the first look names all that has come: {named:?}");
    assert_eq!(named[named.len() - 1], 0, "the last one names the closed base: {named:?}");
}

/// Beside clients that set two keys of two shards alike, and others that look at both.
#[test]
fn a_flush_by_itself_empties_all_shards_at_once_whatever_goes_on() {
    for seed in 1..=3 {
        let mut network = Network::new(seed, 2, 3, 3, &Options::default());
        network.delay = Duration::from_millis(1);
        let (a, b) = network.two_keys();
        let (mut setting, mut looking) = (vec![None; 8], vec![None; 8]);
        let (mut flush, mut emptied) = (None, None);
        let begin = network.now;
        while emptied.is_none() {
            for (client, waiting) in setting.iter_mut().enumerate() {
                if waiting.is_none_or(|id| network.replies.0.remove(&id).is_some()) {
                    let both = [network.set(a, KEYS[client % 4]), network.set(b, KEYS[client % 4])];
                    *waiting = Some(network.many(1 + (client % 3) as u16, client as u64 + 1, &both));
                }
            }
            for (client, waiting) in looking.iter_mut().enumerate() {
                let reply = waiting.map(|id| network.replies.0.remove(&id));
                if let Some(Some(reply)) = &reply {
                    let seen = text(reply);
                    let (first, second) = seen.split_once(' ').expect("two replies");
                    assert_eq!(first, second, "seed {seed}");
                }
                if reply.is_none_or(|reply| reply.is_some()) {
                    let look = [network.get(a), network.get(b)];
                    *waiting = Some(network.many(1 + (client % 3) as u16, client as u64 + 50, &look));
                }
            }
            if network.now > begin + Duration::from_millis(100) {
                let (session, steps) = (SessionId(100), &[Step::Flush]);
                let request = Request::Many { session, steps, watched: false, multi: false };
                let id = *flush.get_or_insert_with(|| network.request(1, request));
                if let Some(reply) = network.replies.0.remove(&id) {
                    assert_eq!(text(&reply), "OK", "seed {seed}");
                    emptied = Some(());
                }
            }
            network.run_for(Duration::from_micros(200));
            assert!(network.now < begin + Duration::from_secs(2), "seed {seed}: it does not get through");
        }
        network.run_for(Duration::from_secs(2));
        assert_settled(&network);
    }
}
