//! What differs from protocol to protocol: who runs where, and how to ask an instance what it claims.

use crate::faults::Feature;
use checker::{Level, ListedLoss};
use protocol::{Claim, Durability, KeyEffect, Protocol};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use types::{HashSeed, KeyspaceId, NodeId, PartitionId, ProcessId, RegionId, Rng, Timestamp, TransactionId};

/// The keyspace that is simulated.
pub const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// One process of a deployment.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its id; processes are listed in ascending order, from 0 without gaps.
    pub process: ProcessId,
    /// Where it stands.
    pub region: RegionId,
    /// The partitions of which it has a replica.
    pub partitions: Vec<PartitionId>,
    /// True if it has a coordinator, so that clients may connect.
    pub gateway: bool,
}

/// The size and shape of a deployment, drawn from the seed. What a deployment has no use for is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Regions that processes stand in.
    pub regions: u16,
    /// Partitions, or shards.
    pub partitions: u16,
    /// Copies of a partition in one failure domain.
    pub replicas: u16,
    /// True if no process holds replicas of two partitions.
    #[serde(rename = "apart")]
    pub one_partition_each: bool,
    /// True if processes with replicas have gateways too.
    #[serde(rename = "beside")]
    pub colocated: bool,
    /// Processes that have a gateway and no replica.
    pub gateways: u16,
    /// Processes without a gateway whose replicas may join every partition, for reconfigurations.
    #[serde(default)]
    pub spares: u16,
    /// How many partitions of a region report to one at most.
    #[serde(default)]
    pub fan_out: u16,
}

impl Layout {
    /// The same where partitions may be in some of the regions only: no region holds all, so that transactions have parts in
    /// several.
    pub(crate) fn with_parts_elsewhere(self) -> Self {
        if self.replicas < 2 {
            return self;
        }
        let regions = self.regions.max(3);
        let replicas = self.replicas.min(regions - 1);
        Layout { regions, replicas, partitions: self.partitions.max(regions), ..self }
    }
}

/// What configures an instance at its start, the same in every life.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The deployment's shape.
    pub layout: Layout,
    /// How durable the keyspace is.
    pub durability: Durability,
    /// The seed of key hashes.
    pub hash_seed: HashSeed,
    /// The commands of a pipeline may run as one transaction.
    pub merged: bool,
    /// The sessions of a gateway share a causal thread.
    pub shared: bool,
    /// Queues for other regions keep next to nothing in memory, and the state goes over in small pieces.
    pub small_queues: bool,
}

/// What a replica has, and whether it serves.
#[derive(Clone, Debug, Default)]
pub struct ReplicaStatus {
    /// It serves, and does so since a loss was accepted.
    pub goes_on: bool,
    /// Everything that committed and was born up to here is here, whether it is remembered or not.
    pub base: Timestamp,
    /// What else it knows to have committed, with the births.
    pub executed: Vec<(TransactionId, Timestamp)>,
    /// What it has voted for, with the timestamps, and does not know the end of.
    pub held: Vec<(TransactionId, Timestamp)>,
}

/// A protocol and how it is laid out.
pub trait Deployment {
    /// The protocol: replicas and coordinators.
    type Protocol: Protocol<Message: Debug>;

    /// Draws a shape.
    fn layout(&self, random: &mut Rng) -> Layout;

    /// The processes of a deployment of this shape.
    fn hosts(&self, layout: Layout) -> Vec<Host>;

    /// A fresh instance, before recovery. Its node's slot says whether it is a replica or a coordinator.
    fn start(&self, node: NodeId, setting: Setting, random: &mut Rng) -> Self::Protocol;

    /// True if replicas serve the clients of their processes themselves: such a process has no coordinator.
    fn serves_at_replicas(&self) -> bool {
        false
    }

    /// Takes the claims made since the last call.
    fn claims(&self, instance: &mut Self::Protocol) -> Vec<Claim>;

    /// What this instance knows of committed transactions, its own part of their effects at least: for those that no
    /// coordinator lived to claim. The session is not looked at. Called now and then.
    fn outcomes(&self, instance: &Self::Protocol) -> Vec<Claim> {
        let _ = instance;
        Vec::new()
    }

    /// What this instance knows to have ended without effects. Called with `outcomes`.
    fn aborted(&self, instance: &Self::Protocol) -> Vec<TransactionId> {
        let _ = instance;
        Vec::new()
    }

    /// What a streamed message, which waited for its sender's log, says of committed transactions; like `outcomes`.
    fn claims_of_message(&self, message: &<Self::Protocol as Protocol>::Message) -> Vec<Claim> {
        let _ = message;
        Vec::new()
    }

    /// Takes what an instance has recorded of committed transactions since the last call, like `outcomes`: it holds once the
    /// log has it.
    fn decided(&self, instance: &mut Self::Protocol) -> Vec<Claim> {
        let _ = instance;
        Vec::new()
    }

    /// For a protocol that claims nothing itself, because a transaction is over in the step that serves its request: the
    /// effects that the step's records hold, each record behind its length. The order of such steps is then the claimed
    /// order, and a claim holds once the log has what was recorded up to it.
    fn served(&self, records: &[u8]) -> Option<Vec<KeyEffect>> {
        let _ = records;
        None
    }

    /// True if replicas spill what waits for other regions.
    fn spills(&self) -> bool {
        false
    }

    /// True if replicas list what was lost to concurrent writes.
    fn lists_losses(&self) -> bool {
        false
    }

    /// True if the listed losses are siblings: they stay until a write that observed them replaces the key.
    fn keeps_siblings(&self) -> bool {
        false
    }

    /// What this replica lists of that; `None` from one that does not speak for its partition in its region, as one that
    /// follows a leader. Where losses are listed, exactly one must speak for each in the end.
    fn losses(&self, instance: &Self::Protocol) -> Option<Vec<ListedLoss>> {
        let _ = instance;
        None
    }

    /// True if a region has a replica of the key's partition, so that it lists what is lost of the key.
    fn holds(&self, setting: Setting, region: RegionId, key: &[u8]) -> bool {
        let _ = (setting, region, key);
        true
    }

    /// How many transactions this instance has not ended: must reach 0 when everything is healed.
    fn undecided(&self, instance: &Self::Protocol) -> usize;

    /// What histories are checked for.
    fn level(&self) -> Level;

    /// True if a handler decides what the types' rules leave open in merges.
    fn merges_by_handler(&self) -> bool {
        false
    }

    /// True if keys of several partitions are not read together.
    fn reads_key_by_key(&self) -> bool {
        false
    }

    /// True if its protocol has causal threads, which sessions may share, and queues for other regions.
    fn is_causal(&self) -> bool {
        false
    }

    /// True if the protocol waits for wall clocks that are not near one another: no progress is demanded where any of them may
    /// leap by hours, only what it promises of what is answered.
    fn waits_for_clocks(&self) -> bool {
        false
    }

    /// True if its clocks follow no other ones, so that requests wait until all clocks are near one another: they are set
    /// alike when everything is healed.
    fn trusts_clocks(&self) -> bool {
        false
    }

    /// What the protocol does not offer or does not survive by design: never drawn.
    fn lacks(&self) -> Vec<Feature> {
        Vec::new()
    }

    /// What an operator says to the coordinator of some process so that a partition moves to these processes.
    fn move_to(
        &self,
        partition: PartitionId,
        processes: &[ProcessId],
    ) -> Option<<Self::Protocol as Protocol>::Message> {
        let _ = (partition, processes);
        None
    }

    /// What an operator says to a replica whose region stays when this one is gone for good.
    fn evict(&self, region: RegionId, to: &Self::Protocol) -> Option<<Self::Protocol as Protocol>::Message> {
        let _ = (region, to);
        None
    }

    /// What an operator says to the coordinator of some process so that a partition goes on with the first of these, and what
    /// the others have, though more are lost than it survives.
    fn accept_loss(
        &self,
        partition: PartitionId,
        processes: &[ProcessId],
    ) -> Option<<Self::Protocol as Protocol>::Message> {
        let _ = (partition, processes);
        None
    }

    /// What a replica has, where operators accept losses.
    fn replica_status(&self, instance: &Self::Protocol) -> Option<ReplicaStatus> {
        let _ = instance;
        None
    }

    /// True if an instance knows that a region is gone for good, or that its own is.
    fn has_heard(&self, instance: &Self::Protocol, region: RegionId) -> bool {
        let _ = (instance, region);
        true
    }

    /// Of an instance that knows it: what was committed in a lost region above this is given up, by all alike.
    fn cut_of(&self, instance: &Self::Protocol, region: RegionId) -> Option<Timestamp> {
        let _ = (instance, region);
        None
    }

    /// True if each partition has a cut of its own, which transactions of one partition allow. Its replicas name it by different
    /// times, between which there is nothing.
    fn cuts_per_partition(&self) -> bool {
        false
    }

    /// True if effects that depend on given-up writes are given up too, and sessions that have seen them get an error.
    fn gives_up_dependants(&self) -> bool {
        false
    }

    /// What an instance has ended with an evicted region since the last call: whatever the reply said, it has no
    /// effect.
    fn abandoned(&self, instance: &mut Self::Protocol) -> Vec<TransactionId> {
        let _ = instance;
        Vec::new()
    }

    /// True while an instance has lost what it relied on and learns it from its peers. At most a minority of a
    /// partition's replicas loses something at a time.
    fn is_recovering(&self, instance: &Self::Protocol) -> bool {
        let _ = instance;
        false
    }
}

/// Known bugs of the world around the protocol, which the checks must catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Messages do not wait for the log (an ungated heartbeat, an ungated vote).
    Ungated,
    /// Replies do not wait for the log.
    UngatedReplies,
    /// Recovery takes a torn group for an intact one.
    TornGroups,
    /// Effects that the disk refused are not undone.
    UndoLeftOut,
    /// Recovery takes no notice of the log's marks.
    IgnoredMarks,
}

/// The bug of a world, or none.
pub type Mutants = types::Mutants<Mutant>;
