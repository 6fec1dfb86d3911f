//! What a model consists of: instances, requests, and how much may go wrong.

use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Node, Options, Topology};
use types::{Address, HashSeed, Incarnation, KeyspaceId, PartitionId, ProcessId, Slot, TransactionId};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// Replicas of each shard: f = 1.
pub const MEMBERS: usize = 3;

/// One step of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reads a value.
    Get,
    /// Writes one, without reading.
    Set(u64),
    /// Adds one and sees the sum.
    Increment,
    /// Adds one and sees nothing.
    Blind,
}

impl Act {
    /// What it writes, if it is a `Set`.
    pub fn value(self) -> String {
        match self {
            Act::Set(value) => value.to_string(),
            _ => String::new(),
        }
    }
}

/// A transaction that a client asks for.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// Which coordinator it asks.
    pub coordinator: usize,
    /// What it does.
    pub acts: Vec<(&'static str, Act)>,
    /// The client sends it only after this other one was answered.
    pub after: Option<u8>,
}

/// A coordinator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gateway {
    /// How far its clock is off, in microseconds.
    pub skew: i64,
    /// Which replica of a shard it reads from first, counted from 0.
    pub near: u16,
    /// It dies as soon as it has sent its first messages: nothing reaches it.
    pub dies: bool,
}

/// Which messages arrive at all: from which instance, to which, and what. Losing the others makes a model smaller.
pub type Routes = fn(usize, usize, &Message) -> bool;

/// A bounded model. Messages may be lost, repeated without bound and reordered at will; the rest is counted.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who holds what.
    pub topology: Topology,
    /// The options of every instance.
    pub options: Options,
    /// The coordinators.
    pub gateways: Vec<Gateway>,
    /// The transactions.
    pub requests: Vec<ClientRequest>,
    /// How many timers of each coordinator may fire; the first is the one of the slow path.
    pub timers: u8,
    /// The replicas of the first shard that may recover transactions, by member.
    pub backups: Vec<usize>,
    /// How many recoveries of one transaction each of them may begin.
    pub recoveries: u8,
    /// The highest view that anybody may ask for.
    pub views: u64,
    /// How many restarts there may be: with the log, and without.
    pub restarts: (u8, u8),
    /// Messages are delivered at most once; else as often as anybody likes.
    pub once: bool,
    /// The replicas that are down all the time.
    pub down: Vec<usize>,
    /// What does not pass is lost.
    pub routes: Option<Routes>,
    /// By coordinator: the replicas that hear what it proposes and finalizes, a bit each; empty for all of them.
    pub heard: Vec<u8>,
    /// A replica's acknowledgement of an outcome is part of the state, so that properties can speak of it.
    pub acknowledgements: bool,
}

impl Setup {
    /// One shard, three replicas, nothing but messages.
    pub fn new(shards: u16) -> Self {
        let replica = |shard: u16, member: u16| Address {
            process: ProcessId(member + 1),
            slot: Slot { keyspace: KEYSPACE, partition: Some(PartitionId(shard)) },
        };
        let replicas = |shard| (0..MEMBERS as u16).map(|member| replica(shard, member)).collect();
        Setup {
            topology: Topology {
                epochs: Default::default(),
                shards: (0..shards).map(replicas).collect(),
                keyspace: KEYSPACE,
                seed: HashSeed(7),
            },
            // Synchronization is left to scripts and random runs.
            options: Options { retries: 0, quorum_reads: false, sync_every: None, ..Options::default() },
            gateways: Vec::new(),
            requests: Vec::new(),
            timers: 0,
            backups: Vec::new(),
            recoveries: 1,
            views: 0,
            restarts: (0, 0),
            once: false,
            down: Vec::new(),
            routes: None,
            heard: Vec::new(),
            acknowledgements: false,
        }
    }

    /// Adds a coordinator and its transaction.
    pub fn with(mut self, gateway: Gateway, acts: &[(&'static str, Act)]) -> Self {
        let coordinator = self.gateways.len();
        self.gateways.push(gateway);
        self.requests.push(ClientRequest { coordinator, acts: acts.to_vec(), after: None });
        self
    }

    /// The client sends the last transaction only after that one was answered.
    pub fn after(mut self, other: u8) -> Self {
        if let Some(last) = self.requests.last_mut() {
            last.after = Some(other);
        }
        self
    }

    /// How many instances are replicas; those come first, shard by shard.
    pub fn replicas(&self) -> usize {
        self.topology.shards.len() * MEMBERS
    }

    /// How many instances there are.
    pub fn instances(&self) -> usize {
        self.replicas() + self.gateways.len()
    }

    /// The address of an instance.
    pub fn address(&self, index: usize) -> Address {
        match index.checked_sub(self.replicas()) {
            None => self.topology.shards[index / MEMBERS][index % MEMBERS],
            Some(gateway) => self.topology.coordinator(ProcessId(gateway as u16 + 1)),
        }
    }

    /// True if this message of a coordinator arrives at replicas that hear it, or is none of its proposals.
    pub fn is_heard(&self, from: usize, to: usize, message: &Message) -> bool {
        let proposal = matches!(message, Message::Ir { message: Ir::Propose { .. } | Ir::Finalize { .. } });
        let heard = from.checked_sub(self.replicas()).and_then(|gateway| self.heard.get(gateway));
        !proposal || heard.is_none_or(|heard| heard & (1 << (to % MEMBERS)) != 0)
    }

    /// True for a coordinator that dies.
    pub fn dies(&self, index: usize) -> bool {
        index.checked_sub(self.replicas()).is_some_and(|gateway| self.gateways[gateway].dies)
    }

    /// Which instance has this address.
    pub fn find(&self, address: Address) -> Option<usize> {
        (0..self.instances()).find(|index| self.address(*index) == address)
    }

    /// The instance in a life of it.
    pub fn node(&self, index: usize, life: Incarnation) -> Node {
        let (topology, options) = (self.topology.clone(), self.options.clone());
        match index.checked_sub(self.replicas()) {
            None => Node::replica(topology, (index / MEMBERS) as u16, index % MEMBERS, life, options),
            Some(gateway) => {
                let near = Some(ProcessId(self.gateways[gateway].near + 1));
                let process = ProcessId(gateway as u16 + 1);
                Node::coordinator(topology, process, life, Options { near, ..options })
            }
        }
    }

    /// How far an instance's clock is off, in microseconds.
    pub fn skew(&self, index: usize) -> i64 {
        index.checked_sub(self.replicas()).map_or(0, |gateway| self.gateways[gateway].skew)
    }

    /// Which request a transaction carries out: a coordinator numbers a request once when it takes it and once when
    /// it runs it.
    pub fn request_of(&self, transaction: TransactionId) -> Option<usize> {
        let coordinator = usize::from(transaction.process.0) - 1;
        let own = self.requests.iter().enumerate().filter(|(_, request)| request.coordinator == coordinator);
        let nth = (transaction.number / 2).checked_sub(1)? as usize;
        own.map(|(index, _)| index).nth(nth)
    }

    /// A key of a shard.
    pub fn key_of(&self, shard: u16) -> &'static str {
        const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        KEYS.into_iter()
            .find(|key| self.topology.shard_of(key.as_bytes()) == shard)
            .expect("a key of the shard")
    }
}
