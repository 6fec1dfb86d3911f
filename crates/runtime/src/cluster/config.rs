//! Who is in the cluster and what it keeps: one small file, the same for every process.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use types::RegionSet;

/// What a process of a cluster is told when it starts.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The cluster.
    pub file: ClusterFile,
    /// Which of its processes this is.
    pub process: u16,
    /// True at the first start of a new cluster, of all its processes: an empty data directory then means that
    /// nothing was ever said. Otherwise it means that everything was forgotten, and the process learns from its
    /// peers before it takes part.
    pub bootstrap: bool,
    /// True if replicas of causal keyspaces that lost records go on with what those peers know that answer: what only
    /// the others, or nobody, had is given up.
    pub accept_loss: bool,
    /// Added to the wall clock, in milliseconds: for tests of skewed clocks.
    pub clock_skew_ms: i64,
}

/// The file of one process: who is in the cluster, and how this process reaches them. Written by `cluster local`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Distinguishes clusters: a process talks only to peers that say the same. Also the seed of the key hash.
    pub seed: u64,
    /// Every process.
    pub processes: Vec<ClusterProcess>,
    /// The file with the keyspaces, which all processes share; see `ClusterCatalog`.
    pub catalog: PathBuf,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterProcess {
    /// Its number, unique for ever.
    pub id: u16,
    /// Its region's number; regions count from 0.
    pub region: u16,
    /// Its region's name.
    pub region_name: String,
    /// Where it listens for its peers.
    pub peer_address: SocketAddr,
}

/// How a keyspace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterModel {
    /// Strictly serializable: every process has a replica of every shard.
    Strict,
    /// Wren: every region has every partition, dealt out to its processes. PaRiS if it says how many regions have
    /// each.
    Causal,
    /// TARDiS: every region has a site, in one of its processes.
    Branch,
}

/// How a strict keyspace keeps conflicting transactions apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterConcurrency {
    /// TAPIR: no leader, validation at every replica.
    #[default]
    Optimistic,
    /// Two-phase commit over replicated logs, locks at the leaders.
    Locking,
    /// Two-phase commit over replicated logs, validation at the leaders.
    Occ,
    /// QWStore: no transactions and no promise about reads, a baseline for measurements.
    QwStore,
}

/// Which protocol keeps a causal keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterProtocol {
    /// Wren, or PaRiS where partitions are in some of the regions only.
    #[default]
    Usual,
    /// Cure: a baseline for measurements, as the following ones are.
    Cure,
    /// Cure with hybrid clocks.
    HCure,
    /// Blocking partial replication.
    Bpr,
    /// Cure whose reads wait for the next application, as in the code that the thesis measured.
    CureApplied,
    /// Cure with hybrid clocks, likewise.
    HCureApplied,
    /// Without causal consistency.
    Nocc,
}

impl ClusterProtocol {
    /// All of them.
    const ALL: [ClusterProtocol; 7] = [
        ClusterProtocol::Usual,
        ClusterProtocol::Cure,
        ClusterProtocol::HCure,
        ClusterProtocol::Bpr,
        ClusterProtocol::CureApplied,
        ClusterProtocol::HCureApplied,
        ClusterProtocol::Nocc,
    ];

    /// The protocol of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str().eq_ignore_ascii_case(name))
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterProtocol::Usual => "usual",
            ClusterProtocol::Cure => "cure",
            ClusterProtocol::HCure => "h-cure",
            ClusterProtocol::Bpr => "bpr",
            ClusterProtocol::CureApplied => "cure-applied",
            ClusterProtocol::HCureApplied => "h-cure-applied",
            ClusterProtocol::Nocc => "nocc",
        }
    }

    fn is_usual(&self) -> bool {
        *self == ClusterProtocol::Usual
    }

    /// True if its snapshots are vectors, with an entry for each region.
    pub(crate) fn is_cure(self) -> bool {
        use ClusterProtocol::{Cure, CureApplied, HCure, HCureApplied};
        matches!(self, Cure | HCure | CureApplied | HCureApplied)
    }

    /// True if its reads wait for the next application.
    pub(crate) fn is_applied(self) -> bool {
        matches!(self, ClusterProtocol::CureApplied | ClusterProtocol::HCureApplied)
    }
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
    /// Of a strict keyspace: how many processes keep each shard. Of a causal one: how many of its regions keep each
    /// partition. All of them if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// Of a causal keyspace: how many processes of a region keep each partition, 1 or 3; one if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u16>,
    /// Of a causal keyspace: the names of the regions that keep partitions; all of them if it does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// Of a strict keyspace: locks or validation, with or without leaders.
    #[serde(default)]
    pub concurrency: ClusterConcurrency,
    /// Of a strict keyspace with locks: those that wait have them the oldest first, not in phases.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_phases: bool,
    /// Of a strict keyspace with locks: transactions of one process do not share them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_combining: bool,
    /// Of a strict keyspace with locks: readers and writers only, in place of the types' modes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readers_and_writers: bool,
    /// Of a strict keyspace with leaders: no locks and no transactions, a baseline for measurements.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_locks: bool,
    /// Of a causal keyspace whose partitions are in every region: writes that are lost to concurrent ones are not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_conflicts: bool,
    /// Of a causal keyspace: which protocol keeps it.
    #[serde(default, skip_serializing_if = "ClusterProtocol::is_usual")]
    pub protocol: ClusterProtocol,
    /// Of an optimistic strict keyspace: what it promises about the order of transactions.
    #[serde(default, skip_serializing_if = "ClusterIsolation::is_strict")]
    pub isolation: ClusterIsolation,
    /// Of an optimistic strict keyspace, in milliseconds: replicas refuse timestamps that are farther ahead of their
    /// clock; 60 s if it does not say. May be altered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_ms: Option<u64>,
    /// Of an optimistic strict keyspace, in milliseconds: for how long replicas wait for transactions with lower
    /// timestamps; not at all if it does not say. May be altered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew_wait_ms: Option<u64>,
    /// Of a branch keyspace: who merges, and what updates that meet at one site do. May be altered.
    #[serde(default, skip_serializing_if = "ClusterBranching::is_usual")]
    pub branching: ClusterBranching,
    /// It was dropped: nothing is left of it but its number, which no other keyspace gets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
    /// Of a strict keyspace: the partitions that were to move, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moved: BTreeMap<u16, ClusterMove>,
    /// Of a causal keyspace: the names of the regions that are gone for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<String>,
}

/// How a branch keyspace forks and merges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterBranching {
    /// How often, in milliseconds, each site merges all heads; 0 for never: the application does.
    pub merge_every_ms: u64,
    /// True if sites merge by the handler; else by the types' own rules.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merges_by_handler: bool,
    /// The merge handler, a program in Lua.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// True if updates that meet at one site fork; else one of them gets CONFLICT.
    pub forks_locally: bool,
    /// True if a merge of the application or of the handler gives conflicting keys that it leaves to the newest state; else it is refused.
    pub newest_wins: bool,
    /// About how many of the newest states stay to be read by their id, shared by the heads.
    pub keep: usize,
    /// For how many milliseconds what was a head stays so, whatever their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_for_ms: Option<u64>,
    /// True if collection does not wait for sites that are not heard.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collects_early: bool,
    /// How many bytes of transactions that some site lacks a site keeps in memory before it refuses writes.
    pub queue_bytes: usize,
}

impl Default for ClusterBranching {
    fn default() -> Self {
        ClusterBranching {
            merge_every_ms: 50,
            merges_by_handler: false,
            handler: None,
            forks_locally: false,
            newest_wins: false,
            keep: 100,
            keep_for_ms: None,
            collects_early: false,
            queue_bytes: 1 << 30,
        }
    }
}

impl ClusterBranching {
    fn is_usual(&self) -> bool {
        *self == ClusterBranching::default()
    }
}

/// What every process should know of a partition that was to move. The replicas themselves decide where it is, and tell
/// whoever asks any that was ever one of them; this says who that is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterMove {
    /// An epoch that has begun, and the processes of its replicas; the present one or an earlier.
    pub epoch: u32,
    /// See `epoch`.
    pub processes: Vec<u16>,
    /// Every process that was ever to join.
    pub joining: BTreeSet<u16>,
}

/// What a strict keyspace promises about the order of its transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterIsolation {
    /// An order that agrees with real time.
    #[default]
    Strict,
    /// An order in which each session's transactions are as they came.
    Serializable,
}

impl ClusterIsolation {
    /// The one of this name, in any case.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [ClusterIsolation::Strict, ClusterIsolation::Serializable];
        all.into_iter().find(|isolation| isolation.as_str().eq_ignore_ascii_case(name))
    }

    /// Its name in commands.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ClusterIsolation::Strict => "strict",
            ClusterIsolation::Serializable => "serializable",
        }
    }

    fn is_strict(&self) -> bool {
        *self == ClusterIsolation::Strict
    }
}

impl ClusterKeyspace {
    /// A keyspace whose options are what they are if nobody says otherwise.
    pub fn new(name: String, model: ClusterModel, partitions: u16) -> Self {
        ClusterKeyspace {
            name,
            model,
            partitions,
            replicas: None,
            copies: None,
            regions: Vec::new(),
            concurrency: ClusterConcurrency::default(),
            without_phases: false,
            without_combining: false,
            readers_and_writers: false,
            without_locks: false,
            protocol: ClusterProtocol::default(),
            isolation: ClusterIsolation::default(),
            clock_bound_ms: None,
            skew_wait_ms: None,
            branching: ClusterBranching::default(),
            ignore_conflicts: false,
            dropped: false,
            moved: BTreeMap::new(),
            evicted: Vec::new(),
        }
    }

    /// Which locks a strict keyspace with leaders has, as `LOCKS` names them.
    pub(crate) fn locks(&self) -> &'static str {
        match (self.without_locks, self.readers_and_writers) {
            (true, _) => "none",
            (_, true) => "readwrite",
            _ => "typed",
        }
    }

    /// This entry with what may change in it as in another one.
    pub(crate) fn altered_to(&self, other: &Self) -> Self {
        let Self { clock_bound_ms, skew_wait_ms, dropped, .. } = *other;
        let branching = other.branching.clone();
        let (dropped, moved) = (self.dropped || dropped, other.moved.clone());
        let evicted = match other.evicted.starts_with(&self.evicted) {
            true => other.evicted.clone(),
            false => self.evicted.clone(),
        };
        Self { clock_bound_ms, skew_wait_ms, branching, dropped, moved, evicted, ..self.clone() }
    }
}

impl ClusterFile {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// Says what is wrong, with the file's name.
    pub fn load(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: ClusterFile =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        file.check().map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(file)
    }

    /// Is this a cluster that can work?
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self) -> Result<(), String> {
        let ids: BTreeSet<u16> = self.processes.iter().map(|process| process.id).collect();
        if ids.len() != self.processes.len() || ids.is_empty() {
            return Err("processes need different ids, and there must be one".to_owned());
        }
        let regions: BTreeSet<u16> = self.processes.iter().map(|process| process.region).collect();
        if regions.iter().copied().ne(0..regions.len() as u16) {
            return Err("regions are numbered from 0 without gaps".to_owned());
        }
        Ok(())
    }

    /// The process with this number.
    pub fn process(&self, id: u16) -> Option<&ClusterProcess> {
        self.processes.iter().find(|process| process.id == id)
    }

    /// The numbers of a region's processes, in order.
    pub(crate) fn processes_of(&self, region: u16) -> Vec<u16> {
        let ids: BTreeSet<u16> = self
            .processes
            .iter()
            .filter(|process| process.region == region)
            .map(|process| process.id)
            .collect();
        ids.into_iter().collect()
    }

    /// The name of a region.
    pub(crate) fn region_name(&self, region: u16) -> String {
        let process = self.processes.iter().find(|process| process.region == region);
        process.map_or_else(|| region.to_string(), |process| process.region_name.clone())
    }

    /// The region of a name.
    pub(crate) fn region_of_name(&self, name: &str) -> Option<u16> {
        self.processes.iter().find(|process| process.region_name == name).map(|process| process.region)
    }

    /// How many regions there are.
    pub(crate) fn regions(&self) -> u16 {
        self.processes.iter().map(|process| process.region + 1).max().unwrap_or(0)
    }
}

impl ClusterKeyspace {
    /// True if it is causal and its partitions are in some of the regions only.
    pub(crate) fn is_partial(&self) -> bool {
        self.model == ClusterModel::Causal && (self.replicas.is_some() || !self.regions.is_empty())
    }

    /// True if several processes of a region keep each partition.
    pub(crate) fn is_copied(&self) -> bool {
        self.copies.is_some_and(|copies| copies > 1)
    }

    /// What is wrong with the copies of its partitions.
    pub(crate) fn check_copies(&self, file: &ClusterFile) -> Result<(), String> {
        let (name, Some(copies)) = (&self.name, self.copies) else { return Ok(()) };
        if self.model != ClusterModel::Causal {
            return Err(format!(
                "keyspace '{name}': COPIES is for MODEL causal; a strict one says how many processes keep a shard by REPLICAS"
            ));
        }
        if copies != 1 && !self.protocol.is_usual() {
            return Err(format!(
                "keyspace '{name}': PROTOCOL {} is a baseline for measurements, without COPIES",
                self.protocol.as_str()
            ));
        }
        if copies != 1 && copies != 3 {
            return Err(format!("keyspace '{name}': COPIES is 1 or 3, not {copies}"));
        }
        let mut regions = self.regions(file).into_iter();
        let few = regions.find(|region| file.processes_of(*region).len() < usize::from(copies));
        few.map_or(Ok(()), |region| {
            Err(format!(
                "keyspace '{name}': {copies} copies need as many processes in every region of it; region '{}' has {}",
                file.region_name(region),
                file.processes_of(region).len()
            ))
        })
    }

    /// The regions that a causal keyspace is in.
    fn regions(&self, file: &ClusterFile) -> Vec<u16> {
        match self.regions.as_slice() {
            [] => (0..file.regions()).collect(),
            named => named.iter().filter_map(|name| file.region_of_name(name)).collect(),
        }
    }

    /// The regions that hold a partition of a causal keyspace.
    pub(crate) fn holders(&self, file: &ClusterFile, partition: u16) -> Vec<u16> {
        let regions = self.regions(file);
        let replicas = self.replicas.map_or(regions.len(), usize::from).min(regions.len());
        regions.iter().cycle().skip(usize::from(partition) % regions.len()).take(replicas).copied().collect()
    }

    /// What stands against it that a region is evicted.
    pub(crate) fn check_eviction(&self, region: &str, file: &ClusterFile) -> Result<(), String> {
        let name = &self.name;
        if self.model == ClusterModel::Branch {
            return Err(format!(
                "keyspace '{name}' has branches: its sites go on without one another as they are"
            ));
        }
        if self.model != ClusterModel::Causal {
            return Err(format!(
                "keyspace '{name}' is strict: it goes on without a region while it has a majority of each partition; \
                 KEYSPACE PLACE replaces replicas that are lost"
            ));
        }
        if !self.protocol.is_usual() {
            return Err(format!(
                "keyspace '{name}' is kept by a baseline for measurements: a region cannot be evicted from it; restore its \
                 processes, or copy the keys to another keyspace"
            ));
        }
        if self.is_partial() && self.is_copied() {
            return Err(format!(
                "keyspace '{name}' has partitions in some regions only, and copies of them: a region cannot be evicted from it \
                 yet; restore two of three processes of each of its partitions, or copy the keys to another keyspace"
            ));
        }
        let known: Vec<String> = (0..file.regions()).map(|region| file.region_name(region)).collect();
        if !known.iter().any(|known| known == region) {
            return Err(format!("no region '{region}'; there are {}", known.join(", ")));
        }
        let is_left = |known: &&String| *known != region && !self.evicted.contains(known);
        if !known.iter().any(|known| is_left(&known)) {
            return Err(format!("region '{region}' is the last one of keyspace '{name}'"));
        }
        if self.is_partial() {
            return self.check_survivors(region, file);
        }
        Ok(())
    }

    /// Of each partition somebody must be left: nobody else has what is in it, and all others count on it.
    fn check_survivors(&self, region: &str, file: &ClusterFile) -> Result<(), String> {
        if file.regions() > RegionSet::TOLD_APART {
            let most = RegionSet::TOLD_APART;
            return Err(format!(
                "keyspace '{}': eviction is for clusters of at most {most} regions",
                self.name
            ));
        }
        let stays = |holder: &u16| {
            let holder = file.region_name(*holder);
            holder != region && !self.evicted.contains(&holder)
        };
        let is_gone = |partition: &u16| !self.holders(file, *partition).iter().any(stays);
        let gone: Vec<String> =
            (0..self.partitions).filter(is_gone).map(|partition| partition.to_string()).collect();
        if gone.is_empty() {
            return Ok(());
        }
        Err(format!(
            "nobody else has what is in the partitions {} of keyspace '{}', and its snapshots show all partitions: region \
             '{region}' cannot be evicted from it; restore its processes, or copy the other keys to another keyspace",
            gone.join(", "),
            self.name
        ))
    }

    /// What is wrong with where a causal keyspace is to be.
    pub(crate) fn check_regions(&self, file: &ClusterFile) -> Result<(), String> {
        let (name, known) = (&self.name, (0..file.regions()).map(|region| file.region_name(region)));
        let known: Vec<String> = known.collect();
        if let Some(stranger) = self.regions.iter().find(|region| !known.contains(region)) {
            return Err(format!("keyspace '{name}': no region '{stranger}'; there are {}", known.join(", ")));
        }
        let different: BTreeSet<&String> = self.regions.iter().collect();
        if different.len() != self.regions.len() {
            return Err(format!("keyspace '{name}' names a region twice"));
        }
        let regions = self.regions(file).len();
        match self.replicas.map(usize::from) {
            Some(replicas) if !(1..=regions).contains(&replicas) => Err(format!(
                "keyspace '{name}' is causal: a partition has at most one replica in a region, so 1 to {regions} here, \
                 not {replicas}"
            )),
            _ => Ok(()),
        }
    }
}

impl ClusterConcurrency {
    /// The one of this name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let named = |concurrency: &Self| concurrency.as_str().eq_ignore_ascii_case(name);
        use ClusterConcurrency::{Locking, Occ, Optimistic, QwStore};
        [Optimistic, Locking, Occ, QwStore].into_iter().find(named)
    }

    /// Its name in commands.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ClusterConcurrency::Optimistic => "optimistic",
            ClusterConcurrency::Locking => "locking",
            ClusterConcurrency::Occ => "occ",
            ClusterConcurrency::QwStore => "qwstore",
        }
    }
}

impl ClusterModel {
    /// Its name in commands.
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterModel::Strict => "strict",
            ClusterModel::Causal => "causal",
            ClusterModel::Branch => "branch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::catalog::ClusterCatalog;

    fn process(id: u16, region: u16) -> ClusterProcess {
        let peer_address = SocketAddr::from(([127, 0, 0, 1], 7000 + id));
        ClusterProcess { id, region, region_name: format!("r{region}"), peer_address }
    }

    fn catalog(model: ClusterModel) -> ClusterCatalog {
        let keyspaces = vec![ClusterKeyspace::new("default".to_owned(), model, 2)];
        ClusterCatalog { keyspaces, types: Vec::new() }
    }

    fn file(processes: Vec<ClusterProcess>) -> ClusterFile {
        ClusterFile { seed: 1, processes, catalog: PathBuf::new() }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        let checked = |processes| file(processes).check();
        assert!(checked(vec![process(1, 0), process(2, 0), process(3, 1)]).is_ok());
        assert!(checked(vec![process(1, 0), process(1, 0), process(3, 0)]).unwrap_err().contains("ids"));
        assert!(checked(vec![process(1, 1)]).unwrap_err().contains("without gaps"));
        let two = file(vec![process(1, 0), process(2, 1)]);
        assert!(catalog(ClusterModel::Strict).check(&two).unwrap_err().contains("1, 3, 5"));
        let causal = catalog(ClusterModel::Causal);
        assert!(causal.check(&two).is_ok());
        let mut locks = causal.clone();
        locks.keyspaces[0].concurrency = ClusterConcurrency::Locking;
        assert!(locks.check(&two).unwrap_err().contains("not strict"));
        let mut copies = causal.clone();
        copies.keyspaces[0].replicas = Some(1);
        assert!(copies.check(&two).is_ok());
        copies.keyspaces[0].replicas = Some(3);
        assert!(copies.check(&two).unwrap_err().contains("1 to 2 here, not 3"));
        copies.keyspaces[0].replicas = Some(1);
        copies.keyspaces[0].regions = vec!["r1".to_owned(), "x".to_owned()];
        assert!(copies.check(&two).unwrap_err().contains("no region 'x'; there are r0, r1"));
        copies.keyspaces[0].regions = vec!["r1".to_owned(), "r1".to_owned()];
        assert!(copies.check(&two).unwrap_err().contains("twice"));
        copies.keyspaces[0].regions = vec!["r1".to_owned()];
        assert!(copies.check(&two).is_ok());
        let mut placed = catalog(ClusterModel::Strict);
        placed.keyspaces[0].regions = vec!["r1".to_owned()];
        assert!(placed.check(&file(vec![process(1, 0)])).unwrap_err().contains("no regions of its own"));
        let mut twice = causal.clone();
        twice.keyspaces.push(causal.keyspaces[0].clone());
        assert!(twice.check(&two).unwrap_err().contains("names"));
        let mut nothing = causal;
        nothing.keyspaces[0].partitions = 0;
        assert!(nothing.check(&two).unwrap_err().contains("partition"));
    }
}
