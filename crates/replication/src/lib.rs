//! Blocks of replication shared by the protocols: minimum aggregation, what peers still lack, the state of the link
//! to a peer, and state transfer. The sequenced streams themselves are the contract's (`protocol::Outputs::stream`).
//!
//! Blocks return decisions and the protocols send. No networking, no clock, no entropy, no hash-order iteration.

mod link;
mod minimum;
mod outbox;
pub mod transfer;

pub use link::Link;
pub use minimum::MinimumOf;
pub use outbox::{Outbox, Window};
