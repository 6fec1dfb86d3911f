//! `dep_check` (COPS, section 4.4), both sides: a partition with a write of another region asks the partitions of its
//! own region whether the nearest dependencies are written; each of these answers when they are.
//!
//! A dependency is written when everything of its region up to it is: this version itself, whatever has overwritten it since, and
//! no other (Corrections 45). An answer says what is written altogether, so that the writes that follow seldom ask.

use super::replicate::is_overdue;
use super::{Mutant, Node, Partition};
use crate::cops::dependencies::covers;
use crate::cops::message::Message;
use crate::cops::record::Written;
use crate::cops::{Dependencies, Entries, Stamp};
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet};
use types::{Address, Instant, RegionId, Timestamp};

/// Versions of this partition, each of a region.
type Versions = Vec<(RegionId, Timestamp)>;

/// What is known of the other partitions of the region, and what they want to know of this one.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// By partition: what it has reported as written.
    reported: BTreeMap<u16, Entries>,
    /// Who waits for which versions of this one, and since when.
    waiting: Vec<(Address, Versions, Instant)>,
}

impl Checks {
    /// What another partition of the region has said that it has written.
    pub(super) fn reported(&self, partition: u16) -> Entries {
        self.reported.get(&partition).copied().unwrap_or_default()
    }
}

impl Partition {
    /// True if everything is written here that this depends on.
    pub(super) fn is_due(&self, written: &Written) -> bool {
        let is_written = match self.options.serialized {
            true => self.has_observed(&written.stamp),
            false => self.lacking(&written.nearest).is_empty() && !self.lacks_for_good(written),
        };
        is_written || self.has(Mutant::ChecksSkipped)
    }

    /// True if everything of third regions is written here that was written before this version in its own region.
    fn has_observed(&self, stamp: &Stamp) -> bool {
        let mut third = self.equivalents.keys().filter(|region| **region != stamp.region);
        third.all(|region| self.written.of(*region) >= stamp.depends_on.of(*region))
    }

    fn dep_checked(&self) -> Message {
        Message::DepChecked { written: self.settled(), ends: self.evictions.ends() }
    }

    /// What is written here, or never will be: a stream that has ended lacks nothing, whatever its region's clock showed.
    fn settled(&self) -> Entries {
        let ends = self.evictions.ends().into_iter();
        ends.fold(self.written, |mut settled, (region, _)| {
            settled.set(region, Timestamp::MAX);
            settled
        })
    }

    /// The partitions of which something of this is not known to be written.
    fn lacking(&self, nearest: &Dependencies) -> BTreeSet<u16> {
        let settled = self.settled();
        let is_written = |partition: u16, region: RegionId, at: Timestamp| match partition == self.index {
            true => self.covers(&settled, &[(region, at)]),
            false => self
                .checks
                .reported
                .get(&partition)
                .is_some_and(|reported| self.covers(reported, &[(region, at)])),
        };
        let lacking = nearest.iter().filter(|(partition, region, at)| !is_written(*partition, *region, *at));
        lacking.map(|(partition, ..)| partition).collect()
    }

    fn covers(&self, written: &Entries, versions: &[(RegionId, Timestamp)]) -> bool {
        if self.has(Mutant::CheckByVersion) {
            return versions.iter().all(|(_, at)| written.greatest() >= *at);
        }
        covers(written, versions.iter().copied())
    }

    /// Queries the versions that a write of this region waits for, unless it has done so lately.
    pub(super) fn check(
        &mut self,
        now: Now,
        region: RegionId,
        nearest: &Dependencies,
        out: &mut Outputs<'_, Node>,
    ) {
        let after = self.options.retry_after;
        let Some(equivalent) = self.equivalents.get_mut(&region) else { return };
        if !is_overdue(equivalent.checked, now.instant, after) {
            return;
        }
        equivalent.checked = Some(now.instant);
        for partition in self.lacking(nearest) {
            // Its own versions arrive by themselves.
            if partition != self.index && partition < self.topology.partitions() {
                let to = self.topology.address(self.region, partition);
                out.send(to, Message::DepCheck { versions: nearest.of(partition).collect() });
            }
        }
    }

    pub(super) fn on_dep_check(
        &mut self,
        now: Now,
        from: Address,
        versions: Versions,
        out: &mut Outputs<'_, Node>,
    ) {
        if self.covers(&self.settled(), &versions) {
            return out.send(from, self.dep_checked());
        }
        self.checks.waiting.retain(|(asker, awaited, _)| *asker != from || *awaited != versions);
        self.checks.waiting.push((from, versions, now.instant));
    }

    /// Answers those who wait for what is written now. Who asks no more is forgotten.
    pub(super) fn answer_checks(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let (patience, settled) = (3 * self.options.retry_after, self.settled());
        for (from, versions, since) in std::mem::take(&mut self.checks.waiting) {
            if self.covers(&settled, &versions) {
                out.send(from, self.dep_checked());
            } else if now.instant - since < patience {
                self.checks.waiting.push((from, versions, since));
            }
        }
    }

    pub(super) fn on_dep_checked(
        &mut self,
        now: Now,
        from: Address,
        written: Entries,
        ends: &[(RegionId, Timestamp)],
        out: &mut Outputs<'_, Node>,
    ) {
        let Some((region, partition)) = self.topology.locate(from) else { return };
        if region != self.region {
            return;
        }
        let reported = self.checks.reported.entry(partition).or_default();
        *reported = reported.combine(&written, Timestamp::max);
        self.evictions.note_ends(partition, ends);
        for equivalent in self.equivalents.values_mut() {
            equivalent.checked = None;
        }
        self.write_arrived(now, out);
        self.catch_up(now, out);
    }
}
