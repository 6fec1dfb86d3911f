//! PaRiS played in virtual time: scripts about regions that are gone for good.

#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/client.rs"]
mod client;
mod evict;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/inspect.rs"]
mod inspect;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/interference.rs"]
mod interference;
#[allow(clippy::duplicate_mod, reason = "the same world plays another protocol")]
#[path = "../wren/world.rs"]
mod world;

mod under_test {
    pub use anabranch_causal::paris::{Message, Node, Options, Topology};
    use anabranch_causal::paris::{Times, Universal};

    /// What its effects have observed, for claims.
    pub fn observed(depends_on: <Universal as Times>::Depends) -> types::Timestamp {
        Universal::observed(depends_on)
    }
}
