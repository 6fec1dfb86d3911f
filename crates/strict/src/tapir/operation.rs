//! TAPIR's operations on IR: Prepare is a consensus operation, Commit and Abort are inconsistent ones.

use crate::ir;
use commit::{Access, Observed};
use datatypes::{Effect, Invocation, Observation, Operation};
use std::sync::Arc;
use types::{Malformed, Reader, Timestamp, Wire, wire_enum, wire_struct};

/// One evaluated operation of a transaction on one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Invoked {
    /// The key.
    pub key: Box<[u8]>,
    /// The operation in its binary form, for what it observes; `None` if nobody sees its result (blind).
    pub operation: Option<Box<[u8]>>,
    /// The effect in its binary form, if it changes anything.
    pub effect: Option<Box<[u8]>>,
    /// The exact effects that its evaluation saw; `None` if it was not evaluated on a replica's state.
    pub observed: Option<Observed>,
}
wire_struct!(Invoked { key, operation, effect, observed });

impl Invoked {
    /// What it observes and changes.
    pub fn access(&self) -> Result<Access<'_>, Malformed> {
        let observation = match &self.operation {
            Some(bytes) => Operation::decode(&mut Reader::new(bytes))?.observation(),
            None => Observation::NOTHING,
        };
        Ok(Access {
            invocation: Invocation { observation, effect: self.effect()? },
            observed: self.observed.as_ref(),
        })
    }

    /// What it changes.
    pub fn effect(&self) -> Result<Option<Effect<'_>>, Malformed> {
        self.effect.as_ref().map(|bytes| Effect::decode(&mut Reader::new(bytes))).transpose()
    }
}

/// A shard's part of a transaction, and who else takes part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Every participant shard, ascending; the replicas of the first are the backup coordinators.
    pub participants: Vec<u16>,
    /// The invocations on this shard's keys, in the order of the transaction.
    pub invocations: Vec<Invoked>,
}
wire_struct!(Part { participants, invocations });

/// The consensus operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// The proposed timestamp; with the transaction's id it is the stamp.
    pub at: Timestamp,
    /// What to validate and hold.
    pub part: Arc<Part>,
}

impl Wire for Prepare {
    fn encode(&self, out: &mut Vec<u8>) {
        self.at.encode(out);
        self.part.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Prepare { at: Wire::decode(input)?, part: Arc::new(Part::decode(input)?) })
    }
}

/// The result of Prepare at one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// No conflict: the transaction is prepared here until it ends.
    PrepareOk,
    /// It conflicts with a transaction that is prepared and undecided.
    Abstain,
    /// It missed a committed effect that it depends on.
    Abort,
    /// It may succeed at a timestamp above this one.
    Retry {
        /// The timestamp to exceed.
        above: Timestamp,
    },
    /// Promised to a backup coordinator: never voted, and will not (IR-TAPIR, coordinator recovery).
    NoVote,
}
wire_enum!(Vote { 0 => PrepareOk, 1 => Abstain, 2 => Abort, 3 => Retry { above }, 4 => NoVote });

/// The inconsistent operation that ends a transaction at one shard.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Commit at this timestamp; carries all that a replica needs that missed Prepare (Corrections 11).
    Commit {
        /// The timestamp.
        at: Timestamp,
        /// The shard's part.
        part: Arc<Part>,
    },
    /// Abort; stays as a tombstone, so that a late Prepare is refused (Corrections 14).
    Abort,
}

impl Wire for Decision {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Decision::Commit { at, part } => {
                out.push(0);
                at.encode(out);
                part.encode(out);
            }
            Decision::Abort => out.push(1),
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Decision::Commit { at: Wire::decode(input)?, part: Arc::new(Part::decode(input)?) },
            1 => Decision::Abort,
            _ => return Err(Malformed("decision tag")),
        })
    }
}

/// TAPIR's operations, as IR sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transactions;

impl ir::Operations for Transactions {
    type Consensus = Prepare;
    type Result = Vote;
    type Inconsistent = Decision;

    const NO_VOTE: Vote = Vote::NoVote;

    fn holds(vote: Vote) -> bool {
        vote == Vote::PrepareOk
    }
}
