//! What concurrent writes cost others, for the operator: listed, and settled by an effect like any other (Corrections
//! 75; `docs/internals/merging.md`).

use super::Partition;
use crate::stable::intent::encoded;
use crate::stable::message::Answer;
use crate::stable::record::{self, Record};
use crate::stable::stamp::Stamp;
use crate::stable::{Depends, Mutant, Times, Topology};
use datatypes::{Effect, Items, Operation, key};
use mvcc::{LostWrite, Store};
use protocol::{Conflict, ConflictingWrite, Losses};
use std::borrow::Cow;
use types::{HybridClock, KeyHash, Reader, ReplyBuf, ReplySink, Wire};

/// About how many effects are looked at for a piece of the list.
const EFFECTS: usize = 4000;
/// Cursors from here on are places among keys whose losses effects to come may still change; others are in the list. A
/// partition's cursors have 48 bits.
const PENDING: u64 = 1 << 47;

/// The lost writes that a store knows, in words.
pub(crate) struct LossList<'s, D> {
    pub(crate) store: &'s Store<Stamp<D>>,
    pub(crate) topology: &'s Topology,
}

impl<D: Depends> LossList<'_, D> {
    /// Every write that is known to be lost here: first those of which effects to come may still tell that they are not,
    /// then the list.
    pub(crate) fn all(&self) -> Vec<Conflict> {
        let pending = self.store.pending_losses();
        let listed = self.store.losses_after(0).map(|(_, loss)| self.conflict(loss));
        pending.iter().map(|loss| self.conflict(loss)).chain(listed).collect()
    }

    fn conflict(&self, loss: &LostWrite<Stamp<D>>) -> Conflict {
        Conflict {
            key: loss.key.clone(),
            name: self.store.loss_name(loss).into(),
            part: loss.part.clone(),
            lost: self.write(&loss.stamp, &loss.value),
            winner: self.write(&loss.winner, &loss.instead),
        }
    }

    fn write(&self, stamp: &Stamp<D>, value: &[u8]) -> ConflictingWrite {
        let region = self.topology.regions.get(usize::from(stamp.region.0));
        ConflictingWrite {
            value: value.into(),
            region: region.map_or_else(Box::default, |region| region.name.as_bytes().into()),
            at_micros: stamp.at.wall().0,
        }
    }

    /// How many a piece of the list has. The last one is all that is final, and tells how many were dropped.
    pub(crate) fn count(&self, step: u32, cursor: u64) -> Answer {
        let (pending, next) = self.store.pending_losses_from(cursor & !PENDING, EFFECTS);
        let (listed, dropped) = if next.is_none() { self.store.listed_losses() } else { (0, 0) };
        let mut reply = ReplyBuf::new();
        reply.integer((pending.len() + listed) as i64);
        reply.integer(i64::try_from(dropped).unwrap_or(i64::MAX));
        Answer { cursor: next.map_or(0, |next| PENDING | next), ..Answer::new(step, reply) }
    }

    /// A piece of the list; those of which effects to come may still tell something else are in the first ones.
    pub(crate) fn list(&self, step: u32, cursor: u64, count: u32) -> Answer {
        let mut reply = ReplyBuf::new();
        let mut tell = |loss: &LostWrite<Stamp<D>>| {
            let mut bytes = Vec::new();
            self.conflict(loss).encode(&mut bytes);
            reply.bulk(&bytes);
        };
        if cursor == 0 || cursor & PENDING != 0 {
            let (pending, next) = self.store.pending_losses_from(cursor & !PENDING, EFFECTS);
            pending.iter().for_each(&mut tell);
            if let Some(next) = next {
                return Answer { cursor: PENDING | next, ..Answer::new(step, reply) };
            }
        }
        let from = if cursor & PENDING == 0 { cursor } else { 0 };
        let (mut listed, mut last) = (self.store.losses_after(from), 0);
        for (number, loss) in listed.by_ref().take(count.max(1) as usize) {
            tell(loss);
            last = number;
        }
        let cursor = if listed.next().is_some() { last } else { 0 };
        Answer { cursor, ..Answer::new(step, reply) }
    }
}

impl<S: Times> Partition<S> {
    /// See [`LossList::all`].
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.losses().all()
    }

    /// How many of these nothing to come can change, and how many were dropped; without looking at all that may change.
    pub fn listed_conflicts(&self) -> (usize, u64) {
        self.store.listed_losses()
    }

    pub(super) fn losses(&self) -> LossList<'_, S::Depends> {
        LossList { store: &self.store, topology: &self.topology }
    }

    /// See [`settle`].
    pub(super) fn settle(&mut self, hash: KeyHash, key: &[u8], operation: &[u8]) -> Option<Settlement> {
        let lists = S::MERGES && self.options.conflict_bytes > 0;
        settle(&self.store, &mut self.clock, lists, (hash, key), operation)
    }

    /// The losses that are listed after a number.
    pub(super) fn checkpoint_losses(&self, number: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if self.options.mutants.has(Mutant::LossesNotInCheckpoint) {
            return None;
        }
        tell_losses::<S>(&self.store, number, chunk)
    }
}

/// Tells a checkpoint or a peer the losses that are listed after a number. Returns the last one's number if there may be more.
pub(crate) fn tell_losses<S: Times>(
    store: &Store<Stamp<S::Depends>>,
    number: u64,
    chunk: &mut Vec<u8>,
) -> Option<u64> {
    if number == 0 {
        record::put::<S>(chunk, &Record::LossesDropped { count: store.listed_losses().1 });
    }
    for (number, loss) in store.retained_losses_after(number) {
        record::put::<S>(chunk, &Record::Lost(Cow::Borrowed(loss)));
        if chunk.len() >= super::CHUNK_BYTES {
            return Some(number);
        }
    }
    None
}

/// Evaluates an operation that settles losses of a key: those of them that are known here. The effect takes its place
/// above them, so whoever performs it has them before it. `None` for any other operation.
pub(crate) fn settle<D: Depends>(
    store: &Store<Stamp<D>>,
    clock: &mut HybridClock,
    lists: bool,
    (hash, key): (KeyHash, &[u8]),
    operation: &[u8],
) -> Option<Settlement> {
    let operation = Operation::decode(&mut Reader::new(operation)).ok()?;
    let Operation::Key(key::Operation::Resolve { losses: wanted }) = operation else { return None };
    let mut reply = ReplyBuf::new();
    if !lists {
        reply.error(&Losses::none());
        return Some(Settlement { names: Vec::new(), reply });
    }
    let mut known = store.losses_of(hash, key);
    known.retain(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name));
    for (_, loss) in &known {
        clock.recover(loss.stamp.at.max(loss.winner.at));
    }
    reply.integer(known.len() as i64);
    let mut names: Vec<Vec<u8>> = known.into_iter().map(|(name, _)| name).collect();
    names.sort();
    Some(Settlement { names, reply })
}

/// The result of an operation that settles losses.
pub(crate) struct Settlement {
    /// Of the losses, in order.
    names: Vec<Vec<u8>>,
    /// How many they are.
    pub(crate) reply: ReplyBuf,
}

impl Settlement {
    /// What settles them, if there are any.
    pub(crate) fn effects(&self) -> Vec<Box<[u8]>> {
        let losses = || Items::collect(self.names.iter().map(Vec::as_slice));
        let effect = || encoded(&Effect::Key(key::Effect::Resolve { losses: losses() }));
        if self.names.is_empty() { Vec::new() } else { vec![effect()] }
    }
}
