//! `cluster`: several processes that replicate keyspaces.

mod children;
mod console;
mod layout;
mod local;
mod place;
mod relay;

pub use local::run_local;
pub use place::{Delay, Skew};
use runtime::{ClusterConcurrency, ClusterProtocol};

/// What a binary adds to a local cluster: the product nothing but the concurrency, the laboratory what only tests and
/// measurements set.
#[derive(Clone, Debug, Default)]
pub struct ClusterExtras {
    /// How a strict keyspace keeps conflicting transactions apart.
    pub concurrency: ClusterConcurrency,
    /// Which protocol keeps a causal one.
    pub protocol: ClusterProtocol,
    /// How far clocks are off; of several for one process the last one counts.
    pub skew: Vec<Skew>,
    /// Processes reach each other without relays, but where something is delayed.
    pub direct: bool,
}
