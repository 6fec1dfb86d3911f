//! A transaction in progress at its coordinator.

use super::super::machine::encoded;
use super::super::message::Span;
use crate::locking::leader::observed;
use crate::tapir::{Invoked, Part, Topology};
use commit::Stamp;
use datatypes::{Effect, Operation, key};
use protocol::KeyedOperation;
use std::collections::{BTreeMap, BTreeSet};
use types::{Instant, ReplyBuf, RequestId, SessionId, Timestamp, TransactionId};

/// An operation, owned, with its shard.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub key: Box<[u8]>,
    pub shard: u16,
    /// The operation's binary form.
    pub operation: Box<[u8]>,
    pub blind: bool,
    /// The key is watched, and had this version.
    pub watch: Option<u64>,
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
            watch: None,
        }
    }
}

/// How far one step is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// An earlier step on the same key comes first.
    Waiting,
    /// The leader was asked.
    Asked,
    /// Evaluated.
    Done(Done),
}

/// An evaluated step.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub result: ReplyBuf,
    pub effect: Option<Box<[u8]>>,
    /// The transaction must commit before this, in milliseconds since 1970; 0 for no limit.
    pub expires_at: u64,
    /// The version it was evaluated at; `None` if no replica was asked.
    pub version: Option<u64>,
}

/// A step of a transaction.
#[derive(Clone, Debug)]
pub(super) struct CallStep {
    pub call: Call,
    pub progress: Progress,
}

/// What becomes of a transaction once its steps are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Commit, then reply with every step's result; run again on a conflict.
    Auto,
    /// Reply to each Operate; Commit comes from the session.
    Interactive { read_only: bool },
    /// Keep the versions that were seen as the session's watches.
    Watch,
    /// A piece of FLUSH: deletes keys, then the browse with this number goes on.
    Flush { browse: u64 },
}

/// Where a transaction is.
#[derive(Debug)]
pub(super) enum Phase {
    /// Steps are being evaluated, or an interactive one waits for its session.
    Executing,
    /// Prepare is out.
    Preparing(Preparing),
    /// Every shard has voted yes; the first one writes the decision.
    Deciding { at: Timestamp, parts: BTreeSet<u16> },
    /// Waits to run again.
    BackingOff { until: Instant },
    /// An interactive one lost a lock: its session hears of it next time it asks.
    Doomed,
}

/// A vote in progress.
#[derive(Debug)]
pub(super) struct Preparing {
    pub parts: BTreeMap<u16, Part>,
    /// By shard: the term it was asked in; 0 before that is known.
    pub terms: BTreeMap<u16, u64>,
    pub votes: BTreeMap<u16, Timestamp>,
    pub read_only: bool,
}

/// A transaction in progress.
#[derive(Debug)]
pub(super) struct Transaction {
    pub id: TransactionId,
    /// When it began first; it is kept when it runs again, so that it grows old and wins.
    pub age: Stamp,
    pub session: SessionId,
    /// Who waits for a reply.
    pub request: Option<RequestId>,
    pub purpose: Purpose,
    /// Watched keys first, as steps that only observe.
    pub steps: Vec<CallStep>,
    /// How many steps have been replied to, or need no reply.
    pub replied: usize,
    /// Keys that were found expired, with their version: their deletion comes before everything else on them.
    pub expiries: BTreeMap<Box<[u8]>, (u16, u64)>,
    /// By shard: the term in which its leader evaluated.
    pub terms: BTreeMap<u16, u64>,
    /// The transaction's time for expiries.
    pub now_millis: u64,
    pub phase: Phase,
    /// When what was not answered is said again.
    pub resend_at: Instant,
    /// How often it has followed a hint of who leads since.
    pub hops: u32,
    /// When the present request is given up.
    pub deadline: Instant,
    pub retries: u32,
    /// It is the operation in progress of its session's pipeline.
    pub in_turn: bool,
    /// An interactive one whose session has asked for the commit.
    pub committing: bool,
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
        let expiry = self.expiries.contains_key(key).then(|| encoded(&Effect::DELETE));
        let done = self.done().filter(|(step, _)| *step.call.key == *key);
        expiry.into_iter().chain(done.filter_map(|(_, done)| done.effect.clone())).collect()
    }

    /// The evaluated steps.
    pub(super) fn done(&self) -> impl Iterator<Item = (&CallStep, &Done)> {
        self.steps.iter().filter_map(|step| match &step.progress {
            Progress::Done(done) => Some((step, done)),
            _ => None,
        })
    }

    /// The shards whose leaders have been asked.
    pub(super) fn touched(&self) -> BTreeSet<u16> {
        match &self.phase {
            Phase::Preparing(preparing) => preparing.parts.keys().copied().collect(),
            Phase::Deciding { parts, .. } => parts.clone(),
            _ => {
                let asked = |step: &&CallStep| !matches!(step.progress, Progress::Waiting);
                self.steps.iter().filter(asked).map(|step| step.call.shard).collect()
            }
        }
    }

    /// True if nothing it did can have an effect.
    pub(super) fn is_read_only(&self) -> bool {
        self.expiries.is_empty() && self.done().all(|(_, done)| done.effect.is_none())
    }

    /// True if a watched key has another version than it had, or has expired.
    pub(super) fn is_watch_touched(&self) -> bool {
        let mut watched = self.done().filter(|(step, _)| step.call.watch.is_some());
        watched
            .any(|(step, done)| step.call.watch != done.version || self.expiries.contains_key(&step.call.key))
    }

    /// When it may commit: not before what it found expired, and before the deadlines of what it found alive.
    pub(super) fn span(&self) -> Span {
        let deadlines = self.done().map(|(_, done)| done.expires_at).filter(|at| *at != 0);
        Span { from_millis: self.now_millis, below_millis: deadlines.min().unwrap_or(0) }
    }

    /// Every shard's part.
    pub(super) fn parts(&self) -> BTreeMap<u16, Part> {
        let mut invocations: BTreeMap<u16, Vec<Invoked>> = BTreeMap::new();
        for (key, (shard, version)) in &self.expiries {
            let (operation, effect) = (Some(observe_whole()), Some(encoded(&Effect::DELETE)));
            let deletion =
                Invoked { key: key.clone(), operation, effect, observed: Some(observed(*version)) };
            invocations.entry(*shard).or_default().push(deletion);
        }
        for (step, done) in self.done() {
            let operation = done.version.map(|_| step.call.operation.clone());
            let (key, effect) = (step.call.key.clone(), done.effect.clone());
            let invoked = Invoked { key, operation, effect, observed: done.version.map(observed) };
            if invoked.operation.is_some() || invoked.effect.is_some() {
                invocations.entry(step.call.shard).or_default().push(invoked);
            }
        }
        let participants: Vec<u16> = invocations.keys().copied().collect();
        let part = |(shard, invocations)| (shard, Part { participants: participants.clone(), invocations });
        invocations.into_iter().map(part).collect()
    }
}

/// An operation that observes everything of a key and returns little.
pub(super) fn observe_whole() -> Box<[u8]> {
    let mut bytes = Vec::new();
    Operation::Key(key::Operation::Deadline(key::TimeFormat::MillisAt)).encode(&mut bytes);
    bytes.into()
}
