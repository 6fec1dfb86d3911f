//! A strict keyspace with one replica per partition: the embedded default.
//!
//! # Guarantee
//! Strict serializability. Every request is one atomic step: a driver steps the partition that it holds alone, or
//! all partitions of a request together ([`Group`]), so commands need no validation. Interactive transactions read
//! a snapshot, keep their effects to themselves and validate at commit ([`Transactions`]). What was acknowledged
//! is as durable as the keyspace says.
//!
//! # Flow
//! ```text
//!  Request::One --> prepare on the newest state --> reply
//!                        \--> Effect --> persist (stamp, key, effect) --> apply
//!  Lent --> Request::One, one after the other, at once --> all kept, or all taken back
//!  Begin --> snapshot = now, leased            Operate --> with_state(<= snapshot, own effects)
//!  Commit --> all partitions held: does nothing above the snapshot change what was observed? --> apply
//! ```
//!
//! # Rooms
//! `partition` state, inputs, housekeeping · `execute` operations on keys · `requests` on one partition · `group`
//! requests on several · `lent` transactions in one step · `transactions`, `open`, `keyset` interactive transactions ·
//! `watches` WATCH · `record`, `recovery` log and checkpoints · `undo` taking back what the log refuses.
//!
//! # State and invariants
//! - Stamps are hybrid timestamps, one per effect, rising within the partition; a snapshot is "everything up to a
//!   stamp", taken while all partitions are held, each of which then stamps above it.
//! - Expiry is a write: whoever meets an expired key commits its deletion first (Corrections 69).
//! - While a snapshot is leased, histories retain effects; else only the newest state exists. The store retains a
//!   history that an unlogged effect needs for its undo like one that a snapshot needs.
//! - Until the log has a record, the partition remembers how to take its effect back, so that a log that fails
//!   never leaves an unlogged effect visible. While the log is failed, writes are refused and reads go on; a
//!   request over several partitions with a write is refused as a whole. Transactions that were open when the log
//!   refused something may have read it and get CONFLICT.
//! - Recovery applies a record only if its stamp is above the key's: checkpoints are taken beside traffic.

mod execute;
mod group;
mod keyset;
mod lent;
mod open;
mod partition;
mod record;
mod recovery;
mod requests;
mod transactions;
mod undo;
mod watches;

pub use crate::caching::{choice, tracked};
pub use group::Group;
pub use lent::Lent;
pub use partition::{Options, Solo, Timer};
pub use record::Record;
pub use transactions::Transactions;
