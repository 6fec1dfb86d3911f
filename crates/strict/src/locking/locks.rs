//! A shard's lock table: strict two-phase locking in the types' lock modes, deadlocks prevented by wound-wait.
//!
//! A transaction that meets an older one waits for it; one that meets a younger one takes its locks away (it is
//! *wounded* and runs again, with the age it has). So whoever waits is younger than who is waited for, or waits for one
//! that has been voted for and waits for nobody: no cycle can form, across shards either (Corrections 62).

use commit::Stamp;
use datatypes::Mode;
use std::collections::{BTreeMap, BTreeSet};
use types::TransactionId;

/// A set of modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modes(u16);

impl Modes {
    fn with(self, mode: Mode) -> Self {
        Modes(self.0 | 1 << mode as u8)
    }

    fn has(self, mode: Mode) -> bool {
        self.0 & 1 << mode as u8 != 0
    }

    fn conflicts(self, mode: Mode) -> bool {
        Mode::ALL.into_iter().any(|held| self.has(held) && !held.compatible(mode))
    }
}

#[derive(Debug, Default)]
struct KeyLocks {
    held: BTreeMap<TransactionId, Modes>,
    /// By age, the oldest first.
    waiting: BTreeMap<Stamp, (TransactionId, Mode)>,
}

#[derive(Debug)]
struct Owner {
    age: Stamp,
    /// The shard has voted for it: it cannot be wounded.
    firm: bool,
    /// Where it holds or waits.
    keys: BTreeSet<Box<[u8]>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    keys: BTreeMap<Box<[u8]>, KeyLocks>,
    owners: BTreeMap<TransactionId, Owner>,
    wounded: Vec<(TransactionId, Box<[u8]>)>,
    freed: BTreeSet<Box<[u8]>>,
}

impl LockTable {
    /// Asks for a lock. True if it is granted; else the transaction waits, and asks again when [`LockTable::freed`]
    /// names the key. Holders that are younger are wounded.
    pub(super) fn lock(&mut self, id: TransactionId, age: Stamp, key: &[u8], mode: Mode) -> bool {
        let locks = self.keys.entry(key.into()).or_default();
        let own = locks.held.get(&id).copied().unwrap_or_default();
        if own.has(Mode::Write) || own.has(mode) {
            return true;
        }
        let opponents: Vec<TransactionId> = locks
            .held
            .iter()
            .filter(|(other, modes)| **other != id && modes.conflicts(mode))
            .map(|(other, _)| *other)
            .collect();
        let before = locks.waiting.range(..age);
        let mut waits =
            before.filter(|(_, (other, _))| *other != id).any(|(_, (_, wanted))| !wanted.compatible(mode));
        for opponent in opponents {
            let firm = self.owners.get(&opponent).is_none_or(|owner| owner.firm || owner.age < age);
            if firm {
                waits = true;
            } else {
                self.release(opponent);
                self.wounded.push((opponent, key.into()));
            }
        }
        let owner = self.owners.entry(id).or_insert(Owner { age, firm: false, keys: BTreeSet::new() });
        owner.keys.insert(key.into());
        let locks = self.keys.entry(key.into()).or_default();
        if waits {
            locks.waiting.insert(age, (id, mode));
        } else {
            locks.held.insert(id, own.with(mode));
            if locks.waiting.get(&age).is_some_and(|(waiter, _)| *waiter == id) {
                locks.waiting.remove(&age);
                // Those that only waited behind this one may go on.
                self.freed.insert(key.into());
            }
        }
        !waits
    }

    /// Takes a lock for a transaction that an earlier leader has voted for.
    pub(super) fn reinstate(&mut self, id: TransactionId, age: Stamp, key: &[u8], mode: Mode) {
        let locks = self.keys.entry(key.into()).or_default();
        let own = locks.held.entry(id).or_default();
        *own = own.with(mode);
        let owner = self.owners.entry(id).or_insert(Owner { age, firm: true, keys: BTreeSet::new() });
        owner.keys.insert(key.into());
    }

    /// True if the transaction may rely on what an invocation in this mode observed of the key: one in the mode of a
    /// mutation observes at most the type, which nobody changes beside it.
    pub(super) fn protects(&self, id: TransactionId, key: &[u8], mode: Mode) -> bool {
        let modes = self.keys.get(key).and_then(|locks| locks.held.get(&id));
        modes.is_some_and(|modes| modes.has(Mode::Observe) || modes.has(Mode::Write) || modes.has(mode))
    }

    /// True if the transaction has the key's lock in some mode.
    pub(super) fn holds_any(&self, id: TransactionId, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|locks| locks.held.contains_key(&id))
    }

    /// The shard votes for the transaction: from now on it keeps its locks.
    pub(super) fn make_firm(&mut self, id: TransactionId) {
        if let Some(owner) = self.owners.get_mut(&id) {
            owner.firm = true;
        }
    }

    /// Gives every lock and every wait of a transaction up.
    pub(super) fn release(&mut self, id: TransactionId) {
        let Some(owner) = self.owners.remove(&id) else { return };
        for key in owner.keys {
            let Some(locks) = self.keys.get_mut(&key) else { continue };
            locks.held.remove(&id);
            if locks.waiting.get(&owner.age).is_some_and(|(waiter, _)| *waiter == id) {
                locks.waiting.remove(&owner.age);
            }
            if locks.held.is_empty() && locks.waiting.is_empty() {
                self.keys.remove(&key);
            } else {
                self.freed.insert(key);
            }
        }
    }

    /// A key whose lock the transaction waits for.
    pub(super) fn waited_for(&self, id: TransactionId) -> Option<&[u8]> {
        let waits = |key: &[u8]| {
            let waiting = self.keys.get(key).map(|locks| locks.waiting.values());
            waiting.into_iter().flatten().any(|(waiter, _)| *waiter == id)
        };
        self.owners.get(&id)?.keys.iter().map(|key| &**key).find(|key| waits(key))
    }

    /// The transactions wounded since this was asked last, with the key that each lost first.
    pub(super) fn take_wounded(&mut self) -> Vec<(TransactionId, Box<[u8]>)> {
        std::mem::take(&mut self.wounded)
    }

    /// Who may ask again since this was asked last, the oldest first.
    pub(super) fn take_ready(&mut self) -> Vec<TransactionId> {
        let freed = std::mem::take(&mut self.freed);
        let mut ready = BTreeSet::new();
        for key in &freed {
            let waiting = self.keys.get(key).into_iter().flat_map(|locks| &locks.waiting);
            ready.extend(waiting.map(|(age, (id, _))| (*age, *id)));
        }
        ready.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timestamp;

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    fn age(number: u64) -> Stamp {
        Stamp { at: Timestamp(number), transaction: id(number) }
    }

    fn lock(table: &mut LockTable, number: u64, key: &str, mode: Mode) -> bool {
        table.lock(id(number), age(number), key.as_bytes(), mode)
    }

    #[test]
    fn modes_that_commute_are_held_together() {
        let mut table = LockTable::default();
        assert!(lock(&mut table, 1, "k", Mode::Increment));
        assert!(lock(&mut table, 2, "k", Mode::Increment));
        assert!(!lock(&mut table, 3, "k", Mode::Observe), "a younger reader waits");
        table.release(id(1));
        table.release(id(2));
        assert_eq!(table.take_ready(), [id(3)]);
        assert!(lock(&mut table, 3, "k", Mode::Observe));
    }

    #[test]
    fn an_older_transaction_wounds_a_younger_one_that_is_not_voted_for() {
        let mut table = LockTable::default();
        assert!(lock(&mut table, 5, "k", Mode::Write));
        assert!(lock(&mut table, 3, "k", Mode::Write));
        assert_eq!(table.take_wounded(), [(id(5), b"k".to_vec().into_boxed_slice())]);
        table.make_firm(id(3));
        assert!(!lock(&mut table, 1, "k", Mode::Observe), "the oldest waits for what was voted for");
        assert!(table.take_wounded().is_empty());
    }

    #[test]
    fn a_younger_reader_does_not_overtake_an_older_writer_that_waits() {
        let mut table = LockTable::default();
        assert!(lock(&mut table, 1, "k", Mode::Observe));
        assert!(!lock(&mut table, 2, "k", Mode::Write));
        assert!(!lock(&mut table, 3, "k", Mode::Observe));
        table.release(id(1));
        assert_eq!(table.take_ready(), [id(2), id(3)]);
        assert!(lock(&mut table, 2, "k", Mode::Write));
        assert!(!lock(&mut table, 3, "k", Mode::Observe));
    }

    #[test]
    fn two_readers_that_want_to_write_do_not_deadlock() {
        let mut table = LockTable::default();
        assert!(lock(&mut table, 1, "k", Mode::Observe));
        assert!(lock(&mut table, 2, "k", Mode::Observe));
        assert!(!lock(&mut table, 2, "k", Mode::Write));
        assert!(lock(&mut table, 1, "k", Mode::Write));
        assert_eq!(table.take_wounded().len(), 1);
        assert!(!table.protects(id(2), b"k", Mode::Observe));
    }
}
