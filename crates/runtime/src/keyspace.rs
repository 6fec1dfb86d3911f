//! Keyspaces that the process keeps by itself, in partitions that any worker serves under their locks.

use crate::memory::{Memory, Occupied};
use parking_lot::{Mutex, MutexGuard, RwLock};
use protocol::eviction::{Cache, Eviction};
use protocol::model;
use protocol::{Durability, Replica};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use strict::solo::{Options, Solo, Transactions, tracked};
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
    pub(crate) memory: Arc<Memory>,
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
        let (list, memory) = (RwLock::default(), Arc::default());
        Locals { list, process, incarnation, seed, partitions, in_memory, memory }
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

    /// Makes a keyspace a cache, another one, or none.
    pub(crate) fn set_cache(&self, id: KeyspaceId, options: &model::Solo) {
        if let Some(keyspace) = self.of(id)
            && keyspace.set_cache(options)
        {
            keyspace.track();
            self.memory.look_again();
        }
    }

    /// Chooses what becomes of numbered keyspaces at the process's limit.
    pub(crate) fn set_policy(&self, policy: Option<Eviction>) {
        self.memory.set_policy(policy);
        self.list().iter().for_each(|keyspace| keyspace.track());
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
    /// What was counted of it: all bytes, and those of histories.
    counted: [AtomicUsize; 2],
    /// How many keys had a deadline then.
    dated: AtomicUsize,
    memory: Arc<Memory>,
}

impl PartitionCell {
    /// Counts what the partition occupies; its lock is held.
    #[inline]
    pub(crate) fn count(&self, solo: &Solo) {
        let now = Occupied { bytes: solo.memory(), retained: solo.retained() };
        let before = self.occupied();
        if now != before {
            self.counted[0].store(now.bytes, Ordering::Relaxed);
            self.counted[1].store(now.retained, Ordering::Relaxed);
            self.memory.recount(now, before);
            let dated = solo.deadlines();
            if self.dated.swap(dated, Ordering::Relaxed) < dated {
                // Where only keys with a deadline go, another one may.
                self.memory.look_again();
            }
        }
    }

    /// What was counted last.
    pub(crate) fn occupied(&self) -> Occupied {
        let [bytes, retained] = [0, 1].map(|index| self.counted[index].load(Ordering::Relaxed));
        Occupied { bytes, retained }
    }
}

impl Drop for PartitionCell {
    fn drop(&mut self) {
        self.memory.recount(Occupied::default(), self.occupied());
    }
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
    /// What it is as a cache, if it says.
    cache: Mutex<Option<Cache>>,
    /// The share of each partition in bytes, above any if it has none.
    share: AtomicUsize,
    evicted: AtomicU64,
    memory: Arc<Memory>,
}

impl Keyspace {
    fn new(id: KeyspaceId, name: String, options: &model::Solo, locals: &Locals) -> Self {
        let Locals { process, incarnation, seed, .. } = *locals;
        let durability = locals.effective(options.durability);
        let partitions = (0..options.partitions.unwrap_or(locals.partitions)).map(|number| {
            let slot = Slot::replica(id, PartitionId(number));
            let node = NodeId { process, incarnation, slot };
            let replica = Mutex::new(Replica::new(node, Solo::new(Options { durability, seed })));
            let memory = Arc::clone(&locals.memory);
            let cell = PartitionCell {
                keyspace: id,
                replica,
                dirty: AtomicBool::new(false),
                counted: Default::default(),
                dated: AtomicUsize::new(0),
                memory,
            };
            cell.count(cell.replica.lock().protocol());
            Arc::new(cell)
        });
        let keyspace = Keyspace {
            id,
            name,
            partitions: partitions.collect(),
            transactions: Mutex::new(Transactions::new()),
            dropped: AtomicBool::new(false),
            cache: Mutex::default(),
            share: AtomicUsize::new(usize::MAX),
            evicted: AtomicU64::new(0),
            memory: Arc::clone(&locals.memory),
        };
        keyspace.set_cache(options);
        keyspace.track();
        keyspace
    }

    /// Takes over what the keyspace is as a cache. True if it was something else.
    fn set_cache(&self, options: &model::Solo) -> bool {
        let of_each =
            |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX) / self.partitions.len().max(1);
        let share = options.max_memory.map(of_each);
        let cache = options.eviction.map(|policy| Cache { policy, share });
        let mut present = self.cache.lock();
        let is_news = *present != cache;
        *present = cache;
        self.share.store(cache.and(share).unwrap_or(usize::MAX), Ordering::Relaxed);
        if is_news {
            self.memory.set_full(self.id, false);
        }
        is_news
    }

    /// Which keys go, its own policy before the process's.
    pub(crate) fn policy(&self) -> Option<Eviction> {
        let own = self.cache.lock().map(|cache| cache.policy);
        own.or_else(|| self.memory.policy_of(self.id))
    }

    /// The policy and each partition's share in bytes, of a cache with memory of its own.
    #[inline]
    pub(crate) fn share(&self) -> Option<(Eviction, usize)> {
        let share = Some(self.share.load(Ordering::Relaxed)).filter(|share| *share < usize::MAX)?;
        Some((self.policy()?, share))
    }

    /// Lets its partitions track what its policy needs.
    fn track(&self) {
        let tracked = self.policy().and_then(tracked);
        self.partitions.iter().for_each(|cell| cell.replica.lock().protocol_mut().track(tracked));
    }

    /// Keys have gone.
    pub(crate) fn count_evicted(&self, keys: usize) {
        self.evicted.fetch_add(keys as u64, Ordering::Relaxed);
    }

    /// How many keys have gone in this life of the process.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// What its partitions occupied when they were counted last.
    pub(crate) fn occupied(&self) -> Occupied {
        self.partitions.iter().fold(Occupied::default(), |sum, cell| {
            let Occupied { bytes, retained } = cell.occupied();
            Occupied { bytes: sum.bytes + bytes, retained: sum.retained + retained }
        })
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
