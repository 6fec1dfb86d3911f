//! Load for real servers, and what came of it.
//!
//! A number of this crate is a ratio in one run against a named peer: both servers get the same clients, the same
//! requests and the same keys, one after the other in every round, and one of them is measured twice so that the noise
//! of the machine stands beside the result.
//!
//! [`redis`] drives any server that speaks the Redis protocol with single commands and with transactions.
//!
//! [`transactions`] drives such servers with transactions of several keys, and records what clients saw for the
//! checker.
//!
//! [`tcc`] has causal keyspaces run the workload of Wren and PaRiS, one protocol after the other.
//!
//! [`cops`] has causal keyspaces run the workload of COPS's evaluation, likewise.
//!
//! [`claret`] has strict keyspaces run the workloads of Claret's evaluation, one setting after the other.
//!
//! This crate measures over sockets only: it never links a protocol or the runtime, so that nothing it measures runs
//! in its process. Of the checker it uses the format of histories.

pub mod claret;
pub mod cops;
mod keyspaces;
pub mod redis;
pub mod tcc;
pub mod transactions;
