//! Commands that take elements from the first of some keys that has any: LMPOP, ZMPOP, and the blocking commands, which are
//! planned here as if they did not block. How they wait is in [`crate::blocking`].

use super::list_moves;
use super::visits::counted_keys;
use crate::number::parse_bound;
use crate::plan::{Call, Plan};
use crate::turns::{self, On, Turns};
use datatypes::Operation::{List, ScoredSet};
use datatypes::{Operation, list, scored_set};
use protocol::Step;
use std::time::Duration;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// What is taken, from which end.
#[derive(Clone, Copy, Debug)]
enum From {
    /// Elements of a list.
    List(list::End),
    /// Members of a sorted set.
    Scores(scored_set::End),
}

/// Takes from the first key that has elements: of several keys the lengths are read first.
#[derive(Debug)]
struct PopFirst {
    keys: Vec<Box<[u8]>>,
    from: From,
    /// How many; `None` for one, which is replied without a list around it.
    count: Option<u64>,
    /// Which key has elements, once that was read.
    found: Option<usize>,
    /// A key of another type has no elements, and is no error.
    skips_other_types: bool,
    /// See [`Turns::only_look`].
    only_looks: bool,
}

impl PopFirst {
    /// The key to take from, if there is no choice left.
    fn target(&self) -> Option<usize> {
        self.found.or((self.keys.len() == 1 && !self.only_looks).then_some(0))
    }

    fn skips(&self, error: &Error) -> bool {
        self.skips_other_types && error.code == ErrorCode::WrongType
    }

    /// Writes the key with what was taken from it.
    fn write(&self, key: &[u8], reply: &ReplyBuf, sink: &mut dyn ReplySink) {
        match reply.first() {
            Some(Reply::Error(error)) if !self.skips(&error) => sink.error(&error),
            None
            | Some(Reply::Error(_) | Reply::Null | Reply::NullArray | Reply::Array(0) | Reply::Pairs(0)) => {
                sink.null_array();
            }
            // The member and its score stand beside the key.
            Some(Reply::Array(2)) if self.count.is_none() => {
                sink.array(3);
                sink.bulk(key);
                reply.elements().skip(1).for_each(|element| element.write(sink));
            }
            Some(_) => {
                sink.array(2);
                sink.bulk(key);
                for element in reply.elements() {
                    match element {
                        Reply::Pairs(count) => sink.array(count),
                        Reply::Pair => sink.array(2),
                        element => element.write(sink),
                    }
                }
            }
        }
    }
}

impl Turns for PopFirst {
    fn is_atomic(&self) -> bool {
        self.keys.len() > 1
    }

    fn skip_other_types(&mut self) {
        self.skips_other_types = true;
    }

    fn only_look(&mut self) {
        self.only_looks = true;
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let Some(target) = self.target() else {
            let length = || match self.from {
                From::List(_) => List(list::Operation::Length),
                From::Scores(_) => ScoredSet(scored_set::Operation::Length),
            };
            return self.keys.iter().map(|key| on.key(key, length())).collect();
        };
        let count = self.count;
        let pop: Operation<'_> = match self.from {
            From::List(end) => List(list::Operation::Pop { end, count }),
            From::Scores(end) => ScoredSet(scored_set::Operation::Pop { end, count }),
        };
        vec![on.key(&self.keys[target], pop)]
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(target) = self.target() {
            self.write(&self.keys[target], reply, sink);
            return true;
        }
        // As in Redis, a key of another type matters only if no key before it has elements.
        let decides = |(_, length): &(usize, Reply<'_>)| match length {
            Reply::Integer(0) => false,
            Reply::Error(error) => !self.skips(error),
            _ => true,
        };
        match reply.elements().enumerate().find(decides) {
            None => sink.null_array(),
            Some((_, Reply::Error(error))) => sink.error(&error),
            Some(_) if self.only_looks => sink.null_array(),
            Some((found, _)) => {
                self.found = Some(found);
                return false;
            }
        }
        true
    }
}

fn plan<'a>(keys: impl Iterator<Item = &'a [u8]>, from: From, count: Option<u64>) -> Plan<'a> {
    let keys = keys.map(Into::into).collect();
    turns::plan(PopFirst { keys, from, count, found: None, skips_other_types: false, only_looks: false })
}

/// `numkeys key ... end [COUNT count]`, where the table says.
fn counted<'a>(call: &Call<'a>, end: impl FnOnce(usize) -> Result<From, Error>) -> Result<Plan<'a>, Error> {
    let (keys, mut next) = counted_keys(call, Error::syntax)?;
    if next == call.len() {
        return Err(Error::syntax());
    }
    let from = end(next)?;
    let mut count = 1;
    if next + 2 < call.len() && call.is(next + 1, "COUNT") {
        let given = call.count(next + 2).ok().filter(|count| *count > 0);
        count = given.ok_or_else(|| Error::err("count should be greater than 0"))?;
        next += 2;
    }
    if next + 1 < call.len() {
        return Err(Error::syntax());
    }
    Ok(plan(keys, from, Some(count)))
}

/// LMPOP
pub(super) fn of_lists<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    counted(call, |index| list_moves::end(call, index).map(From::List))
}

/// ZMPOP
pub(super) fn of_scored_sets<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    counted(call, |index| match () {
        () if call.is(index, "MIN") => Ok(From::Scores(scored_set::End::Min)),
        () if call.is(index, "MAX") => Ok(From::Scores(scored_set::End::Max)),
        () => Err(Error::syntax()),
    })
}

/// `key ... timeout`
fn blocking<'a>(call: &Call<'a>, from: From) -> Result<Plan<'a>, Error> {
    timeout(call)?;
    Ok(plan(call.arguments.iter().skip(1).take(call.len() - 2), from, None))
}

/// BLPOP
pub(super) fn blocking_front<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    blocking(call, From::List(list::End::Front))
}

/// BRPOP
pub(super) fn blocking_back<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    blocking(call, From::List(list::End::Back))
}

/// BZPOPMIN
pub(super) fn blocking_min<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    blocking(call, From::Scores(scored_set::End::Min))
}

/// BZPOPMAX
pub(super) fn blocking_max<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    blocking(call, From::Scores(scored_set::End::Max))
}

/// BLMPOP
pub(super) fn blocking_of_lists<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let plan = of_lists(call)?;
    timeout(call).map(|_| plan)
}

/// BZMPOP
pub(super) fn blocking_of_scored_sets<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let plan = of_scored_sets(call)?;
    timeout(call).map(|_| plan)
}

/// BLMOVE
pub(super) fn blocking_move<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let plan = list_moves::between(call)?;
    timeout(call).map(|_| plan)
}

/// BRPOPLPUSH
pub(super) fn blocking_back_to_front<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let plan = list_moves::back_to_front(call)?;
    timeout(call).map(|_| plan)
}

/// How long a blocking command waits, in whole milliseconds; `None` for ever.
///
/// # Errors
/// It is no number, negative, or so large that its end has no number.
pub(crate) fn timeout(call: &Call<'_>) -> Result<Option<Duration>, Error> {
    let index = if call.command.key_count > 0 { 1 } else { call.len() - 1 };
    let seconds = parse_bound(call.bytes(index));
    let seconds = seconds.ok_or_else(|| Error::err("timeout is not a float or out of range"))?;
    let millis = (seconds * 1000.0).ceil();
    if millis < 0.0 {
        return Err(Error::err("timeout is negative"));
    }
    if millis + call.now_millis as f64 >= i64::MAX as f64 {
        return Err(Error::err("timeout is out of range"));
    }
    Ok((millis > 0.0).then(|| Duration::from_millis(millis as u64)))
}
