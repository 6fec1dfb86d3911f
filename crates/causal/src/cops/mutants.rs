//! Known bugs, to validate the tests with: each must be caught by a script or the simulator.

/// A rule left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// What arrives is written at once, whatever it depends on (section 4.4).
    ChecksSkipped,
    /// A dependency counts as written when anything with its Lamport time or a later one is, from whatever region (Corrections 45).
    CheckByVersion,
    /// What a region has written of all others counts as written in all of them.
    FlaggedTooSoon,
    /// What a session reads is no dependency of what it writes (section 4.3).
    ReadsNotTracked,
    /// The second round of a get transaction is left out (figure 7).
    OneRound,
    /// Versions keep their nearest dependencies, not all of them, for the second round (Corrections 46).
    NearestOnly,
    /// A version that is collected is answered from what is left (Corrections 46).
    ReadCollected,
    /// What every region has written is collected while get transactions may still need it (section 5.1).
    LeaseIgnored,
    /// A session goes on without its context while the outcome of its put is not known (Corrections 49).
    ContextCleared,
    /// A repeated put is written again (Corrections 49).
    WrittenTwice,
    /// A session goes on at once with a context that it is given.
    ContextIgnored,
    /// The clock does not remember the time that it has published (Corrections 21).
    BoundNotRemembered,
    /// A write replaces the one version that its region showed, not the set of those that it has (Corrections 50).
    OnePrevious,
    /// An effect that merges does not depend on the versions of its key.
    KeyNotObserved,
    /// Survivors do not take from one another what they lack of a lost region (Corrections 48).
    NobodyForwards,
    /// What depends on a lost write that nobody has is written all the same (Corrections 36).
    OrphansKept,
}

/// The bug of an instance, or none.
pub type Mutants = types::Mutants<Mutant>;
