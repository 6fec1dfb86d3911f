//! Writes that concurrent ones cost others (COPS-CD, section 5.3; Corrections 75): listed and settled as in the other causal
//! protocols. Two writes of a key are in conflict if neither observed the other, which stamps tell exactly.

use super::Partition;
use crate::cops::Entries;
use crate::stable::{LossList, Settlement, settle};
use protocol::Conflict;
use types::KeyHash;

impl Partition {
    /// Every write that is known to be lost here: first those of which effects to come may still tell that they are not,
    /// then the list.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.losses().all()
    }

    /// How many of these nothing to come can change, and how many were dropped; without looking at all that may change.
    pub fn listed_conflicts(&self) -> (usize, u64) {
        self.store.listed_losses()
    }

    pub(super) fn losses(&self) -> LossList<'_, Entries> {
        LossList { store: &self.store, topology: &self.topology }
    }

    /// What an operation comes to that settles losses of a key; `None` for any other one.
    pub(super) fn settle(&mut self, hash: KeyHash, key: &[u8], operation: &[u8]) -> Option<Settlement> {
        let lists = self.options.conflict_bytes > 0;
        settle(&self.store, &mut self.clock, lists, (hash, key), operation)
    }
}
