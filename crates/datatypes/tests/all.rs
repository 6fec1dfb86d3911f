//! All integration tests of the crate, in one binary: each further one would link the same crates again.

extern crate anabranch_datatypes as datatypes;

mod merge;
mod properties;

/// A tenth of so many, of seeds or of what they show; `cargo xtask soak` goes through all.
#[expect(clippy::disallowed_methods, reason = "how long tests run")]
fn fewer(many: u32) -> u32 {
    if std::env::var_os("ANABRANCH_SOAK").is_some() { many } else { many / 10 }
}
