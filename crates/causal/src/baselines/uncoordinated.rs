//! What NoCC has in place of snapshots.

use crate::stable::{Stamp, Times, oldest_of};
use types::{RegionId, Timestamp, wire_struct};

/// A time that hides nothing: what is there is seen (NoCC, the thesis's section 5.5). It only tells what a session wrote
/// itself, and what may be forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uncoordinated(pub Timestamp);
wire_struct!(Uncoordinated(0));

impl Times for Uncoordinated {
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
        Uncoordinated(own.min(oldest_of(received)))
    }

    fn at(at: Timestamp) -> Self {
        Uncoordinated(at)
    }

    fn from_whole(at: Timestamp) -> Self {
        Uncoordinated(at)
    }

    fn readable(self) -> Self {
        self
    }

    fn begin(self, _: RegionId, newest: Timestamp) -> Self {
        Uncoordinated(self.0.max(newest))
    }

    /// It is somebody's clock: it tells nothing.
    fn known_stable(self, _: RegionId) -> Self {
        Uncoordinated::default()
    }

    fn reaching(self, floor: Timestamp) -> Self {
        Uncoordinated(self.0.max(floor))
    }

    fn shows(self, _: &Stamp, _: RegionId) -> bool {
        true
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
    fn everything_is_seen_and_nothing_waited_for() {
        let snapshot = Uncoordinated(Timestamp(5)).begin(RegionId(0), Timestamp(7));
        let later = Stamp { at: Timestamp(9), region: RegionId(1), ..Stamp::default() };
        assert!(snapshot.shows(&later, RegionId(0)));
        assert_eq!(snapshot.needed(RegionId(0)), Timestamp::ZERO);
    }
}
