//! A naive list.

use super::{Bytes, bulk_or_null, expect};
use datatypes::list::{End, Operation};
use types::{Error, ReplyBuf, ReplySink};

pub(super) fn perform(state: &mut Vec<Bytes>, operation: &Operation<'_>, _actual: &ReplyBuf) -> ReplyBuf {
    let number = |number: i64| expect(|reply| reply.integer(number));
    let absent = state.is_empty();
    match operation {
        Operation::Push { only_if_exists: true, .. } if absent => number(0),
        Operation::Push { end, values, .. } => {
            for value in values.iter() {
                let place = if *end == End::Front { 0 } else { state.len() };
                state.insert(place, value.to_vec());
            }
            number(state.len() as i64)
        }
        Operation::Pop { count: None, .. } if absent => expect(ReplyBuf::null),
        Operation::Pop { count: Some(_), .. } if absent => expect(ReplyBuf::null_array),
        Operation::Pop { end, count } => {
            let mut popped = Vec::new();
            while (popped.len() as u64) < count.unwrap_or(1) && !state.is_empty() {
                popped.push(if *end == End::Front { state.remove(0) } else { state.remove(state.len() - 1) });
            }
            match count {
                None => expect(|reply| reply.bulk(&popped[0])),
                Some(_) => array(&popped),
            }
        }
        Operation::Range { start, stop } => array(&within(state, *start, *stop)),
        Operation::Length => number(state.len() as i64),
        Operation::Index { index } => {
            let value = place(state, *index).map(|place| &state[place][..]);
            expect(|reply| bulk_or_null(reply, value))
        }
        Operation::Put { .. } if absent => expect(|reply| reply.error(&Error::err("no such key"))),
        Operation::Put { index, value } => match place(state, *index) {
            None => expect(|reply| reply.error(&Error::err("index out of range"))),
            Some(place) => {
                state[place] = value.to_vec();
                expect(|reply| reply.simple("OK"))
            }
        },
        Operation::Trim { start, stop } => {
            *state = within(state, *start, *stop);
            expect(|reply| reply.simple("OK"))
        }
        Operation::Remove { count, value } => number(remove(state, *count, value)),
        Operation::InsertNextTo { .. } if absent => number(0),
        Operation::InsertNextTo { before, pivot, value } => {
            match state.iter().position(|element| element == pivot) {
                None => number(-1),
                Some(found) => {
                    state.insert(if *before { found } else { found + 1 }, value.to_vec());
                    number(state.len() as i64)
                }
            }
        }
        Operation::Position { value, rank, count, max_len } => {
            let found = positions(state, value, *rank, *max_len);
            match count {
                None => expect(|reply| match found.first() {
                    Some(position) => reply.integer(*position as i64),
                    None => reply.null(),
                }),
                Some(count) => {
                    let listed = if *count == 0 { found.len() } else { found.len().min(*count as usize) };
                    expect(|reply| {
                        reply.array(listed);
                        found[..listed].iter().for_each(|position| reply.integer(*position as i64));
                    })
                }
            }
        }
    }
}

/// The indexes of equal elements from the one of this rank on.
fn positions(state: &[Bytes], value: &[u8], rank: i64, max_len: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..state.len()).collect();
    if rank < 0 {
        order.reverse();
    }
    if max_len > 0 {
        order.truncate(max_len as usize);
    }
    order.retain(|index| state[*index] == value);
    let skipped = usize::try_from(rank.unsigned_abs() - 1).map_or(order.len(), |it| it.min(order.len()));
    order.split_off(skipped)
}

fn array(elements: &[Bytes]) -> ReplyBuf {
    expect(|reply| {
        reply.array(elements.len());
        elements.iter().for_each(|element| reply.bulk(element));
    })
}

/// Counted from the front, in numbers that do not overflow.
fn from_front(len: usize, index: i64) -> i128 {
    i128::from(index) + if index < 0 { len as i128 } else { 0 }
}

fn place(state: &[Bytes], index: i64) -> Option<usize> {
    (0..state.len()).find(|&place| place as i128 == from_front(state.len(), index))
}

fn within(state: &[Bytes], start: i64, stop: i64) -> Vec<Bytes> {
    let range = from_front(state.len(), start)..=from_front(state.len(), stop);
    let inside = state.iter().enumerate().filter(|(place, _)| range.contains(&(*place as i128)));
    inside.map(|(_, element)| element.clone()).collect()
}

fn remove(state: &mut Vec<Bytes>, count: i64, value: &[u8]) -> i64 {
    if count < 0 {
        state.reverse();
    }
    let mut removed = 0;
    state.retain(|element| {
        let stays = element != value || (count != 0 && removed == count.abs());
        removed += i64::from(!stays);
        stays
    });
    if count < 0 {
        state.reverse();
    }
    removed
}
