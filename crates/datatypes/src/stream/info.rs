//! What XINFO tells.

use super::execute::{at_most, write_entry, write_id};
use super::groups::{added_up_to, has_gaps, no_such_group};
use super::{Entry, Group, Operation, Owner, Stream, StreamId};
use types::{Error, ReplySink};

pub(super) fn describe(
    state: Option<&Stream>,
    operation: &Operation<'_>,
    now_millis: u64,
    sink: &mut dyn ReplySink,
) {
    let Some(stream) = state else { return sink.error(&Error::err("no such key")) };
    match operation {
        Operation::Describe => stream_in_short(stream, sink),
        Operation::DescribeAll { count } => stream_in_full(stream, at_most(*count), sink),
        Operation::DescribeGroups => {
            sink.array(stream.groups().len());
            stream.groups().for_each(|(name, group)| group_in_short(stream, name, group, sink));
        }
        Operation::DescribeConsumers { key, group } => match stream.group(group) {
            None => sink.error(&no_such_group(key, group)),
            Some(group) => {
                sink.array(group.consumer_count());
                for (name, consumer) in group.consumers() {
                    sink.map(3);
                    sink.bulk(b"name");
                    sink.bulk(name);
                    number("pending", consumer.pending.len(), sink);
                    let idle = now_millis.saturating_sub(consumer.seen_millis.unwrap_or(0));
                    number("idle", usize::try_from(idle).unwrap_or(usize::MAX), sink);
                }
            }
        },
        _ => {}
    }
}

fn number(name: &str, value: usize, sink: &mut dyn ReplySink) {
    sink.bulk(name.as_bytes());
    sink.integer(i64::try_from(value).unwrap_or(i64::MAX));
}

fn id(name: &str, id: StreamId, sink: &mut dyn ReplySink) {
    sink.bulk(name.as_bytes());
    write_id(id, sink);
}

/// What both forms begin with.
fn figures(stream: &Stream, sink: &mut dyn ReplySink) {
    number("length", stream.entries.len(), sink);
    number("radix-tree-keys", stream.entries.chunks(), sink);
    number("radix-tree-nodes", stream.entries.chunks() + 1, sink);
    id("last-generated-id", stream.last, sink);
    id("max-deleted-entry-id", stream.max_deleted, sink);
    number("entries-added", usize::try_from(stream.added).unwrap_or(usize::MAX), sink);
    let first = stream.entries.first().map(|entry| entry.id);
    id("recorded-first-entry-id", first.unwrap_or_default(), sink);
}

fn entry_or_null(entry: Option<Entry<'_>>, sink: &mut dyn ReplySink) {
    match entry {
        Some(entry) => write_entry(&entry, sink),
        None => sink.null(),
    }
}

fn stream_in_short(stream: &Stream, sink: &mut dyn ReplySink) {
    sink.map(10);
    figures(stream, sink);
    number("groups", stream.groups().len(), sink);
    sink.bulk(b"first-entry");
    entry_or_null(stream.entries.first(), sink);
    sink.bulk(b"last-entry");
    let last = stream.entries.last_id().and_then(|last| stream.entries.get(last));
    entry_or_null(last, sink);
}

/// How far a group has read, and how many entries it has not delivered, where that is known.
fn progress(stream: &Stream, group: &Group, sink: &mut dyn ReplySink) {
    let or_null = |number: Option<u64>, sink: &mut dyn ReplySink| match number {
        Some(number) => sink.integer(number as i64),
        None => sink.null(),
    };
    id("last-delivered-id", group.last, sink);
    sink.bulk(b"entries-read");
    or_null(group.read, sink);
    let counted = group.read.filter(|_| !has_gaps(stream, group.last));
    let read = if stream.added == 0 { Some(0) } else { counted.or_else(|| added_up_to(stream, group.last)) };
    sink.bulk(b"lag");
    or_null(read.map(|read| stream.added.wrapping_sub(read)), sink);
}

fn group_in_short(stream: &Stream, name: &[u8], group: &Group, sink: &mut dyn ReplySink) {
    sink.map(6);
    sink.bulk(b"name");
    sink.bulk(name);
    number("consumers", group.consumer_count(), sink);
    number("pending", group.pending().len(), sink);
    progress(stream, group, sink);
}

fn stream_in_full(stream: &Stream, count: usize, sink: &mut dyn ReplySink) {
    sink.map(9);
    figures(stream, sink);
    sink.bulk(b"entries");
    let entries: Vec<Entry<'_>> = stream.entries.iter().take(count).collect();
    sink.array(entries.len());
    entries.iter().for_each(|entry| write_entry(entry, sink));
    sink.bulk(b"groups");
    sink.array(stream.groups().len());
    stream.groups().for_each(|(name, group)| group_in_full(stream, (name, group), count, sink));
}

fn group_in_full(stream: &Stream, (name, group): (&[u8], &Group), count: usize, sink: &mut dyn ReplySink) {
    sink.map(7);
    sink.bulk(b"name");
    sink.bulk(name);
    progress(stream, group, sink);
    number("pel-count", group.pending().len(), sink);
    sink.bulk(b"pending");
    let owned = |(id, owners): (&StreamId, &'_ super::Owners)| -> Vec<(StreamId, Owner)> {
        owners.iter().map(|owner| (*id, owner.clone())).collect()
    };
    let pending: Vec<(StreamId, Owner)> = group.pending().iter().flat_map(owned).take(count).collect();
    sink.array(pending.len());
    for (id, owner) in pending {
        sink.array(4);
        write_id(id, sink);
        sink.bulk(&owner.consumer);
        sink.integer(owner.at_millis as i64);
        sink.integer(owner.count as i64);
    }
    sink.bulk(b"consumers");
    sink.array(group.consumer_count());
    for (name, consumer) in group.consumers() {
        sink.map(4);
        sink.bulk(b"name");
        sink.bulk(name);
        number("seen-time", usize::try_from(consumer.seen_millis.unwrap_or(0)).unwrap_or(usize::MAX), sink);
        number("pel-count", consumer.pending.len(), sink);
        sink.bulk(b"pending");
        let pending: Vec<(StreamId, &Owner)> = group.pending_of(name, StreamId::ZERO).take(count).collect();
        sink.array(pending.len());
        for (id, owner) in pending {
            sink.array(3);
            write_id(id, sink);
            sink.integer(owner.at_millis as i64);
            sink.integer(owner.count as i64);
        }
    }
}
