//! The store of one partition: records by key, histories above the horizon, deadlines, memory.

use crate::history::History;
use crate::{CompactKey, Drained, Keyed, Table};
use datatypes::{Cell, Effect, Value, apply};
use hashbrown::HashTable;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::mem::size_of;
use types::{HashSeed, KeyHash, Rng};

/// What orders an effect: a timestamp with whatever its model needs beside it.
pub trait Stamp: Copy + Ord + Debug {}
impl<T: Copy + Ord + Debug> Stamp for T {}

/// A key with its newest state and the stamp of its newest effect.
#[derive(Debug)]
pub struct Record<S> {
    key: CompactKey,
    cell: Cell,
    stamp: S,
}

impl<S: Stamp> Record<S> {
    /// The newest state; a deleted key whose history is still needed is absent here.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The greatest stamp among its effects.
    pub fn stamp(&self) -> S {
        self.stamp
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.key.heap_bytes() + value_memory(&self.cell)
    }
}

impl<S> Keyed for Record<S> {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

fn value_memory(cell: &Cell) -> usize {
    cell.value.as_ref().map_or(0, Value::memory)
}

#[derive(Debug)]
struct KeyHistory<S> {
    key: CompactKey,
    hash: KeyHash,
    history: History<S>,
}

/// The state of a partition, of any model: `S` orders effects, a predicate over `S` is a snapshot.
///
/// Feed it effects with [`Store::commit`] (any order) or, where effects come in stamp order and no snapshot is
/// open, with [`Store::update`]. Snapshots are leases that the owner of the store grants and ends; it tells the
/// oldest one with [`Store::set_horizon`].
pub struct Store<S> {
    table: Table<Record<S>>,
    histories: HashTable<KeyHistory<S>>,
    /// Which keys may be folded when the horizon passes a stamp.
    due: BTreeMap<S, Vec<CompactKey>>,
    /// Effects at or below it are part of every snapshot; `None`: there is no snapshot, nothing is kept.
    horizon: Option<S>,
    /// The greatest stamp of a key that was forgotten because it is absent.
    watermark: S,
    deadlines: BTreeSet<(u64, CompactKey)>,
    /// Records that are absent but kept for their history.
    tombstones: usize,
    memory: usize,
    seed: HashSeed,
}

impl<S: Stamp> Store<S> {
    /// An empty store whose keys are hashed with `seed`. `lowest` is below every stamp. Nothing is retained for
    /// snapshots until `set_horizon`.
    pub fn new(seed: HashSeed, lowest: S) -> Self {
        Store {
            table: Table::new(seed),
            histories: HashTable::new(),
            due: BTreeMap::new(),
            horizon: None,
            watermark: lowest,
            deadlines: BTreeSet::new(),
            tombstones: 0,
            memory: 0,
            seed,
        }
    }

    /// How many keys there are, expired ones that nobody has met included.
    pub fn len(&self) -> usize {
        self.table.len() - self.tombstones
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes everything occupies.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.memory
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.seed.hash(key)
    }

    /// Brings the key's place in the index into the cache.
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        self.table.prefetch_bucket(hash);
    }

    /// Brings the key's record into the cache; after `prefetch_bucket`.
    #[inline]
    pub fn prefetch_record(&self, hash: KeyHash) {
        self.table.prefetch_record(hash);
    }

    /// The newest state of a key as it reads at `now_millis`: absent when expired.
    #[inline]
    pub fn cell(&self, hash: KeyHash, key: &[u8], now_millis: u64) -> &Cell {
        match self.table.get(hash, key) {
            Some(record) if !record.cell.is_expired(now_millis) => &record.cell,
            _ => &Cell::ABSENT,
        }
    }

    /// The record of a key, if it is known.
    pub fn record(&self, hash: KeyHash, key: &[u8]) -> Option<&Record<S>> {
        self.table.get(hash, key)
    }

    /// The greatest stamp among the key's effects; for an unknown key the greatest among all forgotten ones.
    pub fn stamp(&self, hash: KeyHash, key: &[u8]) -> S {
        self.table.get(hash, key).map_or(self.watermark, Record::stamp)
    }

    /// Lets `change` work on the newest state, which it may leave changed if it returns the new stamp, greater
    /// than every earlier one. The shortest path for a model whose effects come in order; it keeps no history,
    /// so the caller takes it only when [`Store::retains`] is false.
    #[inline]
    pub fn update<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        change: impl FnOnce(&mut Cell) -> (R, Option<S>),
    ) -> R {
        self.update_stamped(hash, key, |cell, _| change(cell))
    }

    /// Like [`Store::update`]; `change` also gets what [`Store::stamp`] would say.
    #[inline]
    pub fn update_stamped<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        change: impl FnOnce(&mut Cell, S) -> (R, Option<S>),
    ) -> R {
        debug_assert!(!self.retains(), "a snapshot needs the history");
        let Some(record) = self.table.get_mut(hash, key) else {
            let mut cell = Cell::ABSENT;
            let (answer, stamp) = change(&mut cell, self.watermark);
            if let Some(stamp) = stamp {
                self.create(hash, key, cell, stamp);
            }
            return answer;
        };
        let (memory, deadline) = (value_memory(&record.cell), record.cell.expires_at);
        let (answer, stamp) = change(&mut record.cell, record.stamp);
        let Some(stamp) = stamp else { return answer };
        record.stamp = stamp;
        self.memory = self.memory + value_memory(&record.cell) - memory;
        let (absent, new_deadline) = (record.cell.value.is_none(), record.cell.expires_at);
        if deadline != new_deadline {
            self.move_deadline(key, deadline, new_deadline);
        }
        if absent {
            self.forget(hash, key);
        }
        answer
    }

    fn create(&mut self, hash: KeyHash, key: &[u8], cell: Cell, stamp: S) {
        if cell.value.is_none() {
            self.watermark = self.watermark.max(stamp);
            return;
        }
        self.move_deadline(key, 0, cell.expires_at);
        let record = Record { key: CompactKey::new(key), cell, stamp };
        self.memory += record.memory();
        self.table.insert(hash, Box::new(record));
    }

    fn forget(&mut self, hash: KeyHash, key: &[u8]) {
        if let Some(record) = self.table.remove(hash, key) {
            self.memory -= record.memory();
            self.watermark = self.watermark.max(record.stamp);
            self.move_deadline(key, record.cell.expires_at, 0);
        }
    }

    fn move_deadline(&mut self, key: &[u8], from: u64, to: u64) {
        if from != 0 && from != to {
            self.deadlines.remove(&(from, CompactKey::new(key)));
        }
        if to != 0 && from != to {
            self.deadlines.insert((to, CompactKey::new(key)));
        }
    }

    /// True while effects are kept for snapshots.
    pub fn retains(&self) -> bool {
        self.horizon.is_some()
    }

    /// Effects at or below `horizon` are part of every snapshot from now on and can no longer be undone; `None`
    /// when there is no snapshot at all. The horizon never goes back: snapshots below it get SNAPSHOTTOOOLD.
    pub fn set_horizon(&mut self, horizon: Option<S>) {
        debug_assert!(
            horizon.is_none() || self.horizon.is_none() || horizon >= self.horizon,
            "a horizon only rises"
        );
        self.horizon = horizon;
        while let Some(first) = self.due.first_entry() {
            if horizon.is_some_and(|horizon| *first.key() > horizon) {
                break;
            }
            let (stamp, keys) = first.remove_entry();
            keys.into_iter().for_each(|key| self.fold(&key, horizon.unwrap_or(stamp).max(stamp)));
        }
    }

    /// The horizon; see `set_horizon`.
    pub fn horizon(&self) -> Option<S> {
        self.horizon
    }

    fn fold(&mut self, key: &CompactKey, horizon: S) {
        let hash = self.hash(key);
        let Ok(mut entry) = self.histories.find_entry(hash.0, |history| history.key == *key) else { return };
        let history = &mut entry.get_mut().history;
        self.memory -= history.memory();
        history.fold(horizon);
        if !history.is_empty() {
            self.memory += history.memory();
            return;
        }
        entry.remove();
        if self.table.get(hash, key).is_some_and(|record| record.cell.value.is_none()) {
            self.tombstones -= 1;
            self.forget(hash, key);
        }
    }

    /// Applies an effect in its place among the key's effects, whatever the order of arrival, and keeps it for
    /// snapshots while there are any. A stamp may come several times: the effects of one transaction on one key.
    pub fn commit(&mut self, hash: KeyHash, key: &[u8], stamp: S, effect: &Effect<'_>) {
        if !self.retains() {
            return self.update(hash, key, |cell| {
                apply::<false>(cell, effect);
                ((), Some(stamp))
            });
        }
        let mut history = match self.histories.find_entry(hash.0, |history| *history.key == *key) {
            Ok(entry) => entry.remove().0,
            Err(_) => KeyHistory { key: CompactKey::new(key), hash, history: History::new() },
        };
        if history.history.is_empty() {
            self.memory += history.history.memory();
        }
        let before = history.history.memory();
        self.change_kept(hash, key, stamp, |cell| history.history.insert(cell, stamp, effect));
        self.memory = self.memory + history.history.memory() - before;
        self.due.entry(stamp).or_default().push(history.key.clone());
        self.histories.insert_unique(hash.0, history, |history| history.hash.0);
    }

    /// Changes the newest state of a key that has a history, creating an absent record if there is none.
    fn change_kept<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        stamp: S,
        change: impl FnOnce(&mut Cell) -> R,
    ) -> R {
        if self.table.get(hash, key).is_none() {
            let record = Record { key: CompactKey::new(key), cell: Cell::ABSENT, stamp };
            self.memory += record.memory();
            self.table.insert(hash, Box::new(record));
            self.tombstones += 1;
        }
        let Some(record) = self.table.get_mut(hash, key) else { unreachable!("it was just inserted") };
        let (memory, deadline, absent) =
            (value_memory(&record.cell), record.cell.expires_at, record.cell.value.is_none());
        let answer = change(&mut record.cell);
        record.stamp = record.stamp.max(stamp);
        self.memory = self.memory + value_memory(&record.cell) - memory;
        let (new_deadline, now_absent) = (record.cell.expires_at, record.cell.value.is_none());
        self.tombstones = self.tombstones + usize::from(now_absent) - usize::from(absent);
        self.move_deadline(key, deadline, new_deadline);
        answer
    }

    /// Takes back every effect with this stamp on the key; false if there is none above the horizon.
    pub fn retract(&mut self, hash: KeyHash, key: &[u8], stamp: S) -> bool {
        let Ok(entry) = self.histories.find_entry(hash.0, |history| *history.key == *key) else {
            return false;
        };
        let (mut history, _) = entry.remove();
        let before = history.history.memory();
        let found = self.change_kept(hash, key, self.watermark, |cell| history.history.remove(cell, stamp));
        self.memory = self.memory + history.history.memory() - before;
        self.histories.insert_unique(hash.0, history, |history| history.hash.0);
        found
    }

    /// Calls `read` with the key's state as a reader sees it: the effects whose stamps are `visible`, in stamp
    /// order, and on top the reader's `own`. Effects at or below the horizon are always visible. Costs the effects
    /// above the first hidden one; the newest state costs nothing.
    pub fn with_state<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        visible: impl Fn(&S) -> bool,
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        let history = self.histories.find_mut(hash.0, |history| *history.key == *key);
        match (self.table.get_mut(hash, key), history) {
            (Some(record), Some(history)) => history.history.with_state(&mut record.cell, visible, own, read),
            (Some(record), None) => History::<S>::new().with_state(&mut record.cell, visible, own, read),
            (None, _) => History::<S>::new().with_state(&mut Cell::default(), visible, own, read),
        }
    }

    /// The key's effects above the horizon, in stamp order.
    pub fn effects(&self, hash: KeyHash, key: &[u8]) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let history = self.histories.find(hash.0, |history| *history.key == *key);
        history.into_iter().flat_map(|history| history.history.effects())
    }

    /// True if the key has an effect with this stamp above the horizon.
    pub fn has_effect(&self, hash: KeyHash, key: &[u8], stamp: S) -> bool {
        self.histories.find(hash.0, |history| *history.key == *key).is_some_and(|h| h.history.contains(stamp))
    }

    /// Puts a key as a checkpoint holds it, unless what is here is as new.
    pub fn restore(&mut self, key: &[u8], stamp: S, cell: Cell) {
        let hash = self.hash(key);
        if self.table.get(hash, key).is_some_and(|record| record.stamp >= stamp) {
            return;
        }
        self.forget(hash, key);
        self.create(hash, key, cell, stamp);
    }

    /// Up to `limit` keys whose deadline has passed, earliest first. Whoever owns the store commits their deletion.
    pub fn expired(&self, now_millis: u64, limit: usize) -> impl Iterator<Item = &[u8]> {
        self.deadlines
            .range(..(now_millis.saturating_add(1), CompactKey::new(b"")))
            .take(limit)
            .map(|(_, key)| &**key)
    }

    /// The earliest deadline of a key, in milliseconds since 1970.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many keys have a deadline.
    pub fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// Visits the keys of one place of the index that hold a value; returns the next cursor, 0 at the end. A key
    /// present during a whole iteration is visited at least once.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], &Record<S>)) -> u64 {
        self.table.scan(cursor, |record| {
            if record.cell.value.is_some() {
                visit(&record.key, record);
            }
        })
    }

    /// Like [`Store::scan`], but also visits absent keys whose history is kept.
    pub fn scan_all(&self, cursor: u64, mut visit: impl FnMut(&[u8])) -> u64 {
        self.table.scan(cursor, |record| visit(&record.key))
    }

    /// Any key that holds a value, by chance.
    pub fn random_key(&self, random: &mut Rng) -> Option<&[u8]> {
        let tries = (0..64).filter_map(|_| self.table.random(random));
        tries.filter(|record| record.cell.value.is_some()).map(|record| &*record.key).next()
    }

    /// Removes everything at once, histories included; the owner frees the storage in pieces (Corrections 87).
    pub fn clear(&mut self, stamp: S) -> Drained<Record<S>> {
        self.histories.clear();
        self.due.clear();
        self.deadlines.clear();
        self.tombstones = 0;
        self.memory = 0;
        self.watermark = self.watermark.max(stamp);
        self.table.take()
    }
}
