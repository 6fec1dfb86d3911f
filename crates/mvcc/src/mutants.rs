//! Known bugs, to validate the model that the store is tested against.

/// A rule left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Reads do not undo the first effect that they must not see.
    UndoLeftOut,
}

/// The bug of a store, or none.
pub type Mutants = types::Mutants<Mutant>;
