//! Lists, of which an index below 0 counts from the end.

use super::{Answer, Held, Key, array, bulk, held_as, integer, ok};
use crate::touches::quoted;
use datatypes::list::{End, Operation};

/// The place of an index, which may lie outside.
fn place(index: i64, length: usize) -> i128 {
    i128::from(index) + if index < 0 { length as i128 } else { 0 }
}

/// The places from one index to another.
fn range(start: i64, stop: i64, length: usize) -> std::ops::Range<usize> {
    let start = place(start, length).clamp(0, length as i128) as usize;
    let end = (place(stop, length) + 1).clamp(start as i128, length as i128) as usize;
    start..end
}

impl Key {
    pub(super) fn list(&mut self, operation: &Operation<'_>) -> Answer {
        let exists = self.held.is_some();
        let list = held_as!(self.held, List);
        let length = list.len();
        match operation {
            Operation::Push { only_if_exists: true, .. } if !exists => integer(0),
            Operation::Push { end: End::Back, values, .. } => {
                list.extend(values.iter().map(<[u8]>::to_vec));
                integer(list.len())
            }
            Operation::Push { end: End::Front, values, .. } => {
                values.iter().for_each(|value| list.insert(0, value.to_vec()));
                integer(list.len())
            }
            Operation::Pop { count: Some(_), .. } if !exists => Answer::Text("(nil array)".into()),
            Operation::Pop { end, count } => {
                let wanted = count.unwrap_or(1);
                let mut taken = Vec::new();
                while (taken.len() as u64) < wanted && !list.is_empty() {
                    let at = if *end == End::Front { 0 } else { list.len() - 1 };
                    taken.push(list.remove(at));
                }
                if count.is_none() { bulk(taken.first()) } else { array(taken.iter().map(quoted)) }
            }
            Operation::Range { start, stop } => array(list[range(*start, *stop, length)].iter().map(quoted)),
            Operation::Length => integer(length),
            Operation::Index { index } => {
                let place = usize::try_from(place(*index, length));
                bulk(place.ok().and_then(|place| list.get(place)))
            }
            Operation::Put { index, value } => {
                let place = usize::try_from(place(*index, length));
                let Some(element) = place.ok().and_then(|place| list.get_mut(place)) else {
                    return Answer::Refusal;
                };
                *element = value.to_vec();
                ok()
            }
            Operation::Trim { start, stop } => {
                *list = list[range(*start, *stop, length)].to_vec();
                ok()
            }
            Operation::Remove { count, value } => {
                let mut equal: Vec<usize> = (0..length).filter(|place| list[*place] == *value).collect();
                if *count < 0 {
                    equal.reverse();
                }
                if *count != 0 {
                    equal.truncate(usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX));
                }
                equal.sort_unstable();
                equal.iter().rev().for_each(|place| drop(list.remove(*place)));
                integer(equal.len())
            }
            // No workload asks for places of elements.
            Operation::Position { .. } => Answer::NotJudged,
            Operation::InsertNextTo { .. } if !exists => integer(0),
            Operation::InsertNextTo { before, pivot, value } => {
                let Some(found) = list.iter().position(|element| element == pivot) else {
                    return integer(-1);
                };
                list.insert(found + usize::from(!before), value.to_vec());
                integer(list.len())
            }
        }
    }
}
