//! The snapshots of BPR: one time, as fresh as its coordinator.

use crate::stable::{Stamp, Times, oldest_of};
use types::{RegionId, Timestamp, wire_struct};

/// A snapshot of BPR (the thesis's section 5.5): everything up to a time, wherever it is from. A replica answers a read of
/// it once it has installed all of its own up to there and has received all of its peers. What is stable everywhere is
/// only asked for to know what may be forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blocking(pub Timestamp);
wire_struct!(Blocking(0));

impl Times for Blocking {
    type Depends = Timestamp;

    const UNIVERSAL: bool = true;
    const OBSERVES: bool = false;
    const FOLLOWS: bool = true;
    const GOSSIP_RARER: u32 = 20;

    fn of_partition(
        _: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self {
        Blocking(own.min(oldest_of(received)))
    }

    fn at(at: Timestamp) -> Self {
        Blocking(at)
    }

    fn from_whole(at: Timestamp) -> Self {
        Blocking(at)
    }

    fn readable(self) -> Self {
        self
    }

    fn begin(self, _: RegionId, newest: Timestamp) -> Self {
        Blocking(self.0.max(newest))
    }

    /// It is somebody's clock: it tells nothing.
    fn known_stable(self, _: RegionId) -> Self {
        Blocking::default()
    }

    fn needed(self, _: RegionId) -> Timestamp {
        self.0
    }

    fn reaching(self, floor: Timestamp) -> Self {
        Blocking(self.0.max(floor))
    }

    fn shows(self, stamp: &Stamp, _: RegionId) -> bool {
        stamp.at <= self.0
    }

    fn whole(self) -> Timestamp {
        self.0
    }

    fn reach(self) -> Timestamp {
        self.0
    }

    fn depends_on(self, _: RegionId) -> Timestamp {
        Timestamp::ZERO
    }

    fn observed(_: Timestamp) -> Timestamp {
        Timestamp::ZERO
    }

    fn by_region(self, regions: usize) -> Vec<Timestamp> {
        vec![self.0; regions]
    }

    fn depends_by_region(_: Timestamp, regions: usize) -> Vec<Timestamp> {
        vec![Timestamp::ZERO; regions]
    }

    fn newest(self, other: Self) -> Self {
        self.max(other)
    }

    fn oldest(self, other: Self) -> Self {
        self.min(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_as_fresh_as_its_coordinator_and_waits_for_all_replicas() {
        let snapshot = Blocking(Timestamp(5)).begin(RegionId(0), Timestamp(20));
        assert_eq!((snapshot, snapshot.needed(RegionId(1))), (Blocking(Timestamp(20)), Timestamp(20)));
        assert_eq!(Blocking::installed(Timestamp(30), Timestamp(10)), Timestamp(10));
        assert_eq!(snapshot.known_stable(RegionId(0)), Blocking::default());
    }
}
