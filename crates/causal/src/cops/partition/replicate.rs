//! Replication between regions (COPS, section 4.4): a write leaves for the equivalents as soon as it is logged, in order of
//! place, and is written there when everything that it depends on is (`check`), in the same order (decision 0059).
//!
//! A heartbeat says up to which time everything has been sent. It goes through the same stream, so that it never overtakes a write
//! that it vouches for, and waits its turn among those that have arrived.

use super::{Mutant, Node, Partition, Status};
use crate::cops::message::Message;
use crate::cops::record::{Record, Written};
use crate::cops::{Entries, Timer};
use crate::stable;
use crate::stable::KeyEffects;
use protocol::{Now, Outputs};
use replication::Link;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;
use types::{Address, Instant, NodeId, RegionId, Rng, Timestamp, WallTime};

/// About what a write occupies in a queue beside its effects, in bytes.
const OVERHEAD: usize = 256;
/// About what a dependency occupies there.
const DEPENDENCY: usize = 32;

/// The partition of the same keys in another region, as this one sees it.
#[derive(Debug, Default)]
pub(super) struct Equivalent {
    pub(super) link: Link,
    /// What has arrived and is not written here, in order of place.
    pub(super) arrived: VecDeque<Arrived>,
    /// When this partition last sent the dependency check of the first of these.
    pub(super) checked: Option<Instant>,
    /// Everything of each region up to here is written there, also before all that is still to come from there.
    pub(super) written: Entries,
}

/// Something that has arrived from another region.
#[derive(Debug)]
pub(super) enum Arrived {
    /// A write.
    Write(Box<Written>),
    /// Everything up to here has been sent before; and what the equivalent has written itself, if it says so.
    Time(Timestamp, Option<Entries>),
}

impl Arrived {
    pub(super) fn write(&self) -> Option<&Written> {
        match self {
            Arrived::Write(written) => Some(written),
            Arrived::Time(..) => None,
        }
    }
}

impl Equivalent {
    /// How many writes wait.
    pub(super) fn waiting(&self) -> usize {
        self.arrived.iter().filter_map(Arrived::write).count()
    }

    /// Everything up to here is written or waits.
    pub(super) fn arrived_up_to(&self) -> Timestamp {
        self.arrived.back().map_or(Timestamp::ZERO, |last| match last {
            Arrived::Write(written) => written.stamp.at,
            Arrived::Time(at, _) => *at,
        })
    }
}

impl Partition {
    pub(super) fn on_tick(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        out.arm(Timer::Tick, now.instant + self.options.tick_every);
        if self.status == Status::Transferring {
            return self.go_on_taking(now, random, out);
        }
        self.catch_up(now, out);
        self.tell_bound(now, out);
        for peer in self.resumed() {
            let sent = self.send_due(peer, out);
            self.tell_time(peer, sent, out);
        }
        self.write_arrived(now, out);
        self.tend_evictions(now, out);
        self.expire_some(now, out);
        self.collect(now);
    }

    /// No later write is placed at or below the time that the others receive. The clock and the log remember it
    /// (Corrections 21).
    fn tell_bound(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let bound = match self.has(Mutant::BoundNotRemembered) {
            true => self.clock.last().max(Timestamp::from_wall(now.wall)),
            false => self.clock.read(now.wall),
        };
        if bound >= self.promised {
            let ahead = self.options.promise.as_micros() as u64;
            let until = Timestamp::from_wall(WallTime(bound.wall().0 + ahead)).max(bound);
            let promise = stable::Record::Promise { until, observed: Timestamp::ZERO };
            self.persist(&Record::Common(promise), out);
            self.tell_progress(out);
            self.promised = until;
        }
        self.written.set(self.region, bound.max(self.written.of(self.region)));
    }

    /// Sends an equivalent what it lacks, as far as there is room on the way. True if that was anything.
    pub(super) fn send_due(&mut self, peer: RegionId, out: &mut Outputs<'_, Node>) -> bool {
        let (to, origin) = (self.topology.address(peer, self.index), self.region);
        let (due, _) = self.outbox.take_due(peer, self.written.of(origin), self.options.window);
        for (at, id, written) in &due {
            let Written { stamp, nearest, dependencies, effects } = (*written).clone();
            let (id, at, observed) = (*id, *at, stamp.depends_on);
            out.stream(to, Message::Replicate { origin, id, at, observed, nearest, dependencies, effects });
        }
        !due.is_empty()
    }

    fn tell_time(&mut self, peer: RegionId, batch: bool, out: &mut Outputs<'_, Node>) {
        let may_tell = self.equivalents.get_mut(&peer).is_some_and(|equivalent| equivalent.link.may_tell());
        if !batch && !may_tell {
            return;
        }
        let (at, received) = (self.outbox.sent(peer), self.written.of(peer));
        // What has not been sent has observed less.
        let written = (at >= self.written.of(self.region)).then_some(self.written);
        let heartbeat = Message::Heartbeat { origin: self.region, at, received, written };
        out.stream(self.topology.address(peer, self.index), heartbeat);
    }

    pub(super) fn on_replicate(&mut self, now: Now, written: Written, out: &mut Outputs<'_, Node>) {
        let stamp = written.stamp;
        let here = self.written.of(stamp.region);
        let Some(equivalent) = self.equivalents.get_mut(&stamp.region) else { return };
        if stamp.at <= here.max(equivalent.arrived_up_to()) {
            return;
        }
        equivalent.arrived.push_back(Arrived::Write(Box::new(written)));
        self.write_arrived(now, out);
    }

    pub(super) fn on_heartbeat(
        &mut self,
        now: Now,
        origin: RegionId,
        at: Timestamp,
        received: Timestamp,
        written: Option<Entries>,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(equivalent) = self.equivalents.get_mut(&origin) else { return };
        equivalent.link.heard();
        if let Some(Arrived::Time(..)) = equivalent.arrived.back() {
            equivalent.arrived.pop_back();
        }
        equivalent.arrived.push_back(Arrived::Time(at, written));
        let is_greeted = equivalent.link.is_resumed();
        self.outbox.received(origin, received);
        if is_greeted && self.status != Status::Transferring && self.outbox.lacks(origin) {
            let up_to = self.outbox.dropped();
            out.send(self.topology.address(origin, self.index), Message::TransferRequired { up_to });
        }
        self.write_arrived(now, out);
    }

    /// Writes what has arrived and need not wait any more.
    pub(super) fn write_arrived(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        if self.status == Status::Transferring {
            return;
        }
        let regions: Vec<RegionId> = self.equivalents.keys().copied().collect();
        // What is written of one region may be what another one's writes wait for.
        while regions.iter().any(|region| self.write_first(now, *region, out)) {}
        self.answer_checks(now, out);
    }

    /// Writes what arrived first from a region; false if that has to wait, or there is nothing.
    fn write_first(&mut self, now: Now, region: RegionId, out: &mut Outputs<'_, Node>) -> bool {
        let Some(equivalent) = self.equivalents.get_mut(&region) else { return false };
        match equivalent.arrived.pop_front() {
            None => return false,
            Some(Arrived::Time(at, written)) => {
                equivalent.written = written.unwrap_or(equivalent.written);
                self.written.set(region, at.max(self.written.of(region)));
            }
            // It was taken meanwhile.
            Some(Arrived::Write(written)) if written.stamp.at <= self.written.of(region) => {}
            Some(Arrived::Write(written)) if self.is_due(&written) => {
                equivalent_of(self, region).checked = None;
                self.write_replicated(now, &written, out);
            }
            Some(Arrived::Write(written)) => {
                let before = written.stamp.at.previous();
                self.check(now, region, &written.nearest, out);
                equivalent_of(self, region).arrived.push_front(Arrived::Write(written));
                // The stream is in order: nothing that is still to come is placed below. What waits for a time before this version,
                // and not for a version, need not wait for the heartbeats behind it.
                let rises = before > self.written.of(region);
                self.written.set(region, before.max(self.written.of(region)));
                return rises;
            }
        }
        true
    }

    fn write_replicated(&mut self, now: Now, written: &Written, out: &mut Outputs<'_, Node>) {
        // A clock too far ahead is left alone: who depends on what it stamped is refused.
        let _too_far = self.clock.observe(written.stamp.at, now.wall);
        self.persist(&Record::Replicated(Cow::Borrowed(written)), out);
        self.note_causes(written);
        self.show(written);
    }

    pub(super) fn note_causes(&mut self, written: &Written) {
        if self.options.transactions {
            self.dependencies
                .entry(written.stamp.region)
                .or_default()
                .learn(written.stamp.at, &written.dependencies);
        }
    }

    /// Says to every equivalent what is written, so that it goes on from there.
    pub(super) fn greet_all(&mut self, out: &mut Outputs<'_, Node>) {
        self.survivors().for_each(|peer| self.greet(peer, out));
    }

    fn greet(&self, peer: RegionId, out: &mut Outputs<'_, Node>) {
        let greeting = Message::Received { up_to: self.written.of(peer) };
        out.stream(self.topology.address(peer, self.index), greeting);
    }

    /// The stream to and from a peer's new life starts with nothing in it.
    pub(super) fn on_peer_started(&mut self, peer: NodeId, out: &mut Outputs<'_, Node>) {
        let Some((region, index)) = self.topology.locate(peer.address()) else { return };
        if index != self.index || region == self.region || self.evictions.has(region) {
            return;
        }
        let equivalent = equivalent_of(self, region);
        if equivalent.link.started(peer.incarnation) {
            equivalent.arrived.clear();
            equivalent.checked = None;
            if self.status != Status::Transferring {
                self.greet(region, out);
            }
        }
    }

    /// An equivalent's greeting: it is sent what it lacks.
    pub(super) fn on_received(&mut self, from: Address, up_to: Timestamp, out: &mut Outputs<'_, Node>) {
        let Some((peer, index)) = self.topology.locate(from) else { return };
        let is_peer = index == self.index && peer != self.region;
        let Some(equivalent) = self.equivalents.get_mut(&peer).filter(|_| is_peer) else { return };
        equivalent.link.resume();
        self.outbox.resume(peer, up_to);
        if self.status != Status::Transferring {
            self.send_due(peer, out);
            self.tell_time(peer, true, out);
        }
    }
}

fn equivalent_of(partition: &mut Partition, region: RegionId) -> &mut Equivalent {
    partition.equivalents.entry(region).or_default()
}

impl Written {
    /// About how much memory it occupies.
    pub(super) fn bytes(&self) -> usize {
        let of_key = |of_key: &KeyEffects| {
            let effects = of_key.effects.iter().map(|effect| effect.len() + size_of::<Box<[u8]>>());
            size_of::<KeyEffects>() + of_key.key.len() + effects.sum::<usize>()
        };
        let dependencies = DEPENDENCY * (self.nearest.len() + self.dependencies.len());
        OVERHEAD + dependencies + self.effects.iter().map(of_key).sum::<usize>()
    }
}

/// When a question is to be repeated.
pub(super) fn is_overdue(last: Option<Instant>, now: Instant, after: Duration) -> bool {
    last.is_none_or(|last| now - last >= after)
}
