//! The `strict` model: strictly serializable transactions over typed operations.
//!
//! - [`solo`]: one replica, the product's embedded default; all quorums are one and a command is a local step.
//! - `ir` and `tapir`: leaderless replication over 2f+1 replicas and any number of shards.
//! - `locking`: the same with a leader in every shard, two-phase commit over replicated logs.
//! - [`model`]: what configures a process: options, placement, hosting.
//! - `coordinator`: what coordinators of both have in common, for the commit protocol to build on.
//! - [`validation`]: what a transaction observed, and optimistic validation over invocations.
//!
//! No networking, no clock, no entropy, no threads: everything is an input or an output of a step.

mod caching;
mod coordinator;
pub mod ir;
pub mod locking;
pub mod model;
mod mutants;
mod node;
mod part;
mod small_map;
pub mod solo;
pub mod tapir;
mod topology;
pub mod validation;

pub use mutants::{Mutant, Mutants};
pub use node::{Decided, KeyedEffects, Node};
pub use part::{Invoked, Part};
pub use topology::Topology;

protocol::compile_here! {
    TAPIR: tapir::Node,
    LOCKING: locking::Node,
}
