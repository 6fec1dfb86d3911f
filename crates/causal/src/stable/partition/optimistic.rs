//! Snapshots of what a partition has received (POCC, Algorithm 2): where a session says what it depends on, a partition by
//! itself shows it the freshest state that it has, and says what that depends on.

use super::Partition;
use crate::stable::Times;
use crate::stable::message::{KeyspaceWork, Part, Work};
use types::Timestamp;

impl<S: Times> Partition<S> {
    /// The paper's version vector, whose own entry is `own`.
    pub(super) fn version_vector(&self, own: Timestamp) -> S {
        let received = self.origins.iter().map(|(region, origin)| (*region, self.followed(origin.up_to)));
        S::of_partition(self.region, own, received.chain(self.evictions.received::<S>()))
    }

    /// A time of another region, as far as the clock has followed it. What is above it is too far ahead
    /// ([`crate::stable::Options::clock_bound`]) and counts as not received: nobody here could write after having seen it.
    pub(super) fn followed(&self, at: Timestamp) -> Timestamp {
        if S::OPTIMISTIC { at.min(self.clock.last()) } else { at }
    }

    /// True if nothing is missing here that the snapshot shows of other regions.
    pub(super) fn has_received(&self, snapshot: S) -> bool {
        !S::OPTIMISTIC || !snapshot.lacks(self.version_vector(Timestamp::MAX)) && self.is_left(snapshot)
    }

    /// True if a snapshot shows nothing that was given up with a lost region. One that does waits, until its coordinator has
    /// heard of that.
    pub(super) fn is_left(&self, snapshot: S) -> bool {
        !S::OPTIMISTIC || self.evictions.bereaves::<S>(snapshot.depends_on(self.region)).is_none()
    }

    /// The freshest snapshot of these keys that shows all of this one: what has been received (Algorithm 2, lines 2 and 3).
    /// Where one key is read that only whole writes have changed, the last of them is shown whatever it depends on: all of
    /// that it has observed and replaced. What it depends on elsewhere, the session waits for when it needs it.
    pub(super) fn freshest(&self, snapshot: S, own: Timestamp, parts: &[Part<S>]) -> S {
        let fresh = snapshot.newest(self.version_vector(own));
        let [part] = parts else { return fresh };
        let hash = self.store.hash(&part.key);
        if !self.store.is_written_whole(hash, &part.key) {
            return fresh;
        }
        let last = self.store.stamps_beyond(hash, &part.key, None).next_back();
        let ahead = |at: Timestamp| at.wall().0.saturating_sub(self.clock.last().wall().0);
        let bound = self.options.clock_bound.as_micros() as u64;
        last.filter(|last| ahead(last.at) <= bound).map_or(fresh, |last| fresh.with_effect(&last))
    }

    /// What a reader of these keys depends on from now on (Algorithm 1, lines 4 and 5): what the snapshot shows of them. All
    /// below the horizon is stable in every region.
    pub(super) fn seen_of(
        &self,
        snapshot: S,
        parts: &[Part<S>],
        keyspace_work: &[KeyspaceWork],
    ) -> Option<S::Depends> {
        if !S::OPTIMISTIC {
            return None;
        }
        if !keyspace_work.is_empty() {
            return Some(snapshot.depends_on(self.region));
        }
        let mut seen = S::at(self.horizon.whole());
        for part in parts {
            let stamps = self.store.stamps_beyond(self.store.hash(&part.key), &part.key, None);
            let shown = stamps.filter(|stamp| snapshot.shows(stamp, self.region));
            seen = shown.fold(seen, |seen, stamp| seen.with_effect(&stamp));
        }
        Some(seen.depends_on(self.region))
    }

    /// True if what a participant evaluates may lack something that its transaction has seen.
    pub(super) fn lacks_observed(&self, snapshot: S, parts: &[Part<S>]) -> bool {
        let observes = |work: &Work<S>| !matches!(work, Work::Effect { .. });
        parts.iter().any(|part| part.work.iter().any(observes)) && !self.has_received(snapshot)
    }
}
