//! Wren played in virtual time: scripts, one per promise, and random runs under faults checked through claims.

mod client;
mod contexts;
mod evict;
mod expiry;
mod faults;
mod heal;
mod mutants;
mod pipelines;
mod promises;
mod random;
mod refill;
mod spool;
mod tree;
mod world;
