//! Blocks of commit protocols: what a transaction observed, and optimistic validation over invocations.
//!
//! Blocks return verdicts and protocols send. This crate never opens a socket or a file, starts a thread, reads a
//! clock or draws entropy.

mod decisions;
mod modes;
mod observed;
mod order;
mod participant;
mod stamp;
mod validation;
mod votes;

pub use decisions::Decisions;
pub use modes::ModeStamps;
pub use observed::Observed;
pub use order::{CommittedRead, validate_in_order};
pub use participant::Participant;
pub use stamp::Stamp;
pub use validation::{Access, Undecided, Verdict, deadline_set, overwrites, validate};
pub use votes::Votes;
