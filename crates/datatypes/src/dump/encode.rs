//! Writes a payload.

use super::encoding::MAX_NODE_BYTES;
use super::listpack::Listpack;
use super::{
    CRC, Encoding, VERSION, VERSION_WITH_FIELD_EXPIRY, blobs, container, encoding, length, lzf, streams, tag,
};
use crate::Value;
use crate::collections::{ChunkedList, Member, PackedMap, PackedSet, ScoredTree};
use crate::register::parse_integer;

/// Strings that are no longer are written as they are.
const MIN_COMPRESSED_BYTES: usize = 21;
/// What compression has to save at least.
const MIN_SAVED_BYTES: usize = 4;
/// Only strings so short can be integers of four bytes.
const MAX_INTEGER_DIGITS: usize = 11;

/// The value in Redis's form; `None` of a type that Redis does not have.
pub fn encode(value: &Value) -> Option<Vec<u8>> {
    let encoding = encoding(value);
    let mut out = Vec::new();
    match value {
        Value::Register(register) => {
            out.push(tag::STRING);
            register.with_bytes(|bytes| put_string(bytes, &mut out));
        }
        Value::Dict(dict) => put_hash(dict, encoding, &mut out),
        Value::Set(set) => put_set(set, encoding, &mut out),
        Value::ScoredSet(set) => put_scored_set(set, encoding, &mut out),
        Value::List(list) => put_list(list, &mut out),
        Value::Stream(stream) => streams::put(stream, &mut out),
        Value::Counter(_)
        | Value::SummaryBag(_)
        | Value::Top(_)
        | Value::UidGenerator(_)
        | Value::User(_) => return None,
    }
    match value {
        Value::Dict(dict) if dict.deadlines().is_some() => sign_as(VERSION_WITH_FIELD_EXPIRY, &mut out),
        _ => sign(&mut out),
    }
    Some(out)
}

/// Appends version and checksum to a value in the format's own bytes.
pub fn sign(out: &mut Vec<u8>) {
    sign_as(VERSION, out);
}

pub(super) fn sign_as(version: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&version.to_le_bytes());
    let checksum = CRC.checksum(out);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Fields and members in their order: equal values have equal payloads.
fn put_hash(dict: &PackedMap, encoding: Encoding, out: &mut Vec<u8>) {
    let mut entries: Vec<(&[u8], &[u8])> = dict.iter().collect();
    entries.sort_unstable();
    if let Some((first, _)) = dict.deadlines().and_then(ScoredTree::first) {
        return put_dated(dict, &mut entries, first as u64, encoding, out);
    }
    if encoding == Encoding::ListPack {
        let mut packed = Listpack::new();
        entries.iter().for_each(|(field, value)| {
            packed.push(field);
            packed.push(value);
        });
        return put_blob(tag::HASH_LISTPACK, &packed.finish(), out);
    }
    out.push(tag::HASH);
    put_length(dict.len() as u64, out);
    entries.iter().for_each(|(field, value)| {
        put_string(field, out);
        put_string(value, out);
    });
}

/// A hash with fields that expire, the first one at `first`.
fn put_dated(
    dict: &PackedMap,
    entries: &mut [(&[u8], &[u8])],
    first: u64,
    encoding: Encoding,
    out: &mut Vec<u8>,
) {
    if encoding == Encoding::ListPackEx {
        // Redis looks for what has expired from the front.
        entries.sort_by_key(|(field, _)| match dict.deadline(field) {
            0 => u64::MAX,
            at => at,
        });
        let mut packed = Listpack::new();
        for (field, value) in entries {
            packed.push(field);
            packed.push(value);
            packed.push(itoa::Buffer::new().format(dict.deadline(field)).as_bytes());
        }
        out.push(tag::HASH_LISTPACK_EX);
        out.extend_from_slice(&first.to_le_bytes());
        return put_string(&packed.finish(), out);
    }
    out.push(tag::HASH_METADATA);
    out.extend_from_slice(&first.to_le_bytes());
    put_length(dict.len() as u64, out);
    for (field, value) in entries {
        put_length(dict.deadline(field).checked_sub(first).map_or(0, |after| after + 1), out);
        put_string(field, out);
        put_string(value, out);
    }
}

fn put_set(set: &PackedSet, encoding: Encoding, out: &mut Vec<u8>) {
    if encoding == Encoding::IntSet {
        let mut members: Vec<i64> = set.iter().filter_map(|member| parse_integer(&member)).collect();
        members.sort_unstable();
        return put_blob(tag::SET_INTSET, &blobs::intset(&members), out);
    }
    let mut members: Vec<Member<'_>> = set.iter().collect();
    members.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    match encoding {
        Encoding::ListPack => {
            let mut packed = Listpack::new();
            members.iter().for_each(|member| packed.push(member));
            put_blob(tag::SET_LISTPACK, &packed.finish(), out);
        }
        _ => {
            out.push(tag::SET);
            put_length(set.len() as u64, out);
            members.iter().for_each(|member| put_string(member, out));
        }
    }
}

fn put_scored_set(set: &ScoredTree, encoding: Encoding, out: &mut Vec<u8>) {
    if encoding == Encoding::ListPack {
        let mut packed = Listpack::new();
        set.iter().for_each(|(score, member)| {
            packed.push(member);
            packed.push(score_text(score).as_bytes());
        });
        return put_blob(tag::ZSET_LISTPACK, &packed.finish(), out);
    }
    out.push(tag::ZSET_2);
    put_length(set.len() as u64, out);
    // Redis writes the highest first, because it inserts at the front in constant time.
    set.iter().rev().for_each(|(score, member)| {
        put_string(member, out);
        out.extend_from_slice(&score.to_le_bytes());
    });
}

/// A score in a form that reads back as the same number: digits alone, or as an exponent has it.
fn score_text(score: f64) -> String {
    let plain = 1e-5..1e17;
    if score == 0.0 || score.is_infinite() || plain.contains(&score.abs()) {
        return format!("{score}");
    }
    format!("{score:e}")
}

fn put_list(list: &ChunkedList, out: &mut Vec<u8>) {
    let (mut nodes, mut count) = (Vec::new(), 0u64);
    let mut node = Listpack::new();
    let mut put_node = |kind: u64, bytes: &[u8]| {
        put_length(kind, &mut nodes);
        put_string(bytes, &mut nodes);
        count += 1;
    };
    for element in list.iter() {
        let full = node.size() + element.len() + 2 > MAX_NODE_BYTES;
        if full && !node.is_empty() {
            put_node(container::PACKED, &std::mem::replace(&mut node, Listpack::new()).finish());
        }
        if element.len() > MAX_NODE_BYTES {
            put_node(container::PLAIN, element);
        } else {
            node.push(element);
        }
    }
    if !node.is_empty() {
        put_node(container::PACKED, &node.finish());
    }
    out.push(tag::LIST_QUICKLIST_2);
    put_length(count, out);
    out.append(&mut nodes);
}

fn put_blob(tag: u8, blob: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_string(blob, out);
}

/// A length, as RDB files have it.
pub(super) fn put_length(len: u64, out: &mut Vec<u8>) {
    match len {
        0..64 => out.push(len as u8),
        64..0x4000 => out.extend_from_slice(&[length::BITS_14 | (len >> 8) as u8, len as u8]),
        0x4000..=0xffff_ffff => {
            out.push(length::BITS_32);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
        _ => {
            out.push(length::BITS_64);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// A string, as RDB files have it: an integer, compressed, or as it is.
pub(super) fn put_string(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() <= MAX_INTEGER_DIGITS
        && let Some(number) = parse_integer(bytes).and_then(|number| i32::try_from(number).ok())
    {
        return put_integer(number, out);
    }
    if bytes.len() >= MIN_COMPRESSED_BYTES
        && let Some(packed) = lzf::compress(bytes, bytes.len() - MIN_SAVED_BYTES + 1)
    {
        out.push(length::LZF);
        put_length(packed.len() as u64, out);
        put_length(bytes.len() as u64, out);
        return out.extend_from_slice(&packed);
    }
    put_length(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_integer(number: i32, out: &mut Vec<u8>) {
    let (mark, size) = if i8::try_from(number).is_ok() {
        (length::INT_8, 1)
    } else if i16::try_from(number).is_ok() {
        (length::INT_16, 2)
    } else {
        (length::INT_32, 4)
    };
    out.push(mark);
    out.extend_from_slice(&number.to_le_bytes()[..size]);
}
