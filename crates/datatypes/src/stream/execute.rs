//! Evaluating operations: entries.

use super::id::invalid;
use super::{Effect, Entry, Ids, NewId, Operation, Start, Stream, StreamId, Trim, claiming, groups, info};
use crate::{Context, Items};
use types::{Error, ReplySink};

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare<'a>(
    state: Option<&Stream>,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    match operation {
        Operation::Add { id, items, only_if_exists, trim } => {
            if *only_if_exists && state.is_none() {
                sink.null();
                return None;
            }
            return add(state, *id, items, *trim, context, sink);
        }
        Operation::Length => sink.integer(state.map_or(0, |stream| stream.entries.len()) as i64),
        Operation::Range { from, to, count, reverse } => {
            range(state, (*from, *to), *count, *reverse, sink);
        }
        Operation::Read { start, count } => read(state, *start, *count, sink),
        Operation::Delete { ids } => return delete(state, ids, sink),
        Operation::Trim { trim } => {
            let trimmed = state.map_or_else(Ids::none, |stream| trimmed(stream, *trim, None));
            sink.integer(trimmed.len() as i64);
            return (!trimmed.is_empty()).then_some(Effect::Remove { ids: trimmed, trims: true });
        }
        Operation::SetLast { last, added, max_deleted } => {
            return match check_last(state, *last, *added) {
                Ok(()) => {
                    sink.simple("OK");
                    Some(Effect::SetLast { last: *last, added: *added, max_deleted: *max_deleted })
                }
                Err(error) => {
                    sink.error(&error);
                    None
                }
            };
        }
        Operation::Claim { .. } | Operation::AutoClaim { .. } => {
            return claiming::prepare(state, operation, context.now_millis, sink);
        }
        Operation::Describe
        | Operation::DescribeAll { .. }
        | Operation::DescribeGroups
        | Operation::DescribeConsumers { .. } => info::describe(state, operation, context.now_millis, sink),
        operation => return groups::prepare(state, operation, context.now_millis, sink),
    }
    None
}

fn add<'a>(
    state: Option<&Stream>,
    id: NewId,
    items: &Items<'a>,
    trim: Option<Trim>,
    context: &Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let last = state.map_or(StreamId::ZERO, |stream| stream.last);
    if last == StreamId::MAX {
        sink.error(&Error::err("The stream has exhausted the last possible ID, unable to add more items"));
        return None;
    }
    let Some(id) = id.choose(last, context.now_millis, context.site) else {
        let refusal = "The ID specified in XADD is equal or smaller than the target stream top item";
        sink.error(&Error::err(refusal));
        return None;
    };
    write_id(id, sink);
    let trimmed = match (trim, state) {
        (None, _) => Ids::none(),
        (Some(trim), Some(stream)) => trimmed(stream, trim, Some(id)),
        (Some(trim), None) => trimmed(&Stream::default(), trim, Some(id)),
    };
    Some(Effect::Add { id, items: items.clone(), trimmed })
}

/// What trimming removes, of a stream that also has `added` at its end.
fn trimmed(stream: &Stream, trim: Trim, added: Option<StreamId>) -> Ids {
    let len = stream.entries.len() + usize::from(added.is_some());
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let (Trim::Length { about, .. } | Trim::Id { about, .. }) = trim;
    let ids = stream.entries.iter().map(|entry| entry.id).chain(added);
    let Some(limit) = about else {
        return match trim {
            Trim::Length { length, .. } => ids.take(len.saturating_sub(count(length))).collect(),
            Trim::Id { id: first, .. } => ids.take_while(|id| *id < first).collect(),
        };
    };
    // Whole chunks only.
    let limit = if limit == 0 { usize::MAX } else { count(limit) };
    let mut removed = 0;
    for (size, last) in stream.entries.sizes(added) {
        let whole = match trim {
            Trim::Length { length, .. } => {
                len - removed > count(length) && len - removed - size >= count(length)
            }
            Trim::Id { id, .. } => last < id,
        };
        if !whole || removed.saturating_add(size) > limit {
            break;
        }
        removed += size;
    }
    ids.take(removed).collect()
}

/// Writes an id.
pub(super) fn write_id(id: StreamId, sink: &mut dyn ReplySink) {
    id.with_text(|text| sink.bulk(text));
}

/// Writes an entry: its id, then fields and values.
pub(super) fn write_entry(entry: &Entry<'_>, sink: &mut dyn ReplySink) {
    sink.array(2);
    write_id(entry.id, sink);
    sink.array(entry.string_count());
    entry.strings().for_each(|string| sink.bulk(string));
}

/// Writes entries.
pub(super) fn write_entries(entries: &[Entry<'_>], sink: &mut dyn ReplySink) {
    sink.array(entries.len());
    for entry in entries {
        write_entry(entry, sink);
        if sink.is_full() {
            break;
        }
    }
}

/// At most so many; 0 for all.
pub(super) fn at_most(count: u64) -> usize {
    if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) }
}

fn range(
    state: Option<&Stream>,
    (from, to): (StreamId, StreamId),
    count: Option<u64>,
    reverse: bool,
    sink: &mut dyn ReplySink,
) {
    let Some(stream) = state else { return sink.array(0) };
    if count == Some(0) {
        return sink.null_array();
    }
    let count = at_most(count.unwrap_or(0));
    let entries: Vec<Entry<'_>> = match reverse {
        false => stream.entries.range(from, to).take(count).collect(),
        true => stream.entries.range_back(from, to).take(count).collect(),
    };
    write_entries(&entries, sink);
}

fn read(state: Option<&Stream>, start: Start, count: u64, sink: &mut dyn ReplySink) {
    let from = state.and_then(|stream| match start {
        Start::Last => stream.last.next(),
        Start::After { id } => id.next(),
    });
    let found: Vec<Entry<'_>> = match (state, from) {
        (Some(stream), Some(from)) => {
            stream.entries.range(from, StreamId::MAX).take(at_most(count)).collect()
        }
        _ => Vec::new(),
    };
    if found.is_empty() { sink.null_array() } else { write_entries(&found, sink) }
}

/// Ids in words.
pub(super) fn parse_ids(ids: &Items<'_>) -> Result<Vec<StreamId>, Error> {
    ids.iter().map(|id| StreamId::parse(id, 0).map_err(|_| invalid())).collect()
}

fn delete(state: Option<&Stream>, ids: &Items<'_>, sink: &mut dyn ReplySink) -> Option<Effect<'static>> {
    let Some(stream) = state else {
        sink.integer(0);
        return None;
    };
    match parse_ids(ids) {
        Ok(ids) => {
            let ids: Ids = ids.into_iter().filter(|id| stream.entries.contains(*id)).collect();
            sink.integer(ids.len() as i64);
            (!ids.is_empty()).then_some(Effect::Remove { ids, trims: false })
        }
        Err(error) => {
            sink.error(&error);
            None
        }
    }
}

/// Whether XSETID may set this.
fn check_last(state: Option<&Stream>, last: StreamId, added: Option<u64>) -> Result<(), Error> {
    let stream = state.ok_or_else(|| Error::err("no such key"))?;
    if last < stream.max_deleted {
        return Err(Error::err("The ID specified in XSETID is smaller than current max_deleted_entry_id"));
    }
    if stream.entries.last_id().is_some_and(|top| last < top) {
        return Err(Error::err("The ID specified in XSETID is smaller than the target stream top item"));
    }
    let length = stream.entries.len() as u64;
    if length > 0 && added.is_some_and(|added| added < length) {
        return Err(Error::err(
            "The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    Ok(())
}
