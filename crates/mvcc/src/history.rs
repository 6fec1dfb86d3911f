//! The history of one key above the horizon: effects with their stamps, in stamp order, each with the patch that
//! takes it back (Corrections 68). The newest value lives in the record; a history only rewinds it.

use crate::CompactKey;
use crate::losses::LostWrite;
use datatypes::merge::{Among, Performed, Trace, lost, perform, perform_plainly, stands_alone};
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

/// See the module. Entries are in ascending order of stamps; the state passed in is always the newest one.
#[derive(Debug)]
pub(crate) struct History<S> {
    entries: VecDeque<Entry<S>>,
    /// The sum of the entries' `heap_bytes`.
    heap_bytes: usize,
    /// How effects tell what they observed; without it, each observed all before it.
    sight: Option<SightOf<S>>,
    /// The greatest stamp that each group ever had here.
    greatest: Vec<(u16, S)>,
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
    pub(crate) fn new(sight: Option<SightOf<S>>, tells_losses: bool) -> Self {
        History {
            entries: VecDeque::with_capacity(1),
            heap_bytes: 0,
            sight,
            greatest: Vec::new(),
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
        for place in place..self.entries.len() {
            self.apply_at(place, cell);
        }
    }

    /// Performs the effect at this place on the state that those before it made.
    fn apply_at(&mut self, place: usize, cell: &mut Cell) {
        let Performed { patch, trace } = self.perform_at(place, cell);
        let entry = &mut self.entries[place];
        (entry.patch, entry.trace) = (patch, trace.map(Box::new));
        self.heap_bytes += entry.heap_bytes();
    }

    fn perform_at(&self, place: usize, cell: &mut Cell) -> Performed {
        let entry = &self.entries[place];
        let Some(effect) = entry.effect() else { return Performed { patch: Patch::Nothing, trace: None } };
        let Some(sight) = self.sight else {
            return Performed { patch: apply::<true>(cell, &effect), trace: None };
        };
        let seen = sight(&entry.stamp);
        if stands_alone(cell, &effect) || !self.hides_some(sight, seen, place, |_| true) {
            return perform_plainly(cell, &effect);
        }
        let effects: Vec<Effect<'_>> = self.entries.range(..=place).map(effect_of).collect();
        let traces: Vec<Option<&Trace>> = self.entries.range(..=place).map(|e| e.trace.as_deref()).collect();
        let sees = |later: usize, earlier: usize| {
            let earlier = self.entries[earlier].stamp;
            sight(&self.entries[later].stamp).shows(sight(&earlier).group, &earlier)
        };
        perform(cell, &Among { effects: &effects, traces: &traces, sees: &sees })
    }

    /// Performs an effect that has observed all that it meets.
    fn perform_alone(&self, cell: &mut Cell, effect: &Effect<'_>) -> Patch {
        match self.sight {
            None => apply::<true>(cell, effect),
            Some(_) => perform_plainly(cell, effect).patch,
        }
    }

    /// True if some effect before this place, among those that count, was not observed.
    fn hides_some(
        &self,
        sight: SightOf<S>,
        seen: Sight<S>,
        place: usize,
        counts: impl Fn(&S) -> bool,
    ) -> bool {
        let may = self.greatest.iter().any(|(group, stamp)| !seen.shows(*group, stamp));
        let mut unseen = self.entries.range(..place).rev().take_while(|entry| entry.stamp > seen.upto);
        may && unseen.any(|entry| sight(&entry.stamp).group != seen.group && counts(&entry.stamp))
    }

    fn note_greatest(&mut self, stamp: S) {
        let Some(sight) = self.sight else { return };
        let group = sight(&stamp).group;
        match self.greatest.iter_mut().find(|(known, _)| *known == group) {
            Some((_, greatest)) => *greatest = stamp.max(*greatest),
            None => self.greatest.push((group, stamp)),
        }
    }

    /// Puts an effect into its place: what is later is undone, and performed again on top. Several effects of one
    /// transaction share a stamp and keep their order of arrival. `encoded` is the effect's binary form, `kind` the type
    /// that it says the key has.
    pub(crate) fn insert(&mut self, cell: &mut Cell, stamp: S, encoded: &[u8], kind: Option<Kind>) {
        let place = self.above(stamp);
        self.undo_from(place, cell);
        self.note_greatest(stamp);
        let effect = CompactKey::new(encoded);
        let entry = Entry { stamp, effect, kind, patch: Patch::Nothing, trace: None };
        self.entries.insert(place, entry);
        self.apply_from(place, cell);
        self.note_contest(place);
    }

    /// Something has come to this place.
    fn note_contest(&mut self, place: usize) {
        let Some(sight) = self.sight.filter(|_| self.tells_losses && !self.contested) else { return };
        let hides = |at: usize| self.hides_some(sight, sight(&self.entries[at].stamp), at, |_| true);
        self.contested = (place..self.entries.len()).any(hides);
    }

    /// True if some effect here may not have observed an earlier one, so that one of them may be lost.
    pub(crate) fn is_contested(&self) -> bool {
        self.contested
    }

    /// What the effects here have lost, of the first `count` of them; as far as it is known, and whether it was settled
    /// or not.
    pub(crate) fn losses(&self, key: &[u8], count: usize) -> Vec<LostWrite<S>> {
        let Some(sight) = self.sight.filter(|_| self.contested) else { return Vec::new() };
        let effects: Vec<Effect<'_>> = self.entries.iter().map(effect_of).collect();
        let sees = |later: usize, earlier: usize| {
            let earlier = self.entries[earlier].stamp;
            sight(&self.entries[later].stamp).shows(sight(&earlier).group, &earlier)
        };
        let of = |place: usize| {
            lost(&effects, &sees, place).into_iter().map(move |loss| LostWrite {
                key: key.into(),
                part: loss.part,
                stamp: self.entries[place].stamp,
                value: loss.value.into(),
                winner: self.entries[loss.to].stamp,
                instead: loss.instead.into(),
            })
        };
        (0..count).flat_map(of).collect()
    }

    /// How many effects there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The names of the losses that effects here settle.
    pub(crate) fn settled(&self) -> Vec<Vec<u8>> {
        let mut settled = Vec::new();
        for effect in self.entries.iter().filter(|_| self.contested).map(effect_of) {
            if let Effect::Key(key::Effect::Resolve { losses }) = effect {
                settled.extend(losses.iter().map(<[u8]>::to_vec));
            }
        }
        settled
    }

    /// Keeps an effect that the state holds already, for those that have not observed it.
    pub(crate) fn keep(&mut self, stamp: S, encoded: &[u8], kind: Option<Kind>, trace: Option<Trace>) {
        let place = self.above(stamp);
        self.note_greatest(stamp);
        let (effect, trace) = (CompactKey::new(encoded), trace.map(Box::new));
        let entry = Entry { stamp, effect, kind, patch: Patch::Nothing, trace };
        self.heap_bytes += entry.heap_bytes();
        self.entries.insert(place, entry);
        self.note_contest(place);
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

    /// Forgets how to undo what is at or below the horizon: it is part of every snapshot now. Who did what is kept
    /// while an effect that has not observed it is here, or may come: what is at or below `watershed` all that come have
    /// observed. Returns what the effects that are forgotten have lost: nothing that comes can change it.
    pub(crate) fn fold(&mut self, key: &[u8], horizon: S, watershed: S) -> Vec<LostWrite<S>> {
        // What is to be forgotten lies in front, and is looked at anyway.
        let above = self.entries.iter().take_while(|entry| entry.stamp <= horizon).count();
        let needed = if self.sight.is_some() { self.needed(horizon, watershed) } else { above };
        let losses = self.losses(key, needed);
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
        if std::mem::take(&mut self.contested) {
            self.note_contest(0);
        }
        losses
    }

    /// The first place, at most that above the horizon, from which on effects are needed by ones that have not observed
    /// them.
    fn needed(&self, horizon: S, watershed: S) -> usize {
        let above = self.above(horizon);
        let Some(sight) = self.sight else { return above };
        let mut needed = self.above(watershed).min(above);
        // What an effect has lost is known when all that come have observed it and those that had not observed it.
        let mut from = if self.contested { needed } else { above };
        loop {
            let before = needed;
            for later in self.entries.range(from..).map(|entry| sight(&entry.stamp)) {
                let unseen = |entry: &Entry<S>| !later.shows(sight(&entry.stamp).group, &entry.stamp);
                let from = self.above(later.upto).min(needed);
                needed = (from..needed).find(|place| unseen(&self.entries[*place])).unwrap_or(needed);
            }
            // Where types meet, an effect may bring forth what one that is kept put out of sight without observing it.
            if (from, before) == (needed, needed) || !self.mixes_types() {
                return needed;
            }
            from = needed;
        }
    }

    /// True if effects say different types.
    fn mixes_types(&self) -> bool {
        let mut kinds = self.entries.iter().filter_map(|entry| entry.kind);
        kinds.next().is_some_and(|first| kinds.any(|kind| kind != first))
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
        let hidden = self.entries.iter().position(|entry| !visible(&entry.stamp));
        let hidden = hidden.unwrap_or(self.entries.len());
        #[cfg(feature = "mutants")]
        let hidden = self.entries.len().min(hidden + usize::from(self.leave_out_undo));
        self.undo_from(hidden, cell);
        let unseen = self.sight.filter(|sight| self.meets_unseen(*sight, hidden, &visible, stamped));
        let mut patches = match unseen {
            Some(sight) => self.perform_visible(sight, hidden, cell, &visible, stamped),
            None => {
                let shown = self.entries.range(hidden..).filter(|entry| visible(&entry.stamp));
                let shown = shown.filter_map(Entry::effect);
                let mut patches: Vec<Patch> = shown.map(|effect| self.perform_alone(cell, &effect)).collect();
                patches.extend(stamped.iter().map(|(_, effect)| self.perform_alone(cell, effect)));
                patches
            }
        };
        patches.extend(own.iter().map(|effect| self.perform_alone(cell, effect)));
        let answer = read(cell);
        patches.iter_mut().rev().for_each(|patch| exchange(cell, patch));
        self.redo_from(hidden, cell);
        answer
    }

    /// True if an effect that is to be performed for a reader has not observed one that the reader sees.
    fn meets_unseen(
        &self,
        sight: SightOf<S>,
        hidden: usize,
        visible: &impl Fn(&S) -> bool,
        stamped: &[(S, Effect<'_>)],
    ) -> bool {
        let shown = (hidden..self.entries.len()).filter(|place| visible(&self.entries[*place].stamp));
        let mut shown = shown.map(|place| (place, self.entries[place].stamp));
        let len = self.entries.len();
        shown.any(|(place, stamp)| self.hides_some(sight, sight(&stamp), place, visible))
            || stamped.iter().any(|(stamp, _)| self.hides_some(sight, sight(stamp), len, visible))
    }

    /// Performs the visible effects from a place on and the stamped ones; returns how to take them back.
    fn perform_visible(
        &self,
        sight: SightOf<S>,
        from: usize,
        cell: &mut Cell,
        visible: &impl Fn(&S) -> bool,
        stamped: &[(S, Effect<'_>)],
    ) -> Vec<Patch> {
        let (mut stamps, mut effects, mut traces) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.entries.range(..from) {
            stamps.push(entry.stamp);
            effects.push(effect_of(entry));
            traces.push(entry.trace.as_deref().cloned());
        }
        let shown = self.entries.range(from..).filter(|entry| visible(&entry.stamp));
        let shown = shown.map(|entry| (entry.stamp, effect_of(entry)));
        let mut patches = Vec::new();
        for (stamp, effect) in shown.chain(stamped.iter().cloned()) {
            stamps.push(stamp);
            effects.push(effect);
            let known: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).chain([None]).collect();
            let sees = |later: usize, earlier: usize| {
                sight(&stamps[later]).shows(sight(&stamps[earlier]).group, &stamps[earlier])
            };
            let performed = perform(cell, &Among { effects: &effects, traces: &known, sees: &sees });
            patches.push(performed.patch);
            traces.push(performed.trace);
        }
        patches
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

/// An entry's effect; its binary form was written here.
fn effect_of<S>(entry: &Entry<S>) -> Effect<'_> {
    let effect = entry.effect();
    debug_assert!(effect.is_some(), "a history holds effects");
    effect.unwrap_or(Effect::Key(key::Effect::SetDeadline(0)))
}
