//! The keyspaces of a cluster: one file that all its processes share, replaced atomically under a lock. Entries are
//! added at its end and stay, dropped ones too, so that an entry's place is its keyspace's number for ever and a process
//! that knows fewer is only late.

use super::config::{
    ClusterBranching, ClusterConcurrency, ClusterFile, ClusterIsolation, ClusterKeyspace, ClusterModel,
    ClusterMove, ClusterProtocol,
};
use crate::files::{self, identify};
use crate::user_types::{self, StoredType};
use causal::baselines::MAX_REGIONS;
use gateway::{KeyspaceOptions, Model};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use types::{Error, ErrorCode};

/// The most shards or partitions of one keyspace.
const MAX_PARTITIONS: u16 = 1024;
/// The longest wait for transactions with lower timestamps: requests are given up after five seconds.
const MAX_SKEW_WAIT_MS: u64 = 1_000;

/// The file's content. Written first by `cluster local`, then by `KEYSPACE CREATE` at any process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterCatalog {
    /// Every keyspace; the first is number 0.
    pub keyspaces: Vec<ClusterKeyspace>,
    /// The user-defined types, in the order of loading.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<StoredType>,
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
        let served = || self.keyspaces.iter().filter(|keyspace| !keyspace.dropped);
        let names: BTreeSet<&str> = served().map(|keyspace| keyspace.name.as_str()).collect();
        if names.len() != served().count() || names.is_empty() {
            return Err("keyspaces need different names, and there must be one".to_owned());
        }
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.check(cluster))
    }

    /// True if this is what `earlier` may have become: more keyspaces, some dropped or altered where they may be, and more
    /// types.
    fn follows(&self, earlier: &ClusterCatalog) -> bool {
        let keyspaces = &earlier.keyspaces;
        let kept = self.keyspaces.iter().zip(keyspaces).all(|(now, then)| *now == then.altered_to(now));
        kept && self.keyspaces.len() >= keyspaces.len() && self.types.starts_with(&earlier.types)
    }
}

impl ClusterKeyspace {
    fn check(&self, cluster: &ClusterFile) -> Result<(), String> {
        let (name, processes) = (&self.name, cluster.processes.len());
        if !(1..=MAX_PARTITIONS).contains(&self.partitions) {
            return Err(format!("keyspace '{name}' needs 1 to {MAX_PARTITIONS} partitions"));
        }
        self.check_copies(cluster)?;
        let replicas = usize::from(self.replicas.unwrap_or(processes as u16));
        match self.model {
            ClusterModel::Strict if replicas.is_multiple_of(2) || replicas > processes => Err(format!(
                "keyspace '{name}' is strict: it needs 1, 3, 5 ... replicas of a shard, each on a process of its \
                 own, and the cluster has {processes}"
            )),
            ClusterModel::Causal | ClusterModel::Branch
                if self.concurrency != ClusterConcurrency::Optimistic =>
            {
                Err(format!("keyspace '{name}' is not strict: it has no concurrency"))
            }
            _ if self.concurrency != ClusterConcurrency::Locking
                && (self.without_phases
                    || self.without_combining
                    || self.readers_and_writers
                    || self.without_locks) =>
            {
                Err(format!("keyspace '{name}': PHASING, COMBINING and LOCKS are for CONCURRENCY locking"))
            }
            _ if self.without_locks && (self.without_phases || self.without_combining) => {
                Err(format!("keyspace '{name}': LOCKS none has no locks, no PHASING and no COMBINING"))
            }
            _ if !self.is_optimistic() && self.options_of_optimistic() => Err(format!(
                "keyspace '{name}': ISOLATION, CLOCKBOUND and SKEWWAIT are for MODEL strict with CONCURRENCY optimistic"
            )),
            _ if self.clock_bound_ms == Some(0) || self.skew_wait_ms.unwrap_or(0) > MAX_SKEW_WAIT_MS => {
                Err(format!(
                    "keyspace '{name}': CLOCKBOUND is 1 millisecond or more, and SKEWWAIT at most {MAX_SKEW_WAIT_MS}"
                ))
            }
            ClusterModel::Strict if !self.regions.is_empty() => {
                Err(format!("keyspace '{name}' is strict: it has no regions of its own"))
            }
            ClusterModel::Branch if self.replicas.is_some() || !self.regions.is_empty() => Err(format!(
                "keyspace '{name}' is branch: it has one site in every region, with all keys; leave REPLICAS and \
                     REGIONS out"
            )),
            ClusterModel::Branch if self.branching.merges_by_handler && self.branching.handler.is_none() => {
                Err(format!(
                    "keyspace '{name}': MERGE handler needs HANDLER, a program in Lua that defines resolve(key, conflict) or \
                     merge(keys)"
                ))
            }
            ClusterModel::Branch if self.branching.collects_early && self.partitions > 1 => Err(format!(
                "keyspace '{name}': COLLECT optimistic needs the records with the State DAG; leave PARTITIONS out, or COLLECT \
                 pessimistic"
            )),
            ClusterModel::Strict | ClusterModel::Causal if self.branching != ClusterBranching::default() => {
                Err(format!(
                    "keyspace '{name}': MERGE, HANDLER, EVERY, LOCAL, UNRESOLVED, KEEP, KEEPFOR, COLLECT and QUEUE are for MODEL branch"
                ))
            }
            ClusterModel::Strict | ClusterModel::Branch if self.protocol != ClusterProtocol::Usual => {
                Err(format!("keyspace '{name}' is not causal: PROTOCOL is for MODEL causal"))
            }
            ClusterModel::Causal => self.check_protocol(cluster).and_then(|()| self.check_regions(cluster)),
            ClusterModel::Strict | ClusterModel::Branch => Ok(()),
        }
    }

    /// Cure's snapshots need all partitions in every region, and have a place for so many regions.
    fn check_protocol(&self, cluster: &ClusterFile) -> Result<(), String> {
        let (name, protocol) = (&self.name, self.protocol.as_str());
        let is_cure = self.protocol.is_cure();
        if is_cure && self.is_partial() {
            return Err(format!(
                "keyspace '{name}': PROTOCOL {protocol} keeps every partition in every region; leave REPLICAS and REGIONS \
                 out, or take PROTOCOL bpr"
            ));
        }
        if is_cure && usize::from(cluster.regions()) > MAX_REGIONS {
            return Err(format!(
                "keyspace '{name}': PROTOCOL {protocol} is for at most {MAX_REGIONS} regions"
            ));
        }
        Ok(())
    }

    fn is_optimistic(&self) -> bool {
        self.model == ClusterModel::Strict && self.concurrency == ClusterConcurrency::Optimistic
    }

    fn options_of_optimistic(&self) -> bool {
        self.isolation != ClusterIsolation::Strict
            || self.clock_bound_ms.is_some()
            || self.skew_wait_ms.is_some()
    }

    /// What `KEYSPACE ALTER` asks for.
    fn alter(&mut self, options: &KeyspaceOptions<'_>) -> Result<(), Error> {
        if options.model.is_some() {
            return Err(Error::err("MODEL stays: another model keeps its data in another way"));
        }
        if options.durability.is_some() {
            return Err(Error::err(ONE_DURABILITY));
        }
        if !options.regions.is_empty() {
            return Err(Error::err(
                "REGIONS stays: partitions do not move yet; create another keyspace and copy",
            ));
        }
        for (option, value) in &options.others {
            let reason = match option.to_ascii_uppercase().as_slice() {
                b"PARTITIONS" => "PARTITIONS stays: keys do not move between shards yet",
                b"REPLICAS" => "REPLICAS stays: shards do not change their members yet",
                b"CONCURRENCY" => {
                    "CONCURRENCY stays: transactions that are under way would not know of each other"
                }
                b"PHASING" | b"LOCKS" => {
                    "PHASING and LOCKS stay: leaders would hand out locks by different rules"
                }
                b"COMBINING" => {
                    "COMBINING stays: every process reads it when it begins to serve the keyspace"
                }
                b"PROTOCOL" => "PROTOCOL stays: another one keeps its data in another way",
                b"CONFLICTS" => "CONFLICTS stays: who lost to whom is not known of what was not recorded",
                b"ISOLATION" => {
                    "ISOLATION stays: what was promised when it was created holds for what is under way"
                }
                _ => {
                    self.set_alterable(option, value)?;
                    continue;
                }
            };
            return Err(Error::err(format!("{reason}; create another keyspace and copy")));
        }
        Ok(())
    }

    fn set_alterable(&mut self, option: &[u8], value: &[u8]) -> Result<(), Error> {
        let branching = &mut self.branching;
        match option.to_ascii_uppercase().as_slice() {
            b"MERGE" => {
                let how = one_of(option, value, ["manual", "auto", "handler"])?;
                let usual = ClusterBranching::default().merge_every_ms;
                let every = match branching.merge_every_ms {
                    0 => usual,
                    every => every,
                };
                branching.merge_every_ms = if how == 0 { 0 } else { every };
                branching.merges_by_handler = how == 2;
            }
            b"HANDLER" if value.is_empty() => branching.handler = None,
            b"HANDLER" => {
                let source =
                    str::from_utf8(value).map_err(|_| Error::err("HANDLER is a program in UTF-8"))?;
                scripts::Program::new(source).map_err(|reason| Error::err(format!("HANDLER: {reason}")))?;
                branching.handler = Some(source.to_owned());
            }
            b"EVERY" => branching.merge_every_ms = number(option, value)?,
            b"LOCAL" => branching.forks_locally = one_of(option, value, ["serialize", "branch"])? == 1,
            b"UNRESOLVED" => branching.newest_wins = one_of(option, value, ["refuse", "newest"])? == 1,
            b"KEEP" => branching.keep = number(option, value)?,
            b"KEEPFOR" => branching.keep_for_ms = Some(number(option, value)?),
            b"COLLECT" => {
                branching.collects_early = one_of(option, value, ["pessimistic", "optimistic"])? == 1;
            }
            b"QUEUE" => branching.queue_bytes = number(option, value)?,
            b"CLOCKBOUND" => self.clock_bound_ms = Some(number(option, value)?),
            b"SKEWWAIT" => self.skew_wait_ms = Some(number(option, value)?),
            _ => {
                return Err(Error::err(format!(
                    "unknown keyspace option '{}'; a cluster knows MODEL, PARTITIONS, REPLICAS, COPIES, REGIONS, CONCURRENCY, \
                     PHASING, COMBINING, LOCKS, PROTOCOL, CONFLICTS, ISOLATION, CLOCKBOUND and SKEWWAIT, and of branch keyspaces MERGE, HANDLER, EVERY, LOCAL, \
                     UNRESOLVED, KEEP, KEEPFOR, COLLECT and QUEUE",
                    String::from_utf8_lossy(option)
                )));
            }
        }
        Ok(())
    }

    /// What `KEYSPACE CREATE` asks for.
    fn wanted(name: String, options: &KeyspaceOptions<'_>) -> Result<Self, Error> {
        let model = match options.model {
            Some(Model::Causal) => ClusterModel::Causal,
            Some(Model::Branch) => ClusterModel::Branch,
            None | Some(Model::Strict) => ClusterModel::Strict,
        };
        if options.durability.is_some() {
            return Err(Error::err(ONE_DURABILITY));
        }
        let partitions = if model == ClusterModel::Branch { 1 } else { 2 };
        let mut wanted = ClusterKeyspace::new(name, model, partitions);
        let regions = options.regions.iter().map(|region| String::from_utf8_lossy(region).into_owned());
        wanted.regions = regions.collect();
        for (option, value) in &options.others {
            let text = String::from_utf8_lossy(value);
            match option.to_ascii_uppercase().as_slice() {
                b"PARTITIONS" => wanted.partitions = number(option, value)?,
                b"REPLICAS" => wanted.replicas = Some(number(option, value)?),
                b"COPIES" => wanted.copies = Some(number(option, value)?),
                b"CONFLICTS" => {
                    wanted.ignore_conflicts = match &*text.to_ascii_lowercase() {
                        "record" => false,
                        "ignore" => true,
                        _ => return Err(Error::err(format!("CONFLICTS is record or ignore, not '{text}'"))),
                    };
                    if wanted.model != ClusterModel::Causal {
                        return Err(Error::err(STRICT_LOSES_NOTHING));
                    }
                }
                b"PROTOCOL" => {
                    wanted.protocol = ClusterProtocol::from_name(&text).ok_or_else(|| {
                        Error::err(format!(
                            "PROTOCOL is usual, cure, h-cure, bpr, cure-applied, h-cure-applied or nocc, not \
                             '{text}'"
                        ))
                    })?;
                }
                b"ISOLATION" => {
                    wanted.isolation = ClusterIsolation::from_name(&text).ok_or_else(|| {
                        Error::err(format!("ISOLATION is strict or serializable, not '{text}'"))
                    })?;
                }
                b"CONCURRENCY" => {
                    wanted.concurrency = ClusterConcurrency::from_name(&text).ok_or_else(|| {
                        Error::err(format!(
                            "CONCURRENCY is optimistic, locking, occ or qwstore, not '{text}'"
                        ))
                    })?;
                }
                b"PHASING" => wanted.without_phases = one_of(option, value, ["on", "off"])? == 1,
                b"COMBINING" => wanted.without_combining = one_of(option, value, ["on", "off"])? == 1,
                b"LOCKS" => {
                    let which = one_of(option, value, ["typed", "readwrite", "none"])?;
                    (wanted.readers_and_writers, wanted.without_locks) = (which == 1, which == 2);
                }
                _ => wanted.set_alterable(option, value)?,
            }
        }
        Ok(wanted)
    }
}

/// Why only causal keyspaces have conflicts.
const STRICT_LOSES_NOTHING: &str =
    "CONFLICTS is for MODEL causal: elsewhere no write is lost to a concurrent one";

/// Why a keyspace of a cluster has no durability of its own.
const ONE_DURABILITY: &str = "in a cluster every process has one durability, said where it is started: its keyspaces \
                              share a log, and what a process has forgotten counts for all of them";

/// Which of the two words an option is.
fn one_of<const N: usize>(option: &[u8], value: &[u8], words: [&str; N]) -> Result<usize, Error> {
    let found = words.iter().position(|word| value.eq_ignore_ascii_case(word.as_bytes()));
    found.ok_or_else(|| {
        let (option, value) = (String::from_utf8_lossy(option), String::from_utf8_lossy(value));
        Error::err(format!("{option} is {}, not '{value}'", words.join(" or ")))
    })
}

fn number<N: std::str::FromStr>(option: &[u8], value: &[u8]) -> Result<N, Error> {
    let text = String::from_utf8_lossy(value);
    text.parse().map_err(|_| {
        let option = String::from_utf8_lossy(option);
        Error::err(format!("{option} is a number, not '{text}'"))
    })
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
        let content = ClusterCatalog::load(&path, cluster)?;
        user_types::register_all(&content.types)?;
        user_types::look_in(path.clone());
        Ok(Catalog { content, path, seen })
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
            Ok(content) if content.follows(&self.content) => {
                if let Err(reason) = user_types::register_all(&content.types) {
                    tracing::error!(%reason, "a type of the list cannot be used here");
                }
                self.content = content;
            }
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
        self.change(cluster, |keyspaces| {
            if keyspaces.iter().any(|keyspace| !keyspace.dropped && keyspace.name == wanted.name) {
                return Err(Error::err(format!("keyspace '{}' exists already", wanted.name)));
            }
            keyspaces.push(wanted);
            Ok(())
        })
    }

    /// Notes that a partition is to move, durably and for every process, before anybody is told to move it.
    pub(crate) fn note_move(
        &mut self,
        keyspace: usize,
        partition: u16,
        to: &ClusterMove,
        cluster: &ClusterFile,
    ) -> Result<(), Error> {
        self.change(cluster, |keyspaces| {
            let entry = keyspaces.get_mut(keyspace);
            let entry = entry.ok_or_else(|| Error::err("the list of keyspaces has lost this one"))?;
            let known = entry.moved.entry(partition).or_default();
            known.joining.extend(&to.joining);
            if to.epoch > known.epoch {
                (known.epoch, known.processes) = (to.epoch, to.processes.clone());
            }
            Ok(())
        })
    }

    /// Notes that a region is gone for good, durably and for every process, before anybody is told.
    pub(crate) fn note_eviction(
        &mut self,
        name: &str,
        region: &str,
        cluster: &ClusterFile,
    ) -> Result<(), Error> {
        self.change(cluster, |keyspaces| {
            let entry = named(keyspaces, name)?.1;
            entry.check_eviction(region, cluster).map_err(Error::err)?;
            if entry.evicted.iter().all(|evicted| evicted != region) {
                entry.evicted.push(region.to_owned());
            }
            Ok(())
        })
    }

    /// Changes options of a keyspace, durably and for every process.
    pub(crate) fn alter(
        &mut self,
        name: &str,
        options: &KeyspaceOptions<'_>,
        cluster: &ClusterFile,
    ) -> Result<(), Error> {
        self.change(cluster, |keyspaces| {
            let entry = named(keyspaces, name)?.1;
            entry.alter(options)?;
            entry.check(cluster).map_err(Error::err)
        })
    }

    /// Adds a type, durably and for every process.
    pub(crate) fn add_type(&mut self, new: &StoredType, cluster: &ClusterFile) -> Result<(), Error> {
        self.change_content(cluster, |content| user_types::add_to(&mut content.types, new))
    }

    /// Drops a keyspace, durably and for every process.
    pub(crate) fn drop_keyspace(&mut self, name: &str, cluster: &ClusterFile) -> Result<(), Error> {
        self.change(cluster, |keyspaces| match named(keyspaces, name)? {
            (0, _) => Err(Error::err(format!(
                "keyspace '{name}' is the one that clients begin in; empty it with FLUSHDB"
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
        cluster: &ClusterFile,
        change: impl FnOnce(&mut Vec<ClusterKeyspace>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.change_content(cluster, |content| change(&mut content.keyspaces))
    }

    /// Changes the file under its lock, durably.
    fn change_content(
        &mut self,
        cluster: &ClusterFile,
        change: impl FnOnce(&mut ClusterCatalog) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let failed = |error: std::io::Error| {
            let text = format!("the list of keyspaces {} cannot be changed: {error}", self.path.display());
            Error::new(ErrorCode::Misconf, text)
        };
        let lock = File::create(self.path.with_extension("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = "another process is changing the list of keyspaces; retry";
                return Err(Error::new(ErrorCode::Unavailable, text));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut content = ClusterCatalog::load(&self.path, cluster).map_err(|error| {
            Error::new(ErrorCode::Misconf, format!("the list of keyspaces is damaged: {error}"))
        })?;
        change(&mut content)?;
        content.save(&self.path).map_err(failed)?;
        drop(lock);
        self.refresh(cluster);
        Ok(())
    }
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
