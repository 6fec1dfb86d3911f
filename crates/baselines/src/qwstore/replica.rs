//! A replica: evaluates on what it has, and keeps every effect in the order of timestamps.

use super::message::{Effects, Message, Record, encoded};
use super::node::Node;
use datatypes::{Cell, Context, Effect, Operation, prepare};
use mvcc::Store;
use protocol::{Durability, Input, Outputs};
use std::collections::BTreeSet;
use strict::validation::Stamp;
use types::{Error, HashSeed, Malformed, Reader, ReplyBuf, Rng, Wire};

/// About how many bytes a piece of a checkpoint has.
const PIECE_BYTES: usize = 32 << 10;

/// A copy of a shard.
pub struct Replica {
    store: Store<Stamp>,
    durability: Durability,
}

impl Replica {
    pub(super) fn new(seed: HashSeed, durability: Durability) -> Self {
        let mut store = Store::new(seed, Stamp::ZERO);
        // Writes arrive out of order: the store retains histories.
        store.set_horizon(Some(Stamp::ZERO));
        Replica { store, durability }
    }

    /// What it holds.
    pub fn store(&self) -> &Store<Stamp> {
        &self.store
    }

    pub(super) fn on_input(&mut self, input: Input<'_, Node>, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        match input {
            Input::Snapshot(chunk) => {
                let outcome = self.restore(chunk);
                debug_assert!(outcome.is_ok(), "checkpoints are checksummed");
            }
            Input::Recover(bytes) => {
                let outcome = Record::decode(&mut Reader::new(bytes)).and_then(|write| self.apply(&write));
                debug_assert!(outcome.is_ok(), "log records are checksummed");
            }
            Input::Message { from, message: Message::Read { id, key, operation, now_millis } } => {
                // What cannot be decoded is not answered.
                if let Ok((result, effects)) = self.evaluate(&key, &operation, now_millis, random) {
                    out.send(from.address(), Message::ReadReply { id, result, effects });
                }
            }
            Input::Message { from, message: Message::Write { id, write } } => {
                let new = !self.store.has_effect(self.store.hash(&write.key), &write.key, write.stamp);
                if new && self.apply(&write).is_err() {
                    return;
                }
                if new {
                    out.persist(&write, self.durability);
                }
                out.send(from.address(), Message::Written { id });
            }
            Input::Request { id, .. } => {
                out.reply(id).error(&Error::err("requests go to a coordinator, not to a replica"));
            }
            Input::Message { .. } | Input::Recovered { .. } | Input::PeerStarted { .. } | Input::Timer(_) => {
            }
        }
    }

    /// The result of an operation on the newest state, and what it does; an expired key is deleted first.
    fn evaluate(
        &mut self,
        key: &[u8],
        operation: &[u8],
        now_millis: u64,
        random: &mut Rng,
    ) -> Result<(ReplyBuf, Effects), Malformed> {
        let operation = Operation::decode(&mut Reader::new(operation))?;
        let mut result = ReplyBuf::new();
        let mut context = Context { now_millis, random, site: None };
        let read = |cell: &Cell| {
            let (expiry, cell) = (cell.expiry(now_millis), cell.living(now_millis));
            let effect = prepare(&cell, &operation, &mut context, &mut result);
            let deletion = expiry.filter(|_| effect.is_some());
            deletion.into_iter().chain(effect).map(|effect| encoded(&effect)).collect()
        };
        let hash = self.store.hash(key);
        let effects = self.store.with_state(hash, key, |_| true, &[], read);
        Ok((result, effects))
    }

    /// Applies a write that is new; what is there already stays as it is.
    fn apply(&mut self, write: &Record) -> Result<(), Malformed> {
        let hash = self.store.hash(&write.key);
        if self.store.has_effect(hash, &write.key, write.stamp) {
            return Ok(());
        }
        let decoded = write.effects.iter().map(|bytes| Effect::decode(&mut Reader::new(bytes)));
        let effects: Vec<Effect<'_>> = decoded.collect::<Result<_, _>>()?;
        effects.iter().for_each(|effect| self.store.commit(hash, &write.key, write.stamp, effect));
        Ok(())
    }

    fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            self.apply(&Record::decode(&mut reader)?)?;
        }
        Ok(())
    }

    /// See [`protocol::Protocol::checkpoint`]: every effect of the keys of a piece of the index.
    pub(super) fn checkpoint(&self, mut cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let begin = chunk.len();
        loop {
            let mut keys: Vec<Box<[u8]>> = Vec::new();
            cursor = self.store.scan(cursor, |key, _| keys.push(key.into()));
            keys.iter().for_each(|key| self.save(key, chunk));
            if cursor == 0 || chunk.len() - begin > PIECE_BYTES {
                return (cursor != 0).then_some(cursor);
            }
        }
    }

    fn save(&self, key: &[u8], chunk: &mut Vec<u8>) {
        let effects = || self.store.effects(self.store.hash(key), key);
        for stamp in effects().map(|(stamp, _)| stamp).collect::<BTreeSet<Stamp>>() {
            let of_stamp = effects().filter(|(other, _)| *other == stamp);
            let effects = of_stamp.map(|(_, effect)| encoded(&effect)).collect();
            Record { key: key.into(), stamp, effects }.encode(chunk);
        }
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica").field("keys", &self.store.len()).finish_non_exhaustive()
    }
}
