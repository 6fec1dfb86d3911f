//! One type for the replicas of shards and for coordinators, so that one driver hosts both and one message enum
//! connects them.

use crate::Topology;
use crate::coordinator::{CommitProtocol, Coordinator};
use crate::validation::Stamp;
use protocol::{Claim, Input, Now, Outputs, Protocol};
use std::fmt::Debug;
use types::{Incarnation, ProcessId, Rng, TransactionId};

/// A replica prefetches for so many inputs ahead: the lines must still be in the cache when it gets there.
const EXPECTED: usize = 16;

/// Keys with the binary forms of the effects on them, in the order of application.
pub type KeyedEffects = Vec<(Box<[u8]>, Box<[u8]>)>;

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Decided {
    /// It committed with this stamp and, on this shard, these effects: keys and binary forms, in order.
    Committed {
        /// Its place.
        stamp: Stamp,
        /// This shard's effects.
        effects: KeyedEffects,
    },
    /// It changed nothing.
    Aborted,
}

/// A copy of a shard, as a commit protocol keeps it.
pub trait Replica<P: CommitProtocol>: Debug {
    /// Replica `index` of `shard`, in this life of its process.
    fn new(
        topology: Topology,
        shard: u16,
        index: usize,
        incarnation: Incarnation,
        options: P::Options,
    ) -> Self;
    /// Will react to these inputs next: may ask for what it will look at.
    fn expect(&self, _: &[Input<'_, Node<P>>]) {}
    /// Reacts to an input.
    fn on_input(
        &mut self,
        now: Now,
        input: Input<'_, Node<P>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<P>>,
    );
    /// What waits until all inputs of a step are in.
    fn after_inputs(&mut self, _: Now, _: &mut Rng, _: &mut Outputs<'_, Node<P>>) {}
    /// Transactions that it knows to have ended.
    fn decided(&self) -> impl Iterator<Item = (TransactionId, Decided)> + '_;
    /// See [`Protocol::checkpoint`].
    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64>;
}

/// An instance of the protocol: a replica of a shard, or the coordinator that a gateway hosts.
#[derive(Debug)]
pub enum Node<P: CommitProtocol> {
    /// One of the 2f+1 copies of a shard.
    Replica(Box<P::Replica>),
    /// Runs transactions for sessions; TAPIR's paper calls it a client.
    Coordinator(Box<Coordinator<P>>),
}

impl<P: CommitProtocol> Node<P> {
    /// Replica `index` of `shard`, in this life of its process.
    pub fn replica(
        topology: Topology,
        shard: u16,
        index: usize,
        incarnation: Incarnation,
        options: P::Options,
    ) -> Self {
        Node::Replica(Box::new(P::Replica::new(topology, shard, index, incarnation, options)))
    }

    /// The coordinator of a process, in this life of it.
    pub fn coordinator(
        topology: Topology,
        process: ProcessId,
        incarnation: Incarnation,
        options: P::Options,
    ) -> Self {
        Node::Coordinator(Box::new(Coordinator::new(topology, process, incarnation, options)))
    }

    /// Takes the claims of the transactions that committed since the last call; of a coordinator with the option
    /// `claims` only.
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

impl<P: CommitProtocol> Protocol for Node<P> {
    type Message = P::Message;
    type Timer = P::Timer;
    type Record<'a> = P::Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match self {
            Node::Replica(replica) => {
                let mut inputs = batch.drain(..);
                while !inputs.as_slice().is_empty() {
                    let few = inputs.as_slice().len().min(EXPECTED);
                    replica.expect(&inputs.as_slice()[..few]);
                    inputs.by_ref().take(few).for_each(|input| replica.on_input(now, input, random, out));
                }
                drop(inputs);
                replica.after_inputs(now, random, out);
            }
            Node::Coordinator(coordinator) => {
                batch.drain(..).for_each(|input| coordinator.on_input(now, input, random, out));
                coordinator.after_inputs(now, random, out);
            }
        }
    }

    fn can_wait(message: &P::Message) -> bool {
        P::can_wait(message)
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Replica(replica) => replica.checkpoint(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }
}
