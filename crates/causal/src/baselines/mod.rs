//! Baselines: the protocols that Wren and PaRiS are measured against (the thesis's sections 4.5 and 5.5), on the same
//! blocks, so that nothing differs but what they are compared for. `docs/protocols/baselines.md` has the whole story.
//!
//! | protocol | snapshot of a transaction | a read | a stamp says |
//! |---|---|---|---|
//! | [`Cure`] | the coordinator's clock for its region, what is stable here of each other one | waits until the partition's clock has passed the snapshot and all below it is decided | one time for each region |
//! | [`HybridCure`] | the same | waits for decisions only: the clock follows the snapshot | the same |
//! | [`Blocking`] (BPR) | the coordinator's clock: one time for all regions | waits until everything below has been decided here and received of the other replicas | its place |
//! | [`Uncoordinated`] (NoCC) | none | sees whatever is there | its place |
//!
//! The first three are transactionally causal. The last one keeps only that replicas converge and that nothing is lost.
//!
//! All perform effects in order of place, as PaRiS does, and validate what observes and writes where it is written.

mod blocking;
mod uncoordinated;
mod vector;

pub use blocking::Blocking;
pub use uncoordinated::Uncoordinated;
pub use vector::{Cure, Entries, HybridCure, MAX_REGIONS, Vector};
