//! Who takes part, and how a site is set up.

use super::gossip::WINDOW;
use crate::{End, Keep, Mutants, Policy};
use protocol::Durability;
use std::time::Duration;
use types::{Address, KeyspaceId};

/// A keyspace's sites, the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The site of every region, in the regions' order.
    pub sites: Vec<Address>,
    /// Of every site its record partitions; none where the records lie beside the State DAG.
    pub partitions: Vec<Vec<Address>>,
    /// The keyspace.
    pub keyspace: KeyspaceId,
}

impl Topology {
    /// Sites that store their records together with the State DAG.
    pub fn of_sites(sites: Vec<Address>, keyspace: KeyspaceId) -> Self {
        Topology { partitions: vec![Vec::new(); sites.len()], sites, keyspace }
    }

    /// The record partitions of a site.
    pub(super) fn partitions_of(&self, index: usize) -> &[Address] {
        self.partitions.get(index).map_or(&[], Vec::as_slice)
    }
}

/// Who merges branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merging {
    /// The application.
    Manual,
    /// Every site by itself, by the types' own rules; what they leave open goes to the newer side.
    Auto {
        /// Between two looks.
        every: Duration,
    },
    /// Every site by itself, by the keyspace's handler. What it leaves open goes to the types' rules, and what these leave
    /// open, or a failure of the handler, to the policy: one that refuses leaves the branches as they are.
    Handler {
        /// Between two looks.
        every: Duration,
    },
}

/// What updates that meet at one site do, of sessions that never chose a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// One of them gets CONFLICT, as in a strict keyspace.
    #[default]
    Serialize,
    /// They fork (TARDiS's own default), and each session follows its branch.
    Branch,
}

impl Local {
    /// The end constraint of transactions that name none.
    pub(super) fn end(self) -> End {
        match self {
            Local::Serialize => End::All(vec![End::Serializability, End::NoBranching, End::Ancestor]),
            Local::Branch => End::Serializability,
        }
    }
}

/// Which states that other sites might still build on are collected (TARDiS 6.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collecting {
    /// None: a state stays until every site promised to begin nothing at it.
    #[default]
    Pessimistic,
    /// A site that is not heard is not waited for. What it may build on is made anew when it does.
    Optimistic,
}

/// How merges are worked out piece by piece (Corrections 87).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// What is done at a time, by assumed costs; on real processors it takes a few times as long (docs/evidence/figures.md).
    pub piece: Duration,
    /// How long others have between two pieces, at least: it is a quarter of what a piece takes. With a much larger
    /// share, clients would be so far ahead at the end of a merge of many heads that the rebase of their writes takes
    /// as long again.
    pub between: Duration,
    /// About so many keys that a client wrote beside a merge are merged with it at a time. Most clients' are fewer: to merge them in
    /// pieces is more work in all, but one who commits waits for no more than this.
    pub rebase: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { piece: Duration::from_micros(500), between: Duration::ZERO, rebase: 1_024 }
    }
}

impl Pace {
    /// When the piece after one that took so long is due.
    pub(super) fn next_after(self, took: Duration) -> Duration {
        took + (took / 4).max(self.between)
    }

    /// How much of so long a time pieces took, if nobody else had anything to do.
    pub(super) fn worked_in(self, passed: Duration) -> Duration {
        passed * 4 / 5
    }
}

/// How a site is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How durable a state is before anybody hears of it.
    pub durability: Durability,
    /// Who merges.
    pub merging: Merging,
    /// What a merge of an application, or of a handler, does with conflicting keys that it does not write.
    pub policy: Policy,
    /// What updates that meet here do.
    pub local: Local,
    /// What the site retains of the past, to be read by id.
    pub keep: Keep,
    /// Whether collection waits for sites that are not heard.
    pub collect: Collecting,
    /// How many bytes of transactions that some site lacks the site holds in memory before it refuses writes.
    pub queue: usize,
    /// Where records lie in partitions: how many keys stay beside the State DAG to be worked on.
    pub near: usize,
    /// How long a transaction may stay open: its states stay with it (Corrections 86).
    pub open_for: Duration,
    /// How large a piece of a checkpoint becomes before it is handed over, in bytes. Nothing is collected in between.
    pub piece: usize,
    /// How merges are worked out beside clients.
    pub pace: Pace,
    /// How many transactions may be on their way to a site that has not acknowledged them.
    pub window: usize,
    /// True if the site shall claim what transactions saw and did, for checkers.
    pub claims: bool,
    /// The bug under test.
    pub mutants: Mutants,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Written,
            merging: Merging::Auto { every: Duration::from_millis(50) },
            policy: Policy::Refuse,
            local: Local::Serialize,
            keep: Keep::states(100),
            collect: Collecting::default(),
            queue: 1 << 30,
            near: 50_000,
            open_for: Duration::from_secs(60),
            piece: 64 * 1024,
            pace: Pace::default(),
            window: WINDOW,
            claims: false,
            mutants: Mutants::default(),
        }
    }
}
