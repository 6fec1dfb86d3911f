//! The laboratory as its users meet it: real processes, sockets, signals and exit codes.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

mod serve;
#[path = "../../../server/tests/process/support.rs"]
mod support;
mod tools;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_anabranch-lab");
