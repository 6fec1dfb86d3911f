//! What all effects on a key have lost, at the price of what each meets.
//!
//! Of one type, only effects that name an element, and resets, matter to what was said of it. And of the effects of one
//! group that did not observe a write, the last one is enough: who observed it observed those before it.

use super::elements::each_element;
use super::items::{Item, dated, ends_deadline, is_no_number, items, kind_of, spoils};
use super::listed::Listed;
use super::lost::{All, Around, Base};
use super::touched::Touched;
use super::typed::{resets_element, restored};
use super::{Loss, Origin, Trace, is_reset};
use crate::{Effect, Kind, dict, key};
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
    /// Where each element is written or removed.
    elements: BTreeMap<Box<[u8]>, Listed>,
    /// Where a field becomes something to which nothing can be added.
    spoiled: BTreeMap<Box<[u8]>, Listed>,
    /// Where everything is replaced or removed.
    resets: Listed,
    /// Where a register is edited so that nothing can be added to it then; and where it is written.
    appends: Listed,
    words: Listed,
    /// Where somebody says when the key is to go; and where no deadline that was observed counts any more.
    dates: Listed,
    ends: Listed,
    /// Some of those say that it is to go at all.
    goes: bool,
    /// Of the group of each effect, how many stand before it.
    numbers: Vec<(usize, usize)>,
    /// Who replaces or removes the same element of a list.
    touched: Touched,
    /// Effects of several types, or whole values, are among them.
    mixed: bool,
    steps: Cell<u64>,
}

impl<'e, O: Origin> Contest<'e, O> {
    /// Of effects in their order; with what each did to a list, as far as that is known.
    pub fn new(effects: Vec<(O, Effect<'e>)>, traces: &[Option<&Trace>]) -> Self {
        let (origins, effects): (Vec<O>, Vec<Effect<'e>>) = effects.into_iter().unzip();
        let sees = |later: usize, earlier: usize| origins[later].observed(&origins[earlier]);
        let touched = Touched::new(&effects, traces, &sees);
        let mut contest = Contest {
            effects,
            origins,
            groups: Vec::new(),
            elements: BTreeMap::new(),
            spoiled: BTreeMap::new(),
            resets: Listed::default(),
            appends: Listed::default(),
            words: Listed::default(),
            dates: Listed::default(),
            ends: Listed::default(),
            goes: false,
            numbers: Vec::new(),
            touched,
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
            let known = self.groups.iter().position(|group| group.id == id);
            let by = known.unwrap_or_else(|| {
                self.groups.push(Group { id, places: Vec::new(), unseen: Vec::new() });
                self.groups.len() - 1
            });
            self.numbers.push((by, self.groups[by].places.len()));
            self.groups[by].places.push(place);
            if let Some(kind) = kind_of(effect) {
                self.mixed |= *kinds.get_or_insert(kind) != kind;
            }
            self.mixed |= matches!(effect, Effect::Key(key::Effect::Restore(_)));
            if is_reset(effect) {
                self.resets.push(by, place);
            }
            if let Some(at) = dated(effect) {
                self.goes |= at != 0;
                self.dates.push(by, place);
            }
            if ends_deadline(effect) {
                self.ends.push(by, place);
            }
            match effect {
                Effect::Register(edit) if edit.is_edit() && spoils(effect) => self.appends.push(by, place),
                Effect::Dict(dict::Effect::Put { pairs, .. }) => {
                    for (field, _) in pairs.pairs().filter(|(_, value)| is_no_number(value)) {
                        self.spoiled.entry(field.into()).or_default().push(by, place);
                    }
                }
                effect if spoils(effect) => self.words.push(by, place),
                _ => {}
            }
            let elements = &mut self.elements;
            each_element(effect, |element| {
                if resets_element(effect, element) {
                    elements.entry(element.into()).or_default().push(by, place);
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
        let groups: Vec<&[usize]> = self.groups.iter().map(|group| &*group.places).collect();
        if !self.words.is_empty() || !self.appends.is_empty() || !self.spoiled.is_empty() {
            self.resets.relate(&self.origins, &groups);
        }
        if self.goes {
            self.ends.relate(&self.origins, &groups);
        }
        for field in self.spoiled.keys() {
            if let Some(places) = self.elements.get_mut(field) {
                places.relate(&self.origins, &groups);
            }
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

    /// At most the first place that the effect at a place has not observed.
    fn first_unseen(&self, of: usize) -> usize {
        let id = self.origins[of].group();
        let first = |group: &Group| {
            let seen = group
                .places
                .partition_point(|place| *place < of && self.origins[of].observed(&self.origins[*place]));
            group.places.get(seen).copied()
        };
        self.groups.iter().filter(|group| group.id != id).filter_map(first).fold(of, usize::min)
    }

    /// What is lost of the effect at a place; see [`lost`](super::lost()).
    pub fn lost(&self, of: usize) -> Vec<Loss> {
        let sees = |later: usize, earlier: usize| self.origins[later].observed(&self.origins[earlier]);
        self.steps.set(self.steps.get() + 1);
        let base = Base {
            effects: &self.effects,
            sees: &sees,
            touched: &self.touched,
            of,
            whole: restored(&self.effects[of]),
            rivals: self.last_rivals(of),
            first_unseen: self.first_unseen(of),
            mixed: self.mixed,
        };
        if self.mixed { base.losses(&All) } else { base.losses(self) }
    }

    /// Where an element is written or removed.
    fn named(&self, item: Item<'_>) -> Option<&Listed> {
        match item {
            Item::Field(element)
            | Item::Score(element)
            | Item::Member(element)
            | Item::FieldSum(element)
            | Item::ScoreSum(element) => self.elements.get(element),
            _ => None,
        }
    }

    /// The last place of each group in a list, before another place, that some effect observed; or of all.
    fn last_before(&self, places: &Listed, before: usize, by: Option<usize>) -> Vec<usize> {
        let seen = |place: usize| by.is_none_or(|by| self.origins[by].observed(&self.origins[place]));
        self.steps.set(self.steps.get() + 1);
        let last = |group| places.last(group, places.seen_before(group, before, seen));
        (0..self.groups.len()).filter_map(last).collect()
    }

    /// The last place of each group in a list, before another place, that did not observe a word.
    fn last_without<'l>(
        &'l self,
        places: &'l Listed,
        before: usize,
        word: usize,
    ) -> impl Iterator<Item = usize> + 'l {
        let unseen = move |place: usize| place < word || !self.origins[place].observed(&self.origins[word]);
        let last = move |group| places.last(group, places.seen_before(group, before, unseen));
        (0..self.groups.len()).filter_map(last)
    }

    /// True if one of these that some effect observed, or of all, before another place, had seen the one at a place.
    fn is_seen_by(&self, place: usize, changes: &Listed, before: usize, by: Option<usize>) -> bool {
        let seen = |place: usize| by.is_none_or(|by| self.origins[by].observed(&self.origins[place]));
        let (own, number) = self.numbers[place];
        (0..self.groups.len())
            .filter(|group| *group != own)
            .any(|group| changes.most_seen(group, changes.seen_before(group, before, seen), own) > number)
    }
}

/// Of one type.
impl<O: Origin> Around for Contest<'_, O> {
    fn may_be_hidden(&self, item: Item<'_>) -> bool {
        match item {
            Item::Value | Item::Field(_) | Item::Score(_) | Item::Element(_) => true,
            Item::Sum => !self.words.is_empty() || !self.appends.is_empty(),
            Item::FieldSum(field) => self.spoiled.contains_key(field),
            Item::Lasting => self.goes,
            // What is added is only lost to another type.
            Item::Member(_) | Item::ScoreSum(_) | Item::Added => false,
        }
    }

    fn later(&self, base: &Base<'_, '_>, item: Item<'_>) -> Box<dyn Iterator<Item = usize> + '_> {
        let after = |places: &'_ [usize]| places.partition_point(|place| *place <= base.of);
        let a = &self.resets.all;
        let own = items(&base.effects[base.of]);
        let b = match (item, own.as_slice()) {
            (Item::Element(_), _) => self.touched.with(base.of),
            (Item::Lasting, [only]) => self.named(*only).map_or(&[][..], |named| &named.all),
            (item, _) => self.named(item).map_or(&[][..], |named| &named.all),
        };
        let c: &[usize] = if item == Item::Lasting { &self.dates.all } else { &[] };
        let places = Merged([&a[after(a)..], &b[after(b)..], &c[after(c)..]]);
        Box::new(places.inspect(|_| self.steps.set(self.steps.get() + 1)))
    }

    fn earlier_rivals(&self, base: &Base<'_, '_>, item: Item<'_>, covered: &[usize]) -> Vec<usize> {
        let mut found = match item {
            Item::Sum => {
                let words = self.last_before(&self.words, base.of, None);
                [words, self.last_before(&self.appends, base.of, None)].concat()
            }
            Item::FieldSum(field) => match self.spoiled.get(field) {
                Some(places) => self.last_before(places, base.of, None),
                None => Vec::new(),
            },
            Item::Element(_) => self.touched.removers(base.of).to_vec(),
            Item::Lasting => self.last_before(&self.dates, base.of, None),
            _ => Vec::new(),
        };
        for word in covered {
            let changes = std::iter::once(&self.resets).chain(self.named(item));
            let last = changes.flat_map(|changes| self.last_without(changes, base.of, *word));
            found.extend(last.filter(|place| base.uncovers(*place, item, covered)));
        }
        found.into_iter().filter(|place| *place < base.of && base.is_concurrent(*place)).collect()
    }

    fn earlier_seen(&self, base: &Base<'_, '_>, item: Item<'_>, by: Option<usize>) -> Vec<usize> {
        let mut found = match item {
            Item::Sum => {
                let appends = self.last_before(&self.appends, base.of, by);
                [self.last_before(&self.resets, base.of, by), appends].concat()
            }
            Item::FieldSum(_) => {
                let named =
                    self.named(item).map_or_else(Vec::new, |named| self.last_before(named, base.of, by));
                [self.last_before(&self.resets, base.of, by), named].concat()
            }
            Item::Lasting => {
                let ends = self.last_before(&self.ends, base.of, by);
                [ends, self.last_before(&self.dates, base.of, by)].concat()
            }
            Item::Element(_) => {
                let mut removers = self.touched.removers(base.of).to_vec();
                removers.retain(|place| *place < base.of && by.is_none_or(|by| (base.sees)(by, *place)));
                removers
            }
            _ => Vec::new(),
        };
        if let Item::Element(_) = item {
            // What is removed stays so.
            return found;
        }
        // Somebody who saw one and changed it need not be the last of his group.
        let resets = if item == Item::Lasting { &self.ends } else { &self.resets };
        found.retain(|place| {
            let dead = |changes: &Listed| self.is_seen_by(*place, changes, base.of, by);
            !dead(resets) && !self.named(item).is_some_and(dead)
        });
        found.sort_unstable();
        found
    }
}

/// Ascending lists of places as one.
struct Merged<'a>([&'a [usize]; 3]);

impl Iterator for Merged<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let first = self.0.iter().filter_map(|list| list.first()).min().copied()?;
        // What removes everything removes each element.
        for list in self.0.iter_mut().filter(|list| list.first() == Some(&first)) {
            *list = &list[1..];
        }
        Some(first)
    }
}
