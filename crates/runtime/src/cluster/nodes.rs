//! The replicas and the coordinator of one replicated keyspace in this process, stepped by the thread that owns them.

use crate::cluster::peers::Peers;
use crate::journal::Journal;
use crate::recovery::NoReplies;
use protocol::{Durable, Gate, Input, Now, Packet, Protocol, Replica, Replies, Request};
use types::{Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RequestId, Rng, Slot, Wire};

/// A packet between two instances of this process.
struct Local<P: Protocol> {
    from: NodeId,
    to: Slot,
    packet: Packet<P>,
}

/// See the module.
pub(crate) struct Nodes<P: Protocol> {
    process: ProcessId,
    keyspace: KeyspaceId,
    /// The coordinator first.
    replicas: Vec<Replica<P>>,
    local: Vec<Local<P>>,
}

/// What every step is given.
pub(crate) struct Turn<'t> {
    pub(crate) now: Now,
    pub(crate) random: &'t mut Rng,
    pub(crate) replies: &'t mut dyn Replies,
}

/// Where records and packets go.
pub(crate) struct Context<'c> {
    pub(crate) journal: Option<&'c Journal>,
    pub(crate) peers: &'c mut Peers,
}

impl Context<'_> {
    /// How far the log is durable; without a log there is nothing to wait for.
    fn durable(&self) -> Durable {
        self.journal.map_or(Durable { written: u64::MAX, synced: u64::MAX }, Journal::durable)
    }
}

impl<P: Protocol> Nodes<P> {
    pub(crate) fn new(process: ProcessId, keyspace: KeyspaceId, replicas: Vec<Replica<P>>) -> Self {
        Nodes { process, keyspace, replicas, local: Vec::new() }
    }

    fn of(&mut self, slot: Slot) -> Option<&mut Replica<P>> {
        self.replicas.iter_mut().find(|replica| replica.node().slot == slot)
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

    /// Hands requests to the coordinator.
    pub(crate) fn submit(&mut self, requests: &mut Vec<(RequestId, Request<'_>)>, turn: &mut Turn<'_>) {
        let mut batch: Vec<_> =
            requests.drain(..).map(|(id, request)| Input::Request { id, request }).collect();
        if let Some(coordinator) = self.replicas.first_mut() {
            coordinator.step(turn.now, &mut batch, turn.random, turn.replies);
        }
    }

    /// A packet came from a peer.
    pub(crate) fn receive(&mut self, from: NodeId, to: Slot, packet: &[u8], turn: &mut Turn<'_>) {
        let Some(replica) = self.of(to) else { return };
        let outcome = Packet::decode(&mut Reader::new(packet))
            .and_then(|packet| replica.receive(turn.now, from, packet, turn.random, turn.replies));
        if let Err(error) = outcome {
            tracing::warn!(%from, %error, "a malformed packet was dropped");
        }
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
            self.release(context, turn.now.instant);
            if self.local.is_empty() {
                return;
            }
            for Local { from, to, packet } in std::mem::take(&mut self.local) {
                let Some(replica) = self.of(to) else { continue };
                let received = replica.receive(turn.now, from, packet, turn.random, turn.replies);
                debug_assert!(received.is_ok(), "a packet of this process is well formed");
            }
        }
    }

    /// Logs what was persisted, and routes what may leave.
    fn release(&mut self, context: &mut Context<'_>, now: Instant) {
        let durable = context.durable();
        for replica in &mut self.replicas {
            let from = replica.node();
            if !replica.records().is_empty() {
                let group = match (context.journal, from.slot.partition) {
                    (Some(journal), Some(partition)) => {
                        journal.append_replica(self.keyspace, partition, replica.records()).0
                    }
                    _ => 0,
                };
                replica.appended(group);
            }
            replica.logged(durable.written);
            replica.release(now, durable);
            for (to, packet) in replica.packets() {
                if to.process == self.process {
                    self.local.push(Local { from, to: to.slot, packet });
                } else {
                    context.peers.send(to.process, from, to.slot, &packet);
                }
            }
        }
    }

    /// When `pump` is due at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.replicas.iter().filter_map(Replica::deadline).min()
    }

    /// What anything here waits for.
    pub(crate) fn gate(&self) -> Gate {
        self.replicas.iter().fold(Gate::OPEN, |gate, replica| gate.and(replica.gate()))
    }

    /// The protocols, to look at.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = &P> {
        self.replicas.iter().map(Replica::protocol)
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

/// An input of recovery, which says nothing to anybody.
fn step_before_life<P: Protocol>(replica: &mut Replica<P>, input: Input<'_, P>) {
    replica.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::new());
}
