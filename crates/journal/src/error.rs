//! What can go wrong, and what the caller may do about it.

use crate::disk::DiskError;
use crate::format::{FORMAT_VERSION, GroupNumber};

/// Why a journal does not open. Nothing was changed on disk unless it is [`OpenError::Disk`].
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed; trying again may help.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Bytes that were once durable are damaged: restore a backup, or start empty and refetch from the peers.
    #[error("{file} is corrupt at offset {offset}: {what}")]
    Corrupt {
        /// The damaged file.
        file: String,
        /// Where in the file, in bytes.
        offset: u64,
        /// What was expected there.
        what: String,
    },
    /// A newer program wrote it: start that program.
    #[error("{file} has format version {found}; this program reads versions up to {FORMAT_VERSION}")]
    NewerVersion {
        /// The file.
        file: String,
        /// Its version.
        found: u16,
    },
    /// A file of another data directory lies in this one: take it away.
    #[error("{file} belongs to another data directory")]
    Foreign {
        /// The file.
        file: String,
    },
    /// The caller did not accept what was recovered.
    #[error("{file}, offset {offset}: {reason}")]
    Rejected {
        /// The file the piece came from.
        file: String,
        /// Where the piece's group or chunk begins, in bytes.
        offset: u64,
        /// The caller's reason.
        reason: String,
    },
}

/// Why an operation on an open log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The group could not be written (disk full, I/O error) and none of it will ever be recovered once
    /// [`Log::retry`](crate::Log::retry) succeeded: undo what it holds, or keep its records
    /// ([`Log::take_refused`](crate::Log::take_refused)) and append them again, and retry later.
    #[error("group {group} is not written: {error}")]
    NotWritten {
        /// The group that failed; whoever waits for it waits in vain.
        group: GroupNumber,
        /// What the disk said.
        error: DiskError,
    },
    /// An earlier group could not be written: nothing is accepted before [`Log::retry`](crate::Log::retry).
    #[error("an earlier group could not be written; the log waits for a retry")]
    Suspended,
    /// A sync failed; what was written since the last good one may be lost: end the process.
    #[error("sync failed, the log is closed for good: {0}")]
    SyncFailed(DiskError),
    /// A sync failed earlier: end the process.
    #[error("the log is closed for good: a sync has failed")]
    Closed,
    /// The disk failed outside the log's own writes (checkpoint, manifest); the log goes on.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The record does not fit what is left of the group: write the group out and append again, or refuse it.
    #[error("the group would exceed {} bytes", crate::log::MAX_GROUP_BYTES)]
    TooLarge,
    /// A checkpoint is being installed; one at a time.
    #[error("a checkpoint is being installed")]
    Installing,
    /// The checkpoint reflects groups that are not synced yet: sync, then install it.
    #[error("the checkpoint reflects group {needed}, but only group {synced} is synced")]
    NotSynced {
        /// The newest group whose effects the checkpoint holds.
        needed: GroupNumber,
        /// The newest synced group.
        synced: GroupNumber,
    },
}
