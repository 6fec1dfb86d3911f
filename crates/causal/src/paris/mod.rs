//! PaRiS: transactional causal consistency with reads that never wait, under partial replication (Spirovska, Didona,
//! Zwaenepoel: the thesis's chapter 5). The whole essay is `docs/internals/paris.md`; this is its short form.
//!
//! # Guarantee
//! A transaction reads a causal snapshot that every region has installed, and its session's own writes; its effects
//! become visible together, everywhere; all replicas of a partition apply the same effects in the same order. Some of
//! the regions hold each partition; any region reads and writes all of them.
//!
//! # Flow
//! ```text
//!  client -- Request --> Coordinator -- SliceReq --> a replica of each partition that has keys     read at ust
//!                        (in the gateway, stateless)      here if the region holds it, else the nearest, else the next
//!                             |-- Prepare --> a replica of each partition written: propose a commit timestamp, log it
//!                             |-- Commit ---> the same replicas (Corrections 30): the decider first; then the client
//!  Replica -- Replicate, Heartbeat --> the partition's other replicas              in order of place, one stream
//!  Replica -- StableReport --> root of its region <-- StableReport --> roots of the other regions      min of all: ust
//!          <-- StableTime ----
//! ```
//!
//! # Where the algorithms are
//! | PaRiS | here |
//! |---|---|
//! | Algorithm 8, client; Algorithm 9, coordinator | `stable::coordinator`; `thread` is the cache |
//! | `getTargetDCForPartition` of Algorithm 9 | `stable::coordinator::routes` |
//! | Algorithm 10, lines 1 to 8: reads | `stable::partition::slices` |
//! | Algorithm 10, lines 9 to 19: votes and decisions | `stable::partition::prepare`, `decide` |
//! | Algorithm 11, lines 1 to 33: application, replication, heartbeats | `stable::partition::replicate` |
//! | Algorithm 11, lines 34 to 38: GST and UST; garbage collection | `stable::partition::stabilize` |
//!
//! # State and invariants
//! - An effect's [`Stamp`] is (ut, transaction, region); the order is (ut, transaction).
//! - [`Universal`] is the whole isolation rule: `ut <= ust`.
//! - Everything up to a universal stable time that anybody knows is installed at every replica, and nobody places
//!   anything at or below it any more (Corrections 20 and 21).
//! - A participant is a replica that received Prepare; the decision is a record at the first written one (Corrections
//!   73).
//! - The oldest snapshot in use is the minimum over all regions, since a read of it may go to any of them.

pub use crate::stable::{
    KeyEffects, Mutant, Mutants, Options, RegionTopology, Scope, Stamp, Timer, Times, Topology, Vote,
};
use crate::stable::{OneTime, Rule};

/// What is stable is shown, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stable;

impl Rule for Stable {
    const FRESH: bool = false;
    const MERGES: bool = true;
    const HIDES: bool = true;
    const WAITS: bool = false;
}

/// A universal stable time, and the snapshot that it gives: all that every replica, in every region, has installed
/// (PaRiS, section 5.3.2). So a read of it can go to any of them, and none has to wait.
pub type Universal = OneTime<Stable>;

/// A node of a keyspace.
pub type Node = crate::stable::Node<Universal>;
/// A replica of a partition.
pub type Partition = crate::stable::Partition<Universal>;
/// A coordinator in a gateway.
pub type Coordinator = crate::stable::Coordinator<Universal>;
/// What nodes say to one another.
pub type Message = crate::stable::Message<Universal>;
