//! The systems that are compared, each as the protocol's own step functions.

use crate::environment::Environment;
use baselines::qwstore;
use protocol::{Durability, Protocol};
use std::time::Duration;
use strict::{Topology, locking, tapir};
use types::{Address, Incarnation, ProcessId};

/// Every process has one life.
pub(crate) const LIFE: Incarnation = Incarnation(1);

/// A system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// TAPIR over inconsistent replication.
    Tapir,
    /// Two-phase commit over replicated logs, which the client coordinates; locks at the leaders.
    TxnLocking,
    /// The same with validation at the leaders, reads at the closest replicas, and timestamps of a server.
    TxnOcc,
    /// As Spanner: the first participant's leader coordinates; locks.
    SpanLocking,
    /// The same with validation, and reads at the closest replicas.
    SpanOcc,
    /// Weakly consistent, without transactions.
    QwStore,
}

impl System {
    /// All of them.
    pub const ALL: [System; 6] = [
        System::Tapir,
        System::TxnLocking,
        System::TxnOcc,
        System::SpanLocking,
        System::SpanOcc,
        System::QwStore,
    ];

    /// The conventional ones (TAPIR, section 7.1): transactions with a leader in every shard.
    pub const CONVENTIONAL: [System; 4] =
        [System::TxnLocking, System::TxnOcc, System::SpanLocking, System::SpanOcc];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            System::Tapir => "tapir",
            System::TxnLocking => "txn-locking",
            System::TxnOcc => "txn-occ",
            System::SpanLocking => "span-locking",
            System::SpanOcc => "span-occ",
            System::QwStore => "qwstore",
        }
    }
}

/// What configures an instance at its start.
pub(crate) struct Place<'p> {
    pub topology: &'p Topology,
    pub environment: &'p Environment,
    /// Which replica of a shard is close.
    pub near: usize,
    /// The timestamp server, where there is one.
    pub clock: Option<Address>,
}

impl Place<'_> {
    /// Nothing is lost here, so a repeated request is late only: more than any queue that a closed loop builds.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_micros(4 * self.environment.longest_round_trip()).max(Duration::from_secs(1))
    }

    pub(crate) fn near_process(&self) -> Option<ProcessId> {
        Some(self.topology.shards.first()?.get(self.near)?.process)
    }
}

/// How long a request may take: longer than any that is measured.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Followers miss a leader this much later than the first replica does at the start, so that it leads.
pub(crate) const FOLLOWERS_TICK: Duration = Duration::from_millis(500);

/// A protocol and how its instances are made.
pub(crate) trait Deployed {
    type Protocol: Protocol;

    fn replica(&self, place: &Place<'_>, shard: u16, member: usize) -> Self::Protocol;

    fn coordinator(&self, place: &Place<'_>, process: ProcessId) -> Self::Protocol;

    /// True if there is a timestamp server, on a machine of its own in the first region: a coordinator without clients.
    fn has_clock(&self) -> bool {
        false
    }

    /// True if this instance does what is expected of it: the first replica of a shard with a leader leads.
    fn is_ready(&self, instance: &Self::Protocol, member: usize) -> bool {
        let _ = (instance, member);
        true
    }
}

/// TAPIR.
pub(crate) struct Tapir;

impl Tapir {
    fn options(place: &Place<'_>) -> tapir::Options {
        tapir::Options {
            durability: Durability::Written,
            near: place.near_process(),
            read_timeout: place.patience(),
            fast_timeout: place.patience(),
            resend_every: place.patience(),
            request_timeout: REQUEST_TIMEOUT,
            prepared_timeout: REQUEST_TIMEOUT,
            ..tapir::Options::default()
        }
    }
}

impl Deployed for Tapir {
    type Protocol = tapir::Node;

    fn replica(&self, place: &Place<'_>, shard: u16, member: usize) -> tapir::Node {
        tapir::Node::replica(place.topology.clone(), shard, member, LIFE, Tapir::options(place))
    }

    fn coordinator(&self, place: &Place<'_>, process: ProcessId) -> tapir::Node {
        tapir::Node::coordinator(place.topology.clone(), process, LIFE, Tapir::options(place))
    }
}

/// Two-phase commit over replicated logs: one of the conventional systems.
pub(crate) struct Conventional {
    concurrency: locking::Concurrency,
    coordinates: locking::Coordinates,
    has_clock: bool,
}

impl Conventional {
    /// With this way to keep transactions apart, and this coordinator.
    pub(crate) fn new(concurrency: locking::Concurrency, coordinates: locking::Coordinates) -> Self {
        Conventional { concurrency, coordinates, has_clock: false }
    }

    /// The same with a timestamp server.
    pub(crate) fn with_clock(self) -> Self {
        Conventional { has_clock: true, ..self }
    }

    fn options(&self, place: &Place<'_>, member: usize) -> locking::Options {
        let tick = locking::Options::default().tick;
        locking::Options {
            concurrency: self.concurrency,
            reads: locking::Reads::Closest,
            coordinates: self.coordinates,
            clock: place.clock,
            // As the paper's: no phases, nothing combined, no locks for those that were refused, and no waiting.
            reserve_after: None,
            patient: false,
            combining: None,
            last_shard: None,
            locks: locking::LockOptions { phasing: None, ..locking::LockOptions::default() },
            durability: Durability::Written,
            near: place.near_process(),
            tick: if member == 0 { tick } else { FOLLOWERS_TICK },
            resend_every: place.patience(),
            request_timeout: REQUEST_TIMEOUT,
            prepared_timeout: REQUEST_TIMEOUT,
            ..locking::Options::default()
        }
    }
}

impl Deployed for Conventional {
    type Protocol = locking::Node;

    fn has_clock(&self) -> bool {
        self.has_clock
    }

    fn replica(&self, place: &Place<'_>, shard: u16, member: usize) -> locking::Node {
        let options = self.options(place, member);
        locking::Node::replica(place.topology.clone(), shard, member, LIFE, options)
    }

    fn coordinator(&self, place: &Place<'_>, process: ProcessId) -> locking::Node {
        locking::Node::coordinator(place.topology.clone(), process, LIFE, self.options(place, 0))
    }

    fn is_ready(&self, instance: &locking::Node, member: usize) -> bool {
        matches!(instance, locking::Node::Replica(replica) if member != 0 || replica.is_leader())
    }
}

/// QWStore, as in the paper: write everywhere, read anywhere.
pub(crate) struct QwStore;

impl QwStore {
    fn options(place: &Place<'_>) -> qwstore::Options {
        qwstore::Options {
            durability: Durability::Written,
            near: place.near,
            resend_every: place.patience(),
            request_timeout: REQUEST_TIMEOUT,
            ..qwstore::Options::default()
        }
    }
}

impl Deployed for QwStore {
    type Protocol = qwstore::Node;

    fn replica(&self, place: &Place<'_>, _: u16, _: usize) -> qwstore::Node {
        qwstore::Node::replica(place.topology, &QwStore::options(place))
    }

    fn coordinator(&self, place: &Place<'_>, process: ProcessId) -> qwstore::Node {
        qwstore::Node::coordinator(place.topology.clone(), process, LIFE, QwStore::options(place))
    }
}
