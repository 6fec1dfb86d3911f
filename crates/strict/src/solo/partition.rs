//! One partition: evaluates operations on the newest state, logs effects, recovers, takes its records back when
//! the log fails.

use super::record::{self, Record, Recovered};
use super::watches::Watches;
use clock::HybridClock;
use datatypes::{Cell, Context, Effect, Patch, apply, exchange, prepare};
use mvcc::{CompactKey, Drained, Store};
use protocol::{Durability, Input, KeyedOperation, Now, Outputs, Protocol, Request, Step};
use std::collections::VecDeque;
use std::time::Duration;
use types::{
    Error, ErrorCode, HashSeed, KeyHash, Malformed, Reader, ReplyBuf, ReplySink, RequestId, Rng, SessionId,
    Timestamp,
};

/// How a partition is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How durable an effect is before its reply leaves.
    pub durability: Durability,
    /// Hashes the keys.
    pub seed: HashSeed,
}

/// What a partition can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Delete expired keys that nobody has met, and free removed storage.
    Housekeeping,
}

const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);
const EXPIRED_PER_TURN: usize = 200;
const FREED_PER_TURN: usize = 2000;
const CHECKPOINT_CHUNK_BYTES: usize = 64 * 1024;

/// How one record is taken back.
#[derive(Debug)]
enum Unlogged {
    Effect(UnloggedEffect),
    /// The removal of everything cannot be.
    Flush,
}

#[derive(Debug)]
struct UnloggedEffect {
    key: CompactKey,
    hash: KeyHash,
    stamp: Timestamp,
    previous: Timestamp,
    /// `None`: the history knows.
    patch: Option<Patch>,
}

/// See the module's documentation.
pub struct Solo {
    options: Options,
    clock: HybridClock,
    pub(super) store: Store<Timestamp>,
    pub(super) watches: Watches,
    /// How to take back what the log may still refuse, one entry per record persisted.
    unlogged: VecDeque<Unlogged>,
    /// How many records the log has taken.
    logged: u64,
    fenced: bool,
    drained: Vec<Drained<mvcc::Record<Timestamp>>>,
    /// The snapshot that a checkpoint shows; `None`: each key as it is when its turn comes.
    checkpoint_at: Option<Timestamp>,
}

impl Solo {
    /// An empty partition. Feed it recovery, then requests.
    pub fn new(options: Options) -> Self {
        Solo {
            clock: HybridClock::new(Duration::from_secs(60)),
            store: Store::new(options.seed, Timestamp::ZERO),
            watches: Watches::default(),
            unlogged: VecDeque::new(),
            logged: 0,
            fenced: false,
            drained: Vec::new(),
            checkpoint_at: None,
            options,
        }
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// How many keys have a deadline.
    pub fn deadlines(&self) -> usize {
        self.store.deadlines()
    }

    /// About how many bytes it occupies.
    pub fn memory(&self) -> usize {
        self.store.memory()
    }

    /// How durable its effects are.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Gives new effects this durability from now on.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// True while the log is failed and writes are refused.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The greatest stamp given; while the partition is held, everything that comes is above it.
    pub(super) fn now(&mut self, now: Now) -> Timestamp {
        self.clock.read(now.wall)
    }

    /// Everything that comes is above `stamp`.
    pub(super) fn advance(&mut self, stamp: Timestamp) {
        self.clock.recover(stamp);
    }

    /// Evaluates one operation on the newest state and commits its effect.
    #[inline]
    pub(super) fn execute(
        &mut self,
        now: Now,
        id: RequestId,
        keyed: &KeyedOperation<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        let mut context = Context { now_millis: now.wall.as_millis(), random };
        if keyed.operation.is_read() {
            return self.read(now, id, keyed, &mut context, out);
        }
        if self.fenced {
            return out.reply(id).error(&misconf());
        }
        let mut blind = BlindSink::default();
        if self.store.retains() {
            self.write_with_history(now, id, keyed, &mut context, &mut blind, out);
        } else if self.needs_undo() {
            self.write_in_place::<true>(now, id, keyed, &mut context, &mut blind, out);
        } else {
            self.write_in_place::<false>(now, id, keyed, &mut context, &mut blind, out);
        }
        if keyed.blind {
            blind.finish(out.reply(id));
        }
    }

    #[inline]
    fn read(
        &mut self,
        now: Now,
        id: RequestId,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        let record = self.store.record(keyed.hash, keyed.key);
        let cell = record.map_or(&Cell::ABSENT, |record| record.cell());
        if !cell.is_expired(context.now_millis) {
            prepare(cell, &keyed.operation, context, out.reply(id));
            return;
        }
        self.expire(now, keyed.hash, keyed.key, out);
        prepare(&Cell::ABSENT, &keyed.operation, context, out.reply(id));
    }

    /// A snapshot is open: the store keeps what it replaces.
    fn write_with_history(
        &mut self,
        now: Now,
        id: RequestId,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        blind: &mut BlindSink,
        out: &mut Outputs<'_, Self>,
    ) {
        self.settle_expiry(now, keyed.hash, keyed.key, out);
        let cell = self.store.cell(keyed.hash, keyed.key, context.now_millis);
        let sink: &mut dyn ReplySink = if keyed.blind { blind } else { out.reply(id) };
        if let Some(effect) = prepare(cell, &keyed.operation, context, sink) {
            self.commit(now, keyed.hash, keyed.key, &effect, out);
        }
    }

    /// The shortest path: no snapshot is open, so one look-up does it all. With `UNDO`, effects are logged and what
    /// takes them back is kept until the log has them.
    #[inline]
    fn write_in_place<const UNDO: bool>(
        &mut self,
        now: Now,
        id: RequestId,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        blind: &mut BlindSink,
        out: &mut Outputs<'_, Self>,
    ) {
        let (clock, unlogged, durability) = (&mut self.clock, &mut self.unlogged, self.options.durability);
        let (hash, key) = (keyed.hash, keyed.key);
        let changed = self.store.update_stamped(hash, key, |cell, mut previous| {
            let mut commit = |cell: &mut Cell, effect: &Effect<'_>, out: &mut Outputs<'_, Self>| {
                let stamp = clock.tick(now.wall);
                if UNDO {
                    out.persist(&Record::Effect { stamp, key, effect }, durability);
                    let patch = Some(apply::<true>(cell, effect));
                    let key = CompactKey::new(key);
                    unlogged.push_back(Unlogged::Effect(UnloggedEffect {
                        key,
                        hash,
                        stamp,
                        previous,
                        patch,
                    }));
                } else {
                    apply::<false>(cell, effect);
                }
                previous = stamp;
                stamp
            };
            let expired = cell.is_expired(context.now_millis).then(|| commit(cell, &Effect::DELETE, out));
            let sink: &mut dyn ReplySink = if keyed.blind { blind } else { out.reply(id) };
            let effect = prepare(cell, &keyed.operation, context, sink);
            let stamp = effect.map(|effect| commit(cell, &effect, out)).or(expired);
            (stamp.is_some(), stamp)
        });
        if changed && !self.watches.is_empty() {
            self.watches.touch(key);
        }
    }

    fn needs_undo(&self) -> bool {
        self.options.durability != Durability::Volatile
    }

    /// Stamps, logs and applies an effect.
    pub(super) fn commit(
        &mut self,
        now: Now,
        hash: KeyHash,
        key: &[u8],
        effect: &Effect<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        let stamp = self.clock.tick(now.wall);
        let durability = self.options.durability;
        if durability != Durability::Volatile {
            out.persist(&Record::Effect { stamp, key, effect }, durability);
        }
        self.apply(hash, key, stamp, effect);
        if !self.watches.is_empty() {
            self.watches.touch(key);
        }
    }

    fn apply(&mut self, hash: KeyHash, key: &[u8], stamp: Timestamp, effect: &Effect<'_>) {
        let undo = self.needs_undo();
        let previous = if undo { self.store.stamp(hash, key) } else { Timestamp::ZERO };
        let patch = if self.store.retains() {
            self.store.commit(hash, key, stamp, effect);
            None
        } else if undo {
            Some(self.store.update(hash, key, |cell| (apply::<true>(cell, effect), Some(stamp))))
        } else {
            return self.store.commit(hash, key, stamp, effect);
        };
        if undo {
            let key = CompactKey::new(key);
            self.unlogged.push_back(Unlogged::Effect(UnloggedEffect { key, hash, stamp, previous, patch }));
        }
    }

    /// Watches a key for a session; an expired one is absent from now on.
    pub(super) fn watch(
        &mut self,
        now: Now,
        session: SessionId,
        hash: KeyHash,
        key: &[u8],
        out: &mut Outputs<'_, Self>,
    ) {
        self.settle_expiry(now, hash, key, out);
        self.watches.add(session, key);
    }

    /// Commits the deletion of a key whose deadline has passed.
    pub(super) fn settle_expiry(&mut self, now: Now, hash: KeyHash, key: &[u8], out: &mut Outputs<'_, Self>) {
        let now_millis = now.wall.as_millis();
        if self.store.record(hash, key).is_some_and(|record| record.cell().is_expired(now_millis)) {
            self.expire(now, hash, key, out);
        }
    }

    fn take_back(&mut self, undo: UnloggedEffect) -> bool {
        match undo.patch {
            Some(mut patch) if !self.store.retains() => {
                self.store.update(undo.hash, &undo.key, |cell: &mut Cell| {
                    exchange(cell, &mut patch);
                    (true, Some(undo.previous))
                })
            }
            _ => self.store.retract(undo.hash, &undo.key, undo.stamp),
        }
    }

    fn expire(&mut self, now: Now, hash: KeyHash, key: &[u8], out: &mut Outputs<'_, Self>) {
        if !self.fenced {
            self.commit(now, hash, key, &Effect::DELETE, out);
        }
    }

    pub(super) fn flush(&mut self, now: Now, out: &mut Outputs<'_, Self>) -> Result<(), Error> {
        if self.fenced {
            return Err(misconf());
        }
        if self.store.retains() {
            // Snapshots still need the keys: each is deleted by itself.
            for key in self.keys() {
                self.commit(now, self.store.hash(&key), &key, &Effect::DELETE, out);
            }
            return Ok(());
        }
        let stamp = self.clock.tick(now.wall);
        if self.needs_undo() {
            out.persist(&Record::Flush { stamp }, self.options.durability);
            self.unlogged.push_back(Unlogged::Flush);
        }
        self.watches.touch_all();
        self.drained.push(self.store.clear(stamp));
        Ok(())
    }

    fn keys(&self) -> Vec<Box<[u8]>> {
        let (mut keys, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self.store.scan(cursor, |key, _| keys.push(key.into()));
            if cursor == 0 {
                return keys;
            }
        }
    }

    fn step_once(
        &mut self,
        now: Now,
        id: RequestId,
        step: &Step<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match step {
            Step::Key(keyed) => self.execute(now, id, keyed, random, out),
            Step::Count => out.reply(id).integer(self.store.len() as i64),
            Step::Flush => match self.flush(now, out) {
                Ok(()) => out.reply(id).simple("OK"),
                Err(error) => out.reply(id).error(&error),
            },
            Step::Scan { cursor, count } => {
                let mut keys = ReplyBuf::new();
                let (next, found) = self.scan(*cursor, *count, now.wall.as_millis(), &mut keys);
                reply_scan(next, found, &keys, out.reply(id));
            }
        }
    }

    /// Visits keys from `cursor` until about `count` are in `keys`; returns how many and where to go on, 0 at the end.
    pub(super) fn scan(
        &self,
        mut cursor: u64,
        count: u32,
        now_millis: u64,
        keys: &mut ReplyBuf,
    ) -> (u64, usize) {
        let mut found = 0;
        for _ in 0..count.max(1).saturating_mul(10) {
            cursor = self.store.scan(cursor, |key, record| {
                if !record.cell().is_expired(now_millis) {
                    keys.bulk(key);
                    found += 1;
                }
            });
            if cursor == 0 || found >= count as usize {
                break;
            }
        }
        (cursor, found)
    }

    fn on_request(
        &mut self,
        now: Now,
        id: RequestId,
        request: &Request<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match request {
            Request::One { operation, .. } => self.execute(now, id, operation, random, out),
            Request::Many { session, steps, watched } => {
                let stopped = *watched && self.is_touched(*session, now);
                if *watched {
                    self.watches.remove(*session);
                }
                if stopped {
                    return out.reply(id).null_array();
                }
                steps.iter().for_each(|step| self.step_once(now, id, step, random, out));
            }
            Request::Watch { session, keys } => {
                keys.iter().for_each(|(key, hash)| self.watch(now, *session, *hash, key, out));
                out.reply(id).simple("OK");
            }
            Request::Unwatch { session } => {
                self.watches.remove(*session);
                out.reply(id).simple("OK");
            }
            Request::Close { session } => self.watches.remove(*session),
            Request::Begin { .. }
            | Request::Operate { .. }
            | Request::Commit { .. }
            | Request::Abort { .. } => {
                out.reply(id)
                    .error(&Error::err("interactive transactions go through the keyspace, not a partition"));
            }
        }
    }

    /// True if a key that the session watches here has changed or expired.
    pub(super) fn is_touched(&self, session: SessionId, now: Now) -> bool {
        let now_millis = now.wall.as_millis();
        let expired = |key: &[u8]| {
            let record = self.store.record(self.store.hash(key), key);
            record.is_some_and(|record| record.cell().is_expired(now_millis))
        };
        self.watches.is_touched(session) || self.watches.keys(session).iter().any(|key| expired(key))
    }

    fn recover(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        match Recovered::decode(&mut Reader::new(bytes))? {
            Recovered::State { stamp, key, cell } => {
                self.clock.recover(stamp);
                self.store.restore(key, stamp, cell);
            }
            Recovered::Effect { stamp, key, effect } => {
                self.clock.recover(stamp);
                let hash = self.store.hash(key);
                if self.store.record(hash, key).is_none_or(|record| record.stamp() < stamp) {
                    self.store.commit(hash, key, stamp, &effect);
                }
            }
            Recovered::Flush { stamp } => {
                self.clock.recover(stamp);
                let hash_of = |key: &[u8]| self.store.hash(key);
                let older =
                    |key: &[u8]| self.store.record(hash_of(key), key).is_some_and(|r| r.stamp() < stamp);
                let older: Vec<_> = self.keys().into_iter().filter(|key| older(key)).collect();
                for key in older {
                    self.store.commit(self.store.hash(&key), &key, stamp, &Effect::DELETE);
                }
            }
        }
        Ok(())
    }

    fn housekeeping(&mut self, now: Now, out: &mut Outputs<'_, Self>) {
        let now_millis = now.wall.as_millis();
        if !self.fenced {
            let expired: Vec<Box<[u8]>> =
                self.store.expired(now_millis, EXPIRED_PER_TURN).map(Into::into).collect();
            for key in expired {
                self.commit(now, self.store.hash(&key), &key, &Effect::DELETE, out);
            }
        }
        if let Some(drained) = self.drained.last_mut() {
            if drained.free_some(FREED_PER_TURN) {
                self.drained.pop();
            }
        }
        let soon = !self.drained.is_empty() || self.store.next_deadline().is_some_and(|at| at <= now_millis);
        let wait = if soon { Duration::from_millis(1) } else { HOUSEKEEPING_EVERY };
        out.arm(Timer::Housekeeping, now.instant + wait);
    }

    /// Adds one place of the index to a checkpoint, as the snapshot shows it. Keys deleted since are found because
    /// their records stay while the snapshot needs them.
    fn checkpoint_snapshot(&mut self, snapshot: Timestamp, cursor: u64, chunk: &mut Vec<u8>) -> u64 {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        let next = self.store.scan_all(cursor, |key| keys.push(key.into()));
        for key in keys {
            let hash = self.store.hash(&key);
            let stamp = self.store.stamp(hash, &key).min(snapshot);
            self.store.with_state(
                hash,
                &key,
                |effect| *effect <= snapshot,
                &[],
                |cell| {
                    if cell.value.is_some() {
                        record::put(chunk, &Record::State { stamp, key: &key, cell });
                    }
                },
            );
        }
        next
    }

    /// Checkpoints show this snapshot from now on, which the caller has leased; `None`: the newest state.
    pub fn set_checkpoint_snapshot(&mut self, snapshot: Option<Timestamp>) {
        self.checkpoint_at = snapshot;
    }

    fn prefetch(&self, batch: &[Input<'_, Self>]) {
        let hashes = || {
            batch.iter().filter_map(|input| match input {
                Input::Request { request: Request::One { operation, .. }, .. } => Some(operation.hash),
                _ => None,
            })
        };
        hashes().for_each(|hash| self.store.prefetch_bucket(hash));
        hashes().for_each(|hash| self.store.prefetch_record(hash));
    }
}

/// Replies to a scan.
pub(super) fn reply_scan(next: u64, found: usize, keys: &ReplyBuf, sink: &mut dyn ReplySink) {
    sink.array(2);
    sink.integer(next as i64);
    sink.array(found);
    keys.replay(sink);
}

pub(super) fn misconf() -> Error {
    Error::new(
        ErrorCode::Misconf,
        "the log cannot be written (disk full or I/O error, see the server's log); writes are refused until it can, reads go on",
    )
}

/// Swallows the result of a blind operation, except an error, which it keeps.
#[derive(Debug, Default)]
pub(super) struct BlindSink(Option<Error>);

impl BlindSink {
    pub(super) fn finish(self, sink: &mut dyn ReplySink) {
        match self.0 {
            None => sink.simple("OK"),
            Some(error) => sink.error(&error),
        }
    }
}

impl ReplySink for BlindSink {
    fn simple(&mut self, _: &str) {}
    fn bulk(&mut self, _: &[u8]) {}
    fn integer(&mut self, _: i64) {}
    fn double(&mut self, _: f64) {}
    fn text(&mut self, _: &str) {}
    fn null(&mut self) {}
    fn null_array(&mut self) {}
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
    fn set(&mut self, _: usize) {}
    fn pairs(&mut self, _: usize) {}
    fn pair(&mut self) {}
    fn error(&mut self, error: &Error) {
        self.0 = Some(error.clone());
    }
}

impl Protocol for Solo {
    type Message = ();
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        if batch.len() > 1 {
            self.prefetch(batch);
        }
        for input in batch.drain(..) {
            match input {
                Input::Request { id, request } => self.on_request(now, id, &request, random, out),
                Input::Snapshot(chunk) => {
                    let records = Record::split(chunk).collect::<Result<Vec<_>, _>>();
                    let outcome =
                        records.and_then(|records| records.into_iter().try_for_each(|r| self.recover(r)));
                    debug_assert!(outcome.is_ok(), "checkpoints are checksummed");
                }
                Input::Recover(record) => {
                    let outcome = self.recover(record);
                    debug_assert!(outcome.is_ok(), "log records are checksummed");
                }
                Input::Recovered { .. } => out.arm(Timer::Housekeeping, now.instant + HOUSEKEEPING_EVERY),
                Input::Timer(Timer::Housekeeping) => self.housekeeping(now, out),
                Input::Message { .. } | Input::PeerStarted { .. } => {}
            }
        }
    }

    fn checkpoint(&mut self, mut cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        loop {
            cursor = match self.checkpoint_at {
                Some(snapshot) => self.checkpoint_snapshot(snapshot, cursor, chunk),
                None => self.store.scan(cursor, |key, held| {
                    record::put(chunk, &Record::State { stamp: held.stamp(), key, cell: held.cell() });
                }),
            };
            if cursor == 0 {
                return None;
            }
            if chunk.len() >= CHECKPOINT_CHUNK_BYTES {
                return Some(cursor);
            }
        }
    }

    fn logged(&mut self, records: u64) {
        let taken = records.saturating_sub(self.logged).min(self.unlogged.len() as u64);
        self.unlogged.drain(..taken as usize);
        self.logged = records;
    }

    fn log_failed(&mut self) -> bool {
        self.fenced = true;
        while let Some(record) = self.unlogged.pop_back() {
            let undone = match record {
                Unlogged::Effect(undo) => self.take_back(undo),
                Unlogged::Flush => false,
            };
            if !undone {
                return false;
            }
        }
        true
    }

    fn log_healed(&mut self) {
        self.fenced = false;
    }
}
