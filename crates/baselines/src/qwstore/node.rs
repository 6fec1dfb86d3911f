//! QWStore's replicas and coordinators as one type.

use super::Options;
use super::coordinator::Coordinator;
use super::message::{Message, Record, Timer};
use super::replica::Replica;
use protocol::{Input, Now, Outputs, Protocol};
use strict::Topology;
use types::{Incarnation, ProcessId, Rng};

/// An instance of QWStore.
#[derive(Debug)]
pub enum Node {
    /// One of the 2f+1 copies of a shard.
    Replica(Box<Replica>),
    /// Runs operations for sessions.
    Coordinator(Box<Coordinator>),
}

impl Node {
    /// A replica of a shard.
    pub fn replica(topology: &Topology, options: &Options) -> Self {
        Node::Replica(Box::new(Replica::new(topology.seed, options.durability)))
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
}

impl Protocol for Node {
    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        for input in batch.drain(..) {
            match self {
                Node::Replica(replica) => replica.on_input(input, random, out),
                Node::Coordinator(coordinator) => coordinator.on_input(now, input, random, out),
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
