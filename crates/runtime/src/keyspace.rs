//! Keyspaces that the process keeps by itself, in partitions that any worker serves under their locks.

use parking_lot::{Mutex, MutexGuard, RwLock};
use protocol::model;
use protocol::{Durability, Replica};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strict::solo::{Options, Solo, Transactions};
use types::{HashSeed, Incarnation, KeyspaceId, NodeId, PartitionId, ProcessId, Slot};

/// The keyspaces that the process keeps by itself, and what it makes new ones of.
pub(crate) struct Locals {
    /// In the order of their numbers.
    list: RwLock<Arc<Vec<Arc<Keyspace>>>>,
    pub(crate) process: ProcessId,
    pub(crate) incarnation: Incarnation,
    pub(crate) seed: HashSeed,
    /// How many partitions a keyspace has that does not say.
    pub(crate) partitions: u16,
    /// Nothing is durable.
    pub(crate) in_memory: bool,
}

impl Locals {
    /// None of them yet.
    pub(crate) fn new(
        process: ProcessId,
        incarnation: Incarnation,
        seed: HashSeed,
        partitions: u16,
        in_memory: bool,
    ) -> Self {
        Locals { list: RwLock::default(), process, incarnation, seed, partitions, in_memory }
    }

    /// Those of this moment.
    pub(crate) fn list(&self) -> Arc<Vec<Arc<Keyspace>>> {
        Arc::clone(&self.list.read())
    }

    /// One of them.
    pub(crate) fn of(&self, id: KeyspaceId) -> Option<Arc<Keyspace>> {
        self.list.read().iter().find(|keyspace| keyspace.id == id).cloned()
    }

    /// Begins to keep a keyspace, whose number is above those of all others.
    pub(crate) fn begin(&self, id: KeyspaceId, name: &str, options: &model::Solo) {
        let keyspace = Arc::new(Keyspace::new(id, name.to_owned(), options, self));
        let mut list = self.list.write();
        let mut all = Vec::clone(&list);
        all.push(keyspace);
        *list = Arc::new(all);
    }

    /// Forgets a keyspace with everything in it.
    pub(crate) fn end(&self, id: KeyspaceId) {
        let mut list = self.list.write();
        let ended = list.iter().filter(|keyspace| keyspace.id == id);
        ended.for_each(|keyspace| keyspace.dropped.store(true, Ordering::Release));
        *list = Arc::new(list.iter().filter(|keyspace| keyspace.id != id).cloned().collect());
    }

    /// The durability that a keyspace can have here.
    fn effective(&self, durability: Durability) -> Durability {
        if self.in_memory { Durability::Volatile } else { durability }
    }

    /// Changes the durability of a keyspace. True if that was another one.
    pub(crate) fn set_durability(&self, id: KeyspaceId, durability: Durability) -> bool {
        let durability = self.effective(durability);
        let Some(keyspace) = self.of(id).filter(|keyspace| keyspace.durability() != durability) else {
            return false;
        };
        keyspace.set_durability(durability);
        true
    }
}

/// A partition's replica behind its lock.
pub(crate) struct PartitionCell {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) replica: Mutex<Replica<Solo>>,
    /// True while the log's list of partitions with records in the open group names it.
    pub(crate) dirty: AtomicBool,
}

/// A keyspace of them.
pub(crate) struct Keyspace {
    pub(crate) id: KeyspaceId,
    pub(crate) name: String,
    pub(crate) partitions: Vec<Arc<PartitionCell>>,
    /// Taken before any partition.
    pub(crate) transactions: Mutex<Transactions>,
    /// Workers whose list is older serve it no more.
    pub(crate) dropped: AtomicBool,
}

impl Keyspace {
    fn new(id: KeyspaceId, name: String, options: &model::Solo, locals: &Locals) -> Self {
        let Locals { process, incarnation, seed, .. } = *locals;
        let durability = locals.effective(options.durability);
        let partitions = (0..options.partitions.unwrap_or(locals.partitions)).map(|number| {
            let slot = Slot::replica(id, PartitionId(number));
            let node = NodeId { process, incarnation, slot };
            let replica = Mutex::new(Replica::new(node, Solo::new(Options { durability, seed })));
            Arc::new(PartitionCell { keyspace: id, replica, dirty: AtomicBool::new(false) })
        });
        Keyspace {
            id,
            name,
            partitions: partitions.collect(),
            transactions: Mutex::new(Transactions::new()),
            dropped: AtomicBool::new(false),
        }
    }

    pub(crate) fn durability(&self) -> Durability {
        self.partitions
            .first()
            .map_or(Durability::Volatile, |cell| cell.replica.lock().protocol().durability())
    }

    fn set_durability(&self, durability: Durability) {
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
}
