//! COPS: causal+ consistency by explicit dependencies (Lloyd, Freedman, Kaminsky, Andersen: *Don't Settle for Eventual*,
//! SOSP 2011). The whole essay is `docs/internals/cops.md`; this is its short form.
//!
//! # Guarantee
//! A region shows a write only after everything that it depends on. A session reads what it wrote, and never less than it has
//! read before. All regions perform the same effects in the same order. A read never waits. In COPS-GT
//! ([`Options::transactions`]) keys of several partitions are read together, in at most two rounds.
//!
//! # Flow
//! ```text
//!  client -- Request --> Coordinator -- Get ------> Partition (of the key, in the region)     get_by_version
//!                        (the client  -- PutAfter -> Partition     stamps, writes, answers     put_after
//!                         library)
//!  Partition -- Replicate, Heartbeat --> its equivalents in the other regions      in order of place, one stream
//!  Partition -- DepCheck --> Partition (of a dependency, in the region) -- DepChecked -->      before it writes a replicated one
//! ```
//!
//! # State and invariants
//! - A version is the place of a write: a Lamport time, which is a hybrid clock's, and then the id of the request.
//! - A partition writes what comes of one region in the order of that region's stream (decision 0059). So
//!   one time for each region tells exactly which versions are written: a dependency is written if and only if its region's
//!   time has come to it (Corrections 45).
//! - A version waits only for versions with lower Lamport times, so no two wait for one another.
//! - What a version depends on was written before it in every region; so what is visible in a region is causally closed.
//! - A partition's answer leaves after its record is logged: a crash that leaves the log intact loses nothing that was
//!   answered.
//! - An effect has observed of each region what its primary had written when it was evaluated (Corrections 75), and
//!   depends on the versions of its key there unless it replaces the key.
//!
//! # Where what is
//! ```text
//!   dependencies   sets of versions; a client's context
//!   coordinator/   the client library: contexts, put, get, get_trans
//!   partition/     the key-value store: put_after, get_by_version, dep_check, replication, collection
//!   handler        the application's rule for concurrent values
//!   message, record, setup     what they say, what they log, how they are set up
//! ```

mod coordinator;
mod copied;
mod dependencies;
mod handler;
mod message;
mod mutants;
mod partition;
mod record;
mod setup;

pub use coordinator::Coordinator;
pub use dependencies::{Context, Dependencies};
pub use handler::{Handler, check_laws};
pub use message::{GetOutcome, Got, Message, Part, Put, PutOutcome};
pub use mutants::{Mutant, Mutants};
pub use partition::Partition;
pub use record::{Record, Written};
pub use setup::Options;

pub use crate::stable::{Entries, KeyEffects, MAX_REGIONS, RegionTopology, Topology};

use crate::pocc;
use protocol::{Claim, Input, Now, Outputs, Protocol};
use std::sync::Arc;
use types::{Incarnation, ProcessId, RegionId, Rng};

/// What tells which effects are shown: a time for each region. Of one partition, so more of it is always a later state.
pub type Cut = pocc::Snapshot;
/// The place of a version, with what its effects have observed of each region.
pub type Stamp = crate::stable::Stamp<Entries>;

/// What a node can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A partition tells its equivalents the time, repeats dependency checks, and collects.
    Tick,
    /// A coordinator asks again about its request with this number.
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
    /// If the topology has no such region, or it does not hold the partition.
    pub fn partition(topology: Topology, region: RegionId, index: u16, options: Options) -> Self {
        assert!(topology.regions[usize::from(region.0)].partitions.contains_key(&index));
        Node::Partition(Box::new(Partition::new(topology, region, index, options)))
    }

    /// A partition reads keys with concurrent values by this handler from now on; see [`Options::keeps_siblings`].
    pub fn set_handler(&mut self, handler: Option<Arc<dyn Handler>>) {
        if let Node::Partition(partition) = self {
            partition.handler = handler;
        }
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

    /// What a coordinator claims about the requests it answered since the last call; see [`Options::claims`].
    pub fn take_claims(&mut self) -> Vec<Claim> {
        match self {
            Node::Partition(_) => Vec::new(),
            Node::Coordinator(coordinator) => coordinator.take_claims(),
        }
    }

    /// What a replica has written of its region's versions since the last call, in its log's order; see [`Options::claims`].
    pub fn take_written(&mut self) -> Vec<(Stamp, Vec<KeyEffects>)> {
        match self {
            Node::Partition(partition) => partition.take_versions(),
            Node::Coordinator(_) => Vec::new(),
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
    const READS_ALONE: bool = true;

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
        match self {
            Node::Partition(partition) => {
                batch.drain(..).for_each(|input| partition.step_one(now, input, random, out));
            }
            Node::Coordinator(coordinator) => {
                batch.drain(..).for_each(|input| coordinator.step_one(now, input, out));
            }
        }
    }

    fn is_read(message: &Message) -> bool {
        matches!(message, Message::Get { .. })
    }

    fn logged(&mut self, records: u64) {
        if let Node::Partition(partition) = self {
            partition.on_logged(records);
        }
    }

    fn log_refuses(&mut self) {
        if let Node::Partition(partition) = self {
            partition.set_refusing(true);
        }
    }

    fn log_healed(&mut self) {
        if let Node::Partition(partition) = self {
            partition.set_refusing(false);
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Partition(partition) => partition.checkpoint(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }
}
