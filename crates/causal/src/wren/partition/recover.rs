//! The log and the checkpoint.
//!
//! The log holds what was proposed, decided and received; replaying it gives the queues, the version vector and the
//! histories back. Heartbeats are not logged: what was received of a region is known up to below its last effect
//! (its stream is in order), and the region tells the time again. What this life stamps is above every promise of
//! the earlier ones.
//!
//! A checkpoint begins with everything but the keys, then tells key by key the cell at the horizon and the effects
//! above it; the horizon stays meanwhile. A record logged after its beginning may be in it already: a transaction's
//! effects on a key count once, and what is at or below the horizon is in the cell.

use super::{Decided, Life, Origin, Partition, Pending};
use crate::wren::pledge;
use crate::wren::record::{self, Effects, Record};
use crate::wren::stamp::{Snapshot, Stamp};
use crate::wren::{Node, Timer};
use mvcc::CompactKey;
use protocol::{Now, Outputs};
use std::borrow::Cow;
use types::{Instant, Malformed, Reader};

/// Where a checkpoint's keys begin, among its cursors.
const KEYS: u64 = 1 << 63;
const CHUNK_BYTES: usize = 64 * 1024;

impl Partition {
    pub(super) fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        while !reader.is_empty() {
            self.recover(reader.bytes()?)?;
        }
        Ok(())
    }

    pub(super) fn recover(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        match Record::decode(&mut Reader::new(bytes))? {
            Record::Prepared { id, at, depends_on, decider, pledges, gained } => {
                self.clock.recover(at);
                if self.decisions.get(id).is_none() && self.participant.prepared(id).is_none() {
                    let pledges = pledges.into_owned();
                    self.hold(id, &pledges);
                    let (gained, since) = (gained.into_owned(), Instant::default());
                    self.participant.prepare(id, at, Pending { depends_on, decider, pledges, gained, since });
                }
            }
            Record::Committed { id, at } => {
                if let Some(pending) = self.participant.take(id) {
                    self.commit_pending(id, at, pending);
                }
            }
            Record::Aborted { id } => self.abort(id),
            Record::Alone { effects: Effects { stamp, effects }, gained } => {
                self.clock.recover(stamp.at);
                self.commit_effects(stamp, effects.into_owned());
                let decided = Decided { at: Some(stamp.at), outlives: false, gained: gained.into_owned() };
                self.decisions.decide(stamp.transaction, decided);
            }
            Record::Replicated(Effects { stamp, effects }) => {
                let origin = self.origins.entry(stamp.region).or_default();
                if stamp.at > origin.up_to {
                    origin.above.insert((stamp.at, stamp.transaction));
                }
                self.store_effects(stamp, &effects);
            }
            Record::Promise { until } => {
                self.promised = self.promised.max(until);
                self.clock.recover(until);
            }
            Record::Horizon { at } => self.raise_horizon(Snapshot { local: at, remote: at }),
            Record::Received { origin, up_to, above } => {
                let above = above.iter().copied().collect();
                self.origins.insert(origin, Origin { up_to, above });
            }
            Record::Decided { id, at, outlives, gained } => {
                self.decisions.decide(id, Decided { at, outlives, gained: gained.into_owned() });
            }
            Record::Outgoing(Effects { stamp, effects }) => {
                self.clock.recover(stamp.at);
                let outgoing =
                    super::Outgoing { depends_on: stamp.depends_on, effects: effects.into_owned() };
                self.participant.commit(stamp.at, stamp.transaction, outgoing);
            }
            Record::State { key, cell } => {
                let place = Stamp::last_at(self.horizon.remote);
                self.store.restore(&key, place, Record::cell(&cell)?);
            }
            Record::Kept { key, stamp, effect } => {
                let hash = self.store.hash(&key);
                if let Some(effect) = pledge::effect(&effect) {
                    self.store.commit(hash, &key, stamp, &effect);
                }
            }
        }
        Ok(())
    }

    pub(super) fn on_recovered(&mut self, now: Now, complete: bool, out: &mut Outputs<'_, Node>) {
        self.life = if complete { Life::Serving } else { Life::Incomplete };
        if !complete {
            return;
        }
        self.participant.undecided_mut().for_each(|pending| pending.since = now.instant);
        for origin in self.origins.values_mut() {
            if let Some((last, _)) = origin.above.last().copied() {
                origin.up_to = origin.up_to.max(last.previous());
                origin.above.retain(|(at, _)| *at >= last);
            }
        }
        self.leases.begin(now.instant, self.options.lease);
        self.greet_all(out);
        out.arm(Timer::Apply, now.instant + self.options.apply_every);
        out.arm(Timer::Gossip, now.instant + self.options.gossip_every);
        out.arm(Timer::Doubt, now.instant + self.options.doubt_after / 4);
    }

    pub(in crate::wren) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if cursor == 0 {
            self.checkpointing = true;
            self.checkpoint_queues(chunk);
            return Some(KEYS);
        }
        let mut cursor = cursor & !KEYS;
        loop {
            cursor = self.checkpoint_keys(cursor, chunk);
            if cursor == 0 {
                self.checkpointing = false;
                return None;
            }
            if chunk.len() >= CHUNK_BYTES {
                return Some(KEYS | cursor);
            }
        }
    }

    fn checkpoint_queues(&self, chunk: &mut Vec<u8>) {
        record::put(chunk, &Record::Horizon { at: self.horizon.remote });
        let until = self.promised.max(self.clock.last());
        record::put(chunk, &Record::Promise { until });
        for (origin, received) in &self.origins {
            let above = Cow::Owned(received.above.iter().copied().collect());
            record::put(chunk, &Record::Received { origin: *origin, up_to: received.up_to, above });
        }
        for (id, decided) in self.decisions.iter() {
            let gained = Cow::Borrowed(&decided.gained);
            let (at, outlives) = (decided.at, decided.outlives);
            record::put(chunk, &Record::Decided { id, at, outlives, gained });
        }
        for (id, at, pending) in self.participant.undecided() {
            let (depends_on, decider) = (pending.depends_on, pending.decider);
            let pledges = Cow::Borrowed(pending.pledges.as_slice());
            let gained = Cow::Borrowed(&pending.gained);
            record::put(chunk, &Record::Prepared { id, at, depends_on, decider, pledges, gained });
        }
        for (at, id, outgoing) in self.outbox.iter().chain(self.participant.waiting()) {
            let stamp = self.stamp(id, at, outgoing.depends_on);
            record::put(chunk, &Record::Outgoing(super::borrowed(stamp, &outgoing.effects)));
        }
    }

    fn checkpoint_keys(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> u64 {
        let mut keys: Vec<CompactKey> = Vec::new();
        let next = self.store.scan_all(cursor, |key| keys.push(CompactKey::new(key)));
        let horizon = Stamp::last_at(self.horizon.remote);
        for key in &keys {
            let hash = self.store.hash(key);
            let mut cell = Vec::new();
            self.store.with_state(
                hash,
                key,
                |stamp| *stamp <= horizon,
                &[],
                |state| {
                    if state.value.is_some() {
                        state.encode(&mut cell);
                    }
                },
            );
            if !cell.is_empty() {
                record::put(chunk, &Record::State { key: Cow::Borrowed(key), cell: Cow::Borrowed(&cell) });
            }
            for (stamp, effect) in self.store.effects(hash, key) {
                let mut bytes = Vec::new();
                effect.encode(&mut bytes);
                let (key, effect) = (Cow::Borrowed(&**key), Cow::Borrowed(bytes.as_slice()));
                record::put(chunk, &Record::Kept { key, stamp, effect });
            }
        }
        next
    }
}
