//! Who holds what: the shards of a keyspace and their replicas.

use types::{Address, HashSeed, KeyspaceId, ProcessId, Slot};

/// The replicas of a keyspace. The same on every process.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The addresses of each shard's 2f+1 replicas.
    pub shards: Vec<Vec<Address>>,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Hashes the keys.
    pub seed: HashSeed,
}

impl Topology {
    /// The shard of a key.
    pub fn shard_of(&self, key: &[u8]) -> u16 {
        self.seed.hash(key).share(self.shards.len() as u16)
    }

    /// The replicas of a shard; none for a shard that does not exist.
    pub fn replicas(&self, shard: u16) -> &[Address] {
        self.shards.get(usize::from(shard)).map_or(&[], Vec::as_slice)
    }

    /// Which replica of which shard this is.
    pub fn find(&self, address: Address) -> Option<(u16, usize)> {
        (0..self.shards.len() as u16).find_map(|shard| {
            let member = self.replicas(shard).iter().position(|replica| *replica == address)?;
            Some((shard, member))
        })
    }

    /// The coordinator that a process's gateway hosts.
    pub fn coordinator(&self, process: ProcessId) -> Address {
        Address { process, slot: Slot::coordinator(self.keyspace) }
    }
}
