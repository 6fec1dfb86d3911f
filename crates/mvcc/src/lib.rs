//! The stored state of a partition: an index from keys to records, each the newest state of a key, and above a
//! horizon the histories that take records back to older snapshots.
//!
//! This crate never opens a socket or a file, starts a thread, reads a clock or draws entropy; what depends on
//! hash order ([`Table::iter`], [`Table::scan`]) depends on nothing else than the keys, their order of insertion
//! and the deployment's hash seed.

mod compact_key;
mod history;
mod losses;
mod mutants;
mod store;
mod table;

pub use compact_key::CompactKey;
pub use history::{Bounds, DependencyVector, DependencyVectorOf};
pub use losses::{LossOptions, LostWrite};
pub use mutants::{Mutant, Mutants};
pub use store::{By, Choice, DeferredDrop, Record, Stamp, Store, Tracked};
pub use table::{Drained, Keyed, Table};
