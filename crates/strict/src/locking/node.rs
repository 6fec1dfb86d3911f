//! One type for both halves, so that one driver hosts them and one message enum connects them.

use super::coordinator::Coordinator;
use super::message::{Message, Timer};
use super::options::Options;
use super::record::Record;
use super::replica::Replica;
use crate::tapir::{Decided, Topology};
use protocol::{Claim, Input, Now, Outputs, Protocol};
use types::{Incarnation, ProcessId, Rng, TransactionId};

/// An instance of the protocol: a replica of a shard, or the coordinator that a gateway hosts.
#[derive(Debug)]
pub enum Node {
    /// One of the 2f+1 copies of a shard.
    Replica(Box<Replica>),
    /// Runs transactions for sessions.
    Coordinator(Box<Coordinator>),
}

impl Node {
    /// Replica `index` of `shard`, in this life of its process.
    pub fn replica(
        topology: Topology,
        shard: u16,
        index: usize,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        Node::Replica(Box::new(Replica::new(topology, shard, index, incarnation, options)))
    }

    /// The coordinator of a process, in this life of it.
    pub fn coordinator(
        topology: Topology,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        Node::Coordinator(Box::new(Coordinator::new(topology, process, incarnation, options)))
    }

    /// Takes the claims of the transactions that committed since the last call; a coordinator with
    /// `Options::claims` only.
    pub fn take_claims(&mut self) -> Vec<Claim> {
        match self {
            Node::Coordinator(coordinator) => coordinator.take_claims(),
            Node::Replica(_) => Vec::new(),
        }
    }

    /// Every transaction that a replica knows to have ended and somebody may ask for; nothing for a coordinator.
    pub fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_ {
        let replica = match self {
            Node::Replica(replica) => Some(replica),
            Node::Coordinator(_) => None,
        };
        replica.into_iter().flat_map(|replica| replica.decided())
    }
}

impl Protocol for Node {
    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match self {
            Node::Replica(replica) => {
                batch.drain(..).for_each(|input| replica.on_input(now, input, random, out));
                replica.turn(now, random, out);
            }
            Node::Coordinator(coordinator) => {
                batch.drain(..).for_each(|input| coordinator.on_input(now, input, random, out));
            }
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Replica(replica) => replica.checkpoint(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }
}
