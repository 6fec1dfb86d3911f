//! A replica of a shard: the log, the machine that it drives, and, in one term of one replica, the leader.

use super::leader::{Leader, Stage, mode_of};
use super::machine::{Entry, Event, Machine, Outcome, Question};
use super::message::{Message, Span, Timer};
use super::node::Node;
use super::options::{Concurrency, Options};
use super::record::Record;
use crate::log::{self, Change, Log, Port, Recovering};
use crate::{Decided, KeyedEffects, Mutant, Part, Topology};
use commit::Stamp;
use datatypes::Operation;
use protocol::{Durability, Input, Now, Outputs};
use std::sync::Arc;
use std::time::Duration;
use types::{
    Address, Incarnation, Instant, Malformed, Reader, Rng, Timestamp, TransactionId, WallTime, Wire,
};

/// See the module.
pub struct Replica {
    topology: Topology,
    shard: u16,
    incarnation: Incarnation,
    options: Options,
    log: Log,
    machine: Machine,
    leader: Option<Leader>,
}

/// What a handler works with beside the replica.
struct Step<'s, 'o> {
    now: Now,
    random: &'s mut Rng,
    out: &'s mut Outputs<'o, Node>,
}

/// A vote that is asked for.
struct Ballot {
    transaction: TransactionId,
    age: Stamp,
    floor: u64,
    term: u64,
    read_only: bool,
    span: Span,
    part: Part,
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
        Replica {
            log: Log::new(index, topology.replicas(shard).len(), options.mutants),
            machine: Machine::new(topology.seed, options.claims),
            topology,
            shard,
            incarnation,
            options,
            leader: None,
        }
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
                    let effects: KeyedEffects = part
                        .invocations
                        .iter()
                        .filter_map(|invoked| Some((invoked.key.clone(), invoked.effect.clone()?)))
                        .collect();
                    Decided::Committed { stamp: Stamp { at: *at, transaction: *id }, effects }
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
                if let Some((to, answer)) = leader.confirming.remove(&context) {
                    step.out.send(to, answer);
                }
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
        self.leader = serving.map(|term| Leader::new(term, &self.machine, coordinator, now));
    }

    /// An entry was applied: whoever asked for it hears of it.
    fn on_event(&mut self, event: Event, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        match event {
            Event::Prepared(id) => {
                let Some(prepared) = self.machine.prepared().get(&id) else { return };
                leader.advance(id, Stage::Prepared { part: prepared.part.clone() }, step.now.instant);
                if let Some(open) = leader.open.get(&id) {
                    step.out.send(open.coordinator, Message::Prepared { transaction: id, at: prepared.at });
                }
            }
            Event::Ended(id) => {
                let outcome = self.machine.outcomes().get(&id);
                let coordinator = leader.forget(id).map(|open| open.coordinator);
                if let (Some(to), Some(outcome)) = (coordinator, outcome) {
                    step.out.send(to, Message::Ended { transaction: id, at: outcome.at() });
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
            Message::Execute { transaction, .. } | Message::Prepare { transaction, .. } => {
                if let Some(leader) = &mut self.leader {
                    leader.heard(transaction, step.now.instant);
                }
                self.ask(from, transaction, message, step);
                self.wake(step);
            }
            Message::Decide { transaction, floor, at } => {
                self.on_decide(from, transaction, floor, at, step);
                self.wake(step);
            }
            Message::Inquire { transaction } => self.on_inquire(from, transaction, step),
            Message::Count { transaction } => {
                let keys = self.machine.store().len() as u64;
                step.out.send(from, Message::CountReply { transaction, keys });
            }
            Message::Scan { transaction, cursor, count, now_millis } => {
                let (cursor, keys) = self.scan(cursor, count, now_millis);
                step.out.send(from, Message::ScanReply { transaction, cursor, keys });
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
            return self.redirect(from, id, step);
        }
        if let Some(outcome) = self.machine.outcomes().get(&id) {
            return step.out.send(from, Message::Ended { transaction: id, at: outcome.at() });
        }
        if self.machine.is_over(id) {
            return;
        }
        match message {
            Message::Execute { .. } => self.on_execute(from, message, step),
            Message::Prepare { transaction, age, floor, term, read_only, span, part } => {
                let ballot = Ballot { transaction, age, floor, term, read_only, span, part };
                self.on_prepare(from, ballot, step);
            }
            _ => {}
        }
    }

    fn redirect(&self, to: Address, transaction: TransactionId, step: &mut Step<'_, '_>) {
        let (leader, term) = (self.log.leader(), self.log.term());
        step.out.send(to, Message::Redirect { transaction, leader, term });
    }

    /// Locks, where locks are used, and evaluates.
    fn on_execute(&mut self, from: Address, message: Message, step: &mut Step<'_, '_>) {
        let Message::Execute {
            transaction: id,
            age,
            step: index,
            key,
            operation,
            blind,
            alone,
            own,
            now_millis,
        } = &message
        else {
            return;
        };
        let Some(leader) = &mut self.leader else { return };
        let Ok(decoded) = Operation::decode(&mut Reader::new(operation)) else { return };
        let expired = self.machine.is_expired(key, *now_millis);
        if leader.is_closed(*id) {
            return step.out.send(from, Message::Refused { transaction: *id, key: Some(key.clone()) });
        }
        match self.options.concurrency {
            Concurrency::Locking => {
                let mode = mode_of(&decoded, *blind, expired);
                let open = leader.open(*id, from, step.now.instant);
                if !matches!(open.stage, Stage::Executing) {
                    return;
                }
                if !leader.locks.lock(*id, *age, key, mode) {
                    return self.block(*id, message, step);
                }
            }
            Concurrency::Optimistic if *alone && leader.is_undecided(*id, key, &decoded) => {
                return step.out.send(from, Message::Refused { transaction: *id, key: Some(key.clone()) });
            }
            Concurrency::Optimistic => {}
        }
        let question = Question { key, operation: &decoded, own, now_millis: *now_millis };
        let Ok(evaluation) = self.machine.evaluate(&question, step.random) else { return };
        let over = *alone && !evaluation.expired && evaluation.effect.is_none();
        let term = leader.term;
        let answer = Message::Executed { transaction: *id, step: *index, term, evaluation };
        if !over {
            return step.out.send(from, answer);
        }
        leader.forget(*id);
        self.answer_confirmed(from, answer, step);
    }

    /// Sends an answer that is true only if this replica still leads.
    fn answer_confirmed(&mut self, to: Address, answer: Message, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        if self.options.mutants.has(Mutant::UnconfirmedReads) {
            return step.out.send(to, answer);
        }
        let context = leader.hold_until_confirmed(to, answer);
        self.log.confirm(context);
    }

    /// The question waits until locks are freed.
    fn block(&mut self, id: TransactionId, message: Message, step: &mut Step<'_, '_>) {
        if let Some(leader) = &mut self.leader
            && let Some(open) = leader.open.get_mut(&id)
            && !open.blocked.contains(&message)
        {
            open.blocked.push(message);
        }
        self.tell_wounded(step);
    }

    fn tell_wounded(&mut self, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        for (id, key) in leader.locks.take_wounded() {
            if let Some(open) = leader.close(id) {
                step.out.send(open.coordinator, Message::Refused { transaction: id, key: Some(key) });
            }
        }
    }

    /// Lets those go on that waited for what has been freed.
    fn wake(&mut self, step: &mut Step<'_, '_>) {
        loop {
            self.tell_wounded(step);
            let Some(leader) = &mut self.leader else { return };
            let ready = leader.locks.take_ready();
            if ready.is_empty() {
                return;
            }
            for id in ready {
                let Some(leader) = &mut self.leader else { return };
                let Some(open) = leader.open.get_mut(&id) else { continue };
                let (from, blocked) = (open.coordinator, std::mem::take(&mut open.blocked));
                for message in blocked {
                    self.ask(from, id, message, step);
                }
            }
        }
    }

    fn on_prepare(&mut self, from: Address, ballot: Ballot, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let id = ballot.transaction;
        leader.raise_floor(id, ballot.floor);
        if ballot.term > leader.term || ballot.term == 0 {
            return self.redirect(from, id, step);
        }
        if let Some(prepared) = self.machine.prepared().get(&id) {
            return step.out.send(from, Message::Prepared { transaction: id, at: prepared.at });
        }
        let in_progress = leader.open.get(&id).is_some_and(|open| !matches!(open.stage, Stage::Executing));
        if in_progress {
            return;
        }
        if ballot.term == leader.term && leader.has_read(id) {
            return self.answer_confirmed(
                from,
                Message::Prepared { transaction: id, at: Timestamp::ZERO },
                step,
            );
        }
        let trusting = self.options.mutants.has(Mutant::UnprotectedReads);
        if ballot.term < leader.term || (leader.is_closed(id) && !trusting) {
            return self.refuse(from, id, None, step);
        }
        let judged = match self.options.concurrency {
            Concurrency::Locking => {
                leader.open(id, from, step.now.instant);
                leader.lock_part(id, ballot.age, &ballot.part, trusting)
            }
            Concurrency::Optimistic if self.options.mutants.has(Mutant::SkipValidation) => Some(Ok(())),
            Concurrency::Optimistic => Some(leader.validate_part(id, &ballot.part, &self.machine)),
        };
        match judged {
            Some(Ok(())) => self.vote(from, ballot, step),
            Some(Err(key)) => self.refuse(from, id, Some(key), step),
            None => {
                let Ballot { transaction, age, floor, term, read_only, span, part } = ballot;
                let message = Message::Prepare { transaction, age, floor, term, read_only, span, part };
                self.block(id, message, step);
            }
        }
    }

    /// Nothing stands in the way: the vote goes into the log, or with it the decision where nobody else votes.
    fn vote(&mut self, from: Address, ballot: Ballot, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let Ballot { transaction, floor, part, read_only, span, .. } = ballot;
        if read_only {
            // Everything was read before this question was sent, and is unchanged now: it was all true at once.
            leader.close_read(transaction);
            let answer = Message::Prepared { transaction, at: Timestamp::ZERO };
            return self.answer_confirmed(from, answer, step);
        }
        let not_before = Timestamp::from_wall(WallTime(span.from_millis.saturating_mul(1000)));
        let at = leader.timestamp(self.machine.latest().max(not_before), step.now.wall);
        if span.is_over(at) {
            return self.refuse(from, transaction, None, step);
        }
        let alone = part.participants.len() == 1;
        let held = Arc::new(part.clone());
        let entry = if alone {
            Entry::Commit { transaction, floor, at, part: Some(part) }
        } else {
            Entry::Prepare { transaction, floor, at, part }
        };
        if !self.propose(&entry) {
            return self.redirect(from, transaction, step);
        }
        let Some(leader) = &mut self.leader else { return };
        leader.open(transaction, from, step.now.instant);
        leader.locks.make_firm(transaction);
        leader.advance(transaction, Stage::Proposed { part: held }, step.now.instant);
        if self.options.mutants.has(Mutant::VoteBeforeLog) {
            let early = if alone {
                Message::Ended { transaction, at: Some(at) }
            } else {
                Message::Prepared { transaction, at }
            };
            step.out.send(from, early);
        }
    }

    fn propose(&mut self, entry: &Entry) -> bool {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.log.propose(bytes)
    }

    /// A no that stands: a repetition of the question gets it too.
    fn refuse(&mut self, to: Address, id: TransactionId, key: Option<Box<[u8]>>, step: &mut Step<'_, '_>) {
        if let Some(leader) = &mut self.leader {
            leader.close(id);
        }
        step.out.send(to, Message::Refused { transaction: id, key });
    }

    fn on_decide(
        &mut self,
        from: Address,
        id: TransactionId,
        floor: u64,
        at: Option<Timestamp>,
        step: &mut Step<'_, '_>,
    ) {
        let Some(leader) = &mut self.leader else { return self.redirect(from, id, step) };
        leader.raise_floor(id, floor);
        if let Some(outcome) = self.machine.outcomes().get(&id) {
            return step.out.send(from, Message::Ended { transaction: id, at: outcome.at() });
        }
        let Some(prepared) = self.machine.prepared().get(&id) else {
            let proposed = leader.open.get(&id).is_some_and(|open| !matches!(open.stage, Stage::Executing));
            if at.is_some() || proposed {
                return;
            }
            // It has not been voted for: nothing to undo, and a late question must not succeed.
            leader.close(id);
            return step.out.send(from, Message::Ended { transaction: id, at: None });
        };
        let deciding = leader.open.get(&id).is_some_and(|open| matches!(open.stage, Stage::Deciding { .. }));
        if deciding {
            return;
        }
        let part = prepared.part.clone();
        if self.topology.find(from).is_none() {
            leader.open(id, from, step.now.instant);
        }
        let entry = match at {
            Some(at) => Entry::Commit { transaction: id, floor, at, part: None },
            None => Entry::Abort { transaction: id, floor },
        };
        if self.propose(&entry)
            && let Some(leader) = &mut self.leader
        {
            leader.advance(id, Stage::Deciding { part }, step.now.instant);
        }
    }

    /// Another participant wants to know how a transaction ended of which this shard is the first participant.
    fn on_inquire(&mut self, from: Address, id: TransactionId, step: &mut Step<'_, '_>) {
        let Some(leader) = &self.leader else { return };
        let decision = |at| Message::Decide { transaction: id, floor: 0, at };
        if let Some(outcome) = self.machine.outcomes().get(&id) {
            step.out.send(from, decision(outcome.at()));
        } else if self.machine.is_over(id) {
            // Its coordinator has gone on without a decision, or everybody knows it.
            step.out.send(from, decision(None));
        } else if !leader.open.get(&id).is_some_and(|open| matches!(open.stage, Stage::Deciding { .. })) {
            self.abort(id, step.now.instant);
        }
    }

    /// Ends a transaction that this shard, its first participant, has not been told to commit.
    fn abort(&mut self, id: TransactionId, now: Instant) {
        let part = self.machine.prepared().get(&id).map(|prepared| prepared.part.clone());
        if self.propose(&Entry::Abort { transaction: id, floor: 0 })
            && let (Some(leader), Some(part)) = (&mut self.leader, part)
        {
            leader.advance(id, Stage::Deciding { part }, now);
        }
    }

    /// Asks for decisions that are overdue, and takes the locks of those that nobody speaks for.
    fn on_suspicion(&mut self, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let now = step.now.instant;
        let (mut overdue, mut silent) = (Vec::new(), Vec::new());
        for (id, open) in &mut leader.open {
            match &open.stage {
                Stage::Prepared { part } if now - open.since >= self.options.prepared_timeout => {
                    open.since = now;
                    overdue.push((*id, part.participants.first().copied()));
                }
                Stage::Executing if now - open.since >= self.options.lock_timeout => {
                    silent.push((*id, open.coordinator));
                }
                _ => {}
            }
        }
        for (id, coordinator) in silent {
            self.refuse(coordinator, id, None, step);
        }
        for (id, first) in overdue {
            match first {
                Some(first) if first != self.shard => {
                    for replica in self.topology.replicas(first) {
                        step.out.send(*replica, Message::Inquire { transaction: id });
                    }
                }
                _ => self.abort(id, now),
            }
        }
        self.wake(step);
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
        let next = log::Application::save(&self.machine, cursor, &mut piece);
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
