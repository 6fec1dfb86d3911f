//! What a model adds to [`Nodes`].

use super::maintenance::{self, Maintenance, MaintenanceReplies, MaintenanceTask};
use super::{Backlog, Environment, Figures, Holdings, Hosted, Lag, Locked, Nodes, Pending, Turn};
use crate::contention::{ContentionStats, Sketch};
use crate::contract::Protocol;
use crate::gate::Gate;
use crate::model::{PartitionMove, StoredOptions};
use crate::request::Request;
use parking_lot::Mutex;
use types::{Error, HashSeed, Malformed, NodeId, PartitionId, RequestId, Slot, WallTime};

/// What only a model knows of its instances in a process. A type of the model's crate, with what it has to remember;
/// see [`Hosted`] for the meaning of each function.
pub trait Hosting: Send + Sync {
    /// What it hosts.
    type Protocol: Protocol;

    /// See [`Hosted::counts_meetings`].
    const COUNTS_MEETINGS: bool = false;

    /// True if the process has things to do by itself ([`Hosting::maintenance`]).
    const HAS_CHORES: bool = false;

    /// What the process is to do now because of an instance: keys that have expired, and keys of a cache that are to go. Only
    /// the process that leads a partition tells any of it, or the first one that can if nobody does; a bounded number at a
    /// time.
    fn add_maintenance(&self, node: &Self::Protocol, turn: &mut Turn<'_>, tasks: &mut Vec<MaintenanceTask>) {
        let _ = (node, turn, tasks);
    }

    /// What hashes the keyspace's keys; for maintenance.
    fn seed(&self) -> HashSeed {
        HashSeed::default()
    }

    /// How much an instance holds.
    fn holdings(&self, node: &Self::Protocol) -> Holdings {
        let _ = node;
        Holdings::default()
    }

    /// See [`Figures::is_complete`].
    fn is_complete(&self, nodes: &Locked<'_, Self::Protocol>) -> bool {
        let _ = nodes;
        true
    }

    /// See [`Figures::backlog`]; without meetings, which [`Hosting::contention`] tells.
    fn backlog(&self, nodes: &Locked<'_, Self::Protocol>) -> Backlog {
        let _ = nodes;
        Backlog::default()
    }

    /// See [`Figures::lag`].
    fn lag(&self, nodes: &Locked<'_, Self::Protocol>, wall: WallTime) -> Option<Lag> {
        let _ = (nodes, wall);
        None
    }

    /// See [`Hosted::state`].
    fn state(&self, nodes: &Locked<'_, Self::Protocol>) -> Vec<String> {
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
    fn present(&self, nodes: &Locked<'_, Self::Protocol>, partition: u16) -> Option<PartitionMove> {
        let _ = (nodes, partition);
        None
    }

    /// See [`Hosted::leader`].
    fn leader(&self, nodes: &Locked<'_, Self::Protocol>, partition: u16) -> Option<u16> {
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
    maintenance: Mutex<Maintenance>,
}

impl<H: Hosting> HostedNodes<H> {
    /// Both together.
    pub fn new(nodes: Nodes<H::Protocol>, hosting: H) -> Self {
        HostedNodes { nodes, hosting, maintenance: Mutex::default() }
    }

    fn contention_stats<'n>(
        &'n self,
        nodes: &'n Locked<'_, H::Protocol>,
    ) -> impl Iterator<Item = (PartitionId, &'n ContentionStats)> {
        nodes
            .of_partitions()
            .filter_map(|(partition, node)| Some((partition, self.hosting.contention(node)?)))
    }
}

impl<H: Hosting> Hosted for HostedNodes<H>
where
    Nodes<H::Protocol>: Send + Sync,
{
    fn snapshot(&self, partition: PartitionId, chunk: &[u8]) -> Result<(), String> {
        self.nodes.snapshot(partition, chunk)
    }

    fn recover(&self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
        self.nodes.recover(partition, records)
    }

    fn recovered(&self, complete: bool, turn: &mut Turn<'_>) {
        self.nodes.recovered(complete, turn);
    }

    fn submit(
        &self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) -> Gate {
        let mut heard = MaintenanceReplies::new(&self.maintenance, turn.replies);
        let mut turn = Turn { now: turn.now, random: turn.random, replies: &mut heard };
        self.nodes.submit(requests, environment, &mut turn)
    }

    fn receive(&self, from: NodeId, to: Slot, packet: &[u8]) -> Result<(), Malformed> {
        self.nodes.receive(from, to, packet)
    }

    fn pump(&self, shares: bool, environment: &mut dyn Environment, turn: &mut Turn<'_>) -> Gate {
        let mut heard = MaintenanceReplies::new(&self.maintenance, turn.replies);
        let mut turn = Turn { now: turn.now, random: turn.random, replies: &mut heard };
        let mut gate = Gate::OPEN;
        if H::HAS_CHORES {
            gate = maintenance::run(&self.maintenance, &self.hosting, &self.nodes, environment, &mut turn);
        }
        gate.and(self.nodes.pump(shares, environment, &mut turn))
    }

    fn pending(&self) -> Pending {
        let maintenance = H::HAS_CHORES.then(|| self.maintenance.lock().deadline()).flatten();
        self.nodes.pending().and(Pending::until(maintenance))
    }

    fn partitions(&self) -> Vec<u16> {
        self.nodes.partitions()
    }

    fn checkpoint(
        &self,
        at: (PartitionId, u64),
        chunk: &mut Vec<u8>,
        environment: &mut dyn Environment,
        seal: &mut dyn FnMut(),
    ) -> Option<u64> {
        self.nodes.checkpoint(at, chunk, environment, seal)
    }

    fn figures(&self, wall: WallTime) -> Option<Figures> {
        let nodes = self.nodes.lock_soon()?;
        let contention = self
            .contention_stats(&nodes)
            .fold(Default::default(), |sum, (_, contention)| contention.total().and(sum));
        Some(Figures {
            backlog: Backlog { contention, ..self.hosting.backlog(&nodes) },
            lag: self.hosting.lag(&nodes, wall),
            is_complete: self.hosting.is_complete(&nodes),
        })
    }

    fn holdings(&self) -> Holdings {
        let evicted = self.maintenance.lock().evicted;
        Holdings { evicted, ..self.nodes.holdings(|node| self.hosting.holdings(node)) }
    }

    fn state(&self) -> Vec<String> {
        self.hosting.state(&self.nodes.lock())
    }

    fn configure(&mut self, options: &StoredOptions, turn: &mut Turn<'_>) -> Result<bool, String> {
        self.hosting.configure(&mut self.nodes, options, turn)
    }

    fn counts_meetings(&self) -> bool {
        H::COUNTS_MEETINGS
    }

    fn sketches(&self, reset: bool) -> Vec<Sketch> {
        let mut nodes = self.nodes.lock();
        let sketches = self
            .contention_stats(&nodes)
            .map(|(partition, contention)| contention.sketch(partition))
            .collect();
        if reset {
            nodes.protocols_mut().for_each(|node| self.hosting.reset_contention(node));
        }
        sketches
    }

    fn present(&self, partition: u16) -> Option<PartitionMove> {
        self.hosting.present(&self.nodes.lock(), partition)
    }

    fn leader(&self, partition: u16) -> Option<u16> {
        self.hosting.leader(&self.nodes.lock(), partition)
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
