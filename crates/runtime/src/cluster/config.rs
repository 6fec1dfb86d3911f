//! Who is in the cluster and what it keeps: one small file, the same for every process.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;

/// The file. Written by `cluster local`; later by the operator's commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Distinguishes clusters: a process talks only to peers that say the same. Also the seed of the key hash.
    pub seed: u64,
    /// Every process.
    pub processes: Vec<ClusterProcess>,
    /// Every keyspace; the first is number 0.
    pub keyspaces: Vec<ClusterKeyspace>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterProcess {
    /// Its number, unique for ever.
    pub id: u16,
    /// Its region's number.
    pub region: u16,
    /// Its region's name.
    pub region_name: String,
    /// Where its peers reach it.
    pub peer_address: SocketAddr,
}

/// How a keyspace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterModel {
    /// TAPIR over IR: every process has a replica of every shard.
    Strict,
    /// Wren: every region has every partition, dealt out to its processes.
    Causal,
}

/// One keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterKeyspace {
    /// Its name.
    pub name: String,
    /// How it is kept.
    pub model: ClusterModel,
    /// How many shards or partitions.
    pub partitions: u16,
}

impl ClusterFile {
    /// Reads and checks the file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: ClusterFile =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        file.check().map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(file)
    }

    fn check(&self) -> Result<(), String> {
        let mut ids: Vec<u16> = self.processes.iter().map(|process| process.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != self.processes.len() || ids.is_empty() {
            return Err("processes need different ids, and there must be one".to_owned());
        }
        for keyspace in &self.keyspaces {
            if keyspace.partitions == 0 {
                return Err(format!("keyspace '{}' needs at least one partition", keyspace.name));
            }
            if keyspace.model == ClusterModel::Strict && self.processes.len() % 2 == 0 {
                return Err(format!("keyspace '{}' is strict: it needs 1, 3, 5 ... processes", keyspace.name));
            }
        }
        if self.keyspaces.is_empty() { Err("there is no keyspace".to_owned()) } else { Ok(()) }
    }

    /// The process with this number.
    pub fn process(&self, id: u16) -> Option<&ClusterProcess> {
        self.processes.iter().find(|process| process.id == id)
    }
}
