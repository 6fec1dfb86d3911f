//! A consumer group: how far it has read, and what its consumers have not acknowledged.

use super::id::{Delivery, StreamId};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use triomphe::Arc;

/// Who has an entry that is not acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// The consumer.
    pub consumer: Arc<[u8]>,
    /// When it was delivered to it last, in milliseconds since 1970.
    pub at_millis: u64,
    /// How often it was delivered.
    pub count: u64,
}

/// The owners of an entry, by name: one, unless regions or branches delivered it at the same time.
pub type Owners = SmallVec<[Owner; 1]>;

/// A consumer of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumer {
    /// When it was heard of last, in milliseconds since 1970; `None` before it is created.
    pub seen_millis: Option<u64>,
    /// What it has not acknowledged.
    pub pending: BTreeSet<StreamId>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The greatest id that was delivered.
    pub last: StreamId,
    /// How many entries were read since the first one ever, if that is known.
    pub read: Option<u64>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    pending: BTreeMap<StreamId, Owners>,
}

impl Group {
    /// One that has delivered what is not after `last`.
    pub fn new(last: StreamId, read: Option<u64>) -> Self {
        Group { last, read, ..Group::default() }
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl Iterator<Item = (&[u8], &Consumer)> {
        self.consumers.iter().map(|(name, consumer)| (&**name, consumer))
    }

    /// How many consumers.
    pub fn consumer_count(&self) -> usize {
        self.consumers.len()
    }

    /// A consumer, if it was created.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name).filter(|consumer| consumer.seen_millis.is_some())
    }

    /// What is not acknowledged, in the order of ids.
    pub fn pending(&self) -> &BTreeMap<StreamId, Owners> {
        &self.pending
    }

    /// Who has an entry.
    pub fn owners(&self, id: StreamId) -> &[Owner] {
        self.pending.get(&id).map_or(&[], |owners| &owners[..])
    }

    /// Notes when a consumer was heard of; `None` forgets it. Returns what was noted before.
    pub fn set_seen(&mut self, name: &[u8], seen_millis: Option<u64>) -> Option<u64> {
        let consumer = match self.consumers.get_mut(name) {
            Some(consumer) => consumer,
            None if seen_millis.is_none() => return None,
            None => self.consumers.entry(Arc::from(name)).or_default(),
        };
        let before = std::mem::replace(&mut consumer.seen_millis, seen_millis);
        self.drop_if_unknown(name);
        before
    }

    fn drop_if_unknown(&mut self, name: &[u8]) {
        let is_unknown = |consumer: &Consumer| consumer.seen_millis.is_none() && consumer.pending.is_empty();
        if self.consumers.get(name).is_some_and(is_unknown) {
            self.consumers.remove(name);
        }
    }

    /// A consumer's name as owners have it.
    fn name(&mut self, consumer: &[u8]) -> Arc<[u8]> {
        let known = self.consumers.get_key_value(consumer).map(|(name, _)| name.clone());
        known.unwrap_or_else(|| Arc::from(consumer))
    }

    /// Gives an entry these owners; returns those that it had.
    pub fn set_owners(&mut self, id: StreamId, owners: Owners) -> Owners {
        for owner in &owners {
            self.consumers.entry(owner.consumer.clone()).or_default().pending.insert(id);
        }
        let before = match owners.is_empty() {
            true => self.pending.remove(&id),
            false => self.pending.insert(id, owners),
        };
        let before = before.unwrap_or_default();
        for owner in &before {
            if self.owners(id).iter().any(|other| other.consumer == owner.consumer) {
                continue;
            }
            if let Some(consumer) = self.consumers.get_mut(&owner.consumer) {
                consumer.pending.remove(&id);
            }
            self.drop_if_unknown(&owner.consumer);
        }
        before
    }

    /// The owners of an entry after a delivery to a consumer: it alone, or it and the others if `shared`.
    pub fn with_delivery(&mut self, consumer: &[u8], delivery: Delivery, shared: bool) -> Owners {
        let consumer = self.name(consumer);
        let others = self.owners(delivery.id).iter().filter(|other| shared && other.consumer != consumer);
        let mut owners: Owners = others.cloned().collect();
        let owner = Owner { consumer, at_millis: delivery.at_millis, count: delivery.count };
        let place = owners.partition_point(|other| other.consumer < owner.consumer);
        owners.insert(place, owner);
        owners
    }

    /// The owners of an entry but this one.
    pub fn without(&self, consumer: &[u8], id: StreamId) -> Owners {
        self.owners(id).iter().filter(|owner| *owner.consumer != *consumer).cloned().collect()
    }

    /// What a consumer has, from an id on.
    pub fn pending_of(&self, consumer: &[u8], from: StreamId) -> impl Iterator<Item = (StreamId, &Owner)> {
        let found = self.consumer(consumer).into_iter().flat_map(move |found| found.pending.range(from..));
        let name: Box<[u8]> = consumer.into();
        found.filter_map(move |id| {
            Some((*id, self.owners(*id).iter().find(|owner| *owner.consumer == *name)?))
        })
    }

    /// The bytes that it takes, allocator rounding estimated.
    pub fn memory(&self) -> usize {
        /// A place in a tree, which is two thirds full.
        const PLACE: usize = 3;
        let of_entry = size_of::<StreamId>() + size_of::<Owners>() + size_of::<StreamId>();
        let of_consumer = size_of::<Consumer>() + 2 * size_of::<usize>();
        let names: usize = self.consumers.keys().map(|name| name.len() + size_of::<usize>()).sum();
        size_of::<Group>()
            + names
            + (self.pending.len() * of_entry + self.consumers.len() * of_consumer) * PLACE / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumers_know_what_they_have() {
        let mut group = Group::default();
        let id = StreamId::new(5, 1);
        let delivery = Delivery { id, at_millis: 7, count: 1 };
        group.set_seen(b"b", Some(7));
        let owners = group.with_delivery(b"b", delivery, false);
        let none = group.set_owners(id, owners);
        assert!(none.is_empty());
        let owners = group.with_delivery(b"a", delivery, true);
        let one = group.set_owners(id, owners);
        let names: Vec<&[u8]> = group.owners(id).iter().map(|owner| &*owner.consumer).collect();
        assert_eq!(names, [b"a", b"b"], "by name");
        assert_eq!(group.pending_of(b"b", StreamId::ZERO).count(), 1);
        assert_eq!((group.consumer(b"a"), group.consumer_count()), (None, 2), "it was not created yet");
        group.set_owners(id, one);
        assert_eq!(group.consumer_count(), 1);
        group.set_seen(b"b", None);
        assert_eq!(group.consumer_count(), 1, "it has something");
        group.set_owners(id, none);
        assert_eq!(group, Group::default());
    }
}
