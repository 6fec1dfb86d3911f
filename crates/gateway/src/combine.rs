//! From the replies of steps to the reply of a command.

use datatypes::key;
use resp::format_double;
use std::collections::BTreeSet;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// What the replies of a command's steps become. An operation's error, except where it says so, is the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    /// The only one is passed on.
    Pass,
    /// The only one is passed on, with its numbers as byte strings in both versions of the protocol (ZSCAN).
    Texts,
    /// The one with this number is passed on, the others were asked for to look what it does.
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
        let (mut result, mut error) = (BTreeSet::new(), None);
        for step in 0..steps {
            let members = match members(values) {
                Ok(members) => members,
                Err(found) => {
                    error = error.or(Some(found));
                    continue;
                }
            };
            match self {
                _ if step == 0 => result = members,
                Combine::Union => result.extend(members),
                Combine::Intersection | Combine::IntersectionSize { .. } => {
                    result.retain(|member| members.contains(member));
                }
                _ => result.retain(|member| !members.contains(member)),
            }
        }
        if let Some(error) = error {
            return sink.error(&error);
        }
        if let Combine::IntersectionSize { limit } = self {
            let most = if limit == 0 { i64::MAX } else { i64::try_from(limit).unwrap_or(i64::MAX) };
            return sink.integer(most.min(result.len() as i64));
        }
        sink.set(result.len());
        result.into_iter().for_each(|member| sink.bulk(member));
    }
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

fn members<'r>(values: &mut dyn Iterator<Item = Reply<'r>>) -> Result<BTreeSet<&'r [u8]>, Error> {
    match values.next() {
        Some(Reply::Error(error)) => Err(error),
        Some(header) => {
            let bulk = |value| match value {
                Reply::Bulk(bytes) => Some(bytes),
                _ => None,
            };
            Ok(values.take(header.children()).filter_map(bulk).collect())
        }
        None => Ok(BTreeSet::new()),
    }
}
