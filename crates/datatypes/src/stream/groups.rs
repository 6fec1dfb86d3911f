//! Evaluating operations: groups and their consumers.

use super::execute::{at_most, parse_ids, write_entry, write_id};
use super::{Delivery, Effect, Entry, Group, Ids, Operation, Owner, Owners, Start, Stream, StreamId};
use types::{Error, ErrorCode, ReplySink};

/// What an operation comes to: its effect, or its error.
type Came<'a> = Result<Option<Effect<'a>>, Error>;

fn lossy(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Redis's error where a command needs a group.
pub(super) fn no_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (lossy(key), lossy(group));
    Error::new(ErrorCode::NoGroup, format!("No such key '{key}' or consumer group '{group}'"))
}

/// Redis's error where XGROUP or XINFO need a group.
pub(super) fn no_such_group(key: &[u8], group: &[u8]) -> Error {
    let (key, group) = (lossy(key), lossy(group));
    Error::new(ErrorCode::NoGroup, format!("No such consumer group '{group}' for key name '{key}'"))
}

/// Redis's error where XGROUP needs a key.
fn no_key() -> Error {
    Error::err(
        "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
         to create an empty stream automatically.",
    )
}

/// The group that XGROUP or XINFO name.
pub(super) fn named<'s>(state: Option<&'s Stream>, key: &[u8], group: &[u8]) -> Result<&'s Group, Error> {
    state.ok_or_else(no_key)?.group(group).ok_or_else(|| no_such_group(key, group))
}

pub(super) fn prepare<'a>(
    state: Option<&Stream>,
    operation: &Operation<'a>,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let came = match operation {
        Operation::ReadGroup { key, group, own_after, .. } => {
            let found = state.and_then(|stream| Some((stream, stream.group(group)?)));
            match (found, own_after) {
                (None, _) => Err(no_group_to_read(key, group)),
                (Some((stream, found)), Some(after)) => {
                    read_own(stream, found, operation, *after, now_millis, sink)
                }
                (Some((stream, found)), None) => read_new(stream, found, operation, now_millis, sink),
            }
        }
        Operation::FindGroup { key, group } => match state.and_then(|stream| stream.group(group)) {
            Some(_) => {
                sink.simple("OK");
                Ok(None)
            }
            None => Err(no_group_to_read(key, group)),
        },
        Operation::Acknowledge { group, ids } => {
            match state.and_then(|stream| stream.group(group)).map(|found| (found, parse_ids(ids))) {
                None => {
                    sink.integer(0);
                    Ok(None)
                }
                Some((_, Err(error))) => Err(error),
                Some((found, Ok(ids))) => {
                    let pending = |id: &StreamId| !found.owners(*id).is_empty();
                    let ids: Ids = ids.into_iter().filter(pending).collect();
                    sink.integer(ids.len() as i64);
                    Ok((!ids.is_empty()).then_some(Effect::Acknowledge { group, ids }))
                }
            }
        }
        Operation::Pending { key, group } => match state.and_then(|stream| stream.group(group)) {
            None => Err(no_group(key, group)),
            Some(found) => {
                summarize(found, sink);
                Ok(None)
            }
        },
        Operation::PendingEntries { key, group, .. } => match state.and_then(|stream| stream.group(group)) {
            None => Err(no_group(key, group)),
            Some(found) => {
                list_pending(found, operation, now_millis, sink);
                Ok(None)
            }
        },
        operation => manage(state, operation, now_millis, sink),
    };
    came.unwrap_or_else(|error| {
        sink.error(&error);
        None
    })
}

fn no_group_to_read(key: &[u8], group: &[u8]) -> Error {
    let error = no_group(key, group);
    Error { message: format!("{} in XREADGROUP with GROUP option", error.message).into(), ..error }
}

/// XGROUP
fn manage<'a>(
    state: Option<&Stream>,
    operation: &Operation<'a>,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Came<'a> {
    let place = |start: Start| match start {
        Start::After { id } => id,
        Start::Last => state.map_or(StreamId::ZERO, |stream| stream.last),
    };
    Ok(Some(match operation {
        Operation::CreateGroup { group, start, read, create } => {
            if state.is_none() && !create {
                return Err(no_key());
            }
            if state.is_some_and(|stream| stream.group(group).is_some()) {
                return Err(Error::new(ErrorCode::BusyGroup, "Consumer Group name already exists"));
            }
            sink.simple("OK");
            Effect::CreateGroup { group, last: place(*start), read: *read }
        }
        Operation::SetGroup { key, group, start, read } => {
            named(state, key, group)?;
            sink.simple("OK");
            Effect::SetGroup { group, last: place(*start), read: *read }
        }
        Operation::DestroyGroup { group } => {
            let found = state.ok_or_else(no_key)?.group(group).is_some();
            sink.integer(found.into());
            return Ok(found.then_some(Effect::DestroyGroup { group }));
        }
        Operation::CreateConsumer { key, group, consumer } => {
            let new = named(state, key, group)?.consumer(consumer).is_none();
            sink.integer(new.into());
            return Ok(new.then_some(Effect::CreateConsumer { group, consumer, now_millis }));
        }
        Operation::DeleteConsumer { key, group, consumer } => {
            let found = named(state, key, group)?.consumer(consumer);
            sink.integer(found.map_or(0, |consumer| consumer.pending.len()) as i64);
            return Ok(found.map(|_| Effect::DeleteConsumer { group, consumer }));
        }
        _ => return Ok(None),
    }))
}

/// True if an entry that was removed by its name may be behind this id.
pub(super) fn has_gaps(stream: &Stream, from: StreamId) -> bool {
    !stream.entries.is_empty() && stream.max_deleted != StreamId::ZERO && from <= stream.max_deleted
}

/// How many entries were ever added up to an id, if that is known (Redis's `streamEstimateDistanceFromFirstEverEntry`).
pub(super) fn added_up_to(stream: &Stream, id: StreamId) -> Option<u64> {
    if stream.added == 0 {
        return Some(0);
    }
    let length = stream.entries.len() as u64;
    if length == 0 && id <= stream.last || id == stream.last {
        return Some(stream.added);
    }
    if id > stream.last {
        return None;
    }
    let first = stream.entries.first()?.id;
    let whole = stream.max_deleted == StreamId::ZERO || stream.max_deleted < first;
    match id.cmp(&first) {
        std::cmp::Ordering::Less if whole => Some(stream.added.saturating_sub(length)),
        std::cmp::Ordering::Equal if whole => Some(stream.added.saturating_add(1).saturating_sub(length)),
        _ => None,
    }
}

/// How many entries a group has read when it has delivered one more, up to this id.
fn read_one_more(stream: &Stream, read: Option<u64>, id: StreamId) -> Option<u64> {
    match read {
        Some(read) if !has_gaps(stream, id) => Some(read.saturating_add(1)),
        read if stream.added == 0 => read,
        _ => added_up_to(stream, id),
    }
}

/// XREADGROUP of what the group has not delivered.
fn read_new<'a>(
    stream: &Stream,
    found: &Group,
    operation: &Operation<'a>,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Came<'a> {
    let Operation::ReadGroup { group, consumer, count, no_ack, .. } = operation else { return Ok(None) };
    let from = found.last.next();
    let range = from.map(|from| stream.entries.range(from, StreamId::MAX).take(at_most(*count)));
    let entries: Vec<Entry<'_>> = range.into_iter().flatten().collect();
    let Some(last) = entries.last().map(|entry| entry.id) else {
        sink.null_array();
        return Ok(None);
    };
    let read = entries.iter().fold(found.read, |read, entry| read_one_more(stream, read, entry.id));
    super::execute::write_entries(&entries, sink);
    let delivered = |entry: &Entry<'_>| Delivery { id: entry.id, at_millis: now_millis, count: 1 };
    let deliveries = if *no_ack { Vec::new() } else { entries.iter().map(delivered).collect() };
    Ok(Some(Effect::Deliver {
        group,
        consumer,
        now_millis,
        deliveries,
        gone: Ids::none(),
        last: Some(last),
        read,
        shared: false,
    }))
}

/// XREADGROUP of what the consumer has not acknowledged.
fn read_own<'a>(
    stream: &Stream,
    found: &Group,
    operation: &Operation<'a>,
    after: StreamId,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) -> Came<'a> {
    let Operation::ReadGroup { group, consumer, count, .. } = operation else { return Ok(None) };
    // Redis goes on at the first one behind the greatest id.
    let from = after.next().unwrap_or(after);
    let own: Vec<(StreamId, u64)> =
        found.pending_of(consumer, from).take(at_most(*count)).map(|(id, owner)| (id, owner.count)).collect();
    sink.array(own.len());
    let mut deliveries = Vec::new();
    for (id, count) in own {
        match stream.entries.get(id) {
            Some(entry) => {
                write_entry(&entry, sink);
                deliveries.push(Delivery { id, at_millis: now_millis, count: count.saturating_add(1) });
            }
            None => {
                sink.array(2);
                write_id(id, sink);
                sink.null_array();
            }
        }
    }
    Ok(Some(Effect::Deliver {
        group,
        consumer,
        now_millis,
        // Whoever else has them keeps them.
        deliveries,
        gone: Ids::none(),
        last: None,
        read: None,
        shared: true,
    }))
}

/// XPENDING without a range.
fn summarize(group: &Group, sink: &mut dyn ReplySink) {
    let pending = group.pending();
    sink.array(4);
    sink.integer(pending.len() as i64);
    let (Some((first, _)), Some((last, _))) = (pending.first_key_value(), pending.last_key_value()) else {
        sink.null();
        sink.null();
        return sink.null_array();
    };
    write_id(*first, sink);
    write_id(*last, sink);
    let have: Vec<(&[u8], usize)> = group
        .consumers()
        .map(|(name, consumer)| (name, consumer.pending.len()))
        .filter(|(_, count)| *count > 0)
        .collect();
    sink.array(have.len());
    for (name, count) in have {
        sink.array(2);
        sink.bulk(name);
        sink.bulk(itoa::Buffer::new().format(count).as_bytes());
    }
}

/// XPENDING of a range.
fn list_pending(group: &Group, operation: &Operation<'_>, now_millis: u64, sink: &mut dyn ReplySink) {
    let Operation::PendingEntries { from, to, count, consumer, min_idle_millis, .. } = operation else {
        return;
    };
    let idle = |at_millis: u64| now_millis.saturating_sub(at_millis);
    let each = |(id, owners): (&StreamId, &'_ Owners)| -> Vec<(StreamId, Owner)> {
        owners.iter().map(|owner| (*id, owner.clone())).collect()
    };
    let all: Box<dyn Iterator<Item = (StreamId, Owner)>> = match consumer {
        Some(consumer) => Box::new(group.pending_of(consumer, *from).map(|(id, owner)| (id, owner.clone()))),
        None => Box::new(group.pending().range(*from..).flat_map(each)),
    };
    let wanted = all
        .take_while(|(id, _)| id <= to)
        .filter(|(_, owner)| idle(owner.at_millis) >= *min_idle_millis)
        .take(usize::try_from(*count).unwrap_or(usize::MAX));
    let found: Vec<_> = wanted.collect();
    sink.array(found.len());
    for (id, owner) in found {
        sink.array(4);
        write_id(id, sink);
        sink.bulk(&owner.consumer);
        sink.integer(i64::try_from(idle(owner.at_millis)).unwrap_or(i64::MAX));
        sink.integer(i64::try_from(owner.count).unwrap_or(i64::MAX));
    }
}
