//! Data types of your own: what an author implements, what passes between a server and a module, and the check that a
//! type must pass before a server accepts it.
//!
//! A type is a state, operations on it, and effects. [`UserType::execute`] looks at the state and gives a reply and
//! perhaps an effect; [`UserType::apply`] performs an effect. [`UserType::commute`] and [`UserType::unchanged`] say which
//! of them do not conflict (Claret, section 5), so that transactions which use the type run side by side. The server
//! holds the author to that: it plays both orders of what is said to commute, on states that the operations themselves
//! have built ([`check`]), and refuses a type that breaks its word.
//!
//! ```
//! use anabranch_usertypes::{Answer, Argument, Call, Kind, Operation, Reply, UserType, check};
//!
//! /// A highest number that only rises.
//! #[derive(Default)]
//! struct Peak(i64);
//!
//! impl UserType for Peak {
//!     type State = i64;
//!     type Effect = i64;
//!     const OPERATIONS: &'static [Operation] = &[
//!         Operation::writes("raise", &[("to", Kind::Integer, &[])]),
//!         Operation::reads("get", &[]),
//!     ];
//!
//!     fn execute(state: &i64, call: &Call<'_>) -> Answer<i64> {
//!         match (call.operation, call.arguments) {
//!             ("raise", [Argument::Integer(to)]) => Answer::with(Reply::Ok, *to),
//!             _ => Answer::only(Reply::Integer(*state)),
//!         }
//!     }
//!     fn apply(state: &mut i64, effect: &i64) {
//!         *state = (*state).max(*effect);
//!     }
//!     fn commute(_: &i64, _: &i64) -> bool {
//!         true
//!     }
//!     fn unchanged(call: &Call<'_>, reply: Option<&Reply>, effect: &i64) -> bool {
//!         let seen = |reply: &Reply| matches!(reply, Reply::Integer(peak) if effect <= peak);
//!         call.operation == "raise" || reply.is_some_and(seen)
//!     }
//! }
//!
//! let module = anabranch_usertypes::Module::native::<Peak>();
//! assert!(check::check(&module).is_ok());
//! ```
//!
//! `anabranch_usertypes::export!(Peak);` makes a crate of the kind `cdylib` a module for `wasm32-unknown-unknown`.
//! No clock, no chance, no input or output: what a type does depends on the arguments of its functions alone.

#![no_std]

extern crate alloc;

pub mod abi;
mod author;
pub mod check;
mod codec;
mod export;
#[cfg(target_arch = "wasm32")]
pub mod guest;
mod module;
mod names;

pub use abi::{Argument, Kind, Reply};
pub use author::{Answer, Call, LockMode, Operation, UserType, serve};
pub use codec::{Codec, Input, put_bytes};
pub use module::{Executed, Fault, Limits, Machine, Module};
pub use names::{MAX_NAME_BYTES, is_name};
