//! Who holds what: the shards of a keyspace and their replicas.

use crate::ir::Configuration;
use std::collections::BTreeMap;
use types::{Address, HashSeed, KeyspaceId, NodeId, ProcessId, Slot};

/// The replicas of a keyspace: on every process the same at first, then as far as it has heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The addresses of each shard's 2f+1 replicas.
    pub shards: Vec<Vec<Address>>,
    /// The epochs of the shards that have moved on from their first replicas.
    pub epochs: BTreeMap<u16, u32>,
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

    /// The epoch that a shard's replicas are of.
    pub fn epoch(&self, shard: u16) -> u32 {
        self.epochs.get(&shard).copied().unwrap_or(0)
    }

    /// A shard's replicas with their epoch.
    pub fn configuration(&self, shard: u16) -> Configuration {
        Configuration { epoch: self.epoch(shard), members: self.replicas(shard).to_vec() }
    }

    /// Takes a shard's configuration if it is of a later epoch; true if it is.
    pub fn learn(&mut self, shard: u16, configuration: &Configuration) -> bool {
        let later = configuration.epoch > self.epoch(shard);
        if let Some(members) = self.shards.get_mut(usize::from(shard)).filter(|_| later) {
            members.clone_from(&configuration.members);
            self.epochs.insert(shard, configuration.epoch);
            return true;
        }
        false
    }

    /// The shard that a replica is of, or was, or will be; none for a coordinator or another keyspace's.
    pub fn shard_of_node(&self, node: NodeId) -> Option<u16> {
        let shard = node.slot.partition.filter(|_| node.slot.keyspace == self.keyspace)?.0;
        (usize::from(shard) < self.shards.len()).then_some(shard)
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
