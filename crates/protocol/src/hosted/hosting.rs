//! What a model adds to [`Nodes`].

use super::maintenance::{Maintenance, MaintenanceReplies, MaintenanceTask};
use super::{Backlog, Environment, Holdings, Hosted, Lag, LogWork, Nodes, Turn};
use crate::contention::{ContentionStats, Sketch};
use crate::contract::Protocol;
use crate::gate::{Durable, Gate};
use crate::model::{PartitionMove, StoredOptions};
use crate::request::Request;
use types::{Error, HashSeed, Instant, Malformed, NodeId, PartitionId, RequestId, Slot, WallTime};

/// What only a model knows of its instances in a process. A type of the model's crate, with what it has to remember;
/// see [`Hosted`] for the meaning of each function.
pub trait Hosting: Send {
    /// What it hosts.
    type Protocol: Protocol;

    /// See [`Hosted::counts_meetings`].
    const COUNTS_MEETINGS: bool = false;

    /// True if the process has things to do by itself ([`Hosting::maintenance`]).
    const HAS_CHORES: bool = false;

    /// What the process is to do now: keys that have expired, and keys of a cache that are to go. Only the process that
    /// leads a partition tells any of it, or the first one that can if nobody does; a bounded number at a time.
    fn maintenance(&self, nodes: &Nodes<Self::Protocol>, turn: &mut Turn<'_>) -> Vec<MaintenanceTask> {
        let _ = (nodes, turn);
        Vec::new()
    }

    /// What hashes the keyspace's keys; for maintenance.
    fn seed(&self) -> HashSeed {
        HashSeed::default()
    }

    /// See [`Hosted::holdings`].
    fn holdings(&self, nodes: &Nodes<Self::Protocol>) -> Holdings {
        let _ = nodes;
        Holdings::default()
    }

    /// See [`Hosted::is_complete`].
    fn is_complete(&self, nodes: &Nodes<Self::Protocol>) -> bool {
        let _ = nodes;
        true
    }

    /// See [`Hosted::backlog`]; without meetings, which [`Hosting::contention_stats`] tells.
    fn backlog(&self, nodes: &Nodes<Self::Protocol>) -> Backlog {
        let _ = nodes;
        Backlog::default()
    }

    /// See [`Hosted::lag`].
    fn lag(&self, nodes: &Nodes<Self::Protocol>, wall: WallTime) -> Option<Lag> {
        let _ = (nodes, wall);
        None
    }

    /// See [`Hosted::state`].
    fn state(&self, nodes: &Nodes<Self::Protocol>) -> Vec<String> {
        let _ = nodes;
        Vec::new()
    }

    /// See [`Hosted::configure`].
    ///
    /// # Errors
    /// As there.
    fn configure(
        &mut self,
        nodes: &mut Nodes<Self::Protocol>,
        options: &StoredOptions,
        turn: &mut Turn<'_>,
    ) -> Result<bool, String> {
        let _ = (nodes, options, turn);
        Ok(false)
    }

    /// What an instance counts of transactions that are in each other's way, if it does.
    fn contention<'n>(&self, node: &'n Self::Protocol) -> Option<&'n ContentionStats> {
        let _ = node;
        None
    }

    /// Forgets what an instance has counted.
    fn reset_contention(&self, node: &mut Self::Protocol) {
        let _ = node;
    }

    /// See [`Hosted::present`].
    fn present(&self, nodes: &Nodes<Self::Protocol>, partition: u16) -> Option<PartitionMove> {
        let _ = (nodes, partition);
        None
    }

    /// See [`Hosted::leader`].
    fn leader(&self, nodes: &Nodes<Self::Protocol>, partition: u16) -> Option<u16> {
        let _ = (nodes, partition);
        None
    }

    /// See [`Hosted::place`].
    fn place(
        &mut self,
        nodes: &mut Nodes<Self::Protocol>,
        partition: u16,
        processes: &[u16],
        turn: &mut Turn<'_>,
    ) {
        let _ = (nodes, partition, processes, turn);
    }

    /// See [`Hosted::accept_loss`].
    ///
    /// # Errors
    /// As there.
    fn accept_loss(
        &mut self,
        nodes: &mut Nodes<Self::Protocol>,
        partition: u16,
        left: &[u16],
        turn: &mut Turn<'_>,
    ) -> Result<Vec<String>, Error> {
        let _ = (nodes, partition, left, turn);
        Err(Error::err("only keyspaces without leaders do this"))
    }
}

/// Instances, and what their model knows of them.
pub struct HostedNodes<H: Hosting> {
    nodes: Nodes<H::Protocol>,
    hosting: H,
    maintenance: Maintenance,
}

impl<H: Hosting> HostedNodes<H> {
    /// Both together.
    pub fn new(nodes: Nodes<H::Protocol>, hosting: H) -> Self {
        HostedNodes { nodes, hosting, maintenance: Maintenance::default() }
    }

    fn contention_stats(&self) -> impl Iterator<Item = (PartitionId, &ContentionStats)> {
        self.nodes
            .of_partitions()
            .filter_map(|(partition, node)| Some((partition, self.hosting.contention(node)?)))
    }
}

impl<H: Hosting> Hosted for HostedNodes<H>
where
    Nodes<H::Protocol>: Send,
{
    fn snapshot(&mut self, partition: PartitionId, chunk: &[u8]) -> Result<(), String> {
        self.nodes.snapshot(partition, chunk)
    }

    fn recover(&mut self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
        self.nodes.recover(partition, records)
    }

    fn recovered(&mut self, complete: bool, turn: &mut Turn<'_>) {
        self.nodes.recovered(complete, turn);
    }

    fn submit(
        &mut self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) {
        let mut heard = MaintenanceReplies::new(&mut self.maintenance, turn.replies);
        let mut turn = Turn { now: turn.now, random: turn.random, replies: &mut heard };
        self.nodes.submit(requests, environment, &mut turn);
    }

    fn receive(&mut self, from: NodeId, to: Slot, packet: &[u8]) -> Result<(), Malformed> {
        self.nodes.receive(from, to, packet)
    }

    fn pump(&mut self, environment: &mut dyn Environment, turn: &mut Turn<'_>) {
        if H::HAS_CHORES {
            self.maintenance.run(&self.hosting, &mut self.nodes, environment, turn);
        }
        let mut heard = MaintenanceReplies::new(&mut self.maintenance, turn.replies);
        let mut turn = Turn { now: turn.now, random: turn.random, replies: &mut heard };
        self.nodes.pump(environment, &mut turn);
    }

    fn hosts(&self, slot: Slot) -> bool {
        self.nodes.hosts(slot)
    }

    fn deadline(&self) -> Option<Instant> {
        let maintenance = self.maintenance.deadline().filter(|_| H::HAS_CHORES);
        self.nodes.deadline().into_iter().chain(maintenance).min()
    }

    fn log_work(&self, durable: Durable) -> LogWork {
        self.nodes.log_work(durable)
    }

    fn reply_gate(&self) -> Gate {
        self.nodes.reply_gate()
    }

    fn partitions(&self) -> Vec<u16> {
        self.nodes.partitions()
    }

    fn checkpoint(&mut self, partition: PartitionId, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        self.nodes.checkpoint(partition, cursor, chunk)
    }

    fn is_complete(&self) -> bool {
        self.hosting.is_complete(&self.nodes)
    }

    fn backlog(&self) -> Backlog {
        let contention = self
            .contention_stats()
            .fold(Default::default(), |sum, (_, contention)| contention.total().and(sum));
        Backlog { contention, ..self.hosting.backlog(&self.nodes) }
    }

    fn holdings(&self) -> Holdings {
        Holdings { evicted: self.maintenance.evicted, ..self.hosting.holdings(&self.nodes) }
    }

    fn lag(&self, wall: WallTime) -> Option<Lag> {
        self.hosting.lag(&self.nodes, wall)
    }

    fn state(&self) -> Vec<String> {
        self.hosting.state(&self.nodes)
    }

    fn configure(&mut self, options: &StoredOptions, turn: &mut Turn<'_>) -> Result<bool, String> {
        self.hosting.configure(&mut self.nodes, options, turn)
    }

    fn counts_meetings(&self) -> bool {
        H::COUNTS_MEETINGS
    }

    fn sketches(&mut self, reset: bool) -> Vec<Sketch> {
        let sketches =
            self.contention_stats().map(|(partition, contention)| contention.sketch(partition)).collect();
        if reset {
            self.nodes.protocols_mut().for_each(|node| self.hosting.reset_contention(node));
        }
        sketches
    }

    fn present(&self, partition: u16) -> Option<PartitionMove> {
        self.hosting.present(&self.nodes, partition)
    }

    fn leader(&self, partition: u16) -> Option<u16> {
        self.hosting.leader(&self.nodes, partition)
    }

    fn place(&mut self, partition: u16, processes: &[u16], turn: &mut Turn<'_>) {
        self.hosting.place(&mut self.nodes, partition, processes, turn);
    }

    fn accept_loss(
        &mut self,
        partition: u16,
        left: &[u16],
        turn: &mut Turn<'_>,
    ) -> Result<Vec<String>, Error> {
        self.hosting.accept_loss(&mut self.nodes, partition, left, turn)
    }
}
