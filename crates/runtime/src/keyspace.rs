//! A keyspace as the process holds it.

use gateway::{DurabilityClass, Model};
use parking_lot::{Mutex, MutexGuard};
use protocol::{Durability, Replica};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use strict::solo::{Options, Solo, Transactions};
use types::{HashSeed, Incarnation, KeyspaceId, NodeId, PartitionId, ProcessId, Slot};

/// A partition's replica behind its lock.
pub(crate) struct PartitionCell {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) replica: Mutex<Replica<Solo>>,
    /// True while the log's list of partitions with records in the open group names it.
    pub(crate) dirty: AtomicBool,
}

/// A strict keyspace with one replica per partition.
pub(crate) struct Keyspace {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    pub(crate) partitions: Vec<Arc<PartitionCell>>,
    /// Taken before any partition.
    pub(crate) transactions: Mutex<Transactions>,
}

impl Keyspace {
    pub(crate) fn new(
        id: KeyspaceId,
        name: String,
        count: u16,
        durability: Durability,
        seed: HashSeed,
        incarnation: Incarnation,
    ) -> Self {
        let partitions = (0..count).map(|number| {
            let slot = Slot::replica(id, PartitionId(number));
            let node = NodeId { process: ProcessId(0), incarnation, slot };
            let replica = Mutex::new(Replica::new(node, Solo::new(Options { durability, seed })));
            Arc::new(PartitionCell { keyspace: id, replica, dirty: AtomicBool::new(false) })
        });
        Keyspace { id, name, partitions: partitions.collect(), transactions: Mutex::new(Transactions::new()) }
    }

    pub(crate) fn durability(&self) -> Durability {
        self.partitions
            .first()
            .map_or(Durability::Volatile, |cell| cell.replica.lock().protocol().durability())
    }

    pub(crate) fn set_durability(&self, durability: Durability) {
        for cell in &self.partitions {
            cell.replica.lock().protocol_mut().set_durability(durability);
        }
    }

    /// Takes every partition's lock, in order.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, Replica<Solo>>> {
        self.partitions.iter().map(|cell| cell.replica.lock()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.partitions.iter().map(|cell| cell.replica.lock().protocol().len()).sum()
    }

    pub(crate) fn deadlines(&self) -> usize {
        self.partitions.iter().map(|cell| cell.replica.lock().protocol().deadlines()).sum()
    }

    pub(crate) fn memory(&self) -> usize {
        self.partitions.iter().map(|cell| cell.replica.lock().protocol().memory()).sum()
    }

    /// The only model the process itself serves so far.
    pub(crate) fn model(&self) -> Model {
        Model::Strict
    }
}

pub(crate) fn class_of(durability: Durability) -> DurabilityClass {
    match durability {
        Durability::Volatile => DurabilityClass::None,
        Durability::Written => DurabilityClass::EverySecond,
        Durability::Synced => DurabilityClass::Always,
    }
}

pub(crate) fn durability_of(class: DurabilityClass) -> Durability {
    match class {
        DurabilityClass::None => Durability::Volatile,
        DurabilityClass::EverySecond => Durability::Written,
        DurabilityClass::Always => Durability::Synced,
    }
}
