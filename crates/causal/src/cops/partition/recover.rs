//! The log and the checkpoint. The log holds the writes of this region and of others, each with everything that is
//! replicated of it; its sender repeats what has arrived and waits. Times that were heard are logged with each promise:
//! what is written here of each region, and what each equivalent holds, so that no later life keeps that for it. What
//! this life stamps is above every promise of the earlier ones; it knows nothing of other regions' clocks.
//!
//! A checkpoint begins with everything but the keys, then tells key by key the cell at the horizon and the effects above it; the
//! horizon stays meanwhile. A record logged after its beginning may be in it already: an effect counts once.

use super::{Partition, Status};
use crate::cops::message::PutOutcome;
use crate::cops::record::{self, Record, Written};
use crate::cops::{Cut, Dependencies, Entries, Node, Stamp, Timer};
use crate::stable;
use crate::stable::{CHUNK_BYTES, ContextRestore, RetainedEffects, tell_keys, tell_losses};
use protocol::{Now, Outputs};
use std::borrow::Cow;
use types::{Malformed, Reader, RegionId, Rng, Timestamp};

/// Where a checkpoint's keys begin, among its cursors.
const KEYS: u64 = 1 << 63;
/// Where what was lost to concurrent writes begins, behind the keys.
const LOSSES: u64 = 1 << 62;
/// And what versions depend on, behind these.
const CAUSES: u64 = 1 << 61;
/// A cursor has so many bits less of a place: writes placed within some milliseconds are in one piece.
const PLACE: u32 = 26;

impl Partition {
    pub(super) fn recover_chunk(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(chunk);
        let (mut retained, mut context) = (RetainedEffects::default(), ContextRestore::default());
        while !reader.is_empty() {
            let bytes = reader.bytes()?;
            match Record::decode(&mut Reader::new(bytes))? {
                Record::Common(stable::Record::RetainedEffect { key, stamp, effect }) => {
                    self.note_shown(stamp);
                    if let Some(full) = retained.add(&key, stamp, &effect) {
                        full.put_into(&mut self.store);
                    }
                }
                Record::Common(stable::Record::Context { key, stamp, effect, trace }) => {
                    context.add(&mut self.store, &key, stamp, &effect, trace);
                }
                record => self.recover_record(record)?,
            }
        }
        retained.put_into(&mut self.store);
        Ok(())
    }

    pub(super) fn recover(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.fold_behind();
        self.recover_record(Record::decode(&mut Reader::new(bytes))?)
    }

    fn recover_record(&mut self, record: Record<'static>) -> Result<(), Malformed> {
        match record {
            Record::Put(written, put) => {
                self.clock.recover(written.stamp.at);
                self.recover_written(&written);
                let Stamp { at, transaction, region, .. } = written.stamp;
                let mut put = put.into_owned();
                put.got.dependencies = self.dependencies_of(region, at);
                self.remember(transaction, PutOutcome::Done { put: Box::new(put) });
                self.queue(written.into_owned());
            }
            Record::Replicated(written) => self.recover_written(&written),
            Record::Answered(id, outcome) => self.remember(id, outcome.into_owned()),
            Record::Outgoing(written) => {
                self.clock.recover(written.stamp.at);
                self.queue(written.into_owned());
            }
            Record::RetainedDependencies(region, at, dependencies) => {
                self.dependencies.entry(region).or_default().learn(at, &dependencies);
            }
            Record::Fence(fence) => self.fence = fence,
            Record::Waited(written) => self.recover_waited(written.into_owned()),
            Record::Common(record) => self.recover_common(record)?,
        }
        Ok(())
    }

    fn recover_written(&mut self, written: &Written) {
        let before = self.written;
        self.note_causes(written);
        self.show(written);
        if self.gaps {
            // It was written on top of what no log holds.
            self.written = before;
        }
    }

    /// Everything of a region up to here is here, unless what the log relies on is in no log.
    pub(super) fn recover_received(&mut self, origin: RegionId, up_to: Timestamp) {
        if !self.gaps {
            self.written.set(origin, up_to.max(self.written.of(origin)));
        }
    }

    fn recover_common(&mut self, record: stable::Record<'static, Entries>) -> Result<(), Malformed> {
        match record {
            stable::Record::Promise { until, .. } => {
                self.promised = self.promised.max(until);
                self.clock.recover(until);
            }
            stable::Record::Gaps { filled } => self.gaps = !filled,
            stable::Record::Horizon { at } => self.raise_horizon(at),
            stable::Record::Received { origin, up_to, .. } => self.recover_received(origin, up_to),
            stable::Record::Progress(progress) => self.follow_progress(&progress),
            stable::Record::Settled(known) => self.recover_settled(&known),
            stable::Record::Dropped { until } => self.outbox.drop_through(until),
            stable::Record::Evicted { region, held, cut } => self.recover_eviction(region, held, cut),
            stable::Record::State { key, cell } => {
                self.store.restore(&key, Stamp::last_at(self.horizon), stable::record::cell(&cell)?);
            }
            stable::Record::Lost(loss) => self.store.put_loss(loss.into_owned()),
            stable::Record::LossesDropped { count } => self.store.put_dropped_losses(count),
            // A key's effects stand together in a chunk.
            _ => {}
        }
        Ok(())
    }

    fn queue(&mut self, written: Written) {
        self.outbox.push(written.stamp.at, written.stamp.transaction, written.bytes(), written);
    }

    pub(super) fn on_recovered(
        &mut self,
        now: Now,
        complete: bool,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        self.restart_evictions();
        if !complete || self.gaps {
            return self.begin_state_transfer(now, random, out);
        }
        self.status = Status::Serving;
        // Nothing of this region will be placed below what it has stamped or promised.
        self.written.set(self.region, self.clock.last());
        self.greet_all(out);
        out.arm(Timer::Tick, now.instant + self.options.tick_every);
    }

    pub(in crate::cops) fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        self.checkpointing = true;
        let next = self.tell(cursor, chunk);
        self.checkpointing = next.is_some();
        next
    }

    /// The next piece of everything; the horizon stays meanwhile.
    pub(in crate::cops) fn tell(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if cursor == 0 {
            self.checkpoint_times(chunk);
        }
        if cursor & KEYS == 0 {
            let after = if cursor == 0 { Timestamp::ZERO } else { Timestamp(cursor << 1 | 1) };
            return Some(self.checkpoint_outgoing(after, chunk));
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

    fn checkpoint_times(&self, chunk: &mut Vec<u8>) {
        let until = self.promised.max(self.clock.last());
        let common = Record::Common;
        record::put(chunk, &common(stable::Record::Horizon { at: self.horizon }));
        record::put(chunk, &common(stable::Record::Promise { until, observed: Timestamp::ZERO }));
        let regions = self.topology.regions.len();
        for (origin, up_to) in (0u16..).map(RegionId).zip(self.written.by_region(regions)) {
            let above = Cow::Borrowed(&[][..]);
            record::put(chunk, &common(stable::Record::Received { origin, up_to, above }));
        }
        self.checkpoint_evictions(chunk);
        if self.gaps {
            let filled = self.status == Status::Serving;
            record::put(chunk, &common(stable::Record::Gaps { filled }));
        }
        record::put(chunk, &Record::Fence(self.fence));
        let settled = self.answered.settled().collect();
        record::put(chunk, &common(stable::Record::Settled(Cow::Owned(settled))));
        for (id, outcome) in self.answered.iter() {
            record::put(chunk, &Record::Answered(id, Cow::Borrowed(outcome)));
        }
    }

    /// The writes of this region after a place that some region may lack; returns where to go on: half of a place, so that it
    /// never looks like a cursor of a key. Each piece says what the partition no longer retains, which is in no log
    /// either.
    fn checkpoint_outgoing(&self, after: Timestamp, chunk: &mut Vec<u8>) -> u64 {
        let until = self.outbox.dropped();
        record::put(chunk, &Record::Common(stable::Record::Dropped { until }));
        let mut last = after;
        for (at, _, written) in self.outbox.after(after) {
            if chunk.len() >= CHUNK_BYTES && at.0 >> 1 > last.0 >> 1 {
                return last.0 >> 1;
            }
            record::put(chunk, &Record::Outgoing(Cow::Borrowed(written)));
            last = at;
        }
        KEYS
    }

    /// The keys at the cursor, or only their effects `above` a place; after the last key what was lost to concurrent writes. The
    /// other causal protocols tell theirs alike. In COPS-GT what versions depend on comes last.
    pub(super) fn checkpoint_keys(
        &mut self,
        cursor: u64,
        above: Option<Timestamp>,
        chunk: &mut Vec<u8>,
    ) -> u64 {
        if cursor & CAUSES != 0 {
            return self.checkpoint_causes(cursor & !CAUSES, chunk);
        }
        let mut reported = Vec::new();
        let next = if cursor & LOSSES == 0 {
            match tell_keys::<Cut>(&mut self.store, cursor, self.horizon, above, &mut reported) {
                0 if above.is_none() => LOSSES,
                next => next,
            }
        } else {
            let next = tell_losses::<Cut>(&self.store, cursor & !LOSSES, &mut reported);
            next.map_or(0, |number| LOSSES | number)
        };
        record::put_all_common(chunk, &reported);
        if next == 0 { CAUSES } else { next }
    }

    /// What versions depend on, behind a cursor: a region, a list of its causes, and a place in that. Returns the next one, 0 at the end.
    fn checkpoint_causes(&self, cursor: u64, chunk: &mut Vec<u8>) -> u64 {
        let bits = |from: u32, count: u32| (cursor >> from & ((1 << count) - 1)) as u16;
        let first = (bits(41, 16), RegionId(bits(38, 3)));
        let after = Timestamp((cursor & ((1 << 38) - 1)) << PLACE | ((1 << PLACE) - 1));
        let (origin, before) = (RegionId(bits(57, 3)), chunk.len());
        let mut last = (origin, first, after.0 >> PLACE);
        for (origin, dependencies) in self.dependencies.range(origin..) {
            let from = if *origin == last.0 { (first, after) } else { Default::default() };
            for (list, place, on) in dependencies.after(from) {
                let next = (*origin, list, place.0 >> PLACE);
                if chunk.len() - before >= self.options.piece_bytes && next != last {
                    let ((origin, (partition, region), place), byte) = (last, u64::from);
                    return CAUSES
                        | byte(origin.0) << 57
                        | byte(partition) << 41
                        | byte(region.0) << 38
                        | place;
                }
                let on = Cow::Owned(Dependencies::on(list.0, list.1, on));
                record::put(chunk, &Record::RetainedDependencies(*origin, place, on));
                last = next;
            }
        }
        0
    }
}
