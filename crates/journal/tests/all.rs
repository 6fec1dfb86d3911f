//! All integration tests of the crate, in one binary: each further one would link the same crates again.

mod checkpoints;
mod common;
mod corruption;
mod damage;
mod faults;
mod model;
