//! The snapshots of Cure: one time for each region.

use causal::stable::{Entries, Stamp, Times};
use replication::Lattice;
use types::{Malformed, Reader, RegionId, Timestamp, Wire};

/// A snapshot of Cure: everything of each region up to its entry. What is stable is a vector, too. If `HYBRID`, clocks
/// follow the snapshots that are read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Vector<const HYBRID: bool>(Entries);

/// Cure, with physical clocks (Akkoorath and others, ICDCS 2016; the thesis's sections 4.3.1 and 4.5).
pub type Cure = Vector<false>;
/// Cure with hybrid clocks (the thesis's section 4.5).
pub type HybridCure = Vector<true>;

impl<const HYBRID: bool> Wire for Vector<HYBRID> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Vector(Entries::decode(input)?))
    }
}

impl<const HYBRID: bool> Lattice for Vector<HYBRID> {
    fn newest(self, other: Self) -> Self {
        Vector(self.0.combine(&other.0, Timestamp::max))
    }

    fn oldest(self, other: Self) -> Self {
        Vector(self.0.combine(&other.0, Timestamp::min))
    }
}

impl<const HYBRID: bool> Times for Vector<HYBRID> {
    type Depends = Entries;

    const UNIVERSAL: bool = false;
    const MERGES: bool = false;
    const OBSERVES: bool = false;
    const EVICTS: bool = false;
    const FOLLOWS: bool = HYBRID;

    fn of_partition(
        region: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self {
        let mut entries = Entries::all(Timestamp::MAX);
        entries.set(region, own);
        received.for_each(|(region, at)| entries.set(region, at));
        Vector(entries)
    }

    fn at(at: Timestamp) -> Self {
        Vector(Entries::all(at))
    }

    fn from_whole(at: Timestamp) -> Self {
        Vector(Entries::all(at))
    }

    fn readable(self) -> Self {
        self
    }

    /// The entry of the own region is the coordinator's time. It is above the others, so that what is written on the
    /// snapshot, above that, is above everything that the snapshot shows.
    fn begin(self, region: RegionId, newest: Timestamp) -> Self {
        let mut entries = self.0;
        entries.set(region, newest.max(self.reach()));
        Vector(entries)
    }

    /// The entry of the own region is somebody's clock: it tells nothing.
    fn known_stable(self, region: RegionId) -> Self {
        let mut entries = self.0;
        entries.set(region, Timestamp::ZERO);
        Vector(entries)
    }

    fn needed(self, region: RegionId) -> Timestamp {
        self.0.of(region)
    }

    /// What it shows of other regions is stable: every partition of the region has it.
    fn installed(own: Timestamp, _: Timestamp) -> Timestamp {
        own
    }

    fn reaching(self, _: RegionId, floor: Timestamp) -> Self {
        Vector(self.0.combine(&Entries::all(floor), Timestamp::max))
    }

    /// An effect's vector is its place for its own region and what its snapshot had for the others.
    fn shows(self, stamp: &Stamp<Entries>, _: RegionId) -> bool {
        let depends_on = &stamp.depends_on;
        stamp.at <= self.0.of(stamp.region)
            && depends_on.regions(depends_on).all(|region| depends_on.of(region) <= self.0.of(region))
    }

    /// What is placed at or below the least entry depends on less than that.
    fn whole(self) -> Timestamp {
        self.0.least()
    }

    fn reach(self) -> Timestamp {
        self.0.greatest()
    }

    fn depends_on(self, region: RegionId) -> Entries {
        let mut entries = self.0.of_named();
        entries.set(region, Timestamp::ZERO);
        entries
    }

    fn observed(_: Entries) -> Timestamp {
        Timestamp::ZERO
    }

    fn by_region(self, regions: usize) -> Vec<Timestamp> {
        self.0.by_region(regions)
    }

    fn depends_by_region(depends_on: Entries, regions: usize) -> Vec<Timestamp> {
        depends_on.by_region(regions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: RegionId = RegionId(0);

    fn stable(entries: &[u64]) -> HybridCure {
        let all = (0u16..).zip(entries).map(|(region, at)| (RegionId(region), Timestamp(*at)));
        Times::of_partition(HERE, Timestamp(entries[0]), all.skip(1))
    }

    fn stamp(at: u64, region: u16, depends_on: &[u64]) -> Stamp<Entries> {
        let depends_on = stable(depends_on).depends_on(RegionId(region));
        Stamp { at: Timestamp(at), region: RegionId(region), depends_on, ..Stamp::default() }
    }

    #[test]
    fn every_region_has_an_entry_of_its_own() {
        let snapshot = stable(&[9, 20, 5]).begin(HERE, Timestamp(30));
        assert!(snapshot.shows(&stamp(20, 1, &[8, 0, 5]), HERE));
        assert!(!snapshot.shows(&stamp(21, 1, &[8, 0, 5]), HERE), "not stable here");
        assert!(!snapshot.shows(&stamp(20, 1, &[8, 0, 6]), HERE), "it depends on what is not shown");
        assert!(
            snapshot.shows(&stamp(30, 0, &[0, 20, 5]), HERE)
                && !snapshot.shows(&stamp(31, 0, &[0, 0, 0]), HERE)
        );
        assert_eq!((snapshot.whole(), snapshot.reach()), (Timestamp(5), Timestamp(30)));
        assert_eq!(snapshot.needed(HERE), Timestamp(30));
    }

    #[test]
    fn the_own_entry_is_above_the_others_and_tells_nothing() {
        let snapshot = stable(&[9, 20, 5]).begin(HERE, Timestamp(10));
        assert_eq!(snapshot.by_region(3), [20, 20, 5].map(Timestamp));
        assert_eq!(
            HybridCure::default().newest(snapshot.known_stable(HERE)).by_region(3),
            [0, 20, 5].map(Timestamp)
        );
    }

    #[test]
    fn what_nobody_has_reported_is_below_everything() {
        let (nothing, reported) = (HybridCure::default(), stable(&[9, 20, 5]));
        assert_eq!(reported.oldest(nothing).whole(), Timestamp::ZERO);
        assert_eq!(reported.newest(nothing), reported);
        assert_eq!(reported.newest(HybridCure::at(Timestamp(7))).by_region(3), [9, 20, 7].map(Timestamp));
    }

    proptest! {
        #[test]
        fn vectors_survive_their_binary_form(entries in proptest::collection::vec(any::<u64>(), 1..causal::stable::MAX_REGIONS), at in any::<u64>()) {
            for vector in [stable(&entries), stable(&entries).oldest(HybridCure::at(Timestamp(at))), HybridCure::default()] {
                let mut bytes = Vec::new();
                vector.encode(&mut bytes);
                prop_assert_eq!(Vector::decode(&mut Reader::new(&bytes)), Ok(vector));
            }
        }

        /// Visibility rises with the snapshot, and an effect brings what it depends on.
        #[test]
        fn a_newer_snapshot_shows_no_less(one in proptest::collection::vec(0u64..9, 3), two in proptest::collection::vec(0u64..9, 3),
            at in 0u64..9, region in 0u16..3, depends_on in proptest::collection::vec(0u64..9, 3)) {
            let (one, stamp) = (stable(&one), stamp(at, region, &depends_on));
            let newer = one.newest(stable(&two));
            prop_assert!(!one.shows(&stamp, HERE) || newer.shows(&stamp, HERE));
        }
    }
}
