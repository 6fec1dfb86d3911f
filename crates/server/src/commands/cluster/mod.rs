//! `cluster`: several processes that replicate keyspaces.

mod children;
mod console;
mod layout;
mod local;
mod place;
mod relay;

pub use local::run_local;
pub use place::{Delay, Skew};
use runtime::Models;

/// What a binary adds to a local cluster: its models, the laboratory also what only tests and measurements set.
#[derive(Clone, Debug)]
pub struct ClusterExtras {
    /// The models of the cluster's keyspaces.
    pub models: Models,
    /// Options of the keyspace `default`, as KEYSPACE CREATE takes them.
    pub options: Vec<(&'static str, String)>,
    /// How far clocks are off; of several for one process the last one counts.
    pub skew: Vec<Skew>,
    /// Processes reach each other without relays, but where something is delayed.
    pub direct: bool,
}
