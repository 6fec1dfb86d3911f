//! Keys of caches go: in keyspaces that the process keeps by itself, by a deletion that is logged like any other, under the
//! lock of their partition. Replicated keyspaces do it themselves, by transactions ([`protocol::hosted::MaintenanceTask`]).
//!
//! A cache with a share of its own is looked after at each of its steps; what goes for the process's limit is taken from
//! partitions that are drawn by how much they occupy. Each call lets so many keys go at most, and a worker comes back as
//! long as there is too much (Corrections 87).

use crate::journal::Journal;
use crate::keyspace::{Keyspace, PartitionCell};
use crate::lapsed::LapsedKeys;
use crate::memory::Memory;
use crate::process::Process;
use datatypes::{Operation, key};
use gateway::Lapse;
use protocol::eviction::Eviction;
use protocol::{Input, KeyedOperation, NoReplies, Now, Replica, Request};
use std::cell::Cell;
use std::sync::Arc;
use strict::solo::{Solo, choice};
use types::{RequestId, Rng, SessionId};

/// How many keys go at most in one call.
const AT_ONCE: usize = 64;
/// How many of them from one partition.
const OF_ONE: usize = 8;

/// What has come of trying to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionOutcome {
    /// There is room.
    Enough,
    /// Keys have gone, and more have to.
    Some,
    /// No key may go.
    None,
}

/// What keys go with.
pub(crate) struct Evictor<'e> {
    pub(crate) memory: &'e Memory,
    pub(crate) journal: Option<&'e Journal>,
    pub(crate) now: Now,
    pub(crate) random: &'e mut Rng,
    pub(crate) lapsed: &'e mut LapsedKeys,
}

impl Evictor<'_> {
    /// Lets keys of a partition go, whose lock the caller holds, while there `is_too_much`; returns how many went.
    fn evict(
        &mut self,
        (cell, replica): (&Arc<PartitionCell>, &mut Replica<Solo>),
        policy: Eviction,
        most: usize,
        is_too_much: impl Fn(&PartitionCell) -> bool,
    ) -> usize {
        if let Some(journal) = self.journal {
            journal.fence(replica);
        }
        let choice = choice(policy, self.memory.samples());
        let (mut gone, mut keys) = (0, Vec::new());
        while gone < most && is_too_much(cell) && !replica.protocol().is_fenced() {
            let victim = replica.protocol().victim(choice, self.now, self.random).map(<[u8]>::to_vec);
            let Some(key) = victim else { break };
            let operation = KeyedOperation {
                key: &key,
                hash: replica.protocol().store().hash(&key),
                operation: Operation::Key(key::Operation::Delete),
                blind: false,
            };
            let request = Request::One { session: SessionId(0), operation };
            let mut batch = vec![Input::Request { id: RequestId(0), request }];
            replica.step(self.now, &mut batch, self.random, &mut NoReplies::default());
            cell.count(replica.protocol());
            gone += 1;
            keys.push(key.into());
        }
        let mut refused = false;
        if let Some(journal) = self.journal {
            // No client waits for a reply; what the log refuses is undone, and retried later.
            refused = !journal.append(&mut [(cell, &mut *replica)]);
            cell.count(replica.protocol());
        }
        self.lapsed.note(cell.keyspace, keys, Lapse::Evicted, replica.reply_gate(), refused);
        self.memory.count_evicted(gone);
        gone
    }

    /// Sees to it that a partition of a cache keeps to its share.
    pub(crate) fn keep_share(
        &mut self,
        keyspace: &Keyspace,
        cell: &Arc<PartitionCell>,
        replica: &mut Replica<Solo>,
    ) -> EvictionOutcome {
        let Some((policy, share)) = keyspace.share() else { return EvictionOutcome::Enough };
        let is_too_much = |cell: &PartitionCell| cell.occupied().evictable() > share;
        if !is_too_much(cell) {
            return EvictionOutcome::Enough;
        }
        let gone = self.evict((cell, replica), policy, AT_ONCE, is_too_much);
        keyspace.count_evicted(gone);
        if gone == 0 && !replica.protocol().is_fenced() {
            self.memory.set_full(keyspace.id, true);
        }
        match (is_too_much(cell), gone) {
            (false, _) => EvictionOutcome::Enough,
            (true, 0) => EvictionOutcome::None,
            (true, _) => EvictionOutcome::Some,
        }
    }

    /// Makes room in the process, as far as that is done in one call.
    pub(crate) fn make_room(&mut self, keyspaces: &[Arc<Keyspace>]) -> EvictionOutcome {
        let caches: Vec<(&Arc<Keyspace>, Eviction)> =
            keyspaces.iter().filter_map(|keyspace| Some((keyspace, keyspace.policy()?))).collect();
        let (memory, changes) = (self.memory, self.memory.changes());
        let relief = if !caches.is_empty() {
            let_keys_go(|| memory.excess(true), || self.evict_drawn(&caches))
        } else if memory.excess(false) == 0 {
            EvictionOutcome::Enough
        } else {
            EvictionOutcome::None
        };
        if relief == EvictionOutcome::None {
            memory.set_barren(self.now.instant, changes);
        }
        relief
    }

    /// Lets some keys of one partition go, drawn by what partitions occupy; of any that has one, if that has none. Returns how
    /// many went; `None` if others made room meanwhile.
    fn evict_drawn(&mut self, caches: &[(&Arc<Keyspace>, Eviction)]) -> Option<usize> {
        let cells =
            || caches.iter().flat_map(|cache| cache.0.partitions.iter().map(move |cell| (*cache, cell)));
        let weight = |cell: &PartitionCell| cell.occupied().evictable();
        let total: usize = cells().map(|(_, cell)| weight(cell)).sum();
        let mut drawn = self.random.usize(0..total.max(1));
        let chosen = cells().find(|(_, cell)| match drawn.checked_sub(weight(cell)) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        });
        for ((keyspace, policy), cell) in chosen.into_iter().chain(cells()) {
            let memory = self.memory;
            let mut replica = cell.replica.lock();
            let has_room = Cell::new(false);
            let gone = self.evict((cell, &mut replica), policy, OF_ONE, |_| {
                has_room.set(memory.excess(true) == 0);
                !has_room.get()
            });
            if gone > 0 {
                keyspace.count_evicted(gone);
                return Some(gone);
            }
            if has_room.get() {
                return None;
            }
        }
        Some(0)
    }
}

/// Evicts some keys at a time while there is an `excess`, up to [`AT_ONCE`].
///
/// Other workers evict and write meanwhile, so that every look at the excess may tell something else. Only `evict_some`, which
/// has looked at every partition, tells that no key may go.
fn let_keys_go(excess: impl Fn() -> usize, mut evict_some: impl FnMut() -> Option<usize>) -> EvictionOutcome {
    let mut all = 0;
    while excess() > 0 {
        if all >= AT_ONCE {
            return EvictionOutcome::Some;
        }
        match evict_some() {
            None => break,
            Some(0) if all == 0 => return EvictionOutcome::None,
            Some(0) => return EvictionOutcome::Some,
            Some(gone) => all += gone,
        }
    }
    EvictionOutcome::Enough
}

/// Does what is left to do for all caches that this process keeps by itself: their shares, and the process's limit.
pub(crate) fn look_after(
    process: &Process,
    now: Now,
    random: &mut Rng,
    lapsed: &mut LapsedKeys,
) -> EvictionOutcome {
    let (memory, keyspaces) = (&*process.locals.memory, process.keyspaces());
    let mut evictor = Evictor { memory, journal: process.journal.as_ref(), now, random, lapsed };
    let mut relief = match memory.limit() {
        0 => EvictionOutcome::Enough,
        _ => evictor.make_room(&keyspaces),
    };
    for keyspace in keyspaces.iter() {
        let Some((_, share)) = keyspace.share() else { continue };
        let mut is_full = false;
        for cell in keyspace.partitions.iter().filter(|cell| cell.occupied().evictable() > share) {
            let mut replica = cell.replica.lock();
            match evictor.keep_share(keyspace, cell, &mut replica) {
                EvictionOutcome::Enough => {}
                EvictionOutcome::Some => relief = EvictionOutcome::Some,
                EvictionOutcome::None => is_full = true,
            }
        }
        if !is_full {
            memory.set_full(keyspace.id, false);
        }
    }
    relief
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of it if the excess is, one look after the other, what `excesses` says, and each round evicts `gone` keys.
    fn outcome(excesses: &[usize], gone: Option<usize>) -> (EvictionOutcome, usize) {
        let (looks, mut rounds) = (Cell::new(0), 0);
        let excess = || {
            looks.set(looks.get() + 1);
            excesses[(looks.get() - 1).min(excesses.len() - 1)]
        };
        let evict_some = || {
            rounds += 1;
            gone
        };
        let outcome = let_keys_go(excess, evict_some);
        (outcome, rounds)
    }

    #[test]
    fn no_key_may_go_only_if_partitions_were_queried() {
        assert_eq!(outcome(&[900], Some(0)), (EvictionOutcome::None, 1));
        // Another worker writes when this one has found room, or makes room while this one looks.
        assert_eq!(outcome(&[0, 900], Some(0)), (EvictionOutcome::Enough, 0));
        assert_eq!(outcome(&[900], None), (EvictionOutcome::Enough, 1));
    }

    #[test]
    fn keys_go_while_there_is_too_much_and_so_many_at_most() {
        assert_eq!(outcome(&[900, 500, 0], Some(OF_ONE)), (EvictionOutcome::Enough, 2));
        assert_eq!(outcome(&[900], Some(OF_ONE)), (EvictionOutcome::Some, AT_ONCE / OF_ONE));
    }
}
