//! All integration tests of the crate, in one binary: each further one would link the same crates again.

extern crate anabranch_datatypes as datatypes;

mod merge;
mod properties;
