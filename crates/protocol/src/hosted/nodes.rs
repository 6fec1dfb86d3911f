//! The replicas and the coordinator of one keyspace in a process, stepped by the thread that owns them.

use super::{Environment, Life, LogWork, Place, Turn};
use crate::contract::{Input, NoReplies, Now, Protocol};
use crate::gate::{Durable, Gate};
use crate::replica::{Packet, Replica};
use crate::request::Request;
use types::{
    Address, Incarnation, Instant, KeyspaceId, Malformed, NodeId, PartitionId, ProcessId, Reader, RequestId,
    Rng, Slot, Wire,
};

/// See the module.
pub struct Nodes<P: Protocol> {
    process: ProcessId,
    keyspace: KeyspaceId,
    /// The coordinator first.
    replicas: Vec<Replica<P>>,
    /// Their slots.
    slots: Vec<Slot>,
    /// What came for each of them and waits to be served, with its sender.
    inboxes: Vec<Vec<(NodeId, Packet<P>)>>,
    /// While the log refuses records: the newest group that it has written.
    refused_after: Option<u64>,
}

impl<P: Protocol> Nodes<P> {
    /// A keyspace of which nothing but the instance that serves clients is here; [`Nodes::host`] adds the others.
    pub fn new(place: &Place<'_>, at: Address, coordinator: P) -> Self {
        let Life { process, incarnation, .. } = place.life;
        let replicas = vec![Replica::new(at.at(incarnation), coordinator)];
        Nodes {
            process,
            keyspace: place.keyspace,
            replicas,
            slots: vec![at.slot],
            inboxes: vec![Vec::new()],
            refused_after: None,
        }
    }

    fn of(&mut self, slot: Slot) -> Option<&mut Replica<P>> {
        let index = self.index_of(slot)?;
        self.replicas.get_mut(index)
    }

    /// Adds an instance in this life of the process; false if there is one at its address.
    pub fn host(&mut self, at: Address, protocol: P) -> bool {
        let fresh = !self.hosts(at.slot);
        if fresh {
            let life = self.replicas.first().map_or(Incarnation(0), |first| first.node().incarnation);
            self.slots.push(at.slot);
            self.inboxes.push(Vec::new());
            self.replicas.push(Replica::new(at.at(life), protocol));
        }
        fresh
    }

    /// Adds an instance that has never said anything, so that it misses nothing, when the others have recovered already.
    pub fn join(&mut self, at: Address, protocol: P, turn: &mut Turn<'_>) -> bool {
        let fresh = self.host(at, protocol);
        if fresh && let Some(replica) = self.of(at.slot) {
            let mut batch = vec![Input::Recovered { complete: true }];
            replica.step(turn.now, &mut batch, turn.random, turn.replies);
        }
        fresh
    }

    /// True if the instance is here.
    pub fn hosts(&self, slot: Slot) -> bool {
        self.index_of(slot).is_some()
    }

    /// The process says something to one of its instances, in the coordinator's name.
    pub fn tell(&mut self, to: Slot, message: P::Message, turn: &mut Turn<'_>) {
        let Some(from) = self.speaker() else { return };
        let Some(instance) = self.of(to) else { return };
        let said = instance.receive(turn.now, from, Packet::Datagram(message), turn.random, turn.replies);
        debug_assert!(said.is_ok(), "what a process says to itself is well formed");
    }

    /// In whose name [`Nodes::tell`] speaks.
    pub fn speaker(&self) -> Option<NodeId> {
        self.replicas.first().map(Replica::node)
    }

    fn of_log(&mut self, partition: PartitionId) -> Result<&mut Replica<P>, String> {
        let keyspace = self.keyspace;
        self.of(Slot::replica(keyspace, partition)).ok_or_else(|| {
            format!(
                "the log has partition {partition} of keyspace {keyspace}, which is not kept here any more"
            )
        })
    }

    /// See [`super::Hosted::snapshot`].
    pub(super) fn snapshot(&mut self, partition: PartitionId, chunk: &[u8]) -> Result<(), String> {
        step_before_life(self.of_log(partition)?, Input::Snapshot(chunk));
        Ok(())
    }

    /// See [`super::Hosted::recover`].
    pub(super) fn recover(&mut self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
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

    /// See [`super::Hosted::recovered`].
    pub(super) fn recovered(&mut self, complete: bool, turn: &mut Turn<'_>) {
        for replica in &mut self.replicas {
            // A coordinator keeps nothing that could be missing.
            let complete = complete || replica.node().slot.partition.is_none();
            let mut batch = vec![Input::Recovered { complete }];
            replica.step(turn.now, &mut batch, turn.random, turn.replies);
        }
    }

    /// See [`super::Hosted::submit`].
    pub(super) fn submit(
        &mut self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) {
        self.hear_of_log(environment);
        let mut batch: Vec<_> =
            requests.drain(..).map(|(id, request)| Input::Request { id, request }).collect();
        if let Some(coordinator) = self.replicas.first_mut() {
            coordinator.begin_turn();
            coordinator.step(turn.now, &mut batch, turn.random, turn.replies);
            log(self.keyspace, coordinator, environment);
        }
    }

    /// See [`super::Hosted::receive`].
    pub(super) fn receive(&mut self, from: NodeId, to: Slot, packet: &[u8]) -> Result<(), Malformed> {
        if let Some(index) = self.index_of(to) {
            self.inboxes[index].push((from, Packet::decode(&mut Reader::new(packet))?));
        }
        Ok(())
    }

    fn index_of(&self, slot: Slot) -> Option<usize> {
        self.slots.iter().position(|mine| *mine == slot)
    }

    /// Tells the instances when the log begins to refuse records, and when it takes them again.
    fn hear_of_log(&mut self, environment: &dyn Environment) {
        let refused_after = environment.is_suspended().then(|| environment.durable().written);
        let did_refuse = std::mem::replace(&mut self.refused_after, refused_after).is_some();
        match refused_after {
            Some(written) if !did_refuse => {
                for replica in &mut self.replicas {
                    replica.logged(written);
                    replica.protocol_mut().log_refuses();
                }
            }
            None if did_refuse => self.protocols_mut().for_each(P::log_healed),
            Some(_) | None => {}
        }
    }

    /// True while the log refuses what the replica has persisted. It says nothing until the log has it, so it hears
    /// nothing either but what asks for reads, and its timers wait: for the others it is as if its process paused, and nothing
    /// piles up.
    fn is_silent(&self, index: usize) -> bool {
        self.refused_after.is_some_and(|written| !self.replicas[index].is_logged(written))
    }

    /// False while the replica's timers wait. What serves clients itself has to tell them when something takes too long.
    fn keeps_time(&self, index: usize) -> bool {
        let is_alone = P::READS_ALONE && index > 0 && self.refused_after.is_some();
        !is_alone && !self.is_silent(index)
    }

    /// Drops what came for replicas that do not hear it because the log refuses records, as a network may.
    fn drop_unheard(&mut self) {
        if self.refused_after.is_none() {
            return;
        }
        for index in 0..self.replicas.len() {
            let (process, is_silent) = (self.process, self.is_silent(index));
            if P::READS_ALONE && self.slots[index].partition.is_some() {
                let is_heard = |packet: &Packet<P>| !is_silent || packet.is_read();
                self.inboxes[index].retain(|(from, packet)| from.process == process && is_heard(packet));
            } else if is_silent {
                self.inboxes[index].clear();
            }
        }
    }

    /// Hands out what is in the inboxes, to each replica all at once; false if there is nothing.
    fn serve(&mut self, environment: &mut dyn Environment, turn: &mut Turn<'_>) -> bool {
        let mut any = false;
        for (replica, inbox) in self.replicas.iter_mut().zip(&mut self.inboxes) {
            if inbox.is_empty() {
                continue;
            }
            any = true;
            if let Err(error) = replica.receive_all(turn.now, inbox.drain(..), turn.random, turn.replies) {
                environment.malformed(error);
            }
        }
        any
    }

    /// See [`super::Hosted::pump`].
    pub(super) fn pump(&mut self, environment: &mut dyn Environment, turn: &mut Turn<'_>) {
        self.hear_of_log(environment);
        if let Some(first) = self.replicas.first_mut() {
            first.begin_turn();
        }
        for index in 0..self.replicas.len() {
            let keeps_time = self.keeps_time(index);
            let replica = &mut self.replicas[index];
            if keeps_time && replica.deadline().is_some_and(|deadline| deadline <= turn.now.instant) {
                replica.fire(turn.now, turn.random, turn.replies);
            }
        }
        loop {
            self.drop_unheard();
            let served = self.serve(environment, turn);
            self.release(environment, turn.now.instant);
            let served_spool = self.spool(environment, turn);
            if !served && !served_spool && self.inboxes.iter().all(Vec::is_empty) {
                return;
            }
        }
    }

    /// Logs what was persisted, and routes what may leave.
    fn release(&mut self, environment: &mut dyn Environment, now: Instant) {
        let durable = environment.durable();
        for replica in &mut self.replicas {
            let from = replica.node();
            log(self.keyspace, replica, environment);
            replica.logged(durable.written);
            replica.release(now, durable);
            for (to, packet) in replica.packets() {
                if to.process != self.process {
                    let can_wait = packet.can_wait().then_some(now);
                    environment.send(to.process, from, to.slot, &packet, can_wait);
                } else if let Some(index) = self.slots.iter().position(|slot| *slot == to.slot) {
                    self.inboxes[index].push((from, packet));
                }
            }
        }
    }

    /// Stores the chunks that replicas spill, and hands them the chunks that they fetch; false if there was none to
    /// hand out.
    fn spool(&mut self, environment: &mut dyn Environment, turn: &mut Turn<'_>) -> bool {
        let mut served_spool = false;
        for replica in &mut self.replicas {
            let Some(partition) = replica.node().slot.partition else { continue };
            for request in replica.spool_requests() {
                if let Some((chunk, bytes)) = environment.spool(self.keyspace, partition, request) {
                    replica.spooled(turn.now, chunk, bytes.as_deref(), turn.replies);
                    served_spool = true;
                }
            }
        }
        served_spool
    }

    /// See [`super::Hosted::deadline`].
    pub(super) fn deadline(&self) -> Option<Instant> {
        let timed = (0..self.replicas.len()).filter(|index| self.keeps_time(*index));
        timed.filter_map(|index| self.replicas[index].deadline()).min()
    }

    /// See [`super::Hosted::log_work`].
    pub(super) fn log_work(&self, durable: Durable) -> LogWork {
        let replies = self.replicas.first().map(Replica::reply_gate);
        let gates = self.replicas.iter().map(Replica::gate).chain(replies);
        gates.fold(LogWork::default(), |work, gate| work.and(LogWork::of(gate, durable)))
    }

    /// What replies to clients since the last `submit` or `pump` wait for: only what serves them writes any.
    pub(super) fn reply_gate(&self) -> Gate {
        self.replicas.first().map_or(Gate::OPEN, Replica::turn_gate)
    }

    /// The protocols, to look at.
    pub fn protocols(&self) -> impl Iterator<Item = &P> + Clone {
        self.replicas.iter().map(Replica::protocol)
    }

    /// The same of the replicas, with their partitions.
    pub fn of_partitions(&self) -> impl Iterator<Item = (PartitionId, &P)> {
        self.replicas.iter().filter_map(|it| Some((it.node().slot.partition?, it.protocol())))
    }

    /// The protocols, to tell them what they are to do from now on.
    pub fn protocols_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.replicas.iter_mut().map(Replica::protocol_mut)
    }

    /// The partitions that have a replica here.
    pub fn partitions(&self) -> Vec<u16> {
        self.of_partitions().map(|(partition, _)| partition.0).collect()
    }

    /// See [`super::Hosted::checkpoint`].
    pub(super) fn checkpoint(
        &mut self,
        partition: PartitionId,
        cursor: u64,
        chunk: &mut Vec<u8>,
    ) -> Option<u64> {
        let replica = self.of(Slot::replica(self.keyspace, partition))?;
        replica.protocol_mut().checkpoint(cursor, chunk)
    }

    /// The keyspace.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }
}

/// Logs what a replica persisted.
fn log<P: Protocol>(keyspace: KeyspaceId, replica: &mut Replica<P>, environment: &mut dyn Environment) {
    if replica.records().is_empty() {
        return;
    }
    let group = match replica.node().slot.partition {
        Some(partition) => environment.append(keyspace, partition, replica.records()),
        None => 0,
    };
    replica.appended(group);
}

/// An input of recovery, which says nothing to anybody.
fn step_before_life<P: Protocol>(replica: &mut Replica<P>, input: Input<'_, P>) {
    replica.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::default());
}
