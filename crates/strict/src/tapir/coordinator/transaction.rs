//! A transaction in progress at its coordinator.

use super::super::message::Evaluation;
use super::super::operation::{Invoked, Part, Transactions};
use super::super::topology::Topology;
use super::check::Check;
use crate::ir::Tally;
use protocol::{KeyedOperation, Now};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Instant, ReplyBuf, RequestId, SessionId, Timestamp, TransactionId};

/// An operation, owned, with its shard.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub key: Box<[u8]>,
    pub shard: u16,
    /// The operation's binary form.
    pub operation: Box<[u8]>,
    pub blind: bool,
}

impl Call {
    pub(super) fn new(topology: &Topology, keyed: &KeyedOperation<'_>) -> Self {
        let mut operation = Vec::new();
        keyed.operation.encode(&mut operation);
        Call {
            key: keyed.key.into(),
            shard: keyed.hash.share(topology.shards.len() as u16),
            operation: operation.into(),
            blind: keyed.blind,
        }
    }
}

/// How far one step is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// An earlier step on the same key comes first.
    Waiting,
    /// A replica was asked: how many times so far, and when last.
    Asked { tries: u32, at: Instant },
    /// Evaluated.
    Done(Done),
}

/// An evaluated step.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub result: ReplyBuf,
    /// `None` if it neither observed nor changed anything.
    pub invoked: Option<Invoked>,
    /// The transaction must commit before this, in milliseconds since 1970; 0 for no limit.
    pub expires_at: u64,
}

/// A step of a transaction.
#[derive(Clone, Debug)]
pub(super) struct CallStep {
    pub call: Call,
    pub progress: Progress,
}

/// A key that a session watches, and what was seen there.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub shard: u16,
    pub invoked: Invoked,
    pub expires_at: u64,
}

/// What becomes of a transaction once its steps are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commit, then reply with every step's result; run again on a conflict.
    Auto,
    /// Reply to each Operate; Commit comes from the session.
    Interactive { read_only: bool },
    /// Keep what was observed as the session's watches.
    Watch,
    /// A piece of FLUSH: deletes keys, then the browse with this number goes on.
    Flush { browse: u64 },
}

/// Where a transaction is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Steps are being evaluated, or an interactive one waits for its session.
    Executing,
    /// A single-key read asks all replicas at once.
    QuorumRead(QuorumRead),
    /// What was read is checked.
    Checking(Check),
    /// Prepare is out.
    Preparing(Preparing),
    /// Waits for its turn at hot keys.
    InLine,
    /// Waits to run again.
    BackingOff { until: Instant },
}

/// The answers to a quorum read, by replica, with their views.
#[derive(Debug)]
pub(super) struct QuorumRead {
    pub since: Instant,
    pub answers: BTreeMap<usize, (u64, Evaluation)>,
}

/// An attempt to commit.
#[derive(Debug)]
pub(super) struct Preparing {
    pub attempt: u32,
    /// No further attempt is made: a RETRY is finalized as a refusal.
    pub last: bool,
    pub at: Timestamp,
    pub shards: BTreeMap<u16, ShardVotes>,
    /// When the attempt was first proposed.
    pub sent_at: Instant,
    /// When what was not answered is said again.
    pub resend_at: Instant,
    /// An abort was told by a replica, or chosen and confirmed; which key and why.
    pub conflict: Option<Conflict>,
}

/// One shard's votes on an attempt.
#[derive(Debug)]
pub(super) struct ShardVotes {
    pub part: Arc<Part>,
    /// How many invocations at the front of the part are watches.
    pub watches: usize,
    pub tally: Tally<Transactions>,
    /// When f+1 votes of one view were there.
    pub quorum_at: Option<Instant>,
    /// The largest RETRY, if the shard cannot accept this attempt's timestamp.
    pub retry: Option<Timestamp>,
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    pub key: Option<Box<[u8]>>,
    /// A watched key was touched.
    pub watch: bool,
}

/// A transaction in progress.
#[derive(Debug)]
pub(super) struct Transaction {
    pub id: TransactionId,
    /// The number of its first run: a smaller one is older.
    pub age: u64,
    pub session: SessionId,
    /// Who waits for a reply.
    pub request: Option<RequestId>,
    pub purpose: Purpose,
    pub steps: Vec<CallStep>,
    /// How many steps an interactive transaction has replied to.
    pub replied: usize,
    /// Deletions of keys that were found expired; they come before everything else on their keys.
    pub expiries: BTreeMap<Box<[u8]>, (u16, Invoked)>,
    pub watches: Vec<Watched>,
    /// True if a touched watch stops it.
    pub watched: bool,
    /// The transaction's time for expiries.
    pub now_millis: u64,
    /// When it began to run, this time.
    pub began: Instant,
    pub phase: Phase,
    /// When the present request is given up.
    pub deadline: Instant,
    pub retries: u32,
    /// The requests of its session's pipeline that it runs, one for each step; empty for any other transaction.
    pub turn: Vec<RequestId>,
    /// The key of the latest conflict.
    pub conflicted: Option<Box<[u8]>>,
}

impl Transaction {
    /// True when every step has been evaluated.
    pub(super) fn is_evaluated(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.progress, Progress::Done(_)))
    }

    /// The effects that the transaction has so far on a key, in order.
    pub(super) fn own_effects(&self, key: &[u8]) -> Vec<Box<[u8]>> {
        let expiry = self.expiries.get(key).and_then(|(_, invoked)| invoked.effect.clone());
        let done = self.done().filter(|(step, _)| *step.call.key == *key);
        let effects = done.filter_map(|(_, done)| done.invoked.as_ref()?.effect.clone());
        expiry.into_iter().chain(effects).collect()
    }

    /// The evaluated steps.
    pub(super) fn done(&self) -> impl Iterator<Item = (&CallStep, &Done)> {
        self.steps.iter().filter_map(|step| match &step.progress {
            Progress::Done(done) => Some((step, done)),
            _ => None,
        })
    }

    /// Forgets what was evaluated, to run again as a new transaction. Watches stay as they are.
    pub(super) fn restart(&mut self, id: TransactionId, now: Now) {
        self.id = id;
        self.now_millis = now.wall.as_millis();
        self.began = now.instant;
        self.phase = Phase::Executing;
        self.expiries.clear();
        self.steps.iter_mut().for_each(|step| step.progress = Progress::Waiting);
    }

    /// True if nothing it did can have an effect.
    pub(super) fn is_read_only(&self) -> bool {
        let changes = |done: &Done| done.invoked.as_ref().is_some_and(|invoked| invoked.effect.is_some());
        self.expiries.is_empty() && !self.done().any(|(_, done)| changes(done))
    }

    /// Every shard's invocations, watches first, and how many of them are watches.
    pub(super) fn parts(&self) -> BTreeMap<u16, (Vec<Invoked>, usize)> {
        let mut parts: BTreeMap<u16, (Vec<Invoked>, usize)> = BTreeMap::new();
        for watched in &self.watches {
            let part = parts.entry(watched.shard).or_default();
            part.0.push(watched.invoked.clone());
            part.1 += 1;
        }
        for (shard, invoked) in self.expiries.values() {
            parts.entry(*shard).or_default().0.push(invoked.clone());
        }
        for (step, done) in self.done() {
            if let Some(invoked) = &done.invoked {
                parts.entry(step.call.shard).or_default().0.push(invoked.clone());
            }
        }
        parts
    }
}
