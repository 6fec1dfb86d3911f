//! What concurrent writes cost others, for the operator: told, and settled by an effect like any other (Corrections 75;
//! `docs/decisions/0028`).

use super::Partition;
use crate::stable::Times;
use crate::stable::message::Answer;
use crate::stable::pledge::encoded;
use crate::stable::stamp::Stamp;
use datatypes::{Effect, Items, Operation, key};
use mvcc::LostWrite;
use protocol::{Conflict, ConflictingWrite, Losses};
use types::{KeyHash, Reader, ReplyBuf, ReplySink, Wire};

/// About how many effects are looked at for a piece of the list.
const EFFECTS: usize = 4000;
/// Cursors from here on are places among keys whose losses effects to come may still change; others are in the list. A
/// partition's cursors have 48 bits.
const PENDING: u64 = 1 << 47;

impl<S: Times> Partition<S> {
    /// Every write that is known to be lost here: first those of which effects to come may still tell that they are not,
    /// then the list.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let pending = self.store.pending_losses();
        let listed = self.store.losses_after(0).map(|(_, loss)| self.conflict(loss));
        pending.iter().map(|loss| self.conflict(loss)).chain(listed).collect()
    }

    /// How many of these nothing to come can change, and how many were dropped; without looking at all that may change.
    pub fn listed_conflicts(&self) -> (usize, u64) {
        self.store.listed_losses()
    }

    fn conflict(&self, loss: &LostWrite<Stamp<S::Depends>>) -> Conflict {
        let write = |stamp: &Stamp<S::Depends>, value: &[u8]| {
            let region = self.topology.regions.get(usize::from(stamp.region.0));
            ConflictingWrite {
                value: value.into(),
                region: region.map_or_else(Box::default, |region| region.name.as_bytes().into()),
                at_micros: stamp.at.wall().0,
            }
        };
        Conflict {
            key: loss.key.clone(),
            name: self.store.loss_name(loss).into(),
            part: loss.part.clone(),
            lost: write(&loss.stamp, &loss.value),
            kept: write(&loss.winner, &loss.instead),
        }
    }

    /// How many a piece of the list has. The last one is all that is final, and tells how many were dropped.
    pub(super) fn count_losses(&self, step: u32, cursor: u64) -> Answer {
        let (pending, next) = self.store.pending_losses_from(cursor & !PENDING, EFFECTS);
        let (listed, dropped) = if next.is_none() { self.store.listed_losses() } else { (0, 0) };
        let mut reply = ReplyBuf::new();
        reply.integer((pending.len() + listed) as i64);
        reply.integer(i64::try_from(dropped).unwrap_or(i64::MAX));
        Answer { cursor: next.map_or(0, |next| PENDING | next), ..Answer::new(step, reply) }
    }

    /// A piece of the list; those of which effects to come may still tell something else are in the first ones.
    pub(super) fn list_losses(&self, step: u32, cursor: u64, count: u32) -> Answer {
        let mut reply = ReplyBuf::new();
        let mut tell = |loss: &LostWrite<Stamp<S::Depends>>| {
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

    /// Evaluates an operation that settles losses of a key: those of them that are known here. The effect takes its place
    /// above them, so whoever performs it has them before it. `None` for any other operation.
    pub(super) fn settle(&mut self, hash: KeyHash, key: &[u8], operation: &[u8]) -> Option<Settlement> {
        let operation = Operation::decode(&mut Reader::new(operation)).ok()?;
        let Operation::Key(key::Operation::Resolve { losses: wanted }) = operation else { return None };
        let mut reply = ReplyBuf::new();
        if !S::MERGES || self.options.conflict_bytes == 0 {
            reply.error(&Losses::none());
            return Some(Settlement { names: Vec::new(), reply });
        }
        let mut known = self.store.losses_of(hash, key);
        known.retain(|(name, _)| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name));
        for (_, loss) in &known {
            self.clock.recover(loss.stamp.at.max(loss.winner.at));
        }
        reply.integer(known.len() as i64);
        let mut names: Vec<Vec<u8>> = known.into_iter().map(|(name, _)| name).collect();
        names.sort();
        Some(Settlement { names, reply })
    }
}

/// What an operation that settles losses comes to.
pub(super) struct Settlement {
    /// Of the losses, in order.
    names: Vec<Vec<u8>>,
    /// How many they are.
    pub(super) reply: ReplyBuf,
}

impl Settlement {
    /// What settles them, if there are any.
    pub(super) fn effects(&self) -> Vec<Box<[u8]>> {
        let losses = || Items::collect(self.names.iter().map(Vec::as_slice));
        let effect = || encoded(&Effect::Key(key::Effect::Resolve { losses: losses() }));
        if self.names.is_empty() { Vec::new() } else { vec![effect()] }
    }
}
