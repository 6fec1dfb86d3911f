//! Two sides of a stream.
//!
//! Entries are merged by id: what one side removed goes, what one side added stays. Where both added an entry under one
//! id, the newer side's gets the next free one. A side that has merged a third one may so have moved an entry of the base:
//! [`Places`] finds it by its strings. A group reads on behind the later of the two places. What one side acknowledged is
//! acknowledged, also where the other side delivered it: an entry that a side has delivered since the base and that is not
//! pending there is. Deliveries of both sides stay side by side. When consumers were heard of, and when and how often they
//! got an entry, is no change.

use datatypes::stream::{Effect, Entries, Entry, Group, Ids, Owner, Owners, Stream, StreamId, apply};
use std::collections::BTreeSet;

/// What both sides make of `base` together; `None` where one deleted it and the other one added nothing.
pub(super) fn merge(base: &Stream, older: &Stream, newer: &Stream) -> Option<Stream> {
    let entries = match is_same(base, older) {
        true => newer.entries.clone(),
        false => entries(base, older, newer),
    };
    let last = older.last.max(newer.last).max(entries.last_id().unwrap_or_default());
    let added = (older.added.saturating_add(newer.added)).saturating_sub(base.added);
    let mut merged = Stream::new(entries, last, added, older.max_deleted.max(newer.max_deleted));
    let names: BTreeSet<&[u8]> = older.groups().chain(newer.groups()).map(|(name, _)| name).collect();
    for name in names {
        if let Some(group) = groups([base, older, newer].map(|stream| stream.group(name))) {
            merged.put_group(name, group);
        }
    }
    let deleted = older.is_empty() || newer.is_empty();
    let is_left = !merged.entries.is_empty() || merged.groups().len() > 0;
    (is_left || !deleted).then_some(merged)
}

/// The entries that were there and stay, where the older side has them, and what both added.
fn entries(base: &Stream, older: &Stream, newer: &Stream) -> Entries {
    let mut merged = older.clone();
    let is_of = |entry: &Entry<'_>, side: &Stream| side.entries.get(entry.id).as_ref() == Some(entry);
    let [mut in_older, mut in_newer] = [older, newer].map(|side| Places::new(base, side));
    let (mut gone, mut known) = (BTreeSet::new(), BTreeSet::new());
    for entry in base.entries.iter() {
        match (in_older.find(&entry), in_newer.find(&entry)) {
            (place, None) => gone.extend(place),
            // It is removed, or stays where the older side has it.
            (_, Some(place)) if place != entry.id => drop(known.insert(place)),
            _ => {}
        }
    }
    merged.entries.remove(gone.into_iter(), |_| {});
    let added = newer.entries.iter().filter(|entry| !is_of(entry, base) && !known.contains(&entry.id));
    let (taken, free): (Vec<Entry<'_>>, Vec<Entry<'_>>) =
        added.partition(|entry| merged.entries.contains(entry.id));
    free.iter().for_each(|entry| merged.entries.insert(entry.id, &entry.items()));
    for entry in taken {
        let effect = Effect::Add { id: entry.id, items: entry.items(), trimmed: Ids::none() };
        apply::<false>(&mut merged, &effect);
    }
    merged.entries
}

/// True if two streams differ at most in times of delivery.
fn is_same(one: &Stream, other: &Stream) -> bool {
    let is_there = |(name, group): (&[u8], &Group)| {
        other.group(name).is_some_and(|other_group| are_same(group, other_group))
    };
    (one.is_empty(), one.last, one.groups().len()) == (other.is_empty(), other.last, other.groups().len())
        && one.groups().all(is_there)
        && one.entries == other.entries
}

/// Where a side has the entries of a base.
struct Places<'s> {
    base: &'s Stream,
    side: &'s Stream,
    /// The places of those that it has moved.
    taken: BTreeSet<StreamId>,
}

impl<'s> Places<'s> {
    fn new(base: &'s Stream, side: &'s Stream) -> Self {
        Places { base, side, taken: BTreeSet::new() }
    }

    /// The id that an entry of the base has on the side, unless it is removed.
    fn find(&mut self, entry: &Entry<'_>) -> Option<StreamId> {
        if self.side.entries.get(entry.id)? == *entry {
            return Some(entry.id);
        }
        // Its id is another one's now. All ids up to the one that it got were taken.
        let up = run(self.side.entries.range(entry.id, StreamId::MAX), StreamId::next);
        let down = run(self.side.entries.range_back(StreamId::ZERO, entry.id), StreamId::previous);
        let is_it = |other: &Entry<'_>| {
            let is_new = self.base.entries.get(other.id).as_ref() != Some(other);
            is_new && !self.taken.contains(&other.id) && other.strings().eq(entry.strings())
        };
        let place = up.chain(down).find(is_it)?.id;
        self.taken.insert(place);
        Some(place)
    }
}

/// The first of some entries, and those after it as long as each has the next id.
fn run<'c>(
    entries: impl Iterator<Item = Entry<'c>>,
    next: impl Fn(StreamId) -> Option<StreamId>,
) -> impl Iterator<Item = Entry<'c>> {
    let mut wanted = None;
    entries.take_while(move |entry| {
        let is_next = wanted.is_none_or(|wanted| wanted == entry.id);
        wanted = next(entry.id);
        is_next
    })
}

/// A group that one side has removed stays if the other one has changed it, by more than times of delivery.
fn groups([base, older, newer]: [Option<&Group>; 3]) -> Option<Group> {
    let (older, newer) = match (older, newer) {
        (Some(older), Some(newer)) => (older, newer),
        (Some(only), None) | (None, Some(only)) => {
            let is_changed = base.is_none_or(|base| !are_same(base, only));
            return is_changed.then(|| only.clone());
        }
        (None, None) => return None,
    };
    let none = Group::default();
    let was = base.unwrap_or(&none);
    // One side alone may also have set it back.
    let (last, read) = match () {
        () if newer.last == was.last => (older.last, older.read),
        () if older.last == was.last || newer.last > older.last => (newer.last, newer.read),
        () => (older.last, older.read),
    };
    let mut merged = Group::new(last, read);
    let names: BTreeSet<&[u8]> = older.consumers().chain(newer.consumers()).map(|(name, _)| name).collect();
    for name in names {
        let [before, a, b] =
            [was, older, newer].map(|group| group.consumer(name).and_then(|it| it.seen_millis));
        // Who was removed on one side stays if the other one heard of it.
        let seen = match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (one, other) => one.or(other).filter(|seen| before != Some(*seen)),
        };
        merged.set_seen(name, seen);
    }
    let ids: BTreeSet<StreamId> = older.pending().keys().chain(newer.pending().keys()).copied().collect();
    for id in ids {
        let owners = owners(base, older, newer, id);
        merged.set_owners(id, owners);
    }
    Some(merged)
}

/// True if two groups have read equally far and the same consumers have the same entries.
fn are_same(one: &Group, other: &Group) -> bool {
    one.last == other.last
        && one.pending().keys().eq(other.pending().keys())
        && one.pending().iter().all(|(id, owners)| are_names_same(owners, other.owners(*id)))
}

fn are_names_same(one: &[Owner], other: &[Owner]) -> bool {
    one.iter().map(|owner| &owner.consumer).eq(other.iter().map(|owner| &owner.consumer))
}

/// The owners of an entry, unless it is acknowledged.
fn owners(base: Option<&Group>, older: &Group, newer: &Group, id: StreamId) -> Owners {
    let none = Group::default();
    let was = base.unwrap_or(&none);
    let acknowledged = |side: &Group| {
        // Of a group that is new on both sides each may have begun elsewhere.
        let is_later = base.is_some() && was.last < id && id <= side.last;
        let delivered = was.pending().contains_key(&id) || is_later;
        delivered && !side.pending().contains_key(&id)
    };
    if acknowledged(older) || acknowledged(newer) {
        return Owners::new();
    }
    let [before, a, b] = [was, older, newer].map(|group| group.owners(id));
    match [a, b].map(|owners| are_names_same(owners, before)) {
        [true, false] => return b.into(),
        [false, true] => return a.into(),
        _ if a == before => return b.into(),
        _ if b == before => return a.into(),
        _ => {}
    }
    let mut merged: Owners = a.into();
    for owner in b {
        match merged.iter_mut().find(|other| other.consumer == owner.consumer) {
            Some(other) => {
                other.at_millis = other.at_millis.max(owner.at_millis);
                other.count = other.count.max(owner.count);
            }
            None => {
                let place = merged.partition_point(|other| other.consumer < owner.consumer);
                merged.insert(place, owner.clone());
            }
        }
    }
    merged
}

/// The effects on entries that lead from one stream to another, if these alone do.
pub(super) fn between(from: &Stream, to: &Stream, push: &mut dyn FnMut(&Effect<'_>)) {
    if !from.groups().eq(to.groups()) {
        return;
    }
    let differs = |entry: &Entry<'_>, other: &Stream| other.entries.get(entry.id).as_ref() != Some(entry);
    let gone: Ids = from.entries.iter().filter(|entry| differs(entry, to)).map(|entry| entry.id).collect();
    if !gone.is_empty() {
        push(&Effect::Remove { ids: gone, trims: true });
    }
    let mut added = from.added;
    for entry in to.entries.iter().filter(|entry| differs(entry, from)) {
        push(&Effect::Add { id: entry.id, items: entry.items(), trimmed: Ids::none() });
        added = added.saturating_add(1);
    }
    let last = from.last.max(to.entries.last_id().unwrap_or_default());
    if (last, added, from.max_deleted) != (to.last, to.added, to.max_deleted) {
        let (last, added, max_deleted) = (to.last, Some(to.added), Some(to.max_deleted));
        push(&Effect::SetLast { last, added, max_deleted });
    }
}
