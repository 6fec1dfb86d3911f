//! What a coordinator claims about a transaction it decided, for checkers: which order it took, what it could see,
//! what it changed. A white-box checker replays the claims and compares every result that clients saw.

use types::{RegionId, RegionSet, RequestId, SessionId, Timestamp, TransactionId};

/// The claim about one decided transaction. Coordinators collect claims only where an option says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The session that ran it.
    pub session: SessionId,
    /// Its id.
    pub transaction: TransactionId,
    /// Its place in the commit order; `None` if it aborted, or changed nothing and took no place.
    pub commit: Option<CommitStamp>,
    /// What it could see; `None` for a strict one, which saw everything before its place.
    pub snapshot: Option<SnapshotClaim>,
    /// The same, and what its effects depend on, region by region, where the two times of a snapshot do not say all.
    pub vector: Option<VectorClaim>,
    /// Where it stands in the causal thread of its coordinator's life, if its session shares that with others.
    pub thread: Option<ThreadClaim>,
    /// Keys and the binary forms of the effects committed on them, in the order of application.
    pub effects: Vec<KeyEffect>,
    /// The requests that it served, one for each of its steps, where commands of a pipeline may run as one transaction;
    /// otherwise it is the one that its session has under way.
    pub requests: Vec<RequestId>,
    /// Where it stands in the State DAG of a branch keyspace.
    pub branch: Option<BranchClaim>,
}

/// A key, and a time for each region.
pub type SeenKey = (Box<[u8]>, Vec<Timestamp>);

/// What a transaction of a protocol with a time for each region says of them, in order of the regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorClaim {
    /// It could see everything of each region up to here, if what that depends on is shown too; empty if that is not known.
    pub snapshot: Vec<Timestamp>,
    /// Its effects depend on each other region up to here.
    pub depends_on: Vec<Timestamp>,
    /// Its effects have observed as much and no more, and are merged by it; otherwise they are performed in order of place.
    pub merges: bool,
    /// Where partitions are read by themselves, in place of the snapshot: it could see everything that each region did to these keys
    /// up to here, beside what its session has seen before, and what all of that depends on.
    pub keys: Option<Vec<SeenKey>>,
}

impl VectorClaim {
    /// What is said, if anything is.
    pub fn of(snapshot: Vec<Timestamp>, depends_on: Vec<Timestamp>, merges: bool) -> Option<Self> {
        let says_something = !snapshot.is_empty() || !depends_on.is_empty();
        says_something.then_some(VectorClaim { snapshot, depends_on, merges, keys: None })
    }
}

/// What a transaction says of the causal thread that the sessions of a coordinator share. The thread is known by the process
/// and the incarnation of the transaction's id. It takes its transactions up one after the other, each when its coordinator
/// learns that it has committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadClaim {
    /// It could see so many of the thread's transactions, the first ones, whether its snapshot shows them or not.
    pub seen: u64,
    /// Where in this order it was taken up itself, counted from 1; `None` if it changed nothing.
    pub place: Option<u64>,
    /// What it observed of the thread beyond `seen`, because it was evaluated on newer states.
    pub beyond: Vec<TransactionId>,
}

/// What a transaction of a branch keyspace says of states, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchClaim {
    /// The states it read: one, or for a merge those that it merges.
    pub read: Vec<String>,
    /// The state it made; `None` if it changed nothing.
    pub state: Option<String>,
    /// The states that one continues.
    pub parents: Vec<String>,
}

/// A key and the binary form of an effect on it. Both without bytes: every key of the instance's part of the keyspace
/// was deleted (an effect's binary form is never empty).
pub type KeyEffect = (Box<[u8]>, Box<[u8]>);

/// A place in a commit order: compared by `at`, then by the transaction's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitStamp {
    /// The commit timestamp.
    pub at: Timestamp,
    /// Wren's remote dependency time; `ZERO` elsewhere.
    pub depends_on: Timestamp,
    /// Where it committed.
    pub region: RegionId,
    /// The regions that took part, where a transaction may have parts in several; else empty.
    pub parts: RegionSet,
}

/// What a causal transaction could see: everything up to `local` from its own region, up to `remote` from others,
/// and its session's own writes, or those that its thread shows it ([`ThreadClaim`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotClaim {
    /// The region it ran in.
    pub region: RegionId,
    /// Wren's local snapshot time.
    pub local: Timestamp,
    /// Wren's remote snapshot time.
    pub remote: Timestamp,
}
