//! Why a transaction did not begin or did not commit.

use crate::StateId;
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

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        let code = match refusal {
            Refusal::NoReadState | Refusal::NothingToMerge => ErrorCode::Err,
            Refusal::NoCommitState => ErrorCode::Conflict,
            Refusal::Unresolved { .. } => ErrorCode::Unresolved,
            Refusal::UnknownState(_) => ErrorCode::SnapshotTooOld,
        };
        Error::new(code, refusal.to_string())
    }
}
