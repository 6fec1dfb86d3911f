//! Strictly serializable transactions with a leader in every shard: two-phase commit over replicated logs
//! ([`replication::log`]), with locks or with optimistic validation at the leaders.
//!
//! This is what TAPIR's paper compares with (section 7, "conventional" systems, Spanner's shape), over the same types,
//! requests and checks. The whole essay is `docs/internals/replicated-log.md`; its short form:
//!
//! # Guarantee
//! Strict serializability whatever the clocks do; acknowledged transactions survive f failures of 2f+1 replicas per
//! shard and any failure of coordinators.
//!
//! # Flow
//! ```text
//!  Coordinator: Execute at leaders (lock, evaluate) -> Prepare at all -> Decide at the first -> reply -> Decide at all
//!  Leader:      vote -> entry in the log, committed -> Prepared;   one shard alone: the entry is the commit
//!  Command:     Run -> the leader evaluates it behind those in its log: one entry -> reply; so with a request on one shard
//!  Reader:      Execute -> a quorum confirms the leader -> reply;  nothing is written
//! ```
//!
//! # Invariants
//! - Entries are outcomes: applying one decides nothing, so every replica and every recovery comes to the same state.
//! - A leader answers for a vote or a decision only when its entry is applied, and for a read only when a quorum has
//!   confirmed it after the read, and all is applied that it shows.
//! - Locks end when the decision is put into the log: who comes next is evaluated behind it, and what that comes to is a later
//!   entry (`unapplied`).
//! - The decision of a transaction is an entry of its first participant (Corrections 73); who asks for a decision that
//!   is overdue makes it an abort unless it is there.
//! - A refusal is for good: a leader accepts a vote's question for its own term only, and remembers what it refused.
//! - Where several shards vote, a vote waits for nobody: one that would is refused. Of other transactions that wait for
//!   one another in a circle one gives way (`locks`, `docs/internals/claret.md`).
//!
//! - Transactions of one coordinator whose operations combine commit as one (`coordinator::combine`).
//!
//! For experiments: reads at the closest replicas ([`Reads::Closest`]), the first participant's leader as the one that collects
//! the votes ([`Coordinates::Participant`], `replica::collect`), and a timestamp server ([`Options::clock`]).
//!
//! Without locks ([`Concurrency::Unlocked`], a baseline) every operation is a transaction of its own, which its leader evaluates
//! behind what it has put into the log before (`unlocked`).
//!
//! Left out so far: moving of leaders, change of a shard's members.

mod absent;
mod coordinator;
mod keyset;
mod leader;
mod locks;
mod machine;
mod message;
mod node;
mod options;
mod record;
mod replica;
mod single;
mod unapplied;
mod unlocked;

pub use coordinator::Coordinator;
pub use locks::{LockOptions, Phasing};
pub use machine::Evaluation;
pub use message::{Calls, CommitWindow, Message, Timer};
pub use node::Node;
pub use options::{Combining, Concurrency, Coordinates, LastShard, Options, Reads};
pub use record::Record;
pub use replica::Replica;
