//! Commands on sorted sets that read before they write: what a read lists is stored, or the first set
//! that has members loses some.

use super::visits;
use crate::plan::{Call, Plan};
use crate::turns::{self, On, Replacement, Turns, first_error};
use datatypes::Operation::ScoredSet;
use datatypes::collections::ScoredTree;
use datatypes::scored_set::{End, Operation};
use datatypes::{Cell, Operation as Any, Value};
use protocol::Step;
use types::{Error, Reader, Reply, ReplyBuf, ReplySink};

/// A key's content: these members, or nothing if there are none.
pub(crate) fn cell_of(scored: ScoredTree) -> Cell {
    let value = (!scored.is_empty()).then(|| Value::ScoredSet(Box::new(scored)));
    Cell { value, expires_at: 0 }
}

/// Stores the members that a read lists with scores: ZRANGESTORE, GEOSEARCHSTORE.
#[derive(Debug)]
struct Store {
    destination: Box<[u8]>,
    source: Box<[u8]>,
    /// The read in its binary form.
    read: Vec<u8>,
    /// How many members were found, and what the destination becomes.
    found: Option<(usize, Replacement)>,
}

/// The plan of a command that stores under `destination` what `read` finds in `source`: an operation
/// that lists members with scores.
pub(crate) fn store<'a>(destination: &[u8], source: &[u8], read: Operation<'_>) -> Plan<'a> {
    let mut bytes = Vec::new();
    ScoredSet(read).encode(&mut bytes);
    turns::plan(Store { destination: destination.into(), source: source.into(), read: bytes, found: None })
}

impl Turns for Store {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        if let Some((_, write)) = &self.found {
            return vec![on.key(&self.destination, write.operation())];
        }
        let read = Any::decode(&mut Reader::new(&self.read));
        debug_assert!(read.is_ok(), "it was encoded here");
        read.map(|read| on.key(&self.source, read)).into_iter().collect()
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(error) = first_error(reply) {
            sink.error(&error);
            return true;
        }
        if let Some((count, _)) = self.found {
            sink.integer(count as i64);
            return true;
        }
        let (mut scored, mut member) = (ScoredTree::default(), None);
        for element in reply.elements() {
            match element {
                Reply::Bulk(bytes) => member = Some(bytes),
                Reply::Double(score) => {
                    scored.insert(member.unwrap_or_default(), score);
                }
                _ => {}
            }
        }
        let count = scored.len();
        match Replacement::new(&cell_of(scored)) {
            Ok(replacement) => self.found = Some((count, replacement)),
            Err(error) => sink.error(&error),
        }
        self.found.is_none()
    }
}

/// ZMPOP: asks for the lengths, then takes from the first key that has members.
#[derive(Debug)]
struct PopFirst {
    keys: Vec<Box<[u8]>>,
    end: End,
    count: u64,
    /// Which key has members.
    chosen: Option<usize>,
}

/// ZMPOP
pub(crate) fn pop<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (keys, place) = visits::counted_keys(call, Error::syntax)?;
    let end = match () {
        () if call.is(place, "MIN") => End::Min,
        () if call.is(place, "MAX") => End::Max,
        () => return Err(Error::syntax()),
    };
    let count = match call.len() - place {
        1 => 1,
        3 if call.is(place + 1, "COUNT") => {
            let count = call.count(place + 2).ok().filter(|count| *count > 0);
            count.ok_or_else(|| Error::err("count should be greater than 0"))?
        }
        _ => return Err(Error::syntax()),
    };
    let keys = keys.map(Into::into).collect();
    Ok(turns::plan(PopFirst { keys, end, count, chosen: None }))
}

impl Turns for PopFirst {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        match self.chosen {
            None => self.keys.iter().map(|key| on.key(key, ScoredSet(Operation::Length))).collect(),
            Some(chosen) => {
                let pop = Operation::Pop { end: self.end, count: Some(self.count) };
                vec![on.key(&self.keys[chosen], ScoredSet(pop))]
            }
        }
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(chosen) = self.chosen {
            write_popped(&self.keys[chosen], reply, sink);
            return true;
        }
        // As in Redis, a key of another type matters only if no key before it has members.
        let decides = |(_, length): &(usize, Reply<'_>)| *length != Reply::Integer(0);
        match reply.elements().enumerate().find(decides) {
            None => sink.null_array(),
            Some((_, Reply::Error(error))) => sink.error(&error),
            Some((chosen, _)) => {
                self.chosen = Some(chosen);
                return false;
            }
        }
        true
    }
}

/// The key, and each member with its score as an array of two.
fn write_popped(key: &[u8], reply: &ReplyBuf, sink: &mut dyn ReplySink) {
    if let Some(error) = reply.as_error() {
        return sink.error(&error);
    }
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
