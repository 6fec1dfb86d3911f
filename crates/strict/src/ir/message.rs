//! What IR clients, replicas and recovering coordinators say to one another.

use super::{CoordinatorView, Entry, Groups, Operations};
use types::{Incarnation, Malformed, Reader, TransactionId, Wire};

/// A message of IR. Everything a replica sends leaves behind its durability gate, after what it vouches for.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<O: Operations> {
    /// Client to all replicas: execute this consensus operation (the paper's REQUEST).
    Propose {
        /// The group.
        group: TransactionId,
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
    /// Replica to the sender of Finalize: recorded. Sent again whenever asked again (Corrections 9).
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
        /// The operation.
        operation: O::Inconsistent,
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
    /// Replica to the leader of the view: what it knows.
    DoViewChange {
        /// The view entered.
        view: u64,
        /// The last view in which the sender was NORMAL; only the highest ones count (Corrections 6).
        last_normal: u64,
        /// Its record.
        groups: Groups<O>,
    },
    /// Leader to all, until acknowledged: the record that the view starts with.
    StartView {
        /// The view.
        view: u64,
        /// The merged record; every result in it is FINALIZED.
        groups: Groups<O>,
    },
    /// Replica to leader: started.
    ViewStarted {
        /// The view.
        view: u64,
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
    },
}

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
    0 => Propose { group, attempt, view, operation }
    1 => Reply { group, attempt, view, result, finalized, hint }
    2 => Finalize { group, attempt, view, ballot, operation, result }
    3 => Confirm { group, attempt, view, ballot, result }
    4 => Execute { group, operation }
    5 => Executed { group, view }
    6 => Outcome { group, operation }
    7 => Superseded { group, promised }
    8 => CoordinatorChange { group, ballot, view }
    9 => CoordinatorPromise { group, ballot, view, entry }
    10 => StartViewChange { view }
    11 => DoViewChange { view, last_normal, groups }
    12 => StartView { view, groups }
    13 => ViewStarted { view }
    14 => WhichView { incarnation }
    15 => ThisView { incarnation, view }
}
