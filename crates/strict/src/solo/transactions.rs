//! Interactive transactions over the partitions of one process: snapshot reads, buffered effects, validation at
//! commit over invocations, so that commuting transactions do not conflict (Claret 4.1, optimistically).

use super::group::Group;
use super::partition::misconf;
use datatypes::{Cell, Context, Effect, Invocation, Observation, Operation, commutes, prepare};
use mvcc::CompactKey;
use protocol::{KeyedOperation, Now, Replies, Step};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Error, ErrorCode, Instant, KeyHash, Reader, ReplySink, RequestId, Rng, SessionId, Timestamp};

/// How long a transaction may stay open: its snapshot is a lease (Corrections 86).
const LEASE: Duration = Duration::from_secs(60);
/// The most bytes of keys, operations and effects that a transaction may hold.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// An operation that was evaluated inside a transaction.
#[derive(Debug)]
struct Done {
    key: CompactKey,
    hash: KeyHash,
    /// The operation's binary form.
    operation: Vec<u8>,
    /// Neither the client nor the choice of the effect has observed the state.
    blind: bool,
    /// The binary forms of its effects, the deletion of an expired key first.
    effects: Vec<Vec<u8>>,
}

impl Done {
    fn effects(&self) -> impl Iterator<Item = Effect<'_>> {
        decoded(&self.effects)
    }

    fn observation(&self) -> Observation<'_> {
        match Operation::decode(&mut Reader::new(&self.operation)) {
            Ok(operation) if !self.blind => operation.observation(),
            _ => Observation::NOTHING,
        }
    }

    /// True if `foreign`, which came between, changes neither the result nor what the effects come to.
    fn commutes_with(&self, foreign: &Effect<'_>) -> bool {
        let foreign = Invocation::blind(foreign.clone());
        let observed = Invocation { observation: self.observation(), effect: None };
        commutes(&observed, &foreign, None)
            && self.effects().all(|effect| commutes(&Invocation::blind(effect), &foreign, None))
    }
}

fn decoded(effects: &[Vec<u8>]) -> impl Iterator<Item = Effect<'_>> {
    effects.iter().filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok())
}

#[derive(Debug)]
struct Open {
    snapshot: Timestamp,
    now_millis: u64,
    read_only: bool,
    watched: bool,
    deadline: Instant,
    bytes: usize,
    done: Vec<Done>,
}

/// The open transactions of a keyspace, by session. Every call holds all partitions ([`Group`]).
#[derive(Debug, Default)]
pub struct Transactions {
    open: BTreeMap<SessionId, Open>,
    /// Sessions whose lease ended before their transaction did.
    expired: BTreeMap<SessionId, ()>,
    /// The snapshot of a checkpoint under way.
    pinned: Option<Timestamp>,
}

impl Transactions {
    /// None open.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True when none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Serves [`protocol::Request::Begin`].
    pub fn begin(
        &mut self,
        now: Now,
        session: SessionId,
        read_only: bool,
        watched: bool,
        group: &mut Group<'_, '_>,
        sink: &mut dyn ReplySink,
    ) {
        self.expired.remove(&session);
        if self.open.contains_key(&session) {
            return sink.error(&Error::err(
                "a transaction is already open in this session; commit or abort it first",
            ));
        }
        let snapshot =
            group.all().map(|partition| partition.protocol_mut().now(now)).max().unwrap_or_default();
        group.all().for_each(|partition| partition.protocol_mut().advance(snapshot));
        let (now_millis, deadline) = (now.wall.as_millis(), now.instant + LEASE);
        self.open.insert(
            session,
            Open { snapshot, now_millis, read_only, watched, deadline, bytes: 0, done: vec![] },
        );
        self.lease(group);
        sink.simple("OK");
    }

    /// Serves [`protocol::Request::Operate`].
    pub fn operate(
        &mut self,
        id: RequestId,
        session: SessionId,
        steps: &[Step<'_>],
        group: &mut Group<'_, '_>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        let sink = replies.reply(id);
        if let Some(error) = self.missing(session) {
            return sink.error(&error);
        }
        let Some(open) = self.open.get_mut(&session) else { return };
        for step in steps {
            match step {
                Step::Key(keyed) => open.evaluate(keyed, group, random, sink),
                Step::Count | Step::Flush | Step::Scan { .. } => sink.error(&Error::err(
                    "commands on the whole keyspace are not allowed inside TXN; use MULTI, or run them outside",
                )),
            }
        }
    }

    /// Serves [`protocol::Request::Commit`].
    pub fn commit(
        &mut self,
        now: Now,
        id: RequestId,
        session: SessionId,
        group: &mut Group<'_, '_>,
        replies: &mut dyn Replies,
    ) {
        if let Some(error) = self.missing(session) {
            return replies.reply(id).error(&error);
        }
        let Some(open) = self.open.remove(&session) else { return };
        let touched = open.watched && group.take_watches(session, now);
        let verdict = if touched { Ok(()) } else { open.validate(group) };
        if verdict.is_ok() && !touched {
            open.apply(now, group, replies);
        }
        self.lease(group);
        let sink = replies.reply(id);
        match verdict {
            Ok(()) if touched => sink.null_array(),
            Ok(()) => sink.simple("OK"),
            Err(error) => sink.error(&error),
        }
    }

    /// Serves [`protocol::Request::Abort`] and the end of a session; harmless when nothing is open.
    pub fn abort(&mut self, session: SessionId, group: &mut Group<'_, '_>) {
        self.expired.remove(&session);
        if self.open.remove(&session).is_some() {
            self.lease(group);
        }
    }

    /// Ends the leases whose time is over.
    pub fn expire(&mut self, now: Now, group: &mut Group<'_, '_>) {
        let over = self.open.iter().filter(|(_, open)| open.deadline <= now.instant);
        let over: Vec<SessionId> = over.map(|(session, _)| *session).collect();
        for session in over {
            self.open.remove(&session);
            self.expired.insert(session, ());
        }
        self.lease(group);
    }

    /// When `expire` is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.open.values().map(|open| open.deadline).min()
    }

    /// Leases the present snapshot to a checkpoint, one at a time, until `unpin`.
    pub fn pin(&mut self, now: Now, group: &mut Group<'_, '_>) {
        let snapshot = group.all().map(|partition| partition.protocol_mut().now(now)).max();
        group.all().for_each(|partition| {
            partition.protocol_mut().advance(snapshot.unwrap_or_default());
            partition.protocol_mut().set_checkpoint_snapshot(snapshot);
        });
        self.pinned = snapshot;
        self.lease(group);
    }

    /// Ends the checkpoint's lease.
    pub fn unpin(&mut self, group: &mut Group<'_, '_>) {
        self.pinned = None;
        group.all().for_each(|partition| partition.protocol_mut().set_checkpoint_snapshot(None));
        self.lease(group);
    }

    fn missing(&mut self, session: SessionId) -> Option<Error> {
        if self.open.contains_key(&session) {
            None
        } else if self.expired.contains_key(&session) {
            let text = "the transaction was open for more than 60 seconds and was given up; begin it again";
            Some(Error::new(ErrorCode::SnapshotTooOld, text))
        } else {
            Some(Error::err("no transaction is open in this session"))
        }
    }

    /// Tells the partitions how far back snapshots reach.
    fn lease(&self, group: &mut Group<'_, '_>) {
        let oldest = self.open.values().map(|open| open.snapshot).chain(self.pinned).min();
        group.all().for_each(|partition| partition.protocol_mut().store.set_horizon(oldest));
    }
}

impl Open {
    fn evaluate(
        &mut self,
        keyed: &KeyedOperation<'_>,
        group: &mut Group<'_, '_>,
        random: &mut Rng,
        sink: &mut dyn ReplySink,
    ) {
        if self.read_only && !keyed.operation.is_read() {
            return sink.error(&Error::err("the transaction was begun READONLY; writes are refused"));
        }
        let mut operation = Vec::new();
        keyed.operation.encode(&mut operation);
        if self.bytes + operation.len() > MAX_BYTES {
            return sink.error(&Error::err("the transaction holds more than 256 MiB; commit or abort it"));
        }
        if let Some(effect) = keyed.operation.blind_effect().filter(|_| keyed.blind) {
            sink.simple("OK");
            return self.note(keyed, operation, true, vec![encoded(effect)]);
        }
        let (snapshot, now_millis) = (self.snapshot, self.now_millis);
        let own: Vec<Effect<'_>> =
            self.done.iter().filter(|done| *done.key == *keyed.key).flat_map(Done::effects).collect();
        let store = &mut group.of(keyed.hash).protocol_mut().store;
        let mut blind = super::partition::BlindSink::default();
        let effects = store.with_state(
            keyed.hash,
            keyed.key,
            |stamp| *stamp <= snapshot,
            &own,
            |cell| {
                let expired = cell.is_expired(now_millis);
                let cell = if expired { &Cell::ABSENT } else { cell };
                let mut context = Context { now_millis, random };
                let sink: &mut dyn ReplySink = if keyed.blind { &mut blind } else { sink };
                let effect = prepare(cell, &keyed.operation, &mut context, sink);
                expired.then_some(Effect::DELETE).into_iter().chain(effect).map(encoded).collect::<Vec<_>>()
            },
        );
        if keyed.blind {
            blind.finish(sink);
        }
        // Whatever the client sees of it, the choice of the effect has observed the state.
        self.note(keyed, operation, false, effects);
    }

    fn note(&mut self, keyed: &KeyedOperation<'_>, operation: Vec<u8>, blind: bool, effects: Vec<Vec<u8>>) {
        self.bytes += keyed.key.len() + operation.len() + effects.iter().map(Vec::len).sum::<usize>();
        let key = CompactKey::new(keyed.key);
        self.done.push(Done { key, hash: keyed.hash, operation, blind, effects });
    }

    /// Every effect that came after the snapshot commutes with what this transaction saw and does.
    fn validate(&self, group: &mut Group<'_, '_>) -> Result<(), Error> {
        if self.done.iter().all(|done| done.effects.is_empty()) {
            // It only read: it took place at its snapshot.
            return Ok(());
        }
        if group.all().any(|partition| partition.protocol().is_fenced()) {
            return Err(misconf());
        }
        for done in &self.done {
            let store = &group.of(done.hash).protocol().store;
            let mut later =
                store.effects(done.hash, &done.key).rev().take_while(|(stamp, _)| *stamp > self.snapshot);
            if later.any(|(_, foreign)| !done.commutes_with(&foreign)) {
                let key = String::from_utf8_lossy(&done.key).into_owned();
                let text =
                    format!("key '{key}' was changed by a concurrent transaction; retry the transaction");
                return Err(Error::new(ErrorCode::Conflict, text));
            }
        }
        Ok(())
    }

    fn apply(&self, now: Now, group: &mut Group<'_, '_>, replies: &mut dyn Replies) {
        for done in &self.done {
            let partition = group.of(done.hash);
            partition.drive(replies, |solo, out| solo.settle_expiry(now, done.hash, &done.key, out));
            for effect in done.effects() {
                let partition = group.of(done.hash);
                partition.drive(replies, |solo, out| solo.commit(now, done.hash, &done.key, &effect, out));
            }
        }
    }
}

fn encoded(effect: Effect<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes
}
