//! What coordinators and replicas say to one another.

use super::machine::Evaluation;
use crate::Part;
use crate::coordinator::{KeysetRead, KeysetReadRequest};
use crate::validation::Stamp;
use replication::log;
use types::{Address, Timestamp, TransactionId, WallTime, wire_enum, wire_struct};

/// A message between a coordinator and a replica, two replicas, or a coordinator and a timestamp server. Only a shard's leader answers what is for it;
/// others say who leads.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Coordinator to leader: lock the key, where locks are used, and evaluate this operation. To a replica that does not lead:
    /// only evaluate it.
    Execute {
        /// The transaction.
        transaction: TransactionId,
        /// Its age, which a retry retains: the older wins.
        age: Stamp,
        /// Which of its steps.
        step: u32,
        /// The key.
        key: Box<[u8]>,
        /// The operation in its binary form.
        operation: Box<[u8]>,
        /// Only lock: the write needs no evaluation, and the answer is `Locked`.
        only_lock: bool,
        /// Where operations take no locks, take one for this all the same: votes that would change the key are refused.
        reserve: bool,
        /// Lock for writing, whatever the operation needs: the transaction needs the key in several modes, or the step sees
        /// more than the operation's mode protects.
        write: bool,
        /// Any replica may evaluate it, on what it has applied; the vote validates what it saw.
        anywhere: bool,
        /// This read is the whole transaction: answer when the leader is confirmed, and hold nothing.
        alone: bool,
        /// The client sees the result, or compares with it, before the transaction commits: answer when all is applied that it shows.
        shown: bool,
        /// Where operations take no locks, wait for the end of what has been voted for on the key by now, and evaluate it then.
        patient: bool,
        /// The transaction's own effects on the key so far, in their binary form, in order.
        own: Vec<Box<[u8]>>,
        /// Later steps on the key, with their operations: each is evaluated behind those before it.
        then: Vec<(u32, Box<[u8]>)>,
        /// The transaction's time for expiries, in milliseconds since 1970.
        now_millis: u64,
    },
    /// Leader, or any replica where the coordinator allows it, to coordinator: the answer.
    Executed {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its steps.
        step: u32,
        /// The leader's term: locks live no longer. 0 from a replica that does not lead.
        term: u64,
        /// The answer.
        evaluation: Evaluation,
        /// Those of the steps behind it.
        then: Vec<(u32, Evaluation)>,
    },
    /// Leader to coordinator: the lock requested without an evaluation is held.
    Locked {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its steps.
        step: u32,
        /// The leader's term: locks live no longer.
        term: u64,
    },
    /// Coordinator to leader: vote. A shard that is the only participant decides at once.
    Prepare {
        /// The transaction.
        transaction: TransactionId,
        /// Its age.
        age: Stamp,
        /// The coordinator asks for no transaction below this any more.
        floor: u64,
        /// The leader's term; a later leader that has not voted refuses for good.
        term: u64,
        /// Nothing changes at any shard.
        read_only: bool,
        /// Which replica of the first participant leads it, as far as the coordinator knows: votes go there, and it decides.
        /// `None` where the coordinator collects them.
        collector: Option<usize>,
        /// All others have voted, that it commits not before this: the vote of this shard, the first participant, is the decision.
        voted: Option<Timestamp>,
        /// It commits not before this, since keys were found expired then, and below the deadlines of those that were
        /// found alive (Corrections 69).
        span: CommitWindow,
        /// What to validate and hold.
        part: Part,
    },
    /// Leader to coordinator: yes.
    Prepared {
        /// The transaction.
        transaction: TransactionId,
        /// It commits not before this.
        at: Timestamp,
    },
    /// Leader to coordinator: no, and never; nothing is held here any more.
    Refused {
        /// The transaction.
        transaction: TransactionId,
        /// The key that stood in the way, if one did.
        key: Option<Box<[u8]>>,
        /// It did so for its deadline: a write that leaves what is there has to be evaluated on it (Corrections 69).
        expires: bool,
        /// Nothing that was seen has changed: only what is undecided stood in the way. Under another number the same question
        /// may be answered yes.
        undecided: bool,
    },
    /// Coordinator to leader: the decision. At the first participant a commit becomes true with its entry.
    Decide {
        /// The transaction.
        transaction: TransactionId,
        /// As in `Prepare`.
        floor: u64,
        /// When it commits; `None` for an abort.
        at: Option<Timestamp>,
    },
    /// Leader to coordinator: the transaction has ended at this shard.
    Ended {
        /// The transaction.
        transaction: TransactionId,
        /// When it committed; `None` if it did not.
        at: Option<Timestamp>,
    },
    /// Leader of a participant to the replicas of the first one: the decision is overdue, what is it? Asking makes
    /// it an abort unless it is known.
    OutcomeQuery {
        /// The transaction.
        transaction: TransactionId,
    },
    /// Replica to coordinator: somebody else leads, or the term is another.
    Redirect {
        /// The transaction that the request named.
        transaction: TransactionId,
        /// Which replica of the shard leads, if that is known.
        leader: Option<usize>,
        /// In which term.
        term: u64,
    },
    /// Coordinator to a replica: how many keys are there? Weak: no transaction (Corrections 78).
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
    /// Coordinator to leader: the transaction waits for its session, and wants to keep its locks.
    Alive {
        /// The transaction.
        transaction: TransactionId,
    },
    /// Leader to coordinator: an operation waits for its lock.
    Blocked {
        /// The transaction.
        transaction: TransactionId,
    },
    /// Coordinator to leader: the transaction waits for a lock at another shard, or does so no more. While it waits,
    /// older ones take its locks (Corrections 62).
    Waits {
        /// The transaction.
        transaction: TransactionId,
        /// It waits.
        waits: bool,
    },
    /// Coordinator to leader: evaluate these operations, one behind the other, and commit them by themselves. With locks
    /// `Done` answers, or `Refused`; without them it is one operation, and `Executed` answers, once it is in the log, or `Ended`
    /// where the result is no longer known.
    Run {
        /// Names the transaction.
        transaction: TransactionId,
        /// Its age, which it retains when it runs again.
        age: Stamp,
        /// The coordinator asks for nothing below this any more.
        floor: u64,
        /// With locks, the leader's term; a later leader that does not know how it ended refuses for good.
        term: u64,
        /// Which step of its request.
        step: u32,
        /// Each operation's key, and the operation in its binary form.
        calls: Calls,
        /// They are the last ones of a transaction of several shards, whose others have voted: this decides.
        last: Option<Last>,
    },
    /// Leader to coordinator: the single commands have been carried out.
    Done {
        /// The transaction.
        transaction: TransactionId,
        /// When it committed; `None` if it has changed nothing and is not in the log.
        at: Option<Timestamp>,
        /// The leader's term.
        term: u64,
        /// What each came to.
        evaluations: Vec<Evaluation>,
    },
    /// Leader of a participant to the leader of the first one, which collects the votes: yes.
    Vote {
        /// The transaction.
        transaction: TransactionId,
        /// It commits not before this.
        at: Timestamp,
        /// The shard that votes, to which the collector sends the decision.
        voter: Address,
    },
    /// Coordinator to a timestamp server: what is the time?
    Stamp {
        /// Names the answer.
        transaction: TransactionId,
    },
    /// Timestamp server to coordinator.
    Stamped {
        /// Names the question.
        transaction: TransactionId,
        /// Above every timestamp that it has given.
        at: Timestamp,
    },
    /// Coordinator to leader: look at which keys there are, as a part of the transaction (Corrections 78).
    KeysetRead {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its steps.
        step: u32,
        /// The question, and what the transaction has done to keys so far.
        question: KeysetReadRequest,
    },
    /// Leader to coordinator: what it saw.
    Looked {
        /// The transaction.
        transaction: TransactionId,
        /// Which of its steps.
        step: u32,
        /// The leader's term: what it saw can be judged only in this one.
        term: u64,
        /// What it saw, and the log's index at which.
        look: KeysetRead,
    },
    /// Leader to coordinator, in reply to `Alive`: another transaction waits for a lock of this one.
    Wanted {
        /// The transaction that has the lock.
        transaction: TransactionId,
        /// The lock's key.
        key: Box<[u8]>,
    },
    /// Replica to replica of a shard: the log's own.
    Log {
        /// The message.
        message: log::Message,
    },
}
wire_enum!(Message {
    0 => Execute { transaction, age, step, key, operation, only_lock, reserve, write, anywhere, alone, shown, patient, own, then, now_millis },
    1 => Executed { transaction, step, term, evaluation, then },
    2 => Prepare { transaction, age, floor, term, read_only, collector, voted, span, part },
    3 => Prepared { transaction, at },
    4 => Refused { transaction, key, expires, undecided },
    5 => Decide { transaction, floor, at },
    6 => Ended { transaction, at },
    7 => OutcomeQuery { transaction },
    8 => Redirect { transaction, leader, term },
    9 => Count { transaction },
    10 => CountReply { transaction, keys },
    11 => Scan { transaction, cursor, count, now_millis },
    12 => ScanReply { transaction, cursor, keys },
    13 => Log { message },
    14 => Alive { transaction },
    15 => Draw { transaction, except, now_millis },
    16 => DrawReply { transaction, keys, key },
    17 => Blocked { transaction },
    18 => Waits { transaction, waits },
    19 => Locked { transaction, step, term },
    20 => Run { transaction, age, floor, term, step, calls, last },
    21 => Vote { transaction, at, voter },
    22 => Stamp { transaction },
    23 => Stamped { transaction, at },
    24 => KeysetRead { transaction, step, question },
    25 => Looked { transaction, step, term, look },
    26 => Done { transaction, at, term, evaluations },
    27 => Wanted { transaction, key },
});

impl Message {
    /// A refusal, for locks or for what has changed.
    pub(super) fn refused(transaction: TransactionId, key: Option<Box<[u8]>>) -> Self {
        Message::Refused { transaction, key, expires: false, undecided: false }
    }
}

/// Operations in their binary form, each behind its key.
pub type Calls = Vec<(Box<[u8]>, Box<[u8]>)>;

/// What the last shard has to know of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Last {
    /// They have voted, that it commits not before this; `None` where this shard's leader collects their votes.
    pub voted: Option<Timestamp>,
    /// As in `Prepare`.
    pub span: CommitWindow,
    /// All participants; this shard is the first.
    pub participants: Vec<u16>,
    /// A bit for each operation: no client sees its result.
    pub blind: u64,
}
wire_struct!(Last { voted, span, participants, blind });

/// When a transaction may commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitWindow {
    /// Not before this, in milliseconds since 1970.
    pub from_millis: u64,
    /// Before this; 0 for no limit.
    pub below_millis: u64,
}
wire_struct!(CommitWindow { from_millis, below_millis });

impl CommitWindow {
    /// It commits not before this.
    pub(super) fn from(self) -> Timestamp {
        Timestamp::from_wall(WallTime(self.from_millis.saturating_mul(1000)))
    }

    /// True if the limit has passed at this timestamp.
    pub(super) fn is_over(self, at: Timestamp) -> bool {
        self.below_millis != 0 && at.wall().as_millis() >= self.below_millis
    }
}

/// Everything that replicas and coordinators can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Replica: the log's time goes on.
    Tick,
    /// Replica: look for transactions whose coordinators do not come back.
    Suspicion,
    /// Coordinator: a transaction waits for an answer, or to run again.
    Transaction {
        /// Its number.
        number: u64,
    },
    /// Coordinator: not every participant has acknowledged the decision.
    Settlement {
        /// The transaction's number.
        number: u64,
    },
    /// Coordinator: a piece of the keyspace has not been answered.
    KeyspaceQuery {
        /// The question's number.
        number: u64,
    },
}
