//! Blind writes of elements lock these and not their key (Claret, 5.1.1): of different ones nobody waits for anybody, and
//! of the same ones no two are in different orders on two shards.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::{Concurrency, LockOptions, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Items, Operation, dict, scored_set};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, Rng, SessionId};

const SESSION: SessionId = SessionId(7);

fn add(member: &[u8], score: f64) -> Operation<'_> {
    let items = scored_set::ScoredItems::one(score, member);
    Operation::ScoredSet(scored_set::Operation::Add { flags: scored_set::AddFlags::default(), items })
}

fn range() -> Operation<'static> {
    let by = scored_set::RangeBy::Index { start: 0, stop: -1 };
    let range = scored_set::Operation::Range { by, reverse: false, limit: None, with_scores: true };
    Operation::ScoredSet(range)
}

fn put<'a>(field: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    let pairs = Items::two(field, value);
    Operation::Dict(dict::Operation::Put { pairs, reply: dict::PutReply::Added })
}

fn send(network: &mut Network, process: u16, session: u64, steps: &[Step<'_>]) -> RequestId {
    let session = SessionId(session);
    network.request(process, Request::Many { session, steps, watched: false, multi: true })
}

/// For how long transactions of different processes take that come at the same time: each writes on a key of each shard.
fn time_of(options: &Options, writes: &[Operation<'static>]) -> Duration {
    let mut network = Network::new(options);
    let keys = network.keys();
    // Whoever leads has nothing else to say for a while.
    network.run_for(DELAY * 10);
    let began = network.now;
    let requests: Vec<RequestId> = (2..)
        .zip(writes)
        .map(|(process, write)| {
            let steps = keys.map(|key| network.any(key, write.clone(), true));
            send(&mut network, process, 0, &steps)
        })
        .collect();
    for id in requests {
        assert_eq!(network.answer(id), "OK OK");
    }
    network.now - began
}

#[test]
fn writes_of_different_elements_are_voted_for_at_once() {
    let typed = Options::default();
    let locks = LockOptions { readers_and_writers: true, ..LockOptions::default() };
    let untyped = Options { locks, ..Options::default() };
    let cases = [
        [add(b"x", 1.0), add(b"x", 2.0), add(b"y", 2.0)],
        [put(b"f", b"1"), put(b"f", b"2"), put(b"g", b"2")],
    ];
    for [first, same, other] in cases {
        let alone = time_of(&typed, std::slice::from_ref(&first));
        let time_with =
            |options, second: &Operation<'static>| time_of(options, &[first.clone(), second.clone()]);
        assert_eq!(time_with(&typed, &other), alone, "different elements");
        assert!(time_with(&typed, &same) > alone, "the same element");
        assert!(time_with(&untyped, &other) > alone, "readers and writers");
    }
    // Who creates a key says of which type it is.
    assert!(time_of(&typed, &[add(b"x", 1.0), put(b"f", b"1")]) > time_of(&typed, &[add(b"x", 1.0)]));
}

#[test]
fn who_has_read_the_key_keeps_writers_of_its_elements_waiting() {
    let mut network = Network::new(&Options::default());
    let [a, _] = network.keys();
    assert_eq!(network.text(1, 0, &[network.any(a, add(b"x", 1.0), true)]), "OK");
    let id = network.request(1, Request::Begin { session: SESSION, read_only: false, watched: false });
    assert_eq!(network.answer(id), "OK");
    let look = |network: &mut Network, steps: &[Operation<'static>]| {
        let steps: Vec<Step<'_>> =
            steps.iter().map(|step| network.any(a, step.clone(), step.blind_effect().is_some())).collect();
        let id = network.request(1, Request::Operate { session: SESSION, steps: &steps });
        network.answer(id)
    };
    let seen = look(&mut network, &[range()]);
    let steps = [network.any(a, add(b"y", 2.0), true)];
    let writer = send(&mut network, 2, 0, &steps);
    network.run_for(DELAY * 50);
    assert_eq!(network.answered(writer), None, "it waits for the reader");
    assert_eq!(look(&mut network, &[range()]), seen);
    let own = look(&mut network, &[add(b"z", 3.0), range()]);
    assert!(own.contains('z') && !own.contains('y'), "{own}");
    let id = network.request(1, Request::Commit { session: SESSION });
    assert_eq!((network.answer(id).as_str(), network.answer(writer).as_str()), ("OK", "OK"));
    let left = network.text(3, 0, &[network.any(a, range(), false)]);
    assert!(["x", "y", "z"].iter().all(|member| left.contains(member)), "{left}");
}

/// A coordinator dies so long after a client's request to write `x` on both shards, and every replica stops leading in
/// turn. Returns the replies to others that write `x` and `y` then, before anybody asks how the first transaction
/// ended.
fn after_new_leaders(mutants: Mutants, when: u32, shard: u16) -> [Option<String>; 2] {
    let patient = Duration::from_secs(600);
    let mut network = Network::new(&Options {
        prepared_timeout: patient,
        lock_timeout: patient,
        mutants,
        ..Options::default()
    });
    let [a, b] = network.keys();
    let steps = [network.any(a, add(b"x", 1.0), true), network.any(b, add(b"x", 1.0), true)];
    send(&mut network, 1, 0, &steps);
    network.run_for(DELAY * when / 2);
    network.down.insert(network.coordinator(1));
    (1..=3).for_each(|process| network.depose(process, shard));
    let requests = [add(b"x", 2.0), add(b"y", 2.0)].map(|write| {
        let steps = [network.any([a, b][usize::from(shard)], write, true)];
        send(&mut network, 2, 0, &steps)
    });
    network.run_for(Duration::from_secs(4));
    requests.map(|id| network.answered(id))
}

#[test]
fn a_new_leader_knows_which_elements_are_locked() {
    let ok = || Some("OK".to_owned());
    // One of the two shards votes before the other one gets its request.
    let moments = || (0..16).flat_map(|when| [(when, 0), (when, 1)]);
    let ends = |mutants: Mutants| {
        moments().map(|(when, shard)| after_new_leaders(mutants, when, shard)).collect::<Vec<_>>()
    };
    let answers = ends(Mutants::default());
    assert!(answers.iter().all(|[_, other]| *other == ok()), "nobody waits for another element: {answers:?}");
    let waited = answers.iter().filter(|[same, _]| same.is_none()).count();
    assert!(
        waited > 0 && waited < answers.len(),
        "the vote is there at some moments, and not at others: {answers:?}"
    );
    assert!(ends(Mutant::PlaceWithoutElements.into()).iter().all(|[same, _]| *same == ok()));
}

/// What a transaction of a random run does with two keys, one of each shard: the same with both.
fn random_step<'a>(random: &mut Rng, score: f64, value: &'a [u8]) -> (bool, Operation<'a>, bool) {
    const NAMES: [&[u8]; 3] = [b"x", b"y", b"z"];
    let name = NAMES[random.usize(0..3)];
    let members = || Items::one(name);
    let is_dict = random.bool();
    let (operation, blind) = match (random.u32(0..8), is_dict) {
        (0, true) => (Operation::Dict(dict::Operation::GetAll), false),
        (0, false) => (range(), false),
        (1, true) => (Operation::Dict(dict::Operation::Delete { fields: members() }), true),
        (1, false) => (Operation::ScoredSet(scored_set::Operation::Remove { members: members() }), true),
        (_, true) => (put(name, value), true),
        (_, false) => (add(name, score), true),
    };
    (is_dict, operation, blind)
}

/// Clients write the same elements of two keys, or read both. Fails if somebody sees them differ.
fn both_alike(options: &Options, seed: u64) -> Result<(), String> {
    let mut network = Network::new(options);
    let (keys, mut random) = (network.four_keys(2), Rng::with_seed(seed));
    network.far = [None, Some(1), Some(2), Some(3)][random.usize(0..4)];
    let keys = |is_dict: bool| if is_dict { [keys[2], keys[3]] } else { [keys[0], keys[1]] };
    let mut sent: Vec<RequestId> = Vec::new();
    for number in 0..60u32 {
        let value = number.to_string();
        let (is_dict, operation, blind) = random_step(&mut random, f64::from(number), value.as_bytes());
        let steps = keys(is_dict).map(|key| network.any(key, operation.clone(), blind));
        sent.push(send(&mut network, number as u16 % 3 + 1, u64::from(number), &steps));
        network.run_for(DELAY / 2 * random.u32(0..4));
    }
    // Fields are in the order in which they came, which nobody promises.
    let sorted = |words: &[&str]| {
        let pairs = words.get(1..).unwrap_or_default().chunks(2);
        let mut pairs: Vec<String> = pairs.map(|pair| pair.join(" ")).collect();
        pairs.sort_unstable();
        (words.first().map(|kind| (*kind).to_owned()), pairs)
    };
    let alike = |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        let (first, second) = words.split_at(words.len() / 2);
        let is_dict = text.starts_with("Map");
        let alike = if is_dict { sorted(first) == sorted(second) } else { first == second };
        if alike { Ok(()) } else { Err(text.to_owned()) }
    };
    for id in sent {
        alike(&network.answer(id))?;
    }
    for (is_dict, whole) in [(true, Operation::Dict(dict::Operation::GetAll)), (false, range())] {
        let steps = keys(is_dict).map(|key| network.any(key, whole.clone(), false));
        alike(&network.text(1, 0, &steps))?;
    }
    Ok(())
}

#[test]
fn writes_of_the_same_element_are_in_one_order_everywhere() {
    let without_phases = LockOptions { phasing: None, ..LockOptions::default() };
    let settings = [
        Options::default(),
        Options { combining: None, ..Options::default() },
        Options { locks: without_phases, ..Options::default() },
        Options { concurrency: Concurrency::Optimistic, ..Options::default() },
        Options { concurrency: Concurrency::Optimistic, reserve_after: Some(1), ..Options::default() },
    ];
    for options in &settings {
        for seed in crate::some_of(0..20) {
            assert_eq!(both_alike(options, seed), Ok(()), "seed {seed}, {options:?}");
        }
    }
    let mutant =
        |seed: usize| Options { mutants: Mutant::PlaceWithoutElements.into(), ..settings[seed % 3].clone() };
    assert!((0..20).any(|seed| both_alike(&mutant(seed), seed as u64).is_err()));
}
