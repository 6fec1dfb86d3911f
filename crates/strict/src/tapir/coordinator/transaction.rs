//! Where a transaction of TAPIR is.

use super::super::message::Evaluation;
use super::super::operation::{Invoked, Part, Transactions};
use super::Tapir;
use super::check::Check;
use crate::coordinator::{Answer, whole_key};
use crate::ir::Tally;
use crate::small_map::SmallMap;
use crate::validation::Observed;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{Instant, Timestamp};

/// A transaction in progress.
pub(super) type Transaction = crate::coordinator::Transaction<Tapir>;

/// Where a transaction is.
#[derive(Debug, Default)]
pub enum Phase {
    /// Steps are being evaluated, or an interactive one waits for its session.
    #[default]
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

/// What else it keeps.
#[derive(Debug, Default)]
pub struct Own {
    /// How its latest reads were answered, if all of them were at once.
    pub one_replica_read: Option<OneReplicaRead>,
    /// What the shortest of its refused runs took.
    pub ran: Option<Duration>,
}

/// The answers to a quorum read, by replica, with their views.
#[derive(Debug)]
pub struct QuorumRead {
    /// When the coordinator last queried replicas.
    pub since: Instant,
    pub queried: SmallVec<[usize; 8]>,
    pub answers: BTreeMap<usize, (u64, Evaluation)>,
}

/// One replica answered all reads of a transaction in one step, and knew of no conflicting undecided transaction. At
/// that moment it was what the replica would have said to a check.
#[derive(Clone, Copy, Debug)]
pub struct OneReplicaRead {
    pub shard: u16,
    pub member: usize,
    /// The replica's view then.
    pub view: u64,
    /// The number of those steps. The transaction may have requested more since.
    pub steps: usize,
}

/// An attempt to commit.
#[derive(Debug)]
pub struct Preparing {
    pub attempt: u32,
    /// No further attempt is made: a RETRY is finalized as a refusal.
    pub last: bool,
    /// The timestamp of the first attempt.
    pub born: Timestamp,
    pub at: Timestamp,
    pub shards: SmallMap<u16, ShardVotes, 1>,
    /// When the attempt was first proposed.
    pub sent_at: Instant,
    /// When what was not answered is said again.
    pub resend_at: Instant,
    /// For how long replicas keep what it touches for it if it is refused.
    pub keep: Duration,
    /// A replica reported an abort, or an abort was chosen and confirmed; which key and why.
    pub conflict: Option<Conflict>,
}

/// One shard's votes on an attempt.
#[derive(Debug)]
pub struct ShardVotes {
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
pub struct Conflict {
    pub key: Option<Box<[u8]>>,
    /// A watched key was touched.
    pub watch: bool,
}

impl From<Evaluation> for Answer {
    fn from(evaluation: Evaluation) -> Self {
        let Evaluation { result, effect, observed, expiry, expires_at, .. } = evaluation;
        Answer { result, effect, observed, expiry, expires_at }
    }
}

/// With so many effects above the closed base an observer observes the whole key when it prepares, which raises the base.
/// What is named with each look would else be all that has come since the last synchronization.
const NAMED: usize = 64;

/// See [`NAMED`].
pub(super) fn names_many(invoked: &Invoked) -> bool {
    invoked.observed.as_ref().is_some_and(are_many)
}

/// See [`NAMED`].
pub(super) fn are_many(observed: &Observed) -> bool {
    observed.above().len() > NAMED
}

/// Every shard's part, its watches first, and how many of its invocations are watches.
pub(super) fn parts(transaction: &Transaction) -> SmallMap<u16, (Part, usize), 1> {
    let mut parts: SmallMap<u16, (Part, usize), 1> = SmallMap::default();
    for watched in &transaction.watches {
        let (part, watches) = parts.or_default(watched.call.shard);
        part.invocations.push(watched.invoked());
        *watches += 1;
    }
    for (shard, invoked) in transaction.steps.invocations() {
        let mut invoked = invoked.clone();
        if names_many(&invoked) {
            invoked.operation = Some(whole_key());
        }
        parts.or_default(shard).0.invocations.push(invoked);
    }
    for (shard, mut keyset) in transaction.steps.keysets() {
        let (part, watches) = parts.or_default(shard);
        keyset.flushed_after = keyset.flushed_after.map(|after| after + *watches as u32);
        part.keyset = Some(keyset);
    }
    let participants: Vec<u16> = parts.keys().copied().collect();
    parts.values_mut().for_each(|(part, _)| part.participants.clone_from(&participants));
    parts
}
