//! The history of one key above the horizon: effects with their stamps, in stamp order, each with the patch that
//! takes it back (Corrections 68). The newest value lives in the record; a history only rewinds it.
//!
//! Where effects need not have observed all before them, one that arrives below many others waits, apart from those that
//! are done: the record's value is what the effects make that are *done*. What waits is put among them, all at once, when
//! a read must show it, or when [`History::bring`] is told to. It never goes back: a read of less than what is done takes
//! back and does again. So where two halves of a history meet, what arrives costs its place, and doing it once.

mod coming;
mod losing;
mod packing;
mod replaying;
mod whole;

use crate::losses::LostWrite;
use crate::store::Stamp;
use crate::{CompactKey, Mutant, Mutants};
use coming::{Coming, InOrder};
use datatypes::merge::{
    Performed, Trace, is_whole_write, lasting_kind, may_be_hidden, may_hide_later, perform_plainly,
    replaces_element,
};
use datatypes::{Cell, Effect, Kind, Patch, apply, exchange, key};
use std::collections::VecDeque;
use types::Reader;

pub(crate) use packing::Packed;

/// What an effect observed of those before it, in a model where it need not have observed all: everything of its own
/// group, and everything of the others up to a place; where a stamp says more, up to a place for each other group
/// ([`Stamp::is_observed`]), of which `upto` is not above the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight<S> {
    /// Whose effect it is: effects of one group observe one another in their order.
    pub group: u16,
    /// Up to where it observed the others.
    pub upto: S,
}

impl<S: Stamp> Sight<S> {
    pub(crate) fn shows(&self, group: u16, stamp: &S) -> bool {
        group == self.group || stamp.is_observed(group, &self.upto)
    }
}

/// What a reader sees, in a few words, so that not every effect must be asked: everything of all groups at or below
/// `others`; above it nothing of any group but its own; and of that one everything at or below `own` that observed no more
/// than `others` of the other groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<S> {
    /// The reader's own group.
    pub group: u16,
    /// Up to where it sees its own group; at least `others`.
    pub own: S,
    /// Up to where it sees the other groups.
    pub others: S,
}

/// An effect that arrives below at most so many is done at once; so many are taken back for a read and done again.
pub(crate) const FEW: usize = 32;

/// Histories shorter than that have no spare room.
const SHORT: usize = 4;

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
    /// See [`is_whole_write`].
    whole: bool,
    /// See [`may_be_hidden`] and [`may_hide_later`].
    hidden: bool,
    hides: bool,
    /// Exchanged with the state after the effect, it gives the state before; and back.
    patch: Patch,
    /// What it did to a list, where later effects may not have observed it.
    trace: Option<Box<Trace>>,
}

impl<S> Entry<S> {
    /// An effect that is not done.
    fn new(stamp: S, coded: &Coded<'_>) -> Self {
        let Coded { bytes, kind, whole, hidden, hides, .. } = *coded;
        let effect = CompactKey::new(bytes);
        Entry { stamp, effect, kind, whole, hidden, hides, patch: Patch::Nothing, trace: None }
    }

    fn effect(&self) -> Option<Effect<'_>> {
        Effect::decode(&mut Reader::new(&self.effect)).ok()
    }

    /// The bytes it occupies beyond its own size.
    fn heap_bytes(&self) -> usize {
        let of_trace = |trace: &Trace| size_of::<Trace>() + trace.steps.len() * size_of::<(u64, u64, u64)>();
        self.effect.heap_bytes() + self.patch.memory() + self.trace.as_deref().map_or(0, of_trace)
    }
}

/// An effect in its binary form, and what need not be decoded to be known of it.
#[derive(Clone, Copy)]
pub(crate) struct Coded<'e> {
    pub(crate) bytes: &'e [u8],
    /// The type that it says the key has.
    kind: Option<Kind>,
    /// See [`is_whole_write`].
    whole: bool,
    /// See [`may_be_hidden`], [`may_hide_later`] and [`replaces_element`].
    hidden: bool,
    hides: bool,
    replaces: bool,
}

impl<'e> Coded<'e> {
    pub(crate) fn new(effect: &Effect<'_>, bytes: &'e [u8]) -> Self {
        Coded {
            bytes,
            kind: lasting_kind(effect),
            whole: is_whole_write(effect),
            hidden: may_be_hidden(effect),
            hides: may_hide_later(effect),
            replaces: replaces_element(effect),
        }
    }
}

/// What effects that are forgotten leave to be told.
pub(crate) struct Folded<S> {
    /// What they have lost.
    pub(crate) losses: Vec<LostWrite<S>>,
    /// The names of the losses that they settled.
    pub(crate) settled: Vec<Vec<u8>>,
    /// The stamps of those that replaced or removed the key, if somebody wants to know.
    pub(crate) resets: Vec<S>,
}

/// See the module. Entries are in ascending order of stamps; the state passed in is always what they make.
#[derive(Debug)]
pub(crate) struct History<S> {
    /// What is done.
    entries: VecDeque<Entry<S>>,
    /// What waits.
    coming: Coming<S>,
    /// The sum of the `heap_bytes` of all that is here.
    heap_bytes: usize,
    /// What merging took since somebody asked.
    steps: u64,
    /// How effects tell what they observed; without it, each observed all before it.
    sight: Option<SightOf<S>>,
    /// The greatest stamp of each group that was ever done here.
    greatest: Vec<(u16, S)>,
    /// The most that an effect of each group that was ever here observed of the others.
    observed: Vec<(u16, S)>,
    /// A type that effects say, and whether others say another one.
    kind: Option<Kind>,
    mixes_types: bool,
    /// All effects here are whole writes: see `whole`.
    whole: bool,
    /// See [`FEW`].
    few: usize,
    /// True if somebody wants to know what effects cost concurrent ones.
    tells_losses: bool,
    /// Some effect here may not have observed an earlier one; only noted if losses are told.
    contested: bool,
    /// What the effects at or below have lost is told; those that are still here are kept for later ones.
    told: Option<S>,
    /// Some effect that came since all were forgotten replaces an element of a list.
    replaces: bool,
    /// How many of what is done, from the first on, cannot be undone any more.
    held: usize,
    pub(crate) mutants: Mutants,
}

impl<S: Stamp> History<S> {
    /// An empty one with room for a single effect: most keys change once while a snapshot is open.
    pub(crate) fn new(sight: Option<SightOf<S>>, few: usize, tells_losses: bool) -> Self {
        History {
            entries: VecDeque::with_capacity(1),
            coming: Coming::default(),
            heap_bytes: 0,
            steps: 0,
            sight,
            greatest: Vec::new(),
            observed: Vec::new(),
            kind: None,
            mixes_types: false,
            whole: true,
            few,
            tells_losses,
            contested: false,
            told: None,
            replaces: false,
            held: 0,
            mutants: Mutants::NONE,
        }
    }

    /// True if effects need not have observed all before them.
    pub(crate) fn has_sight(&self) -> bool {
        self.sight.is_some()
    }

    /// The greatest stamp, if there is an effect.
    pub(crate) fn last(&self) -> Option<S> {
        self.entries.back().map(|entry| entry.stamp).max(self.coming.last())
    }

    pub(crate) fn contains(&self, stamp: S) -> bool {
        self.coming.contains(stamp) || self.entries.binary_search_by(|entry| entry.stamp.cmp(&stamp)).is_ok()
    }

    /// Everything that is here, in order.
    fn all(&self) -> InOrder<'_, S> {
        InOrder::new(self.entries.iter(), self.coming.iter())
    }

    /// Everything that is here above a stamp, in order.
    fn all_above(&self, stamp: S) -> InOrder<'_, S> {
        InOrder::new(self.entries.range(self.above(stamp)..), self.coming.iter_above(stamp))
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

    /// Asks for what is forgotten first.
    pub(crate) fn prefetch_first(&self) {
        if let Some(first) = self.entries.front() {
            crate::table::prefetch_value(first);
        }
    }

    /// Some effects wait to be done: the state is not the newest one.
    pub(crate) fn waits(&self) -> bool {
        !self.coming.is_empty()
    }

    /// How many steps merging took since this was asked last: effects, elements and pieces of lists that were looked at.
    pub(crate) fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps)
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

    /// Performs the effects from this place on, which are undone; the state is another one than before.
    fn apply_from(&mut self, place: usize, cell: &mut Cell) {
        let mut place = place;
        while place < self.entries.len() {
            let stamp = self.entries[place].stamp;
            if !self.whole && self.sight.is_some_and(|sight| self.may_hide_some(sight(&stamp))) {
                break;
            }
            let performed = self.perform_alone(cell, &effect_of(&self.entries[place]));
            self.put_done(place, performed);
            place += 1;
        }
        if let Some(sight) = self.sight.filter(|_| place < self.entries.len()) {
            let (performed, steps) = self.replay(sight, place, cell, &|_| true, &[]);
            self.steps += steps;
            for (place, performed) in (place..).zip(performed) {
                self.put_done(place, performed);
            }
        }
    }

    /// Notes that an effect was performed.
    fn put_done(&mut self, place: usize, performed: Performed) {
        let entry = &mut self.entries[place];
        (entry.patch, entry.trace) = (performed.patch, performed.trace.map(Box::new));
        self.heap_bytes += entry.heap_bytes();
    }

    /// Does what waits at or below a stamp; without one, all that waits.
    pub(crate) fn bring(&mut self, cell: &mut Cell, upto: Option<S>) {
        self.bring_first(cell, upto.map_or(self.coming.len(), |upto| self.coming.count(upto)));
    }

    /// Does what must not wait when effects up to the horizon are forgotten: those; and all, if it matters to what is lost
    /// which element of a list each meets.
    pub(crate) fn bring_to_fold(&mut self, cell: &mut Cell, horizon: S) {
        let needs_all = self.contested && self.replaces;
        self.bring(cell, (!needs_all).then_some(horizon));
    }

    /// Does the first few effects that wait, and those of `group` whatever their place.
    pub(crate) fn bring_shown(&mut self, cell: &mut Cell, group: u16, upto: S) {
        let Some(sight) = self.sight else { return };
        self.bring_first(cell, self.coming.due(upto, group, |stamp| sight(stamp).group == group));
        self.coming.leave(group);
    }

    /// The first effect that waits of those that [`History::bring_shown`] does only when it is shown; `None` if it does some
    /// already, or may.
    pub(crate) fn shown_from(&self, shown: Option<(u16, S)>) -> Option<S> {
        shown.and_then(|(group, _)| self.coming.first().filter(|_| !self.coming.has(group)))
    }

    /// Does the first `count` effects that wait: all above the first of them is undone, and performed again.
    fn bring_first(&mut self, cell: &mut Cell, count: usize) {
        let Some(first) = self.coming.first().filter(|_| count > 0) else { return };
        let place = self.above(first);
        self.undo_from(place, cell);
        let brought = self.coming.take(count);
        for entry in &brought {
            self.heap_bytes -= entry.heap_bytes();
            self.note_done(entry.stamp);
        }
        self.steps += (self.entries.len() - place + brought.len()) as u64;
        coming::put_among(&mut self.entries, place, brought);
        self.apply_from(place, cell);
    }

    /// Performs an effect that has observed all that it meets.
    fn perform_alone(&self, cell: &mut Cell, effect: &Effect<'_>) -> Performed {
        match self.sight {
            None => Performed { patch: apply::<true>(cell, effect), trace: None },
            Some(_) => perform_plainly(cell, effect),
        }
    }

    /// True if an effect that observed so much may not have observed all others that are done.
    fn may_hide_some(&self, seen: Sight<S>) -> bool {
        self.greatest.iter().any(|(group, stamp)| !seen.shows(*group, stamp))
    }

    /// Notes that an effect is done.
    fn note_done(&mut self, stamp: S) {
        if let Some(sight) = self.sight {
            note_most(&mut self.greatest, sight(&stamp).group, stamp);
        }
    }

    /// Notes that an effect is here.
    fn note_come(&mut self, stamp: S, coded: &Coded<'_>) {
        self.whole &= coded.whole;
        self.replaces |= coded.replaces;
        // Somebody who was told of it elsewhere may tell it here.
        self.told = self.told.filter(|told| stamp > *told);
        let kind = coded.kind.filter(|_| self.sight.is_some());
        if let Some(sight) = self.sight {
            let Sight { group, upto } = sight(&stamp);
            note_most(&mut self.observed, group, upto);
        }
        self.mixes_types |= kind.is_some() && self.kind.is_some_and(|known| Some(known) != kind);
        self.kind = self.kind.or(kind);
    }

    /// Puts an effect into its place. Below few others it is done at once: what is later is undone, and performed again on
    /// top; below many it waits. Several effects of one transaction share a stamp and keep their order of arrival.
    /// Of `shown`, a group and a place, the group's readers need next what it did last, and nothing of others above the place.
    pub(crate) fn insert(&mut self, cell: &mut Cell, stamp: S, coded: &Coded<'_>, shown: Option<(u16, S)>) {
        let place = self.above(stamp);
        let entry = Entry::new(stamp, coded);
        self.note_come(stamp, coded);
        if self.takes_whole(place) {
            self.note_done(stamp);
            self.insert_whole(cell, place, entry);
        } else if self.is_done_at_once(place, stamp, shown) {
            self.note_done(stamp);
            self.undo_from(place, cell);
            self.make_room();
            self.entries.insert(place, entry);
            self.apply_from(place, cell);
        } else {
            self.heap_bytes += entry.heap_bytes();
            self.coming.insert(entry, self.sight.map_or(0, |sight| sight(&stamp).group));
        }
        self.note_contest(stamp);
    }

    /// Most histories stay short: the first few effects get no more room than they need.
    fn make_room(&mut self) {
        if self.entries.len() < SHORT {
            self.entries.reserve_exact(1);
        }
    }

    /// True if an effect that belongs to this place is done as it arrives.
    fn is_done_at_once(&self, place: usize, stamp: S, shown: Option<(u16, S)>) -> bool {
        self.sight.is_none_or(|sight| {
            let seen = sight(&stamp);
            let is_needed = shown.is_none_or(|(_, upto)| stamp <= upto);
            let is_own = shown.is_some_and(|(group, _)| seen.group == group);
            let is_light = is_own || (is_needed && !self.may_hide_some(seen));
            let is_near = self.entries.len() - place <= self.few && !self.coming.contains(stamp);
            is_near && (is_light || self.entries.len() <= self.few)
        })
    }

    /// All effects here are whole writes: the last one that a reader sees is the state.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// How many effects there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.coming.len()
    }

    /// Keeps an effect that the state holds already, for those that have not observed it.
    pub(crate) fn keep(&mut self, stamp: S, coded: &Coded<'_>, trace: Option<Trace>) {
        let place = self.above(stamp);
        self.note_done(stamp);
        self.note_come(stamp, coded);
        self.held += 1;
        let entry = Entry { trace: trace.map(Box::new), ..Entry::new(stamp, coded) };
        self.heap_bytes += entry.heap_bytes();
        self.make_room();
        self.entries.insert(place, entry);
        self.note_contest(stamp);
    }

    /// Performs an effect below all that are above the horizon, for good.
    pub(crate) fn insert_below(&mut self, cell: &mut Cell, horizon: S, effect: &Effect<'_>) {
        let place = self.above(horizon);
        self.undo_from(place, cell);
        apply::<false>(cell, effect);
        self.apply_from(place, cell);
    }

    /// Takes every effect with this stamp back, as if it had never been. False if there is none.
    pub(crate) fn remove(&mut self, cell: &mut Cell, stamp: S) -> bool {
        let before = self.len();
        self.heap_bytes -= self.coming.remove(stamp);
        let first = self.entries.partition_point(|entry| entry.stamp < stamp);
        let end = self.above(stamp);
        if first < end {
            self.undo_from(first, cell);
            self.entries.drain(first..end);
            self.apply_from(first, cell);
        }
        self.len() < before
    }

    /// Forgets how to undo what is at or below the horizon: it is part of every snapshot now. Who did what is kept
    /// while an effect that has not observed it is here, or may come: what is at or below `watershed` all that come have
    /// observed. Returns what the effects that are forgotten have lost, which nothing that comes can change, and settled.
    /// Nothing waits at or below the horizon any more.
    pub(crate) fn fold(&mut self, key: &[u8], horizon: S, watershed: S, wants_resets: bool) -> Folded<S> {
        debug_assert!(
            self.coming.first() > Some(horizon) || !self.waits(),
            "what is forgotten is part of the state"
        );
        // What is to be forgotten lies in front, and is looked at anyway.
        let above = self.entries.iter().take_while(|entry| entry.stamp <= horizon).count();
        let needed = if self.sight.is_some() { self.needed(horizon, watershed) } else { above };
        let (losses, steps) = self.losses(key, needed, &|_| true);
        self.steps += steps;
        let settled = self.settled(needed);
        let resets = if wants_resets { self.resets(needed, &|_| true) } else { Vec::new() };
        self.told = needed.checked_sub(1).map(|last| self.entries[last].stamp).max(self.told);
        let needed = self.needed_by_hidden(needed);
        self.heap_bytes -= self.entries.range(..needed).map(Entry::heap_bytes).sum::<usize>();
        self.entries.drain(..needed);
        self.held = above - needed;
        for entry in self.entries.range_mut(..self.held) {
            self.heap_bytes -= entry.heap_bytes();
            entry.patch = Patch::Nothing;
            self.heap_bytes += entry.heap_bytes();
        }
        if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(2 * self.entries.len());
        }
        self.find_kinds();
        self.whole = self.whole || self.all().all(|entry| entry.whole);
        self.replaces &= self.len() > 0;
        if self.contested {
            self.find_contest();
        }
        Folded { losses, settled, resets }
    }

    /// The effects at or below the horizon that are still needed, in stamp order; all that are here, if what they have
    /// lost is not told yet.
    pub(crate) fn context(
        &self,
        horizon: S,
        watershed: S,
    ) -> impl Iterator<Item = (S, Effect<'_>, Option<&Trace>)> {
        let from = if self.contested { 0 } else { self.needed(horizon, watershed) };
        let all = InOrder::new(self.entries.range(from..), self.coming.iter());
        let kept = all.take_while(move |entry| entry.stamp <= horizon);
        kept.filter_map(|entry| Some((entry.stamp, entry.effect()?, entry.trace.as_deref())))
    }

    /// Calls `read` with the state that consists of the visible effects, in stamp order, then of some with later
    /// `stamped` ones, and then `own`. What is visible is part of what is done from then on. `bounds` may tell the same as
    /// `visible` in a few words.
    pub(crate) fn with_state<R>(
        &mut self,
        cell: &mut Cell,
        visible: impl Fn(&S) -> bool,
        bounds: Option<Bounds<S>>,
        stamped: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        if self.waits() {
            let due = match bounds {
                Some(bounds) => self.coming.due(bounds.others, bounds.group, &visible),
                None => self.coming.due_by(&visible),
            };
            self.bring_first(cell, due);
        }
        if self.whole
            && let Some(seen) = self.see_whole(cell, &visible, stamped, own)
        {
            return read(&seen);
        }
        let mut hidden = self.first_hidden(&visible, bounds);
        if self.mutants.has(Mutant::UndoLeftOut) {
            hidden = self.entries.len().min(hidden + 1);
        }
        self.undo_from(hidden, cell);
        let answer = self.with_on_top(hidden, cell, &visible, stamped, own, read);
        self.redo_from(hidden, cell);
        answer
    }

    /// The place of the first effect that is not visible.
    fn first_hidden(&mut self, visible: &impl Fn(&S) -> bool, bounds: Option<Bounds<S>>) -> usize {
        let from = bounds.and_then(|bounds| self.shown_by(bounds)).map_or(0, |shown| self.above(shown));
        let hidden = self.entries.range(from..).position(|entry| !visible(&entry.stamp));
        let hidden = hidden.map_or(self.entries.len(), |hidden| from + hidden);
        self.steps += (hidden - from) as u64;
        hidden
    }

    /// A place up to which a reader sees everything that is done.
    fn shown_by(&self, bounds: Bounds<S>) -> Option<S> {
        self.sight?;
        let is_seen = |(group, stamp): &(u16, S)| *group == bounds.group || *stamp <= bounds.others;
        let has_seen = |(group, upto): &(u16, S)| *group != bounds.group || *upto <= bounds.others;
        let all = self.greatest.iter().all(is_seen) && self.observed.iter().all(has_seen);
        Some(if all { bounds.own } else { bounds.others })
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
        self.all_above(horizon).filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// The same, but for some of which a reader sees those of its own group.
    pub(crate) fn effects_beyond(
        &self,
        horizon: S,
        bounds: Option<Bounds<S>>,
    ) -> impl DoubleEndedIterator<Item = (S, Effect<'_>)> {
        let shown = bounds.and_then(|bounds| self.shown_by(bounds));
        let beyond = self.all_above(horizon.max(shown.unwrap_or(horizon)));
        beyond.filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// The stamps of these, in order.
    pub(crate) fn stamps_beyond(
        &self,
        horizon: S,
        bounds: Option<Bounds<S>>,
    ) -> impl DoubleEndedIterator<Item = S> {
        let shown = bounds.and_then(|bounds| self.shown_by(bounds));
        self.all_above(horizon.max(shown.unwrap_or(horizon))).map(|entry| entry.stamp)
    }

    /// Of each group at least its last effect.
    pub(crate) fn last_of_groups(&self) -> impl Iterator<Item = S> {
        let done = self.greatest.iter().map(|(_, stamp)| *stamp);
        done.chain(self.coming.iter().map(|entry| entry.stamp))
    }

    /// The bytes it occupies beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of_groups = (self.greatest.capacity() + self.observed.capacity()) * size_of::<(u16, S)>();
        let entries = (self.entries.capacity() + self.coming.capacity()) * size_of::<Entry<S>>();
        entries + of_groups + self.heap_bytes
    }

    /// Panics unless the entries are in order and their sum is right.
    pub(crate) fn assert_consistent(&self) {
        assert!(self.entries.iter().is_sorted_by_key(|entry| entry.stamp), "a history is in stamp order");
        let heap_bytes = self.all().map(Entry::heap_bytes).sum::<usize>();
        assert_eq!(self.heap_bytes, heap_bytes, "a history knows what its effects occupy");
        self.coming.assert_consistent();
    }
}

fn note_most<S: Stamp>(most: &mut Vec<(u16, S)>, group: u16, stamp: S) {
    match most.iter_mut().find(|(known, _)| *known == group) {
        Some((_, greatest)) => *greatest = stamp.max(*greatest),
        None => {
            // Groups are few, and histories many.
            most.reserve_exact(1);
            most.push((group, stamp));
        }
    }
}

/// An entry's effect; its binary form was written here.
fn effect_of<S>(entry: &Entry<S>) -> Effect<'_> {
    let effect = entry.effect();
    debug_assert!(effect.is_some(), "a history holds effects");
    effect.unwrap_or(Effect::Key(key::Effect::SetDeadline(0)))
}
