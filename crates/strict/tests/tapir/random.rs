//! Random runs from seeds: loss, repetition, reordering, skewed clocks, crashes with and without the log, dying
//! coordinators, few keys. Afterwards every committed transaction is replayed in the order of stamps and every
//! result is compared; and that order must agree with real time wherever transactions conflict.

use crate::tapir::network::{Network, address, text};
use anabranch_strict::Mutant;
use anabranch_strict::ir::Status;
use anabranch_strict::tapir::{Decided, KeyedEffects, Options};
use datatypes::{Cell, Context, Effect, Operation, apply, key, prepare, register, user};
use protocol::{Claim, Request, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Instant, Reader, ReplyBuf, ReplySink, RequestId, Rng, SessionId, Timestamp, TransactionId};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Keys of a type that a user defined.
const LOTS: [&str; 3] = ["e", "f", "g"];

/// One step, owned.
#[derive(Clone, Copy, Debug)]
enum Act {
    Get,
    Set(u64),
    Increment,
    Blind,
    /// Of the auction.
    Bid(u64),
    BlindBid(u64),
    Leader,
    Close,
    Delete,
}

#[derive(Clone, Debug)]
struct Issued {
    acts: Vec<(&'static str, Act)>,
    request: RequestId,
    start: Instant,
}

/// A committed transaction, as the replicas and its coordinator tell it.
#[derive(Clone, Debug)]
struct Committed {
    at: (Timestamp, TransactionId),
    effects: KeyedEffects,
    issued: Option<Issued>,
    end: Option<Instant>,
}

struct Run {
    network: Network,
    issued: BTreeMap<SessionId, Issued>,
    claims: Vec<Claim>,
    members: u16,
    /// Half of the steps are of a type that a user defined.
    auctions: bool,
}

impl Run {
    fn new(seed: u64, members: u16, options: &Options) -> Self {
        let options = &drawn(seed, options);
        let mut network = Network::new(seed, 2, members, 2, options);
        network.loss = 15;
        network.duplication = 10;
        network.delay = Duration::from_millis(15);
        for process in 1..=2 {
            let skew = network.rng.i64(-50_000..=50_000);
            network.set_skew(address(process, None), skew);
        }
        Run { network, issued: BTreeMap::new(), claims: Vec::new(), members, auctions: false }
    }

    fn ask(&mut self, number: u64, process: u16) {
        let count = self.network.rng.usize(1..=3);
        let mut acts = Vec::new();
        for index in 0..count {
            if self.auctions && self.network.rng.bool() {
                let act = self.act_on_lot();
                acts.push((LOTS[self.network.rng.usize(0..LOTS.len())], act));
                continue;
            }
            let act = match self.network.rng.u8(0..4) {
                0 => Act::Get,
                1 => Act::Set(number * 1000 + index as u64 * 100),
                2 => Act::Increment,
                _ => Act::Blind,
            };
            acts.push((KEYS[self.network.rng.usize(0..KEYS.len())], act));
        }
        let session = SessionId(number);
        let start = self.network.now;
        let values: Vec<String> = acts.iter().map(|(_, act)| value(*act)).collect();
        let steps: Vec<Step<'_>> =
            acts.iter().zip(&values).map(|((key, act), value)| self.step(key, *act, value)).collect();
        let request = self
            .network
            .request(process, Request::Many { session, steps: &steps, watched: false, multi: true });
        self.issued.insert(session, Issued { acts, request, start });
    }

    fn act_on_lot(&mut self) -> Act {
        let amount = self.network.rng.u64(1..1000);
        match self.network.rng.u8(0..20) {
            0..10 => Act::Bid(amount),
            10..13 => Act::BlindBid(amount),
            13..18 => Act::Leader,
            18 => Act::Close,
            _ => Act::Delete,
        }
    }

    fn step<'a>(&self, key: &'static str, act: Act, value: &'a str) -> Step<'a> {
        match act {
            Act::Get => self.network.get(key),
            Act::Set(_) => self.network.set(key, value),
            Act::Increment => self.network.increment(key, false),
            Act::Blind => self.network.increment(key, true),
            Act::Bid(amount) => self.network.on(key, bid(amount), false),
            Act::BlindBid(amount) => self.network.on(key, bid(amount), true),
            Act::Leader => self.network.on(key, of_auction("leader", &[]), false),
            Act::Close => self.network.on(key, of_auction("close", &[]), false),
            Act::Delete => self.network.on(key, Operation::Key(key::Operation::Delete), false),
        }
    }

    fn take_claims(&mut self) {
        for process in 1..=2 {
            self.claims.extend(self.network.node_mut(address(process, None)).take_claims());
        }
    }

    /// Something bad happens to a process.
    fn strike(&mut self) {
        self.take_claims();
        let process = self.network.rng.u16(1..=self.members);
        let at = address(process, Some(self.network.rng.u16(0..2)));
        match self.network.rng.u8(0..4) {
            0 => self.network.restart(at, usize::MAX, true),
            1 => {
                let records = self.network.rng.usize(0..=self.network.log_len(at));
                self.network.restart(at, records, false);
            }
            2 => {
                let coordinator = address(self.network.rng.u16(1..=2), None);
                self.network.restart(coordinator, 0, true);
            }
            _ => {
                self.network.down.insert(at);
                self.network.run_for(Duration::from_millis(400));
                self.network.down.remove(&at);
            }
        }
    }

    /// Something bad happens that takes long: the others synchronize without it, and forget.
    fn long_absence(&mut self, number: &mut u64) {
        self.take_claims();
        let at = address(self.network.rng.u16(1..=self.members), Some(self.network.rng.u16(0..2)));
        let how = self.network.rng.u8(0..3);
        self.network.down.insert(at);
        let end = self.network.now + Duration::from_millis(1500);
        while self.network.now < end {
            *number += 1;
            let process = self.network.rng.u16(1..=2);
            self.ask(*number, process);
            let pause = self.network.rng.u64(0..120_000);
            self.network.run_for(Duration::from_micros(pause));
        }
        self.network.down.remove(&at);
        match how {
            0 => self.network.restart(at, 0, false),
            1 => self.network.restart(at, usize::MAX, true),
            _ => {}
        }
    }

    /// A safety phase with faults, then everything heals.
    fn play(&mut self, requests: u64) {
        let mut number = 0;
        while number < requests {
            number += 1;
            let process = self.network.rng.u16(1..=2);
            self.ask(number, process);
            let pause = self.network.rng.u64(0..8_000);
            self.network.run_for(Duration::from_micros(pause));
            let recovering = self.network.replicas().filter(|(_, r)| r.status() != Status::Normal).count();
            if recovering == 0 && self.network.rng.u8(0..12) == 0 {
                self.strike();
            }
            if recovering == 0 && self.network.rng.u8(0..40) == 0 {
                self.long_absence(&mut number);
            }
        }
        self.network.run_for(Duration::from_secs(6));
        (self.network.loss, self.network.duplication) = (0, 0);
        self.network.run_for(Duration::from_secs(60));
        self.take_claims();
        self.network.look();
    }

    /// What committed, in the order of stamps.
    fn committed(&self) -> Result<Vec<Committed>, String> {
        for (at, replica) in self.network.replicas() {
            if replica.prepared() != 0 || replica.status() != Status::Normal {
                return Err(format!("{at}: {} prepared, {:?}", replica.prepared(), replica.status()));
            }
        }
        if let Some(contradiction) = &self.network.contradiction {
            return Err(contradiction.clone());
        }
        let mut all: BTreeMap<TransactionId, Committed> = BTreeMap::new();
        for ((id, _), decided) in &self.network.decided {
            if let Decided::Committed { stamp, effects } = decided {
                let at = (stamp.at, *id);
                let entry =
                    all.entry(*id).or_insert(Committed { at, effects: Vec::new(), issued: None, end: None });
                if entry.at != at {
                    return Err(format!("{id} committed at two timestamps"));
                }
                entry.effects.extend(effects.iter().cloned());
            }
        }
        // A read that was given up claims that it took no place; its client got an error.
        for claim in self.claims.iter().filter(|claim| claim.commit.is_some()) {
            let Some(entry) = all.get_mut(&claim.transaction) else {
                return Err(format!("{} was acknowledged and is lost", claim.transaction));
            };
            let Some(issued) = self.issued.get(&claim.session) else { continue };
            let sorted = |effects: &KeyedEffects| {
                let mut by_key = effects.clone();
                by_key.sort_by(|a, b| a.0.cmp(&b.0));
                by_key
            };
            if sorted(&entry.effects) != sorted(&claim.effects) {
                return Err(format!("{} lost effects", claim.transaction));
            }
            entry.end = self.network.replied_at.get(&issued.request).copied();
            entry.issued = Some(issued.clone());
        }
        let mut all: Vec<Committed> = all.into_values().collect();
        all.sort_by_key(|committed| committed.at);
        Ok(all)
    }

    /// Replays, compares, and looks for cycles.
    fn verify(&self) -> Result<usize, String> {
        let all = self.committed()?;
        for (at, replica) in self.network.replicas() {
            if replica.recorded() > 20 {
                return Err(format!(
                    "{at} still records {} groups: {:?}",
                    replica.recorded(),
                    replica.points()
                ));
            }
        }
        let mut cells: BTreeMap<Box<[u8]>, Cell> = BTreeMap::new();
        for committed in &all {
            match &committed.issued {
                Some(issued) => self.replay(committed, issued, &mut cells)?,
                None => committed.effects.iter().for_each(|(key, effect)| perform(key, effect, &mut cells)),
            }
        }
        self.copies()?;
        real_time(&all)?;
        self.errors()?;
        Ok(all.iter().filter(|committed| committed.issued.is_some()).count())
    }

    /// Every replica holds exactly what committed on its shard, in the order of stamps: what it missed it has fetched.
    fn copies(&self) -> Result<(), String> {
        let mut shards: BTreeMap<u16, BTreeMap<_, &KeyedEffects>> = BTreeMap::new();
        for ((_, shard), decided) in &self.network.decided {
            if let Decided::Committed { stamp, effects } = decided {
                shards.entry(*shard).or_default().insert(*stamp, effects);
            }
        }
        for (at, replica) in self.network.replicas() {
            let mut cells = BTreeMap::new();
            let effects = shards.get(&replica.shard()).into_iter().flat_map(|all| all.values());
            effects.flat_map(|all| all.iter()).for_each(|(key, effect)| perform(key, effect, &mut cells));
            for (key, cell) in &cells {
                let mut bytes = Vec::new();
                cell.encode(&mut bytes);
                if replica.cell(key) != bytes {
                    return Err(format!("{at} holds something else at {}", String::from_utf8_lossy(key)));
                }
            }
        }
        Ok(())
    }

    /// Every answer without a claim is an error.
    fn errors(&self) -> Result<(), String> {
        let claimed: BTreeSet<SessionId> = self.claims.iter().map(|claim| claim.session).collect();
        for (session, issued) in &self.issued {
            let Some(reply) = self.network.replies.0.get(&issued.request) else { continue };
            if !claimed.contains(session) && reply.as_error().is_none() {
                return Err(format!("{:?} was answered {} without a claim", issued.acts, text(reply)));
            }
        }
        Ok(())
    }

    fn replay(
        &self,
        committed: &Committed,
        issued: &Issued,
        cells: &mut BTreeMap<Box<[u8]>, Cell>,
    ) -> Result<(), String> {
        let mut expected = ReplyBuf::new();
        for (key, act) in &issued.acts {
            let value = value(*act);
            let Step::Key(keyed) = self.step(key, *act, &value) else { continue };
            let cell = cells.entry(key.as_bytes().into()).or_default();
            let mut result = ReplyBuf::new();
            let mut context = Context { now_millis: 0, random: &mut Rng::with_seed(0), site: None };
            let effect = prepare(cell, &keyed.operation, &mut context, &mut result);
            if keyed.blind {
                expected.simple("OK")
            } else {
                result.replay(&mut expected)
            }
            if let Some(effect) = effect {
                apply::<false>(cell, &effect);
            }
        }
        match self.network.replies.0.get(&issued.request) {
            Some(reply) if *reply != expected => Err(format!(
                "{:?} {:?} was answered '{}', in the order of stamps it is '{}'",
                committed.at,
                issued.acts,
                text(reply),
                text(&expected)
            )),
            _ => Ok(()),
        }
    }
}

fn of_auction(name: &str, arguments: &[&[u8]]) -> Operation<'static> {
    let auction = user::register("auction", 1, usertypes::Module::native::<auction::Auction>());
    let operation = user::Operation::new(auction.expect("it is the only one"), name.as_bytes(), arguments);
    Operation::User(operation.expect("it has such an operation"))
}

fn bid(amount: u64) -> Operation<'static> {
    of_auction("bid", &[format!("b{}", amount % 7).as_bytes(), amount.to_string().as_bytes()])
}

fn value(act: Act) -> String {
    match act {
        Act::Set(value) => value.to_string(),
        _ => String::new(),
    }
}

fn perform(key: &[u8], effect: &[u8], cells: &mut BTreeMap<Box<[u8]>, Cell>) {
    let effect = Effect::decode(&mut Reader::new(effect)).expect("an effect");
    apply::<false>(cells.entry(key.into()).or_default(), &effect);
}

/// True if the order of the two matters: a key of both, which not both only add to blindly, or bid for, nor both only look at.
fn conflict(a: &Committed, b: &Committed) -> bool {
    let touches = |c: &Committed| -> BTreeMap<Vec<u8>, (bool, bool)> {
        let mut keys = BTreeMap::new();
        let mut touch = |key: &[u8], adds: bool, looks: bool| {
            let known = keys.entry(key.to_vec()).or_insert((true, true));
            *known = (known.0 && adds, known.1 && looks);
        };
        for (key, act) in c.issued.iter().flat_map(|issued| &issued.acts) {
            let adds = matches!(act, Act::Blind | Act::Bid(_) | Act::BlindBid(_));
            // A bid that does not win changes nothing: it only looks.
            let lost = matches!(act, Act::Bid(_)) && c.effects.iter().all(|(of, _)| **of != *key.as_bytes());
            touch(key.as_bytes(), adds, lost || matches!(act, Act::Get | Act::Leader));
        }
        for (key, effect) in &c.effects {
            let effect = Effect::decode(&mut Reader::new(effect)).expect("an effect");
            let bids = || bid(1).blind_effect().is_some_and(|bid| effect.commutes_with(&bid));
            touch(key, matches!(effect, Effect::Register(register::Effect::Add { .. })) || bids(), false);
        }
        keys
    };
    let other = touches(b);
    let commute = |a: (bool, bool), b: (bool, bool)| a.0 && b.0 || a.1 && b.1;
    touches(a).iter().any(|(key, how)| other.get(key).is_some_and(|also| !commute(*how, *also)))
}

/// Conflicts, in the order of stamps, and real time must not contradict each other, however long the chain.
fn real_time(all: &[Committed]) -> Result<(), String> {
    let before = |a: usize, b: usize| {
        let later = all[b].issued.as_ref().map(|issued| issued.start);
        let finished = matches!((all[a].end, later), (Some(end), Some(start)) if end < start);
        finished || (a < b && conflict(&all[a], &all[b]))
    };
    // Kahn's algorithm: whoever is preceded by nobody leaves; if somebody must stay, there is a cycle.
    let mut left: BTreeSet<usize> = (0..all.len()).collect();
    let mut preceded: Vec<usize> =
        (0..all.len()).map(|b| (0..all.len()).filter(|a| *a != b && before(*a, b)).count()).collect();
    while let Some(first) = left.iter().copied().find(|index| preceded[*index] == 0) {
        left.remove(&first);
        for index in &left {
            preceded[*index] -= usize::from(before(first, *index));
        }
    }
    let Some(cycle) = left.iter().filter_map(|at| cycle(*at, &left, before)).min_by_key(Vec::len) else {
        return Ok(());
    };
    let cycle: Vec<String> = cycle
        .into_iter()
        .map(|at| {
            format!(
                "{:?}, answered at {:?}, {:?}, effects {:?}",
                all[at].at, all[at].end, all[at].issued, all[at].effects
            )
        })
        .collect();
    Err(format!("real time contradicts the order of stamps:\n{}", cycle.join("\n")))
}

/// A shortest way from a transaction back to itself.
fn cycle(from: usize, among: &BTreeSet<usize>, before: impl Fn(usize, usize) -> bool) -> Option<Vec<usize>> {
    let (mut ways, mut seen) = (vec![vec![from]], BTreeSet::new());
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let last = *way.last()?;
            if way.len() > 1 && last == from {
                return Some(way);
            }
            let next: Vec<usize> =
                among.iter().copied().filter(|next| *next != last && before(last, *next)).collect();
            for next in next.into_iter().filter(|next| seen.insert(*next)) {
                longer.push(way.iter().copied().chain([next]).collect());
            }
        }
        ways = longer;
    }
    None
}

fn run(seed: u64, members: u16, options: &Options, requests: u64) -> Result<usize, String> {
    run_with(seed, members, options, requests, false)
}

fn run_with(
    seed: u64,
    members: u16,
    options: &Options,
    requests: u64,
    auctions: bool,
) -> Result<usize, String> {
    let mut run = Run::new(seed, members, options);
    run.auctions = auctions;
    run.play(requests);
    run.verify().map_err(|violation| format!("seed {seed}: {violation}"))
}

/// Draws how often a seed synchronizes, how soon it forgets, and how small its pieces are.
fn drawn(seed: u64, options: &Options) -> Options {
    let mut rng = Rng::with_seed(seed);
    Options {
        sync_every: Some(Duration::from_millis(rng.u64(5..200))),
        sync_lag: Duration::from_millis(rng.u64(60..1000)),
        sync_patience: rng.u32(1..12),
        piece_bytes: rng.usize(1..400),
        ..options.clone()
    }
}

fn options() -> Options {
    Options { quorum_reads: false, prepared_timeout: Duration::from_millis(300), ..Options::default() }
}

#[test]
fn every_result_fits_the_order_of_stamps_and_real_time() {
    let mut committed = 0;
    for seed in crate::some_of(1..26) {
        committed += run(seed, 3, &options(), 40).unwrap_or_else(|violation| panic!("{violation}"));
    }
    assert!(committed > 16 * crate::some_of(1..26).count(), "{committed} committed");
}

#[test]
fn with_five_replicas_too() {
    for seed in crate::some_of(100..107) {
        run(seed, 5, &options(), 40).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn types_that_users_define_fit_it_too() {
    let mut committed = 0;
    for seed in crate::some_of(200..221) {
        committed +=
            run_with(seed, 3, &options(), 60, true).unwrap_or_else(|violation| panic!("{violation}"));
    }
    assert!(committed > 23 * crate::some_of(200..221).count(), "{committed} committed");
}

#[test]
fn mutants_are_caught() {
    // Few seeds show the last one: `cargo xtask soak` looks for it.
    let mutants = [Mutant::SkipValidation, Mutant::CommitWithoutEffects, Mutant::CloseUndecided];
    for mutant in mutants.into_iter().take(if crate::soaks() { 3 } else { 2 }) {
        let options = Options { mutants: mutant.into(), ..options() };
        let caught = (1..=200).any(|seed| run(seed, 3, &options, 40).is_err());
        assert!(caught, "{mutant:?} was not caught in 200 seeds");
    }
}
