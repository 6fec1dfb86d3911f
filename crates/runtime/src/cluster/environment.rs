//! What this process does for the instances that it hosts: its log, its peers, its spools.

use crate::cluster::peers::Peers;
use crate::cluster::spool::Spools;
use crate::journal::Journal;
use parking_lot::Mutex;
use protocol::hosted::{Environment, Turn};
use protocol::{Durable, Encode, Request, SpoolRequest, misconf};
use types::{Error, Instant, KeyspaceId, Malformed, NodeId, PartitionId, ProcessId, RequestId, Slot};

/// See the module.
pub(crate) struct ClusterEnvironment<'c> {
    /// `None` if the process holds everything in memory.
    pub(crate) journal: Option<&'c Journal>,
    pub(crate) peers: &'c Peers,
    pub(crate) spools: &'c Mutex<Spools>,
}

impl Environment for ClusterEnvironment<'_> {
    fn append(&mut self, keyspace: KeyspaceId, partition: PartitionId, records: &[u8]) -> u64 {
        self.journal.map_or(0, |journal| journal.append_replica(keyspace, partition, records).0)
    }

    fn is_suspended(&self) -> bool {
        self.journal.is_some_and(Journal::is_suspended)
    }

    fn durable(&self) -> Durable {
        self.journal.map_or(Durable { written: u64::MAX, synced: u64::MAX }, Journal::durable)
    }

    fn send(
        &mut self,
        to: ProcessId,
        from: NodeId,
        slot: Slot,
        packet: &dyn Encode,
        can_wait: Option<Instant>,
    ) {
        self.peers.send(to, from, slot, packet, can_wait);
    }

    fn spool(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        request: SpoolRequest,
    ) -> Option<(u64, Option<Vec<u8>>)> {
        self.spools.lock().perform(keyspace, partition, request)
    }

    fn malformed(&mut self, error: Malformed) {
        tracing::warn!(%error, "a malformed message of a stream was dropped");
    }
}

/// The error for a client of a dropped keyspace.
pub(crate) fn dropped() -> Error {
    Error::refused(
        "the keyspace was dropped with everything in it; choose another with KEYSPACE USE or SELECT",
    )
}

/// The error for a keyspace that another process serves alone.
pub(crate) fn elsewhere(process: u16) -> Error {
    Error::refused(format!("process {process} keeps the keyspace by itself; connect to that process"))
}

/// Refuses requests that no instance serves.
pub(crate) fn refuse(requests: &mut Vec<(RequestId, Request<'_>)>, error: &Error, turn: &mut Turn<'_>) {
    for (id, request) in requests.drain(..) {
        if !matches!(request, Request::Close { .. }) {
            turn.replies.reply(id).error(error);
        }
    }
}

/// Answers requests that may write while the log takes no records: memory that grew with them would have no bound.
pub(crate) fn refuse_writes(requests: &mut Vec<(RequestId, Request<'_>)>, turn: &mut Turn<'_>) {
    for (id, _) in requests.extract_if(.., |(_, request)| request.may_write()) {
        turn.replies.reply(id).error(&misconf());
    }
}
