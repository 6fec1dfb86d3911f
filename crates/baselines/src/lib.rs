//! Baselines: what the papers measure their protocols against, on the blocks of ours, so that nothing differs but what they are
//! compared for. The laboratory links them, the product does not. `docs/internals/baselines.md` has the whole story.
//!
//! Causal ones (the thesis's sections 4.5 and 5.5), which are snapshots and stamps for `causal::stable`:
//!
//! | protocol | snapshot of a transaction | a read | a stamp says |
//! |---|---|---|---|
//! | [`Cure`] | the coordinator's clock for its region, what is stable here of each other one | waits until the partition's clock has passed the snapshot and all below it is decided | one time for each region |
//! | [`HybridCure`] | the same | waits for decisions only: the clock follows the snapshot | the same |
//! | [`Blocking`] (BPR) | the coordinator's clock: one time for all regions | waits until everything below has been decided here and received of the other replicas | its place |
//! | [`Uncoordinated`] (NoCC) | none | sees whatever is there | its place |
//!
//! The first three are transactionally causal. The last one keeps only that replicas converge and that nothing is lost.
//! All perform effects in order of place, as PaRiS does, and validate what observes and writes where it is written.
//!
//! And LOG (COPS, section 6): `causal::cops` on one partition, without dependencies.
//!
//! Strict ones: [`qwstore`], a weakly consistent store without transactions; and locks of readers and writers only, or none,
//! in place of the types' modes (`LOCKS`), which are options of `strict::locking`.
//!
//! [`CausalBaselines`] and [`StrictBaselines`] are the product's models with these beside them. No networking, no clock, no
//! entropy.

mod models;
mod one_time;
pub mod qwstore;
mod vector;

pub use models::{CausalBaselines, StrictBaselines};
pub use one_time::{Anything, Blocking, Fresh, Uncoordinated};
pub use vector::{Cure, HybridCure, Vector};

protocol::compile_here! {
    QWSTORE: qwstore::Node,
    CURE: causal::stable::Node<Cure>,
    HYBRID_CURE: causal::stable::Node<HybridCure>,
    BLOCKING: causal::stable::Node<Blocking>,
    UNCOORDINATED: causal::stable::Node<Uncoordinated>,
}
