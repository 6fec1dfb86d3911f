//! The evaluation of Claret (section 6 of its paper), and the comparison with the optimistic path that it could not
//! make: which runs, and what the paper and the project's aims say of them.
//!
//! Four shards of three replicas, round trips of 150 us, and gateways that serve many clients each: the real
//! `gateway::Gateway` with its coordinator, to which clients send the commands of `anabranch-lab bench rawmix`, `rubis`
//! and `retwis --graph kronecker`.

mod claims;
mod experiments;
mod gateway;
mod measure;
mod report;
mod system;
mod world;

pub use claims::claims;
pub use experiments::{Experiment, experiments};
pub use measure::{Conflict, Measured, run};
pub use report::table;
pub use system::System;

pub use crate::environment::{Environment, LOCAL, WIDE_AREA};
use bench::claret::Workload;

/// Shards (section 6).
pub const SHARDS: u16 = 4;
/// Gateways: the paper's machines with clients (section 6).
pub const GATEWAYS: usize = 4;
/// Processors of a gateway, which share its work (section 6: two with six cores). A replica has one.
pub const CORES: u64 = 12;
/// Commits are counted for pieces of this length, in microseconds.
pub const PIECE: u64 = 20_000;

/// What a process is busy with, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// For all that a step sends to one machine, for what came from one, and for a client's request and its answer.
    pub packet: u64,
    /// For every message in them.
    pub message: u64,
    /// For every record that it writes to its log.
    pub record: u64,
}

impl Costs {
    const NOTHING: Costs = Costs { packet: 0, message: 0, record: 0 };
}

/// An assumption: as in [`crate::COST`], with what a message costs that travels with others.
pub const COSTS: Costs = Costs { packet: 10_000, message: 2_000, record: 5_000 };

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// On what.
    pub system: System,
    /// Where the machines stand: the paper's are in one rack, with round trips of 150 us between any two (section 6). Over
    /// several regions each shard has a replica in each, the leader's in the first, and gateways are spread.
    pub environment: Environment,
    /// What clients send.
    pub workload: Workload,
    /// How many clients.
    pub clients: usize,
    /// How long is run unmeasured, in microseconds.
    pub warm_up: u64,
    /// How long is measured, in microseconds.
    pub measured: u64,
    /// Decides everything that is drawn.
    pub seed: u64,
}
