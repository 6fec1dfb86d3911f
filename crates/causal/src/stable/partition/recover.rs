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

use super::expire::is_nobodys;
use super::{Decided, Origin, Partition, Pending, Status};
use crate::stable::intent;
use crate::stable::message::{EvaluationResults, KeyEffects};
use crate::stable::record::{self, Effects, Record};
use crate::stable::stamp::Stamp;
use crate::stable::{Depends, Mutant, Node, Timer, Times};
use datatypes::merge::Trace;
use mvcc::{CompactKey, Store};
use protocol::{Now, Outputs};
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::{HybridClock, Instant, Malformed, Reader, RegionId, Rng, Timestamp, TransactionId};

/// Where a checkpoint's keys begin, among its cursors.
const KEYS: u64 = 1 << 63;
/// Where what was lost to concurrent writes begins, among the cursors of keys.
const LOSSES: u64 = 1 << 62;
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

impl<S: Times> Partition<S> {
    pub(super) fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        let (mut retained, mut context) = (RetainedEffects::default(), ContextRestore::default());
        while !reader.is_empty() {
            let bytes = reader.bytes()?;
            match Record::<S::Depends>::decode(&mut Reader::new(bytes))? {
                Record::RetainedEffect { key, stamp, effect } => {
                    if let Some(full) = retained.add(&key, stamp, &effect) {
                        self.evictions.without_given_up::<S>(&full).put_into(&mut self.store);
                    }
                }
                Record::Context { key, stamp, effect, trace } => {
                    context.add(&mut self.store, &key, stamp, &effect, trace);
                }
                _ => self.recover(bytes)?,
            }
        }
        self.evictions.without_given_up::<S>(&retained).put_into(&mut self.store);
        // The source of this piece may not have given up everything yet.
        self.evictions.search_again();
        Ok(())
    }

    pub(super) fn recover(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.fold_behind();
        match Record::<S::Depends>::decode(&mut Reader::new(bytes))? {
            Record::Prepared { id, at, depends_on, decider, intents, results } => {
                let (intents, results) = (intents.into_owned(), results.into_owned());
                let since = Instant::default();
                let pending = Pending { depends_on, decider, intents, results, since, fenced: false };
                self.recover_prepared(id, at, pending);
            }
            Record::Committed { id, at } => {
                if let Some(pending) = self.participant.take(id) {
                    self.commit_pending(id, at, pending);
                }
            }
            Record::Aborted { id } => self.abort(id),
            Record::Alone { effects: Effects { stamp, effects }, results } => {
                self.recover_alone(stamp, effects.into_owned(), results.into_owned());
            }
            Record::Replicated(Effects { stamp, .. })
                if self.evictions.has(stamp.region) || self.evictions.gives_up::<S>(&stamp) => {}
            Record::Replicated(Effects { stamp, effects }) => {
                let origin = self.origins.entry(stamp.region).or_default();
                if stamp.at > origin.up_to {
                    origin.above.insert((stamp.at, stamp.transaction));
                }
                self.store_effects(stamp, &effects);
            }
            Record::Promise { .. } if self.options.mutants.has(Mutant::PromiseForgotten) => {}
            Record::Promise { until, observed } => {
                self.promised = self.promised.max(until);
                self.promised_dependencies = self.promised_dependencies.max(observed);
                self.clock.recover(until);
            }
            Record::Heard { received } => {
                for (origin, up_to) in received {
                    self.recover_received(origin, up_to);
                }
            }
            Record::Horizon { at } => self.raise_horizon(S::at(at)),
            Record::Received { origin, up_to, above } => {
                let above = above.iter().copied().collect();
                self.origins.insert(origin, Origin { up_to, above, vouched: Timestamp::ZERO });
            }
            Record::Decided { id, at, outlives, results } => {
                self.decisions.decide(id, Decided { at, outlives, results: results.into_owned() });
            }
            Record::Outgoing(Effects { stamp, .. }) if self.evictions.gives_up::<S>(&stamp) => {}
            Record::Outgoing(Effects { stamp, effects }) => {
                self.clock.recover(stamp.at);
                let outgoing =
                    super::Outgoing { depends_on: stamp.depends_on, effects: effects.into_owned() };
                self.participant.commit(stamp.at, stamp.transaction, outgoing);
            }
            Record::State { key, cell } => {
                let place = Stamp::last_at(self.horizon.whole());
                self.store.restore(&key, place, record::cell(&cell)?);
            }
            // A key's effects stand together in a chunk.
            Record::RetainedEffect { .. } | Record::Context { .. } => {}
            Record::Gaps { filled } => self.recover_gaps(filled),
            Record::Progress(progress) => self.follow_progress(&progress),
            Record::Dropped { until } => self.outbox.drop_through(until),
            Record::Evicted { region, held, cut } => self.recover_eviction(region, held, cut),
            Record::Lost(loss) => self.store.put_loss(loss.into_owned()),
            Record::LossesDropped { count } => self.store.put_dropped_losses(count),
            Record::Settled(known) => self.recover_settled(&known),
        }
        Ok(())
    }

    fn recover_prepared(&mut self, id: TransactionId, at: Timestamp, pending: Pending<S::Depends>) {
        self.clock.recover(at);
        if self.decisions.get(id).is_none() && self.participant.prepared(id).is_none() {
            self.hold(id, &pending.intents);
            self.participant.prepare(id, at, pending);
        }
    }

    /// A transaction whose only participant this is.
    fn recover_alone(
        &mut self,
        stamp: Stamp<S::Depends>,
        effects: Vec<KeyEffects>,
        results: EvaluationResults,
    ) {
        self.clock.recover(stamp.at);
        self.commit_effects(stamp, effects);
        if !is_nobodys(stamp.transaction) {
            let decided = Decided { at: Some(stamp.at), outlives: false, results };
            self.decisions.decide(stamp.transaction, decided);
        }
    }

    fn recover_gaps(&mut self, filled: bool) {
        self.forgetful = true;
        if !filled {
            // What follows was received on top of what no log holds.
            self.settle_origins();
            self.gaps = true;
        }
    }

    /// Everything of a region up to here is here, unless what the log relies on is in no log.
    fn recover_received(&mut self, origin: RegionId, up_to: Timestamp) {
        if let Some(origin) = self.origins.get_mut(&origin).filter(|_| !self.gaps) {
            origin.up_to = origin.up_to.max(up_to);
            let up_to = origin.up_to;
            origin.above.retain(|(at, _)| *at > up_to);
        }
    }

    /// The stream of every region is in order: everything below its last effect is here.
    fn settle_origins(&mut self) {
        if self.gaps {
            return;
        }
        for origin in self.origins.values_mut() {
            if let Some((last, _)) = origin.above.last().copied() {
                origin.up_to = origin.up_to.max(last.previous());
                origin.above.retain(|(at, _)| *at >= last);
            }
        }
    }

    pub(super) fn on_recovered(
        &mut self,
        now: Now,
        complete: bool,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.settle_origins();
        self.give_up_all();
        if (complete && !self.gaps) || self.options.mutants.has(Mutant::StampBeforeCatchUp) {
            return self.begin_serving(now, out);
        }
        self.status = Status::CatchingUp;
        self.gaps = true;
        self.forgetful = true;
        self.persist(&Record::Gaps { filled: false }, out);
        self.recall_everything(now, random, out);
    }

    /// Nothing is missing: it serves, and its peers go on from what it holds.
    pub(super) fn begin_serving(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        self.status = Status::Serving;
        if self.options.mutants.has(Mutant::PromiseForgotten) {
            self.clock = HybridClock::new(self.options.clock_bound);
        }
        self.participant.undecided_mut().for_each(|pending| pending.since = now.instant);
        self.leases.begin(now.instant, self.options.lease);
        self.begin_accord(now);
        self.greet_all(out);
        self.arm_tick(now, out);
        out.arm(Timer::Doubt, now.instant + self.options.doubt_after / 4);
    }

    pub(in crate::stable) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        self.checkpointing = true;
        let next = self.tell(cursor, chunk);
        self.checkpointing = next.is_some();
        next
    }

    /// The next piece of everything; the horizon stays meanwhile.
    pub(super) fn tell(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if cursor == 0 {
            self.checkpoint_queues(chunk);
            return Some(self.checkpoint_outgoing(Timestamp::ZERO, chunk));
        }
        if cursor & KEYS == 0 {
            return Some(self.checkpoint_outgoing(Timestamp(cursor << 1 | 1), chunk));
        }
        let mut cursor = cursor & !KEYS;
        loop {
            cursor = self.checkpoint_keys(cursor, None, chunk);
            if cursor == 0 {
                return None;
            }
            if chunk.len() >= CHUNK_BYTES {
                return Some(KEYS | cursor);
            }
        }
    }

    fn checkpoint_queues(&self, chunk: &mut Vec<u8>) {
        record::put::<S>(chunk, &Record::Horizon { at: self.horizon.whole() });
        let until = self.promised.max(self.clock.last());
        record::put::<S>(chunk, &Record::Promise { until, observed: self.promised_dependencies });
        for (origin, received) in &self.origins {
            let above = Cow::Owned(received.above.iter().copied().collect());
            record::put::<S>(chunk, &Record::Received { origin: *origin, up_to: received.up_to, above });
        }
        for (region, held, cut) in self.evictions.recorded() {
            record::put::<S>(chunk, &Record::Evicted { region, held, cut });
        }
        let settled = self.decisions.settled().collect();
        record::put::<S>(chunk, &Record::Settled(Cow::Owned(settled)));
        for (id, decided) in self.decisions.iter() {
            let results = Cow::Borrowed(&decided.results);
            let (at, outlives) = (decided.at, decided.outlives);
            record::put::<S>(chunk, &Record::Decided { id, at, outlives, results });
        }
        for (id, at, pending) in self.participant.undecided() {
            let (depends_on, decider) = (pending.depends_on, pending.decider);
            let intents = Cow::Borrowed(pending.intents.as_slice());
            let results = Cow::Borrowed(&pending.results);
            record::put::<S>(chunk, &Record::Prepared { id, at, depends_on, decider, intents, results });
        }
        if self.status == Status::CatchingUp || self.forgetful {
            record::put::<S>(chunk, &Record::Gaps { filled: self.status == Status::Serving });
        }
    }

    /// The transactions of this region placed after `reported` that some region may lack, of those in memory. What has left it since
    /// the last piece, or before, is missing, and each piece says so: it is in no log either. A cursor is half the
    /// place up to which earlier pieces hold them, so that it never looks like one of a key.
    fn checkpoint_outgoing(&self, reported: Timestamp, chunk: &mut Vec<u8>) -> u64 {
        let until = match self.options.mutants.has(Mutant::SpilledNotTold) {
            true => self.outbox.dropped(),
            false => self.outbox.dropped_from_memory(),
        };
        record::put::<S>(chunk, &Record::Dropped { until });
        let mut last = reported;
        let waiting = self.participant.waiting().filter(|(at, ..)| *at > reported);
        for (at, id, outgoing) in self.outbox.after(reported).chain(waiting) {
            if chunk.len() >= CHUNK_BYTES && at.0 >> 1 > last.0 >> 1 {
                return last.0 >> 1;
            }
            let stamp = self.stamp(id, at, outgoing.depends_on);
            record::put::<S>(chunk, &Record::Outgoing(super::borrowed(stamp, &outgoing.effects)));
            last = at;
        }
        KEYS
    }

    /// The keys at the cursor: each with its cell at the horizon and the effects above it; or only with its effects
    /// `above` a place. The lost updates follow the last key: ones that become known in between follow from the
    /// effects.
    pub(super) fn checkpoint_keys(
        &mut self,
        cursor: u64,
        above: Option<Timestamp>,
        chunk: &mut Vec<u8>,
    ) -> u64 {
        if cursor & LOSSES != 0 {
            return self.checkpoint_losses(cursor & !LOSSES, chunk).map_or(0, |number| LOSSES | number);
        }
        let next = tell_keys::<S>(&mut self.store, cursor, self.horizon.whole(), above, chunk);
        match next {
            0 if above.is_none() => LOSSES,
            next => next,
        }
    }
}

/// The keys at the cursor: each with its cell at the horizon and the effects above it; or only with its effects `above` a
/// place. Returns the next cursor, 0 at the end.
pub(crate) fn tell_keys<S: Times>(
    store: &mut Store<Stamp<S::Depends>>,
    cursor: u64,
    horizon: Timestamp,
    above: Option<Timestamp>,
    chunk: &mut Vec<u8>,
) -> u64 {
    let mut keys: Vec<CompactKey> = Vec::new();
    let next = store.scan_all(cursor, |key| keys.push(CompactKey::new(key)));
    let horizon = Stamp::last_at(horizon);
    for key in &keys {
        let hash = store.hash(key);
        let mut cell = Vec::new();
        if above.is_none() {
            store.with_state(
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
        }
        if !cell.is_empty() {
            record::put::<S>(chunk, &Record::State { key: Cow::Borrowed(key), cell: Cow::Borrowed(&cell) });
        }
        if above.is_none() {
            for (stamp, effect, trace) in store.context(hash, key) {
                let (key, effect) = (Cow::Borrowed(&**key), Cow::Owned(intent::encoded(&effect).into_vec()));
                record::put::<S>(
                    chunk,
                    &Record::Context { key, stamp, effect, trace: trace.map(Cow::into_owned) },
                );
            }
        }
        let effects = store.effects(hash, key);
        for (stamp, effect) in effects.filter(|(stamp, _)| above.is_none_or(|above| stamp.at > above)) {
            let mut bytes = Vec::new();
            effect.encode(&mut bytes);
            let (key, effect) = (Cow::Borrowed(&**key), Cow::Borrowed(bytes.as_slice()));
            record::put::<S>(chunk, &Record::RetainedEffect { key, stamp, effect });
        }
    }
    next
}

/// Takes what a checkpoint or a peer tells of effects that are in the cells, key by key. A key may come twice, and the
/// effects of a transaction on it share a stamp.
#[derive(Debug)]
pub(crate) struct ContextRestore<D> {
    key: Box<[u8]>,
    /// The last one taken of the key.
    taken: Option<Stamp<D>>,
}

impl<D> Default for ContextRestore<D> {
    fn default() -> Self {
        ContextRestore { key: Box::default(), taken: None }
    }
}

impl<D: Depends> ContextRestore<D> {
    pub(crate) fn add(
        &mut self,
        store: &mut Store<Stamp<D>>,
        key: &[u8],
        stamp: Stamp<D>,
        effect: &[u8],
        trace: Option<Trace>,
    ) {
        if *self.key != *key {
            *self = ContextRestore { key: key.into(), taken: None };
        }
        let hash = store.hash(key);
        if let Some(effect) = intent::effect(effect)
            && (self.taken == Some(stamp) || !store.keeps(hash, key, stamp))
        {
            store.keep(hash, key, stamp, &effect, trace);
            self.taken = Some(stamp);
        }
    }
}

/// The effects of one key as a checkpoint or a piece tells them, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct RetainedEffects<D> {
    pub(crate) key: Box<[u8]>,
    pub(crate) effects: Vec<(Stamp<D>, Box<[u8]>)>,
}

impl<D> Default for RetainedEffects<D> {
    fn default() -> Self {
        RetainedEffects { key: Box::default(), effects: Vec::new() }
    }
}

impl<D: Depends> RetainedEffects<D> {
    /// Adds an effect; returns those of the key before, which are complete, if it is of another key.
    pub(crate) fn add(&mut self, key: &[u8], stamp: Stamp<D>, effect: &[u8]) -> Option<RetainedEffects<D>> {
        let full = (*self.key != *key).then(|| std::mem::take(self));
        if full.is_some() {
            self.key = key.into();
        }
        self.effects.push((stamp, effect.into()));
        full
    }

    /// Commits what is not there yet: a key may come twice, and from several peers.
    pub(crate) fn put_into(&self, store: &mut Store<Stamp<D>>) {
        let hash = store.hash(&self.key);
        let known: BTreeSet<Stamp<D>> = (self.effects.iter().map(|(stamp, _)| *stamp))
            .filter(|stamp| Some(*stamp) <= store.horizon() || store.has_effect(hash, &self.key, *stamp))
            .collect();
        for (stamp, bytes) in self.effects.iter().filter(|(stamp, _)| !known.contains(stamp)) {
            if let Some(effect) = intent::effect(bytes) {
                store.commit(hash, &self.key, *stamp, &effect);
            }
        }
    }
}
