//! The replicas and the coordinator of one replicated keyspace in this process, stepped by the thread that owns them.

use crate::cluster::peers::Peers;
use crate::journal::Journal;
use crate::process::fatal;
use crate::recovery::NoReplies;
use protocol::{Durable, Input, Now, Packet, Protocol, Replica, Replies, Request};
use std::collections::VecDeque;
use types::{Address, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RequestId, Rng, Slot, Wire};

/// A packet between two instances of this process.
struct Local<P: Protocol> {
    from: NodeId,
    to: Address,
    packet: Packet<P>,
}

/// See the module.
pub(crate) struct Nodes<P: Protocol> {
    process: ProcessId,
    keyspace: KeyspaceId,
    /// The coordinator first.
    replicas: Vec<Replica<P>>,
    local: VecDeque<Local<P>>,
}

/// What a turn gives to every step.
pub(crate) struct Turn<'t> {
    pub(crate) now: Now,
    pub(crate) random: &'t mut Rng,
    pub(crate) replies: &'t mut dyn Replies,
}

impl<P: Protocol> Nodes<P> {
    pub(crate) fn new(process: ProcessId, keyspace: KeyspaceId, replicas: Vec<Replica<P>>) -> Self {
        Nodes { process, keyspace, replicas, local: VecDeque::new() }
    }

    fn of(&mut self, slot: Slot) -> Option<&mut Replica<P>> {
        self.replicas.iter_mut().find(|replica| replica.node().slot == slot)
    }

    /// A record of this keyspace's log.
    pub(crate) fn recover(&mut self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
        let slot = Slot::replica(self.keyspace, partition);
        let Some(replica) = self.of(slot) else {
            return Err(format!("the log has records of partition {partition}, which this process does not keep"));
        };
        let mut rest = records;
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            let Some(record) = after.get(..len) else { return Err("a record is cut".to_owned()) };
            step(replica, Input::Recover(record));
            rest = &after[len..];
        }
        Ok(())
    }

    /// Recovery is over.
    pub(crate) fn recovered(&mut self, complete: bool, now: Now) {
        for replica in &mut self.replicas {
            let input = Input::Recovered { complete };
            replica.step(now, &mut vec![input], &mut Rng::with_seed(u64::from(complete)), &mut NoReplies::new());
        }
    }

    /// Hands requests to the coordinator.
    pub(crate) fn submit(&mut self, requests: &mut Vec<(RequestId, Request<'_>)>, turn: Turn<'_>) {
        let mut batch: Vec<_> = requests.drain(..).map(|(id, request)| Input::Request { id, request }).collect();
        if let Some(coordinator) = self.replicas.first_mut() {
            coordinator.step(turn.now, &mut batch, turn.random, turn.replies);
        }
    }

    /// A packet came from a peer.
    pub(crate) fn receive(&mut self, from: NodeId, to: Slot, packet: &[u8], turn: Turn<'_>) {
        let Some(replica) = self.of(to) else { return };
        let outcome = Packet::decode(&mut Reader::new(packet))
            .and_then(|packet| replica.receive(turn.now, from, packet, turn.random, turn.replies));
        if let Err(error) = outcome {
            tracing::warn!(%from, %error, "a malformed packet was dropped");
        }
    }

    /// Fires timers, logs what was persisted, sends what may leave, and serves what comes back from this process
    /// itself, until nothing is left to do.
    pub(crate) fn pump(&mut self, journal: Option<&Journal>, peers: &mut Peers, turn: Turn<'_>) {
        let durable = || journal.map_or(Durable { written: u64::MAX, synced: u64::MAX }, Journal::durable);
        for replica in &mut self.replicas {
            if replica.deadline().is_some_and(|deadline| deadline <= turn.now.instant) {
                replica.fire(turn.now, turn.random, turn.replies);
            }
        }
        loop {
            for index in 0..self.replicas.len() {
                self.log(index, journal);
                let replica = &mut self.replicas[index];
                replica.release(turn.now.instant, durable());
                let from = replica.node();
                for (to, packet) in replica.packets() {
                    if to.process == self.process {
                        self.local.push_back(Local { from, to, packet });
                    } else {
                        peers.send(to.process, from, to.slot, &packet);
                    }
                }
            }
            let Some(local) = self.local.pop_front() else { return };
            if let Some(replica) = self.replicas.iter_mut().find(|replica| replica.node().slot == local.to.slot) {
                let received = replica.receive(turn.now, local.from, local.packet, turn.random, turn.replies);
                debug_assert!(received.is_ok(), "a packet of this process is well formed");
            }
        }
    }

    fn log(&mut self, index: usize, journal: Option<&Journal>) {
        let replica = &mut self.replicas[index];
        if replica.records().is_empty() {
            return;
        }
        let group = match (journal, replica.node().slot.partition) {
            (Some(journal), Some(partition)) => journal.append_replica(self.keyspace, partition, replica.records()),
            _ => 0,
        };
        replica.appended(group);
        if group != 0 && replica.gate().written > 0 {
            if let Some(journal) = journal {
                journal.note_unwritten(replica.gate());
            }
        }
    }

    /// When `pump` is due at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.replicas.iter().filter_map(Replica::deadline).min()
    }

    /// True if something waits for the log.
    pub(crate) fn gate_closed(&self, durable: Durable) -> bool {
        self.replicas.iter().any(|replica| !replica.gate().is_open(durable))
    }

    pub(crate) fn protocols(&self) -> impl Iterator<Item = &P> {
        self.replicas.iter().map(Replica::protocol)
    }
}

fn step<P: Protocol>(replica: &mut Replica<P>, input: Input<'_, P>) {
    replica.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::new());
}

/// What the log failed to take.
pub(crate) fn refused() -> ! {
    fatal("the log refused the records of a replica (disk full or I/O error); its peers go on without it")
}
