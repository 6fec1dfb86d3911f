//! From the replies of steps to the reply of a command.

use datatypes::key;
use resp::format_double;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// What the replies of a command's steps become. An operation's error, except where it says so, is the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    /// The only one is passed on.
    Pass,
    /// The only one is passed on, with its numbers as byte strings in both versions of the protocol (ZSCAN).
    Texts,
    /// Passes on the reply with this number, and ignores the others.
    Pick(usize),
    /// Each is the reply of a command.
    Each,
    /// Integers are added up.
    Sum,
    /// An array of all; a key of another type counts as absent (MGET).
    Array,
    /// `OK`.
    Status,
    /// `OK` when the integer is 1, else `no such key` (RENAME to the same name).
    MustExist,
    /// `OK` when the integer is 0, else `BUSYKEY` (RESTORE of what has expired).
    MustBeAbsent,
    /// The members of all sets.
    Union,
    /// The members that all sets have.
    Intersection,
    /// How many members all sets have.
    IntersectionSize {
        /// No more than so many are counted; 0 for all.
        limit: u64,
    },
    /// The members of the first set that no other has.
    Difference,
}

impl Combine {
    /// True when the reply to one step is passed on as it is.
    pub(crate) fn passes_one_on(self) -> bool {
        matches!(self, Combine::Pass | Combine::Sum)
    }

    /// How many commands had these steps.
    pub(crate) fn commands(self, steps: usize) -> usize {
        if self == Combine::Each { steps } else { 1 }
    }

    /// Reads the replies to `steps` steps and writes the command's.
    pub(crate) fn write<'r>(
        self,
        steps: usize,
        values: &mut dyn Iterator<Item = Reply<'r>>,
        sink: &mut dyn ReplySink,
    ) {
        match self {
            Combine::Pass => copy_value(values, sink),
            Combine::Texts => copy_texts(values, sink),
            Combine::Pick(index) => {
                for step in 0..steps {
                    match step == index {
                        true => copy_value(values, sink),
                        false => copy_value(values, &mut ReplyBuf::new()),
                    }
                }
            }
            Combine::Each => (0..steps).for_each(|_| copy_value(values, sink)),
            Combine::Sum => write_result(integers(steps, values).map(|all| all.iter().sum()), sink),
            Combine::MustExist => match integers(steps, values) {
                Ok(all) if all.contains(&0) => sink.error(&no_such_key()),
                Ok(_) => sink.simple("OK"),
                Err(error) => sink.error(&error),
            },
            Combine::MustBeAbsent => match integers(steps, values) {
                Ok(all) if all.contains(&1) => sink.error(&key::busy_key()),
                Ok(_) => sink.simple("OK"),
                Err(error) => sink.error(&error),
            },
            Combine::Array => {
                sink.array(steps);
                for _ in 0..steps {
                    match values.next() {
                        Some(Reply::Error(error)) if error.code == ErrorCode::WrongType => sink.null(),
                        Some(value) => copy_rest(value, values, sink),
                        None => sink.null(),
                    }
                }
            }
            Combine::Status => match first_error(steps, values) {
                None => sink.simple("OK"),
                Some(error) => sink.error(&error),
            },
            Combine::Union
            | Combine::Intersection
            | Combine::IntersectionSize { .. }
            | Combine::Difference => self.sets(steps, values, sink),
        }
    }

    fn sets<'r>(self, steps: usize, values: &mut dyn Iterator<Item = Reply<'r>>, sink: &mut dyn ReplySink) {
        let (mut sets, mut error) = (Vec::with_capacity(steps), None);
        for _ in 0..steps {
            match members(values) {
                Ok(members) => sets.push(members),
                Err(found) => error = error.or(Some(found)),
            }
        }
        if let Some(error) = error {
            return sink.error(&error);
        }
        let result = match self {
            Combine::IntersectionSize { limit } => {
                let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
                return sink.integer(intersection(sets, most).len() as i64);
            }
            Combine::Intersection => intersection(sets, usize::MAX),
            Combine::Union => union(sets),
            _ => difference(sets),
        };
        sink.set(result.len());
        result.into_iter().for_each(|member| sink.bulk(member));
    }
}

/// The members of all sets; sorted, as in the functions below.
fn union(sets: Vec<Vec<&[u8]>>) -> Vec<&[u8]> {
    let mut result = sets.concat();
    result.sort_unstable();
    result.dedup();
    result
}

/// At most so many of the members that all sets have: those of the smallest set that are found in the others.
fn intersection(mut sets: Vec<Vec<&[u8]>>, most: usize) -> Vec<&[u8]> {
    sets.sort_by_key(Vec::len);
    let mut sets = sets.into_iter();
    let mut result = sets.next().unwrap_or_default();
    result.sort_unstable();
    while let Some(set) = sets.next() {
        let enough = if sets.len() == 0 { most } else { usize::MAX };
        let mut found = found_in(&result, &set, enough).into_iter();
        result.retain(|_| found.next() == Some(true));
    }
    result.truncate(most);
    result
}

/// The members of the first set that no other has.
fn difference(sets: Vec<Vec<&[u8]>>) -> Vec<&[u8]> {
    let mut sets = sets.into_iter();
    let mut result = sets.next().unwrap_or_default();
    result.sort_unstable();
    for set in sets {
        let mut found = found_in(&result, &set, usize::MAX).into_iter();
        result.retain(|_| found.next() == Some(false));
    }
    result
}

/// Which of the sorted members a set has; no more are looked for when `enough` are found.
fn found_in(sorted: &[&[u8]], set: &[&[u8]], enough: usize) -> Vec<bool> {
    let mut found = vec![false; sorted.len()];
    let places = set.iter().filter_map(|member| sorted.binary_search(member).ok());
    places.take(enough.min(sorted.len())).for_each(|place| found[place] = true);
    found
}

/// RENAME of nothing.
pub(crate) fn no_such_key() -> Error {
    Error::err("no such key")
}

/// The error that stands in place of all the replies to `steps` steps, if one does: then nothing happened (unless
/// its code says otherwise).
pub(crate) fn whole_error(reply: &ReplyBuf, steps: usize) -> Option<Error> {
    let error = reply.as_error()?;
    let of_an_operation = matches!(
        error.code,
        ErrorCode::Err
            | ErrorCode::WrongType
            | ErrorCode::Siblings
            | ErrorCode::BusyKey
            | ErrorCode::InvalidObject
            | ErrorCode::NoGroup
            | ErrorCode::BusyGroup
    );
    let alone = reply.elements().nth(1).is_none();
    (alone && (steps != 1 || !of_an_operation)).then_some(error)
}

/// Copies one value with everything in it.
pub(crate) fn copy_value<'r>(values: &mut dyn Iterator<Item = Reply<'r>>, sink: &mut dyn ReplySink) {
    if let Some(value) = values.next() {
        copy_rest(value, values, sink);
    }
}

fn copy_rest<'r>(first: Reply<'r>, values: &mut dyn Iterator<Item = Reply<'r>>, sink: &mut dyn ReplySink) {
    let mut due = first.children();
    first.write(sink);
    while due > 0 {
        let Some(value) = values.next() else { return };
        due = due - 1 + value.children();
        value.write(sink);
    }
}

/// Copies one value with everything in it, numbers as byte strings.
fn copy_texts<'r>(values: &mut dyn Iterator<Item = Reply<'r>>, sink: &mut dyn ReplySink) {
    let mut due = 1;
    while due > 0 {
        let Some(value) = values.next() else { return };
        due = due - 1 + value.children();
        match value {
            Reply::Double(number) => sink.bulk(&format_double(number)),
            value => value.write(sink),
        }
    }
}

fn write_result(result: Result<i64, Error>, sink: &mut dyn ReplySink) {
    match result {
        Ok(value) => sink.integer(value),
        Err(error) => sink.error(&error),
    }
}

fn integers<'r>(steps: usize, values: &mut dyn Iterator<Item = Reply<'r>>) -> Result<Vec<i64>, Error> {
    let mut error = None;
    let mut all = Vec::with_capacity(steps);
    for value in values.take(steps) {
        match value {
            Reply::Integer(value) => all.push(value),
            Reply::Error(found) => error = error.or(Some(found)),
            _ => debug_assert!(false, "an integer or an error is due"),
        }
    }
    error.map_or(Ok(all), Err)
}

fn first_error<'r>(steps: usize, values: &mut dyn Iterator<Item = Reply<'r>>) -> Option<Error> {
    let mut error = None;
    for value in values.take(steps) {
        if let Reply::Error(found) = value {
            error = error.or(Some(found));
        }
    }
    error
}

/// The members of a set, as the store lists them.
fn members<'r>(values: &mut dyn Iterator<Item = Reply<'r>>) -> Result<Vec<&'r [u8]>, Error> {
    let header = match values.next() {
        Some(Reply::Error(error)) => return Err(error),
        Some(header) => header,
        None => return Ok(Vec::new()),
    };
    let mut members = Vec::with_capacity(header.children());
    members.extend(values.take(header.children()).filter_map(|value| match value {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }));
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// What a command replies to these sets.
    fn combined(combine: Combine, sets: &[BTreeSet<u8>]) -> ReplyBuf {
        let (mut replies, mut result) = (ReplyBuf::new(), ReplyBuf::new());
        for set in sets {
            replies.set(set.len());
            // Not in order: the store lists members as they lie.
            set.iter().rev().for_each(|member| replies.bulk(&[*member]));
        }
        combine.write(sets.len(), &mut replies.elements(), &mut result);
        result
    }

    proptest! {
        #[test]
        fn sets_combine_as_sets_do(
            sets in prop::collection::vec(prop::collection::btree_set(0u8..12, 0..10), 1..5),
            limit in 0u64..6,
        ) {
            let (first, others) = (sets[0].clone(), &sets[1..]);
            let fold = |function: fn(&BTreeSet<u8>, &BTreeSet<u8>) -> BTreeSet<u8>| {
                others.iter().fold(first.clone(), |all, set| function(&all, set))
            };
            let reply = |set: &BTreeSet<u8>| combined(Combine::Union, std::slice::from_ref(set));
            let common = fold(|a, b| a & b);
            prop_assert_eq!(combined(Combine::Union, &sets), reply(&fold(|a, b| a | b)));
            prop_assert_eq!(combined(Combine::Intersection, &sets), reply(&common));
            prop_assert_eq!(combined(Combine::Difference, &sets), reply(&fold(|a, b| a - b)));
            let most = if limit == 0 { usize::MAX } else { limit as usize };
            let size = combined(Combine::IntersectionSize { limit }, &sets);
            prop_assert_eq!(size.first(), Some(Reply::Integer(common.len().min(most) as i64)));
        }
    }

    #[test]
    fn the_members_of_a_union_are_in_order() {
        let sets = [BTreeSet::from([3, 1]), BTreeSet::from([2, 3])];
        let reply = combined(Combine::Union, &sets);
        let members: Vec<Reply<'_>> = reply.elements().collect();
        assert_eq!(members, [Reply::Set(3), Reply::Bulk(&[1]), Reply::Bulk(&[2]), Reply::Bulk(&[3])]);
    }
}
