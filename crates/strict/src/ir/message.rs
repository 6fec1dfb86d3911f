//! What IR clients, replicas and recovering coordinators say to one another.

use super::{Configuration, CoordinatorView, Digest, EndedGroup, Entry, Groups, Operations, Summary};
use types::{Incarnation, Malformed, Reader, Timestamp, TransactionId, Wire, wire_struct};

/// A message of IR. Everything a replica sends leaves behind its durability gate, after what it vouches for.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<O: Operations> {
    /// Client to all replicas: execute this consensus operation (the paper's REQUEST).
    Propose {
        /// The group.
        group: TransactionId,
        /// The timestamp of its first attempt: its place for synchronization, the same in every message.
        born: Timestamp,
        /// Counts from 1; a higher attempt supersedes a lower one (Corrections 12).
        attempt: u32,
        /// The highest view that the client has seen; a replica in a lower one joins it.
        view: u64,
        /// The operation.
        operation: O::Consensus,
    },
    /// Replica to client: the entry is recorded. The paper's REPLY, with its view and state.
    Reply {
        /// The group.
        group: TransactionId,
        /// The attempt answered.
        attempt: u32,
        /// The replica's view; only replies of one view count together.
        view: u64,
        /// Its result.
        result: O::Result,
        /// True if the result is FINALIZED: then it is the result of the operation in this view.
        finalized: bool,
        /// Which part of the operation decided the result.
        hint: Option<u32>,
    },
    /// Client or backup coordinator to all replicas: this is the result. Carries the operation, for replicas that
    /// missed it; the paper has no such message, the later form of IR sends the id alone.
    Finalize {
        /// The group.
        group: TransactionId,
        /// See `Propose`.
        born: Timestamp,
        /// The attempt whose result this is.
        attempt: u32,
        /// The view of the replies that it was chosen from; a replica in another one ignores it.
        view: u64,
        /// Who chose it.
        ballot: CoordinatorView,
        /// The operation, if its sender knows it.
        operation: Option<O::Consensus>,
        /// The result.
        result: O::Result,
    },
    /// Replica to the sender of Finalize: recorded. A replica answers every repetition of Finalize (Corrections 9).
    Confirm {
        /// The group.
        group: TransactionId,
        /// The attempt.
        attempt: u32,
        /// The replica's view.
        view: u64,
        /// Under which coordinator view.
        ballot: CoordinatorView,
        /// The result recorded.
        result: O::Result,
    },
    /// Client or backup coordinator to all replicas: execute this inconsistent operation. It is decided already,
    /// so replicas execute it at once instead of after a second message.
    Execute {
        /// The group that it ends.
        group: TransactionId,
        /// See `Propose`.
        born: Timestamp,
        /// The operation.
        operation: Ending<O>,
    },
    /// Replica to the sender of Execute: recorded and executed.
    Executed {
        /// The group.
        group: TransactionId,
        /// The replica's view.
        view: u64,
    },
    /// Replica to anybody who proposes, finalizes or polls a group that has ended: this is how.
    Outcome {
        /// The group.
        group: TransactionId,
        /// Its inconsistent operation, as this shard has it.
        operation: O::Inconsistent,
    },
    /// Replica to anybody who speaks for a group that ended everywhere so long ago that nobody knows how: not to be
    /// taken for either end.
    Forgotten {
        /// The group.
        group: TransactionId,
    },
    /// Replica to a coordinator whose coordinator view is too low: a later one has been promised.
    Superseded {
        /// The group.
        group: TransactionId,
        /// The coordinator view promised.
        promised: CoordinatorView,
    },
    /// Backup coordinator to all replicas: promise not to serve lower coordinator views, and say what you have
    /// (the paper's CoordinatorChange).
    CoordinatorChange {
        /// The group.
        group: TransactionId,
        /// See `Propose`.
        born: Timestamp,
        /// The new coordinator view.
        ballot: CoordinatorView,
        /// The highest view seen.
        view: u64,
    },
    /// Replica to backup coordinator: promised.
    CoordinatorPromise {
        /// The group.
        group: TransactionId,
        /// The coordinator view promised.
        ballot: CoordinatorView,
        /// The replica's view.
        view: u64,
        /// What it has; NO-VOTE if it had not voted PREPARE-OK.
        entry: Entry<O>,
    },
    /// Replica to all others: enter this view (timeout, recovery, or a higher view seen).
    StartViewChange {
        /// The view to enter.
        view: u64,
    },
    /// Replica to the leader of the view: a part of what is undecided in its record.
    DoViewChange {
        /// The view entered.
        view: u64,
        /// The last view in which the sender was NORMAL; only the highest ones count (Corrections 6).
        last_normal: u64,
        /// What follows the epoch, if the last normal view was its last.
        next: Option<Configuration>,
        /// How far it is, and which outcomes it has.
        summary: Summary,
        /// Which part this is.
        part: Part,
        /// The undecided groups of the part.
        groups: Groups<O>,
    },
    /// Leader to all, until acknowledged: a part of what is undecided at the beginning of the view.
    StartView {
        /// The view.
        view: u64,
        /// The next epoch's configuration: a replica that starts this view serves no clients in it.
        next: Option<Configuration>,
        /// How far the leader is, and which outcomes it has.
        summary: Summary,
        /// Which part this is.
        part: Part,
        /// The undecided groups of the part; every result in them is FINALIZED.
        groups: Groups<O>,
    },
    /// Replica to leader: started.
    ViewStarted {
        /// The view.
        view: u64,
        /// True if the sender may begin an epoch with the record of this view: it remembers all it ever said.
        ready: bool,
    },
    /// Recovering replica to all others: which view are you in?
    WhichView {
        /// The asker's life, so that an answer to an earlier life does not count.
        incarnation: Incarnation,
    },
    /// The answer.
    ThisView {
        /// The asker's life.
        incarnation: Incarnation,
        /// The highest view that the sender has entered.
        view: u64,
        /// True if it serves clients in it: then its epoch had not ended.
        serving: bool,
    },
    /// Replica to another that has more: send the outcomes of this bucket that are not among those known.
    Lacking {
        /// The question.
        question: Question,
        /// What the sender has of it.
        known: Vec<TransactionId>,
    },
    /// The answer, as much as fits one message.
    Ended {
        /// The question.
        question: Question,
        /// The outcomes.
        groups: Vec<EndedGroup<O>>,
        /// True if nothing was left out.
        complete: bool,
    },
    /// Leader of a NORMAL view to all: let no group be born at or below this any more, and say what you have of
    /// those that were (the paper's Sync).
    Sync {
        /// The view.
        view: u64,
        /// The end of the interval.
        at: Timestamp,
        /// Where the outcomes of the summary begin: at or below what the leader knows of the receiver's base.
        above: Timestamp,
        /// What was born up to here may be forgotten.
        forgettable: Timestamp,
        /// How far the leader is, and its outcomes up to `at`.
        summary: Summary,
    },
    /// The answer.
    Synced {
        /// The view.
        view: u64,
        /// The end of the interval.
        at: Timestamp,
        /// True if the replica holds no locks of groups born in the interval.
        clear: bool,
        /// What was born up to here may be forgotten as far as this replica is concerned.
        forgettable: Timestamp,
        /// How far the replica is, and its outcomes up to `at`.
        summary: Summary,
    },
    /// Leader to replicas that have all it has: accept the interval as closed (the paper's FinishSync, without the
    /// log, which has been exchanged before).
    FinishSync {
        /// The view.
        view: u64,
        /// The end of the interval.
        at: Timestamp,
    },
    /// The answer; f+1 of them close the interval for good.
    SyncFinished {
        /// The view.
        view: u64,
        /// The end of the interval.
        at: Timestamp,
    },
    /// Operator to a member: let this follow the present epoch (Corrections 83).
    Reconfigure {
        /// What is to follow; if `alone`, the one that goes on, and then the others that are left.
        configuration: Configuration,
        /// More than f members are lost for good: go on with what those have that are left (Corrections 84).
        alone: bool,
    },
    /// Member to those that are to join: get ready, so that the epoch ends only when they are.
    Invite {
        /// What is to follow.
        configuration: Configuration,
        /// What the sender has forgotten: who has less must have the state first.
        trimmed: Timestamp,
    },
    /// The answer.
    Invited {
        /// The epoch.
        epoch: u32,
    },
    /// Leader of an epoch's last view, which f+1 have started, to those that join: a part of what is undecided at the
    /// beginning of the next.
    StartEpoch {
        /// The next epoch.
        configuration: Configuration,
        /// The last view.
        after: u64,
        /// How far the sender is, and which outcomes it has.
        summary: Summary,
        /// Which part this is.
        part: Part,
        /// The undecided groups of the part.
        groups: Groups<O>,
    },
    /// The answer: all of it is here, durably.
    EpochReady {
        /// The next epoch.
        epoch: u32,
        /// The last view of the one before.
        after: u64,
    },
    /// Anybody to a replica that seems to be in a later epoch: which?
    WhichEpoch {
        /// The epoch that the sender knows.
        epoch: u32,
    },
    /// Replica to whoever speaks in an earlier epoch than its own, or asks: this one has begun, for f+1 of its members
    /// have its first record.
    Epoch {
        /// The epoch.
        configuration: Configuration,
        /// The view that it began after.
        after: u64,
    },
}

/// How Execute says what ends a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending<O: Operations> {
    /// All of the operation (Corrections 11).
    Whole(O::Inconsistent),
    /// What the group's consensus operation does not say, to a replica that has voted for that one. Should it have
    /// forgotten it, it says nothing, and the sender repeats itself in full.
    Rest(O::Rest),
}

impl<O: Operations> Wire for Ending<O> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ending::Whole(operation) => {
                out.push(0);
                operation.encode(out);
            }
            Ending::Rest(rest) => {
                out.push(1);
                rest.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(Ending::Whole(Wire::decode(input)?)),
            1 => Ok(Ending::Rest(Wire::decode(input)?)),
            _ => Err(Malformed("ending tag")),
        }
    }
}

/// A question after the outcomes of a bucket. Two that are equal may take each other's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The asker's life.
    pub asker: Incarnation,
    /// The bucket.
    pub bucket: u64,
    /// The digest that the answering replica had reported for this bucket.
    pub reported: Digest,
}
wire_struct!(Question { asker, bucket, reported });

/// One part of several that make a record; all of them count or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// Parts of one telling share it: its sender's count of changes.
    pub revision: u64,
}
wire_struct!(Part { number, of, revision });

macro_rules! wire {
    ($($tag:literal => $variant:ident { $($field:ident),* })*) => {
        impl<O: Operations> Wire for Message<O> {
            fn encode(&self, out: &mut Vec<u8>) {
                match self { $( Message::$variant { $($field),* } => {
                    out.push($tag);
                    $( $field.encode(out); )*
                } )* }
            }

            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                match input.byte()? {
                    $( $tag => Ok(Message::$variant { $($field: Wire::decode(input)?),* }), )*
                    _ => Err(Malformed("IR message tag")),
                }
            }
        }
    };
}
wire! {
    0 => Propose { group, born, attempt, view, operation }
    1 => Reply { group, attempt, view, result, finalized, hint }
    2 => Finalize { group, born, attempt, view, ballot, operation, result }
    3 => Confirm { group, attempt, view, ballot, result }
    4 => Execute { group, born, operation }
    5 => Executed { group, view }
    6 => Outcome { group, operation }
    7 => Superseded { group, promised }
    8 => CoordinatorChange { group, born, ballot, view }
    9 => CoordinatorPromise { group, ballot, view, entry }
    10 => StartViewChange { view }
    11 => DoViewChange { view, last_normal, next, summary, part, groups }
    12 => StartView { view, next, summary, part, groups }
    13 => ViewStarted { view, ready }
    14 => WhichView { incarnation }
    15 => ThisView { incarnation, view, serving }
    16 => Forgotten { group }
    17 => Lacking { question, known }
    18 => Ended { question, groups, complete }
    19 => Sync { view, at, above, forgettable, summary }
    20 => Synced { view, at, clear, forgettable, summary }
    21 => FinishSync { view, at }
    22 => SyncFinished { view, at }
    23 => Reconfigure { configuration, alone }
    24 => Invite { configuration, trimmed }
    25 => Invited { epoch }
    26 => StartEpoch { configuration, after, summary, part, groups }
    27 => EpochReady { epoch, after }
    28 => WhichEpoch { epoch }
    29 => Epoch { configuration, after }
}
