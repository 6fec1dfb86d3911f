//! Concurrent effects on a stream.
//!
//! - An entry whose id is taken gets the next free one ([`stream::apply`]).
//! - A removal leaves what was added, unseen, under the same id.
//! - An acknowledgement wins over every delivery that did not observe it. Deliveries that did not observe each other stay
//!   side by side.
//! - What destroys a group or a consumer leaves what it did not observe: a group that was created anew with all that
//!   was done to it, deliveries to a consumer.
//!
//! Only the state and the effects that the last one did not observe decide: all others may be forgotten.

use super::{Among, is_live};
use crate::stream::{Delivery, Effect as E, Group, Ids, StreamId};
use crate::{Cell, Effect, Value, stream};

/// What the last effect comes to, as effects to be performed plainly.
pub(super) fn resolve<'e>(cell: &Cell, among: &Among<'_, 'e>, effect: &E<'e>) -> Vec<Effect<'e>> {
    let unseen = Unseen { cell, among, last: among.effects.len() - 1 };
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
            let kept = unseen.deliveries(group, |to, _| to == *consumer);
            std::iter::once(effect.clone()).chain(kept).collect()
        }
        effect => vec![effect.clone()],
    };
    effects.into_iter().map(Effect::Stream).collect()
}

/// What the last effect did not observe, and the state that it meets.
struct Unseen<'a, 'b, 'e> {
    cell: &'a Cell,
    among: &'a Among<'b, 'e>,
    last: usize,
}

impl<'a, 'e> Unseen<'a, '_, 'e> {
    /// The effect at a place, if it is one on a stream.
    fn at(&self, place: usize) -> Option<&'a E<'e>> {
        match &self.among.effects[place] {
            Effect::Stream(effect) => Some(effect),
            _ => None,
        }
    }

    /// The live effects that the last one did not observe, with their places.
    fn effects(&self) -> impl Iterator<Item = (usize, &'a E<'e>)> {
        let unseen = (0..self.last)
            .filter(|place| !self.among.observed(self.last, *place) && is_live(self.among, *place));
        unseen.filter_map(|place| Some((place, self.at(place)?)))
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
        self.effects().any(|(_, effect)| match effect {
            E::Add { id: of, items, .. } => *of == id && entry.strings().eq(items.iter()),
            _ => false,
        })
    }

    /// True if an entry was acknowledged unseen.
    fn is_acknowledged(&self, group: &[u8], id: StreamId) -> bool {
        self.effects().any(|(_, effect)| match effect {
            E::Acknowledge { group: of, ids } => *of == group && ids.contains(id),
            _ => false,
        })
    }

    /// Entries that consumers have and got unseen, of those wanted: they keep them.
    fn deliveries(&self, group: &'e [u8], wanted: impl Fn(&[u8], StreamId) -> bool) -> Vec<E<'e>> {
        let mut found: Vec<E<'e>> = Vec::new();
        for (_, effect) in self.effects() {
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
        let kept = ids.iter().filter_map(|id| {
            let owner = held.owners(*id).iter().find(|owner| *owner.consumer == *consumer)?;
            Some(Delivery { id: *id, at_millis: owner.at_millis, count: owner.count })
        });
        let deliveries: Vec<Delivery> = kept.collect();
        let (gone, last, read, beside) = (Ids::none(), None, None, true);
        let effect = E::Deliver { group, consumer, now_millis, deliveries, gone, last, read, beside };
        (!ids.is_empty()).then_some(effect)
    }

    fn deliver(&self, effect: &E<'e>) -> Vec<E<'e>> {
        let mut effect = effect.clone();
        let mut others = Vec::new();
        if let E::Deliver { group, consumer, deliveries, .. } = &mut effect {
            let (group, consumer) = (*group, *consumer);
            let given: Ids = deliveries.iter().map(|delivery| delivery.id).collect();
            others = self.deliveries(group, |to, id| to != consumer && given.contains(id));
            deliveries.retain(|delivery| !self.is_acknowledged(group, delivery.id));
        }
        std::iter::once(effect).chain(others).collect()
    }

    /// What was done unseen to a group that is there again since it was destroyed, or created, unseen.
    fn of_new_group(&self, group: &'e [u8]) -> Vec<E<'e>> {
        let destroys =
            |later: usize| matches!(self.at(later), Some(E::DestroyGroup { group: of }) if *of == group);
        let is_over = |place: usize| {
            (place + 1..self.last).any(|later| destroys(later) && self.among.observed(later, place))
        };
        let mut found = Vec::new();
        for (_, effect) in
            self.effects().filter(|(place, effect)| effect.group() == Some(group) && !is_over(*place))
        {
            match effect {
                E::Acknowledge { .. } | E::DestroyGroup { .. } | E::DeleteConsumer { .. } => {}
                E::Deliver { consumer, now_millis, deliveries, last, read, .. } => {
                    let ids: Vec<StreamId> = deliveries.iter().map(|delivery| delivery.id).collect();
                    let (deliveries, gone, now_millis) = (Vec::new(), Ids::none(), *now_millis);
                    let (last, read, beside) = (*last, *read, true);
                    found.push(E::Deliver {
                        group,
                        consumer,
                        now_millis,
                        deliveries,
                        gone,
                        last,
                        read,
                        beside,
                    });
                    found.extend(self.keep(group, consumer, &ids));
                }
                effect => found.push(effect.clone()),
            }
        }
        found
    }
}
