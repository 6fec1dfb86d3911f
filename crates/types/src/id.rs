//! Identifiers. Every one that outlives a process carries its incarnation (Corrections 57 and 67).

use crate::wire_struct;
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $repr);
        wire_struct!($name(0));
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    };
}

number!(
    /// A data center. The first region of a deployment is 0.
    RegionId(u16)
);
number!(
    /// One running server, unique in a deployment for ever; a process keeps its id over restarts.
    ProcessId(u16)
);
number!(
    /// How many times a process has started. What it said in one life never counts in another (Corrections 67).
    Incarnation(u32)
);
number!(
    /// A named set of keys with one model and its options.
    KeyspaceId(u16)
);
number!(
    /// A share of a keyspace's keys (the papers say partition or shard).
    PartitionId(u16)
);
number!(
    /// A client's causal thread: one per connection unless the keyspace shares the process's.
    SessionId(u64)
);
number!(
    /// Names a request between a gateway and the protocol that answers it; unique per process incarnation.
    RequestId(u64)
);

/// Which of a process's protocol instances is meant: a replica of a partition, or a keyspace's coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The partition, or `None` for the coordinator that the gateway hosts.
    pub partition: Option<PartitionId>,
}
wire_struct!(Slot { keyspace, partition });

impl Slot {
    /// The replica of `partition`.
    pub fn replica(keyspace: KeyspaceId, partition: PartitionId) -> Self {
        Slot { keyspace, partition: Some(partition) }
    }

    /// The keyspace's coordinator.
    pub fn coordinator(keyspace: KeyspaceId) -> Self {
        Slot { keyspace, partition: None }
    }
}

/// Where a protocol instance is to be found, whichever life of the process it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The process that hosts it.
    pub process: ProcessId,
    /// The instance inside the process.
    pub slot: Slot,
}
wire_struct!(Address { process, slot });

impl Address {
    /// The instance in one life of its process.
    pub fn at(self, incarnation: Incarnation) -> NodeId {
        NodeId { process: self.process, incarnation, slot: self.slot }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}/k{}", self.process, self.slot.keyspace)?;
        match self.slot.partition {
            Some(partition) => write!(f, "/{partition}"),
            None => write!(f, "/coordinator"),
        }
    }
}

/// One life of a protocol instance: where it runs, since when, and which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    /// The process that hosts it.
    pub process: ProcessId,
    /// The process's incarnation; a message to an older one is dropped.
    pub incarnation: Incarnation,
    /// The instance inside the process.
    pub slot: Slot,
}
wire_struct!(NodeId { process, incarnation, slot });

impl NodeId {
    /// Where it is to be found in any life.
    pub fn address(self) -> Address {
        Address { process: self.process, slot: self.slot }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.address(), self.incarnation)
    }
}

/// A transaction, unique in a deployment for ever: its coordinator's process and incarnation, and a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// The coordinator's process.
    pub process: ProcessId,
    /// The coordinator's incarnation.
    pub incarnation: Incarnation,
    /// Counts up, never reset within an incarnation.
    pub number: u64,
}
wire_struct!(TransactionId { process, incarnation, number });

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}.{}", self.process, self.incarnation, self.number)
    }
}
