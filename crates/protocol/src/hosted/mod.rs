//! A keyspace's instances in one process, and what the process asks of any keyspace, whatever its model.
//!
//! ```text
//!   process -- dyn Hosted --> HostedNodes<H> -- H: Hosting --> what only the model knows: its state in words, evictions, moves
//!                                  |
//!                                  +-- Nodes<H::Protocol>: the coordinator and the replicas, stepped, logged, connected
//!                                         |
//!                                         +-- dyn Environment --> the process's log, network and spool
//! ```
//!
//! [`Nodes`] drives instances and knows no model. Threads share them: each instance is behind a lock of its own, so that one
//! thread steps one partition while another thread steps the next. A model adds a type that implements [`Hosting`], and hands out a
//! `Box<dyn Hosted>` from functions that are not generic: so the code of its protocols is compiled once, in the model's own
//! crate, and a process links it without compiling it again.
//!
//! No socket, file or clock is here: [`Environment`] is given at every call.

#![expect(
    clippy::disallowed_types,
    reason = "threads share instances, each behind its lock; a step sees nothing of it"
)]

mod hosting;
mod instance;
mod life;
mod maintenance;
mod nodes;
mod report;
#[cfg(test)]
mod tests;

pub use hosting::{HostedNodes, Hosting};
pub use instance::{LogState, Pending};
pub use life::{Life, LogWork, Place, Turn};
pub use maintenance::MaintenanceTask;
pub use nodes::{Locked, Nodes};
pub use report::{Backlog, Figures, Holdings, Lag, Waits};

use crate::contention::Sketch;
use crate::contract::{Encode, SpoolRequest};
use crate::gate::{Durable, Gate};
use crate::model::{PartitionMove, StoredOptions};
use crate::request::Request;
use types::{
    Error, Instant, KeyspaceId, Malformed, NodeId, PartitionId, ProcessId, RequestId, Slot, WallTime,
};

/// What a process does for the instances that it hosts.
pub trait Environment {
    /// Appends what a replica persisted to the log's open group, and tells the group's number; 0 without a log.
    fn append(&mut self, keyspace: KeyspaceId, partition: PartitionId, records: &[u8]) -> u64;

    /// True while the log refuses records: the process holds appended records in memory until the log takes them.
    fn is_suspended(&self) -> bool {
        false
    }

    /// How far the log is durable; without a log there is nothing to wait for.
    fn durable(&self) -> Durable;

    /// Sends a packet to an instance of another process. One that can wait says since when it does.
    fn send(
        &mut self,
        to: ProcessId,
        from: NodeId,
        slot: Slot,
        packet: &dyn Encode,
        can_wait: Option<Instant>,
    );

    /// Does what a replica asks of its spool, and returns what there is to tell it: a chunk's number, and its bytes unless it
    /// is gone.
    fn spool(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        request: SpoolRequest,
    ) -> Option<(u64, Option<Vec<u8>>)>;

    /// A message of a stream was malformed and was dropped.
    fn malformed(&mut self, error: Malformed);
}

/// A keyspace's instances in this process. Recovery comes first: `snapshot` and `recover` for what the log has, then
/// `recovered`. From then on each turn of a thread calls `receive` and `submit` for what has come, then `pump`.
///
/// Several threads may do so at once. Who has called anything but `receive` and `pump` looks at [`Pending::is_left`]
/// afterwards: another thread may have left something meanwhile.
pub trait Hosted: Send + Sync {
    /// Takes a piece of a replica's checkpoint.
    ///
    /// # Errors
    /// This process does not host the partition.
    fn snapshot(&self, partition: PartitionId, chunk: &[u8]) -> Result<(), String>;

    /// Takes records of a replica, each behind its length.
    ///
    /// # Errors
    /// This process does not host the partition, or a record is cut.
    fn recover(&self, partition: PartitionId, records: &[u8]) -> Result<(), String>;

    /// Ends recovery. `complete` is false if records may be missing that this process had relied on.
    fn recovered(&self, complete: bool, turn: &mut Turn<'_>);

    /// Hands requests to the coordinator, or to the site that serves clients itself, and logs what it persisted. Returns what
    /// its replies to clients wait for.
    fn submit(
        &self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) -> Gate;

    /// Takes a packet from a peer, which `pump` serves. Too many are dropped, as a network may.
    ///
    /// # Errors
    /// It makes no sense, and was dropped.
    fn receive(&self, from: NodeId, to: Slot, packet: &[u8]) -> Result<(), Malformed>;

    /// Fires timers, logs what was persisted, sends what may leave, and serves what comes back from this process itself,
    /// until nothing is left to do but to wait, or only what other threads do. A thread that `shares` the work waits a little
    /// for those. Returns what replies to clients wait for.
    fn pump(&self, shares: bool, environment: &mut dyn Environment, turn: &mut Turn<'_>) -> Gate;

    /// What the instances wait for.
    fn pending(&self) -> Pending;

    /// The partitions that this process keeps.
    fn partitions(&self) -> Vec<u16>;

    /// The next piece of the replica's checkpoint from a cursor on; see [`crate::Protocol::checkpoint`]. Everything in it has
    /// been appended to the log when `seal` is called.
    fn checkpoint(
        &self,
        at: (PartitionId, u64),
        chunk: &mut Vec<u8>,
        environment: &mut dyn Environment,
        seal: &mut dyn FnMut(),
    ) -> Option<u64>;

    /// What the instances say of themselves; `None` if another thread steps one for long.
    fn figures(&self, wall: WallTime) -> Option<Figures>;

    /// How much its replicas here hold; of one that another thread steps, how much it held.
    fn holdings(&self) -> Holdings;

    /// Every replica here, with what it does at present, for people.
    fn state(&self) -> Vec<String>;

    /// Takes over the options as they are now: what was altered, what is to move here, which regions are gone for good. True
    /// if there is something to pump.
    ///
    /// # Errors
    /// They are not this model's.
    fn configure(&mut self, options: &StoredOptions, turn: &mut Turn<'_>) -> Result<bool, String>;

    /// True if transactions meet on keys and that is counted.
    fn counts_meetings(&self) -> bool;

    /// What is counted here of transactions that are in each other's way, which is forgotten then if that is wanted.
    fn sketches(&self, reset: bool) -> Vec<Sketch>;

    /// Where a partition is at present, as this process knows; `None` if partitions of the keyspace do not move.
    fn present(&self, partition: u16) -> Option<PartitionMove>;

    /// The process that leads a partition, as far as this process knows.
    fn leader(&self, partition: u16) -> Option<u16>;

    /// Lets the coordinator see to it that a partition moves to these processes.
    fn place(&mut self, partition: u16, processes: &[u16], turn: &mut Turn<'_>);

    /// This process's replica of a partition goes on without those that are lost for good, with what those of the processes
    /// `left` have besides. Says what may be lost.
    ///
    /// # Errors
    /// It cannot, and says why.
    fn accept_loss(
        &mut self,
        partition: u16,
        left: &[u16],
        turn: &mut Turn<'_>,
    ) -> Result<Vec<String>, Error>;
}
