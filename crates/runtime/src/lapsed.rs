//! Keys that partitions of this process have let go by themselves, for those who want to hear of it.

use gateway::{Lapse, Lapsed};
use protocol::{Gate, Replica};
use strict::solo::Solo;
use types::KeyspaceId;

/// What a worker's steps have let go since the worker last announced it.
pub(crate) struct LapsedKeys {
    /// Somebody wants to know.
    pub(crate) wanted: bool,
    pub(crate) keys: Vec<Lapsed>,
    /// What tells of them waits for this.
    pub(crate) gate: Gate,
    /// The group up to which they are there again if the log refuses it.
    pub(crate) undoable: u64,
}

impl LapsedKeys {
    /// None.
    pub(crate) const fn new() -> Self {
        LapsedKeys { wanted: false, keys: Vec::new(), gate: Gate::OPEN, undoable: 0 }
    }

    /// A step of a partition begins.
    #[inline]
    pub(crate) fn begin(&self, replica: &mut Replica<Solo>) {
        replica.protocol_mut().note_expired(self.wanted);
    }

    /// A step of a partition is over, and in the log unless that has `refused` it.
    #[inline]
    pub(crate) fn end(&mut self, keyspace: KeyspaceId, replica: &mut Replica<Solo>, refused: bool) {
        if self.wanted {
            let expired = replica.protocol_mut().take_expired();
            self.note(keyspace, expired, Lapse::Expired, replica.reply_gate(), refused);
        }
    }

    /// These keys have gone.
    pub(crate) fn note(
        &mut self,
        keyspace: KeyspaceId,
        keys: Vec<Box<[u8]>>,
        why: Lapse,
        gate: Gate,
        refused: bool,
    ) {
        // A client of another worker may be tracked since this turn began.
        let is_noted = self.wanted || matches!(why, Lapse::Evicted);
        if keys.is_empty() || refused || !is_noted {
            return;
        }
        self.gate = self.gate.and(gate);
        self.undoable = self.undoable.max(gate.written);
        self.keys.extend(keys.into_iter().map(|key| Lapsed { keyspace, key, why }));
    }
}
