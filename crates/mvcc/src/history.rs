//! The history of one key above the horizon: effects with their stamps, in stamp order, each with the patch that
//! takes it back (Corrections 68). The newest value lives in the record; a history only rewinds it.
//!
//! Where effects need not have observed all before them, one that arrives below many others waits in the out-of-order
//! buffer: the record's value is the result of the *applied* effects. The history applies the buffer, all at once, when
//! a read must show it, or when the owner calls [`History::apply_buffered`]. Applied effects never return to the
//! buffer: a read of an older snapshot undoes and redoes them. So when two halves of a history meet, an arriving
//! effect costs its insertion, and one application.

mod lost_updates;
mod out_of_order;
mod overwrites;
mod packing;
mod replaying;

use crate::losses::LostWrite;
use crate::store::Stamp;
use crate::{CompactKey, Mutant, Mutants};
use datatypes::merge::{
    Performed, Trace, is_whole_write, lasting_kind, may_be_hidden, may_go, may_hide_later, perform_plainly,
    replaces_element, says_deadline,
};
use datatypes::{Cell, Effect, Kind, Patch, apply, exchange, key};
use out_of_order::{InOrder, OutOfOrderBuffer};
use std::collections::VecDeque;
use types::Reader;

pub(crate) use packing::Packed;

/// What an effect observed of those before it, in a model where it need not have observed all: everything of its own
/// group, and everything of the others up to a place; where a stamp says more, up to a place for each other group
/// ([`Stamp::is_observed`]), of which `upto` is not above the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DependencyVector<S> {
    /// Whose effect it is: effects of one group observe one another in their order.
    pub group: u16,
    /// Up to where it observed the others.
    pub upto: S,
}

impl<S: Stamp> DependencyVector<S> {
    pub(crate) fn shows(&self, group: u16, stamp: &S) -> bool {
        group == self.group || stamp.is_observed(group, &self.upto)
    }
}

/// What a reader sees, in compact form, so that not every effect must be tested: everything of all groups at or below
/// `others`; above it nothing of any group but its own; and of that one everything at or below `own` that observed no
/// more than `others` of the other groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<S> {
    /// The reader's own group.
    pub group: u16,
    /// Up to where it sees its own group; at least `others`.
    pub own: S,
    /// Up to where it sees the other groups.
    pub others: S,
}

/// The history applies an effect that arrives below at most so many at once; a read undoes and redoes so many.
pub(crate) const FEW: usize = 32;

/// Histories shorter than that have no spare room.
const SHORT: usize = 4;

/// Maps an effect's stamp to what the effect observed.
pub type DependencyVectorOf<S> = fn(&S) -> DependencyVector<S>;

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
    /// See [`may_go`] and [`says_deadline`].
    goes: bool,
    dates: bool,
    /// Exchanged with the state after the effect, it gives the state before; and back.
    patch: Patch,
    /// What it did to a list, where later effects may not have observed it.
    trace: Option<Box<Trace>>,
}

impl<S> Entry<S> {
    /// An effect that is not applied yet.
    fn new(stamp: S, coded: &Coded<'_>) -> Self {
        let Coded { bytes, kind, whole, hidden, hides, goes, dates, .. } = *coded;
        let effect = CompactKey::new(bytes);
        Entry { stamp, effect, kind, whole, hidden, hides, goes, dates, patch: Patch::Nothing, trace: None }
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
    /// See [`may_go`] and [`says_deadline`].
    goes: bool,
    dates: bool,
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
            goes: may_go(effect),
            dates: says_deadline(effect),
        }
    }
}

/// What forgotten effects leave to report.
pub(crate) struct Folded<S> {
    /// The updates that they lost.
    pub(crate) losses: Vec<LostWrite<S>>,
    /// The names of the losses that they settled.
    pub(crate) settled: Vec<Vec<u8>>,
    /// The stamps of those that replaced or removed the key, if the caller wants them.
    pub(crate) resets: Vec<S>,
}

/// See the module. Entries are in ascending order of stamps; the state passed in is always what they make.
#[derive(Debug)]
pub(crate) struct History<S> {
    /// The applied effects.
    entries: VecDeque<Entry<S>>,
    /// The effects that wait.
    out_of_order: OutOfOrderBuffer<S>,
    /// The sum of the `heap_bytes` of all that is here.
    heap_bytes: usize,
    /// The steps that merging took since the last call.
    steps: u64,
    /// How the stamps of effects say what they observed; without it, each observed all before it.
    dependencies: Option<DependencyVectorOf<S>>,
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
    /// True if the history reports lost updates.
    reports_losses: bool,
    /// Some effect here may not have observed an earlier one; only noted if the store reports losses.
    contested: bool,
    /// The lost updates of effects at or below are reported; effects that are still here are retained for later ones.
    reported: Option<S>,
    /// Some effect that came since all were forgotten replaces an element of a list.
    replaces: bool,
    /// How many of what is done, from the first on, cannot be undone any more.
    held: usize,
    pub(crate) mutants: Mutants,
}

impl<S: Stamp> History<S> {
    /// An empty one with room for a single effect: most keys change once while a snapshot is open.
    pub(crate) fn new(dependencies: Option<DependencyVectorOf<S>>, few: usize, reports_losses: bool) -> Self {
        History {
            entries: VecDeque::with_capacity(1),
            out_of_order: OutOfOrderBuffer::default(),
            heap_bytes: 0,
            steps: 0,
            dependencies,
            greatest: Vec::new(),
            observed: Vec::new(),
            kind: None,
            mixes_types: false,
            whole: true,
            few,
            reports_losses,
            contested: false,
            reported: None,
            replaces: false,
            held: 0,
            mutants: Mutants::NONE,
        }
    }

    /// True if effects need not have observed all before them.
    pub(crate) fn has_sight(&self) -> bool {
        self.dependencies.is_some()
    }

    /// The greatest stamp, if there is an effect.
    pub(crate) fn last(&self) -> Option<S> {
        self.entries.back().map(|entry| entry.stamp).max(self.out_of_order.last())
    }

    pub(crate) fn contains(&self, stamp: S) -> bool {
        self.out_of_order.contains(stamp)
            || self.entries.binary_search_by(|entry| entry.stamp.cmp(&stamp)).is_ok()
    }

    /// Everything that is here, in order.
    fn all(&self) -> InOrder<'_, S> {
        InOrder::new(self.entries.iter(), self.out_of_order.iter())
    }

    /// Everything that is here above a stamp, in order.
    fn all_above(&self, stamp: S) -> InOrder<'_, S> {
        InOrder::new(self.entries.range(self.above(stamp)..), self.out_of_order.iter_above(stamp))
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

    /// Some effects wait in the buffer: the state is not the newest one.
    pub(crate) fn waits(&self) -> bool {
        !self.out_of_order.is_empty()
    }

    /// How many steps merging took since the last call: effects, elements and pieces of lists that were looked at.
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
            if !self.whole
                && self.dependencies.is_some_and(|dependencies| self.may_hide_some(dependencies(&stamp)))
            {
                break;
            }
            let performed = self.perform_alone(cell, &effect_of(&self.entries[place]));
            self.put_done(place, performed);
            place += 1;
        }
        if let Some(dependencies) = self.dependencies.filter(|_| place < self.entries.len()) {
            let (performed, steps) = self.replay(dependencies, place, cell, &|_| true, &[]);
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

    /// Applies the waiting effects at or below a stamp; without one, all of them.
    pub(crate) fn apply_buffered(&mut self, cell: &mut Cell, upto: Option<S>) {
        self.apply_first_buffered(
            cell,
            upto.map_or(self.out_of_order.len(), |upto| self.out_of_order.count(upto)),
        );
    }

    /// Does what must not wait when effects up to the horizon are forgotten: those; and all, if it matters to what is lost
    /// which element of a list each meets.
    pub(crate) fn apply_buffered_to_fold(&mut self, cell: &mut Cell, horizon: S) {
        let needs_all = self.contested && self.replaces;
        self.apply_buffered(cell, (!needs_all).then_some(horizon));
    }

    /// Applies the first few waiting effects, and those of `group` whatever their place.
    pub(crate) fn apply_buffered_visible(&mut self, cell: &mut Cell, group: u16, upto: S) {
        let Some(dependencies) = self.dependencies else { return };
        self.apply_first_buffered(
            cell,
            self.out_of_order.due(upto, group, &|stamp| dependencies(stamp).group == group),
        );
        self.out_of_order.leave(group);
    }

    /// The first effect that waits of those that [`History::apply_buffered_visible`] does only when it is shown; `None` if it does some
    /// already, or may.
    pub(crate) fn shown_from(&self, shown: Option<(u16, S)>) -> Option<S> {
        shown.and_then(|(group, _)| self.out_of_order.first().filter(|_| !self.out_of_order.has(group)))
    }

    /// Does the first `count` effects that wait: all above the first of them is undone, and performed again.
    fn apply_first_buffered(&mut self, cell: &mut Cell, count: usize) {
        let Some(first) = self.out_of_order.first().filter(|_| count > 0) else { return };
        let place = self.above(first);
        self.undo_from(place, cell);
        let applied = self.out_of_order.take(count);
        for entry in &applied {
            self.heap_bytes -= entry.heap_bytes();
            self.note_done(entry.stamp);
        }
        self.steps += (self.entries.len() - place + applied.len()) as u64;
        out_of_order::put_among(&mut self.entries, place, applied);
        self.apply_from(place, cell);
    }

    /// Performs an effect that has observed all that it meets.
    fn perform_alone(&self, cell: &mut Cell, effect: &Effect<'_>) -> Performed {
        match self.dependencies {
            None => Performed { patch: apply::<true>(cell, effect), trace: None },
            Some(_) => perform_plainly(cell, effect),
        }
    }

    /// True if an effect that observed so much may not have observed all others that are done.
    fn may_hide_some(&self, seen: DependencyVector<S>) -> bool {
        self.greatest.iter().any(|(group, stamp)| !seen.shows(*group, stamp))
    }

    /// Notes that an effect is done.
    fn note_done(&mut self, stamp: S) {
        if let Some(dependencies) = self.dependencies {
            note_most(&mut self.greatest, dependencies(&stamp).group, stamp);
        }
    }

    /// Notes that an effect is here.
    fn note_come(&mut self, stamp: S, coded: &Coded<'_>) {
        self.whole &= coded.whole;
        self.replaces |= coded.replaces;
        // A client that read it elsewhere may report it here.
        self.reported = self.reported.filter(|reported| stamp > *reported);
        let kind = coded.kind.filter(|_| self.dependencies.is_some());
        if let Some(dependencies) = self.dependencies {
            let DependencyVector { group, upto } = dependencies(&stamp);
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
            self.out_of_order
                .insert(entry, self.dependencies.map_or(0, |dependencies| dependencies(&stamp).group));
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
        self.dependencies.is_none_or(|dependencies| {
            let seen = dependencies(&stamp);
            let is_needed = shown.is_none_or(|(_, upto)| stamp <= upto);
            let is_own = shown.is_some_and(|(group, _)| seen.group == group);
            let is_light = is_own || (is_needed && !self.may_hide_some(seen));
            let is_near = self.entries.len() - place <= self.few && !self.out_of_order.contains(stamp);
            is_near && (is_light || self.entries.len() <= self.few)
        })
    }

    /// All effects here are whole writes: the last one that a reader sees is the state.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// How many effects there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.out_of_order.len()
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
        self.heap_bytes -= self.out_of_order.remove(stamp);
        let first = self.entries.partition_point(|entry| entry.stamp < stamp);
        let end = self.above(stamp);
        if first < end {
            self.undo_from(first, cell);
            self.entries.drain(first..end);
            self.apply_from(first, cell);
        }
        self.len() < before
    }

    /// Forgets how to undo what is at or below the horizon: it is part of every snapshot now. The store retains who did
    /// what while an effect that has not observed it is here, or may arrive: what is at or below `stability frontier`
    /// all that come have observed. Returns what the effects that are forgotten have lost, which nothing that comes can
    /// change, and settled. Nothing waits at or below the horizon any more.
    pub(crate) fn fold(
        &mut self,
        key: &[u8],
        horizon: S,
        stability_frontier: S,
        wants_resets: bool,
    ) -> Folded<S> {
        debug_assert!(
            self.out_of_order.first() > Some(horizon) || !self.waits(),
            "what is forgotten is part of the state"
        );
        // What is to be forgotten lies in front, and is looked at anyway.
        let above = self.entries.iter().take_while(|entry| entry.stamp <= horizon).count();
        let needed =
            if self.dependencies.is_some() { self.needed(horizon, stability_frontier) } else { above };
        let (losses, steps) = self.losses(key, needed, &|_| true);
        self.steps += steps;
        let settled = self.settled(needed);
        let resets = if wants_resets { self.resets(needed, &|_| true) } else { Vec::new() };
        self.reported = needed.checked_sub(1).map(|last| self.entries[last].stamp).max(self.reported);
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

    /// The effects at or below the horizon that are still needed, in stamp order; all that are here, if their lost
    /// updates are not reported yet.
    pub(crate) fn context(
        &self,
        horizon: S,
        stability_frontier: S,
    ) -> impl Iterator<Item = (S, Effect<'_>, Option<&Trace>)> {
        let from = if self.contested { 0 } else { self.needed(horizon, stability_frontier) };
        let all = InOrder::new(self.entries.range(from..), self.out_of_order.iter());
        let retained = all.take_while(move |entry| entry.stamp <= horizon);
        retained.filter_map(|entry| Some((entry.stamp, entry.effect()?, entry.trace.as_deref())))
    }

    /// Calls `read` with the state that consists of the visible effects, in stamp order, then of some with later
    /// `stamped` ones, and then `own`. What is visible is part of what is done from then on. `bounds` may tell the same as
    /// `visible` in a few words.
    pub(crate) fn with_state<R>(
        &mut self,
        cell: &mut Cell,
        visible: &dyn Fn(&S) -> bool,
        bounds: Option<Bounds<S>>,
        stamped: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> R {
        self.apply_shown(cell, visible, bounds);
        if self.whole
            && let Some(seen) = self.see_whole(cell, visible, stamped, own)
        {
            return read(&seen);
        }
        let hidden = self.first_hidden(visible, bounds);
        self.undo_from(hidden, cell);
        let mut on_top = self.perform_on_top(hidden, cell, visible, stamped, own);
        let answer = read(cell);
        on_top.iter_mut().rev().for_each(|patch| exchange(cell, patch));
        self.redo_from(hidden, cell);
        answer
    }

    /// Does what is visible of what arrived out of order.
    fn apply_shown(&mut self, cell: &mut Cell, visible: &dyn Fn(&S) -> bool, bounds: Option<Bounds<S>>) {
        if self.waits() {
            let due = match bounds {
                Some(bounds) => self.out_of_order.due(bounds.others, bounds.group, visible),
                None => self.out_of_order.due_by(visible),
            };
            self.apply_first_buffered(cell, due);
        }
    }

    /// The place of the first effect that is not visible.
    fn first_hidden(&mut self, visible: &dyn Fn(&S) -> bool, bounds: Option<Bounds<S>>) -> usize {
        let from = bounds.map_or(0, |bounds| self.above(self.shown_by(bounds)));
        let hidden = self.entries.range(from..).position(|entry| !visible(&entry.stamp));
        let hidden = hidden.map_or(self.entries.len(), |hidden| from + hidden);
        self.steps += (hidden - from) as u64;
        if self.mutants.has(Mutant::UndoLeftOut) {
            return self.entries.len().min(hidden + 1);
        }
        hidden
    }

    /// A place up to which a reader sees everything that is done.
    fn shown_by(&self, bounds: Bounds<S>) -> S {
        let is_seen = |(group, stamp): &(u16, S)| *group == bounds.group || *stamp <= bounds.others;
        let has_seen = |(group, upto): &(u16, S)| *group != bounds.group || *upto <= bounds.others;
        let all = self.greatest.iter().all(is_seen) && self.observed.iter().all(has_seen);
        if self.dependencies.is_some() && all { bounds.own } else { bounds.others }
    }

    /// Performs, on the state that the effects before a place make, the visible ones from there on, the stamped ones, and
    /// then `own`. Returns what takes them back, the last first.
    fn perform_on_top(
        &mut self,
        from: usize,
        cell: &mut Cell,
        visible: &dyn Fn(&S) -> bool,
        stamped: &[(S, Effect<'_>)],
        own: &[Effect<'_>],
    ) -> Vec<Patch> {
        let mut patches: Vec<Patch> = match self.dependencies {
            Some(dependencies) => {
                let (performed, steps) = self.replay(dependencies, from, cell, visible, stamped);
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
        patches
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
        let shown = bounds.map(|bounds| self.shown_by(bounds));
        let beyond = self.all_above(horizon.max(shown.unwrap_or(horizon)));
        beyond.filter_map(|entry| Some((entry.stamp, entry.effect()?)))
    }

    /// The stamps of these, in order.
    pub(crate) fn stamps_beyond(
        &self,
        horizon: S,
        bounds: Option<Bounds<S>>,
    ) -> impl DoubleEndedIterator<Item = S> {
        let shown = bounds.map(|bounds| self.shown_by(bounds));
        self.all_above(horizon.max(shown.unwrap_or(horizon))).map(|entry| entry.stamp)
    }

    /// Of each group at least its last effect.
    pub(crate) fn last_of_groups(&self) -> impl Iterator<Item = S> {
        let done = self.greatest.iter().map(|(_, stamp)| *stamp);
        done.chain(self.out_of_order.iter().map(|entry| entry.stamp))
    }

    /// The bytes it occupies beyond its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of_groups = (self.greatest.capacity() + self.observed.capacity()) * size_of::<(u16, S)>();
        let entries = (self.entries.capacity() + self.out_of_order.capacity()) * size_of::<Entry<S>>();
        entries + of_groups + self.heap_bytes
    }

    /// Panics unless the entries are in order and their sum is right.
    pub(crate) fn assert_consistent(&self) {
        assert!(self.entries.iter().is_sorted_by_key(|entry| entry.stamp), "a history is in stamp order");
        let heap_bytes = self.all().map(Entry::heap_bytes).sum::<usize>();
        assert_eq!(self.heap_bytes, heap_bytes, "a history knows what its effects occupy");
        self.out_of_order.assert_consistent();
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
