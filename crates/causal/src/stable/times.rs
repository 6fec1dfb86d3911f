//! What distinguishes the protocols here: the times by which they define stability, what a snapshot made of these times
//! shows, and whether a read of it may have to wait.

use super::stamp::{Depends, Stamp};
use mvcc::Bounds;
use replication::Lattice;
use std::fmt::Debug;
use types::{RegionId, RegionSet, Timestamp, Wire};

/// Stable times, and the snapshots that are made of them: Wren has two, the local and the remote one, PaRiS one, Cure one
/// for each region. [`Lattice::newest`] and [`Lattice::oldest`] are the bounds of two, time by time; the default is below
/// all others.
pub trait Times: Lattice + Wire + Debug + Default + PartialEq + Send + 'static {
    /// The dependencies of a stamp's effects, in addition to their place.
    type Depends: Depends;

    /// True if what is stable is so in all regions, and a read may then go to any of them: transactions have parts in
    /// several regions. Otherwise what is stable is so in a region, which holds every partition.
    const UNIVERSAL: bool;

    /// True if what is stable is so in all regions: the roots of their stabilization trees exchange what they have found.
    const AGREED: bool = Self::UNIVERSAL;

    /// True if a snapshot shows what has been received, stable or not (POCC): a session knows what it depends on, and only
    /// what of that is missing is waited for.
    const OPTIMISTIC: bool = false;

    /// True if stamps tell what their effects observed (Corrections 75): effects reset only that, and the writes that
    /// concurrent ones cost are listed. Otherwise effects are performed in order of place.
    const MERGES: bool;

    /// True if what observes and writes sees its primaries' newest state, so that effects of one region have observed one
    /// another. Otherwise what observes and writes is evaluated on its snapshot and
    /// validated where it is written. Only with [`Times::MERGES`].
    const OBSERVES: bool;

    /// True if a region that is gone for good can be evicted (Corrections 36).
    const EVICTS: bool;

    /// True if a partition's clock follows whatever faster time it hears of. Otherwise it only stamps above it.
    const FOLLOWS: bool;

    /// How many times less often than others it asks for and reports what is stable. More than once where no snapshot is made
    /// of it, and it is only to know what may be forgotten.
    const GOSSIP_RARER: u32 = 1;

    /// What a partition of `region` can vouch for that has installed everything of its own up to `own`, and has received
    /// everything of its peers up to these times.
    fn of_partition(
        region: RegionId,
        own: Timestamp,
        received: impl Iterator<Item = (RegionId, Timestamp)>,
    ) -> Self;

    /// The snapshot that shows everything up to `at`, and nothing above.
    fn at(at: Timestamp) -> Self;

    /// The least stable times of which a snapshot can be read that shows everything up to `at`.
    fn from_whole(at: Timestamp) -> Self;

    /// The snapshot that may be read without waiting when these are the stable times.
    fn readable(self) -> Self;

    /// The snapshot of a transaction that begins in `region` when these are the stable times. `newest` is the latest time
    /// that its coordinator knows: its clock, what its session wrote, and the snapshots that it has given.
    fn begin(self, region: RegionId, newest: Timestamp) -> Self {
        let _ = (region, newest);
        self.readable()
    }

    /// What is stable if a client in `region` reads this snapshot.
    fn known_stable(self, region: RegionId) -> Self {
        let _ = region;
        self
    }

    /// What a partition of `region` must have installed before the snapshot can be read there: see [`Times::installed`].
    /// Zero if a read never waits.
    fn needed(self, region: RegionId) -> Timestamp {
        let _ = region;
        Timestamp::ZERO
    }

    /// What counts as installed for [`Times::needed`] where everything of the region itself is up to `own`, and of its
    /// peers up to `received`.
    fn installed(own: Timestamp, received: Timestamp) -> Timestamp {
        own.min(received)
    }

    /// The regions of which somebody who has received so much lacks something that the snapshot shows.
    fn missing(self, received: Self) -> Vec<RegionId> {
        let _ = received;
        Vec::new()
    }

    /// True if [`Times::missing`] names any.
    fn lacks(self, received: Self) -> bool {
        let _ = received;
        false
    }

    /// True for an effect that what is written in `region` on this snapshot counts as observed by its place, but that the snapshot
    /// does not show, as it depends on something of another region that is missing: only with [`Times::OPTIMISTIC`].
    fn hides(self, stamp: &Stamp<Self::Depends>, region: RegionId) -> bool {
        let _ = (stamp, region);
        false
    }

    /// These, and what an effect depends on that says this of itself: only with [`Times::OPTIMISTIC`].
    fn with(self, depends_on: Self::Depends) -> Self {
        let _ = depends_on;
        self
    }

    /// These, and the effect with what it depends on: only with [`Times::OPTIMISTIC`].
    fn with_effect(self, stamp: &Stamp<Self::Depends>) -> Self {
        let _ = stamp;
        self
    }

    /// Up to where who says this of itself depends on writes of a region that may be gone for good: only with
    /// [`Times::OPTIMISTIC`]. Zero for who began when that had been settled, and depends on all that the region left.
    fn depended_on(depends_on: Self::Depends, region: RegionId) -> Timestamp {
        let _ = (depends_on, region);
        Timestamp::ZERO
    }

    /// These, with at most `cut` of a region, unless that is settled: only with [`Times::OPTIMISTIC`].
    fn without_lost(self, region: RegionId, cut: Timestamp) -> Self {
        let _ = (region, cut);
        self
    }

    /// These, but reaching `floor` at least in this region.
    fn reaching(self, region: RegionId, floor: Timestamp) -> Self;

    /// The whole isolation rule: true when the effect with this stamp is part of the snapshot in `region`.
    fn shows(self, stamp: &Stamp<Self::Depends>, region: RegionId) -> bool;

    /// What the snapshot shows in `region` in a few words, where stamps tell what effects observed: then reads need not ask
    /// of every effect.
    fn bounds(self, region: RegionId) -> Option<Bounds<Stamp<Self::Depends>>> {
        let _ = region;
        None
    }

    /// Whose effect it is, among those that merge: one has observed all of its group that are placed before it, and of the
    /// others what [`Times::observed`] says.
    fn group(stamp: &Stamp<Self::Depends>) -> u16 {
        stamp.region.0
    }

    /// The group of whose effects a reader in `region` may see some that are above what it sees of others.
    fn group_of_readers(region: RegionId) -> u16 {
        region.0
    }

    /// The snapshot shows everything that is placed up to here, wherever it is from. So a store may forget what it
    /// looked like below.
    fn whole(self) -> Timestamp;

    /// The snapshot shows nothing above, and all that its region's sessions wrote up to here: they need no cache of it.
    fn reach(self) -> Timestamp;

    /// What a stamp says of the effects that were chosen on the snapshot in `region`: [`Stamp::depends_on`].
    fn depends_on(self, region: RegionId) -> Self::Depends;

    /// The same of a transaction that these regions take part in: if one of them is lost, a part may be too.
    fn with_parts(depends_on: Self::Depends, parts: RegionSet) -> Self::Depends {
        let _ = parts;
        depends_on
    }

    /// The regions that take part in a transaction whose effects say this of themselves and which committed in `region`.
    fn parts(depends_on: Self::Depends, region: RegionId) -> RegionSet {
        let _ = depends_on;
        [region].into_iter().collect()
    }

    /// Who chose effects that say this of themselves had observed everything of the other groups up to here; zero if it
    /// tells nothing of the kind.
    fn observed(depends_on: Self::Depends) -> Timestamp;

    /// True if the snapshot shows all that an effect of its region depends on that says this of itself.
    fn shows_all_of(self, depends_on: Self::Depends) -> bool {
        Self::observed(depends_on) <= self.whole()
    }

    /// The last place that who chose such effects had observed of other groups; or the places, one for each of them.
    fn upto(depends_on: Self::Depends) -> Stamp<Self::Depends> {
        Stamp::last_at(Self::observed(depends_on))
    }

    /// The snapshot for checkers, and what an effect depends on, region by region; nothing where two times say all.
    fn by_region(self, regions: usize) -> Vec<Timestamp> {
        let _ = regions;
        Vec::new()
    }

    /// The same of what a stamp says.
    fn depends_by_region(depends_on: Self::Depends, regions: usize) -> Vec<Timestamp> {
        let _ = (depends_on, regions);
        Vec::new()
    }
}

/// The oldest time of what has been received; `MAX` if there is nobody to receive anything of.
pub(crate) fn oldest_of(received: impl Iterator<Item = (RegionId, Timestamp)>) -> Timestamp {
    received.map(|(_, at)| at).min().unwrap_or(Timestamp::MAX)
}
