//! The keyspaces of a cluster: one file that all its processes share, replaced atomically under a lock. Entries are
//! added at its end and stay, so a process that knows fewer is only late.

use super::config::{ClusterConcurrency, ClusterFile, ClusterKeyspace, ClusterModel};
use crate::files;
use gateway::{KeyspaceOptions, Model};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use types::{Error, ErrorCode};

/// The most shards or partitions of one keyspace.
const MAX_PARTITIONS: u16 = 1024;

/// The file's content. Written first by `cluster local`, then by `KEYSPACE CREATE` at any process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterCatalog {
    /// Every keyspace; the first is number 0.
    pub keyspaces: Vec<ClusterKeyspace>,
}

impl ClusterCatalog {
    /// Reads the file and checks it.
    ///
    /// # Errors
    /// Says what is wrong, with the file's name.
    pub fn load(path: &Path, cluster: &ClusterFile) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let catalog: ClusterCatalog =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        catalog.check(cluster).map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(catalog)
    }

    /// Replaces the file, durably.
    ///
    /// # Errors
    /// As the file system's.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        files::replace(path, self)
    }

    /// Can this cluster keep these keyspaces?
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, cluster: &ClusterFile) -> Result<(), String> {
        let names: BTreeSet<&str> = self.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
        if names.len() != self.keyspaces.len() || names.is_empty() {
            return Err("keyspaces need different names, and there must be one".to_owned());
        }
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.check(cluster))
    }
}

impl ClusterKeyspace {
    fn check(&self, cluster: &ClusterFile) -> Result<(), String> {
        let (name, processes) = (&self.name, cluster.processes.len());
        if !(1..=MAX_PARTITIONS).contains(&self.partitions) {
            return Err(format!("keyspace '{name}' needs 1 to {MAX_PARTITIONS} partitions"));
        }
        let replicas = usize::from(self.replicas.unwrap_or(processes as u16));
        match self.model {
            ClusterModel::Strict if replicas.is_multiple_of(2) || replicas > processes => Err(format!(
                "keyspace '{name}' is strict: it needs 1, 3, 5 ... replicas of a shard, each on a process of its \
                 own, and the cluster has {processes}"
            )),
            ClusterModel::Causal if self.concurrency != ClusterConcurrency::Optimistic => {
                Err(format!("keyspace '{name}' is not strict: it has no concurrency"))
            }
            ClusterModel::Causal if self.replicas.is_some() => {
                Err(format!("keyspace '{name}' is causal: it has one replica in every region"))
            }
            ClusterModel::Strict | ClusterModel::Causal => Ok(()),
        }
    }

    /// What `KEYSPACE CREATE` asks for.
    fn wanted(name: String, options: &KeyspaceOptions<'_>) -> Result<Self, Error> {
        let model = match options.model {
            Some(Model::Causal) => ClusterModel::Causal,
            None | Some(Model::Strict) => ClusterModel::Strict,
            Some(model) => return Err(Error::err(format!("model '{}' is not built yet", model.as_str()))),
        };
        if options.durability.is_some() {
            return Err(Error::err(
                "in a cluster every process has one durability, said where it is started",
            ));
        }
        let concurrency = ClusterConcurrency::default();
        let mut wanted = ClusterKeyspace { name, model, partitions: 2, replicas: None, concurrency };
        for (option, value) in &options.others {
            let text = String::from_utf8_lossy(value);
            let number = || {
                text.parse::<u16>().map_err(|_| {
                    let option = String::from_utf8_lossy(option);
                    Error::err(format!("{option} is a number, not '{text}'"))
                })
            };
            match option.to_ascii_uppercase().as_slice() {
                b"PARTITIONS" => wanted.partitions = number()?,
                b"REPLICAS" => wanted.replicas = Some(number()?),
                b"CONCURRENCY" => {
                    wanted.concurrency = ClusterConcurrency::from_name(&text).ok_or_else(|| {
                        Error::err(format!("CONCURRENCY is optimistic, locking or occ, not '{text}'"))
                    })?;
                }
                _ => {
                    return Err(Error::err(format!(
                        "unknown keyspace option '{}'; a cluster knows MODEL, PARTITIONS, REPLICAS and CONCURRENCY",
                        String::from_utf8_lossy(option)
                    )));
                }
            }
        }
        Ok(wanted)
    }
}

/// The catalog as this process knows it.
pub(crate) struct Catalog {
    path: PathBuf,
    content: ClusterCatalog,
    /// The file that `content` was read from: its inode, size and time of change.
    seen: Option<(u64, u64, i64, i64)>,
}

impl Catalog {
    pub(crate) fn open(cluster: &ClusterFile) -> Result<Self, String> {
        let path = cluster.catalog.clone();
        let seen = identify(&path);
        Ok(Catalog { content: ClusterCatalog::load(&path, cluster)?, path, seen })
    }

    /// In the order of their numbers.
    pub(crate) fn keyspaces(&self) -> &[ClusterKeyspace] {
        &self.content.keyspaces
    }

    /// Reads the file again if it has changed. What is known stays as it is, whatever the file says.
    pub(crate) fn refresh(&mut self, cluster: &ClusterFile) {
        let now = identify(&self.path);
        if now == self.seen {
            return;
        }
        self.seen = now;
        match ClusterCatalog::load(&self.path, cluster) {
            Ok(content) if content.keyspaces.starts_with(self.keyspaces()) => self.content = content,
            Ok(_) => tracing::error!(
                file = %self.path.display(),
                "the list of keyspaces has lost or changed some that are served here; restore it from a backup"
            ),
            Err(error) => tracing::error!(%error, "the list of keyspaces cannot be read"),
        }
    }

    /// Adds a keyspace, durably and for every process.
    pub(crate) fn create(
        &mut self,
        name: String,
        options: &KeyspaceOptions<'_>,
        cluster: &ClusterFile,
    ) -> Result<(), Error> {
        let wanted = ClusterKeyspace::wanted(name, options)?;
        wanted.check(cluster).map_err(Error::err)?;
        let failed = |error: std::io::Error| {
            let text = format!("the list of keyspaces {} cannot be changed: {error}", self.path.display());
            Error::new(ErrorCode::Misconf, text)
        };
        let lock = File::create(self.path.with_extension("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = "another process is creating a keyspace; retry";
                return Err(Error::new(ErrorCode::Unavailable, text));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut content = ClusterCatalog::load(&self.path, cluster).map_err(|error| {
            Error::new(ErrorCode::Misconf, format!("the list of keyspaces is damaged: {error}"))
        })?;
        if content.keyspaces.iter().any(|keyspace| keyspace.name == wanted.name) {
            return Err(Error::err(format!("keyspace '{}' exists already", wanted.name)));
        }
        content.keyspaces.push(wanted);
        content.save(&self.path).map_err(failed)?;
        drop(lock);
        self.refresh(cluster);
        Ok(())
    }
}

fn identify(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}
