//! All integration tests of the crate, in one binary: each further one would link the same crates again.

mod anomalies;
mod export;
mod second_opinion;
mod unclaimed;
