//! Merge handlers (T13): the application's own rule for keys that branches changed independently, an option of the
//! keyspace, used by every site. Another crate runs the handler; this module defines its input and its answer.
//!
//! # Contract
//! - A handler is a function of what [`Conflicts`] shows: no clock, no entropy, no memory of earlier merges. Sites that
//!   merge the same states by the same version make the same state (Corrections 53 and 88).
//! - Its answer for a key that all branches only added to counts as an addition, of the difference: what a further branch
//!   adds is added to it. Any other answer counts as a SET.
//! - A handler that fails has written nothing: the merge goes to what the keyspace declares (`UNRESOLVED`), or is refused.

use datatypes::Cell;
use mvcc::CompactKey;
use std::fmt::Debug;

/// Resolves what branches changed independently. See the module for what it must not do.
pub trait Handler: Debug + Send {
    /// Names the program, and whatever else its answers depend on.
    fn version(&self) -> u64;

    /// The program as it was written.
    fn source(&self) -> &str;

    /// What keys shall be after the merge, conflicting ones and others. Conflicting keys that it leaves out are merged by
    /// their types' own rules.
    ///
    /// # Errors
    /// Says what went wrong: an error of the program, a limit that it reached, an answer that is no value.
    fn handle(&mut self, conflicts: &mut dyn Conflicts) -> Result<Vec<(CompactKey, Cell)>, Failure>;
}

/// A merge as its handler sees it.
pub trait Conflicts {
    /// The keys to resolve, in ascending order.
    fn keys(&self) -> &[CompactKey];

    /// One of them; `None` for any other key.
    fn conflict(&mut self, key: &CompactKey) -> Option<Conflict>;

    /// The value of any other key: what the only branch that changed it made of it. `None` for a key to resolve.
    fn read(&mut self, key: &CompactKey) -> Option<Cell>;
}

/// What became of a key. Values whose deadline has passed are there: a merge knows no clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// At the fork: where there are several fork points, merged in their turn by the types' rules, the newest winning what
    /// these leave open (Corrections 53).
    pub fork: Cell,
    /// At every fork point, in the order of their ids.
    pub forks: Vec<Cell>,
    /// At every state that is merged, in the order of their ids: branches that left the key alone show the fork's.
    pub branches: Vec<Cell>,
    /// What the type's own rule makes of it, if it has one for this.
    pub merged: Option<Cell>,
    /// When it expires by the rule of deadlines, in milliseconds since 1970; 0 for never.
    pub expires_at: u64,
}

/// Why a handler did not answer. The merge has not happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);
