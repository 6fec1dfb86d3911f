//! POCC: causal consistency that shows what has arrived (Spirovska, Didona, Zwaenepoel: the thesis's chapter 3). The whole
//! essay is `docs/internals/pocc.md`; this is its short form.
//!
//! # Guarantee
//! A transaction reads a causal snapshot of what its region has received, and never less than its session depends on; all
//! regions perform the same effects in the same order. A read waits only for what its session depends on and the partition
//! lacks; after some seconds it fails and names the region, and the session goes on with what is stable in its own, until the
//! regions are connected again (HA-POCC).
//!
//! # Flow
//! ```text
//!  client -- Request --> Coordinator -- SliceReq(DV) --> Partition     waits for DV, reads the freshest it has: Algorithm 2, 1-4
//!                        (in the gateway; DV    <-- SliceResp(DV) --   what it read depends on joins DV: Algorithm 1, 4-5
//!                        of each session)
//!                             |-- SliceReq(TV) --> Partitions          several partitions: one snapshot: Algorithm 2, 14-31
//!                             |-- Prepare, Commit --> Partitions       writes: DV is a part of the stamp: Algorithm 2, 5-13
//!  Partition -- Replicate, Heartbeat --> its replicas in the other regions     in order of place, one stream: Algorithm 3
//!  Partition -- StableReport --> root of its region <-- StableReport --> roots of the other regions    what may be forgotten
//! ```
//!
//! # State and invariants
//! - An effect's [`Stamp`] is (ut, transaction, region, DV); the order is (ut, transaction), and ut is above all of DV.
//! - [`Snapshot::shows`](Times::shows) is the whole isolation rule.
//! - A session's DV only rises. A token carries it to another session.
//! - What is stable in all regions is below every snapshot; an effect may depend on it, as no region lacks it.

mod snapshot;

pub use crate::stable::{
    KeyEffects, Mutant, Mutants, Options, RegionTopology, Scope, Stamp, Timer, Times, Topology, Vote,
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
