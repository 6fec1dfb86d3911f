//! All integration tests of the crate, in one binary: each further one would link the same crates again.

mod claret;
mod cops;
mod facts;
mod tardis;
mod tcc;
