//! Blocks of replication shared by the protocols: minimum aggregation, what peers still lack, the state of the link
//! to a peer, state transfer, the replicated log, and copies of an instance that it drives. The sequenced streams
//! themselves are the contract's (`protocol::Outputs::stream`).
//!
//! Blocks return decisions and the protocols send. No networking, no clock, no entropy, no hash-order iteration.

pub mod copies;
mod link;
pub mod log;
mod minimum;
mod mutants;
mod outbox;
pub mod transfer;

pub use link::Link;
pub use minimum::{Lattice, MinimumOf};
pub use mutants::{Mutant, Mutants};
pub use outbox::{Fetched, Outbox, Window};
