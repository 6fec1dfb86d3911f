//! The systems that are compared: a branch keyspace's sites, and the same store without branches, one replica a site.

use super::Costs;
use branch::site::{Local, Merging};
use branch::{Effort, Instance, Keep};
use protocol::{Durability, Protocol};
use std::iter::Sum;
use std::time::Duration;
use strict::locking::{self, Concurrency};
use types::{Address, HashSeed, Incarnation, KeyspaceId, PartitionId, ProcessId, Slot};

pub(super) const KEYSPACE: KeyspaceId = KeyspaceId(1);
pub(super) const LIFE: Incarnation = Incarnation(1);
/// Nothing is lost here, so a repeated request is late only.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a session's transactions demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraints {
    /// What it is called.
    pub name: &'static str,
    /// To begin, as in BRANCH DEFAULTS.
    pub begin: &'static str,
    /// To commit.
    pub end: &'static str,
}

/// Ancestor and Serializability: TARDiS's own default.
pub const BRANCHING: Constraints = Constraints { name: "tardis", begin: "ANCESTOR", end: "SERIALIZABLE" };

/// A system under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// A branch keyspace whose sessions share its site's branch: Ancestor, Serializability and No Branching.
    Plain,
    /// A branch keyspace whose sessions demand this.
    Tardis(Constraints),
    /// The same without collection, as far as states are concerned.
    Hoarding,
    /// The same store with locks for readers and writers.
    Locking,
    /// The same with the types' own lock modes, in phases, combined: what a strict keyspace does by itself.
    Typed,
    /// The same store with optimistic concurrency control.
    Occ,
}

impl System {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            System::Plain => "no-branching",
            System::Tardis(constraints) => constraints.name,
            System::Hoarding => "hoarding",
            System::Locking => "locking",
            System::Typed => "typed",
            System::Occ => "occ",
        }
    }

    /// True for branch keyspaces.
    pub fn branches(self) -> bool {
        matches!(self, System::Plain | System::Tardis(_) | System::Hoarding)
    }

    /// What its sessions tell the site first.
    pub(super) fn constraints(self) -> Option<Constraints> {
        match self {
            System::Tardis(constraints) => Some(constraints),
            System::Hoarding => Some(BRANCHING),
            _ => None,
        }
    }
}

/// What a site keeps at the end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Residue {
    pub states: usize,
    pub heads: usize,
    pub versions: usize,
    pub keys: usize,
    pub memory: usize,
}

impl Sum for Residue {
    fn sum<I: Iterator<Item = Residue>>(all: I) -> Residue {
        all.fold(Residue::default(), |all, of| Residue {
            states: all.states + of.states,
            heads: all.heads + of.heads,
            versions: all.versions + of.versions,
            keys: all.keys + of.keys,
            memory: all.memory + of.memory,
        })
    }
}

/// A protocol and how the instances of a site are made.
pub(super) trait Deployed {
    type Protocol: Protocol;

    /// The instances of a site, each with its slot; clients ask the last one.
    fn instances(&self, sites: u16, site: u16) -> Vec<(Slot, Self::Protocol)>;

    fn is_ready(&self, instance: &Self::Protocol) -> bool {
        let _ = instance;
        true
    }

    /// For how long its own work has kept the processor busy, apart from messages, in nanoseconds.
    fn worked(&self, instance: &Self::Protocol, costs: &Costs) -> u64;

    fn residue(&self, instance: &Self::Protocol) -> Residue;

    /// True while it works heads out: nothing is collected meanwhile.
    fn is_merging(&self, instance: &Self::Protocol) -> bool {
        let _ = instance;
        false
    }

    /// Collects until there is nothing more to collect.
    fn settle(&self, instance: &mut Self::Protocol) {
        let _ = instance;
    }
}

fn site_of(process: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(KEYSPACE, PartitionId(0)) }
}

/// Sites of a branch keyspace.
pub(super) struct Sites {
    pub local: Local,
    pub keep: usize,
}

impl Deployed for Sites {
    type Protocol = Instance;

    fn instances(&self, sites: u16, site: u16) -> Vec<(Slot, Instance)> {
        let topology = branch::site::Topology::of_sites((0..sites).map(site_of).collect(), KEYSPACE);
        let options = branch::site::Options {
            durability: Durability::Written,
            merging: Merging::Auto { every: Duration::from_millis(50) },
            local: self.local,
            keep: Keep::states(self.keep),
            ..branch::site::Options::default()
        };
        vec![(site_of(site).slot, Instance::site(topology, usize::from(site), LIFE, options))]
    }

    fn worked(&self, instance: &Instance, costs: &Costs) -> u64 {
        let Some(site) = instance.as_site() else { return 0 };
        let Effort { lookups, states, keys, bytes } = site.keyspace().effort();
        lookups * costs.lookup + states * costs.state + keys * costs.key + bytes * costs.merged_byte
    }

    fn residue(&self, instance: &Instance) -> Residue {
        let Some(site) = instance.as_site() else { return Residue::default() };
        let census = site.keyspace().census();
        Residue {
            states: census.states,
            heads: census.heads,
            versions: census.versions,
            keys: census.keys,
            memory: census.memory,
        }
    }

    fn is_merging(&self, instance: &Instance) -> bool {
        instance.as_site().is_some_and(|site| site.keyspace().is_merging())
    }

    fn settle(&self, instance: &mut Instance) {
        if let Some(site) = instance.as_site_mut() {
            site.settle();
        }
    }
}

/// A strict keyspace of one replica at every site; the sites know nothing of one another.
pub(super) struct Flat {
    pub concurrency: Concurrency,
    pub typed: bool,
}

impl Deployed for Flat {
    type Protocol = locking::Node;

    fn instances(&self, _: u16, site: u16) -> Vec<(Slot, locking::Node)> {
        let topology = strict::Topology {
            shards: vec![vec![site_of(site)]],
            epochs: Default::default(),
            keyspace: KEYSPACE,
            seed: HashSeed(1),
        };
        let usual = locking::Options::default();
        let options = locking::Options {
            concurrency: self.concurrency,
            combining: usual.combining.filter(|_| self.typed),
            reserve_after: usual.reserve_after.filter(|_| self.typed),
            patient: false,
            locks: match self.typed {
                true => usual.locks,
                false => locking::LockOptions { phasing: None, readers_and_writers: true },
            },
            durability: Durability::Written,
            resend_every: PATIENCE,
            request_timeout: PATIENCE,
            prepared_timeout: PATIENCE,
            lock_timeout: PATIENCE,
            ..usual
        };
        let process = ProcessId(site);
        vec![
            (site_of(site).slot, locking::Node::replica(topology.clone(), 0, 0, LIFE, options.clone())),
            (Slot::coordinator(KEYSPACE), locking::Node::coordinator(topology, process, LIFE, options)),
        ]
    }

    fn is_ready(&self, instance: &locking::Node) -> bool {
        !matches!(instance, locking::Node::Replica(replica) if !replica.is_leader())
    }

    fn worked(&self, _: &locking::Node, _: &Costs) -> u64 {
        0
    }

    fn residue(&self, instance: &locking::Node) -> Residue {
        match instance {
            locking::Node::Replica(replica) => Residue { memory: replica.memory(), ..Residue::default() },
            locking::Node::Coordinator(_) => Residue::default(),
        }
    }
}
