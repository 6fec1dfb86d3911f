//! The `strict` model: strictly serializable transactions over typed operations.
//!
//! - [`solo`]: one replica, the product's embedded default; all quorums are one and a command is a local step.
//! - `ir` and `tapir`: leaderless replication over 2f+1 replicas and any number of shards.
//! - `log` and `locking`: the same with a leader in every shard, two-phase commit over replicated logs.
//!
//! No networking, no clock, no entropy, no threads: everything is an input or an output of a step.

pub mod ir;
pub mod locking;
pub mod log;
mod mutants;
pub mod solo;
pub mod tapir;

pub use mutants::{Mutant, Mutants};
