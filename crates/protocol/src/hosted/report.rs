//! What a keyspace's instances tell about themselves, for metrics and INFO.

use crate::contention::ContentionCounts;
use std::collections::BTreeMap;

/// What a keyspace's instances in a process say of themselves.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What its replicas here keep for others.
    pub backlog: Backlog,
    /// How old is what is known here of other regions; `None` if the model has no such age.
    pub lag: Option<Lag>,
    /// Every replica here knows all it has to.
    pub is_complete: bool,
}

/// What the replicas of a keyspace keep for others; it shrinks as these take part.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// Strict: the epochs of the partitions that have a replica here.
    pub epochs: Vec<(u16, u32)>,
    /// Strict: transactions whose outcome another replica may still ask for.
    pub recorded_groups: usize,
    /// Strict with locks: transactions of this process that committed with another one of it.
    pub combined: Option<u64>,
    /// Causal and branch: bytes of transactions that some region may lack, in memory.
    pub queued_bytes: usize,
    /// Causal: and in the spool.
    pub spilled_bytes: u64,
    /// Causal: how often a partition here began to take its peers' state in this life.
    pub transfers: Option<u64>,
    /// Causal: writes that were lost to concurrent ones, and are listed.
    pub conflicts: usize,
    /// Causal: and those that were dropped from the list because it was full.
    pub conflicts_dropped: u64,
    /// Strict: how often transactions met at replicas here.
    pub contention: ContentionCounts,
}

/// What a keyspace's replicas in a process hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The number of keys; in strict and branch keyspaces including expired ones that no command has touched.
    pub keys: usize,
    /// How many of them have a deadline of their own.
    pub deadlines: usize,
    /// About how many bytes everything occupies.
    pub memory: usize,
    /// Of these, what is freed when no older snapshot is read any more.
    pub retained: usize,
    /// How many keys of a cache this process has let go.
    pub evicted: u64,
    /// A cache has more than its share, and no key that may go.
    pub is_full: bool,
}

impl Holdings {
    /// Both.
    #[must_use]
    pub fn and(self, other: Holdings) -> Self {
        Holdings {
            keys: self.keys + other.keys,
            deadlines: self.deadlines + other.deadlines,
            memory: self.memory + other.memory,
            retained: self.retained + other.retained,
            evicted: self.evicted + other.evicted,
            is_full: self.is_full || other.is_full,
        }
    }
}

/// How old is what this process knows of a causal keyspace, in milliseconds by its wall clock, and what reads waited.
#[derive(Clone, Debug, Default)]
pub struct Lag {
    /// The newest snapshot that its clients read: what other regions wrote since is not in it.
    pub snapshot_ms: u64,
    /// By region: what has arrived here of its partitions, the one most behind.
    pub regions: BTreeMap<String, u64>,
    /// By region: how many bytes the process has queued for its processes since it started; the process itself knows.
    pub sent: BTreeMap<String, u64>,
    /// How much reads waited here for their snapshots, in protocols where they do.
    pub waits: Waits,
    /// How many sessions see only what is stable in the region, because they depend on a region that is cut off; and how often one
    /// began to.
    pub degraded: (u64, u64),
}

/// How much reads have waited for their snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many reads there were.
    pub reads: u64,
    /// How many of them waited.
    pub waited: u64,
    /// For how long these waited, all together, in microseconds.
    pub micros: u64,
}
