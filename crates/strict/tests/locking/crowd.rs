//! Many clients on few keys: no client starves, and none gets CONFLICT.

use crate::locking::network::Network;
use anabranch_strict::locking::{Combining, Concurrency, LockOptions, Options, Phasing};
use datatypes::{Items, Operation, register, set};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, Rng, SessionId};

/// Of what kind the clients are, and on how many shards their keys.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    adders: u64,
    readers: u64,
    writers: u64,
    counters: u64,
    shards: u16,
    /// A process that messages take longer to.
    far: Option<u16>,
}

/// A client that sends one transaction after the other.
struct Client {
    kind: Kind,
    session: u64,
    /// The transaction under way and its place among all.
    sent: Option<(RequestId, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Adds a member to each of two sets, blindly.
    Add,
    /// Looks how large two sets are.
    KeysetRead,
    /// Adds a member to each of two sets, and wants to know whether it was new.
    Write,
    /// Increments two numbers, and wants to know what they come to.
    Count,
}

/// What became of the transactions.
#[derive(Debug, Default)]
struct Outcome {
    adds: usize,
    looks: usize,
    writes: usize,
    counts: usize,
    /// Of those that were sent later than a transaction, and answered sooner: the most.
    passed: usize,
}

fn steps<'n>(network: &Network, kind: Kind, keys: [&'n str; 2], member: &'n [u8]) -> [Step<'n>; 2] {
    keys.map(|key| match kind {
        Kind::KeysetRead => network.any(key, Operation::Set(set::Operation::Length), false),
        Kind::Count => network.any(key, Operation::Register(register::Operation::Increment { by: 1 }), false),
        _ => {
            let add = set::Operation::Add { members: Items::one(member) };
            network.any(key, Operation::Set(add), kind == Kind::Add)
        }
    })
}

/// Runs the clients for this long.
fn run(crowd: Crowd, options: &Options, seed: u64, time: Duration) -> Outcome {
    let mut network = Network::new(options);
    network.far = crowd.far;
    let (keys, mut random) = (network.four_keys(crowd.shards), Rng::with_seed(seed));
    let kinds = [(Kind::Add, crowd.adders), (Kind::KeysetRead, crowd.readers), (Kind::Write, crowd.writers)];
    let kinds = kinds.into_iter().chain([(Kind::Count, crowd.counters)]);
    let kinds = kinds.flat_map(|(kind, count)| (0..count).map(move |_| kind));
    let client = |(session, kind)| Client { kind, session: session as u64, sent: None };
    let mut clients: Vec<Client> = kinds.enumerate().map(client).collect();
    let mut outcome = Outcome::default();
    // When each transaction was answered, in the order in which they were sent.
    let mut ended: Vec<Option<usize>> = Vec::new();
    let limit = network.now + time;
    let mut ends = 0;
    loop {
        for client in &mut clients {
            if let Some((id, place)) = client.sent {
                let Some(text) = network.answered(id) else { continue };
                assert!(
                    !text.contains("CONFLICT"),
                    "seed {seed}, {:?} after {:?}: {text}",
                    client.kind,
                    network.now
                );
                ended[place] = Some(ends);
                ends += 1;
                outcome.passed = outcome.passed.max(ended[place..].iter().flatten().count() - 1);
                match client.kind {
                    Kind::Add => outcome.adds += 1,
                    Kind::KeysetRead => outcome.looks += 1,
                    Kind::Write => outcome.writes += 1,
                    Kind::Count => outcome.counts += 1,
                }
            }
            let member = [b'a' + random.u64(0..20) as u8];
            let mut two = [keys[random.usize(0..4)], keys[random.usize(0..4)]];
            if crowd.shards == 2 {
                // One of each: a transaction on one shard is one message, and holds no lock while others are on their way.
                two = [0, 1].map(|shard| keys[random.usize(0..2) * 2 + shard]);
            }
            let steps = steps(&network, client.kind, two, &member);
            let session = SessionId(client.session);
            let request = Request::Many { session, steps: &steps, watched: false, multi: true };
            let id = network.request(client.session as u16 % 3 + 1, request);
            client.sent = Some((id, ended.len()));
            ended.push(None);
        }
        if !network.go_on(limit) {
            return outcome;
        }
    }
}

/// Whoever holds a key's lock together with others holds it in a phase of at most so many.
const PHASE: u64 = 32;

fn options(phasing: Option<Phasing>) -> Options {
    Options { locks: LockOptions { phasing, ..LockOptions::default() }, ..Options::default() }
}

/// Runs crowds of several kinds, with keys on one shard and on two, from near and from far: each kind in one of these places,
/// and `cargo xtask soak` in all.
fn assert_fair(options: &Options, passed_by: impl Fn(Crowd) -> u64) {
    let places = [(1, None), (1, Some(2)), (2, None), (2, Some(2))];
    let kinds = [(24, 8, 0), (8, 24, 0), (24, 0, 8), (16, 8, 8), (0, 16, 16)];
    for (turn, (adders, readers, writers)) in kinds.into_iter().enumerate() {
        for (_, (shards, far)) in
            places.into_iter().enumerate().filter(|(place, _)| crate::soaks() || turn % 4 == *place)
        {
            let crowd = Crowd { adders, readers, writers, counters: 0, shards, far };
            let time = Duration::from_millis(if crate::soaks() { 1000 } else { 500 });
            let outcome = run(crowd, options, 1, time);
            assert!(outcome.passed as u64 <= passed_by(crowd), "{crowd:?}: {outcome:?}");
            for (count, done) in [(adders, outcome.adds), (readers, outcome.looks), (writers, outcome.writes)]
            {
                assert!(2 * done as u64 >= 5 * count, "{crowd:?}: {outcome:?}");
            }
        }
    }
}

/// For each of its two keys a phase of each of the other modes, the rest of the one that runs, and one that it was too late
/// for.
#[test]
fn with_phases_nobody_is_passed_by_more_than_a_few_of_them() {
    assert_fair(&options(Some(Phasing::default())), |_| 2 * 4 * PHASE);
}

/// One message to the leader, one round of the log, one message back: nobody waits for anybody, whatever they do to the same keys.
#[test]
fn transactions_of_one_shard_take_one_round_of_the_log() {
    let crowd = Crowd { adders: 0, readers: 8, writers: 8, counters: 8, shards: 1, far: None };
    let options = Options { combining: None, ..Options::default() };
    let outcome = run(crowd, &options, 1, Duration::from_secs(1));
    assert!(outcome.writes.min(outcome.counts).min(outcome.looks) >= 8 * 200, "{outcome:?}");
}

/// What one of a process's clients finds out under its locks is enough for others of them: in a second there is room for as
/// many rounds, and more of them in each.
#[test]
fn combining_lets_more_increments_through() {
    let run = |crowd, combining| {
        run(crowd, &Options { combining, ..Options::default() }, 1, Duration::from_secs(2))
    };
    let crowd = Crowd { adders: 0, readers: 0, writers: 0, counters: 32, shards: 2, far: None };
    let (with, without) = (run(crowd, Some(Combining::default())), run(crowd, None));
    assert!(2 * with.counts > 5 * without.counts, "{with:?} {without:?}");
}

/// Clients that each look at some of forty sets and add to others, the first ones far more often: nearly all are in each
/// other's way, over several keys at once. How many transactions are answered in each tenth of a second.
fn throng(clients: usize, seed: u64, options: &Options) -> Vec<usize> {
    const TENTHS: usize = 10;
    let mut network = Network::new(options);
    let mut random = Rng::with_seed(seed);
    let mut sent: Vec<Option<RequestId>> = vec![None; clients];
    let mut answered = vec![0; TENTHS];
    let began = network.now;
    loop {
        for (session, sent) in sent.iter_mut().enumerate() {
            if let Some(id) = sent {
                let Some(reply) = network.answered(*id) else { continue };
                assert!(!reply.contains("ERR"), "{reply}");
                let tenth = (network.now - began).as_millis() as usize / 100;
                answered[tenth.min(TENTHS - 1)] += 1;
            }
            let member = [b'a' + random.u64(0..20) as u8];
            let keys: Vec<[u8; 2]> = (0..4)
                .map(|_| [b'k', b'0' + (40.0 * (random.u64(0..1000) as f64 / 1000.0).powi(3)) as u8])
                .collect();
            let steps: Vec<Step<'_>> = keys
                .iter()
                .map(|key| {
                    let key = std::str::from_utf8(key).expect("letters");
                    let add = set::Operation::Add { members: Items::one(&member) };
                    match random.u64(0..2) {
                        0 => network.any(key, Operation::Set(set::Operation::Length), false),
                        _ => network.any(key, Operation::Set(add), true),
                    }
                })
                .collect();
            let session_id = SessionId(session as u64);
            let request = Request::Many { session: session_id, steps: &steps, watched: false, multi: true };
            *sent = Some(network.request(session as u16 % 3 + 1, request));
        }
        if !network.go_on(began + Duration::from_millis(100 * TENTHS as u64)) {
            return answered;
        }
    }
}

/// However many come, and whatever their keys, there is no tenth of a second in which nothing commits.
#[test]
fn a_throng_on_overlapping_keys_never_stands_still() {
    // `cargo xtask soak` has crowds of all sizes.
    let sizes = [(96, 2), (24, 1), (192, 3)];
    for (clients, seed) in sizes.into_iter().take(if crate::soaks() { 3 } else { 1 }) {
        let combined = throng(clients, seed, &Options::default());
        assert!(combined.iter().all(|count| *count > 0), "{clients} clients: {combined:?}");
        let separate = throng(clients, seed, &Options { combining: None, ..Options::default() });
        let sum = |counts: &[usize]| counts.iter().sum::<usize>();
        assert!(2 * sum(&combined) > 3 * sum(&separate), "{clients} clients: {combined:?}, {separate:?}");
    }
}

/// Takes seconds.
mod soak {
    use super::*;

    /// Who has waited longest goes first, so a transaction is passed by what is under way when it comes, and by those that have
    /// what it waits for and cannot be stopped any more, and once more if it has waited for one of its own process before: at
    /// most three rounds of all clients.
    #[test]
    fn without_phases_nobody_is_passed_by_more_than_three_rounds_of_the_others() {
        assert_fair(&options(None), |crowd| 3 * (crowd.adders + crowd.readers + crowd.writers));
    }

    /// Who has been refused a few times takes locks, waits for what is being voted for, and then is changed by nobody.
    #[test]
    fn an_optimistic_transaction_is_passed_by_few_rounds_of_the_others_too() {
        let options = Options { concurrency: Concurrency::Optimistic, ..Options::default() };
        assert_fair(&options, |crowd| 16 * (crowd.adders + crowd.readers + crowd.writers));
    }
}
