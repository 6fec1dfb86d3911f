//! What the tests of Wren do to a world and look at in it, and those of PaRiS do not.

use crate::wren::under_test::{Options, RegionTopology, Topology};
use crate::wren::world::{KEYSPACE, SEED, World, replica};
use protocol::Claim;
use types::Address;

impl World {
    /// Regions that hold everything.
    pub fn new(regions: u16, partitions: u16, coordinators: u16, options: Options, seed: u64) -> Self {
        let of_region = |region: u16| {
            RegionTopology::full(region.to_string(), (0..partitions).map(|i| replica(region, i)))
        };
        let topology =
            Topology { regions: (0..regions).map(of_region).collect(), keyspace: KEYSPACE, seed: SEED };
        World::of(topology, coordinators, options, seed)
    }

    /// How far ahead a node's clock is, in microseconds.
    pub fn skew(&mut self, address: Address, micros: i64) {
        self.host(address).skew = micros;
    }

    /// How many streamed messages to other regions a replica's peers have not acknowledged, the most of any.
    pub fn unacknowledged(&self, address: Address) -> usize {
        let replica = self.hosts[&address].replica.as_ref().expect("it is up");
        self.hosts.keys().map(|peer| replica.unacknowledged(*peer)).max().unwrap_or(0)
    }

    /// Kills a node as a power cut does that does without syncs: the log of the last so many microseconds is gone.
    pub fn cut_power(&mut self, address: Address, unsynced: u64) {
        let synced = self.now.saturating_sub(unsynced);
        self.crash(address);
        self.host(address).log.retain(|(_, durable_at, _)| *durable_at <= synced);
    }

    /// True for a partition that is up and waits for what it lacks.
    pub fn is_catching_up(&self, address: Address) -> bool {
        let replica = self.hosts.get(&address).and_then(|host| host.replica.as_ref());
        let partition = replica.and_then(|replica| replica.protocol().as_partition());
        partition.is_some_and(|partition| !partition.is_serving())
    }

    /// How many bytes a replica's spool holds.
    pub fn spooled(&self, address: Address) -> usize {
        self.hosts[&address].spool.values().map(Vec::len).sum()
    }

    /// The claims of all coordinators since the last call.
    pub fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }
}
