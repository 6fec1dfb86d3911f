//! The history of one key above the horizon: effects with their stamps, in stamp order, each with the patch that
//! takes it back (Corrections 68). The newest value lives in the record; a history only rewinds it.

use datatypes::{Cell, Effect, Patch, apply, exchange};
use types::Reader;

/// One effect, applied.
#[derive(Debug)]
struct Entry<S> {
    stamp: S,
    /// The effect's binary form.
    effect: Box<[u8]>,
    /// Exchanged with the state after the effect, it gives the state before; and back.
    patch: Patch,
}

impl<S> Entry<S> {
    fn effect(&self) -> Option<Effect<'_>> {
        Effect::decode(&mut Reader::new(&self.effect)).ok()
    }

    fn apply(&mut self, cell: &mut Cell) {
        self.patch = match Effect::decode(&mut Reader::new(&self.effect)) {
            Ok(effect) => apply::<true>(cell, &effect),
            Err(_) => Patch::Nothing,
        };
    }
}

/// See the module. Entries are in ascending stamp order; the state passed in is always the newest one.
#[derive(Debug)]
pub(crate) struct History<S> {
    entries: Vec<Entry<S>>,
}

impl<S: Copy + Ord> History<S> {
    pub(crate) fn new() -> Self {
        History { entries: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn contains(&self, stamp: S) -> bool {
        self.entries.binary_search_by(|e| e.stamp.cmp(&stamp)).is_ok()
    }

    /// Puts an effect into its place: what is later is undone, and redone on top. Several effects of one
    /// transaction share a stamp and keep their order of arrival.
    pub(crate) fn insert(&mut self, cell: &mut Cell, stamp: S, effect: &Effect<'_>) {
        let place = self.entries.partition_point(|entry| entry.stamp <= stamp);
        self.entries[place..].iter_mut().rev().for_each(|entry| exchange(cell, &mut entry.patch));
        let mut bytes = Vec::new();
        effect.encode(&mut bytes);
        let patch = apply::<true>(cell, effect);
        self.entries.insert(place, Entry { stamp, effect: bytes.into(), patch });
        self.entries[place + 1..].iter_mut().for_each(|entry| entry.apply(cell));
    }

    /// Takes every effect with this stamp back, as if it had never been.
    pub(crate) fn remove(&mut self, cell: &mut Cell, stamp: S) -> bool {
        let first = self.entries.partition_point(|entry| entry.stamp < stamp);
        let end = self.entries.partition_point(|entry| entry.stamp <= stamp);
        if first == end {
            return false;
        }
        self.entries[first..].iter_mut().rev().for_each(|entry| exchange(cell, &mut entry.patch));
        self.entries.drain(first..end);
        self.entries[first..].iter_mut().for_each(|entry| entry.apply(cell));
        true
    }

    /// Forgets how to undo what is at or below the horizon: it is part of every snapshot now.
    pub(crate) fn fold(&mut self, horizon: S) {
        let folded = self.entries.partition_point(|entry| entry.stamp <= horizon);
        self.entries.drain(..folded);
    }

    /// Calls `read` with the state that consists of the visible effects, in stamp order, and then `own`.
    pub(crate) fn with_state<R>(
        &mut self,
        cell: &mut Cell,
        visible: impl Fn(&S) -> bool,
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        let hidden =
            self.entries.iter().position(|entry| !visible(&entry.stamp)).unwrap_or(self.entries.len());
        self.entries[hidden..].iter_mut().rev().for_each(|entry| exchange(cell, &mut entry.patch));
        let later =
            self.entries[hidden..].iter().filter(|entry| visible(&entry.stamp)).filter_map(Entry::effect);
        let mut patches: Vec<Patch> = later.map(|effect| apply::<true>(cell, &effect)).collect();
        patches.extend(own.iter().map(|effect| apply::<true>(cell, effect)));
        let answer = read(cell);
        patches.iter_mut().rev().for_each(|patch| exchange(cell, patch));
        self.entries[hidden..].iter_mut().for_each(|entry| exchange(cell, &mut entry.patch));
        answer
    }

    /// The stamps and effects above the horizon, in stamp order.
    pub(crate) fn effects(&self) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        self.entries.iter().filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// About how many bytes it occupies.
    pub(crate) fn memory(&self) -> usize {
        let entries: usize =
            self.entries.iter().map(|e| std::mem::size_of::<Entry<S>>() + 2 * e.effect.len()).sum();
        std::mem::size_of::<Self>() + entries
    }
}
