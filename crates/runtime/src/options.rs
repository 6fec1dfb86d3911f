//! The options of a process.

use crate::cluster::{ClusterOptions, Models};
use protocol::Durability;
use protocol::eviction::Eviction;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// See the fields; the default is the embedded server: one thread, data in `anabranch-data`, `everysec`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// The address for clients of other machines, if not at the first of these.
    pub announce: Option<SocketAddr>,
    /// Where the log and its checkpoints are; `None` keeps everything in memory only.
    pub data: Option<PathBuf>,
    /// How many worker threads; at least 1.
    pub threads: usize,
    /// How many partitions each strict keyspace has; 0 for four per thread, or one with a single thread.
    pub partitions: u16,
    /// The durability of keyspaces that do not choose their own.
    pub durability: Durability,
    /// What clients must say to AUTH; `None` lets everybody in.
    pub password: Option<String>,
    /// The file of the users, if any.
    pub acl_file: Option<PathBuf>,
    /// Without a password, only clients on this machine are served at wildcard addresses.
    pub protected_mode: bool,
    /// Who may use `DEBUG`.
    pub debug_command: DebugCommand,
    /// The file that these options come from, if any does.
    pub config_file: Option<PathBuf>,
    /// The most clients at a time; more are refused.
    pub max_clients: usize,
    /// A client with this many bytes of unread replies is served no further until it has read.
    pub client_output_limit_bytes: usize,
    /// The most bytes of one command.
    pub client_query_limit_bytes: usize,
    /// How many bytes the data may occupy; 0 for any number.
    pub max_memory_bytes: u64,
    /// What becomes of numbered keyspaces that the process keeps by itself when it is more; commands are refused without.
    pub max_memory_policy: Option<Eviction>,
    /// How many keys are drawn for one that goes.
    pub max_memory_samples: usize,
    /// How many numbers SELECT takes.
    pub databases: u16,
    /// A checkpoint is taken when the log has grown by this many bytes since the last one, and by as much as that.
    pub checkpoint_after_bytes: u64,
    /// The size of a segment file of the log.
    pub segment_bytes: u64,
    /// How much each partition of a causal keyspace keeps in memory for regions that lack it.
    pub region_queue_bytes: usize,
    /// How much beyond that each of them keeps in the data directory; 0 for nothing.
    pub region_spill_bytes: u64,
    /// A damaged log is cut where the damage begins, and what goes is logged; otherwise it is refused. In a cluster,
    /// replicas of causal keyspaces that lost records go on with what those peers know that answer: what only the others,
    /// or nobody, had is given up.
    pub accept_loss: bool,
    /// How often an `everysec` log is synced.
    pub sync_every: Duration,
    /// The models of the keyspaces that it serves.
    pub models: Models,
    /// Makes it a process of this cluster; without, it is a cluster of one.
    pub cluster: Option<ClusterOptions>,
}

/// Who may use the command `DEBUG`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugCommand {
    /// Nobody.
    #[default]
    No,
    /// Clients on this machine.
    Local,
    /// Everybody.
    Yes,
}

impl DebugCommand {
    /// Its name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            DebugCommand::No => "no",
            DebugCommand::Local => "local",
            DebugCommand::Yes => "yes",
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            announce: None,
            data: Some(PathBuf::from("anabranch-data")),
            threads: 1,
            partitions: 0,
            durability: Durability::Written,
            password: None,
            acl_file: None,
            protected_mode: true,
            debug_command: DebugCommand::No,
            config_file: None,
            max_clients: 10_000,
            client_output_limit_bytes: 1 << 20,
            client_query_limit_bytes: 1 << 30,
            max_memory_bytes: 0,
            max_memory_policy: None,
            max_memory_samples: crate::memory::SAMPLES,
            databases: 16,
            checkpoint_after_bytes: 256 << 20,
            region_queue_bytes: 32 << 20,
            region_spill_bytes: 4 << 30,
            segment_bytes: 64 << 20,
            accept_loss: false,
            sync_every: Duration::from_secs(1),
            models: Models::new(&[]),
            cluster: None,
        }
    }
}

impl Options {
    /// How many partitions a new strict keyspace gets.
    pub(crate) fn partition_count(&self) -> u16 {
        match (self.partitions, self.threads) {
            (0, 1) => 1,
            (0, threads) => (threads as u16).saturating_mul(4),
            (partitions, _) => partitions,
        }
    }

    /// The durability of replicas here: what one of them has said must be in the log.
    pub(crate) fn replicas_durability(&self) -> Durability {
        match self.data {
            None => Durability::Volatile,
            Some(_) => self.durability.max(Durability::Written),
        }
    }
}
