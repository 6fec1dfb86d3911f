//! Performing effects, and taking them back.

use super::group::Owners;
use super::{Delivery, Effect, Entries, Group, Ids, Stream, StreamId};
use crate::Items;

/// What an effect changed: swapped with the state it undoes, swapped again it redoes. It is behind a pointer, since other
/// types' are small.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch(Box<Changes>);

#[derive(Clone, Debug, PartialEq)]
struct Changes {
    existed: bool,
    last: StreamId,
    added: u64,
    max_deleted: StreamId,
    /// Entries as they were, in the order of their changes; [`exchange`] goes backwards.
    entries: Vec<(StreamId, Option<Items<'static>>)>,
    group: Option<GroupPatch>,
}

/// A group as it was.
#[derive(Clone, Debug, PartialEq)]
struct GroupPatch {
    name: Box<[u8]>,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// The whole group, or that there was none.
    Whole(Option<Group>),
    /// Parts of it.
    Parts(Parts),
}

#[derive(Clone, Debug, PartialEq)]
struct Parts {
    last: StreamId,
    read: Option<u64>,
    /// A consumer, and when it was heard of.
    seen: Option<(Box<[u8]>, Option<u64>)>,
    /// In the order of the changes.
    owners: Vec<(StreamId, Owners)>,
}

impl Patch {
    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let changes = &*self.0;
        let entries = changes.entries.iter().filter_map(|(_, items)| items.as_ref());
        let group = changes.group.as_ref().map_or(0, |patch| match &patch.change {
            Change::Whole(group) => group.as_ref().map_or(0, Group::memory),
            Change::Parts(parts) => parts.owners.capacity() * size_of::<(StreamId, Owners)>(),
        });
        size_of::<Changes>()
            + changes.entries.capacity() * size_of::<(StreamId, Option<Items<'static>>)>()
            + entries.map(Items::heap_bytes).sum::<usize>()
            + group
    }
}

/// Performs an effect; see [`crate::apply`].
pub fn apply<const UNDO: bool>(state: &mut Stream, effect: &Effect<'_>) -> Option<Patch> {
    let mut patch = Changes {
        existed: state.exists,
        last: state.last,
        added: state.added,
        max_deleted: state.max_deleted,
        entries: Vec::new(),
        group: None,
    };
    if !state.exists && !effect.creates() {
        return None;
    }
    state.exists = true;
    match effect {
        Effect::Add { id, items, trimmed } => {
            let place = free(&state.entries, *id);
            state.entries.insert(place, items);
            state.last = state.last.max(place);
            state.added = state.added.saturating_add(1);
            if UNDO {
                patch.entries.push((place, None));
            }
            // Where its id was taken, what it has trimmed of itself is what it has added.
            let moved = |at| if at == *id { place } else { at };
            match place == *id {
                true => remove::<UNDO>(state, trimmed, &mut patch),
                false => remove::<UNDO>(state, &trimmed.iter().map(moved).collect(), &mut patch),
            };
        }
        Effect::Remove { ids, trims } => {
            let greatest = remove::<UNDO>(state, ids, &mut patch);
            if !trims {
                state.max_deleted = state.max_deleted.max(greatest);
            }
        }
        Effect::SetLast { last, added, max_deleted } => {
            state.last = (*last).max(state.entries.last_id().unwrap_or_default());
            state.added = added.unwrap_or(state.added);
            state.max_deleted = max_deleted.unwrap_or(state.max_deleted);
        }
        effect => patch.group = change_group::<UNDO>(state, effect),
    }
    let is_changed = patch.group.is_some()
        || !patch.entries.is_empty()
        || (patch.existed, patch.last, patch.added, patch.max_deleted)
            != (state.exists, state.last, state.added, state.max_deleted);
    (UNDO && is_changed).then(|| Patch(Box::new(patch)))
}

/// The first id from this one on that no entry has.
fn free(entries: &Entries, id: StreamId) -> StreamId {
    let (mut up, mut down) = (Some(id), id.previous());
    for entry in entries.range(id, StreamId::MAX) {
        match up {
            Some(at) if at == entry.id => up = at.next(),
            _ => break,
        }
    }
    if let Some(at) = up {
        return at;
    }
    // The greatest ids are all taken.
    while let Some(at) = down.filter(|at| entries.contains(*at)) {
        down = at.previous();
    }
    down.unwrap_or_default()
}

/// Removes entries; the greatest id of those that were there.
fn remove<const UNDO: bool>(state: &mut Stream, ids: &Ids, patch: &mut Changes) -> StreamId {
    let mut greatest = StreamId::ZERO;
    state.entries.remove(ids.iter(), |entry| {
        greatest = entry.id;
        if UNDO {
            patch.entries.push((entry.id, Some(entry.items())));
        }
    });
    greatest
}

/// Changes a group; `None` if it is not there.
fn change_group<const UNDO: bool>(state: &mut Stream, effect: &Effect<'_>) -> Option<GroupPatch> {
    let name = effect.group()?;
    let patch = |change| GroupPatch { name: name.into(), change };
    match effect {
        Effect::DestroyGroup { .. } => {
            return Some(patch(Change::Whole(Some(state.groups.remove(name)?))));
        }
        Effect::CreateGroup { last, read, .. } if !state.groups.contains_key(name) => {
            state.groups.insert(name.into(), Group::new(*last, *read));
            return Some(patch(Change::Whole(None)));
        }
        _ => {}
    }
    let group = state.groups.get_mut(name)?;
    let mut parts = Parts { last: group.last, read: group.read, seen: None, owners: Vec::new() };
    match effect {
        Effect::CreateGroup { last, read, .. } => raise(group, *last, *read),
        Effect::SetGroup { last, read, .. } => (group.last, group.read) = (*last, *read),
        Effect::CreateConsumer { consumer, now_millis, .. } => {
            parts.seen = Some((Box::from(*consumer), seen(group, consumer, *now_millis)));
        }
        Effect::DeleteConsumer { consumer, .. } => {
            let pending: Vec<StreamId> =
                group.pending_of(consumer, StreamId::ZERO).map(|(id, _)| id).collect();
            for id in pending {
                let left = group.without(consumer, id);
                let before = group.set_owners(id, left);
                parts.owners.push((id, before));
            }
            parts.seen = Some((Box::from(*consumer), group.set_seen(consumer, None)));
        }
        Effect::Deliver { consumer, now_millis, deliveries, gone, last, read, shared, .. } => {
            parts.seen = Some((Box::from(*consumer), seen(group, consumer, *now_millis)));
            if let Some(last) = last {
                raise(group, *last, *read);
            }
            deliver(group, consumer, deliveries, *shared, &mut parts.owners);
            acknowledge(group, gone, &mut parts.owners);
        }
        Effect::Acknowledge { ids, .. } => acknowledge(group, ids, &mut parts.owners),
        _ => {}
    }
    UNDO.then(|| patch(Change::Parts(parts)))
}

/// A group has read up to here, if not further.
fn raise(group: &mut Group, last: StreamId, read: Option<u64>) {
    if last > group.last {
        (group.last, group.read) = (last, read);
    }
}

/// A consumer is heard of; when that was before.
fn seen(group: &mut Group, consumer: &[u8], now_millis: u64) -> Option<u64> {
    let before = group.consumer(consumer).and_then(|found| found.seen_millis);
    group.set_seen(consumer, Some(before.unwrap_or(0).max(now_millis)));
    before
}

fn deliver(
    group: &mut Group,
    consumer: &[u8],
    deliveries: &[Delivery],
    shared: bool,
    changed: &mut Vec<(StreamId, Owners)>,
) {
    for delivery in deliveries {
        let owners = group.with_delivery(consumer, *delivery, shared);
        changed.push((delivery.id, group.set_owners(delivery.id, owners)));
    }
}

fn acknowledge(group: &mut Group, ids: &Ids, changed: &mut Vec<(StreamId, Owners)>) {
    for id in ids.iter().filter(|id| !group.owners(*id).is_empty()).collect::<Vec<_>>() {
        changed.push((id, group.set_owners(id, Owners::new())));
    }
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut Stream, patch: &mut Patch) {
    let patch = &mut *patch.0;
    std::mem::swap(&mut state.exists, &mut patch.existed);
    std::mem::swap(&mut state.last, &mut patch.last);
    std::mem::swap(&mut state.added, &mut patch.added);
    std::mem::swap(&mut state.max_deleted, &mut patch.max_deleted);
    for (id, items) in patch.entries.iter_mut().rev() {
        let mut before = None;
        state.entries.remove(std::iter::once(*id), |entry| before = Some(entry.items()));
        if let Some(items) = std::mem::replace(items, before) {
            state.entries.insert(*id, &items);
        }
    }
    patch.entries.reverse();
    let Some(patch) = &mut patch.group else { return };
    match &mut patch.change {
        Change::Whole(group) => {
            let before = state.groups.remove(&patch.name);
            if let Some(group) = std::mem::replace(group, before) {
                state.groups.insert(patch.name.clone(), group);
            }
        }
        Change::Parts(parts) => {
            if let Some(group) = state.groups.get_mut(&patch.name) {
                exchange_parts(group, parts);
            }
        }
    }
}

fn exchange_parts(group: &mut Group, parts: &mut Parts) {
    std::mem::swap(&mut group.last, &mut parts.last);
    std::mem::swap(&mut group.read, &mut parts.read);
    if let Some((consumer, seen)) = &mut parts.seen {
        *seen = group.set_seen(consumer, *seen);
    }
    for (id, owners) in parts.owners.iter_mut().rev() {
        let before = group.set_owners(*id, std::mem::take(owners));
        *owners = before;
    }
    parts.owners.reverse();
}
