//! Reads that f+1 replicas answer without Prepare: of one key in one round trip, of several by a check that what the
//! closest replica said is current. They are linearizable, though they take no stamp.

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::Mutant;
use anabranch_strict::ir::Status;
use anabranch_strict::tapir::{Decided, Options};
use datatypes::{Effect, register};
use protocol::{Request, Step};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Instant, Reader, Reply, RequestId, SessionId};

/// A read that was answered: when sent, when answered, and the place of the value in the order of writes.
struct Read {
    start: Instant,
    end: Instant,
    place: usize,
}

struct Run {
    network: Network,
    keys: Vec<&'static str>,
    reads: Vec<(RequestId, Instant)>,
    /// By value: who wrote it.
    writes: BTreeMap<u64, (RequestId, Instant)>,
}

impl Run {
    /// Writes and reads a key of each shard. With `cut`, this replica of shard 0 answers reads and hears of no
    /// transaction; else replicas forget everything at times.
    fn play(seed: u64, shards: u16, cut: Option<u16>, options: &Options) -> Run {
        let mut network = Network::new(seed, shards, 3, 2, options);
        (network.loss, network.duplication, network.delay) = (15, 10, Duration::from_millis(15));
        if let Some(process) = cut {
            let cut = address(process, Some(0));
            network.filter = Some(Box::new(move |_, to, message| to == cut && ir_of(message).is_some()));
        }
        let keys = (0..shards).map(|shard| network.key_of(shard)).collect();
        let mut run = Run { network, keys, reads: Vec::new(), writes: BTreeMap::new() };
        for number in 1..=60 {
            run.ask(number);
            let pause = run.network.rng.u64(0..40_000);
            run.network.run_for(Duration::from_micros(pause));
            let well = run.network.replicas().all(|(_, replica)| replica.status() == Status::Normal);
            if well && cut.is_none() && run.network.rng.u8(0..20) == 0 {
                let at = address(run.network.rng.u16(1..=3), Some(0));
                run.network.restart(at, 0, false);
            }
        }
        run.network.run_for(Duration::from_secs(6));
        (run.network.loss, run.network.duplication) = (0, 0);
        run.network.run_for(Duration::from_secs(10));
        run
    }

    fn ask(&mut self, number: u64) {
        let (session, process) = (SessionId(number), self.network.rng.u16(1..=2));
        let (read, start) = (self.network.rng.bool(), self.network.now);
        let text = number.to_string();
        let step = |key| if read { self.network.get(key) } else { self.network.set(key, &text) };
        let steps: Vec<Step<'_>> = self.keys.iter().copied().map(step).collect();
        let id = match steps.as_slice() {
            [Step::Key(operation)] => {
                self.network.request(process, Request::One { session, operation: operation.clone() })
            }
            _ => self.network.many(process, session.0, &steps),
        };
        if read {
            self.reads.push((id, start));
        } else {
            self.writes.insert(number, (id, start));
        }
    }

    /// The values written, in the order of stamps.
    fn order(&self) -> Vec<u64> {
        let mut order = BTreeMap::new();
        for decided in self.network.decided.values() {
            let Decided::Committed { stamp, effects } = decided else { continue };
            for (_, effect) in effects {
                let effect = Effect::decode(&mut Reader::new(effect)).expect("an effect");
                if let Effect::Register(register::Effect::Set { value, .. }) = effect {
                    let value = std::str::from_utf8(value).expect("digits").parse().expect("a number");
                    order.insert(*stamp, value);
                }
            }
        }
        order.into_values().collect()
    }

    fn verify(&self) -> Result<usize, String> {
        let order = self.order();
        // Place 0 is before every write, place n after the n-th.
        let place = |value: u64| order.iter().position(|other| *other == value).map(|index| index + 1);
        let mut reads = Vec::new();
        for (id, start) in &self.reads {
            let Some(reply) = self.network.replies.0.get(id) else { continue };
            if reply.as_error().is_some() {
                continue;
            }
            let mut values = reply.elements();
            let value = values.next();
            if values.any(|other| Some(other) != value) {
                return Err(format!("{id} saw half of a transaction"));
            }
            let place = match value {
                Some(Reply::Bulk(bytes)) => {
                    place(std::str::from_utf8(bytes).expect("digits").parse().expect("a number"))
                }
                _ => Some(0),
            };
            let place = place.ok_or_else(|| format!("{id} read what never committed"))?;
            reads.push(Read { start: *start, end: self.network.replied_at[id], place });
        }
        for read in &reads {
            self.check(read, &order, &reads)?;
        }
        Ok(reads.len())
    }

    fn check(&self, read: &Read, order: &[u64], reads: &[Read]) -> Result<(), String> {
        for (index, value) in order.iter().enumerate() {
            let Some((id, start)) = self.writes.get(value) else { continue };
            let replied = self.network.replies.0.get(id).is_some_and(|reply| reply.as_error().is_none());
            let ended = replied && self.network.replied_at[id] < read.start;
            if ended && index + 1 > read.place {
                return Err(format!("a read asked at {:?} missed {value}, written before", read.start));
            }
            if *start > read.end && index < read.place {
                return Err(format!("a read saw {value} before it was asked for, or what follows it"));
            }
        }
        match reads.iter().find(|other| other.end < read.start && other.place > read.place) {
            Some(_) => Err("a later read saw less than an earlier one".to_owned()),
            None => Ok(()),
        }
    }
}

fn options() -> Options {
    Options { prepared_timeout: Duration::from_millis(300), ..Options::default() }
}

#[test]
fn quorum_reads_are_linearizable() {
    let (mut reads, mut writes) = (0, 0);
    let seeds = if crate::soaks() { 40 } else { 6 };
    for seed in 1..=seeds {
        let run = Run::play(seed, 1, (seed % 2 == 0).then_some(3), &options());
        writes += run.order().len();
        reads += run.verify().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(reads > 15 * seeds as usize && writes > 7 * seeds as usize, "{reads} reads, {writes} writes");
}

#[test]
fn a_read_of_one_replica_is_not_and_is_caught() {
    let mutants = Mutant::SingleReplicaReads.into();
    let options = Options { mutants, ..options() };
    let caught = (1..=40).any(|seed| Run::play(seed, 1, Some(3), &options).verify().is_err());
    assert!(caught, "the check does not see stale reads");
    let caught = (1..=40).any(|seed| Run::play(seed, 2, Some(1), &options).verify().is_err());
    assert!(caught, "nor stale reads of several keys");
}

#[test]
fn reads_of_several_shards_are_linearizable_and_see_whole_transactions() {
    let (mut reads, mut writes) = (0, 0);
    let seeds = if crate::soaks() { 500 } else { 4 };
    for seed in 1..=seeds {
        // Half of the coordinators are close to the replica that misses everything.
        let run = Run::play(seed, 2, (seed % 2 == 0).then_some(1 + (seed / 2 % 3) as u16), &options());
        writes += run.order().len();
        reads += run.verify().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(reads > 10 * seeds as usize && writes > 5 * seeds as usize, "{reads} reads, {writes} writes");
}

#[test]
fn reads_of_several_keys_prepare_nothing() {
    let mut network = Network::new(2, 2, 3, 1, &Options::default());
    let (a, b) = network.two_keys();
    let write = [network.set(a, "1"), network.set(b, "2")];
    let id = network.many(1, 1, &write);
    network.answer(id);
    network.run_for(Duration::from_millis(100));
    network.filter = Some(Box::new(|_, _, message| {
        assert!(ir_of(message).is_none(), "only reads and checks: {message:?}");
        false
    }));
    let read = [network.get(a), network.get(b)];
    let began = network.now;
    let id = network.many(1, 1, &read);
    assert_eq!(text(&network.answer(id)), "1 2");
    assert!(network.now - began <= 4 * network.delay);
    // An interactive one too.
    let session = SessionId(7);
    for request in [
        Request::Begin { session, read_only: true, watched: false },
        Request::Operate { session, steps: &read },
    ] {
        let id = network.request(1, request);
        network.answer(id);
    }
    let id = network.request(1, Request::Commit { session });
    assert_eq!(text(&network.answer(id)), "OK");
}

#[test]
fn a_read_only_transaction_that_was_overtaken_gets_conflict() {
    let mut network = Network::new(3, 2, 3, 2, &Options::default());
    let (a, b) = network.two_keys();
    let session = SessionId(7);
    let id = network.request(1, Request::Begin { session, read_only: true, watched: false });
    network.answer(id);
    for key in [a, b] {
        let read = [network.get(key)];
        let id = network.request(1, Request::Operate { session, steps: &read });
        assert_eq!(text(&network.answer(id)), "null");
        let write = [network.set(a, "1"), network.set(b, "2")];
        if key == a {
            let id = network.many(2, 1, &write[..1]);
            network.answer(id);
            network.run_for(Duration::from_millis(50));
        }
    }
    let id = network.request(1, Request::Commit { session });
    let reply = text(&network.answer(id));
    assert!(reply.starts_with(&format!("CONFLICT key '{a}'")), "{reply}");
}

#[test]
fn an_undisturbed_read_takes_one_round_trip() {
    let mut network = Network::new(1, 1, 3, 1, &Options::default());
    network.one(1, &network.set("a", "1"));
    network.run_for(Duration::from_millis(100));
    let began = network.now;
    network.one(1, &network.get("a"));
    assert!(network.now - began <= 2 * network.delay);
}

/// What a transaction of coordinator 2 reads of a key, while replica 2 holds a change of it prepared, and how long
/// that takes. `lost`: nothing that coordinator 1 says from then on arrives.
fn read_past_a_prepared_change(seed: u64, lost: bool) -> (String, Duration) {
    let mut network = Network::new(seed, 1, 3, 2, &Options::default());
    network.delay = Duration::from_millis(1);
    // Coordinator 2 knows how long votes take.
    (0..5).for_each(|_| drop(network.one(2, &network.set("other", "1"))));
    network.one(1, &network.set("a", "old"));
    network.run_for(Duration::from_millis(100));
    let change = [network.set("a", "new")];
    network.many(1, 1, &change);
    while network.replica(2, 0).prepared() == 0 {
        network.run_for(Duration::from_micros(20));
    }
    if lost {
        network.filter = Some(Box::new(|from, _, _| from == address(1, None)));
    }
    let session = SessionId(7);
    let id = network.request(2, Request::Begin { session, read_only: false, watched: false });
    network.answer(id);
    let (began, read) = (network.now, [network.get("a")]);
    let id = network.request(2, Request::Operate { session, steps: &read });
    (text(&network.answer(id)), network.now - began)
}

#[test]
fn a_read_waits_for_what_is_about_to_change_what_it_would_see() {
    for seed in 0..20 {
        let (read, took) = read_past_a_prepared_change(seed, false);
        assert_eq!(read, "new", "seed {seed}");
        assert!(took < Duration::from_millis(5), "seed {seed}: {took:?}");
        let (read, took) = read_past_a_prepared_change(seed, true);
        assert_eq!(read, "old", "seed {seed}: nobody decides");
        assert!(took < Duration::from_millis(15), "seed {seed}: {took:?}");
    }
}
