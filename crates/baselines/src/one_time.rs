//! Snapshots that are one time, as fresh as a clock, or none.

use causal::stable::{OneTime, Rule};

/// Everything up to a fresh time, which reads wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fresh;

impl Rule for Fresh {
    const FRESH: bool = true;
    const MERGES: bool = false;
    const HIDES: bool = true;
    const WAITS: bool = true;
}

/// A snapshot of BPR (the thesis's section 5.5): everything up to a time, wherever it is from. A replica answers a read of
/// it once it has installed all of its own up to there and has received all of its peers.
pub type Blocking = OneTime<Fresh>;

/// Whatever is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Anything;

impl Rule for Anything {
    const FRESH: bool = true;
    const MERGES: bool = false;
    const HIDES: bool = false;
    const WAITS: bool = false;
}

/// A time that hides nothing: what is there is seen (NoCC, the thesis's section 5.5). It only tells what a session wrote
/// itself, and what may be forgotten.
pub type Uncoordinated = OneTime<Anything>;

#[cfg(test)]
mod tests {
    use super::*;
    use causal::stable::{Stamp, Times};
    use types::{RegionId, Timestamp};

    const HERE: RegionId = RegionId(0);

    #[test]
    fn a_fresh_snapshot_is_as_fresh_as_its_coordinator_and_waits_for_all_replicas() {
        let snapshot = Blocking::at(Timestamp(5)).begin(HERE, Timestamp(20));
        assert_eq!((snapshot.whole(), snapshot.needed(RegionId(1))), (Timestamp(20), Timestamp(20)));
        assert_eq!(Blocking::installed(Timestamp(30), Timestamp(10)), Timestamp(10));
        assert_eq!(snapshot.known_stable(HERE), Blocking::default());
    }

    #[test]
    fn without_snapshots_everything_is_seen_and_nothing_waited_for() {
        let snapshot = Uncoordinated::at(Timestamp(5)).begin(HERE, Timestamp(7));
        let stamp = Stamp { at: Timestamp(9), region: RegionId(1), ..Stamp::default() };
        assert!(snapshot.shows(&stamp, HERE));
        assert_eq!(snapshot.needed(HERE), Timestamp::ZERO);
    }

    #[test]
    fn effects_of_a_fresh_snapshot_do_not_tell_what_they_observed() {
        assert_eq!(Blocking::observed(Blocking::at(Timestamp(20)).depends_on(HERE)), Timestamp::ZERO);
    }
}
