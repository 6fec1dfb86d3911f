//! RANDOMKEY: draws keys until one turns out to exist.
//!
//! A draw is a hint: it costs no look at all keys, and the transaction does not depend on it. A step of its own reads
//! what the reply says, which the keyspace judges like any other: that the key exists, or how many keys there are.
//! Where keys are counted that are not found by drawing, because they have expired and nobody has met them yet, or a
//! replica is behind, all of them are visited.

use crate::dialogue::piece;
use datatypes::{Operation, key};
use protocol::{KeyedOperation, Step};
use std::mem;
use types::{HashSeed, Reply, ReplyBuf, ReplySink};

/// How many keys are drawn, and found gone, before all are counted.
const DRAWS: u32 = 32;

/// How many keys are visited at a time then.
const VISITED: u32 = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RandomKey {
    request: DrawRequest,
    draws: u32,
}

/// The request that waits for its reply, or comes next.
#[derive(Debug, Default)]
enum DrawRequest {
    /// A key.
    #[default]
    Draw,
    /// Whether it is there.
    Exists(Vec<u8>),
    /// How many there are.
    Count,
    /// Which there are, from a cursor on.
    Visit(u64),
    /// Whether these are there, and where to go on.
    ExistAny(Vec<Vec<u8>>, u64),
}

impl RandomKey {
    pub(crate) fn steps(&self, seed: HashSeed) -> Vec<Step<'_>> {
        let exists = |key| {
            let operation = Operation::Key(key::Operation::Exists);
            Step::Key(KeyedOperation { key, hash: seed.hash(key), operation, blind: false })
        };
        match &self.request {
            DrawRequest::Draw => vec![Step::Random],
            DrawRequest::Exists(key) => vec![exists(key)],
            DrawRequest::Count => vec![Step::Count],
            DrawRequest::Visit(cursor) => vec![Step::Scan { cursor: *cursor, count: VISITED }],
            DrawRequest::ExistAny(keys, _) => keys.iter().map(|key| exists(key)).collect(),
        }
    }

    /// Reads the reply to the last steps. True when the command is done and its reply is written into `sink`.
    pub(crate) fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        self.request = match (mem::take(&mut self.request), reply.first()) {
            (DrawRequest::Draw, Some(Reply::Bulk(key))) => DrawRequest::Exists(key.to_vec()),
            (DrawRequest::Draw, Some(Reply::Integer(_))) => DrawRequest::Count,
            (DrawRequest::Exists(key), Some(Reply::Integer(1))) => {
                sink.bulk(&key);
                return true;
            }
            (DrawRequest::Exists(_), _) if self.draws < DRAWS => {
                self.draws += 1;
                DrawRequest::Draw
            }
            (DrawRequest::Exists(_), _) => DrawRequest::Count,
            (DrawRequest::Count, Some(Reply::Integer(1..))) => DrawRequest::Visit(0),
            (DrawRequest::Visit(_), _) => {
                let (next, keys) = piece(reply);
                match (keys.map(<[u8]>::to_vec).collect::<Vec<_>>(), next) {
                    (keys, next) if !keys.is_empty() => DrawRequest::ExistAny(keys, next),
                    (_, 0) => return none(sink),
                    (_, next) => DrawRequest::Visit(next),
                }
            }
            (DrawRequest::ExistAny(keys, next), _) => {
                let there = reply.elements().map(|element| matches!(element, Reply::Integer(1)));
                match (keys.iter().zip(there).find(|(_, exists)| *exists), next) {
                    (Some((key, _)), _) => {
                        sink.bulk(key);
                        return true;
                    }
                    (None, 0) => return none(sink),
                    (None, next) => DrawRequest::Visit(next),
                }
            }
            (DrawRequest::Draw | DrawRequest::Count, _) => return none(sink),
        };
        false
    }
}

/// There is no key.
fn none(sink: &mut dyn ReplySink) -> bool {
    sink.null();
    true
}
