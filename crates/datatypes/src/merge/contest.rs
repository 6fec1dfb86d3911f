//! What all effects on a key have lost, at the price of what each meets.
//!
//! Of one type, only effects that name an element, and resets, matter to what was said of it. And of the effects of one
//! group that did not observe a write, the last one is enough: who observed it observed those before it.

use super::elements::each_element;
use super::lost::{Base, Item};
use super::{Loss, Origin, is_reset, lasting_kind};
use crate::{Effect, Kind, key};
use std::cell::Cell;
use std::collections::BTreeMap;

/// The effects of one group.
struct Group {
    id: u16,
    places: Vec<usize>,
    /// By group, then by effect of this one: the first place there that neither it nor some later one observed.
    unseen: Vec<Vec<usize>>,
}

/// Effects on a key, in order, some of which may have been lost to others.
pub struct Contest<'e, O> {
    effects: Vec<Effect<'e>>,
    origins: Vec<O>,
    groups: Vec<Group>,
    /// Where each element is named.
    elements: BTreeMap<Box<[u8]>, Vec<usize>>,
    /// Where everything is replaced or removed.
    resets: Vec<usize>,
    /// Effects of several types, or whole values, are among them.
    mixed: bool,
    steps: Cell<u64>,
}

impl<'e, O: Origin> Contest<'e, O> {
    /// Of effects in their order.
    pub fn new(effects: Vec<(O, Effect<'e>)>) -> Self {
        let (origins, effects): (Vec<O>, Vec<Effect<'e>>) = effects.into_iter().unzip();
        let mut contest = Contest {
            effects,
            origins,
            groups: Vec::new(),
            elements: BTreeMap::new(),
            resets: Vec::new(),
            mixed: false,
            steps: Cell::new(0),
        };
        contest.index();
        contest.relate();
        contest
    }

    /// How many steps it took so far.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    fn index(&mut self) {
        let mut kinds: Option<Kind> = None;
        for (place, effect) in self.effects.iter().enumerate() {
            let id = self.origins[place].group();
            match self.groups.iter_mut().find(|group| group.id == id) {
                Some(group) => group.places.push(place),
                None => self.groups.push(Group { id, places: vec![place], unseen: Vec::new() }),
            }
            if let Some(kind) = lasting_kind(effect) {
                self.mixed |= *kinds.get_or_insert(kind) != kind;
            }
            self.mixed |= matches!(effect, Effect::Key(key::Effect::Restore(_)));
            if is_reset(effect) {
                self.resets.push(place);
            }
            let elements = &mut self.elements;
            each_element(effect, |element| {
                let places = elements.entry(element.into()).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            });
        }
    }

    fn relate(&mut self) {
        let related = self.groups.iter().map(|of| self.groups.iter().map(|by| self.unseen(of, by)).collect());
        let related: Vec<Vec<Vec<usize>>> = related.collect();
        for (group, unseen) in self.groups.iter_mut().zip(related) {
            group.unseen = unseen;
        }
    }

    /// For each effect of `by`: the first place of `of` that neither it nor some later one of `by` observed.
    fn unseen(&self, of: &Group, by: &Group) -> Vec<usize> {
        let first = |later: &usize| {
            let seen = of.places.partition_point(|place| {
                place < later && self.origins[*later].observed(&self.origins[*place])
            });
            of.places.get(seen).copied().unwrap_or(usize::MAX)
        };
        let mut unseen: Vec<usize> = by.places.iter().map(first).collect();
        for place in (1..unseen.len()).rev() {
            unseen[place - 1] = unseen[place - 1].min(unseen[place]);
        }
        unseen
    }

    /// The last effect of each group that has not observed the one at a place, which is before it.
    fn last_rivals(&self, of: usize) -> Vec<usize> {
        let id = self.origins[of].group();
        let Some(group) = self.groups.iter().find(|group| group.id == id) else { return Vec::new() };
        let others = self.groups.iter().zip(&group.unseen).filter(|(by, _)| by.id != id);
        let last = |(by, unseen): (&Group, &Vec<usize>)| {
            let rivals = unseen.partition_point(|first| *first <= of);
            let last = by.places[rivals.checked_sub(1)?];
            (last > of).then_some(last)
        };
        others.filter_map(last).collect()
    }

    /// What is lost of the effect at a place; see [`lost`](super::lost()).
    pub fn lost(&self, of: usize) -> Vec<Loss> {
        let sees = |later: usize, earlier: usize| self.origins[later].observed(&self.origins[earlier]);
        let rivals = self.last_rivals(of);
        self.steps.set(self.steps.get() + 1);
        Base { effects: &self.effects, sees: &sees, of, rivals, mixed: self.mixed }
            .losses(|item| self.after(of, item).inspect(|_| self.steps.set(self.steps.get() + 1)))
    }

    /// The places after one that may matter to an item.
    fn after(&self, of: usize, item: Item<'_>) -> Box<dyn Iterator<Item = usize> + '_> {
        if self.mixed {
            return Box::new(of + 1..self.effects.len());
        }
        let from = |places: &'_ [usize]| places.partition_point(|place| *place <= of);
        let resets = &self.resets[from(&self.resets)..];
        let named = match item {
            Item::Field(element) | Item::Score(element) | Item::Member(element) => self.elements.get(element),
            Item::Value | Item::Added => None,
        };
        let named = named.map_or(&[][..], |places| &places[from(places)..]);
        Box::new(Merged { a: resets, b: named })
    }
}

/// Two ascending lists of places as one.
struct Merged<'a> {
    a: &'a [usize],
    b: &'a [usize],
}

impl Iterator for Merged<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let from_a = match (self.a.first(), self.b.first()) {
            (Some(a), Some(b)) => a <= b,
            (a, _) => a.is_some(),
        };
        let list = if from_a { &mut self.a } else { &mut self.b };
        let (first, rest) = list.split_first()?;
        *list = rest;
        Some(*first)
    }
}
