//! The systems that are compared: keyspaces with the options that a user would give them.

use crate::system::{Deployed, FOLLOWERS_TICK, LIFE, Place, REQUEST_TIMEOUT};
use protocol::Durability;
use protocol::{ContentionCounts, HotKey};
use strict::locking::{Combining, Concurrency, Coordinates, LastShard, LockOptions, Node, Options, Phasing};
use types::ProcessId;

/// A system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Locks of readers and writers: the paper's baseline. The oldest that waits has them first.
    ReadWrite,
    /// The same with phases.
    ReadWritePhased,
    /// Locks in the types' modes: what the paper calls boosting.
    Typed,
    /// The same with phases.
    TypedPhased,
    /// The same with combining: Claret.
    Claret,
    /// Operations without transactions: an upper bound.
    Unlocked,
    /// TAPIR with typed validation.
    Optimistic,
    /// Validation at the leaders.
    Occ,
}

impl System {
    /// All of them.
    pub const ALL: [System; 8] = [
        System::ReadWrite,
        System::ReadWritePhased,
        System::Typed,
        System::TypedPhased,
        System::Claret,
        System::Unlocked,
        System::Optimistic,
        System::Occ,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            System::ReadWrite => "readwrite",
            System::ReadWritePhased => "readwrite-phased",
            System::Typed => "typed",
            System::TypedPhased => "typed-phased",
            System::Claret => "claret",
            System::Unlocked => "none",
            System::Optimistic => "optimistic",
            System::Occ => "occ",
        }
    }

    /// False if operations are all there is.
    pub(super) fn has_transactions(self) -> bool {
        self != System::Unlocked
    }

    /// How its leaders keep transactions apart; `None` for the one without leaders.
    pub(super) fn led(self) -> Option<Led> {
        let (concurrency, readers_and_writers, phases, combines) = match self {
            System::ReadWrite => (Concurrency::Locking, true, false, false),
            System::ReadWritePhased => (Concurrency::Locking, true, true, false),
            System::Typed => (Concurrency::Locking, false, false, false),
            System::TypedPhased => (Concurrency::Locking, false, true, false),
            System::Claret => (Concurrency::Locking, false, true, true),
            System::Unlocked => (Concurrency::Unlocked, false, false, false),
            System::Occ => (Concurrency::Optimistic, false, false, false),
            System::Optimistic => return None,
        };
        let locks = LockOptions { phasing: phases.then(Phasing::default), readers_and_writers };
        Some(Led { concurrency, locks, combining: combines.then(Combining::default) })
    }
}

/// A keyspace whose shards have leaders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Led {
    concurrency: Concurrency,
    locks: LockOptions,
    combining: Option<Combining>,
}

impl Led {
    fn options(&self, place: &Place<'_>, member: usize) -> Options {
        let tick = Options::default().tick;
        Options {
            concurrency: self.concurrency,
            combining: self.combining,
            // What servers do by default, beyond the paper.
            last_shard: self.combining.map(|_| LastShard::default()),
            coordinates: Coordinates::over(place.environment.regions.len()),
            locks: self.locks,
            durability: Durability::Written,
            near: place.near_process(),
            tick: if member == 0 { tick } else { FOLLOWERS_TICK },
            resend_every: place.patience(),
            request_timeout: REQUEST_TIMEOUT,
            prepared_timeout: REQUEST_TIMEOUT,
            ..Options::default()
        }
    }
}

impl Deployed for Led {
    type Protocol = Node;

    fn replica(&self, place: &Place<'_>, shard: u16, member: usize) -> Node {
        Node::replica(place.topology.clone(), shard, member, LIFE, self.options(place, member))
    }

    fn coordinator(&self, place: &Place<'_>, process: ProcessId) -> Node {
        Node::coordinator(place.topology.clone(), process, LIFE, self.options(place, 0))
    }

    fn is_ready(&self, instance: &Node, member: usize) -> bool {
        matches!(instance, Node::Replica(replica) if member != 0 || replica.is_leader())
    }
}

/// What an instance tells of who met whom, and of what was combined.
pub(super) trait Counters {
    /// All meetings, and the keys with the most.
    fn met(&self) -> Option<(ContentionCounts, &[HotKey])>;
    /// Forgets the keys.
    fn forget(&mut self);
    /// Transactions that committed with another one.
    fn combined(&self) -> u64 {
        0
    }
}

impl Counters for Node {
    fn met(&self) -> Option<(ContentionCounts, &[HotKey])> {
        let Node::Replica(replica) = self else { return None };
        replica.contention().map(|contention| (contention.total(), contention.keys()))
    }

    fn forget(&mut self) {
        if let Node::Replica(replica) = self {
            replica.reset_contention();
        }
    }

    fn combined(&self) -> u64 {
        match self {
            Node::Coordinator(coordinator) => coordinator.combined(),
            Node::Replica(_) => 0,
        }
    }
}

impl Counters for strict::tapir::Node {
    fn met(&self) -> Option<(ContentionCounts, &[HotKey])> {
        let strict::tapir::Node::Replica(replica) = self else { return None };
        Some((replica.contention().total(), replica.contention().keys()))
    }

    fn forget(&mut self) {
        if let strict::tapir::Node::Replica(replica) = self {
            replica.reset_contention();
        }
    }
}
