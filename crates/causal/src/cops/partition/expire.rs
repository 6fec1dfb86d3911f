//! The partition deletes keys and fields whose deadline has passed and that no command has touched since (Corrections
//! 69), as in the other causal protocols: when every region has written all that was done to the key before its
//! deadline, by a write without a session.

use super::{Cut, Node, Partition};
use crate::cops::Put;
use crate::cops::record::Written;
use crate::stable::{KeyEffects, NOBODY, Round, encoded};
use protocol::{Now, Outputs};
use types::{Incarnation, RegionId, TransactionId};

/// How far behind a key's deadline that must be, in milliseconds: clocks differ.
const PATIENCE_MS: u64 = 1_000;

/// Where the rounds through overdue keys stand.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    round: Round,
}

impl Partition {
    /// Notes which keys are overdue, and deletes some of them, of the share that its region looks after.
    pub(super) fn expire_some(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        self.store.pass_time(now.wall.as_millis());
        let until_ms = self.horizon.wall().as_millis().saturating_sub(PATIENCE_MS);
        let regions = (0..self.topology.regions.len() as u16).map(RegionId);
        let left: Vec<RegionId> = regions.filter(|region| !self.evictions.has(*region)).collect();
        for key in self.expiry.round.next::<Cut>(now.instant, &self.store, until_ms) {
            let hash = self.store.hash(&key);
            let share = left[(hash.0 % left.len() as u64) as usize];
            let is_settled =
                !self.store.waits(hash, &key) && self.store.stamps_beyond(hash, &key, None).next().is_none();
            if share == self.region && is_settled && self.outbox.bytes() <= self.options.queue_bytes {
                self.expire(now, until_ms, &key, out);
            }
        }
    }

    fn expire(&mut self, now: Now, until_ms: u64, key: &[u8], out: &mut Outputs<'_, Node>) {
        let record = self.store.record(self.store.hash(key), key);
        let Some(expiry) = record.and_then(|record| record.cell().expiry(until_ms)) else { return };
        let stamp = self.place(now, TransactionId::default());
        // The place tells it from all others of this partition in this region, also those of earlier lives.
        let replica = u32::from(self.region.0) << 16 | u32::from(self.index);
        let id = TransactionId { process: NOBODY, incarnation: Incarnation(replica), number: stamp.at.0 };
        let effects = vec![KeyEffects { key: key.into(), effects: vec![encoded(&expiry)] }];
        let stamp = super::Stamp { transaction: id, ..stamp };
        self.write(Written { stamp, effects, ..Written::default() }, &mut Put::default(), out);
    }
}
