//! Wren: transactional causal consistency with reads that never wait, under full replication (Spirovska, Didona,
//! Zwaenepoel: the thesis's chapter 4). The whole essay is `docs/internals/wren.md`; this is its short form.
//!
//! # Guarantee
//! A transaction reads a causal snapshot of its region and its session's own writes; its effects become visible
//! together; all regions apply the same effects in the same order. A region cut off from the others goes on reading
//! and writing.
//!
//! # Flow
//! ```text
//!  client -- Request --> Coordinator -- SliceReq --> Partition (each that has keys)        read at (lt, rt)
//!                        (in the gateway, stateless)
//!                             |-- Prepare --> Partitions      propose a commit timestamp, log it
//!                             |-- Commit ---> the decider (first written), then the others; then the client
//!  Partition -- Replicate, Heartbeat --> its replicas in the other regions      in order of place, one stream
//!  Partition -- StableReport --> partition 0 -- StableTime --> Partitions       lst, rst, oldest snapshot
//! ```
//!
//! # State and invariants
//! - An effect's [`Stamp`] is (ut, transaction, region, rdt); the order is (ut, transaction).
//! - [`Snapshot::shows`](Times::shows) is the whole isolation rule; the remote time stays below the local time.
//! - What a partition publishes as installed is below everything it has proposed and not decided, and its clock and
//!   its log remember it.
//! - Effects, heartbeats and stability reports to one peer leave through one stream behind the durability gate.
//! - Stable times only rise; every partition of the region has installed what they say.
//! - The decision of a transaction over several partitions is a record at the first written one; coordinators keep
//!   nothing that must survive.
//! - Convergence: every region performs the same effects in the order of their stamps, and each resets only what it
//!   observed (Corrections 75), which its stamp tells: everything of its region before it, and of the others what is at
//!   or below `rdt`. What that comes to for each type is `datatypes::merge`. The store retains who did what while an
//!   effect may arrive that has not observed it.

mod snapshot;

pub use crate::stable::{
    Answer, CachedEffect, Effects, EvaluationResults, KeyEffects, KeyspaceWork, Mutant, Mutants, Options,
    Outcome, PreparedOperation, Record, RegionTopology, Scope, Stamp, Timer, Times, Topology, Vote,
    WriteIntent,
};
pub use snapshot::Snapshot;

/// A node of a keyspace.
pub type Node = crate::stable::Node<Snapshot>;
/// A replica of a partition.
pub type Partition = crate::stable::Partition<Snapshot>;
/// A coordinator in a gateway.
pub type Coordinator = crate::stable::Coordinator<Snapshot>;
/// What nodes say to one another.
pub type Message = crate::stable::Message<Snapshot>;
/// A transaction's work on one key.
pub type Part = crate::stable::Part<Snapshot>;
/// One thing to do to a key.
pub type Work = crate::stable::Work<Snapshot>;
