//! What orders an effect, and what a snapshot shows of it.

use types::{RegionId, Timestamp, TransactionId, wire_struct};

/// The place of an effect: all of one transaction share it. Ordered by update time, then by the transaction's id,
/// which is unique, so that every region orders alike (Corrections 31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The commit timestamp: the paper's `ut`.
    pub at: Timestamp,
    /// The transaction: the paper's `id_T`.
    pub transaction: TransactionId,
    /// Where it committed: the paper's `sr`.
    pub region: RegionId,
    /// Up to where it may depend on other regions: the paper's `rdt`.
    pub depends_on: Timestamp,
}

wire_struct!(Stamp { at, transaction, region, depends_on });

impl Stamp {
    /// Above every stamp with this time and below every later one.
    pub(super) fn last_at(at: Timestamp) -> Self {
        let transaction = TransactionId {
            process: types::ProcessId(u16::MAX),
            incarnation: types::Incarnation(u32::MAX),
            number: u64::MAX,
        };
        Stamp { at, transaction, region: RegionId(u16::MAX), depends_on: Timestamp::MAX }
    }
}

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
    /// The snapshot of the stable times: the remote time is kept below the local one, so that what a session's cache
    /// holds above the snapshot is newer than anything the snapshot shows (Wren, Algorithm 5, line 5).
    pub fn of(lst: Timestamp, rst: Timestamp) -> Self {
        Snapshot { local: lst, remote: rst.min(lst.previous()) }
    }

    /// True when the effect with this stamp is part of the snapshot in `region` (Wren, Algorithm 6, lines 7 and 8, as
    /// in Corrections 26). The remote rule's second half, that what it depends on here is shown, follows: an effect
    /// depends on less than its own time, and `remote` is below `local`.
    pub fn shows(self, stamp: &Stamp, region: RegionId) -> bool {
        if stamp.region == region {
            stamp.at <= self.local && stamp.depends_on <= self.remote
        } else {
            stamp.at <= self.remote
        }
    }

    /// The newest snapshot that neither of the two is behind of.
    pub fn oldest(self, other: Snapshot) -> Snapshot {
        Snapshot { local: self.local.min(other.local), remote: self.remote.min(other.remote) }
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
