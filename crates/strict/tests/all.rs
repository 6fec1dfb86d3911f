//! All integration tests of the crate, in one binary: each further one would link the same crates again.

extern crate anabranch_strict as strict;

mod hosting;
mod locking;
mod model;
mod solo;
mod tapir;
