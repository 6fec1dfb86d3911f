//! The store of one partition: records by key, histories above the horizon, deadlines, memory.
//!
//! ```text
//!   key --> Record: newest cell, newest stamp            read and changed as in a store without history
//!    \--> History: effects above the horizon + undo      only while snapshots are open, only of changed keys
//! ```
//!
//! Without a horizon the store retains no effects, and they take effect in their order of arrival. With one, effects
//! above it take effect in the order of their stamps, whenever they arrive, and a read may leave any of them out. An
//! effect that arrives at or below the horizon takes effect below all retained effects, after all others.
//!
//! # Measured
//! Instructions a commit (x86-64, callgrind, 20 000 keys; an increment, a value of 40 bytes): without a horizon 302
//! and 377; above a horizon 1176 and 1652; one hot key, the horizon a thousand effects behind, 1031 and 1572.
//!
//! # Invariants
//! - A key with a history has a record. A record without a value (a *tombstone*) has a history, or had one that is
//!   not folded yet. A key that is packed (`packing`) has neither. [`Store::assert_consistent`] checks these and every
//!   count stored beside the records.
//! - A key's newest state is what all its effects make, unless [`Store::waits`]: where effects need not have observed all
//!   before them, one that arrives below many waits until somebody reads it or its owner has time
//!   ([`Store::refresh_some`]). Meanwhile the record holds what the others make.
//! - Histories are folded a few at a time, at commits and when the owner asks ([`Store::fold_some`]), because the
//!   end of a long snapshot may leave millions behind (Corrections 87). Nothing but the memory in use tells folded
//!   from due: what is due is part of every snapshot.

mod consistency;
mod deferred_drop;
mod fold_queue;
mod lost;
mod packing;
mod snapshots;
mod usage;

use crate::history::{DependencyVectorOf, FEW};
use crate::losses::Losses;
use crate::table::scan_both;
use crate::{CompactKey, Drained, Keyed, Mutants, Table};
use datatypes::register::Register;
use datatypes::{Cell, Value};
use fold_queue::{Entry, FoldQueue};
use packing::Packing;
use snapshots::KeyHistory;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Bound;
use types::{HashSeed, KeyHash, Rng, Timestamp, Wire};
use usage::Usage;

pub use deferred_drop::DeferredDrop;
pub use usage::{By, Choice, Tracked};

/// How many records [`Store::random_key`] draws before it settles for any key that holds a value.
const RANDOM_DRAWS: usize = 64;

/// What orders an effect: a timestamp with whatever its model needs beside it.
pub trait Stamp: Copy + Ord + Debug + Wire {
    /// True if somebody who observed other groups up to `upto` observed this effect of one of them ([`crate::DependencyVector`]).
    fn is_observed(&self, group: u16, upto: &Self) -> bool {
        let _ = group;
        self <= upto
    }

    /// What two observed both, of those up to this one and up to the other.
    fn observed_by_both(self, other: Self) -> Self {
        self.min(other)
    }
}

impl Stamp for u64 {}
impl Stamp for Timestamp {}
impl<A: Copy + Ord + Debug + Wire, B: Copy + Ord + Debug + Wire> Stamp for (A, B) {}

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

    /// The greatest stamp among the effects since the key was last unknown, retracted ones included.
    pub fn stamp(&self) -> S {
        self.stamp
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.key.heap_bytes() + Counted::of(&self.cell).memory
    }
}

impl<S> Keyed for Record<S> {
    fn key(&self) -> &[u8] {
        &self.key
    }
}

/// What the store counts of a state.
#[derive(Clone, Copy)]
struct Counted {
    memory: usize,
    deadline: u64,
    /// The deadline of its own, or 0.
    expires_at: u64,
    /// When nothing is left of it, or 0: see [`Cell::end`].
    end: u64,
    absent: bool,
}

impl Counted {
    #[inline]
    fn of(cell: &Cell) -> Counted {
        let memory = cell.value.as_ref().map_or(0, Value::memory);
        let (deadline, expires_at) = (cell.next_deadline(0), cell.expires_at);
        Counted { memory, deadline, expires_at, end: cell.end(), absent: cell.value.is_none() }
    }

    /// When nothing is left of it, if that is later than its first deadline; or 0.
    fn late_end(&self) -> u64 {
        if self.end == self.deadline { 0 } else { self.end }
    }
}

/// The state of a partition, of any model: `S` orders effects, a predicate over `S` is a snapshot.
///
/// Feed it effects with [`Store::commit`] (any order) or, where effects come in stamp order and no snapshot is
/// open, with [`Store::update`]. Snapshots are leases that the owner of the store grants and ends; it tells the
/// oldest one with [`Store::set_horizon`], and calls [`Store::fold_some`] in its idle moments.
pub struct Store<S> {
    table: Table<Record<S>>,
    histories: Table<KeyHistory<S>>,
    /// Which histories may be folded when the horizon passes a stamp; at least one entry a history of this era.
    due: FoldQueue<S>,
    /// Keys that are gone and whose history the store retains in a few bytes.
    packing: Packing<S>,
    /// Histories of earlier eras: all of them may go.
    released: Vec<Entry<S>>,
    /// Effects at or below it are part of every snapshot; `None`: there is no snapshot, and the store retains nothing.
    horizon: Option<S>,
    /// Counts how often the horizon was given up. Histories of an earlier era are part of every snapshot.
    era: u64,
    /// How effects tell what they observed, where they need not have observed all before them.
    dependencies: Option<DependencyVectorOf<S>>,
    /// With `dependencies`: an effect that arrives below more than so many waits.
    few: usize,
    /// With `dependencies`: every effect that is yet to come has observed what is at or below.
    stability_frontier: S,
    /// With `dependencies`: the writes that concurrent ones cost others, if they are listed.
    losses: Option<Losses<S>>,
    /// Keys among whose effects some may not have observed an earlier one; only noted if losses are listed.
    contested: BTreeSet<(KeyHash, CompactKey)>,
    /// Histories in which effects wait to be done, by the first one that [`Store::show_to`] must show for that; `None`: by
    /// nothing more.
    waiting: FoldQueue<Option<S>>,
    /// With `dependencies`: a group and a place. No reader sees anything of another group above it.
    shown: Option<(u16, S)>,
    /// How many more steps [`Store::refresh_some`] took than it was allowed.
    owed: u64,
    /// What merging took so far.
    steps: u64,
    /// The greatest stamp of a key that was forgotten because it is absent.
    watermark: S,
    deadlines: BTreeSet<(u64, CompactKey)>,
    /// Keys of which nothing is left at a later time than their first deadline, by that time.
    ends: BTreeSet<(u64, CompactKey)>,
    /// How many keys have a deadline of their own.
    dated: usize,
    /// Of how many keys nothing is left at `lapsed_until`, in milliseconds since 1970.
    lapsed: usize,
    lapsed_until: u64,
    /// Records that are absent but stay for their history.
    tombstones: usize,
    /// What they occupy, of `memory`.
    buried: usize,
    /// What records, values, histories and deadlines occupy on the heap beyond the containers named here.
    memory: usize,
    /// Of that, what histories occupy.
    history_bytes: usize,
    /// How keys are used, where that is tracked.
    usage: Option<Box<Usage>>,
    seed: HashSeed,
    /// The binary form of the effect being committed.
    scratch: Vec<u8>,
    mutants: Mutants,
}

impl<S: Stamp> Store<S> {
    /// An empty store whose keys are hashed with `seed`. `lowest` is below every stamp. Nothing is retained for
    /// snapshots until `set_horizon`.
    pub fn new(seed: HashSeed, lowest: S) -> Self {
        Store {
            table: Table::new(seed),
            histories: Table::new(seed),
            due: FoldQueue::new(),
            packing: Packing::new(seed),
            released: Vec::new(),
            horizon: None,
            era: 0,
            dependencies: None,
            few: FEW,
            stability_frontier: lowest,
            losses: None,
            contested: BTreeSet::new(),
            waiting: FoldQueue::new(),
            shown: None,
            owed: 0,
            steps: 0,
            watermark: lowest,
            deadlines: BTreeSet::new(),
            ends: BTreeSet::new(),
            dated: 0,
            lapsed: 0,
            lapsed_until: 0,
            tombstones: 0,
            buried: 0,
            memory: 0,
            history_bytes: 0,
            usage: None,
            seed,
            scratch: Vec::new(),
            mutants: Mutants::NONE,
        }
    }

    /// The same with a known bug.
    pub fn with_mutants(self, mutants: Mutants) -> Self {
        Store { mutants, ..self }
    }

    /// How many keys there are, expired ones that nobody has met included, unless they are packed.
    pub fn len(&self) -> usize {
        self.table.len() - self.tombstones
    }

    /// How many of them had not expired when [`Store::pass_time`] was called last, all their fields included.
    pub fn living(&self) -> usize {
        self.len() - self.lapsed
    }

    /// Counts the keys whose deadline has passed at `now_millis`: while another region is silent they stay for long.
    pub fn pass_time(&mut self, now_millis: u64) {
        if now_millis <= self.lapsed_until {
            return;
        }
        let from = (self.lapsed_until + 1, CompactKey::new(b""));
        let passed = from..(now_millis + 1, CompactKey::new(b""));
        let (mut lapsed, merges) = (0, self.dependencies.is_some() && self.horizon.is_some());
        for (at, key) in self.deadlines.range(passed.clone()).chain(self.ends.range(passed)) {
            let hash = self.seed.hash(key);
            let record = self.table.get(hash, key).filter(|record| record.cell.end() == *at);
            lapsed += usize::from(record.is_some());
            if let Some(record) = record.filter(|_| merges) {
                self.packing.note_dying(record.stamp, hash);
            }
        }
        self.lapsed += lapsed;
        self.lapsed_until = now_millis;
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes everything occupies: index, records, values, histories with what they can bring back,
    /// deadlines.
    pub fn memory(&self) -> usize {
        // A B-tree's nodes are two thirds full.
        let deadlines = self.deadlines.len() + self.ends.len();
        let deadlines = deadlines * size_of::<(u64, CompactKey)>() * 3 / 2;
        let losses = self.losses.as_ref().map_or(0, Losses::memory);
        let usage = self.usage.as_ref().map_or(0, |usage| usage.memory());
        let others = self.memory - self.history_bytes;
        self.table.memory() + deadlines + losses + usage + others + self.of_histories()
    }

    /// Of [`Store::memory`], about how many bytes are there for snapshots, tombstones included: they go when nobody needs
    /// these any more, not when keys go.
    pub fn retained(&self) -> usize {
        let is_any = !self.histories.is_empty() || !self.packing.is_empty();
        if is_any { self.of_histories() + self.buried } else { 0 }
    }

    fn of_histories(&self) -> usize {
        let due = self.due.memory() + self.released.capacity() * size_of::<Entry<S>>();
        self.histories.memory()
            + self.histories.len() * size_of::<KeyHistory<S>>()
            + due
            + self.history_bytes
            + self.packing.memory()
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

    /// Brings the beginning of a key's value into the cache, if it is bytes; after `prefetch_record`.
    #[inline]
    pub fn prefetch_value(&self, hash: KeyHash, key: &[u8]) {
        let value = self.table.get(hash, key).and_then(|record| record.cell.value.as_ref());
        if let Some(Value::Register(Register::Bytes(bytes))) = value {
            crate::table::prefetch_bytes(bytes);
        }
    }

    /// Brings a key's place in the index of histories into the cache, for a commit.
    #[inline]
    pub fn prefetch_history_bucket(&self, hash: KeyHash) {
        self.histories.prefetch_bucket(hash);
    }

    /// Brings a key's history into the cache; after `prefetch_history_bucket`.
    #[inline]
    pub fn prefetch_history(&self, hash: KeyHash) {
        self.histories.prefetch_record(hash);
    }

    /// Brings the end of a key's history into the cache, where most effects are put; after `prefetch_history`.
    #[inline]
    pub fn prefetch_last_effect(&self, hash: KeyHash, key: &[u8]) {
        if let Some(key_history) = self.histories.get(hash, key) {
            key_history.history.prefetch_last();
        }
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
    #[inline]
    pub fn record(&self, hash: KeyHash, key: &[u8]) -> Option<&Record<S>> {
        self.table.get(hash, key)
    }

    /// The record's stamp; for an absent key at least [`Store::watermark`], the greatest among all forgotten ones.
    pub fn stamp(&self, hash: KeyHash, key: &[u8]) -> S {
        match self.table.get(hash, key) {
            Some(record) if record.cell.value.is_some() => record.stamp,
            Some(record) => record.stamp.max(self.watermark),
            None => self.watermark,
        }
    }

    /// At least the stamp of every effect on a key that is unknown now.
    pub fn watermark(&self) -> S {
        self.watermark
    }

    /// Lets `change` work on the newest state, which it may leave changed only if it returns the stamp that the
    /// record shall have. The shortest path for a model whose effects come in order; it keeps no history, so the
    /// caller takes it only when [`Store::retains`] is false.
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
        self.forget_released(hash, key);
        let watermark = self.watermark;
        self.change(hash, key, |cell, present| change(cell, present.unwrap_or(watermark)))
    }

    /// Changes a key that has no history. `change` gets the record's stamp, if there is a record.
    #[inline]
    fn change<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        change: impl FnOnce(&mut Cell, Option<S>) -> (R, Option<S>),
    ) -> R {
        let Some(record) = self.table.get_mut(hash, key) else {
            let mut cell = Cell::ABSENT;
            let (answer, stamp) = change(&mut cell, None);
            if let Some(stamp) = stamp {
                self.create(hash, key, cell, stamp);
            }
            return answer;
        };
        let before = Counted::of(&record.cell);
        let (answer, stamp) = change(&mut record.cell, Some(record.stamp));
        let Some(stamp) = stamp else { return answer };
        record.stamp = stamp;
        let after = Counted::of(&record.cell);
        self.recount(key, before, after);
        if after.absent {
            self.forget(hash, key);
        }
        answer
    }

    fn create(&mut self, hash: KeyHash, key: &[u8], cell: Cell, stamp: S) {
        if cell.value.is_none() {
            self.watermark = self.watermark.max(stamp);
            return;
        }
        self.redate(key, Counted::of(&Cell::ABSENT), Counted::of(&cell));
        let record = Record { key: CompactKey::new(key), cell, stamp };
        self.memory += record.memory();
        self.table.insert_absent(hash, Box::new(record));
    }

    fn forget(&mut self, hash: KeyHash, key: &[u8]) {
        if let Some(record) = self.table.remove(hash, key) {
            self.memory -= record.memory();
            self.watermark = self.watermark.max(record.stamp);
            self.redate(key, Counted::of(&record.cell), Counted::of(&Cell::ABSENT));
        }
    }

    /// The state of a key was counted so `before` and is so now.
    #[inline]
    fn recount(&mut self, key: &[u8], before: Counted, after: Counted) {
        self.memory = self.memory + after.memory - before.memory;
        let dates = |counted: Counted| (counted.deadline, counted.expires_at, counted.end);
        if dates(before) != dates(after) {
            self.redate(key, before, after);
        }
    }

    /// The state of a key with deadlines was counted so `before` and is so now.
    fn redate(&mut self, key: &[u8], before: Counted, after: Counted) {
        let dated = |counted: Counted| usize::from(counted.expires_at != 0);
        let lapsed = |counted: Counted| usize::from((1..=self.lapsed_until).contains(&counted.end));
        self.dated = self.dated + dated(after) - dated(before);
        self.lapsed = self.lapsed + lapsed(after) - lapsed(before);
        move_date(&mut self.deadlines, &mut self.memory, key, before.deadline, after.deadline);
        move_date(&mut self.ends, &mut self.memory, key, before.late_end(), after.late_end());
    }

    /// Up to `limit` keys of which a deadline has passed, their own or that of a field, earliest first. Whoever owns the
    /// store commits the deletion ([`Cell::expiry`]).
    pub fn expired(&self, now_millis: u64, limit: usize) -> impl Iterator<Item = &[u8]> {
        self.deadlines
            .range(..(now_millis.saturating_add(1), CompactKey::new(b"")))
            .take(limit)
            .map(|(_, key)| &**key)
    }

    /// The keys whose first deadline, in milliseconds since 1970, has passed at `now_millis`, with it; in this order those
    /// behind `after`, if that is given.
    pub fn overdue(
        &self,
        after: Option<&(u64, CompactKey)>,
        now_millis: u64,
    ) -> impl Iterator<Item = (u64, CompactKey)> {
        let beyond = (now_millis.saturating_add(1), CompactKey::new(b""));
        let until = after.map_or(beyond.clone(), |after| beyond.max(after.clone()));
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.deadlines.range((from.cloned(), Bound::Included(until)));
        range.take_while(move |(at, _)| *at <= now_millis).cloned()
    }

    /// The earliest deadline of a key or of a field, in milliseconds since 1970.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many keys have a deadline, or fields with deadlines.
    pub fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// How many keys have a deadline of their own: those that may go where only keys with a deadline may.
    pub fn dated(&self) -> usize {
        self.dated
    }

    /// Visits the keys of one place of the index that hold a value; returns the next cursor, 0 at the end. A key
    /// present during a whole iteration is visited at least once.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], &Record<S>)) -> u64 {
        self.table.scan(cursor, |record| {
            // A value may be among what waits to be done.
            let waits = || self.waiting.peek().is_some() && self.waits(self.hash(&record.key), &record.key);
            if record.cell.value.is_some() || waits() {
                visit(&record.key, record);
            }
        })
    }

    /// Like [`Store::scan`], but also visits absent keys with a retained history.
    pub fn scan_all(&self, cursor: u64, visit: impl FnMut(&[u8])) -> u64 {
        scan_both(&self.table, self.packing.table(), cursor, visit)
    }

    /// A key that holds a value and is `wanted`, by chance; `None` only if there is none. Fair unless few records are
    /// such.
    pub fn random_key(&self, random: &mut Rng, wanted: impl Fn(&[u8], &Record<S>) -> bool) -> Option<&[u8]> {
        if self.is_empty() {
            return None;
        }
        let fits = |record: &Record<S>| record.cell.value.is_some() && wanted(&record.key, record);
        let drawn = (0..RANDOM_DRAWS).filter_map(|_| self.table.random(random)).find(|record| fits(record));
        drawn.or_else(|| self.table.find_any(random, fits)).map(|record| &*record.key)
    }

    /// A key with a value or a retained history, by chance; `None` only if there is none.
    pub fn random_known(&self, random: &mut Rng) -> Option<&[u8]> {
        let packed = self.packing.table();
        match packed.is_empty() || random.usize(0..self.known()) < self.table.len() {
            true => self.table.random(random).map(|record| &*record.key),
            false => packed.random(random).map(Keyed::key),
        }
    }

    /// How many keys hold a value or have a retained history.
    pub fn known(&self) -> usize {
        self.table.len() + self.packing.table().len()
    }

    /// Removes everything at once, histories included. `stamp` is at least every stamp so far. The owner frees the
    /// records in pieces (Corrections 87); where keys have deadlines, [`Store::take`] is better.
    pub fn clear(&mut self, stamp: S) -> Drained<Record<S>> {
        self.take(stamp).table.take()
    }

    /// Removes everything and hands it over: to be put back in the place of this store, or to be freed in pieces
    /// ([`Store::into_deferred_drop`]). The horizon stays. `stamp` is at least every stamp so far.
    pub fn take(&mut self, stamp: S) -> Store<S> {
        let mut empty = Store::new(self.seed, self.watermark.max(stamp));
        (empty.horizon, empty.era) = (self.horizon, self.era);
        (empty.dependencies, empty.stability_frontier, empty.few) =
            (self.dependencies, self.stability_frontier, self.few);
        (empty.shown, empty.mutants, empty.lapsed_until) = (self.shown, self.mutants, self.lapsed_until);
        empty.track(self.usage.as_ref().map(|usage| usage.tracked()));
        std::mem::replace(self, empty)
    }

    /// What is left to be freed when nobody needs the store any more.
    pub fn into_deferred_drop(mut self) -> DeferredDrop<S> {
        DeferredDrop::new(
            self.table.take(),
            [self.deadlines, self.ends],
            self.histories.take(),
            self.packing.take(),
        )
    }
}

/// Moves a key from one date to another; at 0 it is not there. `memory` counts what long keys occupy.
fn move_date(dates: &mut BTreeSet<(u64, CompactKey)>, memory: &mut usize, key: &[u8], from: u64, to: u64) {
    if from == to {
        return;
    }
    let key = CompactKey::new(key);
    let heap_bytes = key.heap_bytes();
    if from != 0 && to != 0 {
        dates.remove(&(from, key.clone()));
        dates.insert((to, key));
    } else if to != 0 {
        dates.insert((to, key));
        *memory += heap_bytes;
    } else {
        dates.remove(&(from, key));
        *memory -= heap_bytes;
    }
}
