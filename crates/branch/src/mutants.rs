//! Known bugs, to validate the tests with: each must be caught by a model or a test, which names it.

/// A rule left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A second child sees what the first child's branch has done so far: the paper's fork paths (Corrections 51).
    ForkSeesSibling,
    /// Rippling past a merge tests only the merge's own writes (Corrections 52).
    RippleOwnWrites,
    /// A state that takes over its parent's identity keeps only its own write set (Corrections 52).
    DropWriteSets,
    /// Values are merged over the newest fork point alone (Corrections 53).
    SingleForkPoint,
    /// A merge gets an id of its site, like any transaction (Corrections 53).
    MergeIdsBySite,
    /// A transaction whose parent was collected is appended to the state that took its identity (Corrections 54).
    ForwardParents,
    /// A merge may leave conflicting keys unwritten (Corrections 55).
    LeaveConflicts,
    /// A transaction that was open while heads were merged is merged as if they had not changed what it wrote.
    ForgetMeanwhile,
    /// Sessions remember only what they committed (Corrections 56).
    ForgetReads,
    /// Ids do not name the incarnation (Corrections 57).
    ReuseIds,
    /// A site's next life gives labels again that record partitions may know from states that its log has lost.
    ReuseLabels,
    /// A record partition says that it has on its disk what it has in memory.
    UnsyncedOrders,
    /// The answer of a record partition stands as of its question, whatever was written since.
    StaleAnswers,
    /// Collection takes states that other sites may still build on.
    IgnoreSites,
    /// A site's promise takes effect before its earlier transactions have arrived.
    PromisesOvertake,
}

/// The bug of an instance, or none.
pub type Mutants = types::Mutants<Mutant>;
