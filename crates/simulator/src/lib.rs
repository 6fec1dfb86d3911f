//! Runs protocols in a simulated world, from a seed, and checks what clients saw.
//!
//! Virtual time; processes with a real journal over a simulated disk that loses what was not synced; skewed and
//! jumping wall clocks; a network that delays, loses, repeats and reorders; links cut in one direction or both;
//! processes that are killed, lose power or their disks, stand still or are slow. Which of these a seed brings, and how strongly, is drawn from
//! the seed ([`Swarm`]). Clients run typed transactions on few keys. A run has a phase of traffic under faults; then
//! everything is healed and progress is demanded: every transaction ends, every gateway answers, and all answer alike.
//! The history is then checked ([`checker`]).
//!
//! This crate never reads a real clock, opens a file or a socket, or draws entropy: a seed is a run, and unless
//! [`Options::once`] says otherwise every seed is run twice to show it. Real timing and real disks are the runtime's tests.
//!
//! ```text
//!   clients --requests--> coordinator \                          / coordinator
//!     ^                    replicas    > process -- network -- <   replicas
//!     +------replies------ log, disk  /        ^                 \ log, disk
//!                                           nemesis
//! ```
//!
//! A run is data, a [`Script`]; a failing one is shrunk ([`shrink_seed`]) to the few faults and transactions that
//! still show the violation. To simulate another protocol, implement [`Deployment`] and call [`run_seeds`]. To see a
//! failing seed, run it alone with [`Options::readable`].
//!
//! # What is not simulated yet
//!
//! Bit rot, commands on a whole keyspace outside of transactions, and causal gaps that an operator accepts.

mod chosen;
mod client;
mod damage;
mod deployment;
mod deployments;
mod faults;
mod finale;
mod front;
mod gauge;
mod keyset;
mod losses;
mod nemesis;
mod network;
mod process;
mod recorder;
mod run;
mod schedule;
mod script;
mod sessions;
mod shrink;
mod storage;
mod trace;
mod workload;
mod world;

pub use checker::Violation;
pub use deployment::{Deployment, Host, KEYSPACE, Layout, Mutant, Mutants, ReplicaStatus, Setting};
pub use deployments::{
    BlockingDeployment, CausalDeployment, Checked, CopiesDeployment, CopsCopiesDeployment, CopsDeployment,
    CureDeployment, HybridCureDeployment, LockingDeployment, NAMES, ParisCopiesDeployment, ParisDeployment,
    PoccCopiesDeployment, PoccDeployment, SoloDeployment, TapirDeployment, TardisDeployment,
    UncoordinatedDeployment, WrenCopiesDeployment, WrenDeployment,
};
pub use faults::{Feature, Swarm};
pub use finale::{Run, simulate};
pub use gauge::register as register_types;
pub use run::{Failure, Options, Summary, UnknownProtocol, replay, run, run_script, run_seeds, shrink_seed};
pub use script::{Script, ScriptError};
pub use shrink::{Shrunk, shrink};
