//! A replica of a shard: the log, the machine that it drives, and, in one term of one replica, the leader.

mod collect;
mod decide;
mod evaluate;
mod single;

use super::leader::{Leader, Stage};
use super::locks::LockTable;
use super::machine::{Event, Machine, Outcome};
use super::message::{Message, Timer};
use super::node::Node;
use super::options::{Concurrency, Options};
use super::record::Record;
use super::single::Single;
use crate::caching;
use crate::coordinator::draw_from;
use crate::validation::Stamp;
use crate::{Decided, Mutant, Topology};
use decide::VoteRequest;
use mvcc::Tracked;
use protocol::eviction::Cache;
use protocol::hosted::{Holdings, MaintenanceTask};
use protocol::{ContentionStats, Durability, Input, Now, Outputs};
use replication::log::{self, Change, Log, Port, Recovering};
use std::time::Duration;
use types::{Address, Incarnation, Instant, Malformed, Reader, Rng, TransactionId};

/// See the module.
pub struct Replica {
    topology: Topology,
    pub(super) shard: u16,
    /// Which of the shard's replicas it is.
    index: usize,
    incarnation: Incarnation,
    pub(super) options: Options,
    log: Log,
    pub(super) machine: Machine,
    pub(super) leader: Option<Leader>,
}

/// What a handler gets in addition to the replica.
pub(super) struct Step<'s, 'o> {
    pub(super) now: Now,
    pub(super) random: &'s mut Rng,
    pub(super) out: &'s mut Outputs<'o, Node>,
}

/// The log speaks through the outputs of the step.
struct Wires<'w, 'o> {
    out: &'w mut Outputs<'o, Node>,
    members: &'w [Address],
    durability: Durability,
}

impl Port for Wires<'_, '_> {
    fn send(&mut self, member: usize, message: log::Message) {
        if let Some(to) = self.members.get(member) {
            self.out.send(*to, Message::Log { message });
        }
    }

    fn send_now(&mut self, member: usize, message: log::Message) {
        if let Some(to) = self.members.get(member) {
            self.out.send_now(*to, Message::Log { message });
        }
    }

    fn persist(&mut self, change: &Change<'_>, class: Option<Durability>) {
        let class = class.unwrap_or(self.durability);
        if class > Durability::Volatile {
            self.out.persist(&Record(change.clone()), class);
        }
    }
}

impl Replica {
    pub(super) fn new(
        topology: Topology,
        shard: u16,
        index: usize,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        let mut log = Log::new(index, topology.replicas(shard).len());
        if options.mutants.has(Mutant::ForgetRecovery) {
            log = log.with_mutants(replication::Mutant::TrustMemory.into());
        }
        Replica {
            log,
            machine: Machine::new(topology.seed, options.claims),
            topology,
            shard,
            index,
            incarnation,
            options,
            leader: None,
        }
    }

    /// The bytes that its store occupies, about.
    pub fn memory(&self) -> usize {
        self.machine.store().memory()
    }

    /// What it holds.
    pub(crate) fn holdings(&self, cache: Option<Cache>) -> Holdings {
        caching::holdings(self.machine.store(), cache)
    }

    /// Adds what its process is to do, if it leads.
    pub(crate) fn add_chores(
        &self,
        cache: Option<Cache>,
        now_millis: u64,
        random: &mut Rng,
        maintenance: &mut Vec<MaintenanceTask>,
    ) {
        if self.is_leader() {
            caching::add_chores(self.machine.store(), cache, (now_millis, 0), random, maintenance);
        }
    }

    /// Tracks the use of keys, or no more.
    pub(crate) fn track(&mut self, tracked: Option<Tracked>) {
        self.machine.track(tracked);
    }

    /// Which shard it holds.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// True while it leads its shard and has applied what came before.
    pub fn is_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// The highest term it has seen.
    pub fn term(&self) -> u64 {
        self.log.term()
    }

    /// True while it does not vote because it may have forgotten what it said.
    pub fn is_forgetful(&self) -> bool {
        self.log.is_forgetful()
    }

    /// Which keys transactions meet on, since it leads; none while it does not.
    pub fn contention(&self) -> Option<&ContentionStats> {
        self.leader.as_ref().map(|leader| &leader.locks.contention)
    }

    /// Forgets which.
    pub fn reset_contention(&mut self) {
        if let Some(leader) = &mut self.leader {
            leader.locks.contention.reset();
        }
    }

    /// How many transactions it has voted for that are undecided.
    pub fn prepared(&self) -> usize {
        self.machine.prepared().len()
    }

    /// Every transaction that it knows to have ended and that somebody may still ask for; with `Options::claims`, every
    /// commit of this life.
    pub fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_ {
        self.machine.committed().iter().map(|(id, outcome)| {
            let decided = match outcome {
                Outcome::Committed { at, part } => {
                    let stamp = Stamp { at: *at, transaction: *id };
                    Decided::Committed { stamp, effects: part.effects() }
                }
                Outcome::Aborted => Decided::Aborted,
            };
            (*id, decided)
        })
    }

    pub(super) fn on_input(
        &mut self,
        now: Now,
        input: Input<'_, Node>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        match input {
            Input::Snapshot(chunk) => {
                let outcome = self.recover_chunk(chunk);
                debug_assert!(outcome.is_ok(), "checkpoints are checksummed");
            }
            Input::Recover(bytes) => {
                let change = Recovering::decode(&mut Reader::new(bytes));
                let outcome = change.and_then(|change| self.log.recover(change, &mut self.machine));
                debug_assert!(outcome.is_ok(), "log records are checksummed");
            }
            Input::Recovered { complete } => {
                let members = self.topology.replicas(self.shard);
                let port = &mut Wires { out, members, durability: self.options.durability };
                self.log.recovered(self.incarnation, complete, port);
                self.arm_tick(now, random, out);
                self.arm_suspicion(now, random, out);
            }
            Input::Message { from, message } => {
                let step = &mut Step { now, random, out };
                self.on_message(from.address(), message, step);
            }
            Input::Timer(Timer::Tick) => {
                let members = self.topology.replicas(self.shard);
                let port = &mut Wires { out, members, durability: self.options.durability };
                self.log.tick(now.instant, port);
                self.arm_tick(now, random, out);
            }
            Input::Timer(Timer::Suspicion) => {
                self.on_suspicion(&mut Step { now, random, out });
                self.arm_suspicion(now, random, out);
            }
            Input::Timer(_) | Input::PeerStarted { .. } => {}
            Input::Request { id, .. } => {
                out.reply(id).error(&types::Error::err("requests go to a coordinator, not to a replica"));
            }
        }
    }

    fn arm_tick(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let wait = self.log.pace(self.options.tick, random);
        out.arm(Timer::Tick, now.instant + wait);
    }

    fn arm_suspicion(&self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let quarter = (self.options.prepared_timeout.as_micros() as u64 / 4).max(1);
        out.arm(Timer::Suspicion, now.instant + Duration::from_micros(quarter + random.u64(0..=quarter)));
    }

    /// After the inputs of a step: lets the log write, send and apply, and answers what that decided, until nothing
    /// more comes of it.
    pub(super) fn turn(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let step = &mut Step { now, random, out };
        loop {
            let members = self.topology.replicas(self.shard);
            let port = &mut Wires { out: step.out, members, durability: self.options.durability };
            let news = self.log.settle(now.instant, &mut self.machine, port);
            let events = self.machine.take_events();
            self.follow_term(now.instant);
            if events.is_empty() && news.confirmed.is_empty() {
                return;
            }
            for event in events {
                self.on_event(event, step);
            }
            for context in news.confirmed {
                let Some(leader) = &mut self.leader else { continue };
                if let Some((to, answer)) = leader.confirmed(context) {
                    step.out.send(to, answer);
                }
            }
            if let Some(leader) = &mut self.leader {
                let waiting = std::mem::take(&mut leader.waiting);
                self.ask_again(waiting, step);
            }
            self.wake(step);
        }
    }

    /// A leader lasts for a term.
    fn follow_term(&mut self, now: Instant) {
        let serving = self.log.serving();
        if self.leader.as_ref().map(|leader| leader.term) == serving {
            return;
        }
        let topology = &self.topology;
        let coordinator = |id: TransactionId| topology.coordinator(id.process);
        let locks = || LockTable::new(self.options.locks, self.options.mutants);
        self.leader = serving.map(|term| Leader::new(term, locks(), &self.machine, coordinator, now));
    }

    /// The replica has applied an entry and answers the node that asked for it.
    fn on_event(&mut self, event: Event, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        match event {
            Event::Prepared(id) => {
                let Some(prepared) = self.machine.prepared().get(&id) else { return };
                leader.advance(id, Stage::Prepared { part: prepared.part.clone() }, step.now.instant);
                match leader.open.get(&id) {
                    Some(open) if open.given_up => self.abort(id, step.now.instant),
                    Some(open) => {
                        let (coordinator, collector) = (open.coordinator, open.collector);
                        self.tell_vote(id, prepared.at, coordinator, collector, step);
                    }
                    None => {}
                }
            }
            Event::Ended(id) => {
                let outcome = self.machine.outcomes().get(&id);
                let took_effect = matches!(outcome, Some(Outcome::Committed { .. }));
                let (answer, held) = leader.unapplied.applied(id, took_effect);
                for (to, answer) in held {
                    step.out.send(to, answer);
                }
                let Some(open) = leader.forget(id) else { return };
                if let Some(answer) = answer {
                    return step.out.send(open.coordinator, answer);
                }
                if let Some(at) = outcome.map(Outcome::at) {
                    if let Some(known) = self.known(id) {
                        step.out.send(open.coordinator, known);
                    }
                    for (_, voter) in open.votes.values() {
                        step.out.send(*voter, Message::Decide { transaction: id, floor: 0, at });
                    }
                }
            }
        }
    }

    fn on_message(&mut self, from: Address, message: Message, step: &mut Step<'_, '_>) {
        match message {
            Message::Log { message } => {
                let Some((shard, member)) = self.topology.find(from) else { return };
                if shard == self.shard {
                    let members = self.topology.replicas(self.shard);
                    let port = &mut Wires { out: step.out, members, durability: self.options.durability };
                    self.log.on_message(step.now.instant, member, message, &mut self.machine, port);
                }
            }
            Message::Run { transaction, age, floor, term, step: index, calls, last }
                if self.options.concurrency == Concurrency::Unlocked =>
            {
                let one = Single { transaction, age, floor, term, index, calls, last };
                self.on_run(from, one, step);
            }
            Message::Execute { transaction, .. }
            | Message::Run { transaction, .. }
            | Message::KeysetRead { transaction, .. }
            | Message::Prepare { transaction, .. } => {
                if let Some(leader) = &mut self.leader {
                    leader.heard(transaction, step.now.instant);
                }
                self.ask(from, transaction, message, step);
                self.wake(step);
            }
            Message::Vote { transaction, at, voter } => {
                self.on_vote(from, transaction, (at, voter), step);
                self.wake(step);
            }
            Message::Refused { transaction, .. } => {
                self.on_refusal(from, transaction);
                self.wake(step);
            }
            Message::Alive { transaction } => {
                let Some(leader) = &mut self.leader else { return };
                leader.heard(transaction, step.now.instant);
                if let Some(key) = leader.locks.wanted_from(transaction).map(Into::into) {
                    step.out.send(from, Message::Wanted { transaction, key });
                }
            }
            Message::Waits { transaction, waits } => {
                if let Some(leader) = &mut self.leader {
                    leader.locks.set_waiting_elsewhere(transaction, waits);
                    self.wake(step);
                }
            }
            Message::Decide { transaction, floor, at } => {
                self.on_decide(from, transaction, floor, at, step);
                self.wake(step);
            }
            Message::OutcomeQuery { transaction } => self.on_inquire(from, transaction, step),
            Message::Count { transaction } => {
                let keys = self.machine.store().len() as u64;
                step.out.send(from, Message::CountReply { transaction, keys });
            }
            Message::Scan { transaction, cursor, count, now_millis } => {
                let (cursor, keys) = self.scan(cursor, count, now_millis);
                step.out.send(from, Message::ScanReply { transaction, cursor, keys });
            }
            Message::Draw { transaction, except, now_millis } => {
                let (keys, key) = draw_from(self.machine.store(), &except, now_millis, step.random);
                step.out.send(from, Message::DrawReply { transaction, keys, key });
            }
            _ => {}
        }
    }

    fn scan(&self, mut cursor: u64, count: u32, now_millis: u64) -> (u64, Vec<Box<[u8]>>) {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        for _ in 0..count.max(1).saturating_mul(10) {
            cursor = self.machine.store().scan(cursor, |key, record| {
                if !record.cell().is_expired(now_millis) {
                    keys.push(key.into());
                }
            });
            if cursor == 0 || keys.len() >= count as usize {
                break;
            }
        }
        (cursor, keys)
    }

    /// A question of a coordinator, or one that waited for a lock.
    fn ask(&mut self, from: Address, id: TransactionId, message: Message, step: &mut Step<'_, '_>) {
        if self.leader.is_none() {
            return match message {
                Message::Execute { anywhere: true, .. } => self.look(from, &message, step),
                _ => self.redirect(from, id, step),
            };
        }
        if let Some(known) = self.known(id) {
            return step.out.send(from, known);
        }
        if self.machine.is_over(id) {
            return;
        }
        match message {
            Message::Execute { .. } => self.on_execute(from, message, step),
            Message::Run { transaction, age, floor, term, step: index, calls, last } => {
                let one = Single { transaction, age, floor, term, index, calls, last };
                self.on_single(from, one, step);
            }
            Message::KeysetRead { .. } => self.on_look(from, message, step),
            Message::Prepare { transaction, age, floor, term, read_only, collector, voted, span, part } => {
                let vote_request =
                    VoteRequest { transaction, age, floor, term, read_only, collector, voted, span, part };
                self.on_prepare(from, vote_request, step);
            }
            _ => {}
        }
    }

    pub(super) fn redirect(&self, to: Address, transaction: TransactionId, step: &mut Step<'_, '_>) {
        let (leader, term) = (self.log.leader(), self.log.term());
        step.out.send(to, Message::Redirect { transaction, leader, term });
    }

    fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            let piece = reader.bytes()?;
            match piece.split_first() {
                Some((0, log)) => self.log.restore(log, &mut self.machine)?,
                Some((1, state)) => log::Application::restore(&mut self.machine, state)?,
                _ => return Err(Malformed("checkpoint piece")),
            }
        }
        Ok(())
    }

    /// See [`protocol::Protocol::checkpoint`]: the log's part and the tables at one moment, then the store. Entries
    /// that are applied meanwhile come again from the log, and change nothing that already has them.
    pub(super) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let mut piece = Vec::new();
        if cursor == 0 {
            self.log.begin_checkpoint();
            piece.push(0);
            self.log.save(&mut piece);
            types::put_bytes(chunk, &piece);
            piece.clear();
        }
        piece.push(1);
        let next = log::Application::save(&mut self.machine, cursor, &mut piece);
        types::put_bytes(chunk, &piece);
        next
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("shard", &self.shard)
            .field("log", &self.log)
            .field("leader", &self.leader)
            .field("prepared", &self.machine.prepared().len())
            .finish_non_exhaustive()
    }
}
