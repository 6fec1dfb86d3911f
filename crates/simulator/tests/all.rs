//! All integration tests of the crate, in one binary: each further one would link the same crates again.

mod baselines;
mod cops;
mod cops_copies;
mod evictions;
mod locking;
mod mistakes;
mod paris;
mod paris_copies;
mod pocc;
mod pocc_copies;
mod primary_backup;
mod scripts;
mod shrinking;
mod solo;
mod support;
mod tapir;
mod tardis;
mod telling;
mod wren;
mod wren_copies;
