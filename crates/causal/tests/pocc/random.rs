//! Random runs while regions are cut from one another, checked for transactional causal consistency by replaying
//! claims. A session that gets -DEGRADED is a causal thread of its own from then on.

use super::client::{Client, GET, blind_step, increment, step};
use super::degraded::world;
use super::world::{Faults, World, coordinator};
use crate::wren::operations::{MEMBERS, add, remove, write};
use anabranch_causal::pocc::{Mutant, Mutants, Options, Scope};
use checker::{Bytes, Key, Level, Outcome, Report, Transaction};
use datatypes::Operation;
use protocol::{Claim, Request, Step};
use std::time::Duration;
use types::RequestId;

const REGIONS: u16 = 3;
const ROUNDS: u32 = 400;
const KEYS: [&str; 7] = ["r0", "r1", "r2", "n0", "n1", "s0", "s1"];

/// A client that has one request out at most.
struct Actor {
    client: Client,
    /// Its session as the history has it.
    thread: u64,
    /// Its last transaction.
    last: usize,
    pending: Option<RequestId>,
}

struct Run {
    world: World,
    history: Vec<Transaction>,
    actors: Vec<Actor>,
    threads: u64,
    degraded: usize,
}

/// Plays a run; what the check of its history found, and how often a session got -DEGRADED.
fn play(seed: u64, mutants: Mutants) -> (Report, usize) {
    let declare_after = Duration::from_millis(100);
    let options = Options {
        scope: Scope::Session,
        claims: true,
        pipelined: 1,
        declare_after,
        mutants,
        lease: Duration::from_millis(150),
        ..Options::default()
    };
    let mut world = world(options, seed);
    world.faults = Faults { loss: 2, duplication: 2, near: (50, 2_000), far: (2_000, 20_000), log: 500 };
    let places = (0..REGIONS).flat_map(|region| (0..2).map(move |number| coordinator(region, number)));
    let actor =
        |(session, at)| Actor { client: Client::new(at, session), thread: session, last: 0, pending: None };
    let actors: Vec<Actor> = (1..).zip(places).map(actor).collect();
    let threads = actors.len() as u64;
    let mut run = Run { world, history: Vec::new(), actors, threads, degraded: 0 };
    run.world.run_ms(200);
    run.play();
    run.come_to_rest();
    (checker::check(&run.history, Level::TransactionalCausal), run.degraded)
}

impl Run {
    fn play(&mut self) {
        for _ in 0..ROUNDS {
            for actor in 0..self.actors.len() {
                self.collect(actor);
                if self.actors[actor].pending.is_none() {
                    let value = format!("{}", self.history.len());
                    let steps: Vec<_> =
                        (0..self.world.random.usize(1..4)).map(|_| self.choose(&value)).collect();
                    self.send(actor, &steps);
                }
            }
            match self.world.random.u32(..80) {
                0 | 1 => {
                    let cut = self.world.random.u16(..REGIONS);
                    self.world.cut(cut, (cut + 1) % REGIONS);
                }
                2 => self.world.heal(),
                _ => {}
            }
            let pause = self.world.random.u64(1..8);
            self.world.run_ms(pause);
        }
        self.world.heal();
    }

    fn choose<'v>(&mut self, value: &'v str) -> (&'static str, Operation<'v>, bool) {
        let key = KEYS[self.world.random.usize(..KEYS.len())];
        let member = ["a", "b", "c"][self.world.random.usize(..3)];
        let operation = match (self.world.random.u32(..6), key.as_bytes()[0]) {
            (0..3, _) => read_of(key),
            (3, b's') => remove(member),
            (_, b's') => add(member),
            (3, b'n') => write("100"),
            (_, b'n') => increment(1),
            _ => write(value),
        };
        let blind = !operation.is_read() && key.starts_with(['n', 's']) && self.world.random.bool();
        (key, operation, blind)
    }

    fn send(&mut self, actor: usize, steps: &[(&str, Operation<'_>, bool)]) {
        let requested: Vec<Step<'_>> = steps
            .iter()
            .map(|(key, operation, blind)| match blind {
                true => blind_step(key, operation.clone()),
                false => step(key, operation.clone()),
            })
            .collect();
        let number = self.history.len();
        self.history.push(Transaction {
            number: number as u64 + 1,
            session: self.actors[actor].thread,
            invoked: self.world.now,
            responded: None,
            outcome: Outcome::Unknown,
            steps: steps.iter().map(|(key, operation, blind)| recorded(key, operation, *blind)).collect(),
            claim: None,
            follows: None,
            thread: None,
            given_up: false,
            loss_reported: false,
            constraints: None,
            at_rest: false,
        });
        let client = self.actors[actor].client;
        let request =
            Request::Many { session: client.session, steps: &requested, watched: false, multi: true };
        let id = self.world.request(client.at, request);
        (self.actors[actor].last, self.actors[actor].pending) = (number, Some(id));
    }

    /// Takes what has come: claims, of which each belongs to its session's last transaction, and a reply.
    fn collect(&mut self, actor: usize) {
        for claim in std::mem::take(&mut self.world.claims) {
            let whose = self.actors.iter().find(|actor| actor.client.session == claim.session);
            self.history[whose.expect("it is of a session here").last].claim = Some(claimed(&claim));
        }
        let Some(reply) = self.actors[actor].pending.and_then(|id| self.world.inbox.0.remove(&id)) else {
            return;
        };
        self.actors[actor].pending = None;
        let values = checker::render_values(&reply);
        let first = values.first().map_or("", String::as_str);
        let transaction = &mut self.history[self.actors[actor].last];
        transaction.responded = Some(self.world.now);
        if first.starts_with("-DEGRADED") {
            self.threads += 1;
            self.actors[actor].thread = self.threads;
            self.degraded += 1;
        }
        transaction.outcome = Outcome::Aborted;
        if !["-DEGRADED", "-UNAVAILABLE", "-CONFLICT"].iter().any(|word| first.starts_with(word)) {
            assert_eq!(values.len(), transaction.steps.len(), "one value per step: {values:?}");
            transaction.outcome = Outcome::Committed;
            transaction.steps.iter_mut().zip(values).for_each(|(step, value)| step.reply = Some(value));
        }
    }

    /// Everything heals, every session is promoted, and a client reads everything in every region.
    fn come_to_rest(&mut self) {
        self.world.faults = Faults::NONE;
        self.world.run_ms(2_000);
        for actor in 0..self.actors.len() {
            self.collect(actor);
            assert!(self.actors[actor].pending.is_none(), "a request is not answered after all has healed");
            self.send(actor, &KEYS.map(|key| (key, read_of(key), false)));
            self.history.last_mut().expect("just sent").at_rest = true;
            self.world.run_ms(200);
            self.collect(actor);
            let outcome = self.history[self.actors[actor].last].outcome;
            assert_eq!(outcome, Outcome::Committed, "a read at rest is answered");
        }
        for actor in &self.actors {
            let coordinator = self.world.node(actor.client.at).as_coordinator().expect("it is one");
            assert_eq!(coordinator.pessimistic_sessions().0, 0);
        }
    }
}

fn read_of(key: &str) -> Operation<'static> {
    if key.starts_with('s') { MEMBERS } else { GET }
}

fn recorded(key: &str, operation: &Operation<'_>, blind: bool) -> checker::Step {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    let (key, operation, text) = (Key(key.into()), Bytes(bytes), checker::describe(operation));
    checker::Step { key, operation, text, blind, reply: None, state: None }
}

fn claimed(claim: &Claim) -> checker::Claim {
    let id = claim.transaction;
    let commit = claim.commit.map(|commit| checker::Commit {
        at: commit.at.0,
        depends_on: commit.depends_on.0,
        region: commit.region.0,
    });
    let snapshot = claim.snapshot.map(|snapshot| checker::Snapshot {
        region: snapshot.region.0,
        local: snapshot.local.0,
        remote: snapshot.remote.0,
    });
    let vector = claim.vector.as_ref().map(|vector| checker::Vector {
        snapshot: vector.snapshot.iter().map(|at| at.0).collect(),
        depends_on: vector.depends_on.iter().map(|at| at.0).collect(),
        merges: vector.merges,
        keys: None,
    });
    let effects = claim.effects.iter().map(|(key, effect)| (Key(key.to_vec()), Bytes(effect.to_vec())));
    checker::Claim {
        transaction: [u64::from(id.process.0), u64::from(id.incarnation.0), id.number],
        commit,
        snapshot,
        effects: effects.collect(),
        vector,
        thread: None,
        branch: None,
    }
}

#[test]
fn histories_with_degraded_sessions_are_causal() {
    let mut all_degraded = 0;
    for seed in crate::some_of(0..12) {
        let (report, degraded) = play(seed, Mutants::default());
        assert!(report.ok, "seed {seed}: {:#?}", report.violations);
        all_degraded += degraded;
    }
    assert!(all_degraded > 10, "sessions were told {all_degraded} times");
}

#[test]
fn a_local_item_that_is_shown_without_what_it_depends_on_is_caught() {
    let mutants = Mutants::from(Mutant::LocalAlwaysVisible);
    assert!((0..10).any(|seed| !play(seed, mutants).0.ok));
}
