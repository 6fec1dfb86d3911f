//! Application in order of place and the exchange with the other regions (Wren, Algorithm 7, lines 5 to 28;
//! Corrections 20, 21, 24, 25 and 32).
//!
//! Effects become known to readers when they commit: no snapshot shows them before the stable time has passed them.
//! What is applied here is the promise that nothing will be placed below any more. Everything to a peer goes through
//! the one stream, so a heartbeat never overtakes the effects it vouches for. Only heartbeats raise the version
//! vector: several transactions may share a commit timestamp.

use super::logged::Recorded;
use super::{Outgoing, Partition, Status, borrowed};
use crate::stable::message::{KeyEffects, Message};
use crate::stable::record::Record;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Timer, Times};
use protocol::{Now, Outputs};
use std::time::Duration;
use types::{Address, NodeId, RegionId, Timestamp, TransactionId, WallTime};

/// How many steps a tick spends at most on keys in which effects wait, on average: about a millisecond.
const REFRESHED: u64 = 5000;
/// How many keys a tick packs at most.
pub(crate) const PACKED: usize = 200;
/// What is left of keys that are gone is packed so long after: most are forgotten by then, unless a region is silent.
const PACKED_AFTER: Duration = Duration::from_secs(2);
/// About what a transaction occupies in a queue beside its effects, in bytes.
const OVERHEAD: usize = 128;

/// Up to when keys that nobody has changed since are packed.
pub(crate) fn long_before(wall: WallTime) -> Timestamp {
    Timestamp::from_wall(WallTime(wall.0.saturating_sub(PACKED_AFTER.as_micros() as u64)))
}

impl<S: Times> Partition<S> {
    pub(super) fn on_apply(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        self.give_up_some();
        // Whoever reads less than what is done takes back and does again.
        self.store.show_to(S::group_of_readers(self.region), Stamp::last_at(self.oldest));
        self.store.refresh_some(REFRESHED);
        self.store.pack_some(PACKED, Stamp::last_at(long_before(now.wall)));
        self.expire_some(now, out);
        let bound = self.publishable(now);
        let bound = self.promise(bound, out);
        self.installed = self.installed.max(bound);
        self.raise_stability_frontier();
        let is_idle = self.participant.waiting().next().is_none();
        let due = match self.options.mutants.has(Mutant::ApplyBelow) {
            true => self.participant.apply_through(self.installed.previous()),
            false => self.participant.apply_through(self.installed),
        };
        for (at, id, outgoing) in due {
            self.outbox.push(at, id, outgoing.bytes(), outgoing);
        }
        for peer in self.resumed() {
            let sent = self.send_due(peer, out);
            let withheld = self.options.mutants.has(Mutant::HeartbeatWhenIdle) && (sent || !is_idle);
            if !withheld {
                self.tell_time(peer, sent, out);
            }
        }
        self.tend_spool(out);
        self.stabilize(now, true, out);
        self.free_some();
        self.arm_tick(now, out);
    }

    /// Ticks fall on multiples of their interval on the wall clock: what partitions of a region tell of one tick arrives
    /// together elsewhere, and the minimum over them rises once, not little by little. None comes sooner than after half an
    /// interval, whatever clocks do.
    pub(super) fn arm_tick(&self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let every = (self.options.tick_every.as_micros() as u64).max(1);
        let left = every - now.wall.0 % every;
        let wait = if left < every / 2 { left + every } else { left };
        out.arm(Timer::Apply, now.instant + Duration::from_micros(wait));
    }

    /// The peers that have said where they are to be sent on from.
    pub(super) fn resumed(&self) -> Vec<RegionId> {
        self.links.iter().filter(|(_, link)| link.is_resumed()).map(|(peer, _)| *peer).collect()
    }

    /// Every transaction of this region that is not applied yet has observed the others up to here.
    fn observed_from_now_on(&self) -> Timestamp {
        let undecided = self.participant.undecided().map(|(_, _, pending)| S::observed(pending.depends_on));
        let waiting = self.participant.waiting().map(|(_, _, outgoing)| S::observed(outgoing.depends_on));
        undecided.chain(waiting).fold(self.promised_dependencies, Timestamp::min)
    }

    /// The store need not retain for merging what every future effect has observed.
    fn raise_stability_frontier(&mut self) {
        let own = self.observed_from_now_on();
        let coming = || self.origins.keys().copied().chain(self.still_coming());
        let others = coming().map(|origin| self.observed_by.get(&origin).copied().unwrap_or_default());
        let least = others.fold(own, Timestamp::min);
        // Effects of one region have observed one another where its primary evaluates them.
        let alone = S::OBSERVES && coming().next().is_none();
        let stability_frontier = match alone || self.options.mutants.has(Mutant::ForgetContext) {
            true => Timestamp::MAX,
            false => least,
        };
        self.stability_frontier = stability_frontier;
        self.store.set_stability_frontier(Stamp::last_at(stability_frontier));
    }

    /// Nothing will be placed at or below it any more. The clock remembers it (Corrections 21).
    pub(super) fn publishable(&mut self, now: Now) -> Timestamp {
        let clock = if self.options.mutants.has(Mutant::BoundNotRemembered) {
            self.clock.last().max(Timestamp::from_wall(now.wall))
        } else {
            self.clock.read(now.wall)
        };
        self.participant.bound(clock)
    }

    /// What is published is below what the log promises: a restart stamps above it. Returns what of it may be published: all,
    /// unless the log refuses records.
    pub(super) fn promise(&mut self, bound: Timestamp, out: &mut Outputs<'_, Node<S>>) -> Timestamp {
        if self.is_refusing() {
            return bound.min(self.logged_bound());
        }
        if bound >= self.promised {
            let ahead = self.options.promise.as_micros() as u64;
            let until = Timestamp::from_wall(types::WallTime(bound.wall().0 + ahead)).max(bound);
            self.promised_dependencies = self.promised_dependencies.max(self.oldest);
            self.persist(&Record::Promise { until, observed: self.promised_dependencies }, out);
            if !self.options.mutants.has(Mutant::HeardNotLogged) && !self.origins.is_empty() {
                let received =
                    self.origins.iter().map(|(origin, received)| (*origin, received.up_to)).collect();
                self.persist(&Record::Heard { received }, out);
            }
            self.note_recorded(Recorded::Promise(until));
            self.promised = until;
            self.tell_progress(out);
        }
        bound
    }

    /// Sends a peer what it lacks of what has been applied, as far as there is room on the way. True if that was
    /// anything.
    pub(super) fn send_due(&mut self, peer: RegionId, out: &mut Outputs<'_, Node<S>>) -> bool {
        if self.options.mutants.has(Mutant::DroppedCountsAsSent) && self.outbox.lacks(peer) {
            self.outbox.resume(peer, self.outbox.dropped());
        }
        let to = self.topology.address(peer, self.index);
        let (due, _) = self.outbox.take_due(peer, self.installed, self.options.window);
        for (at, id, outgoing) in &due {
            let (id, at, origin, depends_on) = (*id, *at, self.region, outgoing.depends_on);
            let stamp = Stamp { at, transaction: id, region: origin, depends_on };
            if self.evictions.gave_up::<S>(&stamp) && !self.options.mutants.has(Mutant::KeptAboveCut) {
                // It was spilled before.
                continue;
            }
            let effects = outgoing.effects.clone();
            out.stream(to, Message::Replicate { origin, id, at, depends_on, effects });
        }
        let is_any = !due.is_empty();
        if self.options.mutants.has(Mutant::AwaitedCountsAsSent)
            && let Some(last) = self.outbox.awaits(peer)
        {
            self.outbox.resume(peer, last);
        }
        is_any
    }

    pub(super) fn tell_time(&mut self, peer: RegionId, batch: bool, out: &mut Outputs<'_, Node<S>>) {
        let may_tell = self.links.get_mut(&peer).is_some_and(|link| link.may_tell());
        if !batch && !may_tell {
            return;
        }
        let received = self.received_of(peer);
        let at = self.outbox.sent(peer);
        // What has not been sent may have observed less.
        let observed = match at == self.installed && !self.outbox.lacks(peer) {
            true => self.observed_from_now_on(),
            false => Timestamp::ZERO,
        };
        let heartbeat = Message::Heartbeat { origin: self.region, at, received, observed };
        let to = self.topology.address(peer, self.index);
        if self.options.mutants.has(Mutant::UngatedHeartbeat) {
            out.send_now(to, heartbeat);
        } else {
            out.stream(to, heartbeat);
        }
    }

    pub(super) fn received_of(&self, origin: RegionId) -> Timestamp {
        self.origins.get(&origin).map_or(Timestamp::ZERO, |origin| origin.up_to)
    }

    pub(super) fn on_replicate(
        &mut self,
        origin: RegionId,
        id: TransactionId,
        at: Timestamp,
        depends_on: S::Depends,
        effects: Vec<KeyEffects>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(known) = self.origins.get_mut(&origin) else { return };
        if at <= known.up_to || !known.above.insert((at, id)) {
            return;
        }
        let region = if self.options.mutants.has(Mutant::ReceiverAsOrigin) { self.region } else { origin };
        let stamp = Stamp { at, transaction: id, region, depends_on };
        let logged = Stamp { region: origin, ..stamp };
        if self.evictions.gives_up::<S>(&logged) {
            return;
        }
        self.persist(&Record::Replicated(borrowed(logged, &effects)), out);
        #[cfg(debug_assertions)]
        let stamp = self.after_own_at_a_tie(stamp, &effects);
        self.store_effects(stamp, &effects);
        if self.options.mutants.has(Mutant::EffectsVouch)
            && let Some(known) = self.origins.get_mut(&origin)
        {
            known.up_to = at;
        }
    }

    pub(super) fn on_heartbeat(
        &mut self,
        now: Now,
        origin: RegionId,
        at: Timestamp,
        received: Timestamp,
        observed: Timestamp,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(known) = self.origins.get_mut(&origin) else { return };
        let reported = self.observed_by.entry(origin).or_default();
        *reported = observed.max(*reported);
        known.up_to = known.up_to.max(at);
        let up_to = known.up_to;
        known.above.retain(|(at, _)| *at > up_to);
        if let Some(link) = self.links.get_mut(&origin) {
            link.heard();
        }
        self.outbox.received(origin, received);
        if self.outbox.lacks(origin) {
            out.send(self.topology.address(origin, self.index), Message::TransferRequired);
        }
        self.follow(now, at);
        self.stabilize(now, false, out);
    }

    /// Says to every peer what is held, so that it goes on from there.
    pub(super) fn greet_all(&mut self, out: &mut Outputs<'_, Node<S>>) {
        let peers: Vec<RegionId> = self.links.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.greet(peer, out));
    }

    pub(super) fn greet(&self, peer: RegionId, out: &mut Outputs<'_, Node<S>>) {
        let greeting = Message::Received { up_to: self.received_of(peer) };
        out.stream(self.topology.address(peer, self.index), greeting);
    }

    /// The stream to a peer's new life starts with nothing in it.
    pub(super) fn on_peer_started(&mut self, peer: NodeId, out: &mut Outputs<'_, Node<S>>) {
        let Some((region, index)) = self.topology.locate(peer.address()) else { return };
        self.query_holdings_again(peer.address(), out);
        if let Some(link) = self.neighbours.get_mut(&peer.address()) {
            link.started(peer.incarnation);
        }
        if index == self.index
            && self.links.get_mut(&region).is_some_and(|link| link.started(peer.incarnation))
            && self.status == Status::Serving
        {
            self.greet(region, out);
        }
    }

    /// A peer's greeting: it is sent what it lacks of what has been applied; the rest follows with its batch.
    pub(super) fn on_received(&mut self, from: Address, up_to: Timestamp, out: &mut Outputs<'_, Node<S>>) {
        let Some((peer, _)) = self.topology.locate(from) else { return };
        let Some(link) = self.links.get_mut(&peer) else { return };
        link.resume();
        self.outbox.resume(peer, up_to);
        if self.status == Status::Serving {
            self.send_due(peer, out);
            self.tell_time(peer, true, out);
        }
    }
}

impl<D> Outgoing<D> {
    /// About how much memory it occupies.
    pub(super) fn bytes(&self) -> usize {
        let of_key = |of_key: &KeyEffects| {
            let effects = of_key.effects.iter().map(|effect| effect.len() + size_of::<Box<[u8]>>());
            size_of::<KeyEffects>() + of_key.key.len() + effects.sum::<usize>()
        };
        OVERHEAD + self.effects.iter().map(of_key).sum::<usize>()
    }
}
