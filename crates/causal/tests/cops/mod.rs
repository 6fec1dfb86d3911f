//! COPS and COPS-GT played in virtual time: scripts, one per promise, named after the paper's sections, and known bugs that they
//! catch.

#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/checkpoints.rs"]
mod checkpoints;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/client.rs"]
mod client;
mod collection;
mod conflicts;
mod contexts;
mod corrections;
mod evict;
mod handlers;
mod inspect;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/interference.rs"]
mod interference;
mod mutants;
#[allow(clippy::duplicate_mod, reason = "the same operations")]
#[path = "../wren/operations.rs"]
mod operations;
mod outages;
mod recovery;
mod refusals;
mod replication;
mod scenes;
mod state_transfer;
mod transactions;
mod values;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/world.rs"]
mod world;

mod under_test {
    pub use anabranch_causal::cops::{Message, Node, Options, Topology};
}
