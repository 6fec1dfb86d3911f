//! A causal thread: what a session, or all sessions of a process, wrote and cannot yet read from a snapshot.

use crate::stable::Times;
use crate::stable::message::{CachedEffect, KeyEffects};
use crate::stable::stamp::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use types::{SessionId, Timestamp, TransactionId};

/// A write that is not stable everywhere in the region.
#[derive(Clone, Debug)]
struct Cached<D> {
    stamp: Stamp<D>,
    epoch: u64,
    effects: Vec<Box<[u8]>>,
}

/// A transaction in the cache.
#[derive(Clone, Debug)]
struct Written<D> {
    session: SessionId,
    stamp: Stamp<D>,
    keys: Vec<Box<[u8]>>,
}

/// The paper's client: highest write time and cache. The cache is versioned (Corrections 72): a transaction sees what
/// was in it when it began, so that what several connections write meanwhile does not tear its snapshot. It holds
/// effects, not values: they are performed on what the snapshot shows (Corrections 37).
#[derive(Clone, Debug)]
pub(super) struct Thread<S: Times> {
    /// What it has seen, where sessions know that: the dependency vector of POCC's client.
    pub(super) seen: S,
    /// What it had seen when it became pessimistic, as long as the region lacks some of that.
    pub(super) abandoned: Option<S>,
    /// The commit timestamp of the thread's last write: the paper's `hwt`.
    pub(super) highest: Timestamp,
    /// Counts the transactions that went into the cache.
    pub(super) epoch: u64,
    /// In order of place for each key.
    cache: BTreeMap<Box<[u8]>, Vec<Cached<S::Depends>>>,
    places: BTreeMap<(Timestamp, TransactionId), Written<S::Depends>>,
}

impl<S: Times> Default for Thread<S> {
    fn default() -> Self {
        Thread {
            seen: S::default(),
            abandoned: None,
            highest: Timestamp::ZERO,
            epoch: 0,
            cache: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }
}

impl<S: Times> Thread<S> {
    /// The effects on a key that a transaction sees beyond its snapshot, which shows what
    /// its thread wrote up to `shown`: in order of place, and whose they are.
    pub(super) fn overlay(
        &self,
        key: &[u8],
        shown: Timestamp,
        epoch: u64,
    ) -> (Vec<CachedEffect<S::Depends>>, Vec<TransactionId>) {
        let cached = self.cache.get(key).into_iter().flatten();
        let seen = cached.filter(|cached| cached.stamp.at > shown && cached.epoch <= epoch);
        let (mut effects, mut own) = (Vec::new(), Vec::new());
        for cached in seen {
            let effects_here = cached.effects.iter().cloned();
            effects.extend(effects_here.map(|effect| CachedEffect { stamp: cached.stamp, effect }));
            own.push(cached.stamp.transaction);
        }
        (effects, own)
    }

    /// True if the thread reads this transaction's writes from its cache.
    pub(super) fn holds(&self, place: (Timestamp, TransactionId)) -> bool {
        self.places.contains_key(&place)
    }

    /// A transaction of one of the thread's sessions has committed.
    pub(super) fn insert(&mut self, session: SessionId, stamp: Stamp<S::Depends>, effects: &[KeyEffects]) {
        let (at, id) = (stamp.at, stamp.transaction);
        self.highest = self.highest.max(at);
        self.epoch += 1;
        if S::OPTIMISTIC {
            // Its snapshots show all that it wrote.
            return;
        }
        for of_key in effects {
            let cached = Cached { stamp, epoch: self.epoch, effects: of_key.effects.clone() };
            let entries = self.cache.entry(of_key.key.clone()).or_default();
            let place = entries.partition_point(|other| other.stamp < stamp);
            entries.insert(place, cached);
        }
        let keys = effects.iter().map(|of_key| of_key.key.clone()).collect();
        self.places.insert((at, id), Written { session, stamp, keys });
    }

    /// What another thread wrote is this one's from now on.
    pub(super) fn join(&mut self, other: Thread<S>) {
        self.seen = self.seen.newest(other.seen);
        self.highest = self.highest.max(other.highest);
        self.epoch += 1;
        let epoch = self.epoch;
        for (key, entries) in other.cache {
            for cached in entries {
                if !self.holds((cached.stamp.at, cached.stamp.transaction)) {
                    let own = self.cache.entry(key.clone()).or_default();
                    let place = own.partition_point(|known| known.stamp < cached.stamp);
                    own.insert(place, Cached { epoch, ..cached });
                }
            }
        }
        for (place, written) in other.places {
            self.places.entry(place).or_insert(written);
        }
    }

    /// Every snapshot that is still read shows what was placed up to `local`.
    pub(super) fn prune(&mut self, local: Timestamp) {
        while let Some(first) = self.places.first_entry() {
            let place = *first.key();
            if place.0 > local {
                return;
            }
            let keys = first.remove().keys;
            self.forget(place, keys);
        }
    }

    fn forget(&mut self, place: (Timestamp, TransactionId), keys: Vec<Box<[u8]>>) {
        for key in keys {
            let Some(entries) = self.cache.get_mut(&key) else { continue };
            entries.retain(|cached| (cached.stamp.at, cached.stamp.transaction) != place);
            if entries.is_empty() {
                self.cache.remove(&key);
            }
        }
    }

    /// Everybody has given these transactions up. Returns the sessions that had written them.
    pub(super) fn give_up(
        &mut self,
        is_given_up: impl Fn(&Stamp<S::Depends>) -> bool,
    ) -> BTreeSet<SessionId> {
        let mut writers = BTreeSet::new();
        let given_up = self.places.extract_if(.., |_, written| is_given_up(&written.stamp));
        for (place, written) in given_up.collect::<Vec<_>>() {
            writers.insert(written.session);
            self.forget(place, written.keys);
        }
        writers
    }

    /// The keys that the cache holds effects on.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.cache.keys().map(|key| &**key)
    }

    /// How many transactions the cache holds.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wren::Snapshot;

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    fn at(at: u64, number: u64) -> Stamp {
        Stamp { at: Timestamp(at), transaction: id(number), ..Stamp::default() }
    }

    fn write(key: &[u8], effect: u8) -> Vec<KeyEffects> {
        vec![KeyEffects { key: key.into(), effects: vec![vec![effect].into()] }]
    }

    fn seen(thread: &Thread<Snapshot>, local: u64, epoch: u64) -> Vec<u8> {
        thread.overlay(b"k", Timestamp(local), epoch).0.iter().map(|cached| cached.effect[0]).collect()
    }

    /// Corrections 72: a transaction that began before a write of another connection does not meet half of it.
    #[test]
    fn a_transaction_sees_the_cache_as_it_was_when_it_began() {
        let mut thread: Thread<Snapshot> = Thread::default();
        thread.insert(SessionId(1), at(8, 1), &write(b"k", 1));
        let began = thread.epoch;
        thread.insert(SessionId(1), at(6, 2), &write(b"k", 2));
        assert_eq!(seen(&thread, 5, began), [1]);
        assert_eq!(seen(&thread, 5, thread.epoch), [2, 1], "in order of place");
        assert_eq!(seen(&thread, 6, thread.epoch), [1], "the snapshot shows the other");
        assert_eq!(thread.highest, Timestamp(8));
    }

    #[test]
    fn what_is_given_up_is_read_no_more() {
        let mut thread: Thread<Snapshot> = Thread::default();
        thread.insert(SessionId(7), at(6, 1), &write(b"k", 1));
        thread.insert(SessionId(8), at(8, 2), &write(b"k", 2));
        thread.insert(SessionId(9), at(9, 3), &write(b"k", 3));
        let writers = thread.give_up(|stamp| stamp.at == Timestamp(8));
        assert_eq!(writers, BTreeSet::from([SessionId(8)]));
        assert_eq!(seen(&thread, 0, 9), [1, 3]);
        assert!(thread.give_up(|stamp| stamp.at == Timestamp(8)).is_empty());
    }

    #[test]
    fn what_every_snapshot_shows_is_forgotten() {
        let mut thread: Thread<Snapshot> = Thread::default();
        thread.insert(SessionId(1), at(6, 1), &write(b"k", 1));
        thread.insert(SessionId(1), at(8, 2), &write(b"k", 2));
        thread.prune(Timestamp(7));
        assert_eq!(thread.len(), 1);
        assert_eq!(seen(&thread, 0, 9), [2]);
        assert!(thread.holds((Timestamp(8), id(2))) && !thread.holds((Timestamp(6), id(1))));
        thread.prune(Timestamp(8));
        assert_eq!(thread.len(), 0);
    }
}
