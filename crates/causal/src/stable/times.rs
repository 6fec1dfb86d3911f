//! What tells the protocols here apart: the times by which they say what is stable and what a snapshot shows.

use super::stamp::Stamp;
use std::fmt::Debug;
use types::{RegionId, Timestamp, Wire};

/// Stable times, and the snapshots that are made of them: Wren has two, the local and the remote one, PaRiS one.
/// [`Times::newest`] and [`Times::oldest`] are the bounds of two, time by time; the default is below all others.
pub trait Times: Wire + Clone + Copy + Debug + Default + PartialEq + 'static {
    /// True if what is stable is so in all regions, which any of them may then be asked about: transactions have parts
    /// in several regions. Otherwise what is stable is so in a region, which holds every partition.
    const UNIVERSAL: bool;

    /// What a partition can vouch for that has installed everything of its own up to `own`, and has received
    /// everything of its peers up to `received`; `MAX` if it has none.
    fn of_partition(own: Timestamp, received: Timestamp) -> Self;

    /// The snapshot that shows everything up to `at`, and nothing above.
    fn at(at: Timestamp) -> Self;

    /// The least stable times of which a snapshot can be read that shows everything up to `at`.
    fn from_whole(at: Timestamp) -> Self;

    /// The snapshot that may be read when these are the stable times.
    fn readable(self) -> Self;

    /// These, but reaching `floor` at least.
    fn reaching(self, floor: Timestamp) -> Self;

    /// The whole isolation rule: true when the effect with this stamp is part of the snapshot in `region`.
    fn shows(self, stamp: &Stamp, region: RegionId) -> bool;

    /// The snapshot shows everything that is placed up to here, wherever it is from. So a store may forget what it
    /// looked like below.
    fn whole(self) -> Timestamp;

    /// The snapshot shows nothing above, and all that its region's sessions wrote up to here: they need no cache of it.
    fn reach(self) -> Timestamp;

    /// What a stamp says of the effects that were chosen on the snapshot: [`Stamp::depends_on`].
    fn depends_on(self) -> Timestamp;

    /// The newer of the two, time by time.
    fn newest(self, other: Self) -> Self;

    /// The older of the two, time by time.
    fn oldest(self, other: Self) -> Self;
}
