//! What a model consists of: regions, partitions, coordinators, requests, clocks, and what may go wrong.

use anabranch_causal::wren::{Node, Options, RegionTopology, Scope, Topology};
use std::time::Duration;
use types::{Address, HashSeed, Incarnation, KeyspaceId, PartitionId, ProcessId, RegionId, Slot};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const SEED: HashSeed = HashSeed(7);

/// What a transaction does, to all of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reads them.
    Read,
    /// Writes this value to each, without reading.
    Write(u64),
}

/// A transaction that a client asks for.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// Which coordinator it asks, by number.
    pub coordinator: usize,
    /// What it does.
    pub act: Act,
    /// To which keys: one of each of these partitions.
    pub keys: Vec<u16>,
    /// The client sends it only after this other one was answered.
    pub after: Option<u8>,
    /// The client sends it at the beginning: its messages arrive whenever they like, and nothing else depends on when
    /// it was sent.
    pub at_once: bool,
}

/// A bounded model.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many regions there are.
    pub regions: u16,
    /// How many partitions.
    pub partitions: u16,
    /// Options of every instance.
    pub options: Options,
    /// What the clock of each partition shows, region by region, in microseconds: first this, then each of the next. Behind
    /// them, what those of coordinators show; 0 if nothing is said.
    pub walls: Vec<Vec<u64>>,
    /// The region of each coordinator.
    pub coordinators: Vec<u16>,
    /// The coordinators that may die, a bit each.
    pub mortal: u8,
    /// The transactions.
    pub requests: Vec<ClientRequest>,
    /// Participants may look for transactions in doubt, at any time.
    pub doubts: bool,
    /// How many restarts of partitions there may be.
    pub restarts: u8,
    /// How much of a stream may be on its way: more is not said before something has arrived.
    pub window: usize,
}

impl Setup {
    /// Nothing but partitions whose clocks stand still at the same time.
    pub fn new(regions: u16, partitions: u16) -> Self {
        let options = Options {
            // The clocks that count delays stand still: what is due by them happens whenever it likes.
            tick_every: Duration::ZERO,
            doubt_after: Duration::ZERO,
            scope: Scope::Session,
            claims: true,
            ..Options::default()
        };
        Setup {
            regions,
            partitions,
            options,
            walls: vec![vec![0]; usize::from(regions * partitions)],
            coordinators: Vec::new(),
            mortal: 0,
            requests: Vec::new(),
            doubts: false,
            restarts: 0,
            window: 1,
        }
    }

    /// Adds a coordinator of a region with a transaction.
    pub fn with(mut self, region: u16, act: Act, keys: &[u16]) -> Self {
        self.coordinators.push(region);
        self.asks(act, keys)
    }

    /// Lets the last coordinator's client ask for one more, as the same session.
    pub fn asks(mut self, act: Act, keys: &[u16]) -> Self {
        let coordinator = self.coordinators.len() - 1;
        let before =
            self.requests.len().checked_sub(1).filter(|last| self.requests[*last].coordinator == coordinator);
        let after = before.map(|last| last as u8);
        let at_once = matches!(act, Act::Write(_)) && after.is_none();
        self.requests.push(ClientRequest { coordinator, act, keys: keys.to_vec(), after, at_once });
        self
    }

    /// The topology.
    pub fn topology(&self) -> Topology {
        let region = |region: u16| {
            let replicas = (0..self.partitions).map(|partition| self.replica(region, partition));
            RegionTopology::full(region.to_string(), replicas)
        };
        Topology { regions: (0..self.regions).map(region).collect(), keyspace: KEYSPACE, seed: SEED }
    }

    fn replica(&self, region: u16, partition: u16) -> Address {
        let process = ProcessId(region * self.partitions + partition);
        Address { process, slot: Slot::replica(KEYSPACE, PartitionId(partition)) }
    }

    /// How many instances are replicas; those come first, region by region.
    pub fn replicas(&self) -> usize {
        usize::from(self.regions * self.partitions)
    }

    /// How many instances there are.
    pub fn instances(&self) -> usize {
        self.replicas() + self.coordinators.len()
    }

    /// The region of an instance.
    pub fn region(&self, index: usize) -> u16 {
        match index.checked_sub(self.replicas()) {
            None => index as u16 / self.partitions,
            Some(coordinator) => self.coordinators[coordinator],
        }
    }

    /// The address of an instance.
    pub fn address(&self, index: usize) -> Address {
        match index < self.replicas() {
            true => self.replica(self.region(index), index as u16 % self.partitions),
            false => Address { process: ProcessId(index as u16), slot: Slot::coordinator(KEYSPACE) },
        }
    }

    /// Which instance has this address.
    pub fn find(&self, address: Address) -> Option<usize> {
        (0..self.instances()).find(|index| self.address(*index) == address)
    }

    /// The instance, in a life of it.
    pub fn node(&self, index: usize, life: Incarnation) -> Node {
        let (topology, region) = (self.topology(), RegionId(self.region(index)));
        match index < self.replicas() {
            true => Node::partition(topology, region, index as u16 % self.partitions, self.options),
            false => Node::coordinator(topology, region, ProcessId(index as u16), life, self.options),
        }
    }

    /// The key of a partition.
    pub fn key_of(&self, partition: u16) -> String {
        let names = (0..).map(|number| format!("k{number}"));
        let mut of_partition =
            names.filter(|key| SEED.hash(key.as_bytes()).share(self.partitions) == partition);
        of_partition.next().expect("there is one")
    }

    /// The key, hashed.
    pub fn hash(key: &str) -> types::KeyHash {
        SEED.hash(key.as_bytes())
    }
}
