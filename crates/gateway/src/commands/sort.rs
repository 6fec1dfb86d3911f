//! SORT and SORT_RO: the elements of a collection in order, by themselves or by what other keys hold.
//!
//! ```text
//!   the collection --> the keys of BY, one for each element --> order, LIMIT --> the keys of GET --> STORE
//! ```
//!
//! Each arrow is a turn, left out where there is nothing to ask. All turns are one transaction; the command requests
//! the keys of a turn together.

mod options;
mod order;

use crate::plan::{Call, Plan};
use crate::turns::{self, On, Replacement, Turns};
use datatypes::collections::ChunkedList;
use datatypes::{Cell, Operation, Value, key};
use options::{Options, Pattern};
use protocol::Step;
use types::{Error, ErrorCode, MAX_REPLY_BYTES, Reader, Reply, ReplyBuf, ReplySink};

pub(crate) use options::destination;

/// The most elements of a result.
const MAX_RESULTS: usize = 1 << 24;

/// SORT
pub(crate) fn sort<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, true)
}

/// SORT_RO
pub(crate) fn sort_read_only<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    plan(call, false)
}

fn plan<'a>(call: &Call<'a>, may_store: bool) -> Result<Plan<'a>, Error> {
    let options = Options::read(call, may_store)?;
    let key = call.bytes(1).into();
    Ok(turns::plan(Sort { key, options, turn: Turn::Collection }))
}

/// SORT in progress.
#[derive(Debug)]
struct Sort {
    key: Box<[u8]>,
    options: Options,
    turn: Turn,
}

/// An element, or what a key holds; nothing if the key is absent or of another type.
type Found = Option<Vec<u8>>;

/// The request in progress.
#[derive(Debug)]
enum Turn {
    /// The collection.
    Collection,
    /// What orders the elements.
    Weights { elements: Vec<Vec<u8>>, keys: Vec<Vec<u8>> },
    /// What is replied in place of the elements.
    Values { elements: Vec<Vec<u8>>, keys: Vec<(usize, Vec<u8>)> },
    /// Whether the result is stored.
    Store {
        /// How many elements it has.
        len: usize,
        /// The new list.
        list: Replacement,
    },
}

impl Turns for Sort {
    fn is_atomic(&self) -> bool {
        self.options.looks_up() || self.options.store.is_some()
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let step = |key, operation| on.key(key, Operation::Key(operation));
        match &self.turn {
            Turn::Collection => vec![step(&self.key, key::Operation::Copy)],
            Turn::Weights { keys, .. } => {
                let Some(by) = &self.options.by else { return Vec::new() };
                keys.iter().map(|key| on.key(key, by.operation())).collect()
            }
            Turn::Values { keys, .. } => keys
                .iter()
                .map(|(pattern, key)| on.key(key, self.options.get[*pattern].operation()))
                .collect(),
            Turn::Store { list, .. } => {
                vec![on.key(self.options.store.as_deref().unwrap_or_default(), list.operation())]
            }
        }
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        let went_on = match std::mem::replace(&mut self.turn, Turn::Collection) {
            Turn::Collection => self.on_collection(reply, sink),
            Turn::Weights { elements, .. } => {
                found(reply).and_then(|weights| self.order(elements, Some(weights), sink))
            }
            Turn::Values { elements, keys } => {
                found(reply).and_then(|values| self.finish(elements, &keys, values, sink))
            }
            Turn::Store { len, .. } => match turns::first_error(reply) {
                Some(error) => Err(error),
                None => {
                    sink.integer(len as i64);
                    Ok(true)
                }
            },
        };
        went_on.unwrap_or_else(|error| {
            sink.error(&error);
            true
        })
    }
}

impl Sort {
    /// Each of these goes on to the next turn that has something to ask, or replies; true when it has
    /// replied.
    fn on_collection(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> Result<bool, Error> {
        let cell = match reply.first() {
            Some(Reply::Error(error)) => return Err(error),
            Some(Reply::Bulk(bytes)) => Cell::decode(&mut Reader::new(bytes)).unwrap_or(Cell::ABSENT),
            _ => Cell::ABSENT,
        };
        if matches!(cell.value, Some(Value::Set(_))) {
            self.options.order_set();
        }
        let elements = order::elements(&cell, &self.options)?;
        let Some(by) = self.options.by.as_ref().filter(|_| self.options.sorts()) else {
            return self.order(elements, None, sink);
        };
        check_size(&elements, std::slice::from_ref(by))?;
        let keys: Vec<Vec<u8>> = elements.iter().filter_map(|element| by.key(element)).collect();
        if keys.is_empty() {
            return self.order(elements, None, sink);
        }
        self.turn = Turn::Weights { elements, keys };
        Ok(false)
    }

    fn order(
        &mut self,
        elements: Vec<Vec<u8>>,
        weights: Option<Vec<Found>>,
        sink: &mut dyn ReplySink,
    ) -> Result<bool, Error> {
        let elements = order::window(order::sorted(elements, weights, &self.options)?, &self.options);
        check_size(&elements, &self.options.get)?;
        let patterns = || self.options.get.iter().enumerate();
        let of_element = |element: &Vec<u8>| {
            patterns().filter_map(|(index, pattern)| Some((index, pattern.key(element)?))).collect::<Vec<_>>()
        };
        let keys: Vec<(usize, Vec<u8>)> = elements.iter().flat_map(of_element).collect();
        if keys.is_empty() {
            return self.finish(elements, &keys, Vec::new(), sink);
        }
        self.turn = Turn::Values { elements, keys };
        Ok(false)
    }

    fn finish(
        &mut self,
        elements: Vec<Vec<u8>>,
        keys: &[(usize, Vec<u8>)],
        values: Vec<Found>,
        sink: &mut dyn ReplySink,
    ) -> Result<bool, Error> {
        debug_assert_eq!(keys.len(), values.len(), "each key has a reply");
        let get = &self.options.get;
        let mut values = values.into_iter();
        let mut results: Vec<Found> = Vec::with_capacity(elements.len() * get.len().max(1));
        for element in elements {
            if get.is_empty() {
                results.push(Some(element));
                continue;
            }
            results.extend(get.iter().map(|pattern| match pattern {
                Pattern::Element => Some(element.clone()),
                Pattern::Nothing => None,
                Pattern::Key { .. } => values.next().flatten(),
            }));
        }
        if self.options.store.is_none() {
            sink.array(results.len());
            results.iter().for_each(|result| match result {
                Some(bytes) => sink.bulk(bytes),
                None => sink.null(),
            });
            return Ok(true);
        }
        let list = Replacement::new(&list_of(&results))?;
        self.turn = Turn::Store { len: results.len(), list };
        Ok(false)
    }
}

/// Refuses a result whose elements would be many more than a list has, or whose keys or copies of elements would fill the
/// memory.
fn check_size(elements: &[Vec<u8>], patterns: &[Pattern]) -> Result<(), Error> {
    let bytes: usize = elements.iter().map(Vec::len).sum();
    let of_pattern = |pattern: &Pattern| match pattern {
        Pattern::Nothing => 0,
        Pattern::Element => bytes,
        Pattern::Key { before, behind, .. } => {
            let text = (before.len() + behind.len()).saturating_mul(elements.len());
            text.saturating_add(bytes)
        }
    };
    let all = patterns.iter().map(of_pattern).fold(0, usize::saturating_add);
    let results = elements.len().saturating_mul(patterns.len());
    if results > MAX_RESULTS || all > MAX_REPLY_BYTES { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> Error {
    Error::err("the result of SORT would be too large")
}

/// What the keys of a turn hold. A key of another type counts as absent.
fn found(reply: &ReplyBuf) -> Result<Vec<Found>, Error> {
    let found = |element| match element {
        Reply::Bulk(bytes) => Ok(Some(bytes.to_vec())),
        Reply::Error(error) if error.code != ErrorCode::WrongType => Err(error),
        _ => Ok(None),
    };
    reply.elements().map(found).collect()
}

/// A list of the results; what is absent becomes an empty element.
fn list_of(results: &[Found]) -> Cell {
    let mut list = ChunkedList::new();
    results.iter().for_each(|result| list.push_back(result.as_deref().unwrap_or_default()));
    let value = (!results.is_empty()).then(|| Value::List(Box::new(list)));
    Cell { value, expires_at: 0 }
}
