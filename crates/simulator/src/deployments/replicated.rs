//! How replicated strict keyspaces are laid out, however they commit: one to three shards of three or five replicas,
//! together on the same processes or each on processes of its own, with gateways beside replicas and alone.

use crate::deployment::{Host, KEYSPACE, Layout, Setting};
use protocol::{Claim, CommitStamp};
use strict::{Decided, Topology};
use types::{
    Address, NodeId, PartitionId, ProcessId, RegionId, RegionSet, Rng, SessionId, Slot, Timestamp,
    TransactionId,
};

/// Draws a shape.
pub(super) fn layout(random: &mut Rng) -> Layout {
    let replicas = if random.u32(..4) == 0 { 5 } else { 3 };
    let partitions = random.u16(1..=3);
    let colocated = random.u32(..4) > 0;
    Layout {
        regions: [1, 3, replicas][random.usize(..3)],
        partitions,
        replicas,
        one_partition_each: partitions * replicas <= 9 && random.u32(..3) == 0,
        colocated,
        gateways: if colocated { random.u16(..3) } else { random.u16(1..3) },
        ..Layout::default()
    }
}

/// How many processes have replicas.
fn storing(layout: Layout) -> u16 {
    layout.replicas * if layout.one_partition_each { layout.partitions } else { 1 }
}

/// The process of a shard's replica.
fn process_of(layout: Layout, shard: u16, index: u16) -> ProcessId {
    ProcessId(if layout.one_partition_each { shard * layout.replicas + index } else { index })
}

/// Who runs where.
pub(super) fn hosts(layout: Layout) -> Vec<Host> {
    let storing = storing(layout);
    let host = |process: u16| {
        let process = ProcessId(process);
        let member =
            |shard: &u16| (0..layout.replicas).any(|index| process_of(layout, *shard, index) == process);
        let spare = process.0 >= storing + layout.gateways;
        let partitions: Vec<PartitionId> =
            (0..layout.partitions).filter(|shard| spare || member(shard)).map(PartitionId).collect();
        let gateway = !spare && (layout.colocated || partitions.is_empty());
        Host { process, region: region(layout, process), partitions, gateway }
    };
    (0..storing + layout.gateways + layout.spares).map(host).collect()
}

/// Where a process stands.
pub(super) fn region(layout: Layout, process: ProcessId) -> RegionId {
    RegionId(process.0 % layout.regions)
}

/// The replica that a process is next to.
pub(super) fn near(layout: Layout, process: ProcessId) -> ProcessId {
    ProcessId(process.0 % layout.replicas)
}

/// Which replica of which shard a node is; `None` for a coordinator.
pub(super) fn replica(layout: Layout, node: NodeId) -> Option<(u16, usize)> {
    node.slot.partition.map(|shard| (shard.0, usize::from(node.process.0 % layout.replicas)))
}

pub(super) fn topology(setting: Setting) -> Topology {
    let layout = setting.layout;
    let replica = |shard: u16, index: u16| Address {
        process: process_of(layout, shard, index),
        slot: Slot::replica(KEYSPACE, PartitionId(shard)),
    };
    let shard = |shard: u16| (0..layout.replicas).map(|index| replica(shard, index)).collect();
    Topology {
        shards: (0..layout.partitions).map(shard).collect(),
        epochs: Default::default(),
        keyspace: KEYSPACE,
        seed: setting.hash_seed,
    }
}

/// What replicas know of transactions that have ended, as claims.
pub(super) fn outcomes(decided: impl Iterator<Item = (TransactionId, Decided)>) -> Vec<Claim> {
    let committed = |(transaction, decided)| match decided {
        Decided::Committed { stamp, effects } => Some(Claim {
            session: SessionId(0),
            transaction,
            commit: Some(CommitStamp {
                at: stamp.at,
                depends_on: Timestamp::ZERO,
                region: RegionId(0),
                parts: RegionSet::default(),
            }),
            snapshot: None,
            effects,
            vector: None,
            thread: None,
            requests: Vec::new(),
            branch: None,
        }),
        Decided::Aborted => None,
    };
    decided.filter_map(committed).collect()
}

/// What replicas know to have ended without effects.
pub(super) fn aborted(decided: impl Iterator<Item = (TransactionId, Decided)>) -> Vec<TransactionId> {
    decided.filter(|(_, decided)| *decided == Decided::Aborted).map(|(transaction, _)| transaction).collect()
}
