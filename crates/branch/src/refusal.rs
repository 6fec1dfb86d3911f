//! Why a transaction did not begin or did not commit.

use crate::{Failure, StateId};
use mvcc::CompactKey;
use types::{Error, ErrorCode};

/// See the variants. Nothing happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No state satisfies the begin constraint.
    #[error("no state satisfies the begin constraint; choose a weaker one, or merge the branches it spans")]
    NoReadState,
    /// No state satisfies the end constraint.
    #[error(
        "no state satisfies the end constraint: what the transaction read or wrote has changed; retry it"
    )]
    NoCommitState,
    /// A state is not here.
    #[error(
        "the state {0} is not here: it was collected, or has not come from another site; begin at another one"
    )]
    UnknownState(StateId),
    /// A merge needs at least two heads.
    #[error("fewer than two heads satisfy the constraint: there is nothing to merge")]
    NothingToMerge,
    /// A merge commits below the states that it read, and the end constraint does not admit all of them.
    #[error(
        "the end constraint does not admit all states that the merge reads; commit with another one: the merge stays open"
    )]
    NotAdmitted,
    /// The merge handler did not answer.
    #[error("the merge handler failed, and nothing was merged: {0}")]
    Handler(Failure),
    /// The keyspace has no handler.
    #[error("the keyspace has no merge handler; KEYSPACE ALTER name HANDLER script gives it one")]
    NoHandler,
    /// The site has requested its records from other processes.
    #[error("what the merge reads lies in record partitions, and is being fetched; retry it")]
    Elsewhere,
    /// A merge leaves a key that several heads changed unwritten (Corrections 55).
    #[error(
        "`{key:?}` was changed on several branches and is not resolved, like {more} other keys; write it, or let MERGE RESOLVE do so, and commit then: the merge stays open"
    )]
    Unresolved {
        /// One of the keys.
        key: CompactKey,
        /// How many others there are.
        more: usize,
    },
}

impl Refusal {
    /// True if the error tells of this refusal.
    pub(crate) fn is(&self, error: &Error) -> bool {
        *error == Error::from(self.clone())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let code = match refusal {
            Refusal::NoReadState | Refusal::NothingToMerge | Refusal::NoHandler => ErrorCode::Err,
            Refusal::NoCommitState => ErrorCode::Conflict,
            Refusal::Unresolved { .. } | Refusal::NotAdmitted | Refusal::Handler(_) => ErrorCode::Unresolved,
            Refusal::UnknownState(_) => ErrorCode::SnapshotTooOld,
            Refusal::Elsewhere => ErrorCode::Unavailable,
        };
        Error::new(code, refusal.to_string())
    }
}
