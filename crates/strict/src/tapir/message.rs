//! What TAPIR's coordinators and replicas say to one another.

use super::operation::{Part, Transactions, Vote};
use super::state::Place;
use crate::coordinator::{KeysetRead, KeysetReadRequest};
use crate::ir;
use crate::validation::Observed;
use mvcc::CompactKey;
use std::sync::Arc;
use types::{ProcessId, ReplyBuf, Timestamp, TransactionId, wire_enum, wire_struct};

/// What a replica made of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The result, as the client will see it.
    pub result: ReplyBuf,
    /// The effect to commit, in its binary form.
    pub effect: Option<Box<[u8]>>,
    /// The exact effects it was evaluated on, without the transaction's own (Corrections 65).
    pub observed: Observed,
    /// The deletion of what had expired of the key, in its binary form: it must commit with the transaction
    /// (Corrections 69).
    pub expiry: Option<Box<[u8]>>,
    /// The first deadline of the key or of a field, in milliseconds since 1970, 0 for none: the transaction must commit below
    /// it.
    pub expires_at: u64,
    /// An undecided transaction prepared here would change what was observed.
    pub pending: bool,
}
wire_struct!(Evaluation { result, effect, observed, expiry, expires_at, pending });

/// An operation to evaluate.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Which of the transaction's steps.
    pub step: u32,
    /// The key.
    pub key: CompactKey,
    /// The operation in its binary form.
    pub operation: CompactKey,
    /// The transaction's own effects on the key so far, in their binary form, in order.
    pub own: Vec<Box<[u8]>>,
    /// Later steps on the key, with their operations: each is evaluated behind those before it.
    pub then: Vec<(u32, CompactKey)>,
}
wire_struct!(Reading { step, key, operation, own, then });

/// A message between a coordinator and a replica, or two replicas.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Coordinator to a replica: evaluate these operations. The paper's Read returns an object; this one returns
    /// the operation's result, so that a large value stays where it is.
    Read {
        /// The transaction.
        transaction: TransactionId,
        /// The transaction's time for expiries, in milliseconds since 1970.
        now_millis: u64,
        /// For how long to wait, at most, for what is prepared and would change what is seen, in microseconds.
        patience_micros: u32,
        /// What to evaluate; on different keys.
        readings: Vec<Reading>,
    },
    /// Replica to coordinator: the answer to Read. A replica that is not NORMAL gives none.
    ReadReply {
        /// The transaction.
        transaction: TransactionId,
        /// The replica's view; replies to a quorum read count together only if it is the same.
        view: u64,
        /// The answers, with the steps that they are for.
        answers: Vec<(u32, Evaluation)>,
    },
    /// Coordinator to replicas of a shard: is what these invocations of a transaction without effects observed
    /// current? Validation as by Prepare, but nothing is held or recorded. In place of the paper's validated read at
    /// one replica, which is not safe (Corrections 16).
    Check {
        /// The transaction.
        transaction: TransactionId,
        /// What it observed on this shard.
        part: Arc<Part>,
    },
    /// Replica to coordinator: the answer to Check. A replica that is not NORMAL gives none.
    CheckReply {
        /// The transaction.
        transaction: TransactionId,
        /// The replica's view; only answers of one view count together.
        view: u64,
        /// PREPARE-OK if it knows nothing against it.
        vote: Vote,
        /// Which of the invocations decided.
        hint: Option<u32>,
    },
    /// Coordinator to a replica: look at which keys there are, as a step of a transaction (Corrections 78). Not in the
    /// paper.
    KeysetRead {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its steps.
        step: u32,
        /// What to read.
        question: KeysetReadRequest,
    },
    /// Replica to coordinator: the answer to Look. A replica that is not NORMAL gives none.
    LookReply {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its steps.
        step: u32,
        /// The answer.
        look: KeysetRead,
    },
    /// Coordinator to a replica: how many keys are there? Weak: no transaction (Corrections 78). Not in the paper.
    Count {
        /// Names the answer.
        transaction: TransactionId,
    },
    /// Replica to coordinator: so many.
    CountReply {
        /// Names the question.
        transaction: TransactionId,
        /// Keys that the replica holds.
        keys: u64,
    },
    /// Coordinator to a replica: visit a piece of the keys. Weak.
    Scan {
        /// Names the answer.
        transaction: TransactionId,
        /// Where to begin in the replica's index.
        cursor: u64,
        /// About how many keys.
        count: u32,
        /// Keys whose deadline is not later are left out; milliseconds since 1970.
        now_millis: u64,
    },
    /// Replica to coordinator: the piece.
    ScanReply {
        /// Names the question.
        transaction: TransactionId,
        /// Where to go on; 0 at the end.
        cursor: u64,
        /// The keys.
        keys: Vec<Box<[u8]>>,
    },
    /// Coordinator to a replica: draw a key at random. Weak.
    Draw {
        /// Names the answer.
        transaction: TransactionId,
        /// None of these.
        except: Vec<Box<[u8]>>,
        /// Keys whose deadline is not later are left out; milliseconds since 1970.
        now_millis: u64,
    },
    /// Replica to coordinator: the key.
    DrawReply {
        /// Names the question.
        transaction: TransactionId,
        /// Of how many keys.
        keys: u64,
        /// It, if there is one.
        key: Option<Box<[u8]>>,
    },
    /// Replica of any participant to a backup coordinator: this transaction has been prepared for long
    /// (Corrections 14). The paper leaves open who starts coordinator recovery.
    Suspect {
        /// The transaction.
        transaction: TransactionId,
        /// The timestamp of its first attempt.
        born: Timestamp,
        /// Its participant shards.
        participants: Vec<u16>,
    },
    /// Replica to one of each other shard, now and then: everything born at or below this has ended in this shard.
    /// Outcomes are forgotten only below the bases of all shards, so that no backup coordinator asks in vain.
    Base {
        /// The sender's stable base.
        base: Timestamp,
        /// The sender's view: who does not know its epoch asks.
        view: u64,
    },
    /// Operator to the coordinator of the same process: see to it that a shard moves to these processes, or, where more
    /// than f replicas are lost for good, goes on with one (Corrections 83, 84).
    Place {
        /// The shard.
        shard: u16,
        /// Where its replicas are to be.
        processes: Vec<ProcessId>,
        /// The first of them is to go on, with what all of them have.
        accept_loss: bool,
    },
    /// Replica that is behind to one of its shard: send this piece of the state.
    FetchState {
        /// Where the piece begins.
        place: Place,
    },
    /// The answer.
    State {
        /// What the sender had trimmed when the fetching began: the state is at least as new.
        base: Timestamp,
        /// Where the piece begins.
        place: Place,
        /// Where the next one begins; `None` after the last.
        next: Option<Place>,
        /// The piece, as in a checkpoint.
        piece: Box<[u8]>,
    },
    /// A message of IR, which carries Prepare, Commit, Abort and coordinator changes.
    Ir {
        /// The message.
        message: ir::Message<Transactions>,
    },
}
wire_enum!(Message {
    0 => Read { transaction, now_millis, patience_micros, readings },
    1 => ReadReply { transaction, view, answers },
    2 => Count { transaction },
    3 => CountReply { transaction, keys },
    4 => Scan { transaction, cursor, count, now_millis },
    5 => ScanReply { transaction, cursor, keys },
    6 => Suspect { transaction, born, participants },
    7 => Ir { message },
    8 => Check { transaction, part },
    9 => CheckReply { transaction, view, vote, hint },
    10 => Base { base, view },
    11 => FetchState { place },
    12 => State { base, place, next, piece },
    13 => Place { shard, processes, accept_loss },
    20 => KeysetRead { transaction, step, question },
    21 => LookReply { transaction, step, look },
    22 => Draw { transaction, except, now_millis },
    23 => DrawReply { transaction, keys, key },
});

/// Everything that replicas and coordinators can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Replica: a view change or a recovery wants something said again.
    View,
    /// Replica: look for transactions prepared for too long, and for recoveries that do not come on.
    Suspicion,
    /// Replica: a proposal has waited for long enough for others with lower timestamps.
    SkewWait,
    /// Replica: synchronize, tell other shards, forget; and ask again for state that does not come.
    Sync,
    /// Coordinator: a transaction waits for a reply, for the slow path, or to run again.
    Transaction {
        /// Its number.
        number: u64,
    },
    /// Coordinator: not every replica has acknowledged the decision.
    Settlement {
        /// The transaction's number.
        number: u64,
    },
    /// Coordinator: a shard has not made the requested move.
    ReplicaMove {
        /// The shard.
        shard: u16,
    },
    /// Coordinator: a piece of the keyspace has not been answered.
    KeyspaceQuery {
        /// The question's number.
        number: u64,
    },
}
