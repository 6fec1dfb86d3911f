//! The commands, a file per family: their entries in the table, and how each becomes a plan or a reply.

pub(crate) mod branching;
pub(crate) mod commuting;
pub(crate) mod conflicts;
pub(crate) mod connection;
pub(crate) mod geo;
mod geo_search;
pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod keyspaces;
pub(crate) mod list_moves;
pub(crate) mod lists;
mod scored_combined;
pub(crate) mod scored_ranges;
pub(crate) mod scored_sets;
mod scored_turns;
pub(crate) mod scripting;
pub(crate) mod server;
pub(crate) mod sessions;
pub(crate) mod set_stores;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod transactions;
pub(crate) mod user_types;
pub(crate) mod visits;
