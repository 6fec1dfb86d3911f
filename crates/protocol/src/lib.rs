//! The contract between a protocol and its driver.
//!
//! A protocol is a step function over data: it reacts to a batch of [`Input`]s by changing its state and filling
//! [`Outputs`]. It never blocks, never fails, opens nothing, reads no clock and draws no entropy. Two drivers run
//! the same protocols: the simulator, from a seed, and the runtime, for real.
//!
//! ```text
//!                 +--------------------------- Replica<P> ---------------------------+
//!  requests  -->  |  inputs --> P::step --> persist ----> records --> the driver's log |
//!  messages  -->  |    ^                    send, stream -> held | gate | --> packets   |
//!  timers    -->  |    |                    reply -------------> the asker's sink      |
//!                 +----+-------------------------------------------------------------- +
//! ```
//!
//! What a driver owes a [`Replica`], in this order: it feeds `step`; it appends what `take_records` gives to its
//! log and calls `appended` with the log's group number **before** anybody else may step a replica whose records
//! must stay in order; it tells `opened` how far the log is written and synced; it delivers what `packets` yields,
//! in any order, any number of times or never; it calls `fire` when `deadline` has come. Replies that a step wrote
//! may leave when [`Replica::reply_gate`], called right after `appended`, is open.
//!
//! # The durability gate
//!
//! A message or a reply may reveal everything the replica had persisted before it. So it leaves only when those
//! records are as durable as their class says ([`Durability`]). What vouches for nothing may pass
//! ([`Outputs::send_now`]). While the log refuses records an instance may serve reads of what it has taken before: an answer
//! that rests on nothing else waits for no more ([`Outputs::send_logged`], [`Outputs::reply_logged`], [`Unlogged`]).
//!
//! # The spool
//!
//! What waits long for somebody else, and is much, need not stay in memory: [`Outputs::spill`] hands it to the driver,
//! [`Outputs::fetch`] asks for it again ([`Replica::spool_requests`], [`Replica::spooled`]). A spool ends with the life,
//! and may lose any part of itself before: a protocol keeps there only what it can do without.
//!
//! # What a process hosts
//!
//! [`hosted`] has a keyspace's instances in a process, and what the process asks of them whatever their model; [`model`] what it
//! asks of a model: its options, and to host a keyspace.
//!
//! # One sequenced stream per peer
//!
//! Effects, heartbeats and stability reports to one peer share one stream ([`Outputs::stream`]): behind the gate,
//! in order, once. Sent any other way, a stable time overtakes the write it vouches for and readers see torn
//! snapshots. Other messages ([`Outputs::send`]) are gated too, and may be lost, repeated and reordered.

mod claim;
mod compiled;
mod conflict;
mod contention;
mod contract;
pub mod eviction;
mod gate;
pub mod hosted;
pub mod model;
mod replica;
mod request;
mod stream;
mod timers;
mod unlogged;

pub use claim::{
    BranchClaim, Claim, CommitStamp, KeyEffect, SeenKey, SnapshotClaim, ThreadClaim, VectorClaim,
};
pub use compiled::Compiled;
pub use conflict::{Conflict, ConflictingWrite};
pub use contention::{Contention, ContentionCounts, ContentionStats, HotKey, Pair, Sketch, merged};
pub use contract::{Durability, Encode, Input, NoReplies, Now, Outputs, Protocol, Replies, SpoolRequest};
pub use gate::{Durable, Gate};
pub use replica::{Mutant, Mutants, Packet, Persisted, Replica};
pub use request::{ContextRequest, KeyedOperation, Losses, Request, Step, misconf, unlogged};
pub use stream::Frame;
pub use unlogged::Unlogged;
