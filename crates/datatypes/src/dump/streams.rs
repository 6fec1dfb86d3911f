//! Streams in Redis's form.
//!
//! ```text
//!   nodes:  how many | (base id (16 bytes) | listpack) ...
//!   listpack:  entries | deleted ones | fields of the master | field ... | 0 | entry ...
//!   entry:  flags | milliseconds | sequence | (fields, unless the master's) | strings | elements of the entry
//!   figures:  length | last id | first id, greatest deleted id, entries ever added (since 7.0)
//!   groups:  how many | (name | last id | entries read (since 7.0) | pending | consumers) ...
//!   pending:  how many | (id (16 bytes) | time (8 bytes) | deliveries) ...
//!   consumers:  how many | (name | seen (8 bytes) | active (8 bytes; since 7.2) | how many | id ...) ...
//! ```

use super::blobs::Element;
use super::encode::{put_length, put_string};
use super::input::Input;
use super::listpack::Listpack;
use super::{Refusal, listpack, tag};
use crate::Items;
use crate::stream::{Delivery, Entries, Entry, Group, Stream, StreamId};
use std::collections::BTreeMap;

/// As many entries as Redis puts into a node.
const NODE_ENTRIES: usize = 100;
/// The entry was removed.
const DELETED: i64 = 1;
/// The entry has the fields of the master.
const SAME_FIELDS: i64 = 2;
/// Elements of every entry: flags and the two parts of the id.
const HEAD_ELEMENTS: usize = 3;

/// Appends a stream.
pub(super) fn put(stream: &Stream, out: &mut Vec<u8>) {
    out.push(tag::STREAM_3);
    let entries: Vec<Entry<'_>> = stream.entries.iter().collect();
    put_length(entries.len().div_ceil(NODE_ENTRIES) as u64, out);
    for node in entries.chunks(NODE_ENTRIES) {
        let base = node.first().map_or(StreamId::ZERO, |entry| entry.id);
        put_string(&raw(base), out);
        put_string(&packed(base, node), out);
    }
    put_length(stream.entries.len() as u64, out);
    put_id(stream.last, out);
    put_id(entries.first().map_or(StreamId::ZERO, |entry| entry.id), out);
    put_id(stream.max_deleted, out);
    put_length(stream.added, out);
    put_length(stream.groups().len() as u64, out);
    for (name, group) in stream.groups() {
        put_string(name, out);
        put_group(group, out);
    }
}

fn raw(id: StreamId) -> [u8; 16] {
    (u128::from(id.millis) << 64 | u128::from(id.sequence)).to_be_bytes()
}

fn put_id(id: StreamId, out: &mut Vec<u8>) {
    put_length(id.millis, out);
    put_length(id.sequence, out);
}

fn packed(base: StreamId, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut node = Listpack::new();
    let number = |number: i64, node: &mut Listpack| node.push(itoa::Buffer::new().format(number).as_bytes());
    let master: Vec<&[u8]> =
        entries.first().map_or_else(Vec::new, |entry| entry.strings().step_by(2).collect());
    number(entries.len() as i64, &mut node);
    number(0, &mut node);
    number(master.len() as i64, &mut node);
    master.iter().for_each(|field| node.push(field));
    number(0, &mut node);
    for entry in entries {
        let same = entry.strings().step_by(2).eq(master.iter().copied());
        number(if same { SAME_FIELDS } else { 0 }, &mut node);
        number(entry.id.millis.wrapping_sub(base.millis) as i64, &mut node);
        number(entry.id.sequence.wrapping_sub(base.sequence) as i64, &mut node);
        let fields = entry.string_count() / 2;
        if same {
            entry.strings().skip(1).step_by(2).for_each(|value| node.push(value));
        } else {
            number(fields as i64, &mut node);
            entry.strings().for_each(|string| node.push(string));
        }
        let elements = if same { fields } else { 2 * fields + 1 };
        number((elements + HEAD_ELEMENTS) as i64, &mut node);
    }
    node.finish()
}

fn put_group(group: &Group, out: &mut Vec<u8>) {
    put_id(group.last, out);
    put_length(group.read.unwrap_or(u64::MAX), out);
    // Redis knows one owner of an entry: the one who got it last.
    let owner = |id: StreamId| group.owners(id).iter().max_by_key(|owner| owner.at_millis);
    put_length(group.pending().len() as u64, out);
    for id in group.pending().keys() {
        let (at_millis, count) = owner(*id).map_or((0, 0), |owner| (owner.at_millis, owner.count));
        out.extend_from_slice(&raw(*id));
        out.extend_from_slice(&at_millis.to_le_bytes());
        put_length(count, out);
    }
    put_length(group.consumer_count() as u64, out);
    for (name, consumer) in group.consumers() {
        put_string(name, out);
        let seen = consumer.seen_millis.unwrap_or(0);
        out.extend_from_slice(&seen.to_le_bytes());
        out.extend_from_slice(&seen.to_le_bytes());
        let has = |id: &&StreamId| owner(**id).is_some_and(|owner| *owner.consumer == *name);
        let own: Vec<StreamId> = consumer.pending.iter().filter(has).copied().collect();
        put_length(own.len() as u64, out);
        own.iter().for_each(|id| out.extend_from_slice(&raw(*id)));
    }
}

/// Reads a stream.
pub(super) fn read(tag: u8, input: &mut Input<'_>) -> Result<Stream, Refusal> {
    let mut entries = Entries::default();
    let mut budget = super::MAX_BYTES;
    for _ in 0..input.length()? {
        let base = id_of(&input.string()?)?;
        read_node(base, &input.string()?, &mut entries, &mut budget)?;
    }
    let length = input.length()?;
    let last = read_id(input)?;
    let (mut max_deleted, mut added) = (StreamId::ZERO, length);
    if tag != tag::STREAM {
        read_id(input)?;
        max_deleted = read_id(input)?;
        added = input.length()?;
    }
    let is_counted = length == entries.len() as u64 && length <= added && added <= i64::MAX as u64;
    if !is_counted || entries.last_id().is_some_and(|top| top > last) {
        return Err(Refusal::Format);
    }
    let mut stream = Stream::new(entries, last, added, max_deleted);
    for _ in 0..input.length()? {
        let name = input.string()?;
        let group = read_group(tag, input)?;
        if stream.group(&name).is_some() {
            return Err(Refusal::Format);
        }
        stream.put_group(&name, group);
    }
    Ok(stream)
}

fn id_of(raw: &[u8]) -> Result<StreamId, Refusal> {
    let raw = u128::from_be_bytes(raw.try_into().map_err(|_| Refusal::Format)?);
    Ok(StreamId::new((raw >> 64) as u64, raw as u64))
}

fn read_id(input: &mut Input<'_>) -> Result<StreamId, Refusal> {
    Ok(StreamId::new(input.length()?, input.length()?))
}

fn millis(input: &mut Input<'_>) -> Result<u64, Refusal> {
    let bytes: [u8; 8] = input.take(8)?.try_into().map_err(|_| Refusal::Format)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads the entries of a node. They name fields that are there once, so they may be much longer than the payload: `budget`
/// is how many bytes they may have.
fn read_node(base: StreamId, blob: &[u8], entries: &mut Entries, budget: &mut usize) -> Result<(), Refusal> {
    let mut elements: Vec<Element<'_>> = Vec::new();
    listpack::read(blob, &mut |element| {
        elements.push(element);
        Ok(())
    })?;
    let mut elements = elements.into_iter();
    let mut next = || elements.next().ok_or(Refusal::Format);
    let number = |element: Element<'_>| match element {
        Element::Integer(number) => Ok(number),
        Element::Bytes(_) => Err(Refusal::Format),
    };
    let text = |element: Element<'_>| element.with_bytes(<[u8]>::to_vec);
    let (valid, deleted) = (number(next()?)?, number(next()?)?);
    let mut master = Vec::new();
    for _ in 0..number(next()?)? {
        master.push(text(next()?));
    }
    let of_master: usize = master.iter().map(Vec::len).sum();
    next()?;
    let count = valid.checked_add(deleted).ok_or(Refusal::Format)?;
    let mut before: Option<StreamId> = entries.last_id();
    for _ in 0..count {
        let flags = number(next()?)?;
        let (behind, sequence) = (number(next()?)? as u64, number(next()?)? as u64);
        let id = StreamId::new(base.millis.wrapping_add(behind), base.sequence.wrapping_add(sequence));
        let mut strings: Vec<Vec<u8>> = Vec::new();
        if flags & SAME_FIELDS != 0 {
            *budget = budget.checked_sub(of_master).ok_or(Refusal::Format)?;
            for field in &master {
                strings.extend([field.clone(), text(next()?)]);
            }
        } else {
            for _ in 0..number(next()?)? {
                strings.extend([text(next()?), text(next()?)]);
            }
        }
        next()?;
        if flags & DELETED != 0 {
            continue;
        }
        if before.is_some_and(|before| before >= id) {
            return Err(Refusal::Format);
        }
        before = Some(id);
        entries.insert(id, &Items::collect(strings.iter().map(Vec::as_slice)));
    }
    if elements.next().is_none() { Ok(()) } else { Err(Refusal::Format) }
}

fn read_group(tag: u8, input: &mut Input<'_>) -> Result<Group, Refusal> {
    let last = read_id(input)?;
    let read = if tag == tag::STREAM { None } else { Some(input.length()?).filter(|read| *read != u64::MAX) };
    let mut group = Group::new(last, read);
    let mut pending: BTreeMap<StreamId, Delivery> = BTreeMap::new();
    for _ in 0..input.length()? {
        let id = id_of(input.take(16)?)?;
        let delivery = Delivery { id, at_millis: millis(input)?, count: input.length()? };
        pending.insert(id, delivery);
    }
    for _ in 0..input.length()? {
        let name = input.string()?;
        let seen = millis(input)?;
        if tag == tag::STREAM_3 {
            millis(input)?;
        }
        group.set_seen(&name, Some(seen));
        for _ in 0..input.length()? {
            let id = id_of(input.take(16)?)?;
            let delivery = pending.remove(&id).ok_or(Refusal::Format)?;
            let owners = group.with_delivery(&name, delivery, false);
            group.set_owners(id, owners);
        }
    }
    // Redis refuses what nobody has.
    if pending.is_empty() { Ok(group) } else { Err(Refusal::Format) }
}
