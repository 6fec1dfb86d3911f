//! The one time of PaRiS.

use crate::stable::{Stamp, Times, oldest_of};
use types::{RegionId, Timestamp, wire_struct};

/// A universal stable time, and the snapshot that it gives: all that every replica, in every region, has installed
/// (PaRiS, section 5.3.2). So any of them can be asked about it, and none has to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Universal(pub Timestamp);
wire_struct!(Universal(0));

impl Times for Universal {
    type Depends = Timestamp;

    const UNIVERSAL: bool = true;
    const OBSERVES: bool = false;
    const FOLLOWS: bool = true;

    /// The least entry of the partition's version vector (Algorithm 11, line 35; Corrections 29): its own one, and one
    /// for each other replica of the partition, which may be in few of the regions.
    fn of_partition(
        _: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self {
        Universal(own.min(oldest_of(received)))
    }

    fn at(at: Timestamp) -> Self {
        Universal(at)
    }

    fn from_whole(at: Timestamp) -> Self {
        Universal(at)
    }

    fn readable(self) -> Self {
        self
    }

    fn reaching(self, floor: Timestamp) -> Self {
        Universal(self.0.max(floor))
    }

    /// Algorithm 10, line 5: the region does not matter, neither the effect's nor the reader's.
    fn shows(self, stamp: &Stamp, _: RegionId) -> bool {
        stamp.at <= self.0
    }

    fn whole(self) -> Timestamp {
        self.0
    }

    fn reach(self) -> Timestamp {
        self.0
    }

    /// An effect depends on nothing that is not below its own time, and nothing is shown before all below is there: it
    /// needs no other time.
    fn depends_on(self, _: RegionId) -> Timestamp {
        Timestamp::ZERO
    }

    fn observed(_: Timestamp) -> Timestamp {
        Timestamp::ZERO
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
    use types::Wire;

    #[test]
    fn every_region_is_shown_the_same() {
        let stamp = |at, region| Stamp { at: Timestamp(at), region: RegionId(region), ..Stamp::default() };
        let snapshot = Universal(Timestamp(20));
        for region in [RegionId(0), RegionId(1)] {
            assert!(snapshot.shows(&stamp(20, 0), region) && snapshot.shows(&stamp(20, 1), region));
            assert!(!snapshot.shows(&stamp(21, 0), region) && !snapshot.shows(&stamp(21, 1), region));
        }
    }

    #[test]
    fn a_partition_vouches_for_the_least_that_it_holds() {
        let of = |received: &[u64]| {
            let received = received.iter().map(|at| (RegionId(1), Timestamp(*at)));
            Universal::of_partition(RegionId(0), Timestamp(7), received)
        };
        assert_eq!(of(&[9, 5]), Universal(Timestamp(5)));
        assert_eq!(of(&[9]), Universal(Timestamp(7)));
        assert_eq!(of(&[]), Universal(Timestamp(7)), "one replica");
    }

    #[test]
    fn it_is_one_timestamp_on_the_wire() {
        let (mut one, mut bare) = (Vec::new(), Vec::new());
        Universal(Timestamp(1 << 60)).encode(&mut one);
        Timestamp(1 << 60).encode(&mut bare);
        assert_eq!(one, bare);
    }
}
