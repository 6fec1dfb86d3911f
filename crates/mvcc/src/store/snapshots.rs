//! The part of the store that knows time: effects in stamp order, reads of any snapshot, the horizon.

use super::fold_queue::FoldQueue;
use super::lost::{list_folded, wants_resets};
use super::{Counted, Record, Stamp, Store};
use crate::history::{Bounds, Coded, DependencyVectorOf, FEW, History, Packed};
use crate::{CompactKey, Keyed};
use datatypes::merge::Trace;
use datatypes::{Cell, Effect, Patch, apply, exchange};
use std::borrow::Cow;
use types::{HashSeed, KeyHash};

/// How many due histories a commit folds: more than the one that it may add, so that the backlog shrinks.
const FOLDED_PER_COMMIT: usize = 2;

/// How many due histories a move of the horizon folds: some tenths of a millisecond.
const FOLDED_PER_MOVE: usize = 500;

/// So many effects of a history are folded in about the time that a short history takes.
const EFFECTS_PER_FOLD: usize = 8;

/// So many turns before its own a history's place in the index, the history, and what it forgets first are prefetched:
/// all of it was put away long ago.
const HINTS: [usize; 3] = [6, 4, 2];

/// The most memory that the store reuses to encode the next effect.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The history of one key.
#[derive(Debug)]
pub(super) struct KeyHistory<S> {
    pub(super) key: CompactKey,
    pub(super) hash: KeyHash,
    /// The stamp under which it stands in `due`, at most its greatest one: a hot key is folded once for many
    /// effects, not once an effect.
    pub(super) due: S,
    pub(super) era: u64,
    /// Where it stands in the store's `waiting`, if it does.
    pub(super) queued: Option<Option<S>>,
    pub(super) history: History<S>,
}

impl<S: Stamp> KeyHistory<S> {
    /// Something was done with it: if effects wait, it stands in the queue, no later than at the first of them. Returns how
    /// many steps that was.
    fn queue(&mut self, waiting: &mut FoldQueue<Option<S>>, shown: Option<(u16, S)>) -> u64 {
        if self.history.waits() {
            let at = self.history.shown_from(shown);
            if self.queued.is_none_or(|queued| at < queued) {
                self.queued = Some(at);
                waiting.push((at, self.hash));
            }
        }
        self.history.take_steps()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.key.heap_bytes() + self.history.heap_bytes()
    }
}

impl<S> Keyed for KeyHistory<S> {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn key_hash(&self, _: HashSeed) -> KeyHash {
        self.hash
    }
}

impl<S: Stamp> Store<S> {
    /// True while the store retains effects for snapshots.
    pub fn retains(&self) -> bool {
        self.horizon.is_some()
    }

    /// The horizon; see `set_horizon`.
    pub fn horizon(&self) -> Option<S> {
        self.horizon
    }

    /// Effects at or below `horizon` are part of every snapshot from now on and can no longer be undone; `None`
    /// when there is no snapshot at all, and then everything so far is part of every later snapshot. A horizon
    /// never goes back: snapshots below it get SNAPSHOTTOOOLD.
    pub fn set_horizon(&mut self, horizon: Option<S>) {
        debug_assert!(
            horizon.is_none() || self.horizon.is_none() || horizon >= self.horizon,
            "a horizon only rises"
        );
        debug_assert!(horizon.is_some() || self.packing.is_empty(), "a store that merges goes on retaining");
        if horizon.is_none() && self.horizon.is_some() {
            self.era += 1;
            let mut due = std::mem::replace(&mut self.due, FoldQueue::new()).into_vec();
            if due.len() > self.released.len() {
                std::mem::swap(&mut due, &mut self.released);
            }
            self.released.append(&mut due);
        }
        self.horizon = horizon;
        self.fold_some(FOLDED_PER_MOVE);
    }

    /// Folds some of the histories that no snapshot needs any more, which frees their memory and their tombstones: at most
    /// `limit`, and fewer where they are long. Says whether any are left.
    pub fn fold_some(&mut self, limit: usize) -> bool {
        let mut spent = 0;
        while spent < limit {
            spent += 1;
            if let Some((_, hash)) = self.released.pop() {
                self.release(hash);
            } else if self.is_due()
                && let Some((stamp, hash)) = self.due.pop()
            {
                self.prefetch_due();
                spent += self.fold(stamp, hash) / EFFECTS_PER_FOLD;
            } else if let Some(settled) = self.settled().filter(|settled| self.packing.is_due(*settled)) {
                self.fold_packed(settled);
            } else {
                break;
            }
        }
        let packed = self.settled().is_some_and(|settled| self.packing.is_due(settled));
        let left = !self.released.is_empty() || self.is_due() || packed;
        if !left {
            self.free_containers();
        }
        left
    }

    /// Brings what is folded next into the cache.
    fn prefetch_due(&self) {
        let [place, history, effects] = HINTS.map(|others| self.due.ahead(others));
        place.into_iter().for_each(|(_, hash)| self.histories.prefetch_bucket(hash));
        history.into_iter().for_each(|(_, hash)| self.histories.prefetch_record(hash));
        let key_history = effects.and_then(|(_, hash)| self.histories.candidate(hash));
        key_history.into_iter().for_each(|key_history| key_history.history.prefetch_first());
    }

    fn is_due(&self) -> bool {
        self.settled().is_some_and(|settled| self.due.peek().is_some_and(|(at, _)| at <= settled))
    }

    /// What is at or below is part of every snapshot, and observed by all that is yet to come.
    fn settled(&self) -> Option<S> {
        match self.dependencies {
            None => self.horizon,
            Some(_) => self.horizon.map(|horizon| horizon.min(self.stability_frontier)),
        }
    }

    /// From now on an effect resets only what it observed (Corrections 75); `dependencies` tells what that is. Only for a store
    /// that retains effects from its beginning on: without a horizon nothing tells who did what.
    pub fn merge_by_dependencies(&mut self, dependencies: DependencyVectorOf<S>) {
        self.dependencies = Some(dependencies);
    }

    /// In a store that merges, an effect that arrives below more than so many waits until somebody looks. By default 32.
    pub fn wait_beyond(&mut self, few: usize) {
        self.few = few;
    }

    /// In a store that merges: from now on readers are shown every effect of this group that they may see, and of the other
    /// groups nothing above a place, which only rises. What waits above it goes on waiting.
    pub fn show_to(&mut self, group: u16, upto: S) {
        let upto = self.shown.map_or(upto, |(_, shown)| shown.max(upto));
        self.shown = Some((group, upto));
    }

    /// The causal-stability frontier: every future effect has observed what is at or below. It only rises. The store
    /// retains what is above for merging beyond the horizon.
    pub fn set_stability_frontier(&mut self, stability_frontier: S) {
        if stability_frontier > self.stability_frontier {
            self.stability_frontier = stability_frontier;
            self.fold_some(FOLDED_PER_MOVE);
        }
    }

    /// Keeps an effect at or below the horizon that the key's state holds already, for effects that have not observed
    /// it: what a checkpoint or a peer tells beside the state. The effects of one transaction on one key share a
    /// stamp; a caller that may receive them twice checks [`Store::keeps`] first.
    pub fn keep(&mut self, hash: KeyHash, key: &[u8], stamp: S, effect: &Effect<'_>, trace: Option<Trace>) {
        if Some(stamp) > self.horizon {
            return;
        }
        self.unpack(hash, key);
        let mut encoded = Vec::new();
        effect.encode(&mut encoded);
        let coded = Coded::new(effect, &encoded);
        self.change_or_create(hash, key, stamp, |history, _| history.keep(stamp, &coded, trace));
        self.take_off(key, stamp, effect);
    }

    /// True if the store retains an effect of the key with this stamp.
    pub fn keeps(&self, hash: KeyHash, key: &[u8], stamp: S) -> bool {
        let mut packed = self.packed_effects(hash, key).into_iter();
        self.find_history(hash, key).is_some_and(|key_history| key_history.history.contains(stamp))
            || packed.any(|(other, _)| other == stamp)
    }

    /// The key's effects at or below the horizon that later ones may not have observed, in stamp order, each with what
    /// it did to a list.
    pub fn context(
        &self,
        hash: KeyHash,
        key: &[u8],
    ) -> impl Iterator<Item = (S, Effect<'_>, Option<Cow<'_, Trace>>)> {
        let key_history = self.horizon.and_then(|horizon| Some((horizon, self.find_history(hash, key)?)));
        let key_history = key_history
            .into_iter()
            .flat_map(|(horizon, key_history)| key_history.history.context(horizon, self.stability_frontier));
        let key_history = key_history.map(|(stamp, effect, trace)| (stamp, effect, trace.map(Cow::Borrowed)));
        let packed = self.packed_effects(hash, key);
        let traces = (!packed.is_empty()).then(|| self.unpacked(hash, key)).flatten();
        let traces = traces.into_iter().flat_map(|(history, _)| history.into_traces());
        let packed = packed.into_iter().zip(traces).filter(|((stamp, _), _)| Some(*stamp) <= self.horizon);
        key_history.chain(packed.map(|((stamp, effect), trace)| (stamp, effect, trace.map(Cow::Owned))))
    }

    /// The key's effects in stamp order, if it is packed.
    fn packed_effects(&self, hash: KeyHash, key: &[u8]) -> Vec<(S, Effect<'_>)> {
        self.find_packed(hash, key).map_or_else(Vec::new, Packed::effects)
    }

    /// Those of them above the horizon.
    fn packed_beyond(&self, hash: KeyHash, key: &[u8]) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let packed = self.packed_effects(hash, key).into_iter();
        packed.filter(|(stamp, _)| Some(*stamp) > self.horizon)
    }

    /// A long snapshot makes these grow; most of the time they are next to empty.
    fn free_containers(&mut self) {
        self.released = Vec::new();
    }

    /// Drops one history of an earlier era.
    fn release(&mut self, hash: KeyHash) {
        let era = self.era;
        let earlier = |history: &KeyHistory<S>| history.hash == hash && history.era != era;
        if let Some(key) = self.histories.find_mut(hash, earlier).map(|history| history.key.clone()) {
            self.drop_history(hash, &key);
        }
    }

    /// Drops the key's history if it is one of an earlier era.
    #[inline]
    pub(super) fn forget_released(&mut self, hash: KeyHash, key: &[u8]) {
        if self.released.is_empty() {
            return;
        }
        if self.histories.get(hash, key).is_some_and(|history| history.era != self.era) {
            self.drop_history(hash, key);
        }
    }

    /// Folds one history whose turn has come. Returns how many effects it had.
    pub(super) fn fold(&mut self, stamp: S, hash: KeyHash) -> usize {
        let (Some(horizon), era, stability_frontier) = (self.horizon, self.era, self.stability_frontier)
        else {
            return 0;
        };
        let turn =
            |history: &KeyHistory<S>| history.hash == hash && history.due == stamp && history.era == era;
        let Some(key_history) = self.histories.find_mut(hash, turn) else { return 0 };
        if key_history.history.waits() {
            let key = key_history.key.clone();
            self.change_history(hash, &key, |history, cell| history.apply_buffered_to_fold(cell, horizon));
        }
        let Some(key_history) = self.histories.find_mut(hash, turn) else { return 0 };
        let (before, len) = (key_history.heap_bytes(), key_history.history.len());
        let wants_resets = wants_resets(self.losses.as_ref(), key_history);
        let folded = key_history.history.fold(&key_history.key, horizon, stability_frontier, wants_resets);
        let after = key_history.heap_bytes();
        (self.memory, self.history_bytes) =
            (self.memory + after - before, self.history_bytes + after - before);
        self.steps += key_history.history.take_steps();
        if let Some(losses) = &mut self.losses {
            list_folded(losses, &key_history.key, folded, self.dependencies);
        }
        if !key_history.history.is_contested() {
            self.contested.remove(&(hash, key_history.key.clone()));
        }
        if let Some(last) = key_history.history.last() {
            key_history.due = last;
            self.due.push((last, hash));
        } else {
            let key = key_history.key.clone();
            self.drop_history(hash, &key);
        }
        len
    }

    /// Does what waits and may be shown ([`Store::show_to`]), key by key, so that all calls together take about as many
    /// steps as they allow; a long key is owed by the next ones. Says whether any keys are left to be looked at.
    pub fn refresh_some(&mut self, steps: u64) -> bool {
        let repaid = steps.min(self.owed);
        self.owed -= repaid;
        let until = self.steps.saturating_add(steps - repaid);
        while self.steps < until
            && self.is_wanted()
            && let Some((at, hash)) = self.waiting.pop()
        {
            self.steps += 1;
            // One that was forgotten, or stands earlier in the queue by now, is not found.
            let queued = |history: &KeyHistory<S>| history.hash == hash && history.queued == Some(at);
            let Some(key_history) = self.histories.find_mut(hash, queued) else { continue };
            key_history.queued = None;
            let (key, shown) = (key_history.key.clone(), self.shown);
            self.change_history(hash, &key, |history, cell| match shown {
                Some((group, upto)) => history.apply_buffered_visible(cell, group, upto),
                None => history.apply_buffered(cell, None),
            });
        }
        self.owed += self.steps.saturating_sub(until);
        self.is_wanted()
    }

    /// The first key of those that wait may be shown more than is done.
    fn is_wanted(&self) -> bool {
        let upto = self.shown.map(|(_, upto)| upto);
        self.waiting.peek().is_some_and(|(at, _)| upto.is_none() || at <= upto)
    }

    /// True if the key's newest state is not up to date: some effects wait to be done.
    pub fn waits(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.find_history(hash, key).is_some_and(|key_history| key_history.history.waits())
    }

    /// How many steps merging took so far: effects, elements and pieces of lists that were looked at.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes a history out: its memory is free, and a tombstone is not needed without it.
    fn drop_history(&mut self, hash: KeyHash, key: &[u8]) {
        let Some(history) = self.histories.remove(hash, key) else { return };
        self.memory -= history.heap_bytes();
        self.history_bytes -= history.heap_bytes();
        self.contested.remove(&(hash, history.key.clone()));
        if self.table.get(history.hash, &history.key).is_some_and(|record| record.cell.value.is_none()) {
            self.tombstones -= 1;
            self.buried -= size_of::<Record<S>>() + history.key.heap_bytes();
            self.forget(history.hash, &history.key);
        }
    }

    /// Applies an effect in its place among the key's effects, whatever the order of arrival, and keeps it for
    /// snapshots while there are any. A stamp may come several times: the effects of one transaction on one key.
    pub fn commit(&mut self, hash: KeyHash, key: &[u8], stamp: S, effect: &Effect<'_>) {
        if !self.released.is_empty() || self.is_due() {
            // Long histories of stores that merge are folded when their owner has time.
            if self.dependencies.is_none() {
                self.fold_some(FOLDED_PER_COMMIT);
            }
            self.forget_released(hash, key);
        }
        self.unpack(hash, key);
        match self.horizon {
            None => self.commit_last(hash, key, stamp, effect),
            Some(horizon) if stamp <= horizon => self.commit_below(hash, key, horizon, stamp, effect),
            Some(_) => self.commit_with_history(hash, key, stamp, effect),
        }
    }

    /// Applies an effect for good, to a key without a history.
    fn commit_last(&mut self, hash: KeyHash, key: &[u8], stamp: S, effect: &Effect<'_>) {
        self.change(hash, key, |cell, present| {
            apply::<false>(cell, effect);
            ((), Some(present.map_or(stamp, |present| present.max(stamp))))
        });
    }

    /// Applies an effect for good, under the retained effects.
    fn commit_below(&mut self, hash: KeyHash, key: &[u8], horizon: S, stamp: S, effect: &Effect<'_>) {
        let due = self.find_history(hash, key).map(|key_history| key_history.due);
        if let Some(due) = due.filter(|due| *due <= horizon) {
            // What it holds at or below the horizon came first.
            self.fold(due, hash);
        }
        if self.find_history(hash, key).is_none() {
            return self.commit_last(hash, key, stamp, effect);
        }
        let (stability_frontier, key_history) = (self.stability_frontier, self.find_history(hash, key));
        let wants_resets =
            key_history.is_some_and(|key_history| wants_resets(self.losses.as_ref(), key_history));
        let folded = self.change_history(hash, key, |history, cell| {
            history.apply_buffered_to_fold(cell, horizon);
            let folded = history.fold(key, horizon, stability_frontier, wants_resets);
            history.insert_below(cell, horizon, effect);
            folded
        });
        if let Some((folded, losses)) = folded.zip(self.losses.as_mut()) {
            list_folded(losses, key, folded, self.dependencies);
        }
    }

    /// Applies an effect above the horizon.
    fn commit_with_history(&mut self, hash: KeyHash, key: &[u8], stamp: S, effect: &Effect<'_>) {
        let mut encoded = std::mem::take(&mut self.scratch);
        encoded.clear();
        effect.encode(&mut encoded);
        let (coded, shown) = (Coded::new(effect, &encoded), self.shown);
        self.change_or_create(hash, key, stamp, |history, cell| history.insert(cell, stamp, &coded, shown));
        self.take_off(key, stamp, effect);
        if encoded.capacity() <= SCRATCH_BYTES {
            self.scratch = encoded;
        }
    }

    /// Lets `change` work on a key's history, which gets an effect with this stamp, and on its newest state.
    fn change_or_create(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        stamp: S,
        change: impl FnOnce(&mut History<S>, &mut Cell),
    ) {
        let record = match self.table.get_mut(hash, key) {
            Some(record) => record,
            None => {
                let record = Record { key: CompactKey::new(key), cell: Cell::ABSENT, stamp };
                self.memory += record.memory();
                self.tombstones += 1;
                self.buried += record.memory();
                self.table.insert_absent(hash, Box::new(record))
            }
        };
        let (era, dependencies, few, reports_losses) =
            (self.era, self.dependencies, self.few, self.losses.is_some());
        let (due, memory, all_history_bytes) = (&mut self.due, &mut self.memory, &mut self.history_bytes);
        let key_history = self.histories.get_or_insert_with(hash, key, || {
            due.push((stamp, hash));
            let history = History::new(dependencies, few, reports_losses);
            let key = CompactKey::new(key);
            let key_history = KeyHistory { key, hash, due: stamp, era, queued: None, history };
            *memory += key_history.heap_bytes();
            *all_history_bytes += key_history.heap_bytes();
            key_history
        });
        key_history.history.mutants = self.mutants;
        let (before, bytes_before) = (Counted::of(&record.cell), key_history.heap_bytes());
        let contested = key_history.history.is_contested();
        change(&mut key_history.history, &mut record.cell);
        if key_history.history.is_contested() && !contested {
            self.contested.insert((hash, key_history.key.clone()));
        }
        self.steps += key_history.queue(&mut self.waiting, self.shown);
        record.stamp = record.stamp.max(stamp);
        if dependencies.is_some()
            && (record.cell.value.is_none() || record.cell.is_expired(self.lapsed_until))
        {
            self.packing.note_dying(record.stamp, hash);
        }
        let (after, bytes_after) = (Counted::of(&record.cell), key_history.heap_bytes());
        self.count_histories(key, before, after, bytes_before, bytes_after);
    }

    fn count_histories(
        &mut self,
        key: &[u8],
        before: Counted,
        after: Counted,
        bytes_before: usize,
        bytes_after: usize,
    ) {
        self.memory = self.memory + bytes_after - bytes_before;
        self.history_bytes = self.history_bytes + bytes_after - bytes_before;
        self.count_tombstone(key, before, after);
        self.recount(key, before, after);
    }

    /// A key's record may have become a tombstone, or may be none any more.
    fn count_tombstone(&mut self, key: &[u8], before: Counted, after: Counted) {
        if before.absent == after.absent {
            return;
        }
        let bytes = size_of::<Record<S>>() + CompactKey::heap_bytes_of(key);
        if after.absent {
            (self.tombstones, self.buried) = (self.tombstones + 1, self.buried + bytes);
        } else {
            (self.tombstones, self.buried) = (self.tombstones - 1, self.buried - bytes);
        }
    }

    /// Lets `change` work on a key's history and newest state, if it has a history.
    fn change_history<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        change: impl FnOnce(&mut History<S>, &mut Cell) -> R,
    ) -> Option<R> {
        let key_history = self.histories.get_mut(hash, key)?;
        let record = self.table.get_mut(hash, key)?;
        let (before, bytes_before) = (Counted::of(&record.cell), key_history.heap_bytes());
        let answer = change(&mut key_history.history, &mut record.cell);
        self.steps += key_history.queue(&mut self.waiting, self.shown);
        if key_history.history.has_sight() && record.cell.value.is_none() {
            self.packing.note_dying(record.stamp, hash);
        }
        let (after, bytes_after) = (Counted::of(&record.cell), key_history.heap_bytes());
        self.count_histories(key, before, after, bytes_before, bytes_after);
        Some(answer)
    }

    /// Takes back every effect with this stamp on the key; false if there is none above the horizon.
    pub fn retract(&mut self, hash: KeyHash, key: &[u8], stamp: S) -> bool {
        if !self.has_effect(hash, key, stamp) {
            return false;
        }
        self.unpack(hash, key);
        self.change_history(hash, key, |history, cell| history.remove(cell, stamp));
        if let Some(losses) = &mut self.losses {
            losses.show(key, stamp);
        }
        let Some(key_history) = self.histories.get_mut(hash, key) else { return true };
        match key_history.history.last() {
            None => self.drop_history(hash, key),
            Some(last) if last < key_history.due => {
                key_history.due = last;
                self.due.push((last, hash));
            }
            Some(_) => {}
        }
        true
    }

    /// Swaps a patch with the newest state of a key that has no effect above the horizon, and gives the record this
    /// stamp: takes back an effect that [`Store::update`] applied, also for snapshots opened since.
    pub fn exchange(&mut self, hash: KeyHash, key: &[u8], patch: &mut Patch, stamp: S) {
        debug_assert!(self.effects(hash, key).next().is_none(), "later effects are taken back first");
        self.forget_released(hash, key);
        self.change(hash, key, |cell, _| {
            exchange(cell, patch);
            ((), Some(stamp))
        });
    }

    /// Calls `read` with the key's state as a reader sees it: the effects whose stamps are `visible`, in stamp
    /// order, and on top the reader's `own`. Effects at or below the horizon are always visible. Costs a look at
    /// each effect above the horizon, and the undoing and redoing of those from the first hidden one on.
    pub fn with_state<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        visible: impl Fn(&S) -> bool,
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        self.with_later(hash, key, visible, None, &[], own, read)
    }

    /// Like [`Store::with_state`], with effects between: `later` ones that are not here, in stamp order and above all
    /// that are visible. They merge with what they have not observed. With `bounds`, which say the same as `visible`, a long
    /// history costs no look at all of it.
    pub fn with_later<R>(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        visible: impl Fn(&S) -> bool,
        bounds: Option<Bounds<S>>,
        later: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        self.forget_released(hash, key);
        let horizon = self.horizon;
        let visible: &dyn Fn(&S) -> bool = &|stamp| Some(*stamp) <= horizon || visible(stamp);
        let raised = |stamp: S| horizon.map_or(stamp, |horizon| stamp.max(horizon));
        let bounds =
            bounds.map(|bounds| Bounds { own: raised(bounds.own), others: raised(bounds.others), ..bounds });
        if let Some((mut history, mut cell)) = self.unpacked(hash, key) {
            return history.with_state(&mut cell, visible, bounds, later, own, read);
        }
        let Some(record) = self.table.get_mut(hash, key) else {
            return History::new(None, FEW, false).with_state(
                &mut Cell::default(),
                visible,
                bounds,
                later,
                own,
                read,
            );
        };
        let before = Counted::of(&record.cell);
        let answer = match self.histories.get_mut(hash, key) {
            None if later.is_empty() && own.is_empty() => return read(&record.cell),
            None => {
                History::new(None, FEW, false).with_state(&mut record.cell, visible, bounds, later, own, read)
            }
            Some(key_history) => {
                let bytes_before = key_history.heap_bytes();
                let answer =
                    key_history.history.with_state(&mut record.cell, visible, bounds, later, own, read);
                self.steps += key_history.queue(&mut self.waiting, self.shown);
                let bytes = key_history.heap_bytes();
                self.memory = self.memory + bytes - bytes_before;
                self.history_bytes = self.history_bytes + bytes - bytes_before;
                answer
            }
        };
        // Undone and redone, a collection may occupy more or less than before; what waits to be done may be all there is.
        let after = Counted::of(&record.cell);
        self.count_tombstone(key, before, after);
        self.recount(key, before, after);
        answer
    }

    pub(super) fn find_history(&self, hash: KeyHash, key: &[u8]) -> Option<&KeyHistory<S>> {
        self.histories.get(hash, key).filter(|history| history.era == self.era)
    }

    /// The key's effects above the horizon, in stamp order.
    pub fn effects(&self, hash: KeyHash, key: &[u8]) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let key_history = self.horizon.and_then(|horizon| Some((horizon, self.find_history(hash, key)?)));
        let key_history =
            key_history.into_iter().flat_map(|(horizon, key_history)| key_history.history.effects(horizon));
        key_history.chain(self.packed_beyond(hash, key))
    }

    /// Those of them that a reader may not see, and maybe others; those of its own group that it sees up to its bounds are
    /// not looked at. Without bounds all of them.
    pub fn effects_beyond(
        &self,
        hash: KeyHash,
        key: &[u8],
        bounds: Option<Bounds<S>>,
    ) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let key_history = self.horizon.and_then(|horizon| Some((horizon, self.find_history(hash, key)?)));
        let key_history = key_history
            .into_iter()
            .flat_map(move |(horizon, key_history)| key_history.history.effects_beyond(horizon, bounds));
        key_history.chain(self.packed_beyond(hash, key))
    }

    /// The stamps of these, in order; the effects are not looked at.
    pub fn stamps_beyond(
        &self,
        hash: KeyHash,
        key: &[u8],
        bounds: Option<Bounds<S>>,
    ) -> impl DoubleEndedIterator<Item = S> {
        let key_history = self.horizon.and_then(|horizon| Some((horizon, self.find_history(hash, key)?)));
        let key_history = key_history
            .into_iter()
            .flat_map(move |(horizon, key_history)| key_history.history.stamps_beyond(horizon, bounds));
        key_history.chain(self.packed_beyond(hash, key).map(|(stamp, _)| stamp))
    }

    /// In a store that merges: stamps of the key's effects, of each group at least its last one above the horizon.
    pub fn last_of_groups(&self, hash: KeyHash, key: &[u8]) -> impl Iterator<Item = S> {
        let key_history = self
            .find_history(hash, key)
            .into_iter()
            .flat_map(|key_history| key_history.history.last_of_groups());
        key_history.chain(self.packed_effects(hash, key).into_iter().map(|(stamp, _)| stamp))
    }

    /// True if the key is a register whose effects above the horizon all say what its state is: the last one that a reader
    /// sees is the state, whoever observed it.
    pub fn is_written_whole(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.find_history(hash, key).is_none_or(|key_history| key_history.history.is_whole())
            && self.find_packed(hash, key).is_none_or(Packed::is_whole::<S>)
    }

    /// True if the key has an effect with this stamp above the horizon.
    pub fn has_effect(&self, hash: KeyHash, key: &[u8], stamp: S) -> bool {
        self.horizon.is_some_and(|horizon| stamp > horizon) && self.keeps(hash, key, stamp)
    }

    /// Puts a key as a checkpoint holds it, unless what is here is as new. Snapshots that do not reach up to
    /// `stamp` do not see it.
    pub fn restore(&mut self, key: &[u8], stamp: S, cell: Cell) {
        let hash = self.hash(key);
        self.unpack(hash, key);
        if self.table.get(hash, key).is_some_and(|record| record.stamp >= stamp) {
            return;
        }
        if self.retains() {
            let mut bytes = Vec::new();
            cell.encode(&mut bytes);
            let effect = Effect::Key(datatypes::key::Effect::Restore(bytes.into()));
            return self.commit(hash, key, stamp, &effect);
        }
        self.update(hash, key, |held| {
            *held = cell;
            ((), Some(stamp))
        });
    }
}
