//! Commands that take elements of one list among several, or from one list to another.

use crate::commands::visits::counted_keys;
use crate::plan::{Call, Plan};
use crate::turns::{self, On, Turns, first_error};
use datatypes::Items;
use datatypes::Operation::List;
use datatypes::list::{End, Operation};
use protocol::Step;
use types::{Error, Reply, ReplyBuf, ReplySink};

/// An element on its way: it is read, and the type of the list that gets it is checked, then it is pushed and popped.
#[derive(Debug)]
struct Move {
    source: Box<[u8]>,
    destination: Box<[u8]>,
    from: End,
    to: End,
    /// The element, once it was read.
    element: Option<Box<[u8]>>,
}

impl Turns for Move {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let index = if self.from == End::Front { 0 } else { -1 };
        let (first, second) = match &self.element {
            None => (Operation::Index { index }, Operation::Length),
            Some(element) => {
                let values = Items::one(element);
                let push = Operation::Push { end: self.to, values, only_if_exists: false };
                // In this order a list of one element that is both source and destination stays, with its deadline.
                let pop = Operation::Pop { end: self.from, count: None };
                return vec![on.key(&self.destination, List(push)), on.key(&self.source, List(pop))];
            }
        };
        vec![on.key(&self.source, List(first)), on.key(&self.destination, List(second))]
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        match (&self.element, reply.first()) {
            // There is nothing to move, whatever the destination is.
            (None, Some(Reply::Null)) => sink.null(),
            _ if first_error(reply).is_some_and(|error| {
                sink.error(&error);
                true
            }) => {}
            (None, Some(Reply::Bulk(element))) => {
                self.element = Some(element.into());
                return false;
            }
            (None, _) => sink.null(),
            (Some(element), _) => sink.bulk(element),
        }
        true
    }
}

fn moving<'a>(call: &Call<'a>, from: End, to: End) -> Result<Plan<'a>, Error> {
    let (source, destination) = (call.bytes(1).into(), call.bytes(2).into());
    Ok(turns::plan(Move { source, destination, from, to, element: None }))
}

/// LMOVE
pub(super) fn between<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    moving(call, end(call, 3)?, end(call, 4)?)
}

/// RPOPLPUSH
pub(super) fn back_to_front<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    moving(call, End::Back, End::Front)
}

fn end(call: &Call<'_>, index: usize) -> Result<End, Error> {
    match () {
        () if call.is(index, "LEFT") => Ok(End::Front),
        () if call.is(index, "RIGHT") => Ok(End::Back),
        () => Err(Error::syntax()),
    }
}

/// LMPOP: the lists' lengths are read, then elements are popped from the first that has any.
#[derive(Debug)]
struct PopFirst {
    keys: Vec<Box<[u8]>>,
    end: End,
    count: u64,
    /// Which key's list has elements, once that is known.
    found: Option<usize>,
}

impl Turns for PopFirst {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        match self.found {
            None => self.keys.iter().map(|key| on.key(key, List(Operation::Length))).collect(),
            Some(index) => {
                let pop = Operation::Pop { end: self.end, count: Some(self.count) };
                vec![on.key(&self.keys[index], List(pop))]
            }
        }
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(index) = self.found {
            match first_error(reply) {
                Some(error) => sink.error(&error),
                None => {
                    sink.array(2);
                    sink.bulk(&self.keys[index]);
                    reply.replay(sink);
                }
            }
            return true;
        }
        // Behind the first list with elements there may be keys of other types.
        for (index, length) in reply.elements().enumerate() {
            match length {
                Reply::Integer(0) => {}
                Reply::Error(error) => {
                    sink.error(&error);
                    return true;
                }
                _ => {
                    self.found = Some(index);
                    return false;
                }
            }
        }
        sink.null_array();
        true
    }
}

/// LMPOP
pub(super) fn pop_first<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (keys, next) = counted_keys(call, Error::syntax)?;
    if next == call.len() {
        return Err(Error::syntax());
    }
    let end = end(call, next)?;
    let count = match call.len() - next {
        1 => 1,
        3 if call.is(next + 1, "COUNT") => {
            let count = call.count(next + 2).ok().filter(|count| *count > 0);
            count.ok_or_else(|| Error::err("count should be greater than 0"))?
        }
        _ => return Err(Error::syntax()),
    };
    Ok(turns::plan(PopFirst { keys: keys.map(Into::into).collect(), end, count, found: None }))
}
