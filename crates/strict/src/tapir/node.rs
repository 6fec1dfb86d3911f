//! TAPIR's replicas and coordinators as one type.

use super::coordinator::Tapir;
use super::operation::Transactions;
use super::options::{Clocks, Options};
use super::replica::Replica;
use crate::{Decided, Topology, ir};
use protocol::{Input, Now, Outputs};
use types::{Address, Incarnation, PartitionId, ProcessId, Rng, Slot, TransactionId};

/// An instance of TAPIR: a replica of a shard, or a coordinator.
pub type Node = crate::Node<Tapir>;

/// IR's messages as TAPIR uses it.
pub(super) type IrMessage = ir::Message<Transactions>;

impl Node {
    /// A replica of a shard at this process, which is one of the shard's replicas or may join them later.
    pub fn replica_at(
        topology: Topology,
        shard: u16,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        let address = Address { process, slot: Slot::replica(topology.keyspace, PartitionId(shard)) };
        Node::Replica(Box::new(Replica::new(topology, shard, address, incarnation, options)))
    }
}

impl crate::node::Replica<Tapir> for Replica {
    fn new(topology: Topology, shard: u16, index: usize, incarnation: Incarnation, options: Options) -> Self {
        let address = topology.replicas(shard)[index];
        Replica::new(topology, shard, address, incarnation, options)
    }

    fn expect(&self, inputs: &[Input<'_, Node>]) {
        Replica::expect(self, inputs);
    }

    fn on_input(&mut self, now: Now, input: Input<'_, Node>, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        Replica::on_input(self, now, input, random, out);
    }

    fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_ {
        Replica::decided(self)
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        Replica::checkpoint(self, cursor, chunk)
    }
}

impl Node {
    /// Trusts clocks so far from now on; see [`Clocks`].
    pub fn set_clocks(&mut self, clocks: Clocks) {
        match self {
            crate::Node::Replica(replica) => replica.set_clocks(clocks),
            crate::Node::Coordinator(coordinator) => coordinator.options.clock_bound = clocks.bound,
        }
    }
}
