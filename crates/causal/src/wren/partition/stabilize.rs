//! The stable times and the horizon: BiST and garbage collection (Wren, section 4.4.2; Algorithm 7, lines 29 to 31;
//! Corrections 27, 28 and 33). The tree has depth one: partition 0 is its root.

use super::Partition;
use crate::wren::message::Message;
use crate::wren::stamp::{Snapshot, Stamp};
use crate::wren::{Node, Timer};
use protocol::{Now, Outputs};
use replication::MinimumOf;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Instant, Timestamp};

/// What the root of the tree aggregates.
#[derive(Debug)]
pub(super) struct Root {
    local: MinimumOf<u16, Timestamp>,
    remote: MinimumOf<u16, Timestamp>,
    oldest_local: MinimumOf<u16, Timestamp>,
    oldest_remote: MinimumOf<u16, Timestamp>,
}

impl Root {
    pub(super) fn new(partitions: u16) -> Self {
        let members = || 0..partitions;
        Root {
            local: MinimumOf::new(members()),
            remote: MinimumOf::new(members()),
            oldest_local: MinimumOf::new(members()),
            oldest_remote: MinimumOf::new(members()),
        }
    }

    fn report(&mut self, member: u16, local: Timestamp, remote: Timestamp, oldest: Snapshot) {
        self.local.report(member, local);
        self.remote.report(member, remote);
        self.oldest_local.report(member, oldest.local);
        self.oldest_remote.report(member, oldest.remote);
    }

    /// The stable times and the oldest snapshot, once every partition has reported.
    fn stable(&self) -> Option<(Timestamp, Timestamp, Snapshot)> {
        let oldest = Snapshot { local: self.oldest_local.minimum()?, remote: self.oldest_remote.minimum()? };
        Some((self.local.minimum()?, self.remote.minimum()?, oldest))
    }
}

/// The snapshots that coordinators read, as they told this partition.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The oldest of each coordinator, and when it said so.
    by_coordinator: BTreeMap<Address, (Snapshot, Instant)>,
    /// Coordinators that spoke to an earlier life are given until then to speak again.
    settling_until: Instant,
}

impl Leases {
    /// A life begins.
    pub(super) fn begin(&mut self, now: Instant, lease: Duration) {
        self.settling_until = now + lease;
    }

    fn renew(&mut self, coordinator: Address, oldest: Snapshot, now: Instant) {
        self.by_coordinator.insert(coordinator, (oldest, now));
    }

    /// The oldest snapshot leased, or else the one that would be given now.
    fn oldest(&mut self, current: Snapshot, now: Instant, lease: Duration) -> Snapshot {
        self.by_coordinator.retain(|_, (_, renewed)| now - *renewed < lease);
        if now < self.settling_until {
            return Snapshot::default();
        }
        self.by_coordinator.values().fold(current, |oldest, (leased, _)| oldest.oldest(*leased))
    }
}

impl Partition {
    pub(super) fn on_start_tx(
        &mut self,
        now: Now,
        from: Address,
        known: Snapshot,
        oldest: Snapshot,
        out: &mut Outputs<'_, Node>,
    ) {
        self.lst = self.lst.max(known.local);
        self.rst = self.rst.max(known.remote);
        self.leases.renew(from, oldest, now.instant);
        out.send(from, Message::StartTxResp { lst: self.lst, rst: self.rst });
    }

    /// What a coordinator reads is stable, so this partition may take it for stable too (Wren, Algorithm 6, lines 2
    /// and 3).
    /// Nothing is stamped at or below: a partition that lost records may have told so before.
    pub(super) fn learn_stable(&mut self, now: Now, snapshot: Snapshot) {
        self.follow(now, snapshot.local);
        self.lst = self.lst.max(snapshot.local);
        self.rst = self.rst.max(snapshot.remote);
    }

    pub(super) fn on_gossip(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let remote = self.origins.values().map(|origin| origin.up_to).min().unwrap_or(Timestamp::MAX);
        let current = Snapshot::of(self.lst, self.rst);
        let oldest = self.leases.oldest(current, now.instant, self.options.lease);
        if let Some(root) = &mut self.root {
            root.report(self.index, self.installed, remote, oldest);
            // Before every partition has reported, what was stable is still told: one that told an earlier life all that it
            // may tell unanswered learns of this one, and reports again.
            let known = (self.lst, self.rst, Snapshot::default());
            let (lst, rst, oldest) = root.stable().unwrap_or(known);
            let fastest = self.clock.last();
            self.tell_neighbours(&Message::StableTime { lst, rst, oldest, fastest }, out);
            self.take_stable(now, lst, rst, oldest);
        } else {
            self.tell_neighbours(&Message::StableReport { local: self.installed, remote, oldest }, out);
        }
        self.free_some();
        out.arm(Timer::Gossip, now.instant + self.options.gossip_every);
    }

    fn tell_neighbours(&mut self, message: &Message, out: &mut Outputs<'_, Node>) {
        for (index, link) in &mut self.neighbours {
            if link.may_tell() {
                out.stream(self.topology.address(self.region, *index), message.clone());
            }
        }
    }

    pub(super) fn on_stable_report(
        &mut self,
        now: Now,
        from: Address,
        local: Timestamp,
        remote: Timestamp,
        oldest: Snapshot,
    ) {
        let Some((region, index)) = self.topology.locate(from) else { return };
        let Some(root) = self.root.as_mut().filter(|_| region == self.region) else { return };
        root.report(index, local, remote, oldest);
        if let Some(link) = self.neighbours.get_mut(&index) {
            link.heard();
        }
        self.follow(now, local);
    }

    pub(super) fn on_stable_time(&mut self, now: Now, lst: Timestamp, rst: Timestamp, oldest: Snapshot) {
        if let Some(link) = self.neighbours.get_mut(&0) {
            link.heard();
        }
        self.take_stable(now, lst, rst, oldest);
    }

    fn take_stable(&mut self, now: Now, lst: Timestamp, rst: Timestamp, oldest: Snapshot) {
        if self.options.mutants.non_monotone_snapshot {
            (self.lst, self.rst) = (lst, rst);
        } else {
            (self.lst, self.rst) = (self.lst.max(lst), self.rst.max(rst));
        }
        if !self.checkpointing && !self.giver.is_giving(now.instant, self.options.lease) {
            self.raise_horizon(oldest);
        }
    }

    /// Everything at or below the remote time of the oldest snapshot is part of every snapshot: what is of another
    /// region by the remote rule, and what is of this one because its remote dependency time is below its own.
    pub(super) fn raise_horizon(&mut self, oldest: Snapshot) {
        self.horizon.local = self.horizon.local.max(oldest.local);
        if oldest.remote > self.horizon.remote {
            self.horizon.remote = oldest.remote;
            self.store.set_horizon(Some(Stamp::last_at(oldest.remote)));
        }
    }
}
