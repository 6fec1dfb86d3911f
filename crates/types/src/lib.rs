//! The words every crate shares: identifiers, times, the hybrid clock, errors, the reply sink and the wire primitives.
//!
//! This crate never opens a socket or a file, reads a clock or draws entropy; it depends on no other crate of
//! the workspace. What has no meaning outside one crate does not belong here.

mod clock;
mod error;
mod hash;
mod id;
mod mutants;
mod regions;
mod reply;
mod time;
mod wire;

pub use clock::{HybridClock, TooFarAhead};
pub use error::{Error, ErrorCode};
pub use hash::{HashSeed, KeyHash};
pub use id::{
    Address, Incarnation, KeyspaceId, NodeId, PartitionId, ProcessId, RegionId, RequestId, SessionId, Slot,
    TransactionId,
};
pub use mutants::Mutants;
pub use regions::RegionSet;
pub use reply::{MAX_REPLY_BYTES, Reply, ReplyBuf, ReplySink, reply_too_large};
pub use time::{Instant, Timestamp, WallTime};
pub use wire::{Malformed, Reader, Wire, put_bytes, put_varint};

/// The one source of randomness a pure crate may use: a generator that its driver seeded and recorded.
pub type Rng = fastrand::Rng;
