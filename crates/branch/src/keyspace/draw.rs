//! A key drawn at random.

use super::Keyspace;
use crate::transaction::Transaction;
use mvcc::CompactKey;
use types::Rng;

/// How many keys are drawn, and not seen, before one of a list is taken.
const DRAWS: usize = 64;

/// A key is drawn among so many that follow each other: the more, the less it matters how far apart keys lie.
const NEIGHBOURS: usize = 32;

impl Keyspace {
    /// Draws one of the keys that a transaction sees; `None` only if it sees none. That there is none counts as read, which
    /// key it was does not.
    pub fn draw(
        &mut self,
        transaction: &mut Transaction,
        now_millis: u64,
        random: &mut Rng,
    ) -> Option<CompactKey> {
        for _ in 0..DRAWS {
            let place = random.u64(..);
            let mut keys = self.places(transaction, place, NEIGHBOURS);
            if keys.len() < NEIGHBOURS {
                keys.extend(self.places(transaction, 0, NEIGHBOURS));
            }
            if keys.is_empty() {
                break;
            }
            let (_, key) = keys.swap_remove(random.usize(0..keys.len()));
            let view = self.dag.view(&transaction.from);
            let is_open = transaction.conflicting.contains(&key) && !transaction.writes.contains_key(&key);
            if !is_open && self.records.with(&key, &view, |cell| transaction.has(&key, cell, now_millis)) {
                return Some(key);
            }
        }
        let (before, mut keys) = (transaction.reads_all, Vec::new());
        self.visit(transaction, 0, usize::MAX, now_millis, |key| keys.push(key.clone()));
        if keys.is_empty() {
            return None;
        }
        transaction.reads_all = before;
        Some(keys.swap_remove(random.usize(0..keys.len())))
    }
}
