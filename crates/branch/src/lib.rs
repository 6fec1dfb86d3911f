//! TARDiS: keyspaces that fork when updates conflict, and merge when and how the application wants. The pure core.
//!
//! Every update transaction makes a state; states form the State DAG. A transaction reads the state that its begin
//! constraint selects, and commits below the last state that its end constraint admits: where another state already
//! stands, a fork arises. A merge reads several heads and makes one state of them.
//!
//! ```text
//!   Begin --select--> read state --read--> Records: key -> versions on lines
//!                        |                      ^
//!                        v                      | write, under the new state's label
//!   End ----ripple--> commit state --append--> Dag: states, labels, write sets, heads
//!                                               |
//!                     ceilings --collect--> classes: states join the class of their only child
//! ```
//!
//! # Invariants
//! - Ids rise along every path. Labels never change. `Dag::sees` is the ancestor relation.
//! - Of the versions of a key that a state sees, one is above all others: merges write every conflicting key.
//! - A state that was collected is seen by exactly the states that stay and see the class it joined.
//!
//! No networking, no clock, no entropy, no hash-order iteration. Sources: Crooks et al., *TARDiS* (SIGMOD 2016);
//! Corrections 51 to 57; `docs/decisions/0018-branch-keyspaces.md`; `docs/internals/tardis.md`.

mod changes;
mod collect;
mod constraint;
mod dag;
mod effort;
mod forward;
mod handler;
mod id;
mod instance;
mod keyspace;
pub mod merge;
pub mod model;
mod mutants;
mod part;
mod records;
mod refusal;
mod request_codec;
mod retained;
mod retention;
mod ripple;
mod session;
pub mod site;
mod syntax;
mod transaction;

pub use changes::{Change, WriteSet};
pub use collect::{Census, CollectedState, Owner};
pub use constraint::{Begin, End};
pub use dag::{Dag, Label, MissingParent, Node, PortableView, View};
pub use effort::Effort;
pub use handler::{Conflict, Conflicts, Failure, Handler};
pub use id::{Ids, MalformedId, StateId};
pub use instance::Instance;
pub use keyspace::{ByValue, HandlerMerge, Keyspace, Options, Piece};
pub use merge::Policy;
pub use mutants::{Mutant, Mutants};
pub use part::Part;
pub use records::{KeyValue, Order, Records, Stored};
pub use refusal::Refusal;
pub use retained::RetainedTransactions;
pub use retention::Keep;
pub use transaction::{Commit, Effects, Transaction};
