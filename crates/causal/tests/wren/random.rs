//! Random runs: lost, repeated and overtaken packets, skewed clocks, cuts and restarts; every history is checked for
//! transactional causal consistency and convergence by replaying claims.

use crate::wren::client::{Client, GET, blind_step, increment, step};
use crate::wren::operations::{MEMBERS, add, remove, write};
use crate::wren::world::{Faults, World, coordinator, replica};
use anabranch_causal::wren::{Mutants, Options};
use checker::{Bytes, Key, Level, ListedLoss, Outcome, Report, Transaction, check_losses};
use datatypes::Operation;
use protocol::{Claim, Conflict, Durability, Request, Step};
use replication::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::RequestId;

const REGIONS: u16 = 2;
const PARTITIONS: u16 = 2;
/// One client each: a causal thread has one transaction at a time, as the checker wants it.
const COORDINATORS: u16 = 2;

/// How hard a run is.
#[derive(Clone, Copy)]
pub struct Plan {
    pub mutants: Mutants,
    pub rounds: u32,
    /// Cuts and restarts too.
    pub rough: bool,
    /// Observing writes too.
    pub observing: bool,
    /// Interactive transactions too.
    pub interactive: bool,
    /// Clocks jump.
    pub jumps: bool,
    /// The most microseconds that a packet takes inside a region.
    pub near: u64,
    /// Partitions lose their disks, or what was not synced of them, while nobody but others needs it.
    pub losing: bool,
    /// Deletions and removals too, and few members.
    pub removing: bool,
    /// How much is queued for a region.
    pub queue_bytes: usize,
    pub spill_bytes: u64,
    /// In percent; see `World`.
    pub spool_loss: u64,
    /// How long the snapshots of an earlier life of a coordinator hold back the horizon.
    pub lease_ms: u64,
}

/// A client that has one request out at most.
struct Actor {
    client: Client,
    pending: Option<(RequestId, usize)>,
}

/// A loss of memory: about to happen, happened, being made good.
#[derive(Default)]
struct Loss {
    doomed: Option<types::Address>,
    down: Option<types::Address>,
    learning: Option<types::Address>,
}

impl Loss {
    fn is_over(&self) -> bool {
        self.down.is_none() && self.learning.is_none()
    }
}

struct Run {
    world: World,
    history: Vec<Transaction>,
    actors: Vec<Actor>,
    plan: Plan,
    /// Transactions that a partition may have done and forgotten: nobody will claim them.
    forgotten: BTreeSet<u64>,
    /// Transactions that were under way while some partition waited for its peers' state: it refuses.
    excused: BTreeSet<u64>,
    /// The errors in place of results, and how often each came.
    refusals: BTreeMap<String, usize>,
}

/// Plays a run and checks its history.
pub fn play(seed: u64, plan: Plan) -> Report {
    let (history, listed) = history(seed, plan);
    let mut report = checker::check(&history, Level::TransactionalCausal);
    report.violations.extend(check_losses(&history, &listed, &|_, _| true, false));
    report.ok = report.violations.is_empty();
    report
}

/// What clients did and saw, and what each region lists at rest as lost to concurrent writes.
fn history(seed: u64, plan: Plan) -> (Vec<Transaction>, BTreeMap<u16, Vec<ListedLoss>>) {
    let options = Options {
        claims: true,
        pipelined: 1,
        durability: Durability::Synced,
        give_up_after: Duration::from_millis(1_500),
        doubt_after: Duration::from_millis(400),
        mutants: plan.mutants,
        queue_bytes: plan.queue_bytes,
        spill_bytes: plan.spill_bytes,
        window: match plan.spill_bytes {
            0 => Options::default().window,
            _ => Window { items: 8, bytes: 2_000 },
        },
        lease: Duration::from_millis(plan.lease_ms),
        ..Options::default()
    };
    let mut world = World::new(REGIONS, PARTITIONS, COORDINATORS, options, seed);
    world.spool_loss = plan.spool_loss;
    let mut random = types::Rng::with_seed(seed);
    for region in 0..REGIONS {
        for index in 0..PARTITIONS {
            world.skew(replica(region, index), random.i64(-20_000..20_000));
        }
        (0..COORDINATORS)
            .for_each(|number| world.skew(coordinator(region, number), random.i64(-20_000..20_000)));
    }
    world.faults =
        Faults { loss: 3, duplication: 3, near: (50, plan.near), far: (2_000, 40_000), log: 1_500 };
    let places =
        (0..REGIONS).flat_map(|region| (0..COORDINATORS).map(move |number| coordinator(region, number)));
    let actors =
        (1..).zip(places).map(|(session, at)| Actor { client: Client::new(at, session), pending: None });
    let mut run = Run {
        world,
        history: Vec::new(),
        actors: actors.collect(),
        plan,
        forgotten: BTreeSet::new(),
        excused: BTreeSet::new(),
        refusals: BTreeMap::new(),
    };
    run.world.run_ms(300);
    run.play();
    run.come_to_rest();
    run.add_strays();
    let (requested, committed) = run.committed();
    assert!(
        committed > requested * 7 / 10,
        "seed {seed}: {committed} of {requested} transactions committed: {:?}",
        run.refusals
    );
    let listed = run.losses();
    (run.history, listed)
}

impl Run {
    fn losses(&self) -> BTreeMap<u16, Vec<ListedLoss>> {
        let as_listed = |conflict: Conflict| ListedLoss {
            key: conflict.key.into(),
            name: conflict.name.into(),
            value: conflict.lost.value.into(),
            instead: conflict.winner.value.into(),
        };
        let partition = |region, index| self.world.node(replica(region, index)).as_partition();
        let conflicts = |region| (0..PARTITIONS).filter_map(move |index| partition(region, index));
        let listed = |region| conflicts(region).flat_map(|held| held.conflicts()).map(as_listed).collect();
        (0..REGIONS).map(|region| (region, listed(region))).collect()
    }

    fn play(&mut self) {
        let mut down = None;
        let mut loss = Loss::default();
        for _ in 0..self.plan.rounds {
            for actor in 0..self.actors.len() {
                self.collect(actor);
                match self.actors[actor].pending {
                    Some(_) => {}
                    None if self.plan.interactive && self.world.random.u32(..3) == 0 => self.interact(actor),
                    None => self.ask(actor),
                }
            }
            self.excuse();
            if self.plan.rough {
                match self.world.random.u32(..60) {
                    0 => self.world.cut(0, 1),
                    1 | 2 => self.world.heal(),
                    3 if down.is_none() && loss.is_over() => {
                        let region = self.world.random.u16(..REGIONS);
                        let index = self.world.random.u16(..PARTITIONS);
                        self.world.crash(replica(region, index));
                        down = Some(replica(region, index));
                    }
                    8 | 9 if self.plan.spill_bytes > 0 => {
                        let region = self.world.random.u16(..REGIONS);
                        let at = replica(region, self.world.random.u16(..PARTITIONS));
                        if down != Some(at) && loss.down != Some(at) {
                            self.world.checkpoint(at);
                        }
                    }
                    4..8 => down.take().into_iter().for_each(|address| self.world.start(address)),
                    _ => {}
                }
            }
            if self.plan.losing && down.is_none() {
                self.lose(&mut loss);
            }
            if self.plan.jumps && self.world.random.u32(..4) == 0 {
                let region = self.world.random.u16(..REGIONS);
                let index = self.world.random.u16(..PARTITIONS);
                let skew = self.world.random.i64(-20_000..20_000);
                self.world.skew(replica(region, index), skew);
            }
            let pause = self.world.random.u64(1..8);
            self.world.run_ms(pause);
        }
        down.into_iter().for_each(|address| self.world.start(address));
        self.world.heal();
        if let Some(address) = loss.down {
            self.world.start_from(address, false);
        }
    }

    /// Destroys what a partition knows as soon as its peers know it too, and starts it again with gaps. Nothing else
    /// goes down until it serves and a checkpoint holds what it has learnt.
    fn lose(&mut self, loss: &mut Loss) {
        let partition =
            |world: &World, address| world.node(address).as_partition().map(|p| p.is_indispensable());
        if let Some(address) = loss.learning {
            if self.world.node(address).as_partition().is_some_and(|partition| partition.is_serving()) {
                self.world.checkpoint(address);
                loss.learning = None;
            }
        } else if let Some(address) = loss.down {
            if self.world.random.u32(..6) == 0 {
                self.world.start_from(address, false);
                (loss.down, loss.learning) = (None, Some(address));
            }
        } else if let Some(address) = loss.doomed {
            if partition(&self.world, address) == Some(false) {
                match self.world.random.bool() {
                    true => self.world.destroy(address),
                    false => {
                        let unsynced = self.world.random.u64(..1_000_000);
                        self.world.cut_power(address, unsynced);
                    }
                }
                (loss.doomed, loss.down) = (None, Some(address));
            }
        } else if self.world.random.u32(..10) == 0 {
            let region = self.world.random.u16(..REGIONS);
            loss.doomed = Some(replica(region, self.world.random.u16(..PARTITIONS)));
        }
    }

    /// How many transactions clients sent while all partitions served or were down, and how many of them committed.
    fn committed(&self) -> (usize, usize) {
        let counted =
            || self.history.iter().filter(|transaction| !self.excused.contains(&transaction.number));
        (counted().count(), counted().filter(|transaction| transaction.outcome == Outcome::Committed).count())
    }

    /// True while some partition waits for its peers' state.
    fn is_catching_up(&self) -> bool {
        let mut all =
            (0..REGIONS).flat_map(|region| (0..PARTITIONS).map(move |index| replica(region, index)));
        all.any(|address| self.world.is_catching_up(address))
    }

    fn excuse(&mut self) {
        if self.is_catching_up() {
            let pending = self.actors.iter().filter_map(|actor| actor.pending);
            self.excused.extend(pending.map(|(_, place)| self.history[place].number));
        }
    }

    /// Everything heals; everybody answers; then a client reads everything in every region.
    fn come_to_rest(&mut self) {
        self.world.faults = Faults::NONE;
        self.world.run_ms(3_500);
        for actor in 0..self.actors.len() {
            self.collect(actor);
            assert!(self.actors[actor].pending.is_none(), "a request is not answered after all has healed");
        }
        for actor in 0..self.actors.len() {
            let steps: Vec<(String, Operation<'static>, bool)> = keys()
                .into_iter()
                .map(|key| {
                    let read = read_of(&key);
                    (key, read, false)
                })
                .collect();
            self.send(actor, &steps);
            self.history.last_mut().expect("just sent").at_rest = true;
            self.world.run_ms(200);
            self.collect(actor);
            assert!(
                self.actors[actor].pending.is_none(),
                "a read at rest is not answered: {}",
                self.states()
            );
        }
    }

    /// A session's transactions claim in order, each once; but for those that were given up before they ended, and
    /// those that a partition forgot.
    fn attribute(&mut self, session: u64, claim: checker::Claim) {
        let may_claim = |t: &&mut Transaction| {
            let forgotten = self.forgotten.contains(&t.number);
            t.session == session && t.claim.is_none() && t.outcome != Outcome::Aborted && !forgotten
        };
        let claimless = self.history.iter_mut().find(may_claim);
        claimless.expect("somebody asked for it").claim = Some(claim);
    }

    /// What took effect although its client does not know it.
    fn add_strays(&mut self) {
        for claim in std::mem::take(&mut self.world.replicated) {
            let claim = claimed(&claim);
            let known = self.history.iter_mut().find(|transaction| {
                let own = transaction.claim.as_ref();
                own.is_some_and(|own| own.transaction == claim.transaction && own.commit.is_some())
            });
            match known {
                Some(stray) if stray.steps.is_empty() => {
                    let Some(own) = &mut stray.claim else { continue };
                    let news = claim.effects.into_iter();
                    let news: Vec<_> =
                        news.filter(|(key, _)| own.effects.iter().all(|(known, _)| known != key)).collect();
                    own.effects.extend(news);
                }
                Some(_) => {}
                None => self.history.push(Transaction {
                    number: self.history.len() as u64 + 1,
                    session: 0,
                    invoked: 0,
                    responded: None,
                    outcome: Outcome::Unknown,
                    steps: Vec::new(),
                    claim: Some(claim),
                    follows: None,
                    thread: None,
                    given_up: false,
                    loss_reported: false,
                    constraints: None,
                    at_rest: false,
                }),
            }
        }
    }

    /// What the partitions know.
    fn states(&self) -> String {
        let all = (0..REGIONS).flat_map(|region| (0..PARTITIONS).map(move |index| replica(region, index)));
        all.map(|address| format!("{:#?}", self.world.node(address))).collect()
    }

    /// A few reads and writes of a few keys.
    fn ask(&mut self, actor: usize) {
        let value = format!("{}", self.history.len());
        let steps: Vec<_> = (0..self.world.random.usize(1..4)).map(|_| self.choose(&value)).collect();
        self.send(actor, &steps);
    }

    /// A key, what to do to it, and whether blindly.
    fn choose<'v>(&mut self, value: &'v str) -> (String, Operation<'v>, bool) {
        let keys = keys();
        let key = keys[self.world.random.usize(..keys.len())].clone();
        let blind = !self.plan.observing || self.world.random.bool();
        let operation = match (self.world.random.bool(), key.as_bytes()[0]) {
            (true, _) => read_of(&key),
            (false, kind) if self.plan.removing => self.contend(kind, value),
            (false, b'r') => write(value),
            (false, b'n') => increment(1),
            _ => add(value),
        };
        let blind = blind && !operation.is_read() && !key.starts_with('r');
        (key, operation, blind)
    }

    /// Writes that meet removals of the same.
    fn contend<'v>(&mut self, kind: u8, value: &'v str) -> Operation<'v> {
        let member = ["a", "b", "c"][self.world.random.usize(..3)];
        match (self.world.random.u32(..6), kind) {
            (0, _) => Operation::Key(datatypes::key::Operation::Delete),
            (1, b'n') => write("100"),
            (_, b'r') => write(value),
            (_, b'n') => increment(1),
            (1 | 2, _) => remove(member),
            _ => add(member),
        }
    }

    /// An interactive transaction, waited for.
    fn interact(&mut self, actor: usize) {
        let (client, value) = (self.actors[actor].client, format!("{}", self.history.len()));
        let number = self.record(actor, &[]);
        assert_eq!(client.begin(&mut self.world), "OK");
        let mut given_up = false;
        for _ in 0..self.world.random.usize(1..5) {
            let (key, operation, _) = self.choose(&value);
            let mut done = recorded(&key, &operation, false);
            let reply = client.operate(&mut self.world, &key, operation);
            given_up |= reply.starts_with("-UNAVAILABLE") || reply.starts_with("-SNAPSHOTTOOOLD");
            done.reply = Some(reply);
            self.history[number].steps.push(done);
        }
        let outcome = if given_up {
            client.ask(&mut self.world, Request::Abort { session: client.session })
        } else {
            client.commit(&mut self.world)
        };
        self.collect(actor);
        if self.is_catching_up() {
            self.excused.insert(self.history[number].number);
        }
        let (now, transaction) = (self.world.now, &mut self.history[number]);
        match outcome.as_str() {
            "OK" if !given_up => transaction.outcome = Outcome::Committed,
            text if text.starts_with("-UNKNOWNOUTCOME") => {
                transaction.steps.iter_mut().for_each(|step| step.reply = None);
                if text.contains("lost its memory") {
                    self.forgotten.insert(transaction.number);
                }
                return;
            }
            _ => transaction.outcome = Outcome::Aborted,
        }
        transaction.responded = Some(now);
    }

    fn send(&mut self, actor: usize, steps: &[(String, Operation<'_>, bool)]) {
        let client = self.actors[actor].client;
        let requested: Vec<Step<'_>> = steps
            .iter()
            .map(|(key, operation, blind)| match blind {
                true => blind_step(key, operation.clone()),
                false => step(key, operation.clone()),
            })
            .collect();
        let number = self.record(actor, steps);
        let request =
            Request::Many { session: client.session, steps: &requested, watched: false, multi: true };
        let id = self.world.request(client.at, request);
        self.actors[actor].pending = Some((id, number));
    }

    /// Begins a transaction in the history.
    fn record(&mut self, actor: usize, steps: &[(String, Operation<'_>, bool)]) -> usize {
        let number = self.history.len();
        let steps = steps.iter().map(|(key, operation, blind)| recorded(key, operation, *blind)).collect();
        self.history.push(Transaction {
            number: number as u64 + 1,
            session: self.actors[actor].client.session.0,
            invoked: self.world.now,
            responded: None,
            outcome: Outcome::Unknown,
            steps,
            claim: None,
            follows: None,
            thread: None,
            given_up: false,
            loss_reported: false,
            constraints: None,
            at_rest: false,
        });
        number
    }

    /// Takes what has come: a reply, and the claims, of which each belongs to its session's last transaction.
    fn collect(&mut self, actor: usize) {
        let (session, now) = (self.actors[actor].client.session, self.world.now);
        for claim in self.world.take_claims() {
            let claim = (claim.session.0, claimed(&claim));
            self.attribute(claim.0, claim.1);
        }
        let Some((id, number)) = self.actors[actor].pending else { return };
        let Some(reply) = self.world.inbox.0.remove(&id) else { return };
        self.actors[actor].pending = None;
        let transaction = &mut self.history[number];
        assert_eq!(transaction.session, session.0);
        let values = checker::render_values(&reply);
        let first = values.first().map_or("", String::as_str);
        if first.starts_with("-UNKNOWNOUTCOME") {
            if first.contains("lost its memory") {
                self.forgotten.insert(transaction.number);
            }
            return;
        }
        transaction.responded = Some(now);
        if first.starts_with("-UNAVAILABLE") || first.starts_with("-CONFLICT") {
            transaction.outcome = Outcome::Aborted;
            *self.refusals.entry(first.to_owned()).or_default() += 1;
            return;
        }
        assert_eq!(values.len(), transaction.steps.len(), "one value per step: {values:?}");
        transaction.outcome = Outcome::Committed;
        for (step, value) in transaction.steps.iter_mut().zip(values) {
            step.reply = Some(value);
        }
    }
}

fn keys() -> Vec<String> {
    let named = |kind: &'static str| (0..3).map(move |number| format!("{kind}{number}"));
    ["r", "n", "s"].into_iter().flat_map(named).collect()
}

fn read_of(key: &str) -> Operation<'static> {
    if key.starts_with('s') { MEMBERS } else { GET }
}

fn recorded(key: &str, operation: &Operation<'_>, blind: bool) -> checker::Step {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    checker::Step {
        key: Key(key.into()),
        operation: Bytes(bytes),
        text: checker::describe(operation),
        blind,
        reply: None,
        state: None,
    }
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
    let effects = claim.effects.iter().map(|(key, effect)| (Key(key.to_vec()), Bytes(effect.to_vec())));
    checker::Claim {
        transaction: [u64::from(id.process.0), u64::from(id.incarnation.0), id.number],
        commit,
        snapshot,
        effects: effects.collect(),
        vector: None,
        thread: None,
        branch: None,
    }
}

fn expect_clean(seeds: std::ops::Range<u64>, plan: Plan) {
    let (mut transactions, mut runs) = (0, 0);
    // `cargo xtask soak` goes through all.
    for seed in seeds.step_by(if crate::soaks() { 1 } else { 10 }) {
        let report = play(seed, plan);
        assert!(report.ok, "seed {seed}: {:#?}", report.violations);
        (transactions, runs) = (transactions + report.transactions, runs + 1);
    }
    assert!(transactions > 25 * runs, "{runs} runs did something: {transactions}");
}

pub const CALM: Plan = Plan {
    mutants: Mutants::NONE,
    rounds: 120,
    rough: false,
    observing: false,
    interactive: false,
    jumps: false,
    near: 3_000,
    losing: false,
    removing: false,
    queue_bytes: 1 << 20,
    spill_bytes: 0,
    spool_loss: 0,
    lease_ms: 10_000,
};

#[test]
fn histories_with_loss_repetition_reordering_and_skew_are_causal() {
    expect_clean(0..10, CALM);
}

#[test]
fn histories_with_observing_writes_are_causal() {
    expect_clean(100..110, Plan { observing: true, ..CALM });
}

#[test]
fn histories_with_interactive_transactions_are_causal() {
    expect_clean(300..310, Plan { observing: true, interactive: true, rounds: 80, ..CALM });
}

/// The horizon moves within the run.
pub const REMOVING: Plan = Plan { removing: true, observing: true, rounds: 200, lease_ms: 150, ..CALM };

/// Corrections 75: nothing is lost but to who saw it, and nothing comes back.
#[test]
fn histories_with_removals_lose_and_resurrect_nothing() {
    expect_clean(700..710, REMOVING);
    expect_clean(720..728, Plan { rough: true, jumps: true, near: 12_000, ..REMOVING });
    expect_clean(735..745, Plan { losing: true, jumps: true, near: 12_000, ..REMOVING });
    expect_clean(745..755, Plan { rough: true, queue_bytes: 600, ..REMOVING });
}

/// The same seed gives the same run.
#[test]
fn a_run_is_decided_by_its_seed() {
    let plan = Plan { observing: true, rough: true, rounds: 60, ..CALM };
    assert!(history(7, plan) == history(7, plan), "two runs differ");
}

#[test]
fn histories_with_cuts_and_restarts_are_causal() {
    expect_clean(200..215, Plan { observing: true, rough: true, jumps: true, near: 12_000, ..CALM });
}

pub const LOSING: Plan =
    Plan { losing: true, observing: true, jumps: true, near: 12_000, rounds: 200, ..CALM };
pub const FORGETTING: Plan = Plan { queue_bytes: 600, rough: true, observing: true, rounds: 200, ..CALM };

/// Corrections 67: partitions that lose what others know take it back, and nobody sees that they did.
#[test]
fn histories_with_lost_disks_and_power_cuts_are_causal() {
    expect_clean(400..415, LOSING);
}

/// Regions that were cut off take the state of the others.
#[test]
fn histories_with_cuts_longer_than_the_queues_are_causal() {
    expect_clean(600..615, FORGETTING);
}

/// Queues of which next to nothing stays in memory.
pub const SPILLING: Plan = Plan { spill_bytes: 1 << 20, ..FORGETTING };

/// Regions that were cut off are sent what lies in the spool, and take the state where that has lost something.
#[test]
fn histories_with_queues_that_spill_are_causal() {
    expect_clean(800..810, SPILLING);
    expect_clean(820..830, Plan { spool_loss: 5, ..SPILLING });
    expect_clean(840..850, Plan { spill_bytes: 3_000, losing: true, ..SPILLING });
}
