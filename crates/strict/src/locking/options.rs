//! How replicas and coordinators are set up.

use super::locks::LockOptions;
use crate::Mutants;
use protocol::Durability;
use std::time::Duration;
use types::{Address, ProcessId, RegionId};

/// How a leader isolates conflicting transactions from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// Strict two-phase locking: operations wait for the locks of others.
    #[default]
    Locking,
    /// Optimistic: operations take no locks, and the vote validates what they saw.
    Optimistic,
    /// No transactions: every operation is evaluated and committed by itself, in the order of its shard's log. A
    /// baseline for measurements (Claret, section 6, "non-transactional").
    Unlocked,
}

/// Where optimistic transactions read. With locks, leaders lock and evaluate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// At the leaders.
    #[default]
    Leader,
    /// At the closest replicas, on what those have applied (TAPIR, 7.1: the OCC systems). Leaders validate what was seen at the
    /// vote, and a transaction that was refused reads at them.
    Closest,
}

/// Who collects the votes of several shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coordinates {
    /// The client's coordinator, which asks the first participant when all others have voted: its vote is the decision, one
    /// entry (the last agent of Gray's commit protocols).
    #[default]
    LastAgent,
    /// The client's coordinator, which asks all at once, and then tells the first participant to write the decision (TAPIR, 7.1).
    Client,
    /// The leader of the first participant, to which the leaders of the others send their votes (Spanner; TAPIR, 7.1).
    Participant,
}

impl Coordinates {
    /// What servers of so many regions do: over several the way back to the coordinator between votes and decision costs most, in
    /// one what leaders have to do.
    pub fn over(regions: usize) -> Coordinates {
        if regions > 1 { Coordinates::Participant } else { Coordinates::LastAgent }
    }
}

/// How far transactions of one coordinator are combined (Claret, 4.3; Corrections 63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combining {
    /// The most transactions that commit as one.
    pub members: usize,
    /// A transaction that has waited so long for another's locks goes on by itself, and no transaction joins a host
    /// whose deadline is earlier than its own by more than this.
    pub patience: Duration,
    /// What needs no evaluation is held back behind one that is being committed for at most so long, to be joined.
    pub gather: Duration,
    /// While so many messages with single commands of a key are under way, others wait, to be sent together.
    pub under_way: usize,
    /// Such a one waits for at most so long.
    pub hold: Duration,
}

impl Default for Combining {
    fn default() -> Self {
        Combining {
            members: 64,
            patience: Duration::from_millis(250),
            gather: Duration::from_millis(2),
            under_way: 2,
            hold: Duration::from_millis(1),
        }
    }
}

/// Which transactions leave the steps of one shard to the end, to be evaluated with its decision (decision 0031).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastShard {
    /// None while one key is in more than one of so many transactions of a coordinator: then those that would wait for one another
    /// gather.
    pub crowded: u32,
    /// None before so many have come, and that is known.
    pub after: u32,
    /// Who has waited there for others' locks for so long is taken back, since they may wait for its votes; where votes take longer, after
    /// as much time.
    pub patience: Duration,
}

impl Default for LastShard {
    fn default() -> Self {
        LastShard { crowded: 10, after: 256, patience: Duration::from_millis(20) }
    }
}

/// Options of replicas and coordinators.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Locks or validation.
    pub concurrency: Concurrency,
    /// Where optimistic transactions read.
    pub reads: Reads,
    /// Who collects votes.
    pub coordinates: Coordinates,
    /// Ask this coordinator for a timestamp before the vote; the transaction commits not before it. It costs a round trip and
    /// brings nothing: a baseline for measurements (TAPIR, 7.3: Txn-OCC's timestamp server). `None`: the own clock will do.
    pub clock: Option<Address>,
    /// Of locks: whether those that wait have them in phases, or the oldest first; and which modes there are.
    pub locks: LockOptions,
    /// Of locks: transactions of one coordinator share them and commit as one, if so.
    pub combining: Option<Combining>,
    /// Of locks in the types' modes, where a participant decides: transactions of one request leave a shard to the end, if so.
    pub last_shard: Option<LastShard>,
    /// How durable a replica's record is before what it says leaves. Below `Synced` an unclean restart makes the
    /// replica forgetful: it does not vote until it has regained what it may have lost (Corrections 67).
    pub durability: Durability,
    /// The replicas on this process are the closest ones; of a shard without any, the one in the same place among its replicas.
    /// Weak reads go there while nobody is known to lead.
    pub near: Option<ProcessId>,
    /// The coordinator's region, named in its claims.
    pub region: RegionId,
    /// Keep a claim of every committed transaction for `Node::take_claims`.
    pub claims: bool,
    /// The log's unit of time: leaders speak every two, followers miss them after six to twelve.
    pub tick: Duration,
    /// What is not answered is said again after this, to whoever leads then.
    pub resend_every: Duration,
    /// A request that is not done after this is answered by an error.
    pub request_timeout: Duration,
    /// A shard that has voted asks for the decision when it has not heard of the transaction for this long.
    pub prepared_timeout: Duration,
    /// The leader releases the locks of a transaction that it has not heard of for this long. Coordinators give signs
    /// of life, four in that time, of all that hold locks or votes.
    pub lock_timeout: Duration,
    /// How often the coordinator retries a conflicting transaction before it replies CONFLICT.
    pub retries: u32,
    /// An optimistic transaction that was refused so often takes locks on its further runs; `None`: never.
    pub reserve_after: Option<u32>,
    /// Optimistic: what a session, and not the coordinator, would have to begin again waits for the end of what was voted for
    /// before it, and asks for votes once more where only that stood in the way.
    pub patient: bool,
    /// The least window that the wait before running again is drawn from; doubles with every conflict, a few times.
    pub backoff: Duration,
    /// The bug under test, if any.
    pub mutants: Mutants,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            concurrency: Concurrency::Locking,
            reads: Reads::Leader,
            coordinates: Coordinates::default(),
            clock: None,
            locks: LockOptions::default(),
            combining: Some(Combining::default()),
            last_shard: Some(LastShard::default()),
            durability: Durability::Synced,
            near: None,
            region: RegionId(0),
            claims: false,
            tick: Duration::from_millis(50),
            resend_every: Duration::from_millis(250),
            request_timeout: Duration::from_secs(5),
            prepared_timeout: Duration::from_millis(600),
            lock_timeout: Duration::from_secs(1),
            retries: 40,
            reserve_after: Some(2),
            patient: true,
            backoff: Duration::from_millis(2),
            mutants: Mutants::default(),
        }
    }
}
