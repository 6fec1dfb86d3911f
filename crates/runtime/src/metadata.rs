//! Which keyspaces there are: on one machine a small local file, replaced atomically.

use crate::error::StartError;
use crate::files;
use crate::keyspace::{class_of, durability_of};
use crate::user_types::StoredType;
use gateway::DurabilityClass;
use protocol::Durability;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "keyspaces.json";
/// 2: with user-defined types.
const VERSION: u32 = 2;

/// What is known of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyspaceEntry {
    /// Never used again after a drop.
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) durability: String,
}

impl KeyspaceEntry {
    pub(crate) fn new(id: u16, name: &str, durability: Durability) -> Self {
        let durability = class_of(durability).as_str().to_owned();
        KeyspaceEntry { id, name: name.to_owned(), model: "strict".to_owned(), durability }
    }

    pub(crate) fn durability(&self) -> Option<Durability> {
        DurabilityClass::from_name(self.durability.as_bytes()).map(durability_of)
    }
}

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    version: u32,
    /// The hash seed of the data: it stays while the data does.
    pub(crate) seed: u64,
    pub(crate) next_id: u16,
    pub(crate) keyspaces: Vec<KeyspaceEntry>,
    /// In the order of loading.
    #[serde(default)]
    pub(crate) types: Vec<StoredType>,
}

impl Metadata {
    /// The numbered keyspaces of a fresh directory; number 0 is `default`.
    pub(crate) fn fresh(databases: u16, durability: Durability, seed: u64) -> Self {
        let name = |number| if number == 0 { "default".to_owned() } else { format!("db{number}") };
        let keyspaces =
            (0..databases.max(1)).map(|number| KeyspaceEntry::new(number, &name(number), durability));
        Metadata {
            version: VERSION,
            seed,
            next_id: databases.max(1),
            keyspaces: keyspaces.collect(),
            types: Vec::new(),
        }
    }

    /// A cluster's keyspaces are named by its own file.
    pub(crate) fn of_cluster(seed: u64) -> Self {
        Metadata { version: VERSION, seed, next_id: 0, keyspaces: Vec::new(), types: Vec::new() }
    }

    /// Reads the file; `None` if there is none, which is an error unless the directory is fresh.
    pub(crate) fn load(directory: &Path, is_fresh: bool) -> Result<Option<Self>, StartError> {
        let file = directory.join(FILE);
        let damaged = |reason: String| StartError::Metadata { file: file.clone(), reason };
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound && is_fresh => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(damaged("it is missing, although the directory holds a log".to_owned()));
            }
            Err(error) => return Err(damaged(error.to_string())),
        };
        let metadata: Metadata =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if metadata.version > VERSION {
            return Err(damaged(format!(
                "version {} is newer than this program's {VERSION}",
                metadata.version
            )));
        }
        for entry in &metadata.keyspaces {
            if entry.durability().is_none() || entry.model != "strict" {
                return Err(damaged(format!("keyspace '{}' has unknown options", entry.name)));
            }
        }
        Ok(Some(metadata))
    }

    /// Replaces the file, durably.
    pub(crate) fn save(&self, directory: &Path) -> std::io::Result<()> {
        files::replace(&directory.join(FILE), self)
    }
}
