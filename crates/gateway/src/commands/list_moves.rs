//! Commands that move an element from one list to another.

use crate::plan::{Call, Plan};
use crate::turns::{self, On, Turns, first_error};
use datatypes::Items;
use datatypes::Operation::List;
use datatypes::list::{End, Operation};
use protocol::Step;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink};

/// An element on its way: it is read, and the type of the list that gets it is checked, then it is pushed and popped.
#[derive(Debug)]
struct Move {
    source: Box<[u8]>,
    destination: Box<[u8]>,
    from: End,
    to: End,
    /// The element, once it was read.
    element: Option<Box<[u8]>>,
    /// A source of another type has no elements, and is no error.
    skips_other_types: bool,
    /// See [`Turns::only_look`].
    only_looks: bool,
}

impl Turns for Move {
    fn skip_other_types(&mut self) {
        self.skips_other_types = true;
    }

    fn only_look(&mut self) {
        self.only_looks = true;
    }

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
        let first = reply.first();
        let is_skipped = |reply: &Reply<'_>| match reply {
            Reply::Error(error) => self.skips_other_types && error.code == ErrorCode::WrongType,
            reply => *reply == Reply::Null,
        };
        if self.element.is_none() && first.as_ref().is_some_and(is_skipped) {
            // There is nothing to move, whatever the destination is.
            sink.null();
            return true;
        }
        if let Some(error) = first_error(reply) {
            sink.error(&error);
            return true;
        }
        match (&self.element, first) {
            (Some(element), _) => sink.bulk(element),
            (None, Some(Reply::Bulk(element))) if !self.only_looks => {
                self.element = Some(element.into());
                return false;
            }
            (None, _) => sink.null(),
        }
        true
    }
}

fn moving<'a>(call: &Call<'a>, from: End, to: End) -> Result<Plan<'a>, Error> {
    let (source, destination) = (call.bytes(1).into(), call.bytes(2).into());
    Ok(turns::plan(Move {
        source,
        destination,
        from,
        to,
        element: None,
        skips_other_types: false,
        only_looks: false,
    }))
}

/// LMOVE
pub(super) fn between<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    moving(call, end(call, 3)?, end(call, 4)?)
}

/// RPOPLPUSH
pub(super) fn back_to_front<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    moving(call, End::Back, End::Front)
}

pub(super) fn end(call: &Call<'_>, index: usize) -> Result<End, Error> {
    match () {
        () if call.is(index, "LEFT") => Ok(End::Front),
        () if call.is(index, "RIGHT") => Ok(End::Back),
        () => Err(Error::syntax()),
    }
}
