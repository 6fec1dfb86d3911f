//! Why a process does not start.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Each says what to look at.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {error}{}", where_else(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}: {error}", directory.display())]
    Data {
        /// The directory.
        directory: PathBuf,
        /// What the system said; a directory in use names its holder.
        error: std::io::Error,
    },
    /// The log does not open.
    #[error("cannot recover from {}: {error}{}", directory.display(), advice(error))]
    Journal {
        /// The directory.
        directory: PathBuf,
        /// What is wrong, with file and offset.
        error: journal::OpenError,
    },
    /// The log opened but cannot be written.
    #[error("cannot write the log in {}: {error}", directory.display())]
    Log {
        /// The directory.
        directory: PathBuf,
        /// What is wrong.
        error: journal::LogError,
    },
    /// The list of keyspaces is damaged.
    #[error("{} is damaged: {reason}; restore it from a backup", file.display())]
    Metadata {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The list of keyspaces names what this program cannot serve.
    #[error("cannot serve the list of keyspaces: {0}")]
    Keyspaces(String),
    /// The file of users cannot be used.
    #[error("cannot use the users in {}: {reason}", file.display())]
    Users {
        /// The file.
        file: PathBuf,
        /// What is wrong with which line.
        reason: String,
    },
    /// The process and the cluster do not fit together.
    #[error("cannot take part in the cluster: {0}")]
    Cluster(String),
    /// A thread or an event loop could not be created.
    #[error("cannot start a worker: {0}")]
    Worker(std::io::Error),
}

/// What the error of an address that cannot be listened on means.
pub fn where_else(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "; another program listens there",
        ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        ErrorKind::PermissionDenied => "; this user may not listen on that port",
        _ => "",
    }
}

/// What to do about a damaged directory.
fn advice(error: &journal::OpenError) -> &'static str {
    match error {
        journal::OpenError::Corrupt { .. } => {
            "; nothing was changed: restore the directory from a backup, empty it if other processes have its data, or \
             start once with --accept-loss to go on without what cannot be read (docs/operations/damaged-log.md)"
        }
        _ => "",
    }
}
