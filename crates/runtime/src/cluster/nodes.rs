//! The replicas and the coordinator of one replicated keyspace in this process, stepped by the thread that owns them.

use crate::cluster::LogWork;
use crate::cluster::peers::Peers;
use crate::cluster::spool::Spools;
use crate::journal::Journal;
use crate::recovery::NoReplies;
use protocol::{Durable, Gate, Input, Now, Packet, Protocol, Replica, Replies, Request};
use replication::copies::{self, Copied};
use types::{
    Address, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RequestId, Rng, Slot, Wire,
};

/// See the module.
pub(crate) struct Nodes<P: Protocol> {
    process: ProcessId,
    keyspace: KeyspaceId,
    /// The coordinator first.
    replicas: Vec<Replica<P>>,
    /// Their slots.
    slots: Vec<Slot>,
    /// What came for each of them and waits to be served, with its sender.
    inboxes: Vec<Vec<(NodeId, Packet<P>)>>,
}

/// What every step is given.
pub(crate) struct Turn<'t> {
    pub(crate) now: Now,
    pub(crate) random: &'t mut Rng,
    pub(crate) replies: &'t mut dyn Replies,
}

/// Where records, packets and what is spilled go.
pub(crate) struct Context<'c> {
    pub(crate) journal: Option<&'c Journal>,
    pub(crate) peers: &'c mut Peers,
    pub(crate) spools: &'c mut Spools,
}

impl Context<'_> {
    /// How far the log is durable; without a log there is nothing to wait for.
    fn durable(&self) -> Durable {
        self.journal.map_or(Durable { written: u64::MAX, synced: u64::MAX }, Journal::durable)
    }
}

impl<P: Protocol> Nodes<P> {
    pub(crate) fn new(process: ProcessId, keyspace: KeyspaceId, replicas: Vec<Replica<P>>) -> Self {
        let inboxes = replicas.iter().map(|_| Vec::new()).collect();
        let slots = replicas.iter().map(|replica| replica.node().slot).collect();
        Nodes { process, keyspace, replicas, slots, inboxes }
    }

    fn of(&mut self, slot: Slot) -> Option<&mut Replica<P>> {
        let index = self.index_of(slot)?;
        self.replicas.get_mut(index)
    }

    /// One more replica, unless it is here.
    pub(crate) fn host(&mut self, replica: Replica<P>) -> bool {
        let slot = replica.node().slot;
        let fresh = !self.hosts(slot);
        if fresh {
            self.slots.push(slot);
            self.inboxes.push(Vec::new());
            self.replicas.push(replica);
        }
        fresh
    }

    /// True if the instance is here.
    pub(crate) fn hosts(&self, slot: Slot) -> bool {
        self.index_of(slot).is_some()
    }

    /// The process says something to one of its instances, in the coordinator's name.
    pub(crate) fn tell(&mut self, to: Slot, message: P::Message, now: Now) {
        let Some(from) = self.replicas.first().map(Replica::node) else { return };
        let Some(instance) = self.of(to) else { return };
        let said =
            instance.receive(now, from, Packet::Datagram(message), &mut Rng::new(), &mut NoReplies::new());
        debug_assert!(said.is_ok(), "what a process says to itself is well formed");
    }

    fn of_log(&mut self, partition: PartitionId) -> Result<&mut Replica<P>, String> {
        let keyspace = self.keyspace;
        self.of(Slot::replica(keyspace, partition)).ok_or_else(|| {
            format!(
                "the log has partition {partition} of keyspace {keyspace}, which is not kept here any more"
            )
        })
    }

    /// A piece of a replica's checkpoint.
    pub(crate) fn snapshot(&mut self, partition: PartitionId, chunk: &[u8]) -> Result<(), String> {
        step_before_life(self.of_log(partition)?, Input::Snapshot(chunk));
        Ok(())
    }

    /// Records of a replica, each behind its length.
    pub(crate) fn recover(&mut self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
        let replica = self.of_log(partition)?;
        let mut rest = records;
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            let Some(record) = after.get(..len) else { return Err("a record is cut".to_owned()) };
            step_before_life(replica, Input::Recover(record));
            rest = &after[len..];
        }
        Ok(())
    }

    /// Recovery is over.
    pub(crate) fn recovered(&mut self, complete: bool, now: Now) {
        for replica in &mut self.replicas {
            // A coordinator keeps nothing that could be missing.
            let complete = complete || replica.node().slot.partition.is_none();
            let mut random = Rng::new();
            replica.step(now, &mut vec![Input::Recovered { complete }], &mut random, &mut NoReplies::new());
        }
    }

    /// Hands requests to the coordinator, or to the site that serves clients itself, and logs what it persisted: its
    /// replies may wait for that.
    pub(crate) fn submit(
        &mut self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        journal: Option<&Journal>,
        turn: &mut Turn<'_>,
    ) {
        let mut batch: Vec<_> =
            requests.drain(..).map(|(id, request)| Input::Request { id, request }).collect();
        if let Some(coordinator) = self.replicas.first_mut() {
            coordinator.step(turn.now, &mut batch, turn.random, turn.replies);
            log(self.keyspace, coordinator, journal);
        }
    }

    /// A packet came from a peer; [`Nodes::pump`] serves it.
    pub(crate) fn receive(&mut self, from: NodeId, to: Slot, packet: &[u8]) {
        let Some(index) = self.index_of(to) else { return };
        match Packet::decode(&mut Reader::new(packet)) {
            Ok(packet) => self.inboxes[index].push((from, packet)),
            Err(error) => tracing::warn!(%from, %error, "a malformed packet was dropped"),
        }
    }

    fn index_of(&self, slot: Slot) -> Option<usize> {
        self.slots.iter().position(|mine| *mine == slot)
    }

    /// Hands out what is in the inboxes, to each replica all at once; false if there is nothing.
    fn serve(&mut self, turn: &mut Turn<'_>) -> bool {
        let mut any = false;
        for (replica, inbox) in self.replicas.iter_mut().zip(&mut self.inboxes) {
            if inbox.is_empty() {
                continue;
            }
            any = true;
            if let Err(error) = replica.receive_all(turn.now, inbox.drain(..), turn.random, turn.replies) {
                tracing::warn!(%error, "a malformed message of a stream was dropped");
            }
        }
        any
    }

    /// Fires timers, logs what was persisted, sends what may leave, and serves what comes back from this process
    /// itself, until nothing is left to do but to wait.
    pub(crate) fn pump(&mut self, context: &mut Context<'_>, turn: &mut Turn<'_>) {
        for replica in &mut self.replicas {
            if replica.deadline().is_some_and(|deadline| deadline <= turn.now.instant) {
                replica.fire(turn.now, turn.random, turn.replies);
            }
        }
        loop {
            let served = self.serve(turn);
            self.release(context, turn.now.instant);
            let told = self.spool(context, turn);
            if !served && !told && self.inboxes.iter().all(Vec::is_empty) {
                return;
            }
        }
    }

    /// Logs what was persisted, and routes what may leave.
    fn release(&mut self, context: &mut Context<'_>, now: Instant) {
        let durable = context.durable();
        for replica in &mut self.replicas {
            let from = replica.node();
            log(self.keyspace, replica, context.journal);
            replica.logged(durable.written);
            replica.release(now, durable);
            for (to, packet) in replica.packets() {
                if to.process != self.process {
                    context.peers.send(to.process, from, to.slot, &packet, packet.can_wait().then_some(now));
                } else if let Some(index) = self.slots.iter().position(|slot| *slot == to.slot) {
                    self.inboxes[index].push((from, packet));
                }
            }
        }
    }

    /// Keeps what replicas spilled, and tells them what they asked for; false if there was nothing to tell.
    fn spool(&mut self, context: &mut Context<'_>, turn: &mut Turn<'_>) -> bool {
        let mut told = false;
        for replica in &mut self.replicas {
            let Some(partition) = replica.node().slot.partition else { continue };
            for request in replica.spool_requests() {
                if let Some((chunk, bytes)) = context.spools.perform(self.keyspace, partition, request) {
                    replica.spooled(turn.now, chunk, bytes.as_deref(), turn.replies);
                    told = true;
                }
            }
        }
        told
    }

    /// When `pump` is due at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.replicas.iter().filter_map(Replica::deadline).min()
    }

    /// What the log has to do for messages and replies to leave.
    pub(crate) fn log_work(&self, durable: Durable) -> LogWork {
        let gates = self.replicas.iter().map(Replica::gate).chain([self.reply_gate()]);
        gates.fold(LogWork::default(), |work, gate| work.and(LogWork::of(gate, durable)))
    }

    /// What replies to clients wait for: only what serves them writes any.
    pub(crate) fn reply_gate(&self) -> Gate {
        self.replicas.first().map_or(Gate::OPEN, Replica::reply_gate)
    }

    /// The protocols, to look at.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = &P> + Clone {
        self.replicas.iter().map(Replica::protocol)
    }

    /// The same of the replicas, with their partitions.
    pub(crate) fn of_partitions(&self) -> impl Iterator<Item = (PartitionId, &P)> {
        self.replicas.iter().filter_map(|it| Some((it.node().slot.partition?, it.protocol())))
    }

    /// The protocols, to tell them what they are to do from now on.
    pub(crate) fn protocols_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.replicas.iter_mut().map(Replica::protocol_mut)
    }

    /// The partitions that are kept here.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        let partition = |replica: &Replica<P>| replica.node().slot.partition.map(|partition| partition.0);
        self.replicas.iter().filter_map(partition).collect()
    }

    /// The next piece of a replica's checkpoint; see [`Protocol::checkpoint`].
    pub(crate) fn checkpoint(
        &mut self,
        partition: PartitionId,
        cursor: u64,
        chunk: &mut Vec<u8>,
    ) -> Option<u64> {
        let replica = self.of(Slot::replica(self.keyspace, partition))?;
        replica.protocol_mut().checkpoint(cursor, chunk)
    }
}

/// Logs what a replica persisted.
fn log<P: Protocol>(keyspace: KeyspaceId, replica: &mut Replica<P>, journal: Option<&Journal>) {
    if replica.records().is_empty() {
        return;
    }
    let group = match (journal, replica.node().slot.partition) {
        (Some(journal), Some(partition)) => journal.append_replica(keyspace, partition, replica.records()).0,
        _ => 0,
    };
    replica.appended(group);
}

/// An input of recovery, which says nothing to anybody.
fn step_before_life<P: Protocol>(replica: &mut Replica<P>, input: Input<'_, P>) {
    replica.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::new());
}

impl<P: Copied> Nodes<copies::Node<P>> {
    /// The process says something to the instance that one of its nodes speaks for, of a group by the group's address.
    pub(crate) fn tell_instance(&mut self, to: Slot, group: Option<Address>, message: P::Message, now: Now) {
        let Some(from) = self.replicas.first().map(Replica::node) else { return };
        let address = group.unwrap_or_else(|| from.address());
        self.tell(to, copies::Node::said(from, address, message), now);
    }
}
