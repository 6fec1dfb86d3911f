//! `bench retwis` and `bench rmw`: transactions of several keys, as clients of any Redis server run them.
//!
//! # What is run
//! *Retwis* is the mix of the TAPIR paper (table 2): 5 percent add a user (1 get, 3 puts), 15 follow (2 gets, 2 puts),
//! 30 post (3 gets, 5 puts), 50 read a timeline (1 to 10 gets). What is got is put as well, the other puts are blind.
//! *Rmw* reads and writes 1 to n keys. *Tardis* has six reads, or three reads and three writes, each a round trip of its own,
//! between a begin and a commit. Keys are drawn evenly, or by Zipf's law.
//!
//! # How
//! Reads alone are one `MGET`. Whatever writes takes two round trips: `WATCH` and `MGET`, then `MULTI`, the writes and
//! `EXEC`; or, on our servers, `TXN BEGIN` and `MGET`, then the writes and `TXN COMMIT`. What fails by a conflict is
//! tried again after a short random wait; a transaction's latency runs from its first try to its commit.
//! Every client has a connection of its own, and one transaction under way. One that loses it goes on at the next
//! server. One thread serves all of them, as in `redis-benchmark`.
//!
//! # What clients saw
//! Every try can be recorded in the checker's format: with begin and end on one clock, what was read, what was
//! written, what is known of the outcome. Writes are then `SET GET`, so that each tells which version it replaced: the
//! order of versions is known, and the history can be decided. Every value is written once, so that values name versions; keys are new in
//! every run. At the end all that was written is read once more at every server, until they agree. No server says
//! anything about itself: the history is checked by what clients saw alone.

mod client;
mod connection;
mod history;
mod link;
mod measure;
mod plan;
mod report;
mod servers;
mod tries;

pub use measure::{RunError, Settings, Totals, run};
pub use plan::{Keys, PlannedStep, Workload};
pub use report::{Comparison, Summary, compare, table};
pub use servers::ServerCounters;
pub use tries::{End, Trouble, rest};

pub(crate) use connection::Connection;
pub(crate) use link::Link;
pub(crate) use measure::{Driven, INPUT_BYTES, drive, order};
pub(crate) use servers::{ask, info};
pub(crate) use tries::{RECONNECT_WAIT, SILENCE, refusal};
