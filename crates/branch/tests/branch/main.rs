//! Tests of branch keyspaces against a naive model, and of what the paper shows.

#![allow(clippy::unwrap_used, reason = "a helper of a test panics like the test itself")]

mod collecting;
mod early;
mod elements;
mod exhaustive;
mod handler_runner;
mod hosting;
mod labelling;
mod merging;
mod model;
mod paper;
mod parts;
mod reading;
mod rebase;
mod sites;
mod streams;

/// Whether `cargo xtask soak` runs these tests, with more of everything.
#[expect(clippy::disallowed_methods, reason = "how long tests run")]
fn soaks() -> bool {
    std::env::var_os("ANABRANCH_SOAK").is_some()
}

/// Every eighth of these seeds; `cargo xtask soak` goes through all.
fn some_of(seeds: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    seeds.step_by(if soaks() { 1 } else { 8 })
}
