//! What concurrent effects on a key come to (Corrections 75): the table of `docs/internals/merging.md`, as functions.
//!
//! Effects take place in one total order. Each observed some of those before it; those that it did not observe are
//! *concurrent* with it. [`perform`] does the last effect of a sequence to the state that the others made, so that it
//! resets only what it observed. Whoever performs the same effects in the same order gets the same state, in whatever
//! order they arrived; what the state is follows from these rules:
//!
//! - An effect is dead where a later one that observed it replaced or removed what it did.
//! - A key's type is that of the last live effect that says one; effects of other types wait until it dies.
//! - A register, a field or a score is what the last live write of it says, and on top every live addition. Edits of a
//!   register (appended bytes, bits, floating-point sums, HyperLogLogs) come on top as they are, in their order.
//! - A member is there if a live addition of it is.
//! - A list's elements are pushed, removed and replaced by identity; see [`line`](self) and [`Trace`].
//! - A deadline, of a key or of a field, is what the last live write of it says. Who writes a field says its deadline, too.
//!
//! An effect that observed all before it is performed as [`apply`] does. The state stores nothing for any of this: who
//! performed what lives in the sequence, as long as something that has not observed it may come.

mod contest;
mod early;
mod elements;
mod items;
mod line;
mod listed;
mod lost;
mod render;
mod replay;
mod streams;
mod touched;
mod typed;

pub use contest::Contest;
pub use early::{may_be_hidden, may_go, may_hide_later, replaces_element, says_deadline};
pub use line::{Step, Trace};
pub use lost::{Loss, LostPart, lost};
pub use replay::{Origin, Replay};
use typed::{live_part, perform_typed};

use crate::cell::Elements;
use crate::{Cell, Effect, Items, Kind, Operation, Patch, apply, dict, key, list, register, scored_set, set};
use types::Reader;

/// Effects on a key in their order, up to the one that is to be performed.
pub struct Among<'a, 'e> {
    /// The effects.
    pub effects: &'a [Effect<'e>],
    /// What each of the earlier ones did to a list, if it met or made one.
    pub traces: &'a [Option<&'a Trace>],
    /// Whether the first of two effects, by their place, observed the second, which is earlier.
    pub sees: &'a dyn Fn(usize, usize) -> bool,
}

impl Among<'_, '_> {
    fn observed(&self, later: usize, earlier: usize) -> bool {
        earlier < later && (self.sees)(later, earlier)
    }
}

/// What performing an effect changed.
#[derive(Debug)]
pub struct Performed {
    /// Takes it back.
    pub patch: Patch,
    /// What it did to a list.
    pub trace: Option<Trace>,
}

/// The effect that an operation has although it changes nothing where it is evaluated, because it says something that
/// a concurrent effect elsewhere may contradict: an addition of a member that is there, or has the score; a bit that is set
/// already, elements that a HyperLogLog has.
pub fn assertion<'a>(operation: &Operation<'a>) -> Option<Effect<'a>> {
    match operation {
        Operation::Set(set::Operation::Add { .. })
        | Operation::ScoredSet(scored_set::Operation::Add { .. })
        | Operation::Register(register::Operation::SetBit { .. } | register::Operation::Unite { .. }) => {
            operation.blind_effect()
        }
        _ => None,
    }
}

/// Performs an effect that observed everything before it. One of another type, which only an effect that was chosen
/// without a look at the key can be, makes the key one of its type.
pub fn perform_plainly(cell: &mut Cell, effect: &Effect<'_>) -> Performed {
    let before = list_len(cell);
    let changes_type =
        cell.value.is_some() && lasting_kind(effect).is_some_and(|kind| Some(kind) != cell.kind());
    let patch = if changes_type && !is_reset(effect) {
        let other = std::mem::take(cell);
        apply::<false>(cell, effect);
        Patch::Cell(other)
    } else {
        apply::<true>(cell, effect)
    };
    let trace = trace(before, cell, &patch);
    Performed { patch, trace }
}

fn list_len(cell: &Cell) -> Option<u64> {
    match &cell.value {
        Some(crate::Value::List(list)) => Some(list.len() as u64),
        _ => None,
    }
}

fn trace(before: Option<u64>, cell: &Cell, patch: &Patch) -> Option<Trace> {
    let mut trace = Trace { before: before.unwrap_or(0), ..Trace::default() };
    note_steps(&mut trace, before, list_len(cell), patch);
    (before.is_some() || list_len(cell).is_some()).then_some(trace)
}

/// Notes what an effect did to a list that had `before` elements.
fn note_steps(trace: &mut Trace, before: Option<u64>, after: Option<u64>, patch: &Patch) {
    match patch {
        Patch::Elements { elements: Elements::List(patch), .. } => trace.steps.extend(patch.steps()),
        Patch::Cell(_) => {
            let (removed, inserted) = (before.unwrap_or(0), after.unwrap_or(0));
            trace.steps.push(Step { at: 0, removed, inserted });
        }
        Patch::Many(patches) => {
            // Made of effects on a list that stays one until the last.
            patches.iter().for_each(|patch| note_steps(trace, before, after, patch));
        }
        _ => {}
    }
}

/// Performs the last of `among` on the state that the others made.
pub fn perform(cell: &mut Cell, among: &Among<'_, '_>) -> Performed {
    let last = among.effects.len() - 1;
    let effect = &among.effects[last];
    let concurrent = (0..last).any(|other| !among.observed(last, other));
    let kind = lasting_kind(effect);
    let before = list_len(cell);
    let mut noted = Trace::default();
    let deletes = is_reset(effect) && kind.is_none();
    let patch = if !concurrent {
        return perform_plainly(cell, effect);
    } else if deletes && cell.value.is_none() {
        // It meant to remove what others had removed without its knowledge.
        noted.also = line::resolve_deletion(among).also;
        Patch::Nothing
    } else if let Effect::Key(key::Effect::SetDeadline(_) | key::Effect::Resolve { .. }) = effect {
        apply::<true>(cell, effect)
    } else if deletes && before.is_some() {
        let resolved = line::resolve_deletion(among);
        noted.also = resolved.also;
        delete_elements(cell, &resolved.effects, among)
    } else if is_reset(effect) || (kind.is_some() && cell.kind().is_some_and(|held| Some(held) != kind)) {
        replace(cell, rebuilt(cell, among, kind, None))
    } else {
        let held = cell.kind();
        let patch = perform_typed(cell, among, &mut noted);
        match cell.value {
            // A value that another type hid comes forth.
            None if held.is_some() => {
                Patch::Many(vec![patch, replace(cell, rebuilt(cell, among, None, held))])
            }
            _ => patch,
        }
    };
    let trace = note_trace(before, cell, &patch, noted);
    Performed { patch, trace }
}

/// What an effect did to a list, with what was noted beside.
fn note_trace(before: Option<u64>, cell: &Cell, patch: &Patch, noted: Trace) -> Option<Trace> {
    // What it meant to remove or to replace may be gone with the whole list.
    let meant = || (!noted.also.is_empty() || !noted.anchors.is_empty()).then(Trace::default);
    let mut trace = trace(before, cell, patch).or_else(meant);
    if let Some(trace) = &mut trace {
        (trace.also, trace.anchors) = (noted.also, noted.anchors);
    }
    trace
}

fn replace(cell: &mut Cell, new: Cell) -> Patch {
    Patch::Cell(std::mem::replace(cell, new))
}

/// Deletes what was observed of a list. What is left when nothing is, other effects say.
fn delete_elements(cell: &mut Cell, effects: &[list::Effect<'_>], among: &Among<'_, '_>) -> Patch {
    let mut patches: Vec<Patch> =
        effects.iter().map(|effect| apply::<true>(cell, &Effect::List(effect.clone()))).collect();
    if cell.value.is_none() {
        let new = rebuilt(cell, among, None, Some(Kind::List));
        if new.value.is_some() {
            patches.push(replace(cell, new));
        }
    } else {
        let expires_at = deadline(among, &concurrent_live(among), 0);
        let before = std::mem::replace(&mut cell.expires_at, expires_at);
        patches.push(Patch::Expiry(before));
    }
    Patch::Many(patches)
}

/// The type that an effect says the key has: the last one that says one is right.
fn said_kind(effect: &Effect<'_>) -> Option<Kind> {
    match effect {
        Effect::Register(register::Effect::Set { .. }) => Some(Kind::Register),
        Effect::Key(key::Effect::Restore(bytes)) => {
            Cell::decode(&mut Reader::new(bytes)).ok().and_then(|cell| cell.kind())
        }
        // Removals alone keep nothing in being.
        effect => effect.kind(),
    }
}

/// True for an effect that replaces or removes all that it observed.
pub fn is_reset(effect: &Effect<'_>) -> bool {
    matches!(
        effect,
        Effect::Key(key::Effect::Delete | key::Effect::Restore(_))
            | Effect::Register(register::Effect::Set { .. } | register::Effect::Delete)
    )
}

/// True for an effect after which the state is what it says, whatever the state was and whatever it observed of it, among effects
/// that are all of this kind.
pub fn is_whole_write(effect: &Effect<'_>) -> bool {
    let Effect::Register(register::Effect::Set { deadline, .. }) = effect else { return false };
    !matches!(deadline, register::Deadline::Keep)
}

/// True if nothing before the last effect that observed this one reset the key, or did something to it as to a key of
/// another type.
fn is_live(among: &Among<'_, '_>, place: usize) -> bool {
    let last = among.effects.len() - 1;
    !(place + 1..last).any(|later| {
        among.observed(later, place) && (is_reset(&among.effects[later]) || passes_over(among, later, place))
    })
}

/// True if the later effect observed the earlier one and took the key for one of another type: the earlier one was out of
/// sight already.
fn passes_over(among: &Among<'_, '_>, later: usize, earlier: usize) -> bool {
    let (Some(kind), Some(other)) = (among.effects[later].kind(), said_kind(&among.effects[earlier])) else {
        return false;
    };
    let hides = |between: usize| {
        lasting_kind(&among.effects[between]) == Some(kind) && among.observed(later, between)
    };
    kind != other && (lasting_kind(&among.effects[later]).is_some() || (earlier + 1..later).any(hides))
}

/// The live effects that the last one did not observe.
fn concurrent_live(among: &Among<'_, '_>) -> Vec<usize> {
    let last = among.effects.len() - 1;
    (0..last).filter(|place| !among.observed(last, *place) && is_live(among, *place)).collect()
}

/// True if the type that the key has now is what an effect says that the last one did not observe.
fn is_contested(among: &Among<'_, '_>, held: Kind) -> bool {
    concurrent_live(among).iter().any(|place| lasting_kind(&among.effects[*place]) == Some(held))
}

/// What the deadline is after these effects, in order.
fn deadline(among: &Among<'_, '_>, places: &[usize], from: u64) -> u64 {
    places.iter().fold(from, |deadline, place| match &among.effects[*place] {
        Effect::Key(key::Effect::SetDeadline(at)) => *at,
        Effect::Register(register::Effect::Set { deadline: written, .. }) => match written {
            register::Deadline::Clear => 0,
            register::Deadline::Keep => deadline,
            register::Deadline::At { millis } => *millis,
        },
        Effect::Key(key::Effect::Restore(bytes)) => {
            Cell::decode(&mut Reader::new(bytes)).map_or(deadline, |cell| cell.expires_at)
        }
        _ => deadline,
    })
}

/// The state made anew of what is live: after a reset of what it did not observe, after a change of type of all that
/// says the new one. `kind` is the type that the last effect says, if it says one; of type `except` nothing is left.
fn rebuilt(cell: &Cell, among: &Among<'_, '_>, kind: Option<Kind>, except: Option<Kind>) -> Cell {
    let last = among.effects.len() - 1;
    // With the last element went its type.
    let contested = cell.kind().is_some_and(|held| is_contested(among, held));
    let reset = is_reset(&among.effects[last]) || kind.is_none() || !contested;
    let mut live: Vec<usize> = match reset {
        true => concurrent_live(among),
        false => {
            let is_deadline =
                |place: usize| matches!(among.effects[place], Effect::Key(key::Effect::SetDeadline(_)));
            // A deadline goes with the value that it was written for.
            let goes_on = |place: usize| !is_deadline(place) || is_for(among, place, kind);
            (0..last).filter(|place| is_live(among, *place) && goes_on(*place)).collect()
        }
    };
    let deadline_before_it = if reset { deadline_before(cell, &among.effects[last]) } else { 0 };
    if let Some(kind) = kind {
        live.push(last);
        return made_of(among, &live, kind, deadline_before_it);
    }
    let said = live.iter().rev().filter_map(|place| lasting_kind(&among.effects[*place]));
    let mut made =
        said.filter(|kind| Some(*kind) != except).map(|kind| made_of(among, &live, kind, deadline_before_it));
    // The elements that the last one to say a type added may all be gone.
    made.find(|cell| cell.value.is_some()).unwrap_or_default()
}

/// True if an effect observed a live one of this type.
fn is_for(among: &Among<'_, '_>, place: usize, kind: Option<Kind>) -> bool {
    (0..place).any(|earlier| {
        among.observed(place, earlier)
            && said_kind(&among.effects[earlier]) == kind
            && is_live(among, earlier)
            && live_part(among, earlier).is_some()
    })
}

/// What live effects of one type make, with a deadline to begin with.
fn made_of(among: &Among<'_, '_>, live: &[usize], kind: Kind, deadline_before: u64) -> Cell {
    let mut new = Cell::default();
    let same = |place: &&usize| said_kind(&among.effects[**place]) == Some(kind);
    let base = live.iter().filter(same).rfind(|place| is_reset(&among.effects[**place]));
    match base {
        Some(base) => drop(apply::<false>(&mut new, &among.effects[*base])),
        None if kind == Kind::List => new = list_alone(among),
        None => {}
    }
    let alone = base.is_none() && kind == Kind::List;
    let others = live.iter().filter(|place| !alone && same(place)).copied();
    let others: Vec<usize> = others.filter(|place| !is_reset(&among.effects[*place])).collect();
    let parts: Vec<Option<Effect<'_>>> = others.iter().map(|place| live_part(among, *place)).collect();
    for at in 0..parts.len() {
        // Elements of the whole value stay beside a removal that did not observe them.
        let whole = base.map(|base| (*base, &among.effects[*base]));
        let before = (0..=at).filter_map(|other| Some((others[other], parts[other].as_ref()?)));
        let effects: Vec<(usize, &Effect<'_>)> = whole.into_iter().chain(before).collect();
        if parts[at].is_some() {
            again(&mut new, among, &effects);
        }
    }
    if new.value.is_some() {
        new.expires_at = deadline(among, live, deadline_before);
    }
    new
}

/// The list that effects make if those of other types only remove.
fn list_alone(among: &Among<'_, '_>) -> Cell {
    let of_other_type = |place: usize, kind: Kind| {
        let says = |at: usize| lasting_kind(&among.effects[at]) == Some(kind);
        kind != Kind::List && (says(place) || (0..place).any(|at| says(at) && among.observed(place, at)))
    };
    let removal = |place: usize, effect: &Effect<'_>| {
        let passes = said_kind(effect).is_some_and(|kind| of_other_type(place, kind));
        (is_reset(effect) || passes).then_some(Effect::DELETE)
    };
    let (mut places, mut effects) = (Vec::new(), Vec::new());
    for (place, effect) in among.effects.iter().enumerate() {
        let list = matches!(effect, Effect::List(_)).then(|| effect.clone());
        if let Some(effect) = list.or_else(|| removal(place, effect)) {
            places.push(place);
            effects.push(effect);
        }
    }
    // What was there before is dead, but those who saw it counted places in it.
    let before = among.traces.iter().flatten().next().map_or(0, |trace| trace.before);
    let values = Items::collect((0..before).map(|_| &b""[..]));
    let mut cell = Cell::default();
    apply::<false>(&mut cell, &Effect::List(list::Effect::Push { end: list::End::Back, values }));
    let mut traces: Vec<Option<Trace>> = Vec::new();
    let sees = |later: usize, earlier: usize| among.observed(places[later], places[earlier]);
    for end in 1..=effects.len() {
        let known: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).chain([None]).collect();
        let performed = perform(&mut cell, &Among { effects: &effects[..end], traces: &known, sees: &sees });
        traces.push(performed.trace);
    }
    cell
}

/// The deadline that a reset keeps.
fn deadline_before(cell: &Cell, effect: &Effect<'_>) -> u64 {
    match effect {
        Effect::Register(register::Effect::Set { deadline: register::Deadline::Keep, .. }) => cell.expires_at,
        _ => 0,
    }
}

/// The type that an effect gives to a key that is absent otherwise.
pub fn lasting_kind(effect: &Effect<'_>) -> Option<Kind> {
    let removes = matches!(
        effect,
        Effect::Dict(dict::Effect::Remove { .. } | dict::Effect::SetDeadline { .. })
            | Effect::Set(set::Effect::Remove { .. })
            | Effect::ScoredSet(scored_set::Effect::Remove { .. })
            | Effect::List(
                list::Effect::Pop { .. }
                    | list::Effect::Put { .. }
                    | list::Effect::Keep { .. }
                    | list::Effect::RemoveAt { .. }
            )
    ) || matches!(effect, Effect::Stream(effect) if !effect.creates());
    if removes { None } else { said_kind(effect) }
}

/// Performs the last of some effects of one type, none of them a reset, again.
fn again(new: &mut Cell, among: &Among<'_, '_>, effects: &[(usize, &Effect<'_>)]) {
    let (_, effect) = effects[effects.len() - 1];
    match effect {
        Effect::List(list::Effect::Push { .. }) => drop(apply::<false>(new, effect)),
        // Places mean nothing in a list that was made anew.
        Effect::List(list::Effect::InsertAt { value, .. }) => {
            let push = list::Effect::Push { end: list::End::Back, values: Items::one(value) };
            apply::<false>(new, &Effect::List(push));
        }
        Effect::List(_) => {}
        _ => {
            let subset: Vec<Effect<'_>> = effects.iter().map(|(_, effect)| (*effect).clone()).collect();
            let sees = |later: usize, earlier: usize| among.observed(effects[later].0, effects[earlier].0);
            let traces = vec![None; subset.len()];
            let among = Among { effects: &subset, traces: &traces, sees: &sees };
            perform_typed(new, &among, &mut Trace::default());
        }
    }
}

/// True for an effect that does the same whatever it observed: it only adds, to a key of its type, or says a deadline.
pub fn stands_alone(cell: &Cell, effect: &Effect<'_>) -> bool {
    let adds = match effect {
        Effect::Key(effect) => {
            return matches!(effect, key::Effect::SetDeadline(_) | key::Effect::Resolve { .. });
        }
        Effect::Register(effect) => matches!(effect, register::Effect::Add { .. }) || effect.is_edit(),
        Effect::Dict(effect) => {
            matches!(effect, dict::Effect::Add { .. } | dict::Effect::SetDeadline { .. })
        }
        Effect::Set(effect) => matches!(effect, set::Effect::Add { .. }),
        Effect::ScoredSet(effect) => matches!(effect, scored_set::Effect::Add { .. }),
        Effect::List(effect) => matches!(effect, list::Effect::Push { .. }),
        Effect::Counter(_) | Effect::SummaryBag(_) | Effect::Top(_) | Effect::UidGenerator(_) => true,
        Effect::Stream(effect) => effect.stands_alone(),
        Effect::User(_) => false,
    };
    adds && (cell.value.is_none() || cell.kind() == effect.kind())
}
