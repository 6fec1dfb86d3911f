//! The replicas and the coordinator of one keyspace in a process. Threads share the work: each instance has a lock of its own.

use super::instance::{Instance, Visited};
use super::{Environment, Holdings, Life, Pending, Place, Turn};
use crate::contract::{Input, NoReplies, Now, Protocol};
use crate::gate::Gate;
use crate::replica::{Packet, Replica};
use crate::request::Request;
use parking_lot::MutexGuard;
use std::time::Duration;
use types::{Address, KeyspaceId, Malformed, NodeId, PartitionId, Reader, RequestId, Rng, Slot, Wire};

/// How often a pump looks at all instances before the thread does something else: others may bring work without end.
const ROUNDS: usize = 16;
/// How long a thread that shares the work waits for an instance that another one steps.
const PATIENCE: Duration = Duration::from_micros(500);
/// How long a thread waits for an instance that it only looks at.
const GLANCE: Duration = Duration::from_millis(1);

/// See the module.
pub struct Nodes<P: Protocol> {
    keyspace: KeyspaceId,
    /// What serves clients. The others are in the same life.
    first: NodeId,
    /// The coordinator first.
    instances: Vec<Instance<P>>,
}

/// All instances, which no other thread steps meanwhile.
pub struct Locked<'n, P: Protocol> {
    states: Vec<MutexGuard<'n, super::instance::State<P>>>,
}

impl<P: Protocol> Nodes<P> {
    /// A keyspace of which nothing but the instance that serves clients is here; [`Nodes::host`] adds the others.
    pub fn new(place: &Place<'_>, at: Address, coordinator: P) -> Self {
        let Life { incarnation, .. } = place.life;
        let first = at.at(incarnation);
        let instances = vec![Instance::new(first, coordinator, true)];
        Nodes { keyspace: place.keyspace, first, instances }
    }

    fn of(&self, slot: Slot) -> Option<&Instance<P>> {
        self.instances.iter().find(|instance| instance.slot == slot)
    }

    fn of_mut(&mut self, slot: Slot) -> Option<&mut Replica<P>> {
        let instance = self.instances.iter_mut().find(|instance| instance.slot == slot)?;
        Some(&mut instance.state_mut().replica)
    }

    /// Adds an instance in this life of the process; false if there is one at its address.
    pub fn host(&mut self, at: Address, protocol: P) -> bool {
        let fresh = !self.hosts(at.slot);
        if fresh {
            self.instances.push(Instance::new(at.at(self.first.incarnation), protocol, false));
        }
        fresh
    }

    /// Adds an instance that has never said anything, so that it misses nothing, when the others have recovered already.
    pub fn join(&mut self, at: Address, protocol: P, turn: &mut Turn<'_>) -> bool {
        let fresh = self.host(at, protocol);
        if fresh && let Some(replica) = self.of_mut(at.slot) {
            let mut batch = vec![Input::Recovered { complete: true }];
            replica.step(turn.now, &mut batch, turn.random, turn.replies);
        }
        fresh
    }

    /// True if the instance is here.
    pub fn hosts(&self, slot: Slot) -> bool {
        self.of(slot).is_some()
    }

    /// The process says something to one of its instances, in the coordinator's name.
    pub fn tell(&mut self, to: Slot, message: P::Message, turn: &mut Turn<'_>) {
        let from = self.first;
        let Some(instance) = self.of_mut(to) else { return };
        let said = instance.receive(turn.now, from, Packet::Datagram(message), turn.random, turn.replies);
        debug_assert!(said.is_ok(), "what a process says to itself is well formed");
    }

    /// In whose name [`Nodes::tell`] speaks.
    pub fn speaker(&self) -> NodeId {
        self.first
    }

    fn of_log(&self, partition: PartitionId) -> Result<&Instance<P>, String> {
        let keyspace = self.keyspace;
        self.of(Slot::replica(keyspace, partition)).ok_or_else(|| {
            format!(
                "the log has partition {partition} of keyspace {keyspace}, which is not kept here any more"
            )
        })
    }

    /// See [`super::Hosted::snapshot`].
    pub(super) fn snapshot(&self, partition: PartitionId, chunk: &[u8]) -> Result<(), String> {
        step_before_life(&mut self.of_log(partition)?.hold().replica, Input::Snapshot(chunk));
        Ok(())
    }

    /// See [`super::Hosted::recover`].
    pub(super) fn recover(&self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
        let mut state = self.of_log(partition)?.hold();
        let mut rest = records;
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            let Some(record) = after.get(..len) else { return Err("a record is cut".to_owned()) };
            step_before_life(&mut state.replica, Input::Recover(record));
            rest = &after[len..];
        }
        Ok(())
    }

    /// See [`super::Hosted::recovered`].
    pub(super) fn recovered(&self, complete: bool, turn: &mut Turn<'_>) {
        for instance in &self.instances {
            // A coordinator keeps nothing that could be missing.
            let complete = complete || instance.slot.partition.is_none();
            let mut batch = vec![Input::Recovered { complete }];
            instance.hold().replica.step(turn.now, &mut batch, turn.random, turn.replies);
            instance.stir();
        }
    }

    /// See [`super::Hosted::submit`].
    pub(super) fn submit(
        &self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) -> Gate {
        let coordinator = self.instances.first();
        coordinator.map_or(Gate::OPEN, |it| it.submit(requests, (self.keyspace, environment), turn))
    }

    /// See [`super::Hosted::receive`].
    pub(super) fn receive(&self, from: NodeId, to: Slot, packet: &[u8]) -> Result<(), Malformed> {
        if let Some(instance) = self.of(to) {
            instance.leave_remote(from, Packet::decode(&mut Reader::new(packet))?, packet.len());
        }
        Ok(())
    }

    /// See [`super::Hosted::pump`].
    pub(super) fn pump(&self, shares: bool, environment: &mut dyn Environment, turn: &mut Turn<'_>) -> Gate {
        let mut gate = Gate::OPEN;
        for _ in 0..ROUNDS {
            let (mut is_served, mut busy) = (false, None);
            for instance in &self.instances {
                match self.visit(instance, None, environment, turn) {
                    Visited::Idle => {}
                    Visited::Served(waits) => (is_served, gate) = (true, gate.and(waits)),
                    Visited::Busy => busy = busy.or(Some(instance)),
                }
            }
            if is_served {
                continue;
            }
            // All that is left is with other threads.
            let Some(instance) = busy.filter(|_| shares) else { break };
            match self.visit(instance, Some(PATIENCE), environment, turn) {
                Visited::Idle => {}
                Visited::Served(waits) => gate = gate.and(waits),
                Visited::Busy => break,
            }
        }
        gate
    }

    fn visit(
        &self,
        instance: &Instance<P>,
        patience: Option<Duration>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) -> Visited {
        instance.visit((self.keyspace, environment), turn, patience, &|slot, from, packet| {
            if let Some(to) = self.of(slot) {
                to.leave(from, packet);
            }
        })
    }

    /// See [`super::Hosted::pending`].
    pub(super) fn pending(&self) -> Pending {
        self.instances.iter().map(Instance::pending).fold(Pending::default(), Pending::and)
    }

    /// All instances, as soon as no other thread steps any.
    pub fn lock(&self) -> Locked<'_, P> {
        Locked { states: self.instances.iter().map(Instance::hold).collect() }
    }

    /// The same, unless another thread steps one for long.
    pub(super) fn lock_soon(&self) -> Option<Locked<'_, P>> {
        let states = self.instances.iter().map(|instance| instance.hold_within(GLANCE));
        states.collect::<Option<Vec<_>>>().map(|states| Locked { states })
    }

    /// Looks at those that no other thread steps.
    pub(super) fn look(&self, mut look: impl FnMut(&P)) {
        let states = self.instances.iter().filter_map(|instance| instance.hold_within(Duration::ZERO));
        states.for_each(|state| look(state.replica.protocol()));
    }

    /// What they hold; of one that another thread steps, what it held.
    pub(super) fn holdings(&self, of: impl Fn(&P) -> Holdings) -> Holdings {
        self.instances.iter().map(|instance| instance.holdings(&of)).fold(Holdings::default(), Holdings::and)
    }

    /// The partitions that have a replica here.
    pub fn partitions(&self) -> Vec<u16> {
        self.instances.iter().filter_map(|instance| Some(instance.slot.partition?.0)).collect()
    }

    /// See [`super::Hosted::checkpoint`].
    pub(super) fn checkpoint(
        &self,
        (partition, cursor): (PartitionId, u64),
        chunk: &mut Vec<u8>,
        environment: &mut dyn Environment,
        seal: &mut dyn FnMut(),
    ) -> Option<u64> {
        let instance = self.of(Slot::replica(self.keyspace, partition))?;
        instance.checkpoint(cursor, chunk, (self.keyspace, environment), seal)
    }

    /// The keyspace.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }
}

impl<P: Protocol> Locked<'_, P> {
    /// The protocols, to look at.
    pub fn protocols(&self) -> impl Iterator<Item = &P> + Clone {
        self.states.iter().map(|state| state.replica.protocol())
    }

    /// The same of the replicas, with their partitions.
    pub fn of_partitions(&self) -> impl Iterator<Item = (PartitionId, &P)> {
        let replicas = self.states.iter().map(|state| &state.replica);
        replicas.filter_map(|it| Some((it.node().slot.partition?, it.protocol())))
    }

    /// The protocols, to tell them what they are to do from now on.
    pub fn protocols_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.states.iter_mut().map(|state| state.replica.protocol_mut())
    }
}

/// An input of recovery, which says nothing to anybody.
fn step_before_life<P: Protocol>(replica: &mut Replica<P>, input: Input<'_, P>) {
    replica.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::default());
}
