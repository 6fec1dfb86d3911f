//! What QWStore's coordinators and replicas say to one another, and what replicas write down.

use datatypes::Effect;
use strict::validation::Stamp;
use types::{ReplyBuf, TransactionId, wire_enum, wire_struct};

/// Effects in their binary form, in order.
pub type Effects = Vec<Box<[u8]>>;

/// The binary form of an effect.
pub(super) fn encoded(effect: &Effect<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes.into()
}

/// A message between a coordinator and a replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Coordinator to the closest replica: evaluate.
    Read {
        /// Names the operation.
        id: TransactionId,
        /// The key.
        key: Box<[u8]>,
        /// The operation in its binary form.
        operation: Box<[u8]>,
        /// The time for expiries, in milliseconds since 1970.
        now_millis: u64,
    },
    /// Replica to coordinator: the answer.
    ReadReply {
        /// Names the operation.
        id: TransactionId,
        /// What the client will see.
        result: ReplyBuf,
        /// What is to be written; nothing for a read.
        effects: Effects,
    },
    /// Coordinator to every replica: these effects have this place in the key's order.
    Write {
        /// Names the operation.
        id: TransactionId,
        /// The write.
        write: Record,
    },
    /// Replica to coordinator: it is in the journal.
    Written {
        /// Names the operation.
        id: TransactionId,
    },
}
wire_enum!(Message {
    0 => Read { id, key, operation, now_millis },
    1 => ReadReply { id, result, effects },
    2 => Write { id, write },
    3 => Written { id },
});

/// Effects on a key, as messages and the journal have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The key.
    pub key: Box<[u8]>,
    /// Where they belong among the key's effects.
    pub stamp: Stamp,
    /// What is done, in order.
    pub effects: Effects,
}
wire_struct!(Record { key, stamp, effects });

/// What coordinators are reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The question with this number is not answered.
    Question {
        /// The operation's number.
        number: u64,
    },
}
