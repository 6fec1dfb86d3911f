//! The binary form of a state.
//!
//! ```text
//!   entries | last id | added | greatest removed | groups
//!   group:  name | last id | read | consumers with what they have
//! ```

use super::entries::Entries;
use super::id::{put_after, take_after};
use super::{Delivery, Group, Stream, StreamId};
use crate::Items;
use types::{Malformed, Reader, Wire, put_bytes, put_varint};

/// Appends a state's binary form.
pub fn encode_state(state: &Stream, out: &mut Vec<u8>) {
    put_varint(out, state.entries.len() as u64);
    let mut before = StreamId::ZERO;
    for entry in state.entries.iter() {
        put_after(entry.id, before, out);
        before = entry.id;
        put_varint(out, entry.string_count() as u64);
        entry.strings().for_each(|string| put_bytes(out, string));
    }
    state.last.encode(out);
    state.added.encode(out);
    state.max_deleted.encode(out);
    put_varint(out, state.groups().len() as u64);
    for (name, group) in state.groups() {
        put_bytes(out, name);
        encode_group(group, out);
    }
}

fn encode_group(group: &Group, out: &mut Vec<u8>) {
    group.last.encode(out);
    group.read.encode(out);
    put_varint(out, group.consumer_count() as u64);
    for (name, consumer) in group.consumers() {
        put_bytes(out, name);
        consumer.seen_millis.encode(out);
        put_varint(out, consumer.pending.len() as u64);
        for id in &consumer.pending {
            let owner = group.owners(*id).iter().find(|owner| *owner.consumer == *name);
            let (at_millis, count) = owner.map_or((0, 0), |owner| (owner.at_millis, owner.count));
            Delivery { id: *id, at_millis, count }.encode(out);
        }
    }
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<Stream, Malformed> {
    let (mut entries, mut before) = (Entries::default(), None);
    for _ in 0..input.count()? {
        let id = take_after(input, before.unwrap_or_default())?;
        if before.is_some_and(|before| before >= id) {
            return Err(Malformed("stream entries"));
        }
        before = Some(id);
        let mut strings = Vec::new();
        for _ in 0..input.count()? {
            strings.push(input.bytes()?);
        }
        entries.insert(id, &Items::Slices(&strings));
    }
    let last = StreamId::decode(input)?;
    if before.is_some_and(|before| before > last) {
        return Err(Malformed("last stream id"));
    }
    let mut state = Stream::new(entries, last, u64::decode(input)?, StreamId::decode(input)?);
    for _ in 0..input.count()? {
        let name = input.bytes()?;
        let group = decode_group(input)?;
        state.put_group(name, group);
    }
    Ok(state)
}

fn decode_group(input: &mut Reader<'_>) -> Result<Group, Malformed> {
    let mut group = Group::new(StreamId::decode(input)?, Option::decode(input)?);
    for _ in 0..input.count()? {
        let name = input.bytes()?;
        group.set_seen(name, Option::decode(input)?);
        for _ in 0..input.count()? {
            let owners = Delivery::decode(input).map(|delivery| {
                let owners = group.with_delivery(name, delivery, true);
                (delivery.id, owners)
            })?;
            group.set_owners(owners.0, owners.1);
        }
    }
    Ok(group)
}
