//! Replicas with a leader and their coordinators as one type.

use super::coordinator::TwoPhaseCommit;
use super::options::Options;
use super::replica::Replica;
use crate::{Decided, Topology};
use protocol::{Input, Now, Outputs};
use types::{Incarnation, Rng, TransactionId};

/// An instance of the protocol: a replica of a shard, or a coordinator.
pub type Node = crate::Node<TwoPhaseCommit>;

impl crate::node::Replica<TwoPhaseCommit> for Replica {
    fn new(topology: Topology, shard: u16, index: usize, incarnation: Incarnation, options: Options) -> Self {
        Replica::new(topology, shard, index, incarnation, options)
    }

    fn on_input(&mut self, now: Now, input: Input<'_, Node>, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        Replica::on_input(self, now, input, random, out);
    }

    fn after_inputs(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        self.turn(now, random, out);
    }

    fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_ {
        Replica::decided(self)
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        Replica::checkpoint(self, cursor, chunk)
    }
}
