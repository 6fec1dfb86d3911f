//! The stable times and the horizon: BiST and garbage collection (Wren, section 4.4.2; Algorithm 7, lines 29 to 31;
//! Corrections 27, 28 and 33). The partitions of a region stand in a tree (`stable::tree`, decision 0016), with its first
//! partition at the root. Where what is stable is so in all regions, the roots exchange what they have found (PaRiS,
//! Algorithm 11, lines 34 to 38; Corrections 29):
//!
//! ```text
//!   partition -- StableReport --> inner partition -- StableReport --> root of the region <-- StableReport --> root of
//!             <-- StableTime ---                  <-- StableTime ---                                       another region
//! ```
//!
//! A partition reports the minimum over its subtree: each of its members has reported what it has installed behind its
//! own log. It reports nothing of its subtree before all children have reported to this life of it; until then its
//! parent relies on the earlier life's report, which stays true.
//!
//! Only the first step waits for a timer: the tick in which the writer's partition applies. The partition forwards what
//! raises the minimum by half a tick or more at once, whether received from another region or reported by a child, down
//! to the subscribed coordinators. It forwards what raises the minimum by less with the next tick, if it has sent
//! nothing since the tick before. So a partition tells its neighbours about twice a tick at most, and once where the
//! clocks of a region agree (`Partition::arm_tick`).

use super::{Partition, Status};
use crate::stable::message::Message;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Options, Times, Topology};
use protocol::{Now, Outputs};
use replication::{Lattice, Link, MinimumOf};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Instant, RegionId, RegionSet, Timestamp};

/// What arrives of a region that is further behind than this is vouched for in long steps.
const CLOSE: Duration = Duration::from_secs(1);

/// What a subtree has installed, and the oldest snapshot that is read of it.
type PeerHoldings<S> = (S, S);

/// What the partition sent last in one direction of the tree.
#[derive(Debug, Default)]
struct Last<S> {
    times: S,
    /// So many ticks come that tell nothing but what is due without them.
    spared: u32,
}

impl<S: Times> Last<S> {
    /// True if these times show so much more that the partition sends them at once, or if it has sent nothing since the
    /// tick before.
    fn is_due(&mut self, times: S, at_tick: bool, tick: Duration) -> bool {
        let shown = |times: S| times.readable().whole().wall().0;
        let risen = Duration::from_micros(shown(times).saturating_sub(shown(self.times)));
        let is_due = risen >= tick * S::GOSSIP_RARER - tick / 2 || (at_tick && self.spared == 0);
        self.spared = match is_due {
            true => S::GOSSIP_RARER - u32::from(at_tick),
            false => self.spared.saturating_sub(u32::from(at_tick)),
        };
        is_due
    }
}

/// A partition's place in its region's stabilization tree, and what it aggregates there.
#[derive(Debug)]
pub(super) struct Tree<S> {
    is_root: bool,
    /// Its parent; at the root the roots of the other regions, where what is stable is so in all.
    above: Vec<Address>,
    /// Its children in the region's tree.
    below: Vec<Address>,
    /// What it has itself, and what its children reported to this life. At the root the paper's GST comes of it.
    subtree: MinimumOf<Address, PeerHoldings<S>>,
    /// At the root: what the roots of the other regions have reported.
    others: MinimumOf<Address, PeerHoldings<S>>,
    /// The last report to the parent and the other roots.
    up: Last<S>,
    /// The last report to the children and the subscribed coordinators.
    down: Last<S>,
}

impl<S: Times> Tree<S> {
    /// Of a partition that begins.
    pub(super) fn of(topology: &Topology, region: RegionId, index: u16, options: &Options) -> Self {
        let parent = topology.parent(region, index, options.fan_out);
        let is_root = parent.is_none();
        let others: Vec<Address> = topology.other_roots(region).filter(|_| S::AGREED && is_root).collect();
        let below: Vec<Address> = topology.children(region, index, options.fan_out).collect();
        let own = topology.address(region, index);
        Tree {
            is_root,
            above: parent.into_iter().chain(others.iter().copied()).collect(),
            subtree: MinimumOf::new(below.iter().copied().chain([own])),
            others: MinimumOf::new(others),
            up: Last::default(),
            down: Last::default(),
            below,
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.is_root
    }

    /// Whom it exchanges anything with.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = Address> {
        self.above.iter().chain(&self.below).copied()
    }

    /// What a child in the tree has reported that it and its subtree have installed.
    pub(super) fn installed(&self, child: Address) -> Option<S> {
        self.subtree.reported(child).map(|(installed, _)| installed)
    }

    fn report(&mut self, member: Address, reported: PeerHoldings<S>) {
        self.subtree.report(member, reported);
        self.others.report(member, reported);
    }

    /// At the root: what the root of another region has reported.
    pub(super) fn reported_by(&self, root: Address) -> Option<S> {
        self.others.reported(root).map(|(installed, _)| installed)
    }

    /// Another region counts no more.
    pub(super) fn forget(&mut self, root: Address) {
        self.above.retain(|address| *address != root);
        self.others.forget(root);
    }

    /// At the root: the stable times and the oldest snapshot, once everybody has reported.
    fn stable(&self) -> Option<PeerHoldings<S>> {
        let of_region = self.subtree.minimum()?;
        match self.others.members().next() {
            None => Some(of_region),
            Some(_) => Some(of_region.oldest(self.others.minimum()?)),
        }
    }
}

/// Sends to these neighbours, except those with too many unanswered messages.
fn tell<S: Times>(
    neighbours: &mut BTreeMap<Address, Link>,
    to: &[Address],
    message: &Message<S>,
    out: &mut Outputs<'_, Node<S>>,
) {
    for address in to {
        if neighbours.get_mut(address).is_some_and(Link::may_tell) {
            out.stream(*address, message.clone());
        }
    }
}

/// A coordinator's report in its last `StartTx`.
#[derive(Debug)]
pub(super) struct Lease<S> {
    /// The oldest snapshot that it reads.
    oldest: S,
    renewed: Instant,
    gone: RegionSet,
    subscribes: bool,
}

impl<S> Lease<S> {
    pub(super) fn new(now: Now, oldest: S, gone: RegionSet, subscribes: bool) -> Self {
        Lease { oldest, renewed: now.instant, gone, subscribes }
    }
}

/// The snapshots that coordinators read, as they reported to this partition.
#[derive(Debug)]
pub(super) struct Leases<S> {
    by_coordinator: BTreeMap<Address, Lease<S>>,
    /// Coordinators that spoke to an earlier life are given until then to speak again.
    settling_until: Instant,
}

impl<S> Default for Leases<S> {
    fn default() -> Self {
        Leases { by_coordinator: BTreeMap::new(), settling_until: Instant::default() }
    }
}

impl<S: Times> Leases<S> {
    /// A life begins.
    pub(super) fn begin(&mut self, now: Instant, lease: Duration) {
        self.settling_until = now + lease;
    }

    /// The coordinators that subscribe to the stable times, each with the lost regions that it knows of.
    fn subscribers(&self, now: Instant, patience: Duration) -> impl Iterator<Item = (Address, RegionSet)> {
        let leases = self.by_coordinator.iter();
        let subscribing = leases.filter(move |(_, lease)| lease.subscribes && now - lease.renewed < patience);
        subscribing.map(|(coordinator, lease)| (*coordinator, lease.gone))
    }

    /// The oldest snapshot leased, or else the one that would be given now.
    fn oldest(&mut self, current: S, now: Instant, lease: Duration) -> S {
        self.by_coordinator.retain(|_, leased| now - leased.renewed < lease);
        if now < self.settling_until {
            return S::default();
        }
        self.by_coordinator.values().fold(current, |oldest, leased| oldest.oldest(leased.oldest))
    }
}

impl<S: Times> Partition<S> {
    pub(super) fn on_start_tx(
        &mut self,
        from: Address,
        known: S,
        lease: Lease<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.stable = self.stable.newest(known);
        self.give_stable(from, lease.gone, out);
        self.leases.by_coordinator.insert(from, lease);
    }

    /// Tells a coordinator the stable times, if it knows of the lost regions that they go on without.
    fn give_stable(&self, coordinator: Address, gone: RegionSet, out: &mut Outputs<'_, Node<S>>) {
        if self.knows_of_lost(coordinator, gone, out) {
            let received = S::OPTIMISTIC.then(|| self.version_vector(self.installed));
            out.send(coordinator, Message::StartTxResp { stable: self.stable, received });
        }
    }

    /// What a coordinator reads is stable, so this partition may take it for stable too (Wren, Algorithm 6, lines 2
    /// and 3).
    /// Nothing is stamped at or below: a partition that lost records may have announced that before.
    pub(super) fn learn_stable(&mut self, now: Now, snapshot: S) {
        self.follow(now, snapshot.reach());
        self.stable = self.stable.newest(snapshot.known_stable(self.region));
    }

    /// Takes up what it has installed, received and heard from below, and tells it on if that is due.
    pub(super) fn stabilize(&mut self, now: Now, at_tick: bool, out: &mut Outputs<'_, Node<S>>) {
        self.vouch_for_received();
        let tick = self.options.tick_every;
        let installed = S::of_partition(self.region, self.installed, self.received());
        let oldest = self.leases.oldest(self.stable.readable(), now.instant, self.options.lease);
        let own = self.address();
        self.tree.report(own, (installed, oldest));
        if self.tree.is_root() {
            // Before all children have reported, the partition still sends the old stable time: a child whose
            // unanswered reports all went to an earlier life learns of this one, and reports again. So does what is
            // reported meanwhile, above.
            let (stable, oldest) = self.tree.stable().unwrap_or_default();
            if self.tree.down.is_due(stable, at_tick, tick) {
                self.take_stable(now, stable, oldest);
                self.tell_below(now, oldest, out);
            }
        }
        let is_alone = self.options.mutants.has(Mutant::SubtreeLeftOut) && !self.tree.is_root();
        let of_subtree = if is_alone { Some((installed, oldest)) } else { self.tree.subtree.minimum() };
        let (installed, oldest) = of_subtree.unwrap_or_default();
        if self.tree.up.is_due(installed, at_tick, tick) {
            self.tree.up.times = installed;
            let report = Message::StableReport { installed, oldest, fastest: self.clock.last() };
            tell(&mut self.neighbours, &self.tree.above, &report, out);
        }
    }

    /// Sends the stable times to the children and to the subscribed coordinators.
    fn tell_below(&mut self, now: Now, oldest: S, out: &mut Outputs<'_, Node<S>>) {
        let reported = Message::StableTime { stable: self.stable, oldest, fastest: self.clock.last() };
        tell(&mut self.neighbours, &self.tree.below, &reported, out);
        let reported = std::mem::replace(&mut self.tree.down.times, self.stable);
        if reported != self.stable {
            let subscribers = self.leases.subscribers(now.instant, self.options.suspect_after);
            subscribers.for_each(|(coordinator, gone)| self.give_stable(coordinator, gone, out));
        }
    }

    /// Every place at which a snapshot of a long cut is read is one at which two halves of histories are brought together, as
    /// far as it shows them. So while what arrives is far behind, the remote time does not rise with it, but when half of what
    /// was missing has come.
    fn vouch_for_received(&mut self) {
        let now = self.installed.wall().0;
        let behind = |at: Timestamp| now.saturating_sub(at.wall().0);
        let close = CLOSE.as_micros() as u64;
        for origin in self.origins.values_mut() {
            let left = behind(origin.up_to);
            if !S::MERGES || left <= close || left <= behind(origin.vouched) / 2 {
                origin.vouched = origin.vouched.max(origin.up_to);
            }
        }
    }

    /// What is vouched for of the other replicas, or stays of those that are being evicted.
    pub(super) fn received(&self) -> impl Iterator<Item = (RegionId, Timestamp)> {
        let is_left_out = self.options.mutants.has(Mutant::OwnEntryOnly);
        let received = self.origins.iter().map(|(region, origin)| (*region, self.followed(origin.vouched)));
        let all = received.chain(self.evictions.received::<S>());
        all.map(move |(region, at)| (region, if is_left_out { Timestamp::MAX } else { at }))
    }

    pub(super) fn on_stable_report(
        &mut self,
        now: Now,
        from: Address,
        reported: (S, S),
        fastest: Timestamp,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.tree.report(from, reported);
        if let Some(link) = self.neighbours.get_mut(&from) {
            link.heard();
        }
        self.follow(now, fastest);
        if self.status == Status::Serving {
            self.stabilize(now, false, out);
        }
    }

    pub(super) fn on_stable_time(
        &mut self,
        now: Now,
        from: Address,
        stable: S,
        oldest: S,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if let Some(link) = self.neighbours.get_mut(&from) {
            link.heard();
        }
        self.take_stable(now, stable, oldest);
        self.tell_below(now, oldest, out);
    }

    fn take_stable(&mut self, now: Now, stable: S, oldest: S) {
        if self.options.mutants.has(Mutant::NonMonotoneSnapshot) {
            self.stable = stable;
        } else {
            self.stable = self.stable.newest(stable);
        }
        self.oldest = self.oldest.max(S::observed(oldest.depends_on(self.region)));
        let is_given_from = self.checkpointing || self.lent;
        let is_replaced = self.is_replacing() && !self.options.mutants.has(Mutant::HorizonWhileReplaced);
        if !is_given_from
            && !is_replaced
            && !self.giver.is_giving(now.instant, self.options.transfer_patience)
        {
            self.raise_horizon(oldest);
        }
    }

    /// What the oldest snapshot shows as a whole is part of every snapshot.
    pub(super) fn raise_horizon(&mut self, oldest: S) {
        let before = self.horizon.whole();
        self.horizon = self.horizon.newest(oldest);
        if self.horizon.whole() > before {
            self.store.set_horizon(Some(Stamp::last_at(self.horizon.whole())));
        }
    }
}
