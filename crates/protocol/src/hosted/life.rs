//! What instances are given: where they are, in which life, and what each turn brings.

use crate::contract::{Durability, Now, Replies};
use crate::gate::{Durable, Gate};
use crate::model::ClusterShape;
use types::{Address, Incarnation, KeyspaceId, PartitionId, ProcessId, RegionId, Rng, Slot};

/// A process of a cluster in one of its lives.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// The process.
    pub process: ProcessId,
    /// Its region.
    pub region: RegionId,
    /// The life.
    pub incarnation: Incarnation,
    /// How durable the process's log is.
    pub durability: Durability,
    /// What is lost is given up: replicas of causal keyspaces go on with what those peers know that answer.
    pub accept_loss: bool,
    /// How much a partition keeps in memory for regions that lack it, in bytes.
    pub region_queue_bytes: usize,
    /// How much beyond that it keeps on disk, in bytes; 0 where there is no disk.
    pub region_spill_bytes: u64,
}

/// Where a keyspace is to be hosted.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// The cluster.
    pub cluster: &'p ClusterShape,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The process.
    pub life: Life,
}

impl Place<'_> {
    /// The address of a partition's replica on a process.
    pub fn address(&self, process: u16, partition: u16) -> Address {
        Address { process: ProcessId(process), slot: Slot::replica(self.keyspace, PartitionId(partition)) }
    }

    /// The address of this process's coordinator.
    pub fn coordinator(&self) -> Address {
        Address { process: self.life.process, slot: Slot::coordinator(self.keyspace) }
    }
}

/// What every step is given.
pub struct Turn<'t> {
    /// The present time.
    pub now: Now,
    /// Where draws come from.
    pub random: &'t mut Rng,
    /// Where replies go.
    pub replies: &'t mut dyn Replies,
}

/// What the log owes the replicas after a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogWork {
    /// Something waits until the open group is written, and for nothing else.
    pub write: bool,
    /// Something waits for a sync.
    pub sync: bool,
}

impl LogWork {
    /// What opens this gate. What waits for a sync is written by it, too.
    pub fn of(gate: Gate, durable: Durable) -> Self {
        LogWork { write: gate.written > durable.written.max(gate.synced), sync: gate.synced > durable.synced }
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: LogWork) -> Self {
        LogWork { write: self.write || other.write, sync: self.sync || other.sync }
    }
}
