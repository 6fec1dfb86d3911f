//! Keys whose deadline has passed and that no command has touched since are deleted, so that they occupy no memory
//! (Corrections 69); and so are fields of dicts.
//!
//! A transaction that touches such a key reads it as absent, and deletes it together with its own writes. The partition
//! itself deletes expired keys that no command touches: by a transaction of one deletion, without a session. The
//! deletion must not remove a later deadline that another region has set in time. So it waits until the horizon has
//! passed the deadline, with nothing above it on the key and nothing undecided: then all that was done to the key
//! anywhere before the deadline is here, and the deletion has observed it. While a region is cut off the horizon stands
//! still, and overdue keys stay in memory, as histories do.
//!
//! Any replica may do so, and twice is once. One is enough, though: each has its share of the keys, and looks after those of
//! others when they are long overdue.

use super::{Partition, borrowed, effects_of};
use crate::stable::intent::{PreparedOperation, WriteIntent, encoded};
use crate::stable::record::Record;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Times};
use datatypes::Effect;
use mvcc::{CompactKey, Store};
use protocol::{Now, Outputs};
use std::borrow::Cow;
use std::time::Duration;
use types::{Incarnation, Instant, KeyHash, ProcessId, RegionId, TransactionId};

/// The coordinator that such a transaction names: no process has this number, and no process queries the outcome.
pub(crate) const NOBODY: ProcessId = ProcessId(u16::MAX - 1);
/// How far behind a key's deadline the horizon is when it is deleted, in milliseconds, if it is of the own share: clocks differ.
const PATIENCE_MS: u64 = 1_000;
/// And one of another replica's share.
const LONG_PATIENCE_MS: u64 = 20_000;
/// How many keys a tick looks at in each share.
const LOOKED_AT: usize = 100;
/// How long what could not be deleted is left alone, at least.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Where one round through the overdue keys stands.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Up to this deadline and key, they have been looked at.
    after: Option<(u64, CompactKey)>,
    /// When the next round begins.
    next: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Expiry {
    own: Round,
    all: Round,
    /// How many keys it has deleted.
    deleted: u64,
}

/// True if no session made it, so that no coordinator will ask about it.
pub(crate) fn is_nobodys(id: TransactionId) -> bool {
    id.process == NOBODY
}

impl Round {
    /// Some that come next among the keys whose deadline has passed at `until_ms`.
    pub(crate) fn next<S: Times>(
        &mut self,
        now: Instant,
        store: &Store<Stamp<S::Depends>>,
        until_ms: u64,
    ) -> Vec<CompactKey> {
        if now < self.next {
            return Vec::new();
        }
        let after = self.after.take();
        let overdue: Vec<(u64, CompactKey)> =
            store.overdue(after.as_ref(), until_ms).take(LOOKED_AT).collect();
        match overdue.len() < LOOKED_AT {
            true => self.next = now + AGAIN_AFTER,
            false => self.after = overdue.last().cloned(),
        }
        overdue.into_iter().map(|(_, key)| key).collect()
    }
}

impl<S: Times> Partition<S> {
    /// How many keys it has deleted because their deadline had passed.
    pub fn expired(&self) -> u64 {
        self.expiry.deleted
    }

    /// Notes which keys are overdue, and deletes some of them.
    pub(super) fn expire_some(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        self.store.pass_time(now.wall.as_millis());
        let depends_on = self.stable.readable().depends_on(self.region);
        // This partition has announced to its peers that what follows has observed more; and what is in the cells must
        // be among what the deletion says it has observed, which it may not be right after a restart.
        let observed = S::observed(depends_on);
        if observed < self.promised_dependencies || (S::MERGES && observed < self.horizon.whole()) {
            return;
        }
        let by_own_clock = self.options.mutants.has(Mutant::ExpiredByOwnClock);
        let now_ms = if by_own_clock { now.wall } else { self.horizon.whole().wall() }.as_millis();
        self.expire_share(now, now_ms.saturating_sub(PATIENCE_MS), true, depends_on, out);
        self.expire_share(now, now_ms.saturating_sub(LONG_PATIENCE_MS), false, depends_on, out);
    }

    fn expire_share(
        &mut self,
        now: Now,
        until_ms: u64,
        own: bool,
        depends_on: S::Depends,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let round = if own { &mut self.expiry.own } else { &mut self.expiry.all };
        for key in round.next::<S>(now.instant, &self.store, until_ms) {
            let hash = self.store.hash(&key);
            if (!own || self.is_own_share(hash)) && self.is_settled(hash, &key) {
                self.expire(now, until_ms, &key, depends_on, out);
            }
        }
    }

    /// One of the replicas that are there has it first.
    fn is_own_share(&self, hash: KeyHash) -> bool {
        let mut holders: Vec<RegionId> = self.links.keys().copied().chain([self.region]).collect();
        holders.sort_unstable();
        let share = (hash.0 % holders.len() as u64) as usize;
        holders[share] == self.region
    }

    /// Every snapshot shows the same of the key, and nobody is about to change that.
    fn is_settled(&self, hash: KeyHash, key: &[u8]) -> bool {
        !self.held.contains_key(key)
            && !self.store.waits(hash, key)
            && self.store.stamps_beyond(hash, key, None).next().is_none()
    }

    fn expire(
        &mut self,
        now: Now,
        until_ms: u64,
        key: &[u8],
        depends_on: S::Depends,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let record = self.store.record(self.store.hash(key), key);
        let Some(expiry) = record.and_then(|record| record.cell().expiry(until_ms)) else { return };
        let at = self.clock.tick(now.wall);
        // The place tells it from all others of this replica, also those of earlier lives.
        let replica = u32::from(self.region.0) << 16 | u32::from(self.index);
        let id = TransactionId { process: NOBODY, incarnation: Incarnation(replica), number: at.0 };
        let is_key = expiry == Effect::DELETE;
        let intent =
            WriteIntent { key: key.into(), operations: vec![PreparedOperation::blind(encoded(&expiry))] };
        let (stamp, effects) = (self.stamp(id, at, depends_on), effects_of(&[intent]));
        let results = Cow::Owned(Default::default());
        self.persist(&Record::Alone { effects: borrowed(stamp, &effects), results }, out);
        self.commit_effects(stamp, effects);
        self.expiry.deleted += u64::from(is_key);
    }
}
