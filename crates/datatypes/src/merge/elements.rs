//! Members, fields and scores, each by itself: for each group the last live write and the live additions.

use super::replay::{Bounds, Group};
use crate::{Effect, Items, Kind, dict, register, scored_set, set};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A summand.
#[derive(Clone, Copy, Debug)]
enum By {
    Integer(i64),
    Float(f64),
}

/// What one group says of an element.
#[derive(Debug, Default)]
struct Side {
    /// What it said before this place is dead.
    dead: usize,
    /// The last effect that said that the element is there, or what it is.
    write: Option<usize>,
    /// Live additions in order, and the sum of those that are integers.
    adds: VecDeque<(usize, By)>,
    sum: i64,
    /// The last effect that said a deadline of the field, which is 0 for none, if that is live.
    deadline: Option<(usize, u64)>,
}

impl Side {
    fn reset(&mut self, bound: usize) {
        self.dead = self.dead.max(bound);
        while let Some((_, by)) = self.adds.pop_front_if(|(place, _)| *place < self.dead) {
            if let By::Integer(by) = by {
                self.sum = self.sum.wrapping_sub(by);
            }
        }
        self.write = self.write.filter(|place| *place >= self.dead);
        self.deadline = self.deadline.filter(|(place, _)| *place >= self.dead);
    }
}

#[derive(Debug, Default)]
struct Element {
    sides: SmallVec<[Side; 2]>,
}

impl Element {
    fn side(&mut self, number: usize) -> &mut Side {
        while self.sides.len() <= number {
            self.sides.push(Side::default());
        }
        &mut self.sides[number]
    }

    /// What somebody replaced or removed who had observed that much, is dead.
    fn reset(&mut self, bounds: &Bounds) {
        for (number, bound) in bounds.iter().enumerate() {
            self.side(number).reset(*bound);
        }
    }

    /// What whole resets have left of it.
    fn settle(&mut self, groups: &[Group]) {
        for (side, group) in self.sides.iter_mut().zip(groups) {
            side.reset(group.dead);
        }
    }

    fn last_write(&self) -> Option<usize> {
        self.sides.iter().filter_map(|side| side.write).max()
    }

    fn is_added_to(&self) -> bool {
        self.sides.iter().any(|side| !side.adds.is_empty())
    }

    /// The field's deadline, in milliseconds since 1970; 0 for none. One that was said before anything that is left of the
    /// field was for something else.
    fn deadline(&self) -> u64 {
        let said = self.sides.iter().filter_map(|side| side.deadline).max();
        let writes = self.sides.iter().filter_map(|side| side.write);
        let adds = self.sides.iter().filter_map(|side| side.adds.front().map(|(place, _)| *place));
        let first = writes.chain(adds).min();
        said.filter(|(place, _)| first.is_some_and(|first| first <= *place)).map_or(0, |(_, at)| at)
    }

    /// The field's value, written as said.
    fn field(&self, written: Option<&[u8]>) -> Option<Vec<u8>> {
        let before = written.map_or(Some(0), register::parse_integer).filter(|_| self.is_added_to());
        match before {
            None => written.map(<[u8]>::to_vec),
            Some(before) => {
                let sum = self.sides.iter().fold(before, |sum, side| sum.wrapping_add(side.sum));
                Some(itoa::Buffer::new().format(sum).as_bytes().to_vec())
            }
        }
    }

    /// The member's score, written as said. Sums of floats depend on the order.
    fn score(&self, written: Option<f64>) -> Option<f64> {
        let mut adds: SmallVec<[(usize, By); 8]> =
            self.sides.iter().flat_map(|side| side.adds.iter().copied()).collect();
        adds.sort_unstable_by_key(|(place, _)| *place);
        adds.iter().fold(written, |score, (_, by)| match by {
            By::Float(by) => Some(scored_set::sum(score, *by)),
            By::Integer(_) => score,
        })
    }
}

/// Calls `visit` with each element that an effect says something of.
pub(super) fn each_element(effect: &Effect<'_>, mut visit: impl FnMut(&[u8])) {
    match effect {
        Effect::Set(set::Effect::Add { members } | set::Effect::Remove { members }) => {
            members.iter().for_each(visit);
        }
        Effect::Dict(dict::Effect::Put { pairs, .. }) => pairs.pairs().for_each(|(field, _)| visit(field)),
        Effect::Dict(dict::Effect::Remove { fields } | dict::Effect::SetDeadline { fields, .. }) => {
            fields.iter().for_each(visit);
        }
        Effect::Dict(dict::Effect::Add { field, .. }) => visit(field),
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            items.iter().for_each(|(_, member)| visit(member));
        }
        Effect::ScoredSet(scored_set::Effect::Remove { members }) => members.iter().for_each(visit),
        Effect::ScoredSet(scored_set::Effect::Add { member, .. }) => visit(member),
        _ => {}
    }
}

/// The value that a write says a field has, and the deadline.
fn field_in<'a>(effect: &'a Effect<'_>, field: &[u8]) -> Option<(&'a [u8], u64)> {
    match effect {
        Effect::Dict(effect) => effect.value_of(field),
        _ => None,
    }
}

/// The score that a write says a member has.
fn score_in(effect: &Effect<'_>, member: &[u8]) -> Option<f64> {
    match effect {
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            items.iter().rfind(|(_, other)| *other == member).map(|(score, _)| *score)
        }
        _ => None,
    }
}

/// The index of all elements that effects named.
#[derive(Debug, Default)]
pub(super) struct Elements {
    table: BTreeMap<Box<[u8]>, Element>,
}

impl Elements {
    fn element(&mut self, name: &[u8]) -> &mut Element {
        self.table.entry(name.into()).or_default()
    }

    /// Notes what an effect says; returns how many elements it names.
    pub(super) fn note(
        &mut self,
        groups: &[Group],
        number: usize,
        place: usize,
        effect: &Effect<'_>,
        bounds: &Bounds,
    ) -> u64 {
        let mut steps = 0;
        each_element(effect, |name| {
            steps += 1;
            let element = self.element(name);
            element.settle(groups);
            let adds = matches!(
                effect,
                Effect::Dict(dict::Effect::Add { .. } | dict::Effect::SetDeadline { .. })
                    | Effect::ScoredSet(scored_set::Effect::Add { .. })
                    | Effect::Set(set::Effect::Add { .. })
            );
            if !adds {
                element.reset(bounds);
                element.side(number).reset(place);
            }
            let side = element.side(number);
            match effect {
                Effect::Dict(dict::Effect::Add { by, .. }) => {
                    side.adds.push_back((place, By::Integer(*by)));
                    side.sum = side.sum.wrapping_add(*by);
                }
                Effect::ScoredSet(scored_set::Effect::Add { by, .. }) => {
                    side.adds.push_back((place, By::Float(*by)));
                }
                Effect::Dict(dict::Effect::SetDeadline { at_millis, .. }) => {
                    side.deadline = Some((place, *at_millis));
                }
                Effect::Dict(put @ dict::Effect::Put { .. }) => {
                    side.write = Some(place);
                    side.deadline = put.deadline_of(name).map(|at| (place, at));
                }
                Effect::Set(set::Effect::Add { .. }) | Effect::ScoredSet(scored_set::Effect::Put { .. }) => {
                    side.write = Some(place)
                }
                _ => {}
            }
        });
        steps
    }

    /// Performs, with `perform`, what an effect on elements comes to beside those that it did not observe. Returns how
    /// many elements and additions that took.
    pub(super) fn resolve(
        &mut self,
        groups: &[Group],
        effects: &[Effect<'_>],
        effect: &Effect<'_>,
        bounds: &Bounds,
        perform: impl FnMut(&Effect<'_>),
    ) -> u64 {
        let mut names: BTreeSet<Box<[u8]>> = BTreeSet::new();
        each_element(effect, |name| {
            names.insert(name.into());
        });
        let mut left = Left::default();
        for name in &names {
            let element = self.element(name);
            element.settle(groups);
            element.reset(bounds);
            let last = element.last_write().map(|place| &effects[place]);
            match effect {
                Effect::Set(_) => left.member(name, last.is_some()),
                Effect::Dict(_) => {
                    let own = field_in(effect, name);
                    let written = own.or_else(|| field_in(last?, name)).map(|(value, _)| value);
                    let deadline = own.map_or_else(|| element.deadline(), |(_, at)| at);
                    left.field(name, element.field(written), deadline);
                }
                _ => {
                    let written = score_in(effect, name).or_else(|| score_in(last?, name));
                    left.score(name, element, written);
                }
            }
        }
        left.perform(false, perform)
    }

    /// Performs what is left of some elements after a reset of the whole; also those that stay, where the caller wants
    /// them.
    pub(super) fn again(
        &mut self,
        groups: &[Group],
        effects: &[Effect<'_>],
        kind: Kind,
        names: &BTreeSet<Box<[u8]>>,
        perform: impl FnMut(&Effect<'_>),
    ) -> u64 {
        let mut left = Left::default();
        for name in names {
            let element = self.element(name);
            element.settle(groups);
            let last = element.last_write().map(|place| &effects[place]);
            match kind {
                Kind::Set => left.member(name, last.is_some()),
                Kind::Dict => {
                    let written = last.and_then(|last| field_in(last, name)).map(|(value, _)| value);
                    left.field(name, element.field(written), element.deadline());
                }
                _ => left.score(name, element, last.and_then(|last| score_in(last, name))),
            }
        }
        left.perform(true, perform)
    }
}

/// What some elements are, and which are gone.
#[derive(Default)]
struct Left<'n> {
    kind: Option<Kind>,
    members: Vec<&'n [u8]>,
    fields: Vec<Vec<u8>>,
    deadlines: Vec<u64>,
    scores: scored_set::ScoredItems<'n>,
    gone: Vec<&'n [u8]>,
    steps: u64,
}

impl<'n> Left<'n> {
    fn member(&mut self, name: &'n [u8], is_there: bool) {
        (self.kind, self.steps) = (Some(Kind::Set), self.steps + 1);
        if is_there { self.members.push(name) } else { self.gone.push(name) }
    }

    fn field(&mut self, name: &'n [u8], value: Option<Vec<u8>>, deadline: u64) {
        (self.kind, self.steps) = (Some(Kind::Dict), self.steps + 1);
        match value {
            Some(value) => {
                self.fields.extend([name.to_vec(), value]);
                self.deadlines.push(deadline);
            }
            None => self.gone.push(name),
        }
    }

    fn score(&mut self, name: &'n [u8], element: &Element, written: Option<f64>) {
        let adds: usize = element.sides.iter().map(|side| side.adds.len()).sum();
        (self.kind, self.steps) = (Some(Kind::ScoredSet), self.steps + 1 + adds as u64);
        match element.score(written) {
            Some(score) => self.scores.push((score, name)),
            None => self.gone.push(name),
        }
    }

    /// As effects; members that are there are added only with `all`.
    fn perform(self, all: bool, mut perform: impl FnMut(&Effect<'_>)) -> u64 {
        if all && !self.members.is_empty() {
            let members = Items::collect(self.members.into_iter());
            perform(&Effect::Set(set::Effect::Add { members }));
        }
        if !self.fields.is_empty() {
            let pairs = Items::collect(self.fields.iter().map(Vec::as_slice));
            let until = dict::Until::each(self.deadlines.into_iter());
            perform(&Effect::Dict(dict::Effect::Put { pairs, until }));
        }
        if !self.scores.is_empty() {
            perform(&Effect::ScoredSet(scored_set::Effect::Put { items: self.scores }));
        }
        if !self.gone.is_empty() {
            let gone = Items::collect(self.gone.into_iter());
            match self.kind {
                Some(Kind::Set) => perform(&Effect::Set(set::Effect::Remove { members: gone })),
                Some(Kind::Dict) => perform(&Effect::Dict(dict::Effect::Remove { fields: gone })),
                _ => perform(&Effect::ScoredSet(scored_set::Effect::Remove { members: gone })),
            }
        }
        self.steps
    }
}
