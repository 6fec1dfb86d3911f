//! The history of one key above the horizon: effects with their stamps, in stamp order, each with the patch that
//! takes it back (Corrections 68). The newest value lives in the record; a history only rewinds it.
//!
//! Where effects need not have observed all before them, one that arrives below many others waits: the record's value is
//! then what the effects make that are *done*, some view of the key. A read brings it to what it shall see, from the first
//! effect on that differs, and leaves it there if that was long; [`History::refresh`] brings it to the newest. So where two
//! halves of a history meet, what arrives costs its place, and doing it once whoever looks.

mod losing;
mod replaying;

use crate::CompactKey;
use crate::losses::LostWrite;
use datatypes::merge::{Performed, Trace, perform_plainly};
use datatypes::{Cell, Effect, Kind, Patch, apply, exchange, key};
use std::collections::VecDeque;
use types::Reader;

/// What an effect observed of those before it, in a model where it need not have observed all: everything of its own
/// group, and everything of the others up to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight<S> {
    /// Whose effect it is: effects of one group observe one another in their order.
    pub group: u16,
    /// Up to where it observed the others.
    pub upto: S,
}

impl<S: Ord> Sight<S> {
    fn shows(&self, group: u16, stamp: &S) -> bool {
        group == self.group || *stamp <= self.upto
    }
}

/// An effect that arrives below at most so many is done at once; so many are taken back for a read and done again.
pub(crate) const FEW: usize = 32;

/// Tells what an effect observed by its stamp.
pub type SightOf<S> = fn(&S) -> Sight<S>;

/// One effect, applied.
#[derive(Debug)]
struct Entry<S> {
    stamp: S,
    /// The effect's binary form; most are short enough to need no allocation.
    effect: CompactKey,
    /// The type that the effect says the key has.
    kind: Option<Kind>,
    /// The state holds it.
    done: bool,
    /// Exchanged with the state after the effect, it gives the state before; and back.
    patch: Patch,
    /// What it did to a list, where later effects may not have observed it.
    trace: Option<Box<Trace>>,
}

impl<S> Entry<S> {
    fn effect(&self) -> Option<Effect<'_>> {
        Effect::decode(&mut Reader::new(&self.effect)).ok()
    }

    /// The bytes it occupies beyond its own size.
    fn heap_bytes(&self) -> usize {
        let of_trace = |trace: &Trace| size_of::<Trace>() + trace.steps.len() * size_of::<(u64, u64, u64)>();
        self.effect.heap_bytes() + self.patch.memory() + self.trace.as_deref().map_or(0, of_trace)
    }
}

/// What effects that are forgotten leave to be told.
pub(crate) struct Folded<S> {
    /// What they have lost.
    pub(crate) losses: Vec<LostWrite<S>>,
    /// The names of the losses that they settled.
    pub(crate) settled: Vec<Vec<u8>>,
}

/// See the module. Entries are in ascending order of stamps; the state passed in is always what those make that are done.
#[derive(Debug)]
pub(crate) struct History<S> {
    entries: VecDeque<Entry<S>>,
    /// The sum of the entries' `heap_bytes`.
    heap_bytes: usize,
    /// How many effects are not done.
    waiting: usize,
    /// What merging took since somebody asked.
    steps: u64,
    /// How effects tell what they observed; without it, each observed all before it.
    sight: Option<SightOf<S>>,
    /// The greatest stamp that each group ever had here.
    greatest: Vec<(u16, S)>,
    /// See [`FEW`].
    few: usize,
    /// True if somebody wants to know what effects cost concurrent ones.
    tells_losses: bool,
    /// Some effect here may not have observed an earlier one; only noted if losses are told.
    contested: bool,
    /// A mistake that tests must catch: a read does not undo the first effect that it must not see.
    #[cfg(feature = "mutants")]
    pub(crate) leave_out_undo: bool,
}

impl<S: Copy + Ord> History<S> {
    /// An empty one with room for a single effect: most keys change once while a snapshot is open.
    pub(crate) fn new(sight: Option<SightOf<S>>, few: usize, tells_losses: bool) -> Self {
        History {
            entries: VecDeque::with_capacity(1),
            heap_bytes: 0,
            waiting: 0,
            steps: 0,
            sight,
            greatest: Vec::new(),
            few,
            tells_losses,
            contested: false,
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

    /// The place of the first effect above a stamp. Most effects come last, and most horizons are below all effects:
    /// then the others are not looked at, each of which may be a miss of the cache.
    fn above(&self, stamp: S) -> usize {
        match (self.entries.front(), self.entries.back()) {
            (_, Some(last)) if last.stamp <= stamp => self.entries.len(),
            (Some(first), _) if first.stamp > stamp => 0,
            _ => self.entries.partition_point(|entry| entry.stamp <= stamp),
        }
    }

    /// Asks for the place in memory where the next effect will most likely be put.
    pub(crate) fn prefetch_last(&self) {
        if let Some(last) = self.entries.back() {
            crate::table::prefetch_value(last);
        }
    }

    /// Some effects wait to be done: the state is not the newest one.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// How many steps merging took since this was asked last: effects, elements and pieces of lists that were looked at.
    pub(crate) fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps)
    }

    /// Undoes the effects from this place on, latest first.
    fn undo_from(&mut self, place: usize, cell: &mut Cell) {
        for entry in self.entries.range_mut(place..).rev() {
            self.heap_bytes -= entry.heap_bytes();
            if entry.done {
                exchange(cell, &mut entry.patch);
            }
        }
    }

    /// Redoes the effects from this place on; the state is the one they were performed on.
    fn redo_from(&mut self, place: usize, cell: &mut Cell) {
        for entry in self.entries.range_mut(place..) {
            if entry.done {
                exchange(cell, &mut entry.patch);
            }
            self.heap_bytes += entry.heap_bytes();
        }
    }

    /// Performs the effects from this place on, which are undone, as far as they are to be shown; the state is another
    /// one than before.
    fn apply_from(&mut self, place: usize, cell: &mut Cell, shown: impl Fn(&S) -> bool) {
        let mut place = place;
        while place < self.entries.len() {
            let stamp = self.entries[place].stamp;
            let done = self.sight.is_none() || shown(&stamp);
            let performed = match self.sight {
                _ if !done => Performed { patch: Patch::Nothing, trace: None },
                Some(sight) if self.may_hide_some(sight(&stamp)) => break,
                _ => self.perform_alone(cell, &effect_of(&self.entries[place])),
            };
            self.put_done(place, done.then_some(performed));
            place += 1;
        }
        if let Some(sight) = self.sight.filter(|_| place < self.entries.len()) {
            let (performed, steps) = self.replay(sight, place, cell, &shown, &[]);
            self.steps += steps;
            let mut performed = performed.into_iter();
            for place in place..self.entries.len() {
                let done = shown(&self.entries[place].stamp);
                self.put_done(place, if done { performed.next() } else { None });
            }
        }
    }

    /// Notes that an effect was performed, or that it waits.
    fn put_done(&mut self, place: usize, performed: Option<Performed>) {
        let entry = &mut self.entries[place];
        self.waiting = self.waiting + usize::from(entry.done) - usize::from(performed.is_some());
        entry.done = performed.is_some();
        let performed = performed.unwrap_or(Performed { patch: Patch::Nothing, trace: None });
        (entry.patch, entry.trace) = (performed.patch, performed.trace.map(Box::new));
        self.heap_bytes += entry.heap_bytes();
    }

    /// Does all effects that wait.
    pub(crate) fn refresh(&mut self, cell: &mut Cell) {
        if self.waits() {
            self.show(cell, |_| true);
        }
    }

    /// Brings the state to what some effects make.
    fn show(&mut self, cell: &mut Cell, shown: impl Fn(&S) -> bool) {
        let first = self.entries.iter().position(|entry| entry.done != shown(&entry.stamp));
        if let Some(first) = first {
            self.undo_from(first, cell);
            self.apply_from(first, cell, shown);
        }
    }

    /// Performs an effect that has observed all that it meets.
    fn perform_alone(&self, cell: &mut Cell, effect: &Effect<'_>) -> Performed {
        match self.sight {
            None => Performed { patch: apply::<true>(cell, effect), trace: None },
            Some(_) => perform_plainly(cell, effect),
        }
    }

    /// True if an effect that observed so much may not have observed all others.
    fn may_hide_some(&self, seen: Sight<S>) -> bool {
        self.greatest.iter().any(|(group, stamp)| !seen.shows(*group, stamp))
    }

    fn note_greatest(&mut self, stamp: S) {
        let Some(sight) = self.sight else { return };
        let group = sight(&stamp).group;
        match self.greatest.iter_mut().find(|(known, _)| *known == group) {
            Some((_, greatest)) => *greatest = stamp.max(*greatest),
            None => self.greatest.push((group, stamp)),
        }
    }

    /// Puts an effect into its place. Below few others it is done at once: what is later is undone, and performed again on
    /// top; below many it waits. Several effects of one transaction share a stamp and keep their order of arrival.
    /// `encoded` is the effect's binary form, `kind` the type that it says the key has.
    pub(crate) fn insert(&mut self, cell: &mut Cell, stamp: S, encoded: &[u8], kind: Option<Kind>) {
        let place = self.above(stamp);
        self.note_greatest(stamp);
        let effect = CompactKey::new(encoded);
        let entry = Entry { stamp, effect, kind, done: false, patch: Patch::Nothing, trace: None };
        let at_once = self.sight.is_none_or(|sight| {
            let is_short = self.entries.len() <= self.few || !self.may_hide_some(sight(&stamp));
            !self.waits() && self.entries.len() - place <= self.few && is_short
        });
        if at_once {
            self.undo_from(place, cell);
        } else {
            self.heap_bytes += entry.heap_bytes();
        }
        self.waiting += 1;
        self.entries.insert(place, entry);
        if at_once {
            self.apply_from(place, cell, |_| true);
        }
        self.note_contest(place);
    }

    /// How many effects there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps an effect that the state holds already, for those that have not observed it.
    pub(crate) fn keep(&mut self, stamp: S, encoded: &[u8], kind: Option<Kind>, trace: Option<Trace>) {
        let place = self.above(stamp);
        self.note_greatest(stamp);
        let (effect, trace) = (CompactKey::new(encoded), trace.map(Box::new));
        let entry = Entry { stamp, effect, kind, done: true, patch: Patch::Nothing, trace };
        self.heap_bytes += entry.heap_bytes();
        self.entries.insert(place, entry);
        self.note_contest(place);
    }

    /// Performs an effect below all that are above the horizon, for good.
    pub(crate) fn insert_below(&mut self, cell: &mut Cell, horizon: S, effect: &Effect<'_>) {
        let place = self.above(horizon);
        self.undo_from(place, cell);
        apply::<false>(cell, effect);
        self.apply_from(place, cell, |_| true);
    }

    /// Takes every effect with this stamp back, as if it had never been. False if there is none.
    pub(crate) fn remove(&mut self, cell: &mut Cell, stamp: S) -> bool {
        let first = self.entries.partition_point(|entry| entry.stamp < stamp);
        let end = self.above(stamp);
        if first == end {
            return false;
        }
        self.undo_from(first, cell);
        self.waiting -= self.entries.drain(first..end).filter(|entry| !entry.done).count();
        self.apply_from(first, cell, |_| true);
        true
    }

    /// Forgets how to undo what is at or below the horizon: it is part of every snapshot now. Who did what is kept
    /// while an effect that has not observed it is here, or may come: what is at or below `watershed` all that come have
    /// observed. Returns what the effects that are forgotten have lost, which nothing that comes can change, and settled.
    /// Nothing waits any more.
    pub(crate) fn fold(&mut self, key: &[u8], horizon: S, watershed: S) -> Folded<S> {
        debug_assert!(!self.waits(), "what is forgotten is part of the state");
        // What is to be forgotten lies in front, and is looked at anyway.
        let above = self.entries.iter().take_while(|entry| entry.stamp <= horizon).count();
        let needed = if self.sight.is_some() { self.needed(horizon, watershed) } else { above };
        let (losses, steps) = self.losses(key, needed);
        self.steps += steps;
        let settled = self.settled(needed);
        self.heap_bytes -= self.entries.range(..needed).map(Entry::heap_bytes).sum::<usize>();
        self.entries.drain(..needed);
        for entry in self.entries.range_mut(..above - needed) {
            self.heap_bytes -= entry.heap_bytes();
            entry.patch = Patch::Nothing;
            self.heap_bytes += entry.heap_bytes();
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * self.entries.len());
        }
        if self.contested {
            self.find_contest();
        }
        Folded { losses, settled }
    }

    /// The effects at or below the horizon that are still needed, in stamp order; all that are here, if what they have
    /// lost is not told yet.
    pub(crate) fn context(
        &self,
        horizon: S,
        watershed: S,
    ) -> impl Iterator<Item = (S, Effect<'_>, Option<&Trace>)> {
        let needed = if self.contested { 0 } else { self.needed(horizon, watershed) };
        let kept = self.entries.range(needed..self.above(horizon));
        kept.filter_map(|entry| Some((entry.stamp, entry.effect()?, entry.trace.as_deref())))
    }

    /// Calls `read` with the state that consists of the visible effects, in stamp order, then of some with later
    /// `stamped` ones, and then `own`.
    pub(crate) fn with_state<R>(
        &mut self,
        cell: &mut Cell,
        visible: impl Fn(&S) -> bool,
        stamped: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        let hidden = self.entries.iter().position(|entry| entry.done != visible(&entry.stamp));
        let hidden = hidden.unwrap_or(self.entries.len());
        if self.sight.is_some() && (self.waits() || self.entries.len() - hidden > self.few) {
            self.undo_from(hidden, cell);
            self.apply_from(hidden, cell, &visible);
            return self.with_on_top(self.entries.len(), cell, &visible, stamped, own, read);
        }
        #[cfg(feature = "mutants")]
        let hidden = self.entries.len().min(hidden + usize::from(self.leave_out_undo));
        self.undo_from(hidden, cell);
        let answer = self.with_on_top(hidden, cell, &visible, stamped, own, read);
        self.redo_from(hidden, cell);
        answer
    }

    /// Calls `read` with the state, which the effects before a place make, and on top the visible ones from there on, the
    /// stamped ones, and then `own`.
    fn with_on_top<R>(
        &mut self,
        from: usize,
        cell: &mut Cell,
        visible: &impl Fn(&S) -> bool,
        stamped: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        let mut patches: Vec<Patch> = match self.sight {
            Some(sight) => {
                let (performed, steps) = self.replay(sight, from, cell, visible, stamped);
                self.steps += steps;
                performed.into_iter().map(|performed| performed.patch).collect()
            }
            None => {
                let shown = self.entries.range(from..).filter(|entry| visible(&entry.stamp));
                let shown = shown.filter_map(Entry::effect);
                let mut patches: Vec<Patch> = shown.map(|effect| apply::<true>(cell, &effect)).collect();
                patches.extend(stamped.iter().map(|(_, effect)| apply::<true>(cell, effect)));
                patches
            }
        };
        patches.extend(own.iter().map(|effect| self.perform_alone(cell, effect).patch));
        let answer = read(cell);
        patches.iter_mut().rev().for_each(|patch| exchange(cell, patch));
        answer
    }

    /// The stamps and effects above the horizon, in stamp order.
    pub(crate) fn effects(&self, horizon: S) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let above = self.entries.range(self.above(horizon)..);
        above.filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// Those of them whose stamps count.
    pub(crate) fn effects_that(
        &self,
        horizon: S,
        count: impl Fn(&S) -> bool,
    ) -> impl Iterator<Item = (S, Effect<'_>)> {
        let above = self.entries.range(self.above(horizon)..).filter(move |entry| count(&entry.stamp));
        above.filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// The stamps above the horizon, in order.
    pub(crate) fn stamps(&self, horizon: S) -> impl DoubleEndedIterator<Item = S> {
        self.entries.range(self.above(horizon)..).map(|entry| entry.stamp)
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
        let waiting = self.entries.iter().filter(|entry| !entry.done).count();
        assert_eq!(self.waiting, waiting, "a history knows which effects wait");
    }
}

/// An entry's effect; its binary form was written here.
fn effect_of<S>(entry: &Entry<S>) -> Effect<'_> {
    let effect = entry.effect();
    debug_assert!(effect.is_some(), "a history holds effects");
    effect.unwrap_or(Effect::Key(key::Effect::SetDeadline(0)))
}
