//! Model checking of the very step functions of IR and TAPIR: every state of small systems is visited.
//!
//! A state of the system is a state of each instance, and an instance's state includes everything it has ever sent:
//! any of that may arrive, in any order, any number of times or never (`space`). Timers of coordinators, restarts,
//! suspicions and calls for a view happen whenever they like, as often as the setup allows (`setup`). Steps that
//! nobody else can notice happen right before the next one that somebody can; everything else interleaves freely.
//! Each new state is checked (`properties`), and from some of the last ones the system must recover (`heal`).
//!
//! Each model states its bounds. What takes long is in `soak`.

#![expect(clippy::disallowed_macros, reason = "a test says what it counted")]

mod explore;
mod heal;
mod host;
mod models;
mod mutants;
mod properties;
mod routes;
mod serial;
mod setup;
mod soak;
mod space;
mod symmetry;
