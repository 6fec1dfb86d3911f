//! Wren: transactional causal consistency with reads that never wait, under full replication (Spirovska, Didona,
//! Zwaenepoel: the thesis's chapter 4). The whole essay is `docs/protocols/wren.md`; this is its short form.
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
//! - [`Snapshot::shows`] is the whole isolation rule; the remote time stays below the local time.
//! - What a partition publishes as installed is below everything it has proposed and not decided, and its clock and
//!   its log remember it.
//! - Effects, heartbeats and stability reports to one peer leave through one stream behind the durability gate.
//! - Stable times only rise; every partition of the region has installed what they say.
//! - The decision of a transaction over several partitions is a record at the first written one; coordinators keep
//!   nothing that must survive.
//! - Convergence: every region applies the same effects in the order of their stamps. Registers are so the last
//!   writer's, counters add up, collections do what their effects do in that order. What add-wins and the like
//!   need beyond (Corrections 75) is a rule of the types and stays out of this first form.

mod coordinator;
mod message;
mod partition;
mod pledge;
mod record;
mod setup;
mod stamp;

pub use coordinator::Coordinator;
pub use message::{Answer, Gained, KeyEffects, Message, Outcome, Part, Vote, Whole, Work};
pub use partition::Partition;
pub use pledge::{Deed, Pledge};
pub use record::{Effects, Record};
pub use setup::{Mutants, Options, RegionTopology, Scope, Topology};
pub use stamp::{Snapshot, Stamp};

use protocol::{Claim, Input, Now, Outputs, Protocol};
use types::{Incarnation, ProcessId, RegionId, Rng};

/// What a node can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A partition applies what is committed and tells the other regions.
    Apply,
    /// A partition reports to its region's stabilization tree.
    Gossip,
    /// A partition looks for transactions that wait too long for their decision.
    Doubt,
    /// A partition that takes its peers' state goes on with it.
    Refill,
    /// A coordinator asks for the stable times and renews its lease.
    StartTx,
    /// A coordinator asks again about its transaction with this number.
    Retry(u64),
}

/// A node of a keyspace: a replica of a partition, or a coordinator in a gateway.
#[derive(Debug)]
pub enum Node {
    /// A replica of a partition.
    Partition(Box<Partition>),
    /// A coordinator.
    Coordinator(Box<Coordinator>),
}

impl Node {
    /// The replica of the partition `index` in `region`, empty.
    ///
    /// # Panics
    /// If the topology has no such region or partition.
    pub fn partition(topology: Topology, region: RegionId, index: u16, options: Options) -> Self {
        assert!(topology.regions[usize::from(region.0)].partitions.len() > usize::from(index));
        Node::Partition(Box::new(Partition::new(topology, region, index, options)))
    }

    /// A coordinator in `region`, in this life of its process.
    ///
    /// # Panics
    /// If the topology has no such region.
    pub fn coordinator(
        topology: Topology,
        region: RegionId,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        assert!(topology.regions.len() > usize::from(region.0));
        Node::Coordinator(Box::new(Coordinator::new(topology, region, process, incarnation, options)))
    }

    /// What a coordinator claims about the transactions it decided since the last call; see [`Options::claims`].
    pub fn take_claims(&mut self) -> Vec<Claim> {
        match self {
            Node::Partition(_) => Vec::new(),
            Node::Coordinator(coordinator) => coordinator.take_claims(),
        }
    }

    /// The replica, if it is one.
    pub fn as_partition(&self) -> Option<&Partition> {
        match self {
            Node::Partition(partition) => Some(partition),
            Node::Coordinator(_) => None,
        }
    }

    /// The coordinator, if it is one.
    pub fn as_coordinator(&self) -> Option<&Coordinator> {
        match self {
            Node::Partition(_) => None,
            Node::Coordinator(coordinator) => Some(coordinator),
        }
    }
}

impl Protocol for Node {
    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        for input in batch.drain(..) {
            match self {
                Node::Partition(partition) => partition.step_one(now, input, random, out),
                Node::Coordinator(coordinator) => coordinator.step_one(now, input, random, out),
            }
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Partition(partition) => partition.checkpoint(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }
}
