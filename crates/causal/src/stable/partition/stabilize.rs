//! The stable times and the horizon: BiST and garbage collection (Wren, section 4.4.2; Algorithm 7, lines 29 to 31;
//! Corrections 27, 28 and 33). The tree has depth one: the region's first partition is its root. Where what is stable
//! is so in all regions, the roots exchange what they have found (PaRiS, Algorithm 11, lines 34 to 38; Corrections 29):
//!
//! ```text
//!   partition -- StableReport --> root of the region <-- StableReport --> root of another region
//!             <-- StableTime ---
//! ```

use super::Partition;
use crate::stable::message::Message;
use crate::stable::stamp::Stamp;
use crate::stable::{Node, Timer, Times, Topology};
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Instant, RegionId, Timestamp};

/// What arrives of a region that is further behind than this is vouched for in long steps.
const CLOSE: Duration = Duration::from_secs(1);

/// What the root of the tree aggregates.
#[derive(Debug)]
pub(super) struct Root<S> {
    /// What the partitions of the region told: the paper's GST comes of it.
    region: Told<S>,
    /// What the roots of the other regions told.
    others: Told<S>,
}

#[derive(Debug)]
struct Told<S> {
    installed: OldestOf<S>,
    oldest: OldestOf<S>,
}

/// The minimum, time by time, over what every member last reported; there is none before all have. It only rises,
/// because what a member reports does.
#[derive(Debug)]
struct OldestOf<S>(BTreeMap<Address, Option<S>>);

impl<S: Times> OldestOf<S> {
    fn report(&mut self, member: Address, times: S) {
        if let Some(known) = self.0.get_mut(&member) {
            *known = Some(known.map_or(times, |known| known.newest(times)));
        }
    }

    fn oldest(&self) -> Option<S> {
        self.0.values().copied().reduce(|one, other| Some(one?.oldest(other?)))?
    }
}

impl<S: Times> Told<S> {
    fn of(members: &[Address]) -> Self {
        let nothing = || OldestOf(members.iter().map(|member| (*member, None)).collect());
        Told { installed: nothing(), oldest: nothing() }
    }

    fn report(&mut self, member: Address, installed: S, oldest: S) {
        self.installed.report(member, installed);
        self.oldest.report(member, oldest);
    }

    /// What all have installed and the oldest snapshot, once all have reported.
    fn minimum(&self) -> Option<(S, S)> {
        Some((self.installed.oldest()?, self.oldest.oldest()?))
    }
}

impl<S: Times> Root<S> {
    /// The root of a region's tree, if this partition is it.
    pub(super) fn of(topology: &Topology, region: RegionId, index: u16) -> Option<Self> {
        let held: Vec<Address> = topology.held(region).map(|(_, replica)| replica).collect();
        let others: Vec<Address> = topology.other_roots(region).filter(|_| S::UNIVERSAL).collect();
        let is_root = topology.root(region) == Some(topology.address(region, index));
        is_root.then(|| Root { region: Told::of(&held), others: Told::of(&others) })
    }

    /// Who reports to it.
    pub(super) fn members(&self) -> impl Iterator<Item = Address> {
        self.region.installed.0.keys().chain(self.others.installed.0.keys()).copied()
    }

    /// What a partition of the region has installed, as it told.
    pub(super) fn installed(&self, member: Address) -> Option<S> {
        self.region.installed.0.get(&member).copied().flatten()
    }

    fn report(&mut self, member: Address, installed: S, oldest: S) {
        self.region.report(member, installed, oldest);
        self.others.report(member, installed, oldest);
    }

    /// The stable times and the oldest snapshot, once everybody has reported.
    fn stable(&self) -> Option<(S, S)> {
        let (installed, oldest) = self.region.minimum()?;
        if self.others.installed.0.is_empty() {
            return Some((installed, oldest));
        }
        let (of_others, oldest_of_others) = self.others.minimum()?;
        Some((installed.oldest(of_others), oldest.oldest(oldest_of_others)))
    }
}

/// The snapshots that coordinators read, as they told this partition.
#[derive(Debug)]
pub(super) struct Leases<S> {
    /// The oldest of each coordinator, and when it said so.
    by_coordinator: BTreeMap<Address, (S, Instant)>,
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

    fn renew(&mut self, coordinator: Address, oldest: S, now: Instant) {
        self.by_coordinator.insert(coordinator, (oldest, now));
    }

    /// The oldest snapshot leased, or else the one that would be given now.
    fn oldest(&mut self, current: S, now: Instant, lease: Duration) -> S {
        self.by_coordinator.retain(|_, (_, renewed)| now - *renewed < lease);
        if now < self.settling_until {
            return S::default();
        }
        self.by_coordinator.values().fold(current, |oldest, (leased, _)| oldest.oldest(*leased))
    }
}

impl<S: Times> Partition<S> {
    pub(super) fn on_start_tx(
        &mut self,
        now: Now,
        from: Address,
        known: S,
        oldest: S,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.stable = self.stable.newest(known);
        self.leases.renew(from, oldest, now.instant);
        out.send(from, Message::StartTxResp { stable: self.stable });
    }

    /// What a coordinator reads is stable, so this partition may take it for stable too (Wren, Algorithm 6, lines 2
    /// and 3).
    /// Nothing is stamped at or below: a partition that lost records may have told so before.
    pub(super) fn learn_stable(&mut self, now: Now, snapshot: S) {
        self.follow(now, snapshot.reach());
        self.stable = self.stable.newest(snapshot.known_stable(self.region));
    }

    pub(super) fn on_gossip(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        self.vouch_for_received();
        let installed = S::of_partition(self.region, self.installed, self.received());
        let oldest = self.leases.oldest(self.stable.readable(), now.instant, self.options.lease);
        let own = self.address();
        if let Some(root) = &mut self.root {
            root.report(own, installed, oldest);
            // Before everybody has reported, what was stable is still told: one that told an earlier life all that it
            // may tell unanswered learns of this one, and reports again.
            let (of_region, oldest_of_region) = root.region.minimum().unwrap_or_default();
            let (stable, oldest) = root.stable().unwrap_or((self.stable, S::default()));
            let fastest = self.clock.last();
            let to_leaves = Message::StableTime { stable, oldest, fastest };
            let to_roots = Message::StableReport { installed: of_region, oldest: oldest_of_region };
            self.tell_neighbours(&to_leaves, &to_roots, out);
            self.take_stable(now, stable, oldest);
        } else {
            let report = Message::StableReport { installed, oldest };
            self.tell_neighbours(&report, &report, out);
        }
        self.free_some();
        out.arm(Timer::Gossip, now.instant + self.options.gossip_every * S::GOSSIP_RARER);
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
        let is_left_out = self.options.mutants.own_entry_only;
        let received = self.origins.iter().map(|(region, origin)| (*region, origin.vouched));
        let all = received.chain(self.evictions.received());
        all.map(move |(region, at)| (region, if is_left_out { Timestamp::MAX } else { at }))
    }

    fn tell_neighbours(&mut self, inside: &Message<S>, outside: &Message<S>, out: &mut Outputs<'_, Node<S>>) {
        for (address, link) in &mut self.neighbours {
            if link.may_tell() {
                let is_inside =
                    self.topology.locate(*address).is_some_and(|(region, _)| region == self.region);
                out.stream(*address, if is_inside { inside } else { outside }.clone());
            }
        }
    }

    pub(super) fn on_stable_report(&mut self, now: Now, from: Address, installed: S, oldest: S) {
        let Some(root) = &mut self.root else { return };
        root.report(from, installed, oldest);
        if let Some(link) = self.neighbours.get_mut(&from) {
            link.heard();
        }
        self.follow(now, installed.reach());
    }

    pub(super) fn on_stable_time(&mut self, now: Now, from: Address, stable: S, oldest: S) {
        if let Some(link) = self.neighbours.get_mut(&from) {
            link.heard();
        }
        self.take_stable(now, stable, oldest);
    }

    fn take_stable(&mut self, now: Now, stable: S, oldest: S) {
        if self.options.mutants.non_monotone_snapshot {
            self.stable = stable;
        } else {
            self.stable = self.stable.newest(stable);
        }
        self.oldest = self.oldest.max(S::observed(oldest.depends_on(self.region)));
        let is_given_from = self.checkpointing || self.lent;
        if !is_given_from && !self.is_replacing() && !self.giver.is_giving(now.instant, self.options.lease) {
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
