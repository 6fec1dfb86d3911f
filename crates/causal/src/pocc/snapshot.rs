//! What a snapshot of POCC shows.

use crate::stable::{Entries, Stamp, Times};
use replication::Lattice;
use types::{Malformed, Reader, RegionId, Timestamp, Wire};

/// A snapshot, and what a session depends on: everything of each region up to its entry (the paper's `TV` and `DV`). What a
/// partition has received (`VV`), and what is stable in all regions, are vectors, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot(Entries);

impl Wire for Snapshot {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Snapshot(Entries::decode(input)?))
    }
}

impl Lattice for Snapshot {
    fn newest(self, other: Self) -> Self {
        Snapshot(self.0.combine(&other.0, Timestamp::max))
    }

    fn oldest(self, other: Self) -> Self {
        Snapshot(self.0.combine(&other.0, Timestamp::min))
    }
}

impl Times for Snapshot {
    type Depends = Entries;

    const UNIVERSAL: bool = false;
    const AGREED: bool = true;
    const OPTIMISTIC: bool = true;
    const MERGES: bool = true;
    const OBSERVES: bool = true;
    const EVICTS: bool = true;
    const FOLLOWS: bool = true;

    /// The version vector of a partition.
    fn of_partition(
        region: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self {
        let mut entries = Entries::default();
        received.chain([(region, own)]).for_each(|(region, at)| entries.set(region, at));
        Snapshot(entries)
    }

    fn at(at: Timestamp) -> Self {
        Snapshot(Entries::all(at))
    }

    fn from_whole(at: Timestamp) -> Self {
        Self::at(at)
    }

    fn readable(self) -> Self {
        self
    }

    /// The entry of the own region is the coordinator's time, if that is later.
    fn begin(self, region: RegionId, newest: Timestamp) -> Self {
        self.reaching(region, newest)
    }

    /// It is no stable time.
    fn known_stable(self, _: RegionId) -> Self {
        Self::default()
    }

    /// A partition must have decided what its region places up to here (Corrections 41). What it must have received, says
    /// [`Times::missing`].
    fn needed(self, region: RegionId) -> Timestamp {
        self.0.of(region)
    }

    fn installed(own: Timestamp, _: Timestamp) -> Timestamp {
        own
    }

    fn missing(self, received: Self) -> Vec<RegionId> {
        let regions = self.0.regions(&received.0);
        regions.filter(|region| self.0.of(*region) > received.0.of(*region)).collect()
    }

    fn lacks(self, received: Self) -> bool {
        !self.0.is_within(&received.0)
    }

    /// Corrections 43: what no pessimistic session is shown, also if it is local.
    fn hides(self, stamp: &Stamp<Entries>, region: RegionId) -> bool {
        let with_own = self.reaching(region, Timestamp::MAX).0;
        stamp.at <= with_own.of(stamp.region) && !stamp.depends_on.is_within(&with_own)
    }

    fn with(self, depends_on: Entries) -> Self {
        self.newest(Snapshot(depends_on))
    }

    /// Algorithm 1, lines 4 and 5.
    fn with_effect(self, stamp: &Stamp<Entries>) -> Self {
        self.with(stamp.depends_on).reaching(stamp.region, stamp.at)
    }

    /// Of a region that is gone for good, and whose end is settled, everything is here: `MAX`.
    fn depended_on(depends_on: Entries, region: RegionId) -> Timestamp {
        Some(depends_on.of(region)).filter(|at| *at < Timestamp::MAX).unwrap_or_default()
    }

    fn without_lost(self, region: RegionId, cut: Timestamp) -> Self {
        let mut entries = self.0;
        if Self::depended_on(entries, region) > cut {
            entries.set(region, cut);
        }
        Snapshot(entries)
    }

    fn reaching(self, region: RegionId, floor: Timestamp) -> Self {
        let mut entries = self.0;
        entries.set(region, floor.max(entries.of(region)));
        Snapshot(entries)
    }

    /// Algorithm 2, line 28; what it depends on does not name the effect's own place, which must be shown, too.
    fn shows(self, stamp: &Stamp<Entries>, _: RegionId) -> bool {
        stamp.at <= self.0.of(stamp.region) && stamp.depends_on.is_within(&self.0)
    }

    /// What is placed at or below the least entry depends on less than that.
    fn whole(self) -> Timestamp {
        self.0.least()
    }

    fn reach(self) -> Timestamp {
        let named = self.0.named().iter().copied();
        named.filter(|at| *at < Timestamp::MAX).max().unwrap_or_default()
    }

    fn depends_on(self, _: RegionId) -> Entries {
        self.0
    }

    fn observed(depends_on: Entries) -> Timestamp {
        depends_on.least()
    }

    fn shows_all_of(self, depends_on: Entries) -> bool {
        depends_on.is_within(&self.0)
    }

    fn upto(depends_on: Entries) -> Stamp<Entries> {
        Stamp { depends_on, ..Stamp::last_at(depends_on.least()) }
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

    const HERE: RegionId = RegionId(0);

    fn of(entries: &[u64]) -> Snapshot {
        let all = (0u16..).zip(entries).map(|(region, at)| (RegionId(region), Timestamp(*at)));
        Times::of_partition(HERE, Timestamp(entries[0]), all.skip(1))
    }

    fn stamp(at: u64, region: u16, depends_on: &[u64]) -> Stamp<Entries> {
        let depends_on = of(depends_on).depends_on(HERE);
        Stamp { at: Timestamp(at), region: RegionId(region), depends_on, ..Stamp::default() }
    }

    /// Algorithm 1, lines 4 and 5: what a client reads, it depends on, and on what that depends on.
    #[test]
    fn algorithm_1_a_read_item_joins_the_dependencies() {
        let seen = of(&[4, 9, 1]).with_effect(&stamp(12, 1, &[2, 8, 7]));
        assert_eq!(seen, of(&[4, 12, 7]));
    }

    /// Algorithm 2, line 28: a snapshot shows an item together with its dependencies, never without them.
    #[test]
    fn algorithm_2_an_item_is_shown_with_what_it_depends_on() {
        let snapshot = of(&[9, 20, 5]);
        assert!(snapshot.shows(&stamp(20, 1, &[8, 0, 5]), HERE));
        assert!(!snapshot.shows(&stamp(21, 1, &[8, 0, 5]), HERE), "its own place is above");
        assert!(!snapshot.shows(&stamp(20, 1, &[8, 0, 6]), HERE), "what it depends on is not shown");
    }

    /// Algorithm 2, lines 2 and 25: only what the session depends on is waited for.
    #[test]
    fn algorithm_2_only_what_is_missing_is_waited_for() {
        let received = of(&[9, 20, 5]);
        assert_eq!(of(&[9, 20, 0]).missing(received), []);
        assert_eq!(of(&[0, 21, 6]).missing(received), [RegionId(1), RegionId(2)]);
        assert!(of(&[0, 21, 6]).lacks(received) && !of(&[9, 20, 0]).lacks(received));
    }

    /// All below the horizon is stable in every region: who reads it depends on it, also where nothing names a region.
    #[test]
    fn what_is_below_the_horizon_is_depended_on() {
        let below = Snapshot::at(Timestamp(5)).depends_on(HERE);
        assert_eq!((0..3).map(|region| below.of(RegionId(region))).max(), Some(Timestamp(5)));
        assert_eq!(Snapshot::default().with(below).by_region(2), [Timestamp(5), Timestamp(5)]);
    }

    /// Algorithm 2, line 17.
    #[test]
    fn algorithm_2_a_snapshot_is_what_was_received_and_what_the_session_depends_on() {
        assert_eq!(of(&[9, 20, 5]).newest(of(&[0, 3, 7])), of(&[9, 20, 7]));
    }

    /// Corrections 39: of the snapshots in use the minimum, entry by entry.
    #[test]
    fn garbage_is_what_is_below_the_minimum_of_all_snapshots() {
        assert_eq!(of(&[9, 20, 5]).oldest(of(&[7, 30, 6])), of(&[7, 20, 5]));
        assert_eq!(of(&[9, 20, 5]).whole(), Timestamp(5));
    }

    /// Corrections 43: local items are hidden for what they depend on, as remote ones are.
    #[test]
    fn a_pessimistic_session_counts_as_having_observed_what_is_hidden_from_it() {
        let snapshot = of(&[9, 20, 5]);
        assert!(!snapshot.hides(&stamp(30, 0, &[8, 20, 5]), HERE), "the session is to see it");
        assert!(snapshot.hides(&stamp(30, 0, &[8, 20, 6]), HERE));
        assert!(snapshot.hides(&stamp(20, 1, &[8, 0, 6]), HERE));
        assert!(!snapshot.hides(&stamp(21, 1, &[8, 0, 6]), HERE), "its place is above, too");
    }

    /// Corrections 75: an effect resets what it observed of each region, and nothing else.
    #[test]
    fn an_effect_tells_what_it_observed_of_each_region() {
        use mvcc::Stamp as _;
        let upto = Snapshot::upto(of(&[4, 20, 5]).depends_on(HERE));
        assert!(stamp(20, 1, &[0, 0, 0]).is_observed(1, &upto));
        assert!(!stamp(6, 2, &[0, 0, 0]).is_observed(2, &upto));
        let both = upto.observed_by_both(Snapshot::upto(of(&[9, 7, 6]).depends_on(HERE)));
        assert!(
            !stamp(20, 1, &[0, 0, 0]).is_observed(1, &both) && stamp(5, 2, &[0, 0, 0]).is_observed(2, &both)
        );
    }
}
