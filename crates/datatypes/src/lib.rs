//! The type library: state, operations, results, effects, commutativity. Every data type is a pure module here.
//!
//! A command becomes typed [`Operation`]s. [`prepare`] evaluates an operation on a key's [`Cell`]: it writes the
//! result into a sink and returns the [`Effect`] to commit, if any (Claret 3.3: operations split in prepare and
//! commit). [`apply`] performs an effect, in any order with effects it commutes with, and never fails. What
//! `apply` changed comes back as a [`Patch`]; [`exchange`] swaps a patch with the state, so the same call undoes
//! and redoes. [`commutes`] judges two [`Invocation`]s by what they observed and what they change.
//!
//! ```text
//!   Operation --prepare(&Cell)--> result + Effect --apply(&mut Cell)--> Patch --exchange(&mut Cell)--> Patch ...
//!        \--observation()--> Observation   \--footprint()--> Footprint       (commutes, modes, combine)
//! ```
//!
//! A type is one module (`dict`, `set`, ...) with its `Operation`, `Effect`, `prepare`, `apply`, `exchange`,
//! `effects_commute` and `footprint` over its own container; this file and `cell.rs` do what all share: the type
//! check, creation, disappearance when empty, expiry. No networking, no clock, no entropy, no hash-order iteration.

mod cell;
mod claim;
mod codec;
pub mod collections;
pub mod combine;
pub mod counter;
pub mod dict;
pub mod dump;
mod effect;
pub mod geo;
pub mod glob;
mod index;
mod items;
pub mod key;
pub mod list;
pub mod merge;
mod mode;
mod observation;
mod operation;
pub mod register;
pub mod scored_set;
pub mod set;
pub mod stream;
pub mod summary;
pub mod top;
pub mod uid;
pub mod user;

pub use cell::{Cell, Kind, Patch, Value, apply, exchange, prepare};
pub use claim::Claim;
pub use effect::Effect;
pub use items::Items;
pub use mode::{Mode, Modes};
pub use observation::{Aspect, Footprint, Invocation, Observation, commutes};
pub use operation::Operation;

use types::Rng;

/// What evaluating an operation may use beside the state: the time that expiries compare with, and randomness.
#[derive(Debug)]
pub struct Context<'c> {
    /// Milliseconds since 1970; the transaction's or the session's time, never a raw clock (Corrections 69).
    pub now_millis: u64,
    /// For operations that choose (SPOP); the choice is part of the effect.
    pub random: &'c mut Rng,
    /// Where several regions choose ids of entries of streams, the number of this one: theirs differ.
    pub site: Option<u16>,
}
