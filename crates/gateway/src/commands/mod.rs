//! The commands, a file per family: their entries in the table, and how each becomes a plan or a reply.

pub(crate) mod branching;
mod clients;
pub(crate) mod commuting;
mod configuration;
pub(crate) mod conflicts;
pub(crate) mod connection;
mod diagnosis;
pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod keyspaces;
pub(crate) mod lists;
mod process;
pub(crate) mod scored_ranges;
pub(crate) mod scored_sets;
pub(crate) mod scripting;
pub(crate) mod server;
pub(crate) mod sessions;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod transactions;
pub(crate) mod user_types;
