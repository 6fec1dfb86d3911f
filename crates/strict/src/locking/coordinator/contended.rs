//! Locks before the vote, where votes were refused not long ago.
//!
//! A write that needs no evaluation has its lock with its shard's vote. Where others vote too that waits for nobody, and is refused
//! if the lock is not free (R4 of the [essay](../../../../../docs/internals/claret.md)). A transaction of one request runs again by
//! itself; of one that a session has led along ([`Purpose::Interactive`]) the client has to begin again. So such a one has its
//! locks on keys that were refused lately before it asks for votes, and waits for them in their queues.

use super::transaction::{Phase, Transaction};
use super::{Coordinator, Step};
use crate::coordinator::{Progress, Purpose};
use crate::locking::options::Concurrency;
use mvcc::CompactKey;
use std::collections::BTreeMap;
use std::time::Duration;
use types::Instant;

/// For how long a refusal is remembered. One vote is tried, and perhaps refused, after it.
const LASTS: Duration = Duration::from_secs(1);
/// How many keys are remembered.
const KEYS: usize = 1024;

/// Keys for whose locks votes were refused, and when last.
#[derive(Debug, Default)]
pub(super) struct Contended(BTreeMap<CompactKey, Instant>);

impl Contended {
    /// A vote was refused for a lock on the key.
    pub fn learn(&mut self, key: &[u8], now: Instant) {
        if self.0.len() >= KEYS {
            self.0.retain(|_, refused| *refused + LASTS > now);
        }
        if self.0.len() < KEYS {
            self.0.insert(key.into(), now);
        }
    }

    fn contains(&self, key: &CompactKey, now: Instant) -> bool {
        self.0.get(key).is_some_and(|refused| *refused + LASTS > now)
    }
}

impl Coordinator {
    /// Asks for the locks that a session's transaction lacks on contended keys; gives it back where it lacks none.
    pub(super) fn lock_contended(
        &mut self,
        mut transaction: Transaction,
        step: &mut Step<'_, '_>,
    ) -> Option<Transaction> {
        let list = transaction.steps.list();
        let several = list.iter().any(|other| other.call.shard != list[0].call.shard);
        let interactive = matches!(transaction.purpose, Purpose::Interactive { .. });
        if !several || !interactive || self.options.concurrency != Concurrency::Locking {
            return Some(transaction);
        }
        let now = step.now.instant;
        let lacks = |index: &usize| {
            let call = &transaction.steps.list()[*index].call;
            !transaction.own.locked.contains_key(index)
                && call.keyset.is_none()
                && self.protocol.contended.contains(&call.key, now)
                && transaction.steps.is_unread(*index, &self.expiring)
        };
        let lacking: Vec<usize> = (0..list.len()).filter(lacks).collect();
        if lacking.is_empty() {
            return Some(transaction);
        }
        transaction.phase = Phase::Executing;
        for index in &lacking {
            let requested = Progress::Requested { tries: 0, at: now };
            if let Progress::Done(done) = &transaction.steps.list()[*index].progress {
                transaction.own.locked.insert(*index, done.clone());
            }
            transaction.steps.set(*index, requested);
        }
        for index in lacking {
            self.ask(&mut transaction, index, step);
        }
        self.keep(transaction, step);
        None
    }
}
