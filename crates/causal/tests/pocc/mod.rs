//! POCC played in virtual time: scripts about regions that are cut off, or lost for good.

#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/client.rs"]
mod client;
mod degraded;
mod evict;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/inspect.rs"]
mod inspect;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/interference.rs"]
mod interference;
mod random;
mod sessions;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/world.rs"]
mod world;

mod under_test {
    pub use anabranch_causal::pocc::{Message, Node, Options, Topology};
    use anabranch_causal::pocc::{Snapshot, Times};

    /// What its effects have observed, for claims.
    pub fn observed(depends_on: <Snapshot as Times>::Depends) -> types::Timestamp {
        Snapshot::observed(depends_on)
    }
}
