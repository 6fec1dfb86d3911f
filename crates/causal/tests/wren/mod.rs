//! Wren played in virtual time: scripts, one per promise, and random runs under faults checked through claims.

mod checkpoints;
mod client;
mod contexts;
mod evict;
mod expiry;
mod faults;
mod heal;
mod inspect;
mod interference;
mod mutants;
pub mod operations;
mod pipelines;
mod promises;
mod random;
mod scenes;
mod spool;
mod state_transfer;
mod tree;
mod visibility;
mod world;

mod under_test {
    pub use anabranch_causal::wren::{Message, Node, Options, RegionTopology, Topology};

    /// What its effects have observed, for claims.
    pub fn observed(depends_on: types::Timestamp) -> types::Timestamp {
        depends_on
    }
}
