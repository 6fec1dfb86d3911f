//! Operations on keys: evaluated on the newest state, logged, applied.

use super::Solo;
use super::record::Record;
use super::undo::Change;
use datatypes::{Cell, Context, Effect, apply, prepare};
use mvcc::CompactKey;
use protocol::{KeyedOperation, Now, Outputs, misconf};
use types::{Error, KeyHash, ReplySink, RequestId, Rng};

impl Solo {
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
        let mut context = Context { now_millis: now.wall.as_millis(), random, site: None };
        self.store.touch(keyed.hash, context.now_millis);
        if keyed.blind {
            self.execute_blind(now, id, keyed, &mut context, out);
        } else if keyed.operation.is_read() {
            self.read(now, Answer::Asker(id), keyed, &mut context, out);
        } else {
            self.write(now, Answer::Asker(id), keyed, &mut context, out);
        }
    }

    fn execute_blind(
        &mut self,
        now: Now,
        id: RequestId,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        let mut blind = BlindSink::default();
        if keyed.operation.is_read() {
            self.read(now, Answer::Nobody(&mut blind), keyed, context, out);
        } else {
            self.write(now, Answer::Nobody(&mut blind), keyed, context, out);
        }
        blind.finish(out.reply(id));
    }

    #[inline]
    fn read(
        &mut self,
        now: Now,
        mut answer: Answer<'_>,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        let record = self.store.record(keyed.hash, keyed.key);
        let cell = record.map_or(&Cell::ABSENT, |record| record.cell());
        if cell.expiry(context.now_millis).is_none() {
            prepare(cell, &keyed.operation, context, answer.sink(out));
            return;
        }
        let living = cell.living(context.now_millis).into_owned();
        self.settle_expiry(now, context.now_millis, keyed.hash, keyed.key, out);
        prepare(&living, &keyed.operation, context, answer.sink(out));
    }

    #[inline]
    fn write(
        &mut self,
        now: Now,
        mut answer: Answer<'_>,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        if self.fenced {
            return answer.sink(out).error(&misconf());
        }
        if self.store.retains() {
            self.write_with_history(now, answer, keyed, context, out);
        } else if self.needs_undo() {
            self.write_in_place::<true>(now, answer, keyed, context, out);
        } else {
            self.write_in_place::<false>(now, answer, keyed, context, out);
        }
    }

    /// A snapshot is open: the store keeps what it replaces.
    fn write_with_history(
        &mut self,
        now: Now,
        mut answer: Answer<'_>,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        self.settle_expiry(now, context.now_millis, keyed.hash, keyed.key, out);
        let cell = self.store.cell(keyed.hash, keyed.key, context.now_millis);
        if let Some(effect) = prepare(cell, &keyed.operation, context, answer.sink(out)) {
            self.commit(now, keyed.hash, keyed.key, &effect, out);
        }
    }

    /// The shortest path: no snapshot is open, so one look-up does it all. With `UNDO`, the partition retains what
    /// takes the effects back until the log has them.
    #[inline]
    fn write_in_place<const UNDO: bool>(
        &mut self,
        now: Now,
        mut answer: Answer<'_>,
        keyed: &KeyedOperation<'_>,
        context: &mut Context<'_>,
        out: &mut Outputs<'_, Self>,
    ) {
        let (is_logged, durability) = (self.is_logged(), self.durability());
        let (clock, unlogged, noted) = (&mut self.clock, &mut self.unlogged, &mut self.expired);
        let (hash, key) = (keyed.hash, keyed.key);
        let changed = self.store.update_stamped(hash, key, |cell, mut previous| {
            let mut commit = |cell: &mut Cell, effect: &Effect<'_>, out: &mut Outputs<'_, Self>| {
                let stamp = clock.tick(now.wall);
                if UNDO {
                    if is_logged {
                        out.persist(&Record::Effect { stamp, key, effect }, durability);
                        unlogged.count_record();
                    }
                    let patch = apply::<true>(cell, effect);
                    unlogged.push(Change::InPlace { key: CompactKey::new(key), hash, previous, patch });
                } else {
                    apply::<false>(cell, effect);
                }
                previous = stamp;
                stamp
            };
            let expired = cell.expiry(context.now_millis).map(|expiry| {
                if let Some(noted) = noted.as_mut().filter(|_| expiry == Effect::DELETE) {
                    noted.push(key.into());
                }
                commit(cell, &expiry, out)
            });
            let effect = prepare(cell, &keyed.operation, context, answer.sink(out));
            let stamp = effect.map(|effect| commit(cell, &effect, out)).or(expired);
            (stamp.is_some(), stamp)
        });
        if changed && !self.watches.is_empty() {
            self.watches.touch(key);
        }
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
        let undo = self.needs_undo();
        if self.is_logged() {
            out.persist(&Record::Effect { stamp, key, effect }, self.durability());
            self.unlogged.count_record();
        }
        let change = if self.store.retains() {
            let keys = self.store.len();
            self.store.commit(hash, key, stamp, effect);
            if self.store.len() != keys {
                self.keyset.changed = stamp;
            }
            Change::InHistory { key: CompactKey::new(key), hash, stamp }
        } else {
            let (previous, patch) = self.store.update_stamped(hash, key, |cell, previous| {
                let patch = if undo { apply::<true>(cell, effect) } else { apply::<false>(cell, effect) };
                ((previous, patch), Some(stamp))
            });
            Change::InPlace { key: CompactKey::new(key), hash, previous, patch }
        };
        if undo {
            self.unlogged.push(change);
        }
        if !self.watches.is_empty() {
            self.watches.touch(key);
        }
    }

    /// Commits the deletion of what has expired of a key at `now_millis` (Corrections 69), unless the log is failed.
    pub(super) fn settle_expiry(
        &mut self,
        now: Now,
        now_millis: u64,
        hash: KeyHash,
        key: &[u8],
        out: &mut Outputs<'_, Self>,
    ) {
        let cell = self.store.record(hash, key).map_or(&Cell::ABSENT, |record| record.cell());
        let Some(expiry) = cell.expiry(now_millis).filter(|_| !self.fenced) else { return };
        let gone = if expiry == Effect::DELETE { cell.end() } else { 0 };
        let changed = self.keyset.changed;
        self.commit(now, hash, key, &expiry, out);
        if let Some(expired) = self.expired.as_mut().filter(|_| expiry == Effect::DELETE) {
            expired.push(key.into());
        }
        self.keyset.changed = changed;
        self.keyset.expired_until = self.keyset.expired_until.max(gone);
    }

    /// Removes every key. While snapshots need the keys, each is deleted by itself.
    pub(super) fn flush(&mut self, now: Now, out: &mut Outputs<'_, Self>) -> Result<(), Error> {
        if self.fenced {
            return Err(misconf());
        }
        if self.store.retains() {
            for key in self.keys() {
                self.commit(now, self.store.hash(&key), &key, &Effect::DELETE, out);
            }
            return Ok(());
        }
        let stamp = self.clock.tick(now.wall);
        let undo = self.needs_undo();
        if self.is_logged() {
            out.persist(&Record::Flush { stamp }, self.durability());
            self.unlogged.count_record();
        }
        let removed = self.store.take(stamp);
        self.watches.touch_where(|key| removed.cell(removed.hash(key), key, 0).value.is_some());
        if undo {
            self.unlogged.push(Change::Flush(Box::new(removed)));
        } else {
            self.freed.push(removed.into_deferred_drop());
        }
        Ok(())
    }

    /// Every key that holds a value.
    pub(super) fn keys(&self) -> Vec<Box<[u8]>> {
        let (mut keys, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self.store.scan(cursor, |key, _| keys.push(key.into()));
            if cursor == 0 {
                return keys;
            }
        }
    }
}

/// Who gets the result of an operation.
enum Answer<'s> {
    /// The client that sent the request.
    Asker(RequestId),
    /// Nobody sees it (`BLIND`).
    Nobody(&'s mut BlindSink),
}

impl Answer<'_> {
    #[inline]
    fn sink<'o>(&'o mut self, out: &'o mut Outputs<'_, Solo>) -> &'o mut dyn ReplySink {
        match self {
            Answer::Asker(id) => out.reply(*id),
            Answer::Nobody(sink) => *sink,
        }
    }
}

/// Swallows the result of a blind operation, except an error, which it keeps.
#[derive(Debug, Default)]
pub(super) struct BlindSink(Option<Error>);

impl BlindSink {
    /// `OK`, or the error.
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
    fn number(&mut self, _: &str) {}
    fn big_number(&mut self, _: &[u8]) {}
    fn boolean(&mut self, _: bool) {}
    fn verbatim(&mut self, _: [u8; 3], _: &[u8]) {}
    fn null(&mut self) {}
    fn null_array(&mut self) {}
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
    fn set(&mut self, _: usize) {}
    fn pairs(&mut self, _: usize) {}
    fn pair(&mut self) {}
    fn entries(&mut self, _: usize) {}
    fn entry(&mut self) {}
    fn error(&mut self, error: &Error) {
        self.0 = Some(error.clone());
    }
}
