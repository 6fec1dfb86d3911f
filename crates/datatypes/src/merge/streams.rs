//! Concurrent effects on a stream.
//!
//! - An entry whose id is taken gets the next free one ([`stream::apply`]).
//! - A removal leaves what was added, unseen, under the same id.
//! - An acknowledgement wins over every delivery that did not observe it. Deliveries that did not observe each other stay
//!   side by side.
//! - What destroys a group or a consumer leaves what it did not observe: a group that was created anew with all that
//!   was done to it, deliveries to a consumer.
//!
//! Only the state and the effects that the last one did not observe decide: all others may be forgotten. An [`Index`] finds
//! them by what they name.

use super::{Among, concurrent_live};
use crate::stream::{Delivery, Effect as E, Group, Ids, StreamId};
use crate::{Cell, Effect, Value, stream};
use std::collections::{BTreeMap, BTreeSet};

/// What effects name.
#[derive(Clone, Copy)]
pub(super) enum About<'a> {
    /// They add an entry under this id.
    Added(StreamId),
    /// They deliver or acknowledge an entry in a group.
    Delivered(&'a [u8], StreamId),
    /// They change a group.
    Group(&'a [u8]),
    /// They destroy it.
    Destroyed(&'a [u8]),
}

/// The effects before the last one.
pub(super) struct Earlier<'a, 'e> {
    /// All of them.
    pub effects: &'a [Effect<'e>],
    /// Where something is named, in ascending order: live and not observed by the last effect, but of destructions all. Others
    /// may be among them.
    pub places: &'a dyn Fn(About<'_>) -> Vec<usize>,
    /// Whether the first of two effects, by their place, observed the second, which is earlier.
    pub sees: &'a dyn Fn(usize, usize) -> bool,
}

/// Places of effects, each behind the number of its group of effects.
type Places = Vec<(usize, usize)>;

/// Where effects name something.
#[derive(Default)]
pub(super) struct Index<'e> {
    added: BTreeMap<StreamId, Places>,
    delivered: BTreeMap<(&'e [u8], StreamId), Places>,
    of_group: BTreeMap<&'e [u8], Places>,
    destroyed: BTreeMap<&'e [u8], Places>,
}

impl<'e> Index<'e> {
    /// Notes an effect; how many steps that took.
    pub fn note(&mut self, at: (usize, usize), effect: &E<'e>) -> u64 {
        let mut steps = 0;
        let mut note = |places: &mut Places| {
            places.push(at);
            steps += 1;
        };
        if let E::Add { id, .. } = effect {
            note(self.added.entry(*id).or_default());
        }
        let Some(group) = effect.group() else { return steps };
        note(self.of_group.entry(group).or_default());
        let mut on_entry = |id| note(self.delivered.entry((group, id)).or_default());
        match effect {
            E::Deliver { deliveries, .. } => deliveries.iter().for_each(|delivery| on_entry(delivery.id)),
            E::Acknowledge { ids, .. } => ids.iter().for_each(on_entry),
            E::DestroyGroup { .. } => note(self.destroyed.entry(group).or_default()),
            _ => {}
        }
        steps
    }

    /// Where something is named, in ascending order: of each group of effects from a place on, but of destructions all.
    pub fn places(&self, from: &[usize], about: About<'_>) -> Vec<usize> {
        let named = match about {
            About::Added(id) => self.added.get(&id),
            About::Delivered(group, id) => self.delivered.get(&(group, id)),
            About::Group(group) => self.of_group.get(group),
            About::Destroyed(group) => {
                let all = self.destroyed.get(group).into_iter().flatten();
                return all.map(|(_, place)| *place).collect();
            }
        };
        let least = from.iter().copied().min().unwrap_or(0);
        let named = named.map_or(&[][..], |named| named);
        let late = &named[named.partition_point(|(_, place)| *place < least)..];
        let unseen = late.iter().filter(|(of, place)| from.get(*of).is_none_or(|from| place >= from));
        unseen.map(|(_, place)| *place).collect()
    }
}

/// What the last effect comes to, with a look at all before it.
pub(super) fn resolve_among<'e>(cell: &Cell, among: &Among<'_, 'e>, effect: &E<'e>) -> Vec<Effect<'e>> {
    let last = among.effects.len() - 1;
    let unseen = concurrent_live(among);
    let places = |about: About<'_>| match about {
        About::Destroyed(_) => (0..last).collect(),
        _ => unseen.clone(),
    };
    let sees = |later: usize, earlier: usize| among.observed(later, earlier);
    resolve(cell, &Earlier { effects: &among.effects[..last], places: &places, sees: &sees }, effect)
}

/// What the last effect comes to, as effects to be performed plainly.
pub(super) fn resolve<'e>(cell: &Cell, earlier: &Earlier<'_, 'e>, effect: &E<'e>) -> Vec<Effect<'e>> {
    let unseen = Unseen { cell, earlier };
    let effects = match effect {
        E::Add { id, items, trimmed } => {
            // It has trimmed what it saw, and perhaps itself.
            let seen = |at: &StreamId| at == id || !unseen.has_added(*at);
            vec![E::Add { id: *id, items: items.clone(), trimmed: trimmed.iter().filter(seen).collect() }]
        }
        E::Remove { ids, trims } => {
            let ids = ids.iter().filter(|id| !unseen.has_added(*id)).collect();
            vec![E::Remove { ids, trims: *trims }]
        }
        E::Deliver { .. } => unseen.deliver(effect),
        E::DestroyGroup { group } => {
            std::iter::once(effect.clone()).chain(unseen.of_new_group(group)).collect()
        }
        E::DeleteConsumer { group, consumer } => {
            let remaining = unseen.deliveries(group, &[About::Group(group)], |to, _| to == *consumer);
            std::iter::once(effect.clone()).chain(remaining).collect()
        }
        effect => vec![effect.clone()],
    };
    effects.into_iter().map(Effect::Stream).collect()
}

/// What the last effect did not observe, and the state that it meets.
struct Unseen<'a, 'b, 'e> {
    cell: &'a Cell,
    earlier: &'a Earlier<'b, 'e>,
}

impl<'a, 'e> Unseen<'a, '_, 'e> {
    /// The effect at a place, if it is one on a stream.
    fn at(&self, place: usize) -> Option<&'a E<'e>> {
        match &self.earlier.effects[place] {
            Effect::Stream(effect) => Some(effect),
            _ => None,
        }
    }

    /// The live effects that the last one did not observe, and that may name some of these, with their places.
    fn effects(&self, about: &[About<'_>]) -> impl Iterator<Item = (usize, &'a E<'e>)> {
        let places = match about {
            [one] => (self.earlier.places)(*one),
            several => {
                let places = several.iter().flat_map(|about| (self.earlier.places)(*about));
                places.collect::<BTreeSet<usize>>().into_iter().collect()
            }
        };
        places.into_iter().filter_map(|place| Some((place, self.at(place)?)))
    }

    fn stream(&self) -> Option<&'a stream::Stream> {
        match &self.cell.value {
            Some(Value::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    fn group(&self, name: &[u8]) -> Option<&'a Group> {
        self.stream()?.group(name)
    }

    /// True if the entry that has this id was added unseen.
    fn has_added(&self, id: StreamId) -> bool {
        let Some(entry) = self.stream().and_then(|stream| stream.entries.get(id)) else { return false };
        self.effects(&[About::Added(id)]).any(|(_, effect)| match effect {
            E::Add { id: of, items, .. } => *of == id && entry.strings().eq(items.iter()),
            _ => false,
        })
    }

    /// True if an entry was acknowledged unseen.
    fn is_acknowledged(&self, group: &[u8], id: StreamId) -> bool {
        self.effects(&[About::Delivered(group, id)]).any(|(_, effect)| match effect {
            E::Acknowledge { group: of, ids } => *of == group && ids.contains(id),
            _ => false,
        })
    }

    /// Entries that consumers have and got unseen, of those wanted: they keep them.
    fn deliveries(
        &self,
        group: &'e [u8],
        about: &[About<'_>],
        wanted: impl Fn(&[u8], StreamId) -> bool,
    ) -> Vec<E<'e>> {
        let mut found: Vec<E<'e>> = Vec::new();
        for (_, effect) in self.effects(about) {
            let E::Deliver { group: of, consumer, deliveries, .. } = effect else { continue };
            let ids = deliveries.iter().map(|delivery| delivery.id).filter(|id| wanted(consumer, *id));
            let ids: Vec<StreamId> = ids.filter(|_| *of == group).collect();
            found.extend(self.keep(group, consumer, &ids));
        }
        found
    }

    /// What of some entries a consumer has, as a delivery beside others.
    fn keep(&self, group: &'e [u8], consumer: &'e [u8], ids: &[StreamId]) -> Option<E<'e>> {
        let held = self.group(group)?;
        let now_millis = held.consumer(consumer)?.seen_millis?;
        let owned = ids.iter().filter_map(|id| {
            let owner = held.owners(*id).iter().find(|owner| *owner.consumer == *consumer)?;
            Some(Delivery { id: *id, at_millis: owner.at_millis, count: owner.count })
        });
        let deliveries: Vec<Delivery> = owned.collect();
        let (gone, last, read, shared) = (Ids::none(), None, None, true);
        let effect = E::Deliver { group, consumer, now_millis, deliveries, gone, last, read, shared };
        (!ids.is_empty()).then_some(effect)
    }

    fn deliver(&self, effect: &E<'e>) -> Vec<E<'e>> {
        let mut effect = effect.clone();
        let mut others = Vec::new();
        if let E::Deliver { group, consumer, deliveries, .. } = &mut effect {
            let (group, consumer) = (*group, *consumer);
            let given: Ids = deliveries.iter().map(|delivery| delivery.id).collect();
            let about: Vec<About<'_>> = given.iter().map(|id| About::Delivered(group, id)).collect();
            others = self.deliveries(group, &about, |to, id| to != consumer && given.contains(id));
            deliveries.retain(|delivery| !self.is_acknowledged(group, delivery.id));
        }
        std::iter::once(effect).chain(others).collect()
    }

    /// What was done unseen to a group that is there again since it was destroyed, or created, unseen.
    fn of_new_group(&self, group: &'e [u8]) -> Vec<E<'e>> {
        let destroys =
            |later: usize| matches!(self.at(later), Some(E::DestroyGroup { group: of }) if *of == group);
        let destroyed = (self.earlier.places)(About::Destroyed(group));
        let is_over = |place: usize| {
            let later = destroyed.iter().filter(|later| **later > place && destroys(**later));
            later.into_iter().any(|later| (self.earlier.sees)(*later, place))
        };
        let mut found = Vec::new();
        let about = [About::Group(group)];
        let effects = self.effects(&about);
        for (_, effect) in effects.filter(|(place, effect)| effect.group() == Some(group) && !is_over(*place))
        {
            match effect {
                E::Acknowledge { .. } | E::DestroyGroup { .. } | E::DeleteConsumer { .. } => {}
                E::Deliver { consumer, now_millis, deliveries, last, read, .. } => {
                    let ids: Vec<StreamId> = deliveries.iter().map(|delivery| delivery.id).collect();
                    let (deliveries, gone, now_millis) = (Vec::new(), Ids::none(), *now_millis);
                    let (last, read, shared) = (*last, *read, true);
                    found.push(E::Deliver {
                        group,
                        consumer,
                        now_millis,
                        deliveries,
                        gone,
                        last,
                        read,
                        shared,
                    });
                    found.extend(self.keep(group, consumer, &ids));
                }
                effect => found.push(effect.clone()),
            }
        }
        found
    }
}
