//! TAPIR: strictly serializable transactions over shards that IR ([`crate::ir`]) replicates without a leader.
//!
//! The whole essay, with messages, deviations and what is left out, is `docs/internals/tapir.md`; its short form:
//!
//! # Guarantee
//! Strict serializability whatever the clocks do; acknowledged transactions survive f failures of 2f+1 replicas per
//! shard and any failure of coordinators.
//!
//! # Flow
//! ```text
//!  Coordinator: evaluate steps (Read) -> Prepare at all shards -> reply -> Commit | Abort
//!  Replica:     validate over invocations -> PREPARE-OK | RETRY | ABSTAIN | ABORT, durable before it is said
//!  Backup:      promises (CoordinatorChange) -> finalize a choice per shard -> Commit | Abort
//! ```
//!
//! # Invariants
//! - Two conflicting transactions that both commit met at a replica that validated one knowing the other's end.
//! - A read names the exact effects it saw: a closed base and single stamps above it (Corrections 65).
//! - A coordinator announces a decision only after the result that makes it succeeded in IR; a raw poll never decides.
//! - A transaction has one attempt that counts, the highest; a backup's ballot beats every attempt.
//!
//! Left out so far: read-only snapshots.

mod coordinator;
mod expect;
mod keys;
mod lag;
mod message;
mod node;
mod operation;
mod options;
mod order;
mod reads;
mod record;
mod recovery;
mod replica;
mod reservations;
mod shard;
mod state;
mod suspicion;
mod transfer;
mod waiting;

pub use coordinator::Coordinator;
pub use message::{Evaluation, Message, Reading, Timer};
pub use node::Node;
pub use operation::{Decision, Invoked, Part, Prepare, Transactions, Vote};
pub use options::{Clocks, Isolation, Options};
pub use record::Record;
pub use replica::Replica;

pub use crate::{Decided, KeyedEffects, Topology};
