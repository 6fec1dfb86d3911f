//! The stable times and the horizon: BiST and garbage collection (Wren, section 4.4.2; Algorithm 7, lines 29 to 31;
//! Corrections 27, 28 and 33). The tree has depth one: partition 0 is its root.

use super::Partition;
use crate::stable::message::Message;
use crate::stable::stamp::Stamp;
use crate::stable::{Node, Timer, Times};
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Instant, Timestamp};

/// What the root of the tree aggregates.
#[derive(Debug)]
pub(super) struct Root<S> {
    installed: OldestOf<S>,
    oldest: OldestOf<S>,
}

/// The minimum, time by time, over what every member last reported; there is none before all have. It only rises,
/// because what a member reports does.
#[derive(Debug)]
struct OldestOf<S>(BTreeMap<u16, Option<S>>);

impl<S: Times> OldestOf<S> {
    fn report(&mut self, member: u16, times: S) {
        if let Some(known) = self.0.get_mut(&member) {
            *known = Some(known.map_or(times, |known| known.newest(times)));
        }
    }

    fn oldest(&self) -> Option<S> {
        self.0.values().copied().reduce(|one, other| Some(one?.oldest(other?)))?
    }
}

impl<S: Times> Root<S> {
    pub(super) fn new(partitions: u16) -> Self {
        let members = || OldestOf((0..partitions).map(|member| (member, None)).collect());
        Root { installed: members(), oldest: members() }
    }

    fn report(&mut self, member: u16, installed: S, oldest: S) {
        self.installed.report(member, installed);
        self.oldest.report(member, oldest);
    }

    /// The stable times and the oldest snapshot, once every partition has reported.
    fn stable(&self) -> Option<(S, S)> {
        Some((self.installed.oldest()?, self.oldest.oldest()?))
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
        self.stable = self.stable.newest(snapshot);
    }

    pub(super) fn on_gossip(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let received = self.origins.values().map(|origin| origin.up_to).min().unwrap_or(Timestamp::MAX);
        let installed = S::of_partition(self.installed, received);
        let oldest = self.leases.oldest(self.stable.readable(), now.instant, self.options.lease);
        if let Some(root) = &mut self.root {
            root.report(self.index, installed, oldest);
            // Before every partition has reported, what was stable is still told: one that told an earlier life all that it
            // may tell unanswered learns of this one, and reports again.
            let (stable, oldest) = root.stable().unwrap_or((self.stable, S::default()));
            let fastest = self.clock.last();
            self.tell_neighbours(&Message::StableTime { stable, oldest, fastest }, out);
            self.take_stable(now, stable, oldest);
        } else {
            self.tell_neighbours(&Message::StableReport { installed, oldest }, out);
        }
        self.free_some();
        out.arm(Timer::Gossip, now.instant + self.options.gossip_every);
    }

    fn tell_neighbours(&mut self, message: &Message<S>, out: &mut Outputs<'_, Node<S>>) {
        for (index, link) in &mut self.neighbours {
            if link.may_tell() {
                out.stream(self.topology.address(self.region, *index), message.clone());
            }
        }
    }

    pub(super) fn on_stable_report(&mut self, now: Now, from: Address, installed: S, oldest: S) {
        let Some((region, index)) = self.topology.locate(from) else { return };
        let Some(root) = self.root.as_mut().filter(|_| region == self.region) else { return };
        root.report(index, installed, oldest);
        if let Some(link) = self.neighbours.get_mut(&index) {
            link.heard();
        }
        self.follow(now, installed.reach());
    }

    pub(super) fn on_stable_time(&mut self, now: Now, stable: S, oldest: S) {
        if let Some(link) = self.neighbours.get_mut(&0) {
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
        if !self.checkpointing && !self.giver.is_giving(now.instant, self.options.lease) {
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
