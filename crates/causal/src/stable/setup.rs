//! Who takes part, and how a node is set up.

use super::{Mutants, tree};
use protocol::Durability;
use replication::Window;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, HashSeed, KeyHash, KeyspaceId, RegionId};

/// One region's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionTopology {
    /// What people call it.
    pub name: String,
    /// The replica of every partition that it holds, by the partition's number.
    pub partitions: BTreeMap<u16, Address>,
}

impl RegionTopology {
    /// A region that holds every partition.
    pub fn full(name: impl Into<String>, replicas: impl IntoIterator<Item = Address>) -> Self {
        RegionTopology { name: name.into(), partitions: (0..).zip(replicas).collect() }
    }
}

/// A keyspace's regions and replicas, the same on every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In order of their id, from 0.
    pub regions: Vec<RegionTopology>,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Hashes the keys.
    pub seed: HashSeed,
}

impl Topology {
    /// How many partitions there are.
    pub fn partitions(&self) -> u16 {
        let last = self.regions.iter().filter_map(|region| region.partitions.last_key_value());
        last.map(|(partition, _)| partition + 1).max().unwrap_or(0)
    }

    /// The partition a key belongs to.
    pub fn partition_of(&self, hash: KeyHash) -> u16 {
        hash.share(self.partitions())
    }

    /// The replica of a partition in a region that holds it.
    ///
    /// # Panics
    /// If the region does not hold it.
    pub fn address(&self, region: RegionId, partition: u16) -> Address {
        self.regions[usize::from(region.0)].partitions[&partition]
    }

    /// What makes the ids that a region chooses differ from those that others choose; `None` where it is the only one.
    pub fn site(&self, region: RegionId) -> Option<u16> {
        (self.regions.len() > 1).then_some(region.0)
    }

    /// The regions that hold a partition, each with its replica.
    pub fn holders(&self, partition: u16) -> impl Iterator<Item = (RegionId, Address)> {
        let regions = (0u16..).map(RegionId).zip(&self.regions);
        regions.filter_map(move |(region, held)| Some((region, *held.partitions.get(&partition)?)))
    }

    /// The partitions that a region holds, each with its replica.
    pub fn held(&self, region: RegionId) -> impl Iterator<Item = (u16, Address)> {
        let held = self.regions.get(usize::from(region.0)).into_iter().flat_map(|region| &region.partitions);
        held.map(|(partition, replica)| (*partition, *replica))
    }

    /// The error for clients of an evicted region.
    pub(crate) fn why_evicted(&self, region: RegionId) -> String {
        format!(
            "region {} was evicted from the keyspace, for good; nothing was done; use a process of another region",
            self.name(region)
        )
    }

    /// The error for a session that depends on writes given up with an evicted region.
    pub(super) fn why_bereft(&self, region: RegionId) -> String {
        format!(
            "region {} was evicted, and this session depends on writes that were lost with it; nothing was done now; the \
             session begins anew: read what you rely on",
            self.name(region)
        )
    }

    /// A region's name; empty if there is no such region.
    pub(crate) fn name(&self, region: RegionId) -> &str {
        self.regions.get(usize::from(region.0)).map_or("", |region| &region.name)
    }

    /// The names of the regions that hold a partition.
    pub(super) fn names(&self, partition: u16) -> String {
        let names = self.holders(partition).map(|(region, _)| &*self.regions[usize::from(region.0)].name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// The root of a region's stabilization tree: the first partition that it holds.
    pub(super) fn root(&self, region: RegionId) -> Option<Address> {
        self.held(region).next().map(|(_, replica)| replica)
    }

    /// Whom a partition of a region reports to in the region's stabilization tree; nobody if it is the root.
    pub(super) fn parent(&self, region: RegionId, index: u16, fan_out: u16) -> Option<Address> {
        let parent = tree::parent(self.position(region, index)?, fan_out)?;
        self.held(region).nth(parent).map(|(_, replica)| replica)
    }

    /// Who reports to a partition of a region.
    pub(super) fn children(
        &self,
        region: RegionId,
        index: u16,
        fan_out: u16,
    ) -> impl Iterator<Item = Address> {
        let children = self.position(region, index).map(|position| tree::children(position, fan_out));
        let held = self.held(region).map(|(_, replica)| replica).enumerate();
        held.filter(move |(at, _)| children.as_ref().is_some_and(|children| children.contains(at)))
            .map(|(_, replica)| replica)
    }

    /// Where a partition stands among those that a region holds.
    fn position(&self, region: RegionId, index: u16) -> Option<usize> {
        self.held(region).position(|(held, _)| held == index)
    }

    /// The roots of the other regions.
    pub(super) fn other_roots(&self, region: RegionId) -> impl Iterator<Item = Address> {
        self.others(region).filter_map(|other| self.root(other))
    }

    /// Whose replica of which partition is at an address.
    pub(crate) fn locate(&self, address: Address) -> Option<(RegionId, u16)> {
        let regions = (0u16..).zip(&self.regions);
        let mut found = regions.filter_map(|(region, topology)| {
            let (index, _) = topology.partitions.iter().find(|(_, replica)| **replica == address)?;
            Some((RegionId(region), *index))
        });
        found.next()
    }

    /// Every region but this one.
    pub(crate) fn others(&self, region: RegionId) -> impl Iterator<Item = RegionId> + use<> {
        (0..self.regions.len() as u16).map(RegionId).filter(move |other| *other != region)
    }
}

/// Whose writes a session reads before they are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All sessions of a coordinator share one causal thread: its highest write time and its cache. What connection
    /// pools need, and the default.
    Process,
    /// Every session is a causal thread of its own.
    Session,
}

/// How a node is set up. Times are intervals unless they say otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How durable a record is before what follows it leaves.
    pub durability: Durability,
    /// Between two ticks of a partition, in which it applies committed transactions (the paper's delta R) and reports for the
    /// stable times what it has not reported before (the paper's delta G). The ticks of all partitions whose clocks agree
    /// coincide.
    pub tick_every: Duration,
    /// How many partitions report to one at most, in the tree by which a region finds what is stable; 1 at least.
    pub fan_out: u16,
    /// After how long without an answer a replica counts as down, where a partition has others.
    pub suspect_after: Duration,
    /// After how long without an answer a coordinator asks a partition again.
    pub retry_after: Duration,
    /// After how long a coordinator gives a request up.
    pub give_up_after: Duration,
    /// Where snapshots show what is not stable: after how long a request that waits for what another region has not sent
    /// declares that region cut off (the thesis, section 3.7.1).
    pub declare_after: Duration,
    /// After how long without a decision a participant asks the decider, and the decider aborts.
    pub doubt_after: Duration,
    /// How long partitions retain the snapshots of a silent coordinator.
    pub lease: Duration,
    /// How long an interactive transaction may stay open, and how long a watch holds.
    pub open_for: Duration,
    /// How far beyond the published bound a partition promises, in its log, not to stamp after a restart.
    pub promise: Duration,
    /// How far ahead of a partition's clock a coordinator's timestamp may be (Corrections 35 and 85).
    pub clock_bound: Duration,
    /// How much of its transactions a partition keeps in memory for regions that lack them, in bytes.
    pub queue_bytes: usize,
    /// How much beyond that it keeps in its spool, in bytes; 0 if there is none. A region that was cut off for longer takes
    /// the state instead. Partitions that have copies do not spill.
    pub spill_bytes: u64,
    /// How much may be on its way to a region that has not said that it holds it.
    pub window: Window,
    /// About how much of its state a replica gives to another one at a time, in bytes.
    pub piece_bytes: usize,
    /// For how long who gives keeps what a silent taker may still ask for, and who takes waits for the next piece. Many round
    /// trips between regions, or no transfer ever ends.
    pub transfer_patience: Duration,
    /// How much memory a partition's list of writes that were lost to concurrent ones may occupy, in bytes; 0 for no list.
    pub conflict_bytes: usize,
    /// Where a session may have seen what is given up with an evicted region: true if what depends on it stays.
    pub keeps_dependants: bool,
    /// True if every partition is a group of copies in its region (`replication::copies`): whoever is spoken to may have been
    /// deposed, and some follow.
    pub copied: bool,
    /// Where reads wait: true if what commits is known to them from the next application on, as in the code that the thesis
    /// measured; else at once.
    pub applied_reads: bool,
    /// True if a partition that lost records serves with what the peers that answer know, and without peers with
    /// what is left (Corrections 84). Otherwise it waits for all of them.
    pub accept_loss: bool,
    /// How many single commands of a session's pipeline may run as one transaction.
    pub pipelined: usize,
    /// The causal thread that sessions share.
    pub scope: Scope,
    /// True if coordinators shall claim what their transactions saw and did, for checkers.
    pub claims: bool,
    /// Deliberate mistakes.
    pub mutants: Mutants,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Written,
            tick_every: Duration::from_millis(5),
            fan_out: 8,
            suspect_after: Duration::from_millis(500),
            retry_after: Duration::from_millis(100),
            give_up_after: Duration::from_secs(5),
            declare_after: Duration::from_secs(5),
            doubt_after: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            open_for: Duration::from_secs(60),
            promise: Duration::from_millis(250),
            clock_bound: Duration::from_secs(60),
            queue_bytes: 32 << 20,
            spill_bytes: 0,
            window: Window { items: 4096, bytes: 4 << 20 },
            piece_bytes: 64 << 10,
            transfer_patience: Duration::from_secs(10),
            conflict_bytes: 4 << 20,
            keeps_dependants: false,
            copied: false,
            applied_reads: false,
            accept_loss: false,
            pipelined: 64,
            scope: Scope::Process,
            claims: false,
            mutants: Mutants::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PartitionId, ProcessId, Slot};

    #[test]
    fn a_replica_is_found_by_its_address() {
        let keyspace = KeyspaceId(4);
        let replica = |process: u16, partition: u16| Address {
            process: ProcessId(process),
            slot: Slot::replica(keyspace, PartitionId(partition)),
        };
        let region = |process| RegionTopology::full("any", [replica(process, 0), replica(process, 1)]);
        let topology = Topology { regions: vec![region(1), region(2)], keyspace, seed: HashSeed(0) };
        assert_eq!(topology.locate(replica(2, 1)), Some((RegionId(1), 1)));
        assert_eq!(topology.locate(replica(3, 1)), None);
        assert_eq!(topology.others(RegionId(0)).collect::<Vec<_>>(), [RegionId(1)]);
        assert_eq!(topology.partition_of(KeyHash(u64::MAX)), 1);
    }

    #[test]
    fn a_region_may_hold_a_part_of_the_partitions() {
        let keyspace = KeyspaceId(4);
        let replica = |process: u16, partition: u16| Address {
            process: ProcessId(process),
            slot: Slot::replica(keyspace, PartitionId(partition)),
        };
        let region = |name: &str, process, held: &[u16]| RegionTopology {
            name: name.into(),
            partitions: held.iter().map(|partition| (*partition, replica(process, *partition))).collect(),
        };
        let regions = vec![region("a", 1, &[0, 2]), region("b", 2, &[1, 2]), region("c", 3, &[])];
        let topology = Topology { regions, keyspace, seed: HashSeed(0) };
        assert_eq!(topology.partitions(), 3);
        assert_eq!(topology.locate(replica(2, 2)), Some((RegionId(1), 2)));
        assert_eq!(topology.names(2), "a, b");
        assert_eq!(topology.root(RegionId(1)), Some(replica(2, 1)));
        assert_eq!(topology.root(RegionId(2)), None, "a region may hold nothing");
        assert_eq!(topology.parent(RegionId(1), 2, 8), Some(replica(2, 1)), "they stand side by side");
        assert_eq!(topology.children(RegionId(1), 1, 8).collect::<Vec<_>>(), [replica(2, 2)]);
        assert_eq!(topology.other_roots(RegionId(2)).collect::<Vec<_>>(), [replica(1, 0), replica(2, 1)]);
    }
}
