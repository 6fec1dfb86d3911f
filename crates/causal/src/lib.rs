//! Causal models: one module per protocol, over shared blocks.
//!
//! Every protocol here answers three questions: how a stamp is chosen, which stamps a reader may see, and what
//! happens to effects that do not commute. No networking, no clock, no entropy, no hash-order iteration.

pub mod cops;
pub mod model;
pub mod paris;
pub mod pocc;
pub mod stable;
pub mod wren;

protocol::compile_here! {
    WREN: wren::Node,
    WREN_COPIES: replication::copies::Node<wren::Node>,
    PARIS: paris::Node,
    POCC: pocc::Node,
    COPS: cops::Node,
    COPS_COPIES: replication::copies::Node<cops::Node>,
}
