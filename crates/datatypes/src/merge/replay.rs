//! Many effects one after the other: what [`perform`](super::perform) does to the last of some, done to each of a run, at
//! the price of what each meets, not of a look at all before it.
//!
//! Of one group, an effect has observed those up to a place and none after. So what is dead of a group by a reset is all
//! up to a place, too, and so it is with what is said of one element. An index keeps these places, for the key as a whole
//! and by element: for each group the last live write and the live additions with their sum. Everything that is noted is
//! noted once and dropped once.
//!
//! Where effects of several types met, or a whole value was put, each effect looks at all before it; of those on streams
//! only a deletion does.

use super::elements::{Elements, each_element};
use super::line::{self, Line};
use super::streams::{self, Earlier};
use super::{
    Among, Performed, Trace, deadline_before, is_reset, lasting_kind, list_len, note_trace, perform,
    perform_plainly, replace, stands_alone,
};
use crate::{Cell, Effect, Kind, Patch, apply, key, register, stream};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

/// Where an effect comes from: the group whose effects observe one another in their order, and what of the others it
/// observed. What an effect observed of one group is all up to some place in the order.
pub trait Origin: Copy {
    /// Whose it is.
    fn group(&self) -> u16;
    /// True if it observed an effect before it.
    fn observed(&self, earlier: &Self) -> bool;
}

/// The first place of each group that an effect did not observe, by the group's number here.
pub(super) type Bounds = SmallVec<[usize; 4]>;

/// What is known of the effects of one group.
#[derive(Debug)]
pub(super) struct Group {
    id: u16,
    /// Where its effects stand.
    places: Vec<usize>,
    /// Its effects before this place were reset by somebody who had observed them.
    pub(super) dead: usize,
    /// What its effects say of the key's deadline.
    deadlines: Vec<(usize, u64)>,
    /// Writes of a register.
    writes: Vec<usize>,
    /// Live additions to a register, and their sum.
    adds: VecDeque<(usize, i64)>,
    sum: i64,
    /// Live edits of a register.
    edits: VecDeque<usize>,
}

impl Group {
    fn new(id: u16) -> Self {
        Group {
            id,
            places: Vec::new(),
            dead: 0,
            deadlines: Vec::new(),
            writes: Vec::new(),
            adds: VecDeque::new(),
            sum: 0,
            edits: VecDeque::new(),
        }
    }

    /// What stands before this place is dead.
    fn reset(&mut self, bound: usize) {
        self.dead = self.dead.max(bound);
        while let Some((_, by)) = self.adds.pop_front_if(|(place, _)| *place < self.dead) {
            self.sum = self.sum.wrapping_sub(by);
        }
        while self.edits.pop_front_if(|place| *place < self.dead).is_some() {}
    }

    /// The places from one on, in order.
    fn places_from(&self, from: usize) -> &[usize] {
        &self.places[self.places.partition_point(|place| *place < from)..]
    }

    fn last_live_write(&self) -> Option<usize> {
        self.writes.last().copied().filter(|place| *place >= self.dead)
    }
}

/// Of which type everything is that the effects say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Unknown,
    Of(Kind),
    /// Several, or whole values.
    Mixed,
}

/// See the module. Feed it effects on one key in their order: with [`Replay::pass`] those that the state holds already,
/// with [`Replay::perform`] those that follow, each of which has observed what is part of the state beside.
pub struct Replay<'e, O> {
    origins: Vec<O>,
    effects: Vec<Effect<'e>>,
    traces: Vec<Option<Cow<'e, Trace>>>,
    groups: Vec<Group>,
    elements: Elements,
    way: Way,
    streams: streams::Index<'e>,
    /// The elements of a list, up to those of some effect.
    line: Line,
    lined: usize,
    /// The state may hold what effects before the first one said.
    based: bool,
    steps: u64,
}

impl<O: Origin> Default for Replay<'_, O> {
    fn default() -> Self {
        Replay {
            origins: Vec::new(),
            effects: Vec::new(),
            traces: Vec::new(),
            groups: Vec::new(),
            elements: Elements::default(),
            streams: streams::Index::default(),
            way: Way::Unknown,
            line: Line::default(),
            lined: 0,
            based: true,
            steps: 0,
        }
    }
}

impl<'e, O: Origin> Replay<'e, O> {
    /// How many steps everything took so far: effects, elements and pieces of lists that were looked at.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Notes an effect that the state holds already, and what it did to a list.
    pub fn pass(&mut self, origin: O, effect: Effect<'e>, trace: Option<Cow<'e, Trace>>) {
        let (bounds, based) = (self.bounds(origin), self.based);
        self.learn_way(&effect);
        if trace.is_some() {
            // A deletion does not say that there was a list. Whoever deletes the same one meant its elements, too.
            self.way = match self.way {
                Way::Unknown | Way::Of(Kind::List) => Way::Of(Kind::List),
                _ => Way::Mixed,
            };
        }
        self.note(origin, effect, trace, &bounds);
        // It need not have observed what stands before the first effect here.
        self.based = based;
    }

    /// Performs an effect on the state that those before it made.
    pub fn perform(&mut self, cell: &mut Cell, origin: O, effect: Effect<'e>) -> Performed {
        let place = self.effects.len();
        let bounds = self.bounds(origin);
        self.based &= cell.value.is_some();
        self.learn_way(&effect);
        match (self.way, cell.kind()) {
            (Way::Unknown, Some(kind)) => self.way = Way::Of(kind),
            (Way::Of(kind), Some(held)) if kind != held => self.way = Way::Mixed,
            _ => {}
        }
        let is_concurrent = bounds.iter().any(|bound| *bound < place);
        let performed = if !is_concurrent || stands_alone(cell, &effect) {
            perform_plainly(cell, &effect)
        } else if self.way == Way::Mixed || self.way == Way::Of(Kind::Stream) && is_reset(&effect) {
            self.perform_mixed(cell, origin, &effect)
        } else {
            self.perform_concurrent(cell, origin, &effect, &bounds)
        };
        let trace = performed.trace.clone().map(Cow::Owned);
        self.note(origin, effect, trace, &bounds);
        performed
    }

    fn learn_way(&mut self, effect: &Effect<'_>) {
        let kind = match effect {
            Effect::Key(key::Effect::Restore(_)) => return self.way = Way::Mixed,
            Effect::Key(_) => return,
            Effect::Register(_) => Kind::Register,
            effect => match effect.kind() {
                Some(kind) => kind,
                None => return,
            },
        };
        self.way = match self.way {
            Way::Unknown => Way::Of(kind),
            Way::Of(known) if known == kind => Way::Of(kind),
            _ => Way::Mixed,
        };
    }

    fn bounds(&self, origin: O) -> Bounds {
        let (next, id) = (self.effects.len(), origin.group());
        let first_unseen = |group: &Group| {
            if group.id == id {
                return next;
            }
            let seen = group.places.partition_point(|place| origin.observed(&self.origins[*place]));
            group.places.get(seen).copied().unwrap_or(next)
        };
        self.groups.iter().map(first_unseen).collect()
    }

    /// The number of a group here.
    fn number(&mut self, id: u16) -> usize {
        let known = self.groups.iter().position(|group| group.id == id);
        known.unwrap_or_else(|| {
            self.groups.push(Group::new(id));
            self.groups.len() - 1
        })
    }

    fn note(&mut self, origin: O, effect: Effect<'e>, trace: Option<Cow<'e, Trace>>, bounds: &Bounds) {
        let place = self.effects.len();
        self.steps += 1;
        let number = self.number(origin.group());
        if self.way != Way::Mixed {
            self.note_said(number, place, &effect, bounds);
        }
        self.groups[number].places.push(place);
        self.origins.push(origin);
        self.effects.push(effect);
        self.traces.push(trace);
    }

    fn note_said(&mut self, number: usize, place: usize, effect: &Effect<'e>, bounds: &Bounds) {
        if is_reset(effect) {
            self.reset(bounds);
            self.groups[number].reset(place);
            self.based = false;
        }
        let group = &mut self.groups[number];
        match effect {
            Effect::Key(key::Effect::SetDeadline(at)) => group.deadlines.push((place, *at)),
            Effect::Register(register::Effect::Set { deadline, .. }) => {
                group.writes.push(place);
                match deadline {
                    register::Deadline::Clear => group.deadlines.push((place, 0)),
                    register::Deadline::At { millis } => group.deadlines.push((place, *millis)),
                    register::Deadline::Keep => {}
                }
            }
            Effect::Register(register::Effect::Add { by }) => {
                group.adds.push_back((place, *by));
                group.sum = group.sum.wrapping_add(*by);
            }
            Effect::Register(edit) if edit.is_edit() => group.edits.push_back(place),
            Effect::Stream(effect) => self.steps += self.streams.note((number, place), effect),
            effect => self.steps += self.elements.note(&self.groups, number, place, effect, bounds),
        }
    }

    fn reset(&mut self, bounds: &Bounds) {
        for (group, bound) in self.groups.iter_mut().zip(bounds) {
            group.reset(*bound);
        }
    }

    /// What the live effects say of the deadline, or else `from`.
    fn deadline(&self, from: u64) -> u64 {
        let last = |group: &Group| group.deadlines.last().copied().filter(|(place, _)| *place >= group.dead);
        self.groups.iter().filter_map(last).max().map_or(from, |(_, at)| at)
    }

    fn perform_mixed(&mut self, cell: &mut Cell, origin: O, effect: &Effect<'e>) -> Performed {
        self.steps += self.effects.len() as u64;
        self.origins.push(origin);
        self.effects.push(effect.clone());
        let known: Vec<Option<&Trace>> = self.traces.iter().map(Option::as_deref).chain([None]).collect();
        let sees = |later: usize, earlier: usize| self.origins[later].observed(&self.origins[earlier]);
        let performed = perform(cell, &Among { effects: &self.effects, traces: &known, sees: &sees });
        self.origins.pop();
        self.effects.pop();
        performed
    }

    /// Performs an effect that has not observed all before it, where all are of one type.
    fn perform_concurrent(
        &mut self,
        cell: &mut Cell,
        origin: O,
        effect: &Effect<'e>,
        bounds: &Bounds,
    ) -> Performed {
        let (before, held) = (list_len(cell), cell.kind());
        let deletes = is_reset(effect) && lasting_kind(effect).is_none();
        let mut noted = Trace::default();
        let patch = match (self.way, effect) {
            (Way::Of(Kind::List), _) if deletes => self.delete_list(cell, origin, &mut noted, bounds),
            (Way::Of(Kind::List), effect) => self.change_list(cell, origin, effect, &mut noted),
            _ if deletes && cell.value.is_none() => Patch::Nothing,
            (Way::Of(Kind::Register), effect) if is_reset(effect) => {
                let deadline_before_it = deadline_before(cell, effect);
                self.reset(bounds);
                self.rewrite(cell, effect, deadline_before_it)
            }
            (Way::Of(Kind::Set | Kind::Dict | Kind::ScoredSet), _) if deletes => {
                self.delete_elements(cell, bounds)
            }
            (Way::Of(Kind::Set | Kind::Dict | Kind::ScoredSet), effect) => {
                let mut patches = Vec::new();
                let perform = |effect: &Effect<'_>| patches.push(apply::<true>(cell, effect));
                self.steps += self.elements.resolve(&self.groups, &self.effects, effect, bounds, perform);
                Patch::Many(patches)
            }
            (Way::Of(Kind::Stream), Effect::Stream(effect)) => {
                self.change_stream(cell, origin, effect, bounds)
            }
            (_, effect) if is_reset(effect) => {
                self.reset(bounds);
                self.add_again(cell)
            }
            (_, effect) => apply::<true>(cell, effect),
        };
        let patch = match cell.value {
            None if held.is_some() && !deletes => Patch::Many(vec![patch, replace(cell, Cell::default())]),
            _ => patch,
        };
        let trace = note_trace(before, cell, &patch, noted);
        Performed { patch, trace }
    }

    /// A register is written or deleted: the additions that were not observed come on top of the last write.
    fn rewrite(&mut self, cell: &mut Cell, effect: &Effect<'_>, deadline_before_it: u64) -> Patch {
        let mut new = Cell::default();
        let mut expires_at = self.deadline(deadline_before_it);
        let mut set = |value: &[u8]| {
            let deadline = register::Deadline::Clear;
            apply::<false>(&mut new, &Effect::Register(register::Effect::Set { value, deadline }));
        };
        if let Effect::Register(register::Effect::Set { value, deadline }) = effect {
            set(value);
            match deadline {
                register::Deadline::Clear => expires_at = 0,
                register::Deadline::At { millis } => expires_at = *millis,
                register::Deadline::Keep => {}
            }
        } else if let Some(place) = self.groups.iter().filter_map(Group::last_live_write).max()
            && let Effect::Register(register::Effect::Set { value, .. }) = &self.effects[place]
        {
            set(value);
        }
        if self.groups.iter().all(|group| group.edits.is_empty()) {
            if self.groups.iter().any(|group| !group.adds.is_empty()) {
                let by = self.groups.iter().fold(0i64, |sum, group| sum.wrapping_add(group.sum));
                apply::<false>(&mut new, &Effect::Register(register::Effect::Add { by }));
            }
        } else {
            let added = |group: &Group| -> Vec<usize> {
                group.adds.iter().map(|(place, _)| *place).chain(group.edits.iter().copied()).collect()
            };
            let mut places: Vec<usize> = self.groups.iter().flat_map(added).collect();
            places.sort_unstable();
            self.steps += places.len() as u64;
            places.iter().for_each(|place| drop(apply::<false>(&mut new, &self.effects[*place])));
        }
        if new.value.is_some() {
            new.expires_at = expires_at;
        }
        replace(cell, new)
    }

    /// A value of a type that is only added to is deleted: what was not observed is added anew.
    fn add_again(&mut self, cell: &mut Cell) -> Patch {
        let mut places: Vec<usize> =
            self.groups.iter().flat_map(|group| group.places_from(group.dead).to_vec()).collect();
        places.sort_unstable();
        self.steps += places.len() as u64;
        let mut new = Cell::default();
        for place in places {
            if self.effects[place].kind().is_some() {
                apply::<false>(&mut new, &self.effects[place]);
            }
        }
        if new.value.is_some() {
            new.expires_at = self.deadline(0);
        }
        replace(cell, new)
    }

    /// A collection is deleted: what was not observed of its elements stays. Where nothing but the effects here made the
    /// state, only what dies now is looked at.
    fn delete_elements(&mut self, cell: &mut Cell, bounds: &Bounds) -> Patch {
        let before: Vec<usize> = self.groups.iter().map(|group| group.dead).collect();
        self.reset(bounds);
        let based = std::mem::take(&mut self.based);
        let mut changed: BTreeSet<Box<[u8]>> = BTreeSet::new();
        for (group, before) in self.groups.iter().zip(before) {
            let places = match based {
                true => group.places_from(group.dead),
                false => {
                    let places = group.places_from(before);
                    &places[..places.partition_point(|place| *place < group.dead)]
                }
            };
            for place in places {
                self.steps += 1;
                each_element(&self.effects[*place], |element| {
                    changed.insert(element.into());
                });
            }
        }
        let Way::Of(kind) = self.way else { return Patch::Nothing };
        if based {
            let mut new = Cell::default();
            let perform = |effect: &Effect<'_>| drop(apply::<false>(&mut new, effect));
            self.steps += self.elements.again(&self.groups, &self.effects, kind, &changed, perform);
            if new.value.is_some() {
                new.expires_at = self.deadline(0);
            }
            return replace(cell, new);
        }
        let mut patches = Vec::new();
        let perform = |effect: &Effect<'_>| patches.push(apply::<true>(cell, effect));
        self.steps += self.elements.again(&self.groups, &self.effects, kind, &changed, perform);
        self.put_deadline(cell, &mut patches);
        Patch::Many(patches)
    }

    /// What is left after a deletion has the deadline that was not observed.
    fn put_deadline(&self, cell: &mut Cell, patches: &mut Vec<Patch>) {
        if cell.value.is_some() {
            let expires_at = self.deadline(0);
            patches.push(Patch::Expiry(std::mem::replace(&mut cell.expires_at, expires_at)));
        }
    }

    /// The line of all elements that the effects so far know.
    fn lengthen_line(&mut self) {
        for place in self.lined..self.effects.len() {
            self.steps += 1 + self.line.len() as u64;
            self.line.pass(place, &self.effects[place], self.traces[place].as_deref());
        }
        self.lined = self.effects.len();
    }

    fn change_list(&mut self, cell: &mut Cell, origin: O, effect: &Effect<'e>, noted: &mut Trace) -> Patch {
        self.lengthen_line();
        self.steps += self.line.len() as u64;
        let (origins, place) = (&self.origins, self.effects.len());
        let observed = |other: usize| origin.observed(&origins[other]);
        let resolved = line::resolve_on(&mut self.line, effect, place, &observed);
        (noted.also, noted.anchors) = (resolved.also, resolved.anchors);
        let effects = resolved.effects.into_iter().map(Effect::List);
        Patch::Many(effects.map(|effect| apply::<true>(cell, &effect)).collect())
    }

    fn change_stream(
        &mut self,
        cell: &mut Cell,
        origin: O,
        effect: &stream::Effect<'e>,
        bounds: &Bounds,
    ) -> Patch {
        let unseen: Vec<usize> =
            self.groups.iter().zip(bounds).map(|(group, bound)| group.dead.max(*bound)).collect();
        let looked = std::cell::Cell::new(0);
        let places = |about: streams::About<'_>| {
            let found = self.streams.places(&unseen, about);
            looked.set(looked.get() + 1 + found.len() as u64);
            found
        };
        let place = self.effects.len();
        let sees = |later: usize, earlier: usize| {
            let later = if later == place { &origin } else { &self.origins[later] };
            later.observed(&self.origins[earlier])
        };
        let earlier = Earlier { effects: &self.effects, places: &places, sees: &sees };
        let resolved = streams::resolve(cell, &earlier, effect);
        self.steps += looked.get();
        Patch::Many(resolved.iter().map(|effect| apply::<true>(cell, effect)).collect())
    }

    fn delete_list(&mut self, cell: &mut Cell, origin: O, noted: &mut Trace, bounds: &Bounds) -> Patch {
        self.lengthen_line();
        self.steps += self.line.len() as u64;
        let (origins, place) = (&self.origins, self.effects.len());
        let observed = |other: usize| origin.observed(&origins[other]);
        let resolved = line::resolve_deletion_on(&mut self.line, place, &observed);
        noted.also = resolved.also;
        if cell.value.is_none() {
            return Patch::Nothing;
        }
        self.reset(bounds);
        let gone = resolved.effects.into_iter().map(Effect::List);
        let mut patches: Vec<Patch> = gone.map(|effect| apply::<true>(cell, &effect)).collect();
        self.put_deadline(cell, &mut patches);
        Patch::Many(patches)
    }
}
