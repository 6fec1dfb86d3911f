//! Load for real servers, and what came of it.
//!
//! A number of this crate is a ratio in one run against a named peer: both servers get the same clients, the same
//! requests and the same keys, one after the other in every round, and one of them is measured twice so that the noise
//! of the machine stands beside the result.
//!
//! [`redis`] drives any server that speaks the Redis protocol with single commands and with transactions.
//!
//! This crate measures over sockets only: it never links the server's own code, so that nothing it measures runs in
//! its process.

pub mod redis;
