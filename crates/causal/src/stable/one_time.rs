//! Stable times and snapshots that are one time, the same in all regions: PaRiS's, and those of the baselines that it is
//! measured against. They differ in three small things, which a [`Rule`] says.

use super::stamp::{Depends, Stamp};
use super::times::{Times, oldest_of};
use mvcc::Bounds;
use replication::Lattice;
use std::fmt::Debug;
use std::marker::PhantomData;
use types::{Malformed, Reader, RegionId, RegionSet, Timestamp, Wire, wire_struct};

/// No process: the highest number stands for none.
const NOBODY: u16 = u16::MAX;

/// What distinguishes protocols with one time.
pub trait Rule: Copy + Debug + Default + Ord + Send + 'static {
    /// A snapshot is as fresh as its coordinator. Partitions use what is stable everywhere only to know what they may
    /// forget.
    const FRESH: bool;
    /// A stamp tells the snapshot that its effects were chosen on: see [`Times::MERGES`].
    const MERGES: bool;
    /// A snapshot shows nothing that is placed above it.
    const HIDES: bool;
    /// A read waits until everything up to its snapshot has been decided here and received of the other replicas.
    const WAITS: bool;
}

/// What a stamp says of the transaction in addition to its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origins {
    /// The snapshot that its effects were chosen on, where they are merged by it.
    pub observed: Timestamp,
    /// The regions that take part in it: if one of them is lost, all of it may have to be given up (Corrections 36).
    pub parts: RegionSet,
}
wire_struct!(Origins { observed, parts });
impl Depends for Origins {}

/// One time, by a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OneTime<R> {
    time: Timestamp,
    rule: PhantomData<R>,
}

impl<R: Rule> Wire for OneTime<R> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.time.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Timestamp::decode(input).map(Times::at)
    }
}

impl<R: Rule> Lattice for OneTime<R> {
    fn newest(self, other: Self) -> Self {
        self.max(other)
    }

    fn oldest(self, other: Self) -> Self {
        self.min(other)
    }
}

impl<R: Rule> Times for OneTime<R> {
    type Depends = Origins;

    const UNIVERSAL: bool = true;
    const MERGES: bool = R::MERGES;
    const OBSERVES: bool = false;
    const EVICTS: bool = R::MERGES;
    const FOLLOWS: bool = true;
    const GOSSIP_RARER: u32 = if R::FRESH { 20 } else { 1 };

    /// The least entry of the partition's version vector (PaRiS, Algorithm 11, line 35; Corrections 29): its own one, and one
    /// for each other replica of the partition, which may be in few of the regions.
    fn of_partition(
        _: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self {
        Self::at(own.min(oldest_of(received)))
    }

    fn at(time: Timestamp) -> Self {
        OneTime { time, rule: PhantomData }
    }

    fn from_whole(at: Timestamp) -> Self {
        Self::at(at)
    }

    fn readable(self) -> Self {
        self
    }

    fn begin(self, region: RegionId, newest: Timestamp) -> Self {
        if R::FRESH { self.reaching(region, newest) } else { self }
    }

    /// A fresh snapshot is a process's clock: it names no dependency.
    fn known_stable(self, _: RegionId) -> Self {
        if R::FRESH { Self::default() } else { self }
    }

    fn needed(self, _: RegionId) -> Timestamp {
        if R::WAITS { self.time } else { Timestamp::ZERO }
    }

    fn reaching(self, _: RegionId, floor: Timestamp) -> Self {
        Self::at(self.time.max(floor))
    }

    /// PaRiS, Algorithm 10, line 5: the region does not matter, neither the effect's nor the reader's.
    fn shows(self, stamp: &Stamp<Origins>, _: RegionId) -> bool {
        !R::HIDES || stamp.at <= self.time
    }

    fn whole(self) -> Timestamp {
        self.time
    }

    fn reach(self) -> Timestamp {
        self.time
    }

    /// Nobody sees anything above the snapshot but what his session wrote, which is in no store's hands.
    fn bounds(self, region: RegionId) -> Option<Bounds<Stamp<Origins>>> {
        let upto = Stamp::last_at(self.time);
        R::MERGES.then(|| Bounds { group: Self::group_of_readers(region), own: upto, others: upto })
    }

    /// A session's effects may go to one replica after the other, and its cache is its process's: effects of one process
    /// have observed one another in their order, wherever they are.
    fn group(stamp: &Stamp<Origins>) -> u16 {
        if R::MERGES { stamp.transaction.process.0 } else { stamp.region.0 }
    }

    fn group_of_readers(_: RegionId) -> u16 {
        NOBODY
    }

    /// An effect depends on nothing that is not below its own time, and nothing is shown before all below is there: to be
    /// shown it needs no other time. It has one to be merged.
    fn depends_on(self, _: RegionId) -> Origins {
        let observed = if R::MERGES { self.time } else { Timestamp::ZERO };
        Origins { observed, parts: RegionSet::default() }
    }

    fn with_parts(depends_on: Origins, parts: RegionSet) -> Origins {
        Origins { parts, ..depends_on }
    }

    /// What nobody's session did, as the deletion of an overdue key, names none: its only part is where it committed.
    fn parts(depends_on: Origins, region: RegionId) -> RegionSet {
        let mut parts = depends_on.parts;
        parts.insert(region);
        parts
    }

    fn observed(depends_on: Origins) -> Timestamp {
        if R::MERGES { depends_on.observed } else { Timestamp::ZERO }
    }

    fn by_region(self, regions: usize) -> Vec<Timestamp> {
        if R::WAITS { vec![self.time; regions] } else { Vec::new() }
    }

    fn depends_by_region(_: Origins, regions: usize) -> Vec<Timestamp> {
        if R::WAITS { vec![Timestamp::ZERO; regions] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paris::Universal;

    const HERE: RegionId = RegionId(0);

    fn stamp(at: u64, region: u16) -> Stamp<Origins> {
        Stamp { at: Timestamp(at), region: RegionId(region), ..Stamp::default() }
    }

    #[test]
    fn every_region_is_shown_the_same() {
        let snapshot = Universal::at(Timestamp(20));
        for region in [HERE, RegionId(1)] {
            assert!(snapshot.shows(&stamp(20, 0), region) && snapshot.shows(&stamp(20, 1), region));
            assert!(!snapshot.shows(&stamp(21, 0), region) && !snapshot.shows(&stamp(21, 1), region));
        }
    }

    #[test]
    fn a_partition_vouches_for_the_least_that_it_holds() {
        let of = |received: &[u64]| {
            let received = received.iter().map(|at| (RegionId(1), Timestamp(*at)));
            Universal::of_partition(HERE, Timestamp(7), received).whole()
        };
        assert_eq!(of(&[9, 5]), Timestamp(5));
        assert_eq!(of(&[9]), Timestamp(7));
        assert_eq!(of(&[]), Timestamp(7), "one replica");
    }

    #[test]
    fn it_is_one_timestamp_on_the_wire() {
        let (mut one, mut bare) = (Vec::new(), Vec::new());
        Universal::at(Timestamp(1 << 60)).encode(&mut one);
        Timestamp(1 << 60).encode(&mut bare);
        assert_eq!(one, bare);
    }

    #[test]
    fn an_effect_has_observed_its_snapshot_and_its_process_s() {
        let (snapshot, stamp) = (Universal::at(Timestamp(20)), stamp(30, 1));
        assert_eq!(Universal::observed(snapshot.depends_on(HERE)), Timestamp(20));
        let process = types::ProcessId(4);
        let of_process =
            Stamp { transaction: types::TransactionId { process, ..stamp.transaction }, ..stamp };
        assert_eq!((Universal::group(&of_process), Universal::group_of_readers(HERE)), (4, NOBODY));
    }

    #[test]
    fn an_effect_has_a_part_where_it_committed_whatever_else_it_names() {
        let depends_on = Universal::at(Timestamp(20)).depends_on(HERE);
        let elsewhere = Universal::with_parts(depends_on, [RegionId(2)].into_iter().collect());
        let parts = |depends_on| {
            let parts = Universal::parts(depends_on, RegionId(1));
            [HERE, RegionId(1), RegionId(2)].map(|region| parts.contains(region))
        };
        assert_eq!((parts(depends_on), parts(elsewhere)), ([false, true, false], [false, true, true]));
    }

    #[test]
    fn a_stable_snapshot_is_what_is_stable_and_waits_for_nobody() {
        let stable = Universal::at(Timestamp(5));
        assert_eq!((stable.begin(HERE, Timestamp(20)), stable.known_stable(HERE)), (stable, stable));
        assert_eq!(stable.needed(HERE), Timestamp::ZERO);
    }
}
