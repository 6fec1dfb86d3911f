//! All integration tests of the crate, in one binary: each further one would link the same crates again.

extern crate anabranch_strict as strict;

mod hosting;
mod locking;
mod model;
mod solo;
mod tapir;

/// Whether `cargo xtask soak` runs these tests, with more of everything.
#[expect(clippy::disallowed_methods, reason = "how long tests run")]
fn soaks() -> bool {
    std::env::var_os("ANABRANCH_SOAK").is_some()
}

/// Every eighth of these seeds or moments; `cargo xtask soak` goes through all.
fn some_of<T>(all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    all.step_by(if soaks() { 1 } else { 8 })
}
