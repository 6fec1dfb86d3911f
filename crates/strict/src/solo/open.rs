//! One interactive transaction: snapshot reads, private effects, validation at commit over what it observed, so that
//! transactions which commute do not conflict (Claret 4.1, optimistically).
//!
//! At commit the transaction takes its place after everything that is there. That is sound if nothing that came
//! since its snapshot changes what it observed: then every operation, evaluated now, would give the same result and
//! choose the same effect. What it changes without having looked (`BLIND`) is performed whatever came.
//!
//! Expiry is a write (Corrections 69): an operation that meets an expired key commits its deletion at once, outside
//! the transaction, and a key that the transaction changes is settled before it is validated.

use super::Group;
use super::execute::BlindSink;
use crate::coordinator::whole_key;
use crate::part::{Unobserved, narrowed, takes};
use datatypes::{Cell, Context, Effect, Observation, Operation, prepare};
use mvcc::{Bounds, CompactKey};
use protocol::{KeyedOperation, Now, Replies, misconf};
use std::collections::BTreeMap;
use types::{
    Error, ErrorCode, Instant, KeyHash, Reader, ReplyBuf, ReplySink, RequestId, Rng, SessionId, Timestamp,
};

/// The most bytes of keys, operations and effects that a transaction may hold.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// An operation that was evaluated inside a transaction.
#[derive(Debug)]
pub(super) struct EvaluatedOperation {
    key: CompactKey,
    pub(super) hash: KeyHash,
    /// The operation's binary form, or one that observes as much as its reply revealed; `None` if neither the client nor
    /// the choice of the effect has observed anything.
    observed: Option<Box<[u8]>>,
    /// The deletion of what the snapshot showed expired.
    expired: Option<Effect<'static>>,
    /// The deletion, before the effect, of what had a deadline that the transaction itself had set and that was over.
    overdue: Option<Effect<'static>>,
    /// The binary form of its effect.
    effect: Option<Box<[u8]>>,
    /// What the transaction does to the key without having observed it, this operation included.
    unobserved: Unobserved,
}

impl EvaluatedOperation {
    fn effects(&self) -> impl Iterator<Item = Effect<'_>> {
        let effect = self.effect.as_ref().and_then(|bytes| Effect::decode(&mut Reader::new(bytes)).ok());
        self.overdue.clone().filter(|_| effect.is_some()).into_iter().chain(effect)
    }

    fn observation(&self) -> Observation<'_> {
        let operation = self.observed.as_ref().map(|bytes| Operation::decode(&mut Reader::new(bytes)));
        operation.map_or(Observation::NOTHING, |operation| {
            operation.map_or(Observation::any(datatypes::Aspect::Whole), |operation| operation.observation())
        })
    }
}

/// What evaluating an operation came to; see the same fields of [`EvaluatedOperation`].
#[derive(Default)]
struct Prepared {
    expired: Option<Effect<'static>>,
    overdue: Option<Effect<'static>>,
    effect: Option<Box<[u8]>>,
}

/// Why a transaction did not commit; it had no effect.
pub(super) enum Refused {
    /// A watch was touched.
    Watched,
    /// Anything else.
    With(Error),
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    /// When it began: the time with which it compares deadlines.
    pub(super) begun: Now,
    pub(super) snapshot: Timestamp,
    /// How many keys the snapshot has.
    pub(super) keys_at_snapshot: usize,
    /// A reply has revealed which keys there are, or how many.
    pub(super) observes_keys: bool,
    /// FLUSHDB: the operations before this place mean nothing for the state any more.
    flushed: Option<usize>,
    read_only: bool,
    watched: bool,
    /// When its lease ends.
    pub(super) deadline: Instant,
    /// How often logs had refused something when it began.
    refusals: u64,
    bytes: usize,
    pub(super) done: Vec<EvaluatedOperation>,
    /// Places in `done`, ascending.
    pub(super) by_key: BTreeMap<CompactKey, Vec<usize>>,
}

impl OpenTransaction {
    pub(super) fn new(
        begun: Now,
        snapshot: Timestamp,
        read_only: bool,
        watched: bool,
        deadline: Instant,
        group: &Group<'_, '_>,
    ) -> Self {
        OpenTransaction {
            begun,
            snapshot,
            keys_at_snapshot: group.keys(),
            observes_keys: false,
            flushed: None,
            read_only,
            watched,
            deadline,
            refusals: group.refusals(),
            bytes: 0,
            done: Vec::new(),
            by_key: BTreeMap::new(),
        }
    }

    /// True if nothing of the snapshot is left.
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.is_some()
    }

    /// Removes every key, for the transaction: `OK`.
    pub(super) fn flush(&mut self, sink: &mut dyn ReplySink) {
        if self.read_only {
            return sink.error(&read_only());
        }
        self.flushed = Some(self.done.len());
        sink.simple("OK");
    }

    /// True if the log has refused something since: the snapshot may have shown what never happened.
    pub(super) fn saw_what_was_refused(&self, group: &Group<'_, '_>) -> bool {
        group.refusals() != self.refusals
    }

    /// Evaluates an operation on the snapshot with the transaction's own effects on top, and replies.
    pub(super) fn evaluate(
        &mut self,
        id: RequestId,
        keyed: &KeyedOperation<'_>,
        group: &mut Group<'_, '_>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        if self.read_only && !keyed.operation.is_read() {
            return replies.reply(id).error(&read_only());
        }
        let mut operation = Vec::new();
        keyed.operation.encode(&mut operation);
        if self.bytes + operation.len() > MAX_BYTES {
            let text = "the transaction holds more than 256 MiB; commit or abort it";
            return replies.reply(id).error(&Error::err(text));
        }
        if let Some(effect) = keyed.operation.blind_effect().filter(|_| keyed.blind) {
            replies.reply(id).simple("OK");
            return self.note(
                keyed,
                None,
                Prepared { effect: Some(encoded(&effect)), ..Prepared::default() },
            );
        }
        let (begun, now_millis) = (self.begun, self.begun.wall.as_millis());
        group.of(keyed.hash).drive(replies, |solo, out| {
            solo.settle_expiry(begun, now_millis, keyed.hash, keyed.key, out);
        });
        let sink = replies.reply(id);
        let mut blind = BlindSink::default();
        let context = &mut Context { now_millis, random, site: None };
        let prepared = if keyed.blind {
            let prepared = self.prepare(keyed, group, context, &mut blind);
            blind.finish(sink);
            prepared
        } else if keyed.operation.may_narrow() {
            let mut reply = ReplyBuf::new();
            let prepared = self.prepare(keyed, group, context, &mut reply);
            reply.replay(sink);
            operation = narrowed(&keyed.operation, &reply).map_or(operation, |less| less.to_vec());
            prepared
        } else {
            self.prepare(keyed, group, context, sink)
        };
        // Whatever the client sees of it, the choice of the effect has observed the state; after FLUSHDB, the
        // transaction's own.
        let observed =
            (!self.is_flushed()).then(|| match self.unobserved(keyed.key).widens(&keyed.operation) {
                true => (*whole_key()).into(),
                false => operation.into(),
            });
        self.note(keyed, observed, prepared);
    }

    fn prepare(
        &self,
        keyed: &KeyedOperation<'_>,
        group: &mut Group<'_, '_>,
        context: &mut Context<'_>,
        sink: &mut dyn ReplySink,
    ) -> Prepared {
        self.with_state(keyed.hash, keyed.key, group, |cell, expired| {
            let (overdue, cell) = (cell.expiry(context.now_millis), cell.living(context.now_millis));
            let effect = prepare(&cell, &keyed.operation, context, sink).map(|effect| encoded(&effect));
            Prepared { expired, overdue, effect }
        })
    }

    /// Calls `read` with a key's state as the transaction sees it, and the deletion of what the snapshot shows expired.
    pub(super) fn with_state<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        group: &mut Group<'_, '_>,
        read: impl FnOnce(&Cell, Option<Effect<'static>>) -> R,
    ) -> R {
        let now_millis = self.begun.wall.as_millis();
        let expired = match self.is_flushed() {
            true => None,
            false => self.in_snapshot(hash, key, group, |cell| cell.expiry(now_millis)),
        };
        let places = self.by_key.get(&CompactKey::new(key)).map_or(&[][..], Vec::as_slice);
        let valid = places.iter().filter(|place| self.flushed.is_none_or(|flushed| **place >= flushed));
        let own = valid.flat_map(|place| self.done[*place].effects());
        let before = if self.is_flushed() { Some(Effect::DELETE) } else { expired.clone() };
        let own: Vec<Effect<'_>> = before.into_iter().chain(own).collect();
        self.read(hash, key, group, &own, |cell| read(cell, expired))
    }

    /// Calls `read` with a key's state at the snapshot.
    pub(super) fn in_snapshot<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        group: &mut Group<'_, '_>,
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        self.read(hash, key, group, &[], read)
    }

    /// Calls `read` with a key's state at the snapshot and with the transaction's `own` effects on top.
    fn read<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        group: &mut Group<'_, '_>,
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        let shown = |stamp: &Timestamp| *stamp <= self.snapshot;
        let store = &mut group.of(hash).protocol_mut().store;
        store.with_later(hash, key, shown, Some(self.bounds()), &[], own, read)
    }

    /// What the snapshot shows.
    fn bounds(&self) -> Bounds<Timestamp> {
        Bounds { group: 0, own: self.snapshot, others: self.snapshot }
    }

    fn note(&mut self, keyed: &KeyedOperation<'_>, observed: Option<Box<[u8]>>, prepared: Prepared) {
        let Prepared { expired, overdue, effect } = prepared;
        let len = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        self.bytes += keyed.key.len() + len(&observed) + len(&effect);
        let key = CompactKey::new(keyed.key);
        let unobserved = self.unobserved(keyed.key);
        self.by_key.entry(key.clone()).or_default().push(self.done.len());
        let mut done =
            EvaluatedOperation { key, hash: keyed.hash, observed, expired, overdue, effect, unobserved };
        let is_observed = !done.observation().is_nothing();
        done.unobserved =
            done.effects().fold(unobserved, |unobserved, effect| unobserved.then(&effect, is_observed));
        self.done.push(done);
    }

    /// What the transaction does to a key without having observed it.
    fn unobserved(&self, key: &[u8]) -> Unobserved {
        let last = self.by_key.get(&CompactKey::new(key)).and_then(|places| places.last());
        last.map_or(Unobserved::Nothing, |place| self.done[*place].unobserved)
    }

    /// Observes whether a key is there, if that depends on what others have put into it: the transaction takes from it.
    pub(super) fn observe_presence(&mut self, hash: KeyHash, key: &CompactKey, group: &mut Group<'_, '_>) {
        let operation = Operation::Key(datatypes::key::Operation::Exists);
        let mut observed = Vec::new();
        operation.encode(&mut observed);
        let places = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let is_known =
            places.last().is_some_and(|place| self.done[*place].observed.as_deref() == Some(&*observed));
        let takes_from =
            places.iter().flat_map(|place| self.done[*place].effects()).any(|effect| takes(&effect));
        if takes_from && !is_known {
            let expired = self.with_state(hash, key, group, |_, expired| expired);
            let keyed = KeyedOperation { key, hash, operation, blind: false };
            self.note(&keyed, Some(observed.into()), Prepared { expired, ..Prepared::default() });
        }
    }

    /// Validates and applies.
    pub(super) fn commit(
        self,
        now: Now,
        session: SessionId,
        group: &mut Group<'_, '_>,
        replies: &mut dyn Replies,
    ) -> Result<(), Refused> {
        if self.watched && group.take_watches(session, now) {
            return Err(Refused::Watched);
        }
        if !self.is_flushed() && self.done.iter().all(|done| done.effect.is_none()) {
            // It only read: it took place at its snapshot.
            return Ok(());
        }
        if group.is_fenced() {
            return Err(Refused::With(misconf()));
        }
        self.settle_expiries(now, group, replies);
        if let Some(done) = self.done.iter().find(|done| self.is_overtaken(done, group)) {
            let key = String::from_utf8_lossy(&done.key);
            let text = format!("key '{key}' was changed by a concurrent transaction; retry the transaction");
            return Err(Refused::With(Error::new(ErrorCode::Conflict, text)));
        }
        if self.keys_are_overtaken(group) {
            let text = "keys were created or deleted by a concurrent transaction; retry the transaction";
            return Err(Refused::With(Error::new(ErrorCode::Conflict, text)));
        }
        if self.is_flushed() {
            group.flush(now, replies).map_err(Refused::With)?;
        }
        for done in &self.done[self.flushed.unwrap_or(0)..] {
            for effect in done.effects() {
                let partition = group.of(done.hash);
                partition.drive(replies, |solo, out| solo.commit(now, done.hash, &done.key, &effect, out));
            }
        }
        Ok(())
    }

    /// What this transaction changes must not be about to disappear under its effects.
    fn settle_expiries(&self, now: Now, group: &mut Group<'_, '_>, replies: &mut dyn Replies) {
        let now_millis = now.wall.max(self.begun.wall).as_millis();
        for done in self.done.iter().filter(|done| done.effect.is_some()) {
            group.of(done.hash).drive(replies, |solo, out| {
                solo.settle_expiry(now, now_millis, done.hash, &done.key, out);
            });
        }
    }

    /// True if something that came since the snapshot changes what the operation observed.
    fn is_overtaken(&self, done: &EvaluatedOperation, group: &mut Group<'_, '_>) -> bool {
        let store = &group.of(done.hash).protocol().store;
        let later = store.effects_beyond(done.hash, &done.key, Some(self.bounds()));
        let later = later.filter(|(stamp, _)| *stamp > self.snapshot);
        let mut foreign = later.map(|(_, effect)| effect);
        // Where something had expired, the first to come is its deletion, which was foreseen.
        if let Some(expiry) = &done.expired
            && foreign.next().is_some_and(|effect| effect != *expiry)
        {
            return true;
        }
        let observation = done.observation();
        foreign.any(|effect| !observation.unchanged_by(&effect))
    }
}

fn read_only() -> Error {
    Error::err("the transaction was begun READONLY; writes are refused")
}

fn encoded(effect: &Effect<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes.into()
}
