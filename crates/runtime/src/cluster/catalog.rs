//! The keyspaces of a cluster: one file that all its processes share, replaced atomically under a lock. Entries are
//! added at its end and stay, dropped ones too, so that an entry's place is its keyspace's number for ever and a process
//! that knows fewer is only late. A process by itself has the file in its data directory, or none.

use super::config::ClusterFile;
use super::models::{ClusterKeyspace, Models};
use crate::files::{self, identify};
use crate::functions::{self, StoredLibrary};
use crate::user_types::{self, StoredType};
use gateway::{FunctionLibraries, KeyspaceOptions, LibraryChange};
use protocol::Durability;
use protocol::model::{ClusterShape, OptionWords, PartitionMove, StoredOptions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{Error, ErrorCode};

/// The file's content. Written first by `cluster local`, then by `KEYSPACE CREATE` at any process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterCatalog {
    /// The cluster's seed, of a process by itself: others have it in their [`ClusterFile`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Every keyspace; the first is number 0.
    pub keyspaces: Vec<ClusterKeyspace>,
    /// The user-defined types, in the order of loading.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<StoredType>,
    /// The libraries of functions, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<StoredLibrary>,
}

impl ClusterCatalog {
    /// Reads the file and checks it.
    ///
    /// # Errors
    /// Says what is wrong, with the file's name.
    pub fn load(path: &Path, models: Models, cluster: &ClusterShape) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let catalog: ClusterCatalog =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        catalog.check(models, cluster).map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(catalog)
    }

    /// Replaces the file, durably.
    ///
    /// # Errors
    /// As the file system's.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        files::replace(path, self)
    }

    /// Can this cluster keep these keyspaces, with these models?
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, models: Models, cluster: &ClusterShape) -> Result<(), String> {
        let served = || self.keyspaces.iter().filter(|keyspace| !keyspace.dropped);
        let names: BTreeSet<&str> = served().map(|keyspace| keyspace.name.as_str()).collect();
        if names.len() != served().count() || names.is_empty() {
            return Err("keyspaces need different names, and there must be one".to_owned());
        }
        served().try_for_each(|keyspace| keyspace.check(models, cluster))
    }

    /// True if this is what `earlier` may have become: more keyspaces, some dropped or altered where they may be, and more
    /// types.
    fn follows(&self, earlier: &ClusterCatalog, models: Models) -> bool {
        let keyspaces = &earlier.keyspaces;
        let unchanged = self.keyspaces.iter().zip(keyspaces).all(|(now, then)| now.follows(then, models));
        unchanged && self.keyspaces.len() >= keyspaces.len() && self.types.starts_with(&earlier.types)
    }
}

/// Why a keyspace with replicas has no durability of its own.
const ONE_DURABILITY: &str = "a keyspace with replicas has the durability of its processes, said where each is started: \
                              its keyspaces share a log, and what a process has forgotten counts for all of them; a strict \
                              keyspace of a single process without REPLICAS and CONCURRENCY has its own";

/// The options that a command names, for their model.
fn words<'o>(options: &KeyspaceOptions<'o>) -> OptionWords<'o> {
    OptionWords::new(options.regions.clone(), &options.others)
}

/// Fails if a keyspace with replicas is to have a durability of its own.
fn check_replicated(words: &OptionWords<'_>) -> Result<(), Error> {
    words.get("DURABILITY").map_or(Ok(()), |_| Err(Error::err(ONE_DURABILITY)))
}

/// The most keyspaces that were ever created: the number above is for what processes tell each other.
const MAX_KEYSPACES: usize = u16::MAX as usize;

/// The catalog as this process knows it.
pub(crate) struct Catalog {
    /// `None` if the process stores nothing on disk.
    path: Option<PathBuf>,
    models: Models,
    cluster: ClusterShape,
    content: ClusterCatalog,
    /// How many numbers `SELECT` takes at a process by itself; in a cluster each keyspace has one.
    databases: Option<u16>,
    functions: Arc<FunctionLibraries>,
    /// How many of its types, from the first one, can be used here.
    known_types: usize,
    /// How many of them threads of this process may name, from now on.
    nameable_types: Arc<AtomicU64>,
    /// The file that `content` was read from: its inode, size and time of change.
    seen: Option<(u64, u64, i64, i64)>,
}

impl Catalog {
    /// Reads the cluster's list.
    pub(crate) fn open(file: &ClusterFile, models: Models) -> Result<Self, String> {
        let (path, cluster) = (file.catalog.clone(), file.shape());
        let seen = identify(&path);
        let content = ClusterCatalog::load(&path, models, &cluster)?;
        Catalog::new(content, Some(path), seen, models, cluster)
    }

    /// The list of a process by itself, which has been read or made up, and written to `path` if there is one. `SELECT` takes
    /// `databases` numbers.
    pub(crate) fn single_process(
        content: ClusterCatalog,
        path: Option<PathBuf>,
        cluster: ClusterShape,
        models: Models,
        databases: u16,
    ) -> Result<Self, String> {
        content.check(models, &cluster)?;
        let seen = path.as_deref().and_then(identify);
        let catalog = Catalog::new(content, path, seen, models, cluster)?;
        Ok(Catalog { databases: Some(databases.max(1)), ..catalog })
    }

    fn new(
        content: ClusterCatalog,
        path: Option<PathBuf>,
        seen: Option<(u64, u64, i64, i64)>,
        models: Models,
        cluster: ClusterShape,
    ) -> Result<Self, String> {
        user_types::register_all(&content.types)?;
        let known_types = content.types.len();
        let nameable_types = Arc::new(AtomicU64::new(known_types as u64));
        let functions = Arc::new(functions::read(&content.functions)?);
        let databases = None;
        Ok(Catalog {
            path,
            models,
            cluster,
            content,
            databases,
            functions,
            known_types,
            nameable_types,
            seen,
        })
    }

    /// True if `SELECT number` chooses the keyspace with this number.
    pub(crate) fn serves(&self, number: usize) -> bool {
        let Some(entry) = self.keyspaces().get(number).filter(|entry| !entry.dropped) else { return false };
        let chosen = |databases: u16| number < usize::from(databases) && entry.name == numbered_name(number);
        self.databases.is_none_or(chosen)
    }

    /// How many numbers `SELECT` takes.
    pub(crate) fn numbers(&self) -> usize {
        self.databases.map_or(self.keyspaces().len(), usize::from)
    }

    /// In the order of their numbers.
    pub(crate) fn keyspaces(&self) -> &[ClusterKeyspace] {
        &self.content.keyspaces
    }

    /// The models of the keyspaces.
    pub(crate) fn models(&self) -> Models {
        self.models
    }

    /// The cluster as models see it.
    pub(crate) fn cluster(&self) -> &ClusterShape {
        &self.cluster
    }

    /// How many of the list's types, from the first one, this process knows.
    pub(crate) fn known_types(&self) -> usize {
        self.known_types
    }

    /// How many of them threads of this process may name: noted before the first may.
    pub(crate) fn nameable_types(&self) -> &Arc<AtomicU64> {
        &self.nameable_types
    }

    /// Reads the file again if it has changed. What is known stays as it is, whatever the file says.
    pub(crate) fn refresh(&mut self) {
        let Some(path) = &self.path else { return };
        let now = identify(path);
        if now == self.seen {
            return;
        }
        let loaded = ClusterCatalog::load(path, self.models, &self.cluster);
        self.seen = now;
        match loaded {
            Ok(content) if content.follows(&self.content, self.models) => {
                self.nameable_types.store(content.types.len() as u64, Ordering::Release);
                match user_types::register_all(&content.types) {
                    Ok(()) => self.known_types = content.types.len(),
                    Err(reason) => tracing::error!(%reason, "a type of the list cannot be used here"),
                }
                self.nameable_types.store(self.known_types as u64, Ordering::Release);
                self.note_functions(&content);
                self.content = content;
            }
            Ok(_) => tracing::error!(
                "the list of keyspaces has lost or changed some that are served here; restore it from a backup"
            ),
            Err(error) => tracing::error!(%error, "the list of keyspaces cannot be read"),
        }
    }

    /// Adds a keyspace, durably and for every process. `durability` is that of a keyspace that the cluster's only process
    /// keeps by itself, unless the options say another one.
    pub(crate) fn create(
        &mut self,
        name: String,
        options: &KeyspaceOptions<'_>,
        durability: Durability,
    ) -> Result<(), Error> {
        let model = options.model.map_or("strict", |model| model.as_str());
        let words = words(options);
        let wanted = match self.solo(model, &words, durability)? {
            Some(options) => ClusterKeyspace { name, model: model.to_owned(), options, dropped: false },
            None => {
                check_replicated(&words)?;
                self.models.keyspace(name, model, &words)?
            }
        };
        wanted.check(self.models, &self.cluster).map_err(Error::err)?;
        self.change(|keyspaces| {
            if keyspaces.iter().any(|keyspace| !keyspace.dropped && keyspace.name == wanted.name) {
                return Err(Error::err(format!("keyspace '{}' exists already", wanted.name)));
            }
            if keyspaces.len() >= MAX_KEYSPACES {
                return Err(Error::err(format!("{MAX_KEYSPACES} keyspaces have been created; no more")));
            }
            keyspaces.push(wanted);
            Ok(())
        })
    }

    /// The options of a keyspace that the cluster's only process can keep by itself.
    fn solo(
        &self,
        model: &str,
        words: &OptionWords<'_>,
        durability: Durability,
    ) -> Result<Option<StoredOptions>, Error> {
        let &[process] = &self.cluster.processes()[..] else { return Ok(None) };
        self.models.named(model).map_err(Error::err)?.create_solo(words, process, durability)
    }

    /// Notes that a partition is to move, durably and for every process, before any replica gets the order.
    pub(crate) fn note_move(
        &mut self,
        keyspace: usize,
        partition: u16,
        to: &PartitionMove,
    ) -> Result<(), Error> {
        let models = self.models;
        self.change(|keyspaces| {
            let entry = keyspaces.get_mut(keyspace);
            let entry = entry.ok_or_else(|| Error::err("the list of keyspaces has lost this one"))?;
            let model = models.named(&entry.model);
            let noted = model.and_then(|model| model.note_move(&entry.options, partition, to));
            entry.options = noted.map_err(|reason| Error::err(entry.reason(&reason)))?;
            Ok(())
        })
    }

    /// Notes that a region is gone for good, durably and for every process, before any process is notified.
    /// `own_region` is the region of this process.
    pub(crate) fn note_eviction(&mut self, name: &str, region: &str, own_region: &str) -> Result<(), Error> {
        let (models, cluster) = (self.models, self.cluster.clone());
        self.change(|keyspaces| {
            let entry = named(keyspaces, name)?.1;
            let model = models.named(&entry.model);
            let noted =
                model.and_then(|model| model.note_eviction(&entry.options, region, own_region, &cluster));
            entry.options = noted.map_err(|reason| Error::err(entry.reason(&reason)))?;
            Ok(())
        })
    }

    /// Changes options of a keyspace, durably and for every process.
    pub(crate) fn alter(&mut self, name: &str, options: &KeyspaceOptions<'_>) -> Result<(), Error> {
        if options.model.is_some() {
            return Err(Error::err("MODEL stays: another model keeps its data in another way"));
        }
        let words = words(options);
        let (models, cluster) = (self.models, self.cluster.clone());
        self.change(|keyspaces| {
            let entry = named(keyspaces, name)?.1;
            let model = models.named(&entry.model).map_err(Error::err)?;
            if model.solo(&entry.options).is_none() {
                check_replicated(&words)?;
            }
            entry.options = model.alter(&entry.options, &words)?;
            entry.check(models, &cluster).map_err(Error::err)
        })
    }

    /// Adds a type, durably and for every process.
    pub(crate) fn add_type(&mut self, new: &StoredType) -> Result<(), Error> {
        self.change_content(|content| user_types::add_to(&mut content.types, new))
    }

    /// Changes the libraries of functions, durably and for every process.
    pub(crate) fn change_libraries(&mut self, change: &LibraryChange) -> Result<(), Error> {
        self.change_content(|content| functions::change(&mut content.functions, change))
    }

    /// The libraries of functions.
    pub(crate) fn functions(&self) -> &Arc<FunctionLibraries> {
        &self.functions
    }

    /// Makes the libraries of a list known.
    fn note_functions(&mut self, content: &ClusterCatalog) {
        if content.functions == self.content.functions {
            return;
        }
        match functions::read(&content.functions) {
            Ok(libraries) => self.functions = Arc::new(libraries),
            Err(reason) => tracing::error!(%reason, "the functions stay as they were"),
        }
    }

    /// Drops a keyspace, durably and for every process.
    pub(crate) fn drop_keyspace(&mut self, name: &str) -> Result<(), Error> {
        let numbered = (0..self.databases.unwrap_or(0)).any(|number| numbered_name(number.into()) == name);
        self.change(|keyspaces| match named(keyspaces, name)? {
            (0, _) => Err(Error::err(format!(
                "keyspace '{name}' is the one that clients begin in; empty it with FLUSHDB"
            ))),
            (index, _) if numbered && numbered_name(index) == name => Err(Error::err(format!(
                "keyspace '{name}' belongs to a SELECT number; empty it with FLUSHDB"
            ))),
            (_, entry) => {
                entry.dropped = true;
                Ok(())
            }
        })
    }

    /// Changes the keyspaces; see `change_content`.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Vec<ClusterKeyspace>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.change_content(|content| change(&mut content.keyspaces))
    }

    /// Changes the file under its lock, durably.
    fn change_content(
        &mut self,
        change: impl FnOnce(&mut ClusterCatalog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(path) = &self.path else {
            let mut content = self.content.clone();
            change(&mut content)?;
            self.note_functions(&content);
            (self.known_types, self.content) = (content.types.len(), content);
            return Ok(());
        };
        let failed = |error: std::io::Error| {
            let text = format!("the list of keyspaces {} cannot be changed: {error}", path.display());
            Error::new(ErrorCode::Misconf, text)
        };
        let lock = File::create(path.with_extension("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = "another process is changing the list of keyspaces; retry";
                return Err(Error::new(ErrorCode::Unavailable, text));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let loaded = ClusterCatalog::load(path, self.models, &self.cluster);
        let mut content = loaded.map_err(|error| {
            Error::new(ErrorCode::Misconf, format!("the list of keyspaces is damaged: {error}"))
        })?;
        let before = content.clone();
        change(&mut content)?;
        if content != before {
            content.save(path).map_err(failed)?;
        }
        drop(lock);
        self.refresh();
        Ok(())
    }
}

/// The name of the keyspace that `SELECT number` chooses at a process by itself.
pub(super) fn numbered_name(number: usize) -> String {
    if number == 0 { "default".to_owned() } else { format!("db{number}") }
}

/// The keyspace of a name, with its number.
fn named<'k>(
    keyspaces: &'k mut [ClusterKeyspace],
    name: &str,
) -> Result<(usize, &'k mut ClusterKeyspace), Error> {
    let mut served = keyspaces.iter_mut().enumerate().filter(|(_, keyspace)| !keyspace.dropped);
    let no_such = || Error::err(format!("no keyspace '{name}'; KEYSPACE LIST names them"));
    served.find(|(_, keyspace)| keyspace.name == name).ok_or_else(no_such)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::model::RegionShape;
    use types::HashSeed;

    const MODELS: Models = Models::new(&[&strict::model::Strict]);

    fn catalog(names: &[&str]) -> ClusterCatalog {
        let keyspace = |name: &&str| {
            MODELS.keyspace((*name).to_owned(), "strict", &OptionWords::default()).expect("no options")
        };
        let keyspaces = names.iter().map(keyspace).collect();
        ClusterCatalog { seed: None, keyspaces, types: Vec::new(), functions: Vec::new() }
    }

    fn cluster(processes: u16) -> ClusterShape {
        let region = RegionShape { name: "a".to_owned(), processes: (1..=processes).collect() };
        ClusterShape { seed: HashSeed(1), regions: vec![region] }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        assert_eq!(catalog(&["a", "b"]).check(MODELS, &cluster(3)), Ok(()));
        assert!(catalog(&["a", "a"]).check(MODELS, &cluster(3)).unwrap_err().contains("names"));
        assert!(catalog(&["a"]).check(MODELS, &cluster(2)).unwrap_err().contains("keyspace 'a': a strict"));
        let mut other = catalog(&["a"]);
        other.keyspaces[0].model = "eventual".to_owned();
        assert!(
            other
                .check(MODELS, &cluster(3))
                .unwrap_err()
                .contains("no model 'eventual' here; there are strict")
        );
    }

    #[test]
    fn a_list_may_only_grow() {
        let (one, two) = (catalog(&["a"]), catalog(&["a", "b"]));
        assert!(two.follows(&one, MODELS) && !one.follows(&two, MODELS));
        let mut dropped = two.clone();
        dropped.keyspaces[1].dropped = true;
        assert!(dropped.follows(&two, MODELS) && !two.follows(&dropped, MODELS));
        assert_eq!(dropped.check(MODELS, &cluster(3)), Ok(()));
    }
}
