//! Blocks of two-phase commit with proposed timestamps. They return decisions; coordinators and partitions send.

mod decisions;
mod participant;
mod votes;

pub use decisions::Decisions;
pub use participant::Participant;
pub use votes::Votes;
