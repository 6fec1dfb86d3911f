//! The options of a causal keyspace: as commands spell them, as the catalog stores them, what is wrong with them.

use super::{Compile, NAME};
use crate::cops::check_laws;
use crate::stable::MAX_REGIONS;
use protocol::model::{ClusterShape, OptionWord, OptionWords, Properties, Property, check_partitions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use types::{Error, RegionSet};

/// The options that commands know.
const KNOWN: [&str; 9] = [
    "PARTITIONS",
    "REPLICAS",
    "COPIES",
    "REGIONS",
    "PROTOCOL",
    "TRANSACTIONS",
    "CONFLICTS",
    "HANDLER",
    "DEPENDANTS",
];

/// Which protocol keeps a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Every partition in every region.
    Wren,
    /// Partitions in some of the regions.
    Paris,
    /// Every partition in every region; what has arrived is read at once.
    Pocc,
    /// Every partition in every region; writes name what they depend on, and are shown after it.
    Cops,
}

impl Protocol {
    /// Its name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Wren => "wren",
            Protocol::Paris => "paris",
            Protocol::Pocc => "pocc",
            Protocol::Cops => "cops",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// How many partitions.
    pub partitions: u16,
    /// Which protocol keeps it.
    pub protocol: Protocol,
    /// Keys of several partitions are read together; of a protocol that has a choice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transactions: bool,
    /// How many of its regions keep each partition; all of them if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// How many processes of a region keep each partition, 1 or 3.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub copies: u16,
    /// The names of the regions that keep partitions; all of them if it does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    /// Writes that are lost to concurrent ones are not listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_conflicts: bool,
    /// Concurrent writes leave siblings; in protocols with that option.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_conflicts: bool,
    /// The program that merges them where they are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// What depends on writes that were lost with a region stays; of a protocol in which anything may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_dependants: bool,
    /// The names of the regions that are gone for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<String>,
}

fn one() -> u16 {
    1
}

fn is_one(copies: &u16) -> bool {
    *copies == 1
}

/// What `KEYSPACE ALTER` asks for: nothing of a causal keyspace may be altered.
pub(super) fn refuse_changes(words: &OptionWords<'_>) -> Result<(), Error> {
    let region = words.regions.first().map(|_| "REGIONS");
    let named = words.options.iter().map(|word| word.name());
    let Some(first) = region.into_iter().chain(named).next() else { return Ok(()) };
    let reason = match first {
        "REGIONS" => "REGIONS stays: partitions do not move yet",
        "PARTITIONS" => "PARTITIONS stays: keys do not move between partitions yet",
        "REPLICAS" => "REPLICAS stays: partitions do not move yet",
        "COPIES" => "COPIES stays: groups do not change their members yet",
        "PROTOCOL" => "PROTOCOL stays: another one keeps its data in another way",
        "TRANSACTIONS" => "TRANSACTIONS stays: what versions depend on is kept from the first write on",
        "HANDLER" => "HANDLER stays: regions would read by different ones while it goes round",
        "CONFLICTS" => "CONFLICTS stays: who lost to whom is not known of what was not recorded or kept",
        "DEPENDANTS" => "DEPENDANTS stays: replicas that disagree about it would keep different writes",
        _ => return Err(words.options[0].unknown(NAME, &KNOWN)),
    };
    Err(Error::err(format!("{reason}; create another keyspace and copy")))
}

/// A handler that is given: it is compiled, and tried, before it is taken.
fn handler(word: &OptionWord<'_>, compile: Compile) -> Result<String, Error> {
    let source = str::from_utf8(word.value()).map_err(|_| Error::err("HANDLER is a program in UTF-8"))?;
    let checked = compile(source).and_then(|handler| check_laws(&*handler));
    checked.map_err(|reason| Error::err(format!("HANDLER: {reason}")))?;
    Ok(source.to_owned())
}

impl Options {
    /// What `KEYSPACE CREATE` asks for.
    ///
    /// # Errors
    /// An option is unknown, or has no such value.
    pub fn create(words: &OptionWords<'_>, compile: Compile) -> Result<Self, Error> {
        let regions = words.regions.iter().map(|region| String::from_utf8_lossy(region).into_owned());
        let mut options = Options {
            partitions: 2,
            protocol: Protocol::Wren,
            transactions: false,
            replicas: None,
            copies: 1,
            regions: regions.collect(),
            ignore_conflicts: false,
            keep_conflicts: false,
            handler: None,
            keeps_dependants: false,
            evicted: Vec::new(),
        };
        let (mut protocol, mut conflicts) = (None, None);
        for word in &words.options {
            match word.name() {
                "PARTITIONS" => options.partitions = word.number()?,
                "REPLICAS" => options.replicas = Some(word.number()?),
                "COPIES" => options.copies = word.number()?,
                "TRANSACTIONS" => options.transactions = word.one_of(&["off", "on"])? == 1,
                "CONFLICTS" => conflicts = Some(word.one_of(&["record", "ignore", "keep", "handler"])?),
                "HANDLER" => options.handler = Some(handler(word, compile)?),
                "DEPENDANTS" => options.keeps_dependants = word.one_of(&["discard", "keep"])? == 1,
                "PROTOCOL" => {
                    let names = [Protocol::Wren, Protocol::Paris, Protocol::Pocc, Protocol::Cops];
                    protocol = Some(names[word.one_of(&names.map(Protocol::name))?]);
                }
                _ => return Err(word.unknown(NAME, &KNOWN)),
            }
        }
        let usual = if options.is_placed() { Protocol::Paris } else { Protocol::Wren };
        options.protocol = protocol.unwrap_or(usual);
        options.ignore_conflicts = conflicts == Some(1);
        options.keep_conflicts = conflicts >= Some(2);
        if options.handler.is_some() != (conflicts == Some(3)) {
            return Err(Error::err(
                "CONFLICTS handler and HANDLER, a program in Lua that defines resolve(key, conflict), go together",
            ));
        }
        Ok(options)
    }

    /// True if it says where its partitions are.
    pub fn is_placed(&self) -> bool {
        self.replicas.is_some() || !self.regions.is_empty()
    }

    /// True if several processes of a region keep each partition.
    pub fn is_copied(&self) -> bool {
        self.copies > 1
    }

    /// Can this cluster keep such a keyspace?
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, cluster: &ClusterShape) -> Result<(), String> {
        check_partitions(self.partitions)?;
        if self.protocol != Protocol::Paris && self.is_placed() {
            return Err(format!(
                "PROTOCOL {} keeps every partition in every region; leave REPLICAS and REGIONS out, or take PROTOCOL paris",
                self.protocol.name()
            ));
        }
        if matches!(self.protocol, Protocol::Pocc | Protocol::Cops) {
            self.check_vectors(cluster)?;
        }
        if self.transactions && self.protocol != Protocol::Cops {
            return Err(format!(
                "TRANSACTIONS is of PROTOCOL cops; PROTOCOL {} has transactions anyway: leave it out",
                self.protocol.name()
            ));
        }
        if self.keep_conflicts && self.protocol != Protocol::Cops {
            return Err(format!(
                "CONFLICTS keep is of PROTOCOL cops; PROTOCOL {} lets the last writer win: take CONFLICTS record, which lists \
                 what that costs",
                self.protocol.name()
            ));
        }
        if self.keeps_dependants && self.protocol != Protocol::Pocc {
            return Err(format!(
                "DEPENDANTS is of PROTOCOL pocc; with PROTOCOL {} nothing depends on a write that is lost with a region: leave it \
                 out",
                self.protocol.name()
            ));
        }
        if self.keeps_dependants && self.is_copied() {
            return Err(
                "DEPENDANTS is about regions that are evicted, and from copies none can be yet: leave it out"
                    .to_owned(),
            );
        }
        self.check_regions(cluster)?;
        self.check_copies(cluster)
    }

    /// What protocols with a time for each region cannot do.
    fn check_vectors(&self, cluster: &ClusterShape) -> Result<(), String> {
        let name = self.protocol.name();
        if usize::from(cluster.region_count()) > MAX_REGIONS {
            return Err(format!(
                "PROTOCOL {name} is for at most {MAX_REGIONS} regions, as each write names what it depends on of all of them; \
                 take PROTOCOL wren"
            ));
        }
        Ok(())
    }

    /// What is wrong with the copies of its partitions.
    fn check_copies(&self, cluster: &ClusterShape) -> Result<(), String> {
        let copies = self.copies;
        if copies != 1 && copies != 3 {
            return Err(format!("COPIES is 1 or 3, not {copies}"));
        }
        let mut regions = self.regions(cluster).into_iter();
        let few = regions.find(|region| cluster.processes_of(*region).len() < usize::from(copies));
        few.map_or(Ok(()), |region| {
            Err(format!(
                "{copies} copies need as many processes in every region of it; region '{}' has {}",
                cluster.region_name(region),
                cluster.processes_of(region).len()
            ))
        })
    }

    /// What is wrong with where it is to be.
    fn check_regions(&self, cluster: &ClusterShape) -> Result<(), String> {
        let known: Vec<&str> = cluster.region_names().collect();
        if let Some(stranger) = self.regions.iter().find(|region| !known.contains(&region.as_str())) {
            return Err(format!("no region '{stranger}'; there are {}", known.join(", ")));
        }
        let different: BTreeSet<&String> = self.regions.iter().collect();
        if different.len() != self.regions.len() {
            return Err("it names a region twice".to_owned());
        }
        let regions = self.regions(cluster).len();
        match self.replicas.map(usize::from) {
            Some(replicas) if !(1..=regions).contains(&replicas) => Err(format!(
                "it is causal: a partition has at most one replica in a region, so 1 to {regions} here, not {replicas}"
            )),
            _ => Ok(()),
        }
    }

    /// The regions that it is in.
    fn regions(&self, cluster: &ClusterShape) -> Vec<u16> {
        match self.regions.as_slice() {
            [] => (0..cluster.region_count()).collect(),
            named => named.iter().filter_map(|name| cluster.region_of_name(name)).collect(),
        }
    }

    /// The regions that hold a partition.
    pub(super) fn holders(&self, cluster: &ClusterShape, partition: u16) -> Vec<u16> {
        let regions = self.regions(cluster);
        let replicas = self.replicas.map_or(regions.len(), usize::from).min(regions.len());
        let first = usize::from(partition) % regions.len().max(1);
        regions.iter().cycle().skip(first).take(replicas).copied().collect()
    }

    /// The keyspace goes on without a region, if it can.
    pub(super) fn note_eviction(
        &mut self,
        region: &str,
        own_region: &str,
        cluster: &ClusterShape,
    ) -> Result<(), String> {
        if own_region == region || self.evicted.iter().any(|evicted| evicted == own_region) {
            return Err(format!("this process is in region '{own_region}': ask one of a region that stays"));
        }
        self.check_eviction(region, cluster)?;
        if self.evicted.iter().all(|evicted| evicted != region) {
            self.evicted.push(region.to_owned());
        }
        Ok(())
    }

    fn check_eviction(&self, region: &str, cluster: &ClusterShape) -> Result<(), String> {
        if self.protocol != Protocol::Wren && self.is_copied() {
            return Err(format!(
                "it is kept by PROTOCOL {} with copies of its partitions: a region cannot be evicted from it yet; restore two of \
                 three processes of each of its partitions, or copy the keys to another keyspace",
                self.protocol.name()
            ));
        }
        let known: Vec<&str> = cluster.region_names().collect();
        if !known.contains(&region) {
            return Err(format!("no region '{region}'; there are {}", known.join(", ")));
        }
        let stays = |known: &str| known != region && self.evicted.iter().all(|evicted| evicted != known);
        if !known.iter().any(|known| stays(known)) {
            return Err(format!("region '{region}' is its last one"));
        }
        match self.protocol {
            Protocol::Wren | Protocol::Pocc | Protocol::Cops => Ok(()),
            Protocol::Paris => self.check_survivors(region, &stays, cluster),
        }
    }

    /// Each partition must have a surviving replica: no other process has its data, and all others depend on it.
    fn check_survivors(
        &self,
        region: &str,
        stays: &dyn Fn(&str) -> bool,
        cluster: &ClusterShape,
    ) -> Result<(), String> {
        if cluster.region_count() > RegionSet::DISTINCT {
            return Err(format!("eviction is for clusters of at most {} regions", RegionSet::DISTINCT));
        }
        let is_gone = |partition: &u16| {
            let holders = self.holders(cluster, *partition);
            !holders.iter().any(|holder| stays(cluster.region_name(*holder)))
        };
        let gone: Vec<String> =
            (0..self.partitions).filter(is_gone).map(|partition| partition.to_string()).collect();
        if gone.is_empty() {
            return Ok(());
        }
        Err(format!(
            "nobody else has what is in the partitions {}, and its snapshots show all partitions: region '{region}' cannot be \
             evicted from it; restore its processes, or copy the other keys to another keyspace",
            gone.join(", ")
        ))
    }

    /// What KEYSPACE INFO says.
    pub(super) fn describe(&self, cluster: &ClusterShape) -> Properties {
        let mut properties = vec![("protocol", Property::from(self.protocol.name()))];
        if self.protocol == Protocol::Cops {
            let transactions = if self.transactions { "on" } else { "off" };
            properties.push(("transactions", Property::from(transactions)));
            let conflicts = match (self.keep_conflicts, self.ignore_conflicts) {
                _ if self.handler.is_some() => "handler",
                (true, _) => "keep",
                (_, true) => "ignore",
                _ => "record",
            };
            properties.push(("conflicts", Property::from(conflicts)));
        }
        if self.protocol == Protocol::Pocc {
            let dependants = if self.keeps_dependants { "keep" } else { "discard" };
            properties.push(("dependants", Property::from(dependants)));
        }
        if self.is_copied() {
            properties.push(("copies", Property::Number(u64::from(self.copies))));
        }
        if self.is_placed() {
            let placed = |partition: u16| {
                let holders = self.holders(cluster, partition);
                let names: Vec<&str> =
                    holders.into_iter().map(|region| cluster.region_name(region)).collect();
                format!("{partition}: {}", names.join(", "))
            };
            properties.push(("placement", Property::List((0..self.partitions).map(placed).collect())));
        }
        properties
    }
}
