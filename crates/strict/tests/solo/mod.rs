//! One-replica strict partitions, driven through `protocol::Replica` as a process drives them.
//!
//! A failure tells its seed; `PROPTEST_RNG_SEED=n cargo test -p anabranch-strict` repeats it.

mod checkpoints;
mod expiry;
mod keysets;
mod lent;
mod log_failure;
mod partitions;
mod recovery;
mod requests;
#[path = "../../../datatypes/tests/properties/runner.rs"]
mod runner;
#[path = "../../../datatypes/tests/properties/strategies.rs"]
mod strategies;
mod traffic;
mod transactions;
mod transactions_random;
mod watches;
mod world;

use runner::for_all;
