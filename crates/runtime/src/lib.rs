//! Drives protocols for real: threads, sockets, timers, the log on disk.
//!
//! # Threads and ownership
//! Worker threads each own an event loop, their connections and a gateway. A partition of a keyspace that the process keeps by
//! itself is a [`protocol::Replica`] behind a lock of its own; a command runs to completion on the thread of its connection,
//! under the lock of its partition (all of them, in order, for a request over several). Of every other keyspace the
//! coordinator and each replica here are behind a lock, too ([`cluster`], which tells the order of locks); what a worker's
//! step replies to clients of another one goes through that one's inbox. One thread syncs the log, one takes checkpoints.
//!
//! # A turn of the loop
//! ```text
//!  ready sockets --> read --> gateway --> partitions --> records to the open group of the log (under the partition's lock)
//!                                                   \--> replies to output buffers, behind the gate
//!  then, once for all of them:  write the group out (or wake the syncer) --> send every reply whose gate is open
//! ```

mod checkpointer;
mod cluster;
mod connection;
mod error;
mod eviction;
mod files;
mod functions;
mod guard;
mod health;
mod hex;
mod host;
mod info;
mod journal;
mod keyspace;
mod lapsed;
mod memory;
mod metrics;
mod options;
mod output_limits;
mod parameters;
mod process;
mod refusal;
mod routed;
mod sandbox;
mod server;
mod solo;
mod syncer;
mod user_types;
mod users;
mod worker;

pub use cluster::{ClusterCatalog, ClusterFile, ClusterKeyspace, ClusterOptions, ClusterProcess, Models};
pub use error::{StartError, where_else};
pub use health::Health;
pub use metrics::metrics_markdown;
pub use options::{DebugCommand, Options};
pub use server::{Handle, Server};
