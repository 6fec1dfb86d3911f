//! The history of one key above the horizon: effects with their stamps, in stamp order, each with the patch that
//! takes it back (Corrections 68). The newest value lives in the record; a history only rewinds it.

use crate::CompactKey;
use datatypes::{Cell, Effect, Patch, apply, exchange};
use std::collections::VecDeque;
use types::Reader;

/// One effect, applied.
#[derive(Debug)]
struct Entry<S> {
    stamp: S,
    /// The effect's binary form; most are short enough to need no allocation.
    effect: CompactKey,
    /// Exchanged with the state after the effect, it gives the state before; and back.
    patch: Patch,
}

impl<S> Entry<S> {
    fn effect(&self) -> Option<Effect<'_>> {
        Effect::decode(&mut Reader::new(&self.effect)).ok()
    }

    /// Performs the effect on a state that differs from the one it was performed on before.
    fn apply_anew(&mut self, cell: &mut Cell) {
        self.patch = self.effect().map_or(Patch::Nothing, |effect| apply::<true>(cell, &effect));
    }

    /// The bytes it occupies beyond its own size.
    fn heap_bytes(&self) -> usize {
        self.effect.heap_bytes() + self.patch.memory()
    }
}

/// See the module. Entries are in ascending order of stamps; the state passed in is always the newest one.
#[derive(Debug)]
pub(crate) struct History<S> {
    entries: VecDeque<Entry<S>>,
    /// The sum of the entries' `heap_bytes`.
    heap_bytes: usize,
    /// A mistake that tests must catch: a read does not undo the first effect that it must not see.
    #[cfg(feature = "mutants")]
    pub(crate) leave_out_undo: bool,
}

impl<S: Copy + Ord> History<S> {
    /// An empty one with room for a single effect: most keys change once while a snapshot is open.
    pub(crate) fn new() -> Self {
        History {
            entries: VecDeque::with_capacity(1),
            heap_bytes: 0,
            #[cfg(feature = "mutants")]
            leave_out_undo: false,
        }
    }

    /// The greatest stamp, if there is an effect.
    pub(crate) fn last(&self) -> Option<S> {
        self.entries.back().map(|entry| entry.stamp)
    }

    pub(crate) fn contains(&self, stamp: S) -> bool {
        self.entries.binary_search_by(|entry| entry.stamp.cmp(&stamp)).is_ok()
    }

    /// The place of the first effect above a stamp.
    fn above(&self, stamp: S) -> usize {
        self.entries.partition_point(|entry| entry.stamp <= stamp)
    }

    /// Undoes the effects from this place on, latest first.
    fn undo_from(&mut self, place: usize, cell: &mut Cell) {
        for entry in self.entries.range_mut(place..).rev() {
            self.heap_bytes -= entry.heap_bytes();
            exchange(cell, &mut entry.patch);
        }
    }

    /// Redoes the effects from this place on; the state is the one they were performed on.
    fn redo_from(&mut self, place: usize, cell: &mut Cell) {
        for entry in self.entries.range_mut(place..) {
            exchange(cell, &mut entry.patch);
            self.heap_bytes += entry.heap_bytes();
        }
    }

    /// Performs the effects from this place on; the state is another one than before.
    fn apply_from(&mut self, place: usize, cell: &mut Cell) {
        for entry in self.entries.range_mut(place..) {
            entry.apply_anew(cell);
            self.heap_bytes += entry.heap_bytes();
        }
    }

    /// Puts an effect into its place: what is later is undone, and performed again on top. Several effects of one
    /// transaction share a stamp and keep their order of arrival. `encoded` is the effect's binary form.
    pub(crate) fn insert(&mut self, cell: &mut Cell, stamp: S, effect: &Effect<'_>, encoded: &[u8]) {
        let place = self.above(stamp);
        self.undo_from(place, cell);
        let patch = apply::<true>(cell, effect);
        let entry = Entry { stamp, effect: CompactKey::new(encoded), patch };
        self.heap_bytes += entry.heap_bytes();
        self.entries.insert(place, entry);
        self.apply_from(place + 1, cell);
    }

    /// Performs an effect below all that is here, for good.
    pub(crate) fn insert_below(&mut self, cell: &mut Cell, effect: &Effect<'_>) {
        self.undo_from(0, cell);
        apply::<false>(cell, effect);
        self.apply_from(0, cell);
    }

    /// Takes every effect with this stamp back, as if it had never been. False if there is none.
    pub(crate) fn remove(&mut self, cell: &mut Cell, stamp: S) -> bool {
        let first = self.entries.partition_point(|entry| entry.stamp < stamp);
        let end = self.above(stamp);
        if first == end {
            return false;
        }
        self.undo_from(first, cell);
        self.entries.drain(first..end);
        self.apply_from(first, cell);
        true
    }

    /// Forgets how to undo what is at or below the horizon: it is part of every snapshot now.
    pub(crate) fn fold(&mut self, horizon: S) {
        let folded = self.above(horizon);
        self.heap_bytes -= self.entries.drain(..folded).map(|entry| entry.heap_bytes()).sum::<usize>();
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Calls `read` with the state that consists of the visible effects, in stamp order, and then `own`.
    pub(crate) fn with_state<R>(
        &mut self,
        cell: &mut Cell,
        visible: impl Fn(&S) -> bool,
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        let hidden = self.entries.iter().position(|entry| !visible(&entry.stamp));
        let hidden = hidden.unwrap_or(self.entries.len());
        #[cfg(feature = "mutants")]
        let hidden = self.entries.len().min(hidden + usize::from(self.leave_out_undo));
        self.undo_from(hidden, cell);
        let shown = self.entries.range(hidden..).filter(|entry| visible(&entry.stamp));
        let mut patches: Vec<Patch> =
            shown.filter_map(Entry::effect).map(|effect| apply::<true>(cell, &effect)).collect();
        patches.extend(own.iter().map(|effect| apply::<true>(cell, effect)));
        let answer = read(cell);
        patches.iter_mut().rev().for_each(|patch| exchange(cell, patch));
        self.redo_from(hidden, cell);
        answer
    }

    /// The stamps and effects above the horizon, in stamp order.
    pub(crate) fn effects(&self, horizon: S) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let above = self.entries.range(self.above(horizon)..);
        above.filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// The bytes it occupies beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<S>>() + self.heap_bytes
    }

    /// Panics unless the entries are in order and their sum is right.
    pub(crate) fn assert_consistent(&self) {
        assert!(self.entries.iter().is_sorted_by_key(|entry| entry.stamp), "a history is in stamp order");
        let heap_bytes = self.entries.iter().map(Entry::heap_bytes).sum::<usize>();
        assert_eq!(self.heap_bytes, heap_bytes, "a history knows what its effects occupy");
    }
}
