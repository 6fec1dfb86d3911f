//! QWStore: a weakly consistent store without transactions, a baseline that TAPIR's paper compares with (section 7.1).
//!
//! For measurements: `KEYSPACE CREATE ... CONCURRENCY qwstore`.
//!
//! # Guarantee
//! Replicas that have received the same writes hold the same state: effects take effect in the order of their
//! timestamps, so the last writer wins. Nothing is promised about what a read sees. A write that was acknowledged is in
//! the journals of all replicas, or of f+1 ([`Acknowledgements`]). `Begin` and `Commit` reply `OK` and do nothing: each
//! operation stands alone, also of a request with several, and takes effect before the next one begins.
//!
//! # Flow
//! ```text
//!  Coordinator: what observes something:  Read at the closest replica -> result, effects
//!               what has effects:         Write(effects, timestamp) at all replicas -> acknowledgements -> reply
//! ```
//!
//! Left out: aborts, watches and commands on the whole keyspace, which are refused; repair of a replica that has lost its
//! journal; trimming of histories, as in [`strict::tapir`].

mod call;
mod coordinator;
mod message;
mod node;
mod replica;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use message::{Effects, Message, Record, Timer};
pub use node::Node;
pub use replica::Replica;

use protocol::Durability;
use std::time::Duration;

/// How many replicas have a write before its client hears of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledgements {
    /// All of them, as in the paper: write everywhere, read anywhere.
    #[default]
    All,
    /// f+1 of the 2f+1; the others get it nevertheless.
    Quorum,
}

/// How replicas and coordinators are set up.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What a write waits for.
    pub acknowledgements: Acknowledgements,
    /// How durable a write is before a replica acknowledges it.
    pub durability: Durability,
    /// Reads go to this replica of each shard first, if there is none in the same process.
    pub near: usize,
    /// The coordinator repeats a request without an answer after this; a read at the next replica.
    pub resend_every: Duration,
    /// A request that is not done after this is answered by an error.
    pub request_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            acknowledgements: Acknowledgements::All,
            durability: Durability::Synced,
            near: 0,
            resend_every: Duration::from_millis(250),
            request_timeout: Duration::from_secs(5),
        }
    }
}
