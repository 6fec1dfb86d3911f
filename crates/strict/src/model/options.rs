//! The options of a strict keyspace: as commands spell them, as the catalog stores them, what is wrong with them.

use super::NAME;
use crate::tapir::{Clocks, Isolation};
use protocol::Durability;
use protocol::eviction::{Cache, Eviction};
use protocol::model::{
    ClusterShape, OptionWord, OptionWords, PartitionMove, Properties, Property, Solo, check_partitions,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use types::Error;

/// The options that commands know of replicated keyspaces.
const KNOWN: [&str; 10] = [
    "PARTITIONS",
    "REPLICAS",
    "CONCURRENCY",
    "PHASING",
    "COMBINING",
    "ISOLATION",
    "CLOCKBOUND",
    "SKEWWAIT",
    "EVICTION",
    "MAXMEMORY",
];

/// The longest wait for transactions with lower timestamps: requests are given up after five seconds.
const MAX_SKEW_WAIT_MS: u64 = 1_000;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many shards; 0 for as many as suit the threads of the one process that keeps the keyspace.
    pub partitions: u16,
    /// How many processes keep each shard; all of them if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// How conflicting transactions are isolated from each other.
    pub concurrency: Concurrency,
    /// The partitions that were to move, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moved: BTreeMap<u16, PartitionMove>,
    /// Which keys go when memory is used up; none if it does not say. May be altered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,
    /// How much memory all partitions together have, in bytes; if it does not say, what the process has. May be altered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<u64>,
}

/// How a keyspace isolates conflicting transactions from each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Concurrency {
    /// TAPIR: no leader, validation at every replica.
    Optimistic(OptimisticOptions),
    /// Two-phase commit over replicated logs, locks at the leaders.
    Locking(LockingOptions),
    /// Two-phase commit over replicated logs, validation at the leaders.
    Occ,
    /// One process runs transactions serially.
    Solo(SoloOptions),
}

/// What is stored of a keyspace that one process keeps by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoloOptions {
    /// The process.
    pub process: u16,
    /// How durable what it replies is. May be altered.
    pub durability: Durability,
}

/// What is optional without leaders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimisticOptions {
    /// What is promised about the order of transactions.
    pub isolation: Isolation,
    /// In milliseconds: replicas refuse timestamps that are farther ahead of their clock; 60 s if it does not say. May be
    /// altered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_bound_ms: Option<u64>,
    /// In milliseconds: for how long replicas wait for transactions with lower timestamps; not at all if it does not say.
    /// May be altered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew_wait_ms: Option<u64>,
}

impl OptimisticOptions {
    /// How far clocks are trusted.
    pub fn clocks(&self) -> Clocks {
        let standard = Clocks::default();
        Clocks {
            bound: self.clock_bound_ms.map_or(standard.bound, Duration::from_millis),
            wait: self.skew_wait_ms.map_or(standard.wait, Duration::from_millis),
        }
    }
}

/// What is optional with locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockingOptions {
    /// Those that wait for locks have them in phases; else the oldest first.
    pub phasing: bool,
    /// Transactions of one process share locks and commit as one.
    pub combining: bool,
}

/// What `DURABILITY` asks for.
fn durability(word: &OptionWord<'_>) -> Result<Durability, Error> {
    let index = word.one_of(&["none", "everysec", "always"])?;
    Ok([Durability::Volatile, Durability::Written, Durability::Synced][index])
}

impl Concurrency {
    /// Its name in commands.
    pub fn name(&self) -> &'static str {
        match self {
            Concurrency::Optimistic(_) => "optimistic",
            Concurrency::Locking(_) => "locking",
            Concurrency::Occ => "occ",
            Concurrency::Solo(_) => "solo",
        }
    }

    /// What `CONCURRENCY` selects; without leaders by default.
    fn wanted(word: Option<&OptionWord<'_>>) -> Result<Self, Error> {
        let index = word.map_or(Ok(0), |word| word.one_of(&["optimistic", "locking", "occ"]))?;
        Ok(match index {
            0 => Concurrency::Optimistic(OptimisticOptions::default()),
            1 => Concurrency::Locking(LockingOptions { phasing: true, combining: true }),
            _ => Concurrency::Occ,
        })
    }

    fn set(&mut self, word: &OptionWord<'_>) -> Result<(), Error> {
        match (self, word.name()) {
            (Concurrency::Solo(solo), "DURABILITY") => solo.durability = durability(word)?,
            (Concurrency::Optimistic(optimistic), "ISOLATION") => {
                let serializable = word.one_of(&["strict", "serializable"])? == 1;
                optimistic.isolation = if serializable { Isolation::Serializable } else { Isolation::Strict };
            }
            (Concurrency::Optimistic(optimistic), "CLOCKBOUND") => {
                optimistic.clock_bound_ms = Some(word.number()?);
            }
            (Concurrency::Optimistic(optimistic), "SKEWWAIT") => {
                optimistic.skew_wait_ms = Some(word.number()?);
            }
            (Concurrency::Locking(locking), "PHASING") => locking.phasing = word.one_of(&["on", "off"])? == 0,
            (Concurrency::Locking(locking), "COMBINING") => {
                locking.combining = word.one_of(&["on", "off"])? == 0;
            }
            (_, "ISOLATION" | "CLOCKBOUND" | "SKEWWAIT") => {
                return Err(Error::err("ISOLATION, CLOCKBOUND and SKEWWAIT are for CONCURRENCY optimistic"));
            }
            (_, "PHASING" | "COMBINING") => {
                return Err(Error::err("PHASING and COMBINING are for CONCURRENCY locking"));
            }
            _ => return Err(word.unknown(NAME, &KNOWN)),
        }
        Ok(())
    }
}

impl Options {
    /// What `KEYSPACE CREATE` asks for.
    pub(super) fn create(words: &OptionWords<'_>) -> Result<Self, Error> {
        words.refuse_regions(NAME, &KNOWN)?;
        let concurrency = Concurrency::wanted(words.get("CONCURRENCY"))?;
        let mut options = Options {
            partitions: 2,
            replicas: None,
            concurrency,
            moved: BTreeMap::new(),
            eviction: None,
            max_memory: None,
        };
        for word in &words.options {
            if options.set_memory(word)? {
                continue;
            }
            match word.name() {
                "PARTITIONS" => options.partitions = word.number()?,
                "REPLICAS" => options.replicas = Some(word.number()?),
                "CONCURRENCY" => {}
                _ => options.concurrency.set(word)?,
            }
        }
        Ok(options)
    }

    /// What `KEYSPACE CREATE` asks of the cluster's only process; `None` if it asks for replicas.
    pub(super) fn create_solo(
        words: &OptionWords<'_>,
        process: u16,
        durability: Durability,
    ) -> Result<Option<Self>, Error> {
        let of_solo = |word: &OptionWord<'_>| {
            matches!(word.name(), "PARTITIONS" | "DURABILITY" | "EVICTION" | "MAXMEMORY")
        };
        if !words.regions.is_empty() || !words.options.iter().all(of_solo) {
            return Ok(None);
        }
        let mut concurrency = Concurrency::Solo(SoloOptions { process, durability });
        words.get("DURABILITY").map_or(Ok(()), |word| concurrency.set(word))?;
        let partitions = words.get("PARTITIONS").map_or(Ok(0), OptionWord::number)?;
        if words.get("PARTITIONS").is_some() {
            check_partitions(partitions).map_err(Error::err)?;
        }
        let mut options = Options {
            partitions,
            replicas: None,
            concurrency,
            moved: BTreeMap::new(),
            eviction: None,
            max_memory: None,
        };
        words.options.iter().try_for_each(|word| options.set_memory(word).map(drop))?;
        Ok(Some(options))
    }

    /// Takes `EVICTION` and `MAXMEMORY`; false of any other word.
    fn set_memory(&mut self, word: &OptionWord<'_>) -> Result<bool, Error> {
        match word.name() {
            "EVICTION" => {
                let index = word.one_of(&Eviction::names())?;
                self.eviction = index.checked_sub(1).map(|index| Eviction::ALL[index]);
            }
            "MAXMEMORY" => self.max_memory = Some(word.bytes()?).filter(|bytes| *bytes > 0),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What its partitions, replicated ones, are as caches.
    pub(super) fn cache(&self) -> Option<Cache> {
        let share = |bytes: u64| (bytes / u64::from(self.partitions.max(1))) as usize;
        Some(Cache { policy: self.eviction?, share: self.max_memory.map(share) })
    }

    /// What is wrong with `EVICTION` and `MAXMEMORY`.
    fn check_memory(&self) -> Result<(), String> {
        match (self.eviction, self.max_memory) {
            (None, Some(_)) => Err("MAXMEMORY is for caches: say by EVICTION which keys go, or leave it out; \
                                    a process's limit for all its keyspaces is its parameter maxmemory"
                .to_owned()),
            (Some(_), None) if self.solo().is_none() => {
                Err("EVICTION in a replicated keyspace needs MAXMEMORY: the process that lets keys go does not know \
                     how much memory the others have left"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    /// How one process serves it alone.
    pub(super) fn solo(&self) -> Option<Solo> {
        let Concurrency::Solo(SoloOptions { process, durability }) = self.concurrency else { return None };
        let partitions = (self.partitions > 0).then_some(self.partitions);
        let (eviction, max_memory) = (self.eviction, self.max_memory);
        Some(Solo { process, partitions, durability, eviction, max_memory })
    }

    /// How many replicas of any shard have an answered write at least, beside one: a majority has it.
    pub(super) fn acknowledged_replicas(&self, cluster: &ClusterShape) -> u16 {
        if self.solo().is_some() {
            return 0;
        }
        let replicas = self.replicas.map_or(cluster.processes().len(), usize::from);
        // A partition that has moved, or goes on after a loss, may have other replicas.
        let begun = self.moved.values().filter(|moved| moved.epoch > 0);
        let fewest = begun.map(|moved| moved.processes.len()).fold(replicas, usize::min);
        (fewest / 2) as u16
    }

    /// What `KEYSPACE ALTER` asks for.
    pub(super) fn alter(&mut self, words: &OptionWords<'_>) -> Result<(), Error> {
        words.refuse_regions(NAME, &KNOWN)?;
        for word in &words.options {
            if self.set_memory(word)? {
                continue;
            }
            let reason = match word.name() {
                "PARTITIONS" => "PARTITIONS stays: keys do not move between shards yet",
                "REPLICAS" if matches!(self.concurrency, Concurrency::Optimistic(_)) => {
                    "REPLICAS stays: KEYSPACE PLACE gives one partition other replicas"
                }
                "REPLICAS" => "REPLICAS stays: groups with a leader do not change their members yet",
                "CONCURRENCY" => {
                    "CONCURRENCY stays: transactions that are under way would not know of each other"
                }
                "PHASING" => "PHASING stays: leaders would hand out locks by different rules",
                "COMBINING" => "COMBINING stays: every process reads it when it begins to serve the keyspace",
                "ISOLATION" => {
                    "ISOLATION stays: what was promised when it was created holds for what is under way"
                }
                _ => {
                    self.concurrency.set(word)?;
                    continue;
                }
            };
            return Err(Error::err(format!("{reason}; create another keyspace and copy")));
        }
        if self.eviction.is_none() && words.get("MAXMEMORY").is_none() {
            self.max_memory = None;
        }
        Ok(())
    }

    /// These options with what may change in them as in others.
    pub(super) fn altered_to(&self, now: &Self) -> Self {
        let (eviction, max_memory) = (now.eviction, now.max_memory);
        let mut altered = Options { moved: now.moved.clone(), eviction, max_memory, ..self.clone() };
        if let (Concurrency::Optimistic(optimistic), Concurrency::Optimistic(now)) =
            (&mut altered.concurrency, &now.concurrency)
        {
            optimistic.clock_bound_ms = now.clock_bound_ms;
            optimistic.skew_wait_ms = now.skew_wait_ms;
        }
        if let (Concurrency::Solo(solo), Concurrency::Solo(now)) =
            (&mut altered.concurrency, &now.concurrency)
        {
            solo.durability = now.durability;
        }
        altered
    }

    /// Can this cluster keep such a keyspace?
    pub(super) fn check(&self, cluster: &ClusterShape) -> Result<(), String> {
        self.check_memory()?;
        if let Some(Solo { process, .. }) = self.solo() {
            return match cluster.processes().contains(&process) {
                true => Ok(()),
                false => {
                    Err(format!("process {process} keeps it by itself, and the cluster has no such process"))
                }
            };
        }
        check_partitions(self.partitions)?;
        let processes = cluster.processes().len();
        let replicas = self.replicas.map_or(processes, usize::from);
        if replicas.is_multiple_of(2) || replicas > processes {
            return Err(format!(
                "a strict keyspace needs 1, 3, 5 ... replicas of a shard, each on a process of its own, and the cluster has \
                 {processes}"
            ));
        }
        match &self.concurrency {
            Concurrency::Optimistic(optimistic)
                if optimistic.clock_bound_ms == Some(0)
                    || optimistic.skew_wait_ms.unwrap_or(0) > MAX_SKEW_WAIT_MS =>
            {
                Err(format!("CLOCKBOUND is 1 millisecond or more, and SKEWWAIT at most {MAX_SKEW_WAIT_MS}"))
            }
            _ => Ok(()),
        }
    }

    /// Notes that a partition was to move.
    pub(super) fn note_move(&mut self, partition: u16, to: &PartitionMove) {
        let known = self.moved.entry(partition).or_default();
        known.joining.extend(&to.joining);
        if to.epoch > known.epoch {
            (known.epoch, known.processes) = (to.epoch, to.processes.clone());
        }
    }

    /// The partitions whose replicas a process was to join.
    pub(super) fn joining(&self, process: u16) -> impl Iterator<Item = u16> {
        let here = move |(_, moved): &(&u16, &PartitionMove)| moved.joining.contains(&process);
        self.moved.iter().filter(here).map(|(partition, _)| *partition)
    }

    /// What KEYSPACE INFO says.
    pub(super) fn describe(&self) -> Properties {
        let mut properties = vec![("concurrency", Property::from(self.concurrency.name()))];
        match &self.concurrency {
            Concurrency::Optimistic(optimistic) => {
                let isolation = match optimistic.isolation {
                    Isolation::Strict => "strict",
                    Isolation::Serializable => "serializable",
                };
                let clocks = optimistic.clocks();
                let millis = |time: Duration| Property::Number(time.as_millis() as u64);
                properties.push(("isolation", isolation.into()));
                properties.push(("clock_bound_ms", millis(clocks.bound)));
                properties.push(("skew_wait_ms", millis(clocks.wait)));
            }
            Concurrency::Locking(locking) => {
                let switch = |is_on: bool| Property::from(if is_on { "on" } else { "off" });
                properties.push(("phasing", switch(locking.phasing)));
                properties.push(("combining", switch(locking.combining)));
            }
            Concurrency::Occ => {}
            Concurrency::Solo(solo) => {
                properties.push(("process", Property::Number(u64::from(solo.process))));
            }
        }
        if let Some(policy) = self.eviction {
            properties.push(("eviction", policy.as_str().into()));
        }
        if let Some(bytes) = self.max_memory {
            properties.push(("max_memory_bytes", Property::Number(bytes)));
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::model::RegionShape;
    use types::HashSeed;

    #[test]
    fn a_majority_of_every_shard_has_an_answered_write() {
        let cluster = |processes: u16| ClusterShape {
            seed: HashSeed::default(),
            regions: vec![RegionShape { name: "here".to_owned(), processes: (0..processes).collect() }],
        };
        let options = |replicas| Options {
            partitions: 2,
            replicas,
            concurrency: Concurrency::Occ,
            moved: BTreeMap::new(),
            eviction: None,
            max_memory: None,
        };
        for (processes, replicas, expected) in
            [(1, None, 0), (3, None, 1), (5, None, 2), (5, Some(3), 1), (5, Some(1), 0)]
        {
            assert_eq!(
                options(replicas).acknowledged_replicas(&cluster(processes)),
                expected,
                "{processes} {replicas:?}"
            );
        }
        let mut moved = options(None);
        moved.moved.insert(1, PartitionMove { epoch: 1, processes: vec![4], ..PartitionMove::default() });
        assert_eq!(moved.acknowledged_replicas(&cluster(5)), 0, "what is left of a shard goes on alone");
    }
}
