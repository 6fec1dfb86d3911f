//! Histories of whole writes, which most registers have: the state after each is what it says, whatever came before and
//! whoever observed it. So none is ever performed again. The state after one stands in the patch of the next: what arrives is
//! put between two, and a reader looks for the last that it sees.

use super::{Entry, History, effect_of};
use crate::Mutant;
use crate::store::Stamp;
use datatypes::merge::is_whole_write;
use datatypes::{Cell, Effect, Patch, Value, apply};
use std::borrow::Cow;

/// An effect is put below at most so many others as it arrives: they are moved in memory.
const NEAR: usize = 1024;

/// True for what a write may stand above without keeping anything of it.
fn is_plain(cell: &Cell) -> bool {
    matches!(cell.value, None | Some(Value::Register(_)))
}

impl<S: Stamp> History<S> {
    /// True if all are whole writes, and another one can be put into this place.
    pub(super) fn takes_whole(&self, place: usize) -> bool {
        let fits = |next: &Entry<S>| matches!(&next.patch, Patch::Cell(before) if is_plain(before));
        self.whole
            && !self.waits()
            && self.entries.len() - place <= NEAR
            && self.entries.get(place).is_none_or(fits)
    }

    /// Puts a whole write into its place.
    pub(super) fn insert_whole(&mut self, cell: &mut Cell, place: usize, mut entry: Entry<S>) {
        let Some(next) = self.entries.get_mut(place) else {
            let performed = self.perform_alone(cell, &effect_of(&entry));
            self.make_room();
            self.entries.push_back(entry);
            return self.put_done(place, performed);
        };
        let mut after = Cell::default();
        apply::<false>(&mut after, &effect_of(&entry));
        self.heap_bytes -= next.heap_bytes();
        entry.patch = std::mem::replace(&mut next.patch, Patch::Cell(after));
        self.heap_bytes += next.heap_bytes() + entry.heap_bytes();
        self.entries.insert(place, entry);
    }

    /// What a reader sees of whole writes, and with `stamped` ones and its `own` effects on top. `None` where that takes more
    /// than a look.
    pub(super) fn see_whole<'c>(
        &'c self,
        cell: &'c Cell,
        visible: &dyn Fn(&S) -> bool,
        stamped: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
    ) -> Option<Cow<'c, Cell>> {
        if self.mutants.has(Mutant::UndoLeftOut) {
            return None;
        }
        let mut seen = if let Some((_, last)) = stamped.last() {
            let all = stamped.iter().all(|(_, effect)| is_whole_write(effect));
            let mut written = Cell::default();
            apply::<false>(&mut written, last);
            Cow::Owned(Some(written).filter(|_| all)?)
        } else {
            let last = self.entries.iter().rposition(|entry| visible(&entry.stamp));
            match self.entries.get(last.map_or(0, |last| last + 1)).map(|next| &next.patch) {
                None => Cow::Borrowed(cell),
                Some(Patch::Cell(before)) => Cow::Borrowed(before),
                Some(_) => return None,
            }
        };
        if !own.is_empty() {
            Some(()).filter(|()| is_plain(&seen))?;
            own.iter().for_each(|effect| drop(self.perform_alone(seen.to_mut(), effect)));
        }
        Some(seen)
    }
}
