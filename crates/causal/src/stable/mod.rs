//! What Wren and PaRiS share: transactions that read stable snapshots and their session's own writes, and commit in
//! two phases at a place above everything they saw.
//!
//! ```text
//!   coordinator/   the client library and the coordinator half of the papers' servers: cache, snapshots, votes
//!   partition/     the other half: slices, votes and decisions, replication, stabilization, recovery, state transfer
//!   commit/        both halves of a two-phase commit: votes, queues of a participant, remembered decisions
//!   times          what differs: which times are stable, and what a snapshot made of them shows
//!   one_time       the same where it is one time
//!   entries        a time for each region
//!   setup, tree    who has a replica of what, and who reports to whom what is stable
//!   message, record, stamp, write intent     what they say, log, order by, and hold on keys
//! ```
//!
//! Line numbers of Wren's algorithms stand in the comments; PaRiS's are the same but where its module says otherwise.

mod commit;
mod coordinator;
mod copied;
mod entries;
mod intent;
mod message;
mod mutants;
mod one_time;
mod partition;
pub(crate) mod record;
mod setup;
pub(crate) mod stamp;
mod times;
pub(crate) mod token;
mod tree;

pub(crate) use commit::Decisions;
pub use coordinator::Coordinator;
pub(crate) use coordinator::{
    Ask, KeyAction, PlannedStep, Replies, keyspace_work_of, known_reply, millis, retry_in, work_of,
};
pub use entries::{Entries, MAX_REGIONS};
pub use intent::{PreparedOperation, WriteIntent};
pub(crate) use intent::{effect, encoded};
pub use message::{
    Answer, CachedEffect, EvaluationResults, KeyEffects, KeyspaceWork, Message, Outcome, Part, Vote, Work,
};
pub use mutants::{Mutant, Mutants};
pub use one_time::{OneTime, Origins, Rule};
pub use partition::Partition;
pub(crate) use partition::{
    CHUNK_BYTES, ContextRestore, Evaluation, LossList, NOBODY, OverlaidState, PACKED, RetainedEffects, Round,
    Settlement, count_or_scan, is_nobodys, long_before, settle, tell_keys, tell_losses, why_unlogged,
};
pub use record::{Effects, Progress, Record};
pub use setup::{Options, RegionTopology, Scope, Topology};
pub use stamp::{Depends, Stamp};
pub use times::Times;
pub(crate) use times::oldest_of;

use protocol::{Claim, Input, Now, Outputs, Protocol};
use types::{Incarnation, ProcessId, RegionId, Rng, TransactionId};

/// What a node can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A partition applies what is committed, tells the other regions, and reports to its region's stabilization tree.
    Apply,
    /// A partition looks for transactions that wait too long for their decision.
    Doubt,
    /// A partition that takes its peers' state goes on with it.
    StateTransfer,
    /// A partition goes on with reads that waited for its clock.
    Waiting,
    /// A coordinator asks for the stable times and renews its lease.
    StartTx,
    /// A coordinator asks again about its transaction with this number.
    Retry(u64),
}

/// A node of a keyspace: a replica of a partition, or a coordinator in a gateway.
#[derive(Debug)]
pub enum Node<S: Times> {
    /// A replica of a partition.
    Partition(Box<Partition<S>>),
    /// A coordinator.
    Coordinator(Box<Coordinator<S>>),
}

impl<S: Times> Node<S> {
    /// The replica of the partition `index` in `region`, empty.
    ///
    /// # Panics
    /// If the topology has no such region, or it does not hold the partition.
    pub fn partition(topology: Topology, region: RegionId, index: u16, options: Options) -> Self {
        assert!(topology.regions[usize::from(region.0)].partitions.contains_key(&index));
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

    /// What a replica knows of its region's transactions that have committed since the last call: its part of their
    /// effects; see [`Options::claims`]. It is so once the log has what the steps since then have recorded.
    pub fn take_decided(&mut self) -> Vec<(Stamp<S::Depends>, Vec<KeyEffects>)> {
        match self {
            Node::Partition(partition) => partition.take_decided(),
            Node::Coordinator(_) => Vec::new(),
        }
    }

    /// Transactions that an evicted region took part in, that were undecided here and that no survivor had anything of,
    /// since the last call: they have no effect; see [`Options::claims`].
    pub fn take_abandoned(&mut self) -> Vec<TransactionId> {
        match self {
            Node::Partition(partition) => partition.take_abandoned(),
            Node::Coordinator(_) => Vec::new(),
        }
    }

    fn set_refusing(&mut self, is_refusing: bool) {
        match self {
            Node::Partition(partition) => partition.set_refusing(is_refusing),
            Node::Coordinator(coordinator) => coordinator.set_refusing(is_refusing),
        }
    }

    /// The replica, if it is one.
    pub fn as_partition(&self) -> Option<&Partition<S>> {
        match self {
            Node::Partition(partition) => Some(partition),
            Node::Coordinator(_) => None,
        }
    }

    /// The coordinator, if it is one.
    pub fn as_coordinator(&self) -> Option<&Coordinator<S>> {
        match self {
            Node::Partition(_) => None,
            Node::Coordinator(coordinator) => Some(coordinator),
        }
    }
}

impl<S: Times> Protocol for Node<S> {
    const READS_ALONE: bool = true;

    type Message = Message<S>;
    type Timer = Timer;
    type Record<'a> = Record<'a, S::Depends>;

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
            Node::Coordinator(coordinator) => coordinator.step(now, batch.drain(..), random, out),
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Partition(partition) => partition.checkpoint(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }

    fn is_read(message: &Message<S>) -> bool {
        matches!(message, Message::SliceReq { .. })
    }

    fn logged(&mut self, records: u64) {
        if let Node::Partition(partition) = self {
            partition.on_logged(records);
        }
    }

    fn log_refuses(&mut self) {
        self.set_refusing(true);
    }

    fn log_healed(&mut self) {
        self.set_refusing(false);
    }

    fn spooled(&mut self, _: Now, chunk: u64, bytes: Option<&[u8]>, out: &mut Outputs<'_, Self>) {
        match self {
            Node::Partition(partition) => partition.on_spooled(chunk, bytes, out),
            Node::Coordinator(_) => debug_assert!(false, "a coordinator spills nothing"),
        }
    }
}
