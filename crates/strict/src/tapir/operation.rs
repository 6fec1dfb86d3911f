//! TAPIR's operations on IR: Prepare is a consensus operation, Commit and Abort are inconsistent ones.

use crate::ir;
pub use crate::part::{Invoked, Part};
use crate::validation::Stamp;
use std::sync::Arc;
use std::time::Duration;
use types::{Malformed, Reader, Timestamp, Wire, wire_enum};

/// The consensus operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// The proposed timestamp; with the transaction's id it is the stamp.
    pub at: Timestamp,
    /// When the transaction was first run, under which id: a retry retains both. An older transaction may wait for a
    /// younger one.
    pub age: Stamp,
    /// For how long replicas keep what it touches for it if it is refused; in milliseconds, zero for not at all.
    pub keep: Duration,
    /// What to validate and hold.
    pub part: Arc<Part>,
}

impl Wire for Prepare {
    fn encode(&self, out: &mut Vec<u8>) {
        self.at.encode(out);
        self.age.encode(out);
        (self.keep.as_millis() as u32).encode(out);
        self.part.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (at, age) = (Wire::decode(input)?, Wire::decode(input)?);
        let keep = Duration::from_millis(u32::decode(input)?.into());
        Ok(Prepare { at, age, keep, part: Arc::new(Part::decode(input)?) })
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
    /// It was born in an interval that is being closed: as a new transaction above this timestamp it may succeed.
    BlockedReads {
        /// The end of the interval.
        floor: Timestamp,
    },
    /// Its timestamp is too far ahead of the replica's clock (Corrections 85).
    Early {
        /// The greatest timestamp that the replica believes.
        latest: Timestamp,
    },
}
wire_enum!(Vote {
    0 => PrepareOk,
    1 => Abstain,
    2 => Abort,
    3 => Retry { above },
    4 => NoVote,
    5 => BlockedReads { floor },
    6 => Early { latest },
});

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

    /// When to commit.
    type Rest = Timestamp;

    const NO_VOTE: Vote = Vote::NoVote;
    const ABORT: Decision = Decision::Abort;

    fn complete(at: &Timestamp, prepare: &Prepare) -> Decision {
        Decision::Commit { at: *at, part: prepare.part.clone() }
    }

    fn late(floor: Timestamp) -> Vote {
        Vote::BlockedReads { floor }
    }

    fn holds(vote: Vote) -> bool {
        vote == Vote::PrepareOk
    }
}
