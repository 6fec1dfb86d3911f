//! The record: everything a replica knows of every group of operations.
//!
//! A group is a transaction: its consensus operations (one per attempt) share ballots, promises and one
//! inconsistent operation that ends it. Of the attempts only the highest counts, so a group keeps one entry.

use super::Operations;
use std::collections::BTreeMap;
use types::{Incarnation, Malformed, ProcessId, Reader, Timestamp, TransactionId, Wire, wire_struct};

/// Who may finalize results of a group: the coordinator view of IR-TAPIR. Unique for ever: a backup coordinator
/// never uses one twice, not even in another life. Compared field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorView {
    /// 0 for the original coordinator; each recovery takes a higher one.
    pub round: u32,
    /// The backup coordinator's process.
    pub process: ProcessId,
    /// And its life.
    pub incarnation: Incarnation,
}
wire_struct!(CoordinatorView { round, process, incarnation });

impl CoordinatorView {
    /// The original coordinator's.
    pub const ORIGINAL: CoordinatorView =
        CoordinatorView { round: 0, process: ProcessId(0), incarnation: Incarnation(0) };
}

/// The present result of a group's consensus operation at one replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<O: Operations> {
    /// Counts the client's attempts from 1; 0 for a promise of NO-VOTE made before any attempt was seen.
    pub attempt: u32,
    /// The operation; `None` when only a promise or a result without it has arrived.
    pub operation: Option<O::Consensus>,
    /// The replica's own result while tentative, else the one that the client or a new view chose.
    pub result: O::Result,
    /// Under which coordinator view the result was finalized; `ORIGINAL` while tentative.
    pub ballot: CoordinatorView,
    /// TENTATIVE or FINALIZED.
    pub finalized: bool,
}

impl<O: Operations> Entry<O> {
    /// Orders results of a group: a later coordinator beats any attempt of an earlier one.
    pub fn ballot(&self) -> (CoordinatorView, u32) {
        (self.ballot, self.attempt)
    }
}

/// An attempt whose locks a replica holds, durably, whatever result the group has been given since.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldAttempt<O: Operations> {
    /// The attempt.
    pub attempt: u32,
    /// Its operation.
    pub operation: O::Consensus,
}

/// What a replica knows of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group<O: Operations> {
    /// The timestamp of its first attempt: its place for synchronization.
    pub born: Timestamp,
    /// Counts the changes of the whole record; tells which of two copies of a group is newer.
    pub revision: u64,
    /// The highest coordinator view promised: lower ones are not served.
    pub promised: CoordinatorView,
    /// The consensus operation that counts.
    pub entry: Option<Entry<O>>,
    /// The locks held for it.
    pub held: Option<HeldAttempt<O>>,
    /// The inconsistent operation that ended the group. Nothing else matters then.
    pub outcome: Option<O::Inconsistent>,
}

impl<O: Operations> Default for Group<O> {
    fn default() -> Self {
        Group {
            born: Timestamp::ZERO,
            revision: 0,
            promised: CoordinatorView::ORIGINAL,
            entry: None,
            held: None,
            outcome: None,
        }
    }
}

impl<O: Operations> Group<O> {
    /// Its consensus operation, if it is here.
    pub fn operation(&self) -> Option<&O::Consensus> {
        let voted = self.entry.as_ref().and_then(|entry| entry.operation.as_ref());
        voted.or(self.held.as_ref().map(|held| &held.operation))
    }

    /// True while it may still commit because of this replica: it holds locks, or the vote that comes with them.
    pub fn is_held(&self) -> bool {
        self.held.is_some() || self.entry.as_ref().is_some_and(|entry| O::holds(entry.result))
    }
}

/// Groups by their ids; a map so that every replica walks them in the same order (Corrections 9).
pub type Groups<O> = BTreeMap<TransactionId, Group<O>>;

impl<O: Operations> Wire for Entry<O> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.attempt.encode(out);
        self.operation.encode(out);
        self.result.encode(out);
        self.ballot.encode(out);
        self.finalized.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Entry {
            attempt: Wire::decode(input)?,
            operation: Wire::decode(input)?,
            result: Wire::decode(input)?,
            ballot: Wire::decode(input)?,
            finalized: Wire::decode(input)?,
        })
    }
}

impl<O: Operations> Wire for HeldAttempt<O> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.attempt.encode(out);
        self.operation.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(HeldAttempt { attempt: Wire::decode(input)?, operation: Wire::decode(input)? })
    }
}

impl<O: Operations> Wire for Group<O> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.born.encode(out);
        self.revision.encode(out);
        self.promised.encode(out);
        self.entry.encode(out);
        self.held.encode(out);
        self.outcome.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Group {
            born: Wire::decode(input)?,
            revision: Wire::decode(input)?,
            promised: Wire::decode(input)?,
            entry: Wire::decode(input)?,
            held: Wire::decode(input)?,
            outcome: Wire::decode(input)?,
        })
    }
}
