//! The upcalls of IR to its application.

use std::fmt::Debug;
use types::{Timestamp, TransactionId, Wire};

/// The application's operations, as types.
pub trait Operations: Clone + Debug + PartialEq + 'static {
    /// A consensus operation: replicas execute it when it is proposed, and agree on a result.
    type Consensus: Wire + Clone + Debug + PartialEq;
    /// The result of a consensus operation; equal ones count together.
    type Result: Wire + Copy + Debug + Eq;
    /// An inconsistent operation: executed at any time and in any order; the last of its group.
    type Inconsistent: Wire + Clone + Debug + PartialEq;

    /// What an inconsistent operation says beyond the group's consensus operation.
    type Rest: Wire + Clone + Debug + PartialEq;

    /// The result that promises never to have voted otherwise (IR-TAPIR's NO-VOTE).
    const NO_VOTE: Self::Result;

    /// The outcome of a group that can no longer succeed.
    const ABORT: Self::Inconsistent;

    /// The inconsistent operation, put together again.
    fn complete(rest: &Self::Rest, operation: &Self::Consensus) -> Self::Inconsistent;

    /// The result for a group that was born at or below what is being synchronized: refused for ever.
    fn late(floor: Timestamp) -> Self::Result;

    /// True for the result that holds locks until its group ends (PREPARE-OK).
    fn holds(result: Self::Result) -> bool;
}

/// The upcalls. IR decides when; the application never calls back.
pub trait Application<O: Operations> {
    /// Judges a consensus operation against the present state without changing it; locks that its own group holds
    /// do not count. Beside the result, an opaque hint for the client says which part of the operation decided it.
    fn execute_consensus(
        &mut self,
        group: TransactionId,
        operation: &O::Consensus,
    ) -> (O::Result, Option<u32>);

    /// Judges an operation again whose result was tentative in the records that a leader merges, and which may have
    /// succeeded: only what contradicts that counts against it. Neither do clocks, nor what replicas have accepted since
    /// because it commutes with it. `ended` are the operations that have ended other groups, as far as they are
    /// remembered.
    fn execute_again(
        &mut self,
        group: TransactionId,
        operation: &O::Consensus,
        ended: &[(TransactionId, &O::Inconsistent)],
    ) -> O::Result;

    /// Holds the locks of this attempt, instead of those that the group held.
    fn hold(&mut self, group: TransactionId, operation: &O::Consensus);

    /// Lets the group's locks go.
    fn release(&mut self, group: TransactionId);

    /// Executes the group's inconsistent operation and lets its locks go. During recovery an operation may come
    /// whose effects are in the state already, all or some of them: they count once.
    fn execute_inconsistent(&mut self, group: TransactionId, operation: &O::Inconsistent);

    /// Up to which birth outcomes may be forgotten though a vote for this operation, given now, may be judged again.
    fn needs(&self, operation: &O::Consensus) -> Timestamp;

    /// Others may forget what was born up to here from now on: no vote given later may need more.
    fn let_go(&mut self, up_to: Timestamp);

    /// The greatest timestamp up to this one up to which may be forgotten beside what is remembered of what ended.
    fn forgettable(&self, up_to: Timestamp) -> Timestamp;

    /// Every group born at or below `base` that will ever commit has been executed.
    fn close(&mut self, base: Timestamp);

    /// IR has forgotten the outcomes of the groups born at or below this: the application may drop what it retains to
    /// answer for them.
    fn trim(&mut self, trimmed: Timestamp);
}
