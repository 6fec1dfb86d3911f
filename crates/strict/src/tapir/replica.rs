//! A TAPIR replica: reads, IR below, and the suspicion of coordinators that do not come back.

use super::message::{Message, Timer};
use super::node::Node;
use super::operation::{Decision, Transactions};
use super::options::Options;
use super::record::{self, Record};
use super::recovery::{Recovery, Verdict};
use super::shard::{Question, Shard};
use crate::ir::{self, Change, Port, Status};
use crate::{Decided, Mutant, Topology};
use commit::Stamp;
use protocol::{Encode, Input, Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Incarnation, Instant, Malformed, NodeId, Reader, ReplyBuf, Rng, TransactionId};

/// About how many bytes a piece of a checkpoint has.
const CHUNK_BYTES: usize = 64 * 1024;

/// See the module's documentation.
pub struct Replica {
    topology: Topology,
    shard: u16,
    incarnation: Incarnation,
    options: Options,
    ir: ir::Replica<Transactions>,
    state: Shard,
    /// Since when each prepared transaction is known to be, for suspicion.
    prepared_since: BTreeMap<TransactionId, Instant>,
    recoveries: BTreeMap<TransactionId, Recovery>,
    /// The highest round of a coordinator view heard of, where it stood in the way.
    rounds: BTreeMap<TransactionId, u32>,
    suspicions: u64,
    /// How far a checkpoint in progress goes.
    checkpoint_to: u64,
}

/// IR speaks through the outputs of the step.
struct Wires<'w, 'o> {
    out: &'w mut Outputs<'o, Node>,
    options: &'w Options,
    now: Instant,
}

impl Port<Transactions> for Wires<'_, '_> {
    fn send(&mut self, to: Address, message: ir::Message<Transactions>) {
        self.out.send(to, Message::Ir { message });
    }

    fn persist(&mut self, change: &Change<'_, Transactions>) {
        if self.options.durability > protocol::Durability::Volatile {
            let record = match change {
                Change::Group { id, group } => Change::Group { id: *id, group },
                Change::View { view, last_normal } => Change::View { view: *view, last_normal: *last_normal },
                Change::Record { view, first, groups } => {
                    Change::Record { view: *view, first: *first, groups }
                }
            };
            self.out.persist(&Record(record), self.options.durability);
        }
    }

    fn arm_view_timer(&mut self, after: Duration) {
        self.out.arm(Timer::View, self.now + after);
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
            ir: ir::Replica::new(topology.replicas(shard).to_vec(), index, options.mutants),
            state: Shard::new(topology.seed, options.mutants),
            topology,
            shard,
            incarnation,
            options,
            prepared_since: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            rounds: BTreeMap::new(),
            suspicions: 0,
            checkpoint_to: 0,
        }
    }

    /// Which shard it holds.
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// What it does at present.
    pub fn status(&self) -> Status {
        self.ir.status()
    }

    /// The highest view it has entered.
    pub fn view(&self) -> u64 {
        self.ir.view()
    }

    /// How many transactions it holds prepared and undecided.
    pub fn prepared(&self) -> usize {
        self.state.prepared().len()
    }

    /// The newest state of a key, in its binary form, for comparisons.
    pub fn cell(&self, key: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.state.store().cell(self.state.store().hash(key), key, 0).encode(&mut bytes);
        bytes
    }

    /// Every transaction that it knows to have ended, so that checkers can resolve unknown outcomes.
    pub fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_ {
        self.ir.groups().iter().filter_map(|(id, group)| {
            let decided = match group.outcome.as_ref()? {
                Decision::Commit { at, part } => {
                    let effect =
                        |invoked: &super::Invoked| Some((invoked.key.clone(), invoked.effect.clone()?));
                    let effects = part.invocations.iter().filter_map(effect).collect();
                    Decided::Committed { stamp: Stamp { at: *at, transaction: *id }, effects }
                }
                Decision::Abort => Decided::Aborted,
            };
            Some((*id, decided))
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
                let outcome = record::decode(&mut Reader::new(bytes));
                debug_assert!(outcome.is_ok(), "log records are checksummed");
                if let Ok(change) = outcome {
                    self.ir.recover(change);
                }
            }
            Input::Recovered { complete } => {
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.recovered(self.incarnation, complete, &mut self.state, &mut port);
                self.arm_suspicion(now, random, out);
            }
            Input::Message { from, message } => self.on_message(now, from, message, random, out),
            Input::Timer(Timer::View) => {
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.on_view_timer(&mut port);
            }
            Input::Timer(Timer::Suspicion) => {
                self.on_suspicion(now, out);
                self.arm_suspicion(now, random, out);
            }
            Input::Timer(_) | Input::PeerStarted { .. } => {}
            Input::Request { id, .. } => {
                out.reply(id).error(&types::Error::err("requests go to a coordinator, not to a replica"));
            }
        }
    }

    fn on_message(
        &mut self,
        now: Now,
        from: NodeId,
        message: Message,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        match message {
            Message::Read { transaction, step, key, operation, own, now_millis } => {
                let question =
                    Question { transaction, key: &key, operation: &operation, own: &own, now_millis };
                self.on_read(from, step, &question, random, out);
            }
            Message::Check { transaction, part } if self.ir.status() == Status::Normal => {
                let (vote, hint) = self.state.check(transaction, &part);
                let view = self.ir.view();
                out.send(from.address(), Message::CheckReply { transaction, view, vote, hint });
            }
            Message::Count { transaction } if self.ir.status() == Status::Normal => {
                let keys = self.state.store().len() as u64;
                out.send(from.address(), Message::CountReply { transaction, keys });
            }
            Message::Scan { transaction, cursor, count, now_millis }
                if self.ir.status() == Status::Normal =>
            {
                let (cursor, keys) = self.scan(cursor, count, now_millis);
                out.send(from.address(), Message::ScanReply { transaction, cursor, keys });
            }
            Message::Suspect { transaction, participants } => {
                self.recover(now, transaction, participants, out)
            }
            Message::Ir { message } => self.on_ir(now, from, message, out),
            _ => {}
        }
    }

    fn on_read(
        &mut self,
        from: NodeId,
        step: u32,
        question: &Question<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        if self.ir.status() != Status::Normal {
            return;
        }
        if let Ok(evaluation) = self.state.read(question, random) {
            let (transaction, view) = (question.transaction, self.ir.view());
            out.send(from.address(), Message::ReadReply { transaction, step, view, evaluation });
        }
    }

    fn scan(&self, mut cursor: u64, count: u32, now_millis: u64) -> (u64, Vec<Box<[u8]>>) {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        for _ in 0..count.max(1).saturating_mul(10) {
            cursor = self.state.store().scan(cursor, |key, record| {
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

    /// Answers to a recovery are its own; everything else is for the IR replica.
    fn on_ir(
        &mut self,
        now: Now,
        from: NodeId,
        message: ir::Message<Transactions>,
        out: &mut Outputs<'_, Node>,
    ) {
        let place = self.topology.find(from.address());
        match (message, place) {
            (ir::Message::CoordinatorPromise { group, ballot, view, entry }, Some((shard, member))) => {
                let Some(recovery) = self.recoveries.get_mut(&group) else { return };
                recovery.promise(shard, member, ballot, view, entry);
                self.carry_on(group, out);
            }
            (ir::Message::Confirm { group, attempt, view, ballot, result }, Some((shard, member))) => {
                let Some(recovery) = self.recoveries.get_mut(&group) else { return };
                recovery.confirm(shard, member, ballot, view, attempt, result);
                self.carry_on(group, out);
            }
            (ir::Message::Outcome { group, operation }, Some((shard, _))) => {
                let Some(recovery) = self.recoveries.get_mut(&group) else { return };
                recovery.outcome(shard, operation);
                self.carry_on(group, out);
            }
            (ir::Message::Superseded { group, promised }, _) => {
                if self.recoveries.get(&group).is_some_and(|recovery| recovery.ballot() < promised) {
                    self.recoveries.remove(&group);
                    self.rounds.insert(group, promised.round);
                }
            }
            (message, _) => {
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.on_message(from, message, &mut self.state, &mut port);
            }
        }
    }

    fn arm_suspicion(&self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let quarter = (self.options.prepared_timeout.as_micros() as u64 / 4).max(1);
        let wait = Duration::from_micros(quarter + random.u64(0..=quarter));
        out.arm(Timer::Suspicion, now.instant + wait);
    }

    /// Starts the recovery of transactions that have been prepared for too long, and gives up recoveries that do
    /// not come on, to be started again under a higher coordinator view.
    fn on_suspicion(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let timeout = self.options.prepared_timeout;
        self.recoveries.retain(|_, recovery| now.instant - recovery.started() < timeout);
        if self.ir.status() != Status::Normal {
            return;
        }
        let prepared = self.state.prepared();
        self.prepared_since.retain(|id, _| prepared.contains_key(id));
        self.rounds.retain(|id, _| prepared.contains_key(id));
        let mut overdue = Vec::new();
        for (id, operation) in prepared {
            let since = self.prepared_since.entry(*id).or_insert(now.instant);
            if now.instant - *since >= timeout {
                *since = now.instant;
                overdue.push((*id, operation.part.participants.clone()));
            }
        }
        for (id, participants) in overdue {
            self.suspect(now, id, participants, out);
        }
    }

    /// Takes the recovery on if this replica is a backup coordinator of the transaction, else asks one that is.
    fn suspect(
        &mut self,
        now: Now,
        transaction: TransactionId,
        participants: Vec<u16>,
        out: &mut Outputs<'_, Node>,
    ) {
        self.suspicions += 1;
        let Some(first) = participants.first().copied() else { return };
        if first == self.shard {
            return self.recover(now, transaction, participants, out);
        }
        let backups = self.topology.replicas(first);
        if let Some(backup) = backups.get(self.suspicions as usize % backups.len().max(1)) {
            out.send(*backup, Message::Suspect { transaction, participants });
        }
    }

    fn recover(
        &mut self,
        now: Now,
        transaction: TransactionId,
        participants: Vec<u16>,
        out: &mut Outputs<'_, Node>,
    ) {
        let known = participants.iter().all(|shard| !self.topology.replicas(*shard).is_empty());
        let backup = known && participants.first() == Some(&self.shard);
        if !backup || self.ir.status() != Status::Normal || self.recoveries.contains_key(&transaction) {
            return;
        }
        let promised = self.ir.groups().get(&transaction).map_or(0, |group| group.promised.round);
        let round = promised.max(self.rounds.get(&transaction).copied().unwrap_or(0)) + 1;
        self.rounds.insert(transaction, round);
        let process = self.topology.replicas(self.shard)[self.ir.me()].process;
        let ballot = ir::CoordinatorView { round, process, incarnation: self.incarnation };
        let recovery = Recovery::new(transaction, ballot, &participants, &self.topology, now.instant);
        for shard in participants {
            let message = ir::Message::CoordinatorChange { group: transaction, ballot, view: 0 };
            self.tell(shard, message, out);
        }
        self.recoveries.insert(transaction, recovery);
    }

    fn tell(&self, shard: u16, message: ir::Message<Transactions>, out: &mut Outputs<'_, Node>) {
        for replica in self.topology.replicas(shard) {
            out.send(*replica, Message::Ir { message: message.clone() });
        }
    }

    /// Takes the next step of a recovery that learned something.
    fn carry_on(&mut self, group: TransactionId, out: &mut Outputs<'_, Node>) {
        let Some(recovery) = self.recoveries.get_mut(&group) else { return };
        let raw = self.options.mutants.has(Mutant::RawPollDecides);
        match recovery.next(raw) {
            Verdict::Wait => {}
            Verdict::Finalize(messages) => {
                for (shard, message) in messages {
                    self.tell(shard, message, out);
                }
            }
            Verdict::Decided(decisions) => {
                self.recoveries.remove(&group);
                for (shard, operation) in decisions {
                    self.tell(shard, ir::Message::Execute { group, operation }, out);
                }
            }
        }
    }

    fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            let change = record::decode(&mut Reader::new(reader.bytes()?))?;
            self.ir.recover(change);
        }
        Ok(())
    }

    /// See [`protocol::Protocol::checkpoint`]: the view, then the record's groups in the order of their changes.
    /// What changes meanwhile comes again from the log, with a higher revision.
    pub(super) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let mut bytes = Vec::new();
        let mut put = |record: Record<'_>| {
            bytes.clear();
            record.encode(&mut bytes);
            types::put_bytes(chunk, &bytes);
            chunk.len() >= CHUNK_BYTES
        };
        if cursor == 0 {
            self.checkpoint_to = self.ir.revision();
            let (view, last_normal) = (self.ir.view(), self.ir.last_normal());
            put(Record(Change::View { view, last_normal }));
        }
        for (id, group) in self.ir.since(cursor) {
            if group.revision > self.checkpoint_to {
                return None;
            }
            if put(Record(Change::Group { id, group })) {
                return Some(group.revision + 1);
            }
        }
        None
    }

    /// The result of an operation on the newest state; for tests that compare replicas.
    pub fn peek(&mut self, key: &[u8], operation: &datatypes::Operation<'_>, random: &mut Rng) -> ReplyBuf {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        let transaction = TransactionId::default();
        let question = Question { transaction, key, operation: &bytes, own: &[], now_millis: 0 };
        self.state.read(&question, random).map(|evaluation| evaluation.result).unwrap_or_default()
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Everything that changes: model checking takes two replicas that print alike for the same.
        f.debug_struct("Replica")
            .field("shard", &self.shard)
            .field("incarnation", &self.incarnation)
            .field("ir", &self.ir)
            .field("state", &self.state)
            .field("prepared_since", &self.prepared_since)
            .field("recoveries", &self.recoveries)
            .field("rounds", &self.rounds)
            .field("suspicions", &self.suspicions)
            .finish_non_exhaustive()
    }
}
