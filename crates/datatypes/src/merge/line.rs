//! The elements of a list by identity: where concurrent effects that name places find the elements that they meant.
//!
//! An effect on a list names places of the list that its origin saw. What each earlier effect really removed and
//! inserted, its [`Trace`], gives one line of all elements, removed ones included, in which both the list that the
//! origin saw and the list that is there now are found by leaving elements out.

use super::Among;
use crate::list::{Effect, End, Positions};
use smallvec::SmallVec;
use types::wire_struct;

/// Elements removed at a place, then elements inserted there; or neither, where an element got another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The place in the list as the step finds it.
    pub at: u64,
    /// How many elements go.
    pub removed: u64,
    /// How many elements come.
    pub inserted: u64,
}
wire_struct!(Step { at, removed, inserted });

/// What an effect did to the list that it met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// How many elements there were before it.
    pub before: u64,
    /// What it changed, in order.
    pub steps: Vec<Step>,
    /// Elements that it meant to remove and an effect that it had not observed had removed already: how many effects
    /// before it that one stands, the first of that one's removed elements, and how many.
    pub also: Vec<(u64, u64, u64)>,
    /// The element behind which it inserted, or whose value it meant to replace, where an effect that it had not observed
    /// had removed that: how many effects before it that one stands, and which of its removed elements. Behind it, for an
    /// insertion, the removed elements further to the front that are known still when that effect is forgotten.
    pub anchors: Vec<(u64, u64)>,
}
wire_struct!(Trace { before, steps, also, anchors });

/// What an effect that names places comes to on the list that is there.
#[derive(Default)]
pub(super) struct Resolved<'e> {
    pub(super) effects: Vec<Effect<'e>>,
    /// See [`Trace`].
    pub(super) also: Vec<(u64, u64, u64)>,
    pub(super) anchors: Vec<(u64, u64)>,
}

impl<'e> Resolved<'e> {
    fn to(effect: Option<Effect<'e>>) -> Self {
        Resolved { effects: effect.into_iter().collect(), ..Resolved::default() }
    }
}

/// Neighbouring elements with one fate.
#[derive(Clone, Debug)]
struct Run {
    /// Which effect inserted them; `None` for elements that were there before the first.
    source: Option<usize>,
    /// The place of the first one among what that one inserted.
    first: u64,
    len: u64,
    /// Which effects removed them, or meant to, and the place of the first among what that one removed.
    removed_by: SmallVec<[(usize, u64); 2]>,
}

impl Run {
    fn is_there(&self) -> bool {
        self.removed_by.is_empty()
    }

    /// The place of its first element among what an effect removed, if that one removed it.
    fn removed_from(&self, by: usize) -> Option<u64> {
        self.removed_by.iter().find(|(other, _)| *other == by).map(|(_, first)| *first)
    }

    fn is_seen(&self, observed: impl Fn(usize) -> bool) -> bool {
        self.source.is_none_or(&observed) && !self.removed_by.iter().any(|(by, _)| observed(*by))
    }
}

/// An element by its identity: who inserted it, `None` if it was there before the first effect, and which of those that
/// this one inserted it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Element {
    pub(super) source: Option<usize>,
    number: u64,
}

/// All elements that ever were in the list since the first effect.
#[derive(Default)]
pub(super) struct Line {
    runs: Vec<Run>,
    /// What was there before the first effect stands in it.
    begun: bool,
}

impl Line {
    /// What the effects before the last one made.
    fn of(among: &Among<'_, '_>) -> Line {
        let last = among.effects.len() - 1;
        let mut line = Line::default();
        for (at, trace) in among.traces[..last].iter().enumerate() {
            line.pass(at, &among.effects[at], *trace);
        }
        line
    }

    /// How many pieces it has: what looking for a place costs.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// The element whose value the last effect that the line passed replaced, or meant to replace.
    pub(super) fn replaced(&mut self, at: usize, trace: &Trace) -> Option<Element> {
        let run = match (trace.anchors.first(), trace.steps.first()) {
            (Some((back, which)), _) => {
                let by = at.checked_sub(*back as usize)?;
                self.cut_removed(by, *which);
                self.runs.iter().find(|run| run.removed_from(by) == Some(*which))?
            }
            (None, Some(step)) => {
                self.split_there(step.at);
                self.runs.get(self.place_there(step.at))?
            }
            (None, None) => return None,
        };
        Some(Element { source: run.source, number: run.first })
    }

    /// The effects that removed an element, or meant to, in no order.
    pub(super) fn removers(&self, element: Element) -> impl Iterator<Item = usize> + '_ {
        let holds = move |run: &&Run| {
            run.source == element.source && (run.first..run.first + run.len).contains(&element.number)
        };
        self.runs.iter().find(holds).into_iter().flat_map(|run| run.removed_by.iter().map(|(by, _)| *by))
    }

    /// Does what the effect at this place, the next one, did.
    pub(super) fn pass(&mut self, at: usize, effect: &crate::Effect<'_>, trace: Option<&Trace>) {
        let Some(trace) = trace else { return };
        if !std::mem::replace(&mut self.begun, true) {
            self.insert(0, None, 0, trace.before);
        }
        let (mut removed, mut inserted) = (0, 0);
        for step in &trace.steps {
            self.split_there(step.at);
            self.split_there(step.at + step.removed);
            let (mut place, mut left) = (self.place_there(step.at), step.removed);
            while left > 0 && place < self.runs.len() {
                if self.runs[place].is_there() {
                    left -= self.runs[place].len.min(left);
                    self.runs[place].removed_by.push((at, removed));
                    removed += self.runs[place].len;
                }
                place += 1;
            }
            if step.inserted > 0 {
                let place = self.place_to_insert(effect, at, trace, step);
                self.insert(place, Some(at), inserted, step.inserted);
                inserted += step.inserted;
            }
        }
        for (back, first, len) in &trace.also {
            if let Some(other) = at.checked_sub(*back as usize) {
                removed = self.mark_also(at, other, *first, *len, removed);
            }
        }
    }

    /// Pushed elements go to the ends also of what is not there any more; others stand behind the element that their
    /// origin saw before them.
    fn place_to_insert(
        &mut self,
        effect: &crate::Effect<'_>,
        at: usize,
        trace: &Trace,
        step: &Step,
    ) -> usize {
        match effect {
            crate::Effect::List(Effect::Push { end: End::Front, .. }) => return 0,
            crate::Effect::List(Effect::Push { end: End::Back, .. }) => return self.runs.len(),
            _ => {}
        }
        let anchored = trace.anchors.iter().find_map(|(back, which)| {
            let by = at.checked_sub(*back as usize)?;
            self.cut_removed(by, which + 1);
            let last = |run: &Run| run.removed_from(by).is_some_and(|from| from + run.len == which + 1);
            self.runs.iter().position(last)
        });
        anchored.map_or_else(|| self.place_behind(step.at), |place| place + 1)
    }

    fn insert(&mut self, place: usize, source: Option<usize>, first: u64, len: u64) {
        if len > 0 {
            self.runs.insert(place, Run { source, first, len, removed_by: SmallVec::new() });
        }
    }

    /// Cuts the run in which the element at this place of the present list stands, so that it begins one.
    fn split_there(&mut self, at: u64) {
        self.split(at, Run::is_there);
    }

    fn split(&mut self, at: u64, counts: impl Fn(&Run) -> bool) {
        let mut passed = 0;
        for place in 0..self.runs.len() {
            let run = &self.runs[place];
            if !counts(run) {
                continue;
            }
            if passed < at && at < passed + run.len {
                self.cut(place, at - passed);
                return;
            }
            passed += run.len;
        }
    }

    fn cut(&mut self, place: usize, len: u64) {
        let mut rest = self.runs[place].clone();
        self.runs[place].len = len;
        rest.len -= len;
        rest.first += len;
        rest.removed_by.iter_mut().for_each(|(_, first)| *first += len);
        self.runs.insert(place + 1, rest);
    }

    /// The run that begins with the element at this place of the present list, or the end.
    fn place_there(&self, at: u64) -> usize {
        self.place_of(at, Run::is_there)
    }

    fn place_of(&self, at: u64, counts: impl Fn(&Run) -> bool) -> usize {
        let mut passed = 0;
        for (place, run) in self.runs.iter().enumerate() {
            if counts(run) {
                if passed >= at {
                    return place;
                }
                passed += run.len;
            }
        }
        self.runs.len()
    }

    /// Directly behind the element before this place of the present list.
    fn place_behind(&self, at: u64) -> usize {
        let mut passed = 0;
        for (place, run) in self.runs.iter().enumerate() {
            if at == 0 {
                return 0;
            }
            if run.is_there() {
                passed += run.len;
                if passed >= at {
                    return place + 1;
                }
            }
        }
        self.runs.len()
    }

    /// Cuts what an effect removed at a place among that.
    fn cut_removed(&mut self, by: usize, edge: u64) {
        let inside =
            |run: &Run| run.removed_from(by).is_some_and(|from| from < edge && edge < from + run.len);
        if let Some(place) = self.runs.iter().position(inside)
            && let Some(from) = self.runs[place].removed_from(by)
        {
            self.cut(place, edge - from);
        }
    }

    /// What `other` removed, from the `first` of it on, was meant by `at` too.
    fn mark_also(&mut self, at: usize, other: usize, first: u64, len: u64, mut removed: u64) -> u64 {
        self.cut_removed(other, first);
        self.cut_removed(other, first + len);
        for run in &mut self.runs {
            if run.removed_from(other).is_some_and(|from| first <= from && from < first + len) {
                run.removed_by.push((at, removed));
                removed += run.len;
            }
        }
        removed
    }
}

/// The last effect, which names places of the list that it observed, as effects on the list that is there; and what of
/// it was done already.
pub(super) fn resolve<'e>(among: &Among<'_, 'e>) -> Resolved<'e> {
    let last = among.effects.len() - 1;
    resolve_on(&mut Line::of(among), &among.effects[last], last, &|other| among.observed(last, other))
}

/// The same of an effect at place `last` behind a line, which observed some of those before it.
pub(super) fn resolve_on<'e>(
    line: &mut Line,
    effect: &crate::Effect<'e>,
    last: usize,
    observed: &dyn Fn(usize) -> bool,
) -> Resolved<'e> {
    let crate::Effect::List(effect) = effect else { return Resolved::default() };
    let sees = |run: &Run| run.is_seen(observed);
    let seen: u64 = line.runs.iter().filter(|run| sees(run)).map(|run| run.len).sum();
    let range = |from: u64, to: u64| (from.min(seen), to.min(seen));
    let gone: Vec<(u64, u64)> = match effect {
        Effect::Push { .. } => return Resolved::to(Some(effect.clone())),
        Effect::Pop { end: End::Front, count } => vec![range(0, *count)],
        Effect::Pop { end: End::Back, count } => vec![(seen.saturating_sub(*count), seen)],
        Effect::Keep { start, len } => {
            let (start, end) = range(*start, start.saturating_add(*len));
            vec![(0, start), (end, seen)]
        }
        Effect::RemoveAt { positions } => positions.iter().map(|at| range(at, at + 1)).collect(),
        Effect::Put { index, value } => {
            line.split(*index, sees);
            line.split(*index + 1, sees);
            let place = line.place_of(*index, sees);
            let Some(run) = line.runs.get(place) else { return Resolved::default() };
            let gone = run.removed_by.first().map(|(by, first)| ((last - by) as u64, *first));
            let put = gone.is_none().then(|| Effect::Put { index: position(line, place), value });
            return Resolved { anchors: gone.into_iter().collect(), ..Resolved::to(put) };
        }
        Effect::InsertAt { index, value } => {
            line.split(*index, sees);
            let place = behind(line, *index, sees);
            let insertion = Effect::InsertAt { index: position(line, place), value };
            return Resolved { anchors: anchors(line, place, last), ..Resolved::to(Some(insertion)) };
        }
    };
    remove(line, &gone, sees, last)
}

/// Directly behind so many seen elements.
fn behind(line: &Line, count: u64, sees: impl Fn(&Run) -> bool) -> usize {
    let mut passed = 0;
    for (place, run) in line.runs.iter().enumerate() {
        if count == 0 {
            return 0;
        }
        if sees(run) {
            passed += run.len;
            if passed >= count {
                return place + 1;
            }
        }
    }
    line.runs.len()
}

/// The removed elements between a place and the element before it that is there, the nearest first. What is forgotten are
/// the first effects: of those further to the front only one that was removed later than all before it may be known longer.
fn anchors(line: &Line, place: usize, last: usize) -> Vec<(u64, u64)> {
    let mut anchors: Vec<(u64, u64)> = Vec::new();
    for run in line.runs[..place].iter().rev() {
        let Some((by, first)) = run.removed_by.first() else { break };
        let back = (last - by) as u64;
        if anchors.last().is_none_or(|(other, _)| back < *other) {
            anchors.push((back, first + run.len - 1));
        }
    }
    anchors
}

/// How many elements of the present list stand before a run.
fn position(line: &Line, place: usize) -> u64 {
    line.runs[..place].iter().filter(|run| run.is_there()).map(|run| run.len).sum()
}

/// Removes ranges of the seen list.
fn remove<'e>(
    line: &mut Line,
    gone: &[(u64, u64)],
    sees: impl Fn(&Run) -> bool + Copy,
    last: usize,
) -> Resolved<'e> {
    for (from, to) in gone {
        line.split(*from, sees);
        line.split(*to, sees);
    }
    let (mut positions, mut also) = (Vec::new(), Vec::new());
    let (mut passed, mut there) = (0, 0);
    for run in &line.runs {
        if sees(run) {
            if gone.iter().any(|(from, to)| *from <= passed && passed < *to) {
                match run.removed_by.first() {
                    None => positions.extend(there..there + run.len),
                    Some((by, first)) => also.push(((last - by) as u64, *first, run.len)),
                }
            }
            passed += run.len;
        }
        if run.is_there() {
            there += run.len;
        }
    }
    let removal =
        |positions: Vec<u64>| Effect::RemoveAt { positions: positions.into_iter().collect::<Positions>() };
    Resolved { also, ..Resolved::to((!positions.is_empty()).then(|| removal(positions))) }
}

/// A deletion of everything that was observed, as effects on the list that is there.
pub(super) fn resolve_deletion<'e>(among: &Among<'_, 'e>) -> Resolved<'e> {
    let last = among.effects.len() - 1;
    resolve_deletion_on(&mut Line::of(among), last, &|other| among.observed(last, other))
}

/// The same of a deletion at place `last` behind a line.
pub(super) fn resolve_deletion_on<'e>(
    line: &mut Line,
    last: usize,
    observed: &dyn Fn(usize) -> bool,
) -> Resolved<'e> {
    remove(line, &[(0, u64::MAX)], |run: &Run| run.is_seen(observed), last)
}
