//! Reads a payload.

use super::blobs::{self, Element};
use super::input::{Input, parse_decimal};
use super::{
    CRC, FOOTER_BYTES, Refusal, VERSION_WITH_FIELD_EXPIRY, container, listpack, streams, tag, ziplist,
};
use crate::Value;
use crate::collections::{ChunkedList, MAX_DEADLINE, PackedMap, PackedSet, ScoredTree};
use crate::register::{MAX_BYTES, Register};

/// The value that a payload holds.
///
/// # Errors
/// See [`Refusal`].
pub fn decode(payload: &[u8]) -> Result<Value, Refusal> {
    let mut input = Input::new(verified(payload)?);
    let tag = input.byte()?;
    let value = match tag {
        tag::STRING => Value::Register(string(&mut input)?),
        tag::LIST | tag::LIST_ZIPLIST | tag::LIST_QUICKLIST | tag::LIST_QUICKLIST_2 => {
            let list = list(tag, &mut input)?;
            if list.is_empty() {
                return Err(Refusal::Format);
            }
            Value::List(Box::new(list))
        }
        tag::SET | tag::SET_INTSET | tag::SET_LISTPACK => Value::Set(Box::new(set(tag, &mut input)?)),
        tag::ZSET | tag::ZSET_2 | tag::ZSET_ZIPLIST | tag::ZSET_LISTPACK => {
            Value::ScoredSet(Box::new(scored_set(tag, &mut input)?))
        }
        tag::HASH | tag::HASH_ZIPMAP | tag::HASH_ZIPLIST | tag::HASH_LISTPACK => {
            Value::Dict(Box::new(hash(tag, &mut input)?))
        }
        tag::HASH_METADATA | tag::HASH_LISTPACK_EX => Value::Dict(Box::new(dated_hash(tag, &mut input)?)),
        tag::STREAM | tag::STREAM_2 | tag::STREAM_3 => {
            Value::Stream(Box::new(streams::read(tag, &mut input)?))
        }
        _ => return Err(Refusal::Format),
    };
    if input.is_empty() { Ok(value) } else { Err(Refusal::Format) }
}

/// What stands before the footer, if that vouches for it.
pub(super) fn verified(payload: &[u8]) -> Result<&[u8], Refusal> {
    let value_len = payload.len().checked_sub(FOOTER_BYTES).ok_or(Refusal::Footer)?;
    let (value, footer) = payload.split_at(value_len);
    let (version, checksum) = footer.split_first_chunk::<2>().ok_or(Refusal::Footer)?;
    let sum = CRC.checksum(&payload[..value_len + 2]);
    let is_whole = checksum == sum.to_le_bytes() && u16::from_le_bytes(*version) <= VERSION_WITH_FIELD_EXPIRY;
    if is_whole { Ok(value) } else { Err(Refusal::Footer) }
}

fn string(input: &mut Input<'_>) -> Result<Register, Refusal> {
    let bytes = input.string()?;
    if bytes.len() > MAX_BYTES { Err(Refusal::Format) } else { Ok(Register::new(&bytes)) }
}

/// Calls `each` as often as a length says. Every call reads something, so a length without elements ends at
/// once.
fn repeat<'a>(
    input: &mut Input<'a>,
    mut each: impl FnMut(&mut Input<'a>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    for _ in 0..input.length()? {
        each(input)?;
    }
    Ok(())
}

fn list(tag: u8, input: &mut Input<'_>) -> Result<ChunkedList, Refusal> {
    let mut list = ChunkedList::new();
    match tag {
        tag::LIST => repeat(input, |input| {
            list.push_back(&input.string()?);
            Ok(())
        })?,
        tag::LIST_ZIPLIST => append_packed(&mut list, &input.string()?, ziplist::read)?,
        tag::LIST_QUICKLIST => {
            repeat(input, |input| append_packed(&mut list, &input.string()?, ziplist::read))?;
        }
        _ => repeat(input, |input| match input.length()? {
            container::PLAIN => {
                list.push_back(&input.string()?);
                Ok(())
            }
            container::PACKED => append_packed(&mut list, &input.string()?, listpack::read),
            _ => Err(Refusal::Format),
        })?,
    }
    Ok(list)
}

/// Reads a listpack or a ziplist.
type ReadPacked =
    for<'a> fn(&'a [u8], &mut dyn FnMut(Element<'a>) -> Result<(), Refusal>) -> Result<usize, Refusal>;

fn append_packed(list: &mut ChunkedList, blob: &[u8], read: ReadPacked) -> Result<(), Refusal> {
    let mut push = |element: Element<'_>| {
        element.with_bytes(|bytes| list.push_back(bytes));
        Ok(())
    };
    read(blob, &mut push).map(|_| ())
}

/// Visits the elements of a listpack or a ziplist two by two; there are some, in even number.
fn read_pairs(
    blob: &[u8],
    read: ReadPacked,
    visit: &mut dyn FnMut(Element<'_>, Element<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut first = None;
    let mut pair = |element| match first.take() {
        None => {
            first = Some(element);
            Ok(())
        }
        Some(first) => visit(first, element),
    };
    read(blob, &mut pair)?;
    if first.is_none() { Ok(()) } else { Err(Refusal::Format) }
}

/// Something that was there before is there twice.
fn once(new: bool) -> Result<(), Refusal> {
    if new { Ok(()) } else { Err(Refusal::Format) }
}

fn set(tag: u8, input: &mut Input<'_>) -> Result<PackedSet, Refusal> {
    let mut set = PackedSet::default();
    match tag {
        tag::SET => repeat(input, |input| once(set.insert(&input.string()?)))?,
        tag::SET_INTSET => blobs::read_intset(&input.string()?, &mut |member| {
            Element::Integer(member).with_bytes(|bytes| once(set.insert(bytes)))
        })?,
        _ => {
            let mut insert = |element: Element<'_>| element.with_bytes(|bytes| once(set.insert(bytes)));
            listpack::read(&input.string()?, &mut insert)?;
        }
    }
    if set.is_empty() { Err(Refusal::Format) } else { Ok(set) }
}

fn hash(tag: u8, input: &mut Input<'_>) -> Result<PackedMap, Refusal> {
    let mut dict = PackedMap::default();
    let mut insert = |field: Element<'_>, value: Element<'_>| {
        field.with_bytes(|field| value.with_bytes(|value| once(dict.insert(field, value))))
    };
    match tag {
        tag::HASH => repeat(input, |input| {
            let (field, value) = (input.string()?, input.string()?);
            insert(Element::Bytes(&field), Element::Bytes(&value))
        })?,
        tag::HASH_ZIPMAP => {
            let mut field: Option<Vec<u8>> = None;
            blobs::read_zipmap(&input.string()?, &mut |bytes| match field.take() {
                None => {
                    field = Some(bytes.to_vec());
                    Ok(())
                }
                Some(field) => insert(Element::Bytes(&field), Element::Bytes(bytes)),
            })?;
        }
        tag::HASH_ZIPLIST => read_pairs(&input.string()?, ziplist::read, &mut insert)?,
        _ => read_pairs(&input.string()?, listpack::read, &mut insert)?,
    }
    if dict.is_empty() { Err(Refusal::Format) } else { Ok(dict) }
}

/// A hash with fields that expire.
fn dated_hash(tag: u8, input: &mut Input<'_>) -> Result<PackedMap, Refusal> {
    let mut dict = PackedMap::default();
    let first =
        input.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)).ok_or(Refusal::Format)?;
    let mut insert = |field: &[u8], value: &[u8], at: u64| {
        once(dict.insert(field, value))?;
        dict.set_deadline(field, at);
        if at <= MAX_DEADLINE { Ok(()) } else { Err(Refusal::Format) }
    };
    if tag == tag::HASH_METADATA {
        repeat(input, |input| {
            let at = match input.length()? {
                0 => 0,
                after => first.checked_add(after - 1).filter(|at| *at != 0).ok_or(Refusal::Format)?,
            };
            let (field, value) = (input.string()?, input.string()?);
            insert(&field, &value, at)
        })?;
    } else {
        let (mut field, mut value): (Option<Vec<u8>>, Option<Vec<u8>>) = (None, None);
        listpack::read(&input.string()?, &mut |element| {
            if field.is_none() || value.is_none() {
                let half = if field.is_none() { &mut field } else { &mut value };
                element.with_bytes(|bytes| *half = Some(bytes.to_vec()));
                return Ok(());
            }
            let Element::Integer(at) = element else { return Err(Refusal::Format) };
            let at = u64::try_from(at).map_err(|_| Refusal::Format)?;
            insert(&field.take().unwrap_or_default(), &value.take().unwrap_or_default(), at)
        })?;
        if field.is_some() {
            return Err(Refusal::Format);
        }
    }
    if dict.is_empty() { Err(Refusal::Format) } else { Ok(dict) }
}

fn scored_set(tag: u8, input: &mut Input<'_>) -> Result<ScoredTree, Refusal> {
    let mut set = ScoredTree::default();
    let mut insert = |member: &[u8], score: f64| match score.is_nan() {
        true => Err(Refusal::Format),
        false => once(set.insert(member, score).is_none()),
    };
    let mut insert_packed = |member: Element<'_>, score: Element<'_>| {
        let score = score.with_bytes(parse_decimal)?;
        member.with_bytes(|member| insert(member, score))
    };
    match tag {
        tag::ZSET_ZIPLIST => read_pairs(&input.string()?, ziplist::read, &mut insert_packed)?,
        tag::ZSET_LISTPACK => read_pairs(&input.string()?, listpack::read, &mut insert_packed)?,
        _ => repeat(input, |input| {
            let member = input.string()?;
            let score = if tag == tag::ZSET { input.decimal()? } else { input.double()? };
            insert(&member, score)
        })?,
    }
    if set.is_empty() { Err(Refusal::Format) } else { Ok(set) }
}
