//! What a snapshot of Wren shows.

use crate::stable::{Stamp, Times, oldest_of};
use mvcc::Bounds;
use replication::Lattice;
use types::{RegionId, Timestamp, wire_struct};

/// A causal snapshot of one region: everything of its own up to `local`, everything of the others up to `remote`,
/// which is below `local` (Corrections 27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The paper's `lt`.
    pub local: Timestamp,
    /// The paper's `rt`.
    pub remote: Timestamp,
}
wire_struct!(Snapshot { local, remote });

impl Snapshot {
    /// The snapshot of the stable times: the remote time stays below the local one, so that what a session's cache
    /// holds above the snapshot is newer than anything the snapshot shows (Wren, Algorithm 5, line 5).
    pub fn of(lst: Timestamp, rst: Timestamp) -> Self {
        Snapshot { local: lst, remote: rst.min(lst.previous()) }
    }
}

impl Lattice for Snapshot {
    fn newest(self, other: Self) -> Self {
        Snapshot { local: self.local.max(other.local), remote: self.remote.max(other.remote) }
    }

    fn oldest(self, other: Self) -> Self {
        Snapshot { local: self.local.min(other.local), remote: self.remote.min(other.remote) }
    }
}

impl Times for Snapshot {
    type Depends = Timestamp;

    const UNIVERSAL: bool = false;
    const MERGES: bool = true;
    const OBSERVES: bool = true;
    const EVICTS: bool = true;
    const FOLLOWS: bool = true;

    fn of_partition(
        _: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self {
        Snapshot { local: own, remote: oldest_of(received) }
    }

    fn at(at: Timestamp) -> Self {
        Snapshot { local: at, remote: at }
    }

    /// The local time of a snapshot is above its remote time.
    fn from_whole(at: Timestamp) -> Self {
        Snapshot { local: at.next(), remote: at }
    }

    fn readable(self) -> Self {
        Snapshot::of(self.local, self.remote)
    }

    fn reaching(self, _: RegionId, floor: Timestamp) -> Self {
        Snapshot { local: self.local.max(floor), ..self }
    }

    /// Wren, Algorithm 6, lines 7 and 8, as in Corrections 26. The remote rule's second half, that what it depends on
    /// here is shown, follows: an effect depends on less than its own time, and `remote` is below `local`.
    fn shows(self, stamp: &Stamp, region: RegionId) -> bool {
        if stamp.region == region {
            stamp.at <= self.local && stamp.depends_on <= self.remote
        } else {
            stamp.at <= self.remote
        }
    }

    fn bounds(self, region: RegionId) -> Option<Bounds<Stamp>> {
        let (own, others) = (Stamp::last_at(self.local), Stamp::last_at(self.remote));
        Some(Bounds { group: region.0, own, others })
    }

    /// What is of another region by the remote rule, and what is of this one because its remote dependency time is
    /// below its own.
    fn whole(self) -> Timestamp {
        self.remote
    }

    fn reach(self) -> Timestamp {
        self.local
    }

    fn depends_on(self, _: RegionId) -> Timestamp {
        self.remote
    }

    fn observed(depends_on: Timestamp) -> Timestamp {
        depends_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: RegionId = RegionId(0);
    const THERE: RegionId = RegionId(1);

    fn stamp(at: u64, depends_on: u64, region: RegionId) -> Stamp {
        Stamp { at: Timestamp(at), depends_on: Timestamp(depends_on), region, ..Stamp::default() }
    }

    #[test]
    fn local_and_remote_effects_follow_their_own_rules() {
        let snapshot = Snapshot::of(Timestamp(20), Timestamp(10));
        assert!(snapshot.shows(&stamp(20, 10, HERE), HERE));
        assert!(!snapshot.shows(&stamp(21, 10, HERE), HERE), "not stable here");
        assert!(!snapshot.shows(&stamp(20, 11, HERE), HERE), "it depends on what has not arrived");
        assert!(snapshot.shows(&stamp(10, 3, THERE), HERE));
        assert!(!snapshot.shows(&stamp(11, 3, THERE), HERE), "not stable remotely");
        assert!(!snapshot.shows(&stamp(15, 3, THERE), HERE), "the origin decides which rule holds");
    }

    #[test]
    fn the_remote_time_stays_below_the_local_time() {
        assert_eq!(Snapshot::of(Timestamp(5), Timestamp(9)).remote, Timestamp(4));
        assert_eq!(Snapshot::of(Timestamp(5), Timestamp::MAX).remote, Timestamp(4), "with one region");
        assert_eq!(Snapshot::of(Timestamp(5), Timestamp(2)).remote, Timestamp(2));
    }
}
