//! Evaluating operations, performing effects, and the binary form of the state.

use super::patch::{Patch, Splice, splice};
use super::{Effect, End, Operation, Positions};
use crate::collections::ChunkedList;
use crate::index::{resolve_index, resolve_range};
use crate::{Context, Items};
use smallvec::SmallVec;
use types::{Error, Malformed, Reader, ReplySink, put_bytes, put_varint};

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    state: Option<&ChunkedList>,
    operation: &Operation<'a>,
    _context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let len = state.map_or(0, ChunkedList::len);
    match operation {
        Operation::Push { end, values, only_if_exists } => {
            let refused = *only_if_exists && state.is_none();
            sink.integer(if refused { 0 } else { len + values.len() } as i64);
            return (!refused && !values.is_empty())
                .then(|| Effect::Push { end: *end, values: values.clone() });
        }
        Operation::Pop { end, count } => return pop(state, *end, *count, sink),
        Operation::Put { index, value } => return put(state, *index, value, sink),
        Operation::Trim { start, stop } => {
            let (start, length) = resolve_range(*start, *stop, len);
            sink.simple("OK");
            return (length < len).then_some(Effect::Keep { start: start as u64, len: length as u64 });
        }
        Operation::Remove { count, value } => return remove(state, *count, value, sink),
        Operation::InsertNextTo { before, pivot, value } => {
            return insert_next_to(state, *before, pivot, value, sink);
        }
        Operation::Range { start, stop } => {
            let (start, count) = resolve_range(*start, *stop, len);
            sink.array(count);
            state.into_iter().flat_map(|list| list.range(start, count)).for_each(|value| sink.bulk(value));
        }
        Operation::Length => sink.integer(len as i64),
        Operation::Index { index } => {
            match resolve_index(*index, len).and_then(|index| state.and_then(|list| list.get(index))) {
                Some(value) => sink.bulk(value),
                None => sink.null(),
            }
        }
        Operation::Position { value, rank, count, max_len } => {
            let found = positions(state, value, *rank, count.unwrap_or(1), *max_len);
            match (count, found.first()) {
                (None, Some(position)) => sink.integer(*position as i64),
                (None, None) => sink.null(),
                (Some(_), _) => {
                    sink.array(found.len());
                    found.iter().for_each(|position| sink.integer(*position as i64));
                }
            }
        }
    }
    None
}

/// Where elements are equal to `value`, beginning with the one of this rank. Of counts, 0 means all.
fn positions(state: Option<&ChunkedList>, value: &[u8], rank: i64, count: u64, max_len: u64) -> Vec<usize> {
    let Some(list) = state else { return Vec::new() };
    let limit =
        |count: u64| if count == 0 { usize::MAX } else { usize::try_from(count).unwrap_or(usize::MAX) };
    let equal = |(_, element): &(usize, &[u8])| *element == value;
    let skipped = limit(rank.unsigned_abs().max(1)) - 1;
    let position = |(position, _)| position;
    if rank < 0 {
        let compared = (0..list.len()).rev().zip(list.iter().rev()).take(limit(max_len));
        return compared.filter(equal).skip(skipped).take(limit(count)).map(position).collect();
    }
    let compared = list.iter().enumerate().take(limit(max_len));
    compared.filter(equal).skip(skipped).take(limit(count)).map(position).collect()
}

fn pop<'a>(
    state: Option<&ChunkedList>,
    end: End,
    count: Option<u64>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let Some(list) = state else {
        match count {
            None => sink.null(),
            Some(_) => sink.null_array(),
        }
        return None;
    };
    let taken = usize::try_from(count.unwrap_or(1)).map_or(list.len(), |count| count.min(list.len()));
    if count.is_some() {
        sink.array(taken);
    }
    match end {
        End::Front => list.range(0, taken).for_each(|value| sink.bulk(value)),
        End::Back => list.range(list.len() - taken, taken).rev().for_each(|value| sink.bulk(value)),
    }
    (taken > 0).then_some(Effect::Pop { end, count: taken as u64 })
}

fn put<'a>(
    state: Option<&ChunkedList>,
    index: i64,
    value: &'a [u8],
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let Some(list) = state else {
        sink.error(&Error::err("no such key"));
        return None;
    };
    let Some(index) = resolve_index(index, list.len()) else {
        sink.error(&Error::err("index out of range"));
        return None;
    };
    sink.simple("OK");
    Some(Effect::Put { index: index as u64, value })
}

fn remove<'a>(
    state: Option<&ChunkedList>,
    count: i64,
    value: &[u8],
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let limit = match count {
        0 => usize::MAX,
        _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let equal = |(_, element): &(usize, &[u8])| *element == value;
    let position = |(position, _): (usize, &[u8])| position as u64;
    let positions: Positions = match state {
        None => Positions::default(),
        Some(list) if count >= 0 => list.iter().enumerate().filter(equal).map(position).take(limit).collect(),
        Some(list) => {
            let from_back = (0..list.len()).rev().zip(list.iter().rev());
            from_back.filter(equal).map(position).take(limit).collect()
        }
    };
    sink.integer(positions.len() as i64);
    (!positions.is_empty()).then_some(Effect::RemoveAt { positions })
}

fn insert_next_to<'a>(
    state: Option<&ChunkedList>,
    before: bool,
    pivot: &[u8],
    value: &'a [u8],
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let Some(list) = state else {
        sink.integer(0);
        return None;
    };
    let Some(found) = list.iter().position(|element| element == pivot) else {
        sink.integer(-1);
        return None;
    };
    sink.integer(list.len() as i64 + 1);
    Some(Effect::InsertAt { index: found as u64 + u64::from(!before), value })
}

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(state: &mut ChunkedList, effect: &Effect<'_>) -> Option<Patch> {
    let len = state.len();
    let clamp = |count: u64| usize::try_from(count).map_or(len, |count| count.min(len));
    let mut splices = SmallVec::new();
    match effect {
        Effect::Push { end, values } => push::<UNDO>(state, *end, values, &mut splices),
        Effect::Pop { end, count } => {
            let count = clamp(*count);
            let at = match end {
                End::Front => 0,
                End::Back => len - count,
            };
            splices.extend(splice::<UNDO>(state, at, count, &Items::NONE));
        }
        Effect::Put { index, value } => {
            let index = clamp(*index);
            if index < len {
                splices.extend(UNDO.then(|| Splice {
                    at: index,
                    remove: 1,
                    insert: Items::collect(state.get(index).into_iter()),
                }));
                state.set(index, value);
            }
        }
        Effect::Keep { start, len: length } => {
            let start = clamp(*start);
            let end = clamp(start as u64 + (*length).min(len as u64));
            splices.extend(splice::<UNDO>(state, end, len - end, &Items::NONE));
            splices.extend(splice::<UNDO>(state, 0, start, &Items::NONE));
        }
        Effect::RemoveAt { positions } => {
            for position in positions.iter().rev().filter(|position| *position < len as u64) {
                splices.extend(splice::<UNDO>(state, position as usize, 1, &Items::NONE));
            }
        }
        Effect::InsertAt { index, value } => {
            splices.extend(splice::<UNDO>(state, clamp(*index), 0, &Items::one(value)));
        }
    }
    (!splices.is_empty()).then_some(Patch { splices })
}

fn push<const UNDO: bool>(
    state: &mut ChunkedList,
    end: End,
    values: &Items<'_>,
    splices: &mut SmallVec<[Splice; 1]>,
) {
    let at = match end {
        End::Front => 0,
        End::Back => state.len(),
    };
    match end {
        End::Front => values.iter().for_each(|value| state.push_front(value)),
        End::Back => values.iter().for_each(|value| state.push_back(value)),
    }
    if UNDO && !values.is_empty() {
        splices.push(Splice { at, remove: values.len(), insert: Items::NONE });
    }
}

/// Appends a state's binary form.
pub fn encode_state(state: &ChunkedList, out: &mut Vec<u8>) {
    put_varint(out, state.len() as u64);
    state.iter().for_each(|value| put_bytes(out, value));
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<ChunkedList, Malformed> {
    let mut state = ChunkedList::default();
    for _ in 0..input.count()? {
        state.push_back(input.bytes()?);
    }
    Ok(state)
}
