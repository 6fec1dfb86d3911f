//! Epochs: who the replicas are, and from when on.
//!
//! A view's number has its epoch in its upper half. So every message that names a view names its epoch, what counts
//! together in one view counts in one epoch, and every view of an epoch is higher than all of those before it
//! (Corrections 83). Which replicas an epoch has is a fact once f+1 of the epoch before have sealed it: see
//! `reconfigure`.

use super::{Message, Operations};
use types::{Address, wire_struct};

/// The bits of a view's number that count within its epoch.
const VIEW_BITS: u32 = 32;

/// The epoch that a view belongs to.
pub fn epoch_of(view: u64) -> u32 {
    (view >> VIEW_BITS) as u32
}

/// The lowest view of an epoch: its members begin in it, with the record that the epoch before ended with.
pub fn first_view(epoch: u32) -> u64 {
    u64::from(epoch) << VIEW_BITS
}

/// A view's number within its epoch.
pub(super) fn within_epoch(view: u64) -> u64 {
    view & ((1 << VIEW_BITS) - 1)
}

/// The first epoch after a loss that was accepted: higher than all that the lost majority may have begun.
pub(super) fn after_loss(epoch: u32) -> u32 {
    (epoch | 0xffff).saturating_add(1)
}

/// The replicas of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Counts the changes; a group begins with 0.
    pub epoch: u32,
    /// Its 2f+1 replicas.
    pub members: Vec<Address>,
}
wire_struct!(Configuration { epoch, members });

/// What a replica remembers of who its group is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The epoch of the present view. It has begun: f+1 of its members have its first record.
    pub present: Configuration,
    /// The view of the epoch before that this one began after; 0 for the first.
    pub after: u64,
    /// A member's last normal view is the last of its epoch, and this follows. Of others: this replica has the record
    /// that it begins with.
    pub next: Option<Configuration>,
}
wire_struct!(Membership { present, after, next });

impl<O: Operations> Message<O> {
    /// The view that the message speaks in, and with it the epoch: what is of another epoch than the receiver's is
    /// answered with that, and not counted. Facts (how a group ended) have none.
    pub fn view(&self) -> Option<u64> {
        match self {
            Message::Propose { view, .. }
            | Message::Reply { view, .. }
            | Message::Finalize { view, .. }
            | Message::Confirm { view, .. }
            | Message::Executed { view, .. }
            | Message::CoordinatorChange { view, .. }
            | Message::CoordinatorPromise { view, .. }
            | Message::StartViewChange { view }
            | Message::DoViewChange { view, .. }
            | Message::StartView { view, .. }
            | Message::ViewStarted { view, .. }
            | Message::ThisView { view, .. }
            | Message::Sync { view, .. }
            | Message::Synced { view, .. }
            | Message::FinishSync { view, .. }
            | Message::SyncFinished { view, .. } => Some(*view),
            Message::Execute { .. }
            | Message::Outcome { .. }
            | Message::Forgotten { .. }
            | Message::Superseded { .. }
            | Message::WhichView { .. }
            | Message::Lacking { .. }
            | Message::Ended { .. }
            | Message::Reconfigure { .. }
            | Message::Invite { .. }
            | Message::Invited { .. }
            | Message::StartEpoch { .. }
            | Message::EpochReady { .. }
            | Message::WhichEpoch { .. }
            | Message::Epoch { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_of_an_epoch_is_above_those_before_it() {
        assert!(first_view(1) > first_view(0) + u64::from(u32::MAX));
        assert_eq!((epoch_of(first_view(7) + 9), within_epoch(first_view(7) + 9)), (7, 9));
        assert_eq!((epoch_of(12), first_view(0)), (0, 0));
    }

    #[test]
    fn an_epoch_after_a_loss_is_above_those_that_may_have_begun() {
        assert_eq!((after_loss(0), after_loss(3), after_loss(0x1_0000)), (0x1_0000, 0x1_0000, 0x2_0000));
    }
}
