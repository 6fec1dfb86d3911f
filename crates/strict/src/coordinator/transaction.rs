//! A transaction in progress at its coordinator.

use super::sessions::Lost;
use super::steps::{Steps, Watched};
use super::{CommitProtocol, conflict, keyset_conflict};
use crate::validation::Stamp;
use types::{Error, Instant, RequestId, SessionId, TransactionId};

/// What becomes of a transaction once its steps are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Commit, then reply with every step's result; run again on a conflict.
    Auto,
    /// Reply to each Operate; Commit comes from the session.
    Interactive { read_only: bool },
    /// Keep what was observed as the session's watches.
    Watch,
    /// A piece of FLUSH: deletes keys, then the browse with this number goes on.
    Flush { keyspace_query: u64 },
}

/// A transaction in progress. It goes from hand to hand, so it stays where it is.
pub type Transaction<P> = Box<Running<P>>;

/// See [`Transaction`].
#[derive(Debug)]
pub struct Running<P: CommitProtocol> {
    pub id: TransactionId,
    /// When it began first, and its first id: a retry retains both, so that the transaction grows old and wins.
    pub age: Stamp,
    pub session: SessionId,
    /// Who waits for a reply.
    pub request: Option<RequestId>,
    pub purpose: Purpose,
    pub steps: Steps,
    /// How many steps have been replied to, or need no reply.
    pub replied: usize,
    /// What must not have changed.
    pub watches: Vec<Watched>,
    /// The session of an interactive one has asked for the commit.
    pub committing: bool,
    /// The transaction's time for expiries.
    pub now_millis: u64,
    /// When it began to run, this time.
    pub began: Instant,
    /// When its session last sent a request for it, or got an answer.
    pub idle_since: Instant,
    /// When it last went on, or was said again.
    pub moved_at: Instant,
    pub phase: P::Phase,
    /// When the present request is given up.
    pub deadline: Instant,
    pub retries: u32,
    /// What its session has lost before it, if it may be the same again.
    pub lost: Option<Lost>,
    /// The requests of its session's pipeline that it runs, one for each step; empty for any other transaction.
    pub turn: Vec<RequestId>,
    /// The key of the latest conflict.
    pub conflicted: Option<Box<[u8]>>,
    /// What else the protocol keeps.
    pub own: P::Own,
}

impl<P: CommitProtocol> Running<P> {
    /// True while nobody waits for it, nor ever will: an operation whose session is gone.
    pub fn is_unheard(&self) -> bool {
        self.purpose == Purpose::Auto && self.request.is_none()
    }

    /// True if the session's client, and not the coordinator, runs it again when it was refused for a conflict.
    pub fn is_begun_anew(&self) -> bool {
        !self.watches.is_empty() || matches!(self.purpose, Purpose::Interactive { .. })
    }

    /// True if the coordinator may run it again when it was refused for a conflict: nobody has been shown anything of what it
    /// found.
    pub fn may_run_again(&self) -> bool {
        match self.purpose {
            Purpose::Auto | Purpose::Flush { .. } => true,
            Purpose::Interactive { .. } => {
                self.watches.is_empty() && self.steps.list().iter().all(|step| step.call.reveals_nothing())
            }
            Purpose::Watch => false,
        }
    }

    /// How often it was refused, in other transactions of its session or by itself.
    pub fn losses(&self) -> u32 {
        self.retries + self.lost.map_or(0, |lost| lost.times)
    }

    /// True while an interactive one waits for what its session asks next.
    pub fn is_idle(&self) -> bool {
        matches!(self.purpose, Purpose::Interactive { .. }) && self.request.is_none() && !self.committing
    }

    /// The reply to a transaction that met a conflicting one.
    pub fn conflict(&self) -> Error {
        match &self.conflicted {
            None if self.steps.has_keyset() => keyset_conflict(),
            key => conflict(key.as_deref()),
        }
    }
}
