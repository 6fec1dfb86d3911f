//! The papers' experiments, in virtual time: the systems that are compared run the very step functions of the servers,
//! on machines and networks whose costs are stated ([`COST`], [`Environment`]).
//!
//! [`tapir`] is the evaluation of TAPIR (its section 7): latency and throughput in three environments, beside two-phase
//! commit over replicated logs and a weakly consistent store, with the paper's claims.
//!
//! [`claret`] is that of Claret (its section 6): raw mix, RUBiS and Retwis with and without each of its optimizations.
//!
//! [`tcc`] is those of POCC, Wren and PaRiS (the thesis, sections 3.8, 4.5 and 5.5), beside their baselines.
//!
//! [`cops`] is that of COPS (its section 6), beside LOG.
//!
//! [`tardis`] is that of TARDiS (its section 7), beside the same store with locks and with OCC.
//!
//! No socket, file, thread or clock: a seed is a run. What depends on real time is measured by the `bench` crate.

mod agenda;
pub mod claret;
mod client;
pub mod cops;
mod environment;
mod measure;
mod plot;
mod system;
mod table;
pub mod tapir;
pub mod tardis;
pub mod tcc;
mod world;

pub use client::Load;
pub use environment::{COST, Cost, DATA_CENTER, Environment, LOCAL, WIDE_AREA};
pub use measure::{Measured, run};
pub use plot::{Plot, Series};
pub use system::System;
pub use table::{claims_table, table};
pub use world::Setup;
