//! Model checking of Wren's very step functions: every state of small systems is visited.
//!
//! A state of the system is a state of each instance and what is on its way: datagrams arrive in any order, each once at most,
//! or never; streams deliver in order. Partitions tick whenever they like, as often as they like; their clocks go
//! on whenever they like, as far as the setup says. Coordinators, which know no time, react at once (`explore`). Each new state
//! is checked (`properties`), and from some of the last ones the system must come to rest.
//!
//! Each model states its bounds. What takes long is in `soak`.

#![expect(clippy::disallowed_macros, reason = "a test says what it counted")]

mod explore;
mod host;
mod models;
mod mutants;
mod properties;
mod setup;
mod soak;
mod space;
