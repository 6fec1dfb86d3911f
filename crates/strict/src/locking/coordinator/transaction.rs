//! Where a transaction is between the leaders of its shards.

use super::TwoPhaseCommit;
use super::gather::LockPlan;
use crate::coordinator::{Answer, CallStep, Done, Progress, Purpose};
use crate::locking::leader::observed;
use crate::locking::machine::Evaluation;
use crate::locking::message::CommitWindow;
use crate::{Invoked, Part};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Instant, RequestId, Timestamp};

/// A transaction in progress.
pub(super) type Transaction = crate::coordinator::Transaction<TwoPhaseCommit>;

/// A coordinator's state of a transaction, except for its phase.
#[derive(Debug, Default)]
pub struct TransactionState {
    /// By shard: the term in which its leader evaluated.
    pub terms: BTreeMap<u16, u64>,
    /// How often it has followed a hint of who leads since it was said again.
    pub hops: u32,
    /// A vote of one of several shards was refused for a lock, an optimistic transaction was refused too often, or a leader is not to
    /// carry this one out (`single`): this time it has all its locks before it asks for votes, and waits for them where it may.
    pub locks_first: bool,
    /// The shard that its steps are left to until all others have voted.
    pub last: Option<u16>,
    /// One could not carry them out, or not in time: no shard is left to the end any more.
    pub asks_all: bool,
    /// When the coordinator sent Prepare.
    pub prepared_at: Instant,
    /// When that shard said that others' locks are in the way.
    pub last_blocked: Option<Instant>,
    /// The shards where operations wait for locks.
    pub blocked_at: BTreeSet<u16>,
    /// The shards whose leaders know that it waits at another shard.
    pub notified: BTreeSet<u16>,
    /// When it began, or its coordinator last gave a sign of life for it.
    pub signed: Instant,
    /// Those that commit with it, in the order in which they were combined: their steps follow its own.
    pub members: Vec<Transaction>,
    /// A closest replica did not answer: the coordinator queries the leaders.
    pub at_leaders: bool,
    /// Everything is evaluated, and a request to the timestamp server is open.
    pub stamping: bool,
    /// What the timestamp server said: it commits not before this.
    pub stamp: Option<Timestamp>,
    /// Where it asks for its locks first: which questions that takes.
    pub plan: LockPlan,
    /// The shard that took longest to answer for a step, and how long: its locks are waited for most.
    pub slowest: Option<(Duration, u16)>,
    /// By step: what the coordinator evaluated before it requested the lock.
    pub locked: BTreeMap<usize, Done>,
    /// How often it retried after a refusal because of undecided transactions.
    pub refusals: u32,
}

/// Where a transaction is.
#[derive(Debug, Default)]
pub enum Phase {
    /// Steps are being evaluated, or an interactive one waits for its session.
    #[default]
    Executing,
    /// Prepare is out.
    Preparing(Preparing),
    /// Every shard has voted yes, and the first one writes the decision; or, without a timestamp, the first one collects the
    /// votes, and is to end that, unless it has decided.
    Deciding { at: Option<Timestamp>, first: u16, parts: BTreeSet<u16> },
    /// Waits to run again.
    BackingOff { until: Instant },
    /// Waits for what another one, its host, finds out under its locks, to commit with it.
    Visiting { host: u64, until: Instant },
    /// Waits for the end of another one: for one it is in conflict with, or, having nothing to find out, for one that is
    /// being committed. Others may join meanwhile.
    Gathering { until: Instant },
    /// A single command that waits to be sent with others of its key.
    Queued { until: Instant },
}

/// A vote in progress.
#[derive(Debug)]
pub struct Preparing {
    pub parts: BTreeMap<u16, Part>,
    /// By shard: the term named in its Prepare; 0 before that is known.
    pub terms: BTreeMap<u16, u64>,
    pub votes: BTreeMap<u16, Timestamp>,
    pub read_only: bool,
    /// Who brings the votes together.
    pub tally: Tally,
    /// A single command, which its shard's leader evaluates and commits at once.
    pub single: bool,
}

/// Who brings the votes of several shards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// This coordinator, which then tells the first participant to write the decision.
    Here,
    /// The first participant's leader, which decides; the votes that are known here do not matter.
    First,
    /// This coordinator, but for the first participant's vote. The coordinator sends Prepare to the first participant
    /// when all other votes are here, and that participant decides, at no lower timestamp than theirs.
    Last(Option<Timestamp>),
}

impl Preparing {
    /// The shards whose votes the coordinator has requested and does not have.
    pub(super) fn pending_votes(&self) -> impl Iterator<Item = (&u16, &Part)> {
        let waits = if self.tally == Tally::Last(None) { self.first() } else { None };
        let missing = move |shard: &u16| !self.votes.contains_key(shard) && waits != Some(*shard);
        self.parts.iter().filter(move |(shard, _)| self.tally == Tally::First || missing(shard))
    }

    /// The first participant: it writes the decision.
    pub(super) fn first(&self) -> Option<u16> {
        self.parts.values().next()?.participants.first().copied()
    }

    /// True if nothing can have come of it while the coordinator has not decided. A leader heeds no question that does not
    /// name its term.
    pub(super) fn is_in_vain(&self) -> bool {
        let several = self.parts.len() > 1 && matches!(self.tally, Tally::Here | Tally::Last(None));
        several || self.read_only || self.single && self.terms.values().all(|term| *term == 0)
    }
}

impl From<Evaluation> for Answer {
    fn from(evaluation: Evaluation) -> Self {
        let Evaluation { result, effect, version, expiry, expires_at } = evaluation;
        Answer { result, effect, observed: observed(version), expiry, expires_at }
    }
}

/// A read that is a whole transaction: it needs no vote, only the confirmation that its leader leads.
pub(super) fn is_alone(transaction: &Transaction) -> bool {
    let [only] = transaction.steps.list() else { return false };
    transaction.purpose == Purpose::Auto && transaction.watches.is_empty() && only.call.is_read()
}

/// True if leaders lock for steps that they need not evaluate.
pub(super) fn asks_first(transaction: &Transaction) -> bool {
    transaction.own.locks_first
}

/// True if the coordinator sends steps on one key together: where each is evaluated, and the client sees none of them
/// before all are.
pub(super) fn chains(transaction: &Transaction) -> bool {
    transaction.purpose == Purpose::Auto && !asks_first(transaction) && transaction.own.members.is_empty()
}

/// The shards to whose leaders the coordinator has sent a request.
pub(super) fn touched(transaction: &Transaction) -> BTreeSet<u16> {
    match &transaction.phase {
        Phase::Preparing(preparing) => preparing.parts.keys().copied().collect(),
        Phase::Deciding { parts, .. } => parts.clone(),
        _ => begun(transaction).map(|step| step.call.shard).collect(),
    }
}

/// True if the coordinator has sent a step to a leader.
pub(super) fn has_begun(transaction: &Transaction) -> bool {
    begun(transaction).next().is_some()
}

fn begun(transaction: &Transaction) -> impl Iterator<Item = &CallStep> {
    transaction
        .steps
        .list()
        .iter()
        .filter(|step| !matches!(step.progress, Progress::Waiting | Progress::Deferred))
}

/// True if a watched key has another version than it had, or has expired. Watched keys are the first steps.
pub(super) fn is_watch_touched(transaction: &Transaction) -> bool {
    let mut watched = transaction.watches.iter().zip(transaction.steps.done());
    watched.any(|(watched, (step, done))| {
        watched.observed != done.invoked.observed || transaction.steps.expiries.contains_key(&step.call.key)
    })
}

/// When it may commit: not before what it found expired, and before the deadlines of what it found alive.
pub(super) fn span(transaction: &Transaction) -> CommitWindow {
    let below_millis = transaction.steps.deadlines().min().unwrap_or(0);
    let stamp = transaction.own.stamp.map_or(0, |at| at.wall().as_millis());
    CommitWindow { from_millis: transaction.now_millis.max(stamp), below_millis }
}

/// Every shard's part.
pub(super) fn parts(transaction: &Transaction) -> BTreeMap<u16, Part> {
    let mut invocations: BTreeMap<u16, Vec<Invoked>> = BTreeMap::new();
    for (shard, invoked) in transaction.steps.invocations() {
        invocations.entry(shard).or_default().push(invoked.clone());
    }
    let mut keysets = transaction.steps.keysets();
    for shard in keysets.keys() {
        invocations.entry(*shard).or_default();
    }
    if let Some(last) = transaction.own.last {
        invocations.entry(last).or_default();
    }
    let mut participants: Vec<u16> = invocations.keys().copied().collect();
    // The first one lets its locks go first. Where none has been waited for, no shard is always the first.
    let first = transaction.own.last.or(transaction.own.slowest.map(|(_, shard)| shard));
    let slowest = first.and_then(|shard| participants.iter().position(|it| *it == shard));
    let turn = (transaction.id.number % participants.len().max(1) as u64) as usize;
    participants.rotate_left(slowest.unwrap_or(turn));
    let part = |(shard, invocations)| {
        let keyset = keysets.remove(&shard);
        (shard, Part { participants: participants.clone(), invocations, keyset, ..Part::default() })
    };
    invocations.into_iter().map(part).collect()
}

/// The requests that it serves, where checkers cannot tell from its session.
pub(super) fn requests(transaction: &Transaction) -> Vec<RequestId> {
    if transaction.own.members.is_empty() {
        return transaction.turn.clone();
    }
    let members = transaction.own.members.iter().filter_map(|member| member.request);
    transaction.request.into_iter().chain(members).collect()
}
