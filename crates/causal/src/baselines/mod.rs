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

mod vector;

use crate::stable::{OneTime, Rule};
pub use vector::{Cure, Entries, HybridCure, MAX_REGIONS, Vector};

/// Everything up to a fresh time, which reads wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fresh;

impl Rule for Fresh {
    const FRESH: bool = true;
    const MERGES: bool = false;
    const HIDES: bool = true;
    const WAITS: bool = true;
}

/// A snapshot of BPR (the thesis's section 5.5): everything up to a time, wherever it is from. A replica answers a read of
/// it once it has installed all of its own up to there and has received all of its peers.
pub type Blocking = OneTime<Fresh>;

/// Whatever is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Anything;

impl Rule for Anything {
    const FRESH: bool = true;
    const MERGES: bool = false;
    const HIDES: bool = false;
    const WAITS: bool = false;
}

/// A time that hides nothing: what is there is seen (NoCC, the thesis's section 5.5). It only tells what a session wrote
/// itself, and what may be forgotten.
pub type Uncoordinated = OneTime<Anything>;
