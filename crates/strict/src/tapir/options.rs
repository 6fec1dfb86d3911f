//! How replicas and coordinators are set up.

use crate::Mutants;
use protocol::Durability;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use types::{ProcessId, RegionId};

/// What a keyspace promises about the order of its transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Strict serializability: some order explains everything and agrees with real time.
    #[default]
    Strict,
    /// Serializability: some order explains everything, and has each session's transactions as they came. A read may be
    /// of the past, and a write too (the paper's 6.3).
    Serializable,
}

/// How far clocks are trusted. May be changed at any time, and differ from replica to replica: it decides who waits or
/// has to come again, never what is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// See [`Options::clock_bound`].
    pub bound: Duration,
    /// See [`Options::skew_wait`].
    pub wait: Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        Clocks { bound: Duration::from_secs(60), wait: Duration::ZERO }
    }
}

/// Options of replicas and coordinators.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How durable a replica's record is before what it says leaves. Below `Synced` an unclean restart makes the
    /// replica RECOVERING (Corrections 67).
    pub durability: Durability,
    /// Coordinators read from the replica on this process first.
    pub near: Option<ProcessId>,
    /// The coordinator's region, named in its claims.
    pub region: RegionId,
    /// Keep a claim of every committed transaction for `Node::take_claims`.
    pub claims: bool,
    /// What is promised. The same at every replica and coordinator, for ever.
    pub isolation: Isolation,
    /// Answer a single-key read from f+1 replicas in one round trip where that is safe.
    pub quorum_reads: bool,
    /// A read that is not answered after this goes to the next replica.
    pub read_timeout: Duration,
    /// The slow path begins, once f+1 replicas have answered, when an answer that a fast quorum needs is later than
    /// usual by some deviations, and by this at most; counted from Prepare where nothing has been measured.
    pub fast_timeout: Duration,
    /// Prepare, Finalize, Commit and Abort are sent again after this.
    pub resend_every: Duration,
    /// A request that is not done after this is answered by an error.
    pub request_timeout: Duration,
    /// A replica suspects the coordinator of a transaction that it has held prepared for this long, and up to three times
    /// as long if it is far away.
    pub prepared_timeout: Duration,
    /// How often the coordinator retries a conflicting transaction before it replies CONFLICT.
    pub retries: u32,
    /// The least window that the wait before running again is drawn from; what the failed run took, if that is
    /// longer. Doubles with every conflict, a few times.
    pub backoff: Duration,
    /// How often a leader that synchronizes its shard asks again, and replicas look for what they may forget; `None`:
    /// the record is never trimmed. How often an interval is closed depends on `sync_lag` and on what that takes.
    pub sync_every: Option<Duration>,
    /// How old a transaction is, at least, before its place is closed; and for how long replicas retain its outcome
    /// after that, at least. Longer than requests take, so that coordinators that still live learn outcomes; replicas
    /// wait for longer where proposals take longer.
    pub sync_lag: Duration,
    /// How many times a leader tries to synchronize with every replica before f+1 suffice; what the others miss from
    /// then on they must fetch as state.
    pub sync_patience: u32,
    /// About how many bytes of state one message or one piece of a checkpoint carries; a larger key makes it larger.
    pub piece_bytes: usize,
    /// Replicas refuse timestamps that are farther ahead of their clock (Corrections 85).
    pub clock_bound: Duration,
    /// A replica judges a first proposal when its clock has passed the timestamp by this much, so that transactions are
    /// judged in the order of their timestamps; it waits at most twice as long. Zero: at once (the paper's 6.6).
    pub skew_wait: Duration,
    /// The bug under test, if any.
    pub mutants: Mutants,
}

impl Options {
    /// True if reads may end without a stamp. Where stamps are the order, every transaction needs one.
    pub(super) fn reads_without_stamps(&self) -> bool {
        self.quorum_reads && self.isolation == Isolation::Strict
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Synced,
            near: None,
            region: RegionId(0),
            claims: false,
            isolation: Isolation::Strict,
            quorum_reads: true,
            read_timeout: Duration::from_millis(250),
            fast_timeout: Duration::from_millis(50),
            resend_every: Duration::from_millis(250),
            request_timeout: Duration::from_secs(5),
            prepared_timeout: Duration::from_millis(600),
            retries: 100,
            backoff: Duration::from_millis(2),
            sync_every: Some(Duration::from_millis(250)),
            sync_lag: Duration::from_secs(10),
            sync_patience: 60,
            piece_bytes: 64 * 1024,
            clock_bound: Clocks::default().bound,
            skew_wait: Clocks::default().wait,
            mutants: Mutants::default(),
        }
    }
}
