//! Requests to a strict keyspace of this process, and the partitions that it lends to transactions: the locks, the steps, the
//! log, the gate.

use crate::eviction::Evictor;
use crate::journal::Journal;
use crate::keyspace::{Keyspace, Locals, PartitionCell};
use crate::lapsed::LapsedKeys;
use crate::memory::Memory;
use gateway::Loan;
use parking_lot::MutexGuard;
use protocol::{ContextRequest, Gate, Input, KeyedOperation, NoReplies, Now, Replica, Replies, Request};
use std::sync::Arc;
use strict::solo::{Group, Lent, Record, Solo};
use types::{KeyspaceId, ReplyBuf, ReplySink, RequestId, Rng};

/// What a turn's requests came to.
pub(crate) struct Outcome {
    /// What the replies wait for.
    pub(crate) gate: Gate,
    /// The group up to which they tell of solo partitions, 0 if of nothing that the log lacks: what the log refuses of
    /// that is undone. All else waits until it heals.
    pub(crate) undoable: u64,
    /// They tell of solo partitions.
    pub(crate) is_solo: bool,
    /// The log refused what solo partitions did: the replies must not leave.
    pub(crate) refused: bool,
}

impl Outcome {
    /// No request came, and nothing waits.
    pub(crate) const NOTHING: Outcome =
        Outcome { gate: Gate::OPEN, undoable: 0, is_solo: false, refused: false };
}

/// Serves requests of one worker.
pub(crate) struct SoloCall<'c> {
    pub(crate) keyspace: &'c Keyspace,
    pub(crate) memory: &'c Memory,
    pub(crate) journal: Option<&'c Journal>,
    pub(crate) now: Now,
    pub(crate) random: &'c mut Rng,
    pub(crate) outcome: &'c mut Outcome,
    pub(crate) lapsed: &'c mut LapsedKeys,
}

impl SoloCall<'_> {
    /// Serves them in order; consecutive ones on the same partition are one step.
    pub(crate) fn serve(&mut self, requests: &mut Vec<(RequestId, Request<'_>)>, replies: &mut dyn Replies) {
        let count = self.keyspace.partitions.len();
        let mut batch: Vec<Input<'_, Solo>> = Vec::with_capacity(requests.len());
        let mut target = 0;
        for (id, request) in requests.drain(..) {
            match &request {
                Request::One { operation, .. } => {
                    let index = Group::index_of(operation.hash, count);
                    if index != target {
                        self.step(target, &mut batch, replies);
                        target = index;
                    }
                    batch.push(Input::Request { id, request });
                }
                _ => {
                    self.step(target, &mut batch, replies);
                    self.serve_over_all(id, &request, replies);
                }
            }
        }
        self.step(target, &mut batch, replies);
    }

    fn step(&mut self, index: usize, batch: &mut Vec<Input<'_, Solo>>, replies: &mut dyn Replies) {
        if batch.is_empty() {
            return;
        }
        let cell = &self.keyspace.partitions[index];
        let mut replica = cell.replica.lock();
        if let Some(journal) = self.journal {
            journal.fence(&mut replica);
        }
        self.lapsed.begin(&mut replica);
        replica.step(self.now, batch, self.random, replies);
        self.log(&mut [(cell, &mut replica)]);
        self.lapsed.end(self.keyspace.id, &mut replica, self.outcome.refused);
        self.count(cell, &mut replica);
    }

    /// Counts what a partition occupies, and lets keys go if it is a cache's and has more than its share.
    fn count(&mut self, cell: &Arc<PartitionCell>, replica: &mut Replica<Solo>) {
        cell.count(replica.protocol());
        if self.keyspace.share().is_some() {
            let (memory, journal, now) = (self.memory, self.journal, self.now);
            let mut evictor = Evictor { memory, journal, now, random: self.random, lapsed: self.lapsed };
            evictor.keep_share(self.keyspace, cell, replica);
        }
    }

    fn log(&mut self, partitions: &mut [(&Arc<PartitionCell>, &mut Replica<Solo>)]) {
        let Some(journal) = self.journal else { return };
        self.outcome.is_solo = true;
        self.outcome.refused |= !journal.append(partitions);
        for (_, replica) in partitions {
            let gate = replica.reply_gate();
            self.outcome.undoable = self.outcome.undoable.max(gate.written);
            self.outcome.gate = self.outcome.gate.and(gate);
        }
    }

    /// A request that may touch every partition.
    fn serve_over_all(&mut self, id: RequestId, request: &Request<'_>, replies: &mut dyn Replies) {
        let mut transactions = self.keyspace.transactions.lock();
        let mut guards = self.keyspace.lock_all();
        if let Some(journal) = self.journal {
            guards.iter_mut().for_each(|replica| journal.fence(replica));
        }
        guards.iter_mut().for_each(|replica| self.lapsed.begin(replica));
        let mut partitions: Vec<&mut Replica<Solo>> = guards.iter_mut().map(|guard| &mut **guard).collect();
        let mut group = Group::new(&mut partitions);
        let now = self.now;
        match request {
            Request::One { .. } => debug_assert!(false, "single operations are served by their partition"),
            Request::Many { session, steps, watched, .. } => {
                group.many(now, id, *session, steps, *watched, self.random, replies);
            }
            Request::Watch { session, keys } => group.watch(now, id, *session, keys, replies),
            Request::Unwatch { session } => {
                group.unwatch(*session);
                replies.reply(id).simple("OK");
            }
            Request::Begin { session, read_only, watched } => {
                transactions.begin(now, *session, *read_only, *watched, &mut group, replies.reply(id));
            }
            Request::Operate { session, steps } => {
                transactions.operate(id, *session, steps, &mut group, self.random, replies);
            }
            Request::Commit { session } => transactions.commit(now, id, *session, &mut group, replies),
            Request::Abort { session } => {
                transactions.abort(*session, &mut group);
                replies.reply(id).simple("OK");
            }
            Request::Context { .. } => replies.reply(id).error(&ContextRequest::refusal()),
            Request::Own { words, .. } => replies.reply(id).error(&Request::refused(words, "strict")),
            Request::Close { session } => {
                transactions.abort(*session, &mut group);
                group.unwatch(*session);
            }
        }
        self.log_all(&mut guards);
    }

    /// The transaction has ended that held these partitions: what it did `stays`, or never happened.
    pub(crate) fn give_back(&mut self, held: Vec<Held<'_>>, stays: bool) {
        let keyspace = self.keyspace;
        let settle = |Held { index, mut replica, lent }| {
            match stays {
                true => lent.keep(&mut replica),
                false => lent.take_back(&mut replica),
            }
            (&keyspace.partitions[index], replica)
        };
        let mut held: Vec<(&Arc<PartitionCell>, MutexGuard<'_, Replica<Solo>>)> =
            held.into_iter().map(settle).collect();
        let mut partitions: Vec<_> = held.iter_mut().map(|(cell, replica)| (*cell, &mut **replica)).collect();
        self.log(&mut partitions);
        for (cell, replica) in &mut held {
            self.lapsed.end(keyspace.id, replica, self.outcome.refused);
            self.count(cell, replica);
        }
    }

    fn log_all(&mut self, guards: &mut [MutexGuard<'_, Replica<Solo>>]) {
        let keyspace = self.keyspace;
        let mut partitions: Vec<_> =
            keyspace.partitions.iter().zip(guards.iter_mut().map(|guard| &mut **guard)).collect();
        self.log(&mut partitions);
        for (cell, replica) in keyspace.partitions.iter().zip(guards) {
            self.lapsed.end(keyspace.id, replica, self.outcome.refused);
            self.count(cell, replica);
        }
    }
}

/// A partition that a transaction holds.
pub(crate) struct Held<'k> {
    index: usize,
    replica: MutexGuard<'k, Replica<Solo>>,
    lent: Lent,
}

/// See [`gateway::Loan`]: partitions are locked when the transaction comes to them.
pub(crate) struct SoloLoan<'k> {
    pub(crate) keyspace: &'k Keyspace,
    pub(crate) journal: Option<&'k Journal>,
    pub(crate) now: Now,
    pub(crate) random: Rng,
    /// Somebody wants to know which keys expire.
    pub(crate) notes_expired: bool,
    pub(crate) held: Vec<Held<'k>>,
}

impl SoloLoan<'_> {
    /// Holds the partition with this number: its place among those that are held, `None` if it is not to be had.
    fn hold(&mut self, index: usize) -> Option<usize> {
        let known = self.held.iter().position(|held| held.index == index);
        if known.is_some() {
            return known;
        }
        let replica = &self.keyspace.partitions[index].replica;
        // Whoever holds a partition waits for later ones only, so that no two wait for each other.
        let is_later = self.held.iter().all(|held| held.index < index);
        let mut replica = if is_later { replica.lock() } else { replica.try_lock()? };
        if let Some(journal) = self.journal {
            journal.fence(&mut replica);
        }
        if replica.protocol().is_fenced() {
            return None;
        }
        replica.protocol_mut().note_expired(self.notes_expired);
        let lent = Lent::begin(&mut replica);
        self.held.push(Held { index, replica, lent });
        Some(self.held.len() - 1)
    }
}

impl Loan for SoloLoan<'_> {
    fn operate(&mut self, operation: &KeyedOperation<'_>, reply: &mut ReplyBuf) -> bool {
        let index = Group::index_of(operation.hash, self.keyspace.partitions.len());
        let Some(place) = self.hold(index) else { return false };
        let (replica, replies) = (&mut self.held[place].replica, &mut Answer(reply));
        Lent::operate(replica, self.now, RequestId(0), operation, &mut self.random, replies);
        true
    }
}

/// The only reply.
struct Answer<'r>(&'r mut ReplyBuf);

impl Replies for Answer<'_> {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        self.0
    }
}

/// Recovers records, or the states of keys in a checkpoint, by keyspace and key: however many partitions there are now.
pub(crate) fn recover(locals: &Locals, id: KeyspaceId, records: &[u8]) -> Result<(), String> {
    let Some(keyspace) = locals.of(id) else { return Err(format!("keyspace {id} is not kept here")) };
    let count = keyspace.partitions.len();
    for record in Record::split(records) {
        let record = record.map_err(|error| error.to_string())?;
        match Record::key_of(record).map_err(|error| error.to_string())? {
            Some(key) => feed(&keyspace, Group::index_of(locals.seed.hash(key), count), record)?,
            None => (0..count).try_for_each(|index| feed(&keyspace, index, record))?,
        }
    }
    Ok(())
}

fn feed(keyspace: &Keyspace, index: usize, record: &[u8]) -> Result<(), String> {
    let mut replica = keyspace.partitions[index].replica.lock();
    input(&mut replica, Input::Recover(record));
    let unreadable = replica.protocol().unreadable();
    unreadable.map_or(Ok(()), |what| {
        Err(format!(
            "a record of keyspace '{}' cannot be read: {what}; is the list of keyspaces older?",
            keyspace.name
        ))
    })
}

/// Ends recovery. `whole` is false if acknowledged records may be missing.
pub(crate) fn recovered(locals: &Locals, whole: bool) {
    for cell in locals.list().iter().flat_map(|keyspace| &keyspace.partitions) {
        let mut replica = cell.replica.lock();
        input(&mut replica, Input::Recovered { complete: whole });
        cell.count(replica.protocol());
    }
}

/// An input of recovery, which says nothing to anybody.
fn input(replica: &mut Replica<Solo>, input: Input<'_, Solo>) {
    replica.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::default());
}
