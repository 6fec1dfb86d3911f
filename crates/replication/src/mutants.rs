//! Known bugs, to validate the tests with: each must be caught by a script or the simulator
//! (`docs/internals/replicated-log.md`).

/// A rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A member that lost what it acknowledged votes at once (Corrections 67).
    TrustMemory,
    /// What a step says leaves when its entry is proposed, before it is committed.
    SaidBeforeCommitted,
    /// A deposed leader keeps its state when other entries took the place of its own.
    StateKept,
    /// A leader answers what only the present one may answer without asking a quorum whether it leads.
    ReadsUnconfirmed,
}

/// The bug of a member, or none.
pub type Mutants = types::Mutants<Mutant>;
