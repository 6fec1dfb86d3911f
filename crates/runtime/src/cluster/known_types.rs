//! No step meets a user-defined type of which its process has not heard.
//!
//! The cluster's list of types only grows, and every process reads the same one. A process tells each peer how many types of
//! it this process knows, on every connection, before the first packet that may name one more:
//!
//! ```text
//!   knows 1 type                                 has read none of them
//!           -- 1 ------------------------------>  reads the list
//!           -- a packet that names the type --->  steps it
//! ```
//!
//! A process that cannot read so many drops what the peer sends, as a network may; it says so once, and replicas send again.

use crate::cluster::Cluster;
use types::{KeyspaceId, PartitionId, ProcessId, Reader, Slot, Wire};

/// Where processes tell each other how many types they know: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: Some(PartitionId(0)) };

impl Cluster {
    /// How many types of the list this process knows.
    pub(crate) fn known_types(&self) -> usize {
        self.catalog.known_types()
    }

    /// A peer knows so many types, and names them from now on.
    pub(super) fn hear_of_types(&mut self, from: ProcessId, packet: &[u8]) {
        let Ok(count) = u64::decode(&mut Reader::new(packet)) else {
            return tracing::warn!(%from, "a number of types makes no sense and was dropped");
        };
        self.ahead.insert(from, count);
        self.peers.note_ahead(true);
        self.refresh();
        if self.ahead.contains_key(&from) {
            tracing::error!(
                %from, count, known = self.known_types(),
                "a peer uses types that this process cannot read; what it sends is dropped until the list of keyspaces has them"
            );
        }
    }

    /// The list has been read again: the process hears a peer once it knows all that the peer may name.
    pub(super) fn note_types(&mut self) {
        let known = self.known_types();
        self.ahead.retain(|_, count| *count > known as u64);
        self.peers.note_ahead(!self.ahead.is_empty());
    }

    /// True if what the peer sends may name types that this process does not know.
    pub(super) fn is_ahead(&self, process: ProcessId) -> bool {
        self.ahead.contains_key(&process)
    }
}
