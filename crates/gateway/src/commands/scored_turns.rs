//! Commands on sorted sets that read before they write: what a read lists is stored.

use crate::plan::Plan;
use crate::turns::{self, On, Replacement, Turns, first_error};
use datatypes::Operation::ScoredSet;
use datatypes::collections::ScoredTree;
use datatypes::scored_set::Operation;
use datatypes::{Cell, Operation as Any, Value};
use protocol::Step;
use types::{Reader, Reply, ReplyBuf, ReplySink};

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
