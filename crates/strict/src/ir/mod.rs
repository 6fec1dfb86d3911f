//! Inconsistent replication (IR): fault-tolerant operations without an order between them.
//!
//! # Guarantee
//! With 2f+1 replicas of which f may fail: an *inconsistent* operation that f+1 replicas acknowledged is never lost
//! and is executed, once, by every replica, at any time and in any order. A *consensus* operation succeeds with one
//! result, by ceil(3f/2)+1 equal results at once or by f+1 confirmations of a chosen one, and every later view has
//! that result.
//!
//! # Who talks to whom
//! ```text
//!   client                 replicas                      leader(view)
//!     |-- Propose ----------->|  execute, record
//!     |<------------- Reply --|  ceil(3f/2)+1 equal: done
//!     |-- Finalize ---------->|  (slow path: f+1 replies, and a timeout or no fast quorum left)
//!     |<----------- Confirm --|  f+1 of one view, ballot and result: done
//!     |-- Execute ----------->|  inconsistent operation, ends the group
//!     |<---------- Executed --|  f+1: done
//!                             |-- StartViewChange --> all
//!                             |-- DoViewChange ------------->|  f+1 records: merge
//!                             |<-------------- StartView ----|  until acknowledged
//! ```
//!
//! # State
//! A replica: view, status (NORMAL, VIEW-CHANGING, RECOVERING), last normal view, and the record ([`Groups`]). What
//! it says leaves only after the entry it speaks of is as durable as the keyspace asks (Corrections 4). A client:
//! a [`Tally`] per operation.
//!
//! # Invariants
//! - Replies and confirmations count together only if they carry the same view.
//! - A replica persists a view before it says anything in it, and says nothing to clients unless NORMAL.
//! - A replica that may have forgotten (an unclean restart) is RECOVERING: it neither leads nor contributes a
//!   record, and becomes NORMAL only by a view above every one that f+1 others had entered when they answered it.
//! - Of the records that a leader merges only those of the highest last normal view count (Corrections 6).
//! - A promise to a coordinator view is durable, and survives every merge by maximum.
//! - Locks that a replica holds end by the group's outcome, a higher attempt, or a new view's record; not by the
//!   adoption of another result (Corrections 13).
//!
//! # Synchronization
//! Groups are placed by the timestamp of their first attempt, their birth. A leader closes intervals of births; below
//! the stable base nothing new is accepted, everything that committed is executed, and outcomes are forgotten when no
//! shard can ask for them. View changes carry what is undecided, and differences of outcomes. The argument, and how a
//! replica that is too far behind fetches the state, is `docs/internals/ir.md`.
//!
//! # Epochs
//! A group moves from one set of replicas to another by ending its epoch with a view in which nobody serves
//! (`ir/reconfigure.rs`); a view's number names its epoch, so whatever counts in one view counts in one epoch.

mod after_loss;
mod application;
mod client;
mod epoch;
mod log;
mod merge;
mod message;
#[cfg(debug_assertions)]
mod mutants;
mod outcomes;
mod reconfigure;
mod record;
mod recovery;
mod replica;
mod sync;
mod view_change;
mod vote_retention;

pub use application::{Application, Operations};
pub use client::Tally;
pub use epoch::{Configuration, Membership, epoch_of, first_view};
pub use log::{Digest, EndedGroup, Points, Summary};
pub use merge::merge;
pub use message::{Ending, Message, Part, Question};
pub use record::{CoordinatorView, Entry, Group, Groups, HeldAttempt};
pub use recovery::Recovering;
pub use replica::{Change, Port, Replica, Status};

/// How many failures `members` replicas survive.
pub fn tolerated(members: usize) -> usize {
    members.saturating_sub(1) / 2
}

/// How many equal results are a fast quorum: ceil(3f/2)+1.
pub fn fast_quorum(members: usize) -> usize {
    (3 * tolerated(members)).div_ceil(2) + 1
}

/// How many replicas are a quorum: f+1.
pub fn quorum(members: usize) -> usize {
    tolerated(members) + 1
}
