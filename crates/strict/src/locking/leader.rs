//! What only a shard's leader has: the locks, the transactions in progress, the votes on their way through the log.
//! All of it lasts for one term; the next leader finds the votes in the machine and asks for nothing else.

use super::keyset::Keyset;
use super::locks::{Asker, LockTable};
use super::machine::{Machine, Prepared};
use super::message::{CommitWindow, Message};
use super::options::Options;
use super::unapplied::Unapplied;
use crate::validation::{ModeStamps, Observed, Stamp, Undecided, Verdict, validate};
use crate::{Invoked, Mutant, Part};
use datatypes::{Claim, Effect, Invocation, Mode, Observation, Operation};
use protocol::{Contention, Pair};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::{Address, HybridClock, Incarnation, Instant, ProcessId, Timestamp, TransactionId, WallTime};

/// The clock follows what the log has accepted, however far ahead.
const CLOCK_BOUND: Duration = Duration::MAX;

/// What waits is no step but the vote.
pub(super) const VOTE: u32 = u32::MAX;

/// How far a transaction is at this shard.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Operations come, or, before them, others' votes.
    Executing,
    /// This leader has nothing against it, and collects the others' votes: its own will be part of the decision.
    Collecting { part: Arc<Part>, floor: u64, span: CommitWindow },
    /// The vote, or the decision of the only participant, is on its way through the log.
    Proposed { part: Arc<Part> },
    /// The shard has voted.
    Prepared { part: Arc<Part> },
    /// A decision is on its way through the log.
    Deciding { part: Arc<Part> },
}

impl Stage {
    /// What others must not conflict with.
    pub(super) fn part(&self) -> Option<&Arc<Part>> {
        match self {
            Stage::Executing => None,
            Stage::Collecting { part, .. }
            | Stage::Proposed { part }
            | Stage::Prepared { part }
            | Stage::Deciding { part } => Some(part),
        }
    }
}

/// A transaction in progress.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    /// The coordinator, from its own request; not learned from the leader of another shard.
    pub coordinator: Address,
    /// When it was heard of last, or voted for.
    pub since: Instant,
    pub stage: Stage,
    /// Questions that wait for locks, or for the ends of others.
    pub blocked: Vec<Message>,
    /// The leader has notified the coordinator that some of them wait for locks.
    pub said_blocked: bool,
    /// By step that waits for no lock, or [`VOTE`], whose ends it waits for.
    behind: BTreeMap<u32, BTreeSet<TransactionId>>,
    /// Its coordinator has given it up while the vote was on its way through the log.
    pub given_up: bool,
    /// Who collects the votes, if that is another shard's leader.
    pub collector: Option<Address>,
    /// The votes that this leader collects, by shard, and who sent them.
    pub votes: BTreeMap<u16, (Timestamp, Address)>,
}

impl OpenTransaction {
    /// The leader repeats the question when what it waits for has arrived. False if the question waits already.
    pub(super) fn keep(&mut self, message: Message) -> bool {
        let is_new = !self.blocked.contains(&message);
        self.blocked.extend(is_new.then_some(message));
        is_new
    }
}

/// An answer that waits until a quorum confirms the leader.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    to: Address,
    answer: Message,
    /// It shows what this transaction has put into the log, which has to be applied.
    behind: Option<TransactionId>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Leader {
    pub term: u64,
    pub locks: LockTable,
    pub open: BTreeMap<TransactionId, OpenTransaction>,
    by_key: BTreeMap<Box<[u8]>, BTreeSet<TransactionId>>,
    pub keyset: Keyset,
    /// Those that wait for the end of what was voted for before.
    pub waiting: BTreeSet<TransactionId>,
    /// Refused or given up in this term (false), or voted for without an entry, since it only read (true): a late
    /// repetition gets the same answer, and locks nothing.
    closed: BTreeMap<TransactionId, bool>,
    /// By life of a coordinator: what it has said that it asks for no more.
    floors: BTreeMap<(ProcessId, Incarnation), u64>,
    /// Answers that wait until a quorum confirms the leader, by context.
    pub confirming: BTreeMap<u64, Unconfirmed>,
    contexts: u64,
    /// What is on its way through the log.
    pub unapplied: Unapplied,
    clock: HybridClock,
}

impl Leader {
    /// A leader that begins its term with what the machine holds.
    pub(super) fn new(
        term: u64,
        locks: LockTable,
        machine: &Machine,
        coordinator: impl Fn(TransactionId) -> Address,
        now: Instant,
    ) -> Self {
        let mut leader = Leader {
            term,
            locks,
            open: BTreeMap::new(),
            by_key: BTreeMap::new(),
            keyset: Keyset::default(),
            waiting: BTreeSet::new(),
            closed: BTreeMap::new(),
            floors: BTreeMap::new(),
            confirming: BTreeMap::new(),
            contexts: 0,
            unapplied: Unapplied::default(),
            clock: HybridClock::new(CLOCK_BOUND),
        };
        leader.clock.recover(machine.latest());
        for (id, Prepared { part, .. }) in machine.prepared() {
            let age = Stamp { at: Timestamp::ZERO, transaction: *id };
            for invoked in &part.invocations {
                if let Some(claim) = claim(invoked) {
                    leader.locks.reinstate(*id, age, &invoked.key, &claim, now);
                }
            }
            leader.open(*id, coordinator(*id), now);
            leader.advance(*id, Stage::Prepared { part: part.clone() }, now);
        }
        leader
    }

    /// A timestamp above every one that this shard has accepted.
    pub(super) fn timestamp(&mut self, latest: Timestamp, wall: WallTime) -> Timestamp {
        self.clock.recover(latest);
        self.clock.tick(wall)
    }

    /// The transaction with its coordinator's address.
    pub(super) fn open(
        &mut self,
        id: TransactionId,
        coordinator: Address,
        now: Instant,
    ) -> &mut OpenTransaction {
        self.open.entry(id).or_insert_with(|| OpenTransaction {
            coordinator,
            since: now,
            stage: Stage::Executing,
            blocked: Vec::new(),
            said_blocked: false,
            behind: BTreeMap::new(),
            given_up: false,
            collector: None,
            votes: BTreeMap::new(),
        })
    }

    /// The transaction's coordinator has spoken. That it is granted a lock it has waited for is no sign of life.
    pub(super) fn heard(&mut self, id: TransactionId, now: Instant) {
        if let Some(open) = self.open.get_mut(&id)
            && matches!(open.stage, Stage::Executing | Stage::Collecting { .. } | Stage::Prepared { .. })
        {
            open.since = now;
        }
    }

    /// The transaction goes on to this stage.
    pub(super) fn advance(&mut self, id: TransactionId, stage: Stage, now: Instant) {
        for invoked in stage.part().into_iter().flat_map(|part| &part.invocations) {
            self.by_key.entry((*invoked.key).into()).or_default().insert(id);
        }
        if let Some(part) = stage.part() {
            self.keyset.hold(id, part);
        }
        if let Some(open) = self.open.get_mut(&id) {
            (open.stage, open.since) = (stage, now);
        }
    }

    /// True unless the coordinator has asked this leader to vote on the transaction.
    pub(super) fn is_executing(&self, id: TransactionId) -> bool {
        self.open.get(&id).is_none_or(|open| matches!(open.stage, Stage::Executing))
    }

    /// Nothing of the transaction is left here.
    pub(super) fn forget(&mut self, id: TransactionId) -> Option<OpenTransaction> {
        self.locks.release(id);
        let open = self.open.remove(&id)?;
        self.keyset.release(id);
        for invoked in open.stage.part().into_iter().flat_map(|part| &part.invocations) {
            if let Some(ids) = self.by_key.get_mut(&*invoked.key) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_key.remove(&*invoked.key);
                }
            }
        }
        Some(open)
    }

    /// The transaction is over here, and a repeated request changes nothing.
    pub(super) fn close(&mut self, id: TransactionId) -> Option<OpenTransaction> {
        self.closed.insert(id, false);
        self.forget(id)
    }

    /// The transaction has only read, and all of it was true at once.
    pub(super) fn close_read(&mut self, id: TransactionId) {
        self.closed.insert(id, true);
        self.forget(id);
    }

    /// True if it was closed so.
    pub(super) fn has_read(&self, id: TransactionId) -> bool {
        self.closed.get(&id).is_some_and(|read| *read)
    }

    /// True if the transaction was closed in this term.
    pub(super) fn is_closed(&self, id: TransactionId) -> bool {
        self.closed.contains_key(&id)
            || self.floors.get(&(id.process, id.incarnation)).is_some_and(|floor| id.number < *floor)
    }

    /// A coordinator asks for nothing below `floor` any more.
    pub(super) fn raise_floor(&mut self, id: TransactionId, floor: u64) {
        let known = self.floors.entry((id.process, id.incarnation)).or_default();
        if floor > *known {
            *known = floor;
            let (first, end) = (TransactionId { number: 0, ..id }, TransactionId { number: floor, ..id });
            let over: Vec<TransactionId> = self.closed.range(first..end).map(|(id, _)| *id).collect();
            for id in over {
                self.closed.remove(&id);
            }
            self.unapplied.forget(first, end);
        }
    }

    /// A context for an answer that waits for the confirmation of this leader, and for this transaction's entry to be applied.
    pub(super) fn hold_until_confirmed(
        &mut self,
        to: Address,
        answer: Message,
        behind: Option<TransactionId>,
    ) -> u64 {
        self.contexts += 1;
        self.confirming.insert(self.contexts, Unconfirmed { to, answer, behind });
        self.contexts
    }

    /// The leader is confirmed: an answer, unless it waits for an entry still.
    pub(super) fn confirmed(&mut self, context: u64) -> Option<(Address, Message)> {
        let Unconfirmed { to, answer, behind } = self.confirming.remove(&context)?;
        self.unapplied.hold(behind, (to, answer))
    }

    /// A part is in the log at this index, to be committed at this timestamp. The log keeps the order, so whoever has its locks
    /// next is evaluated behind it, and they need not wait until it is applied (decision 0031). A deletion of every key has
    /// all others wait for its end.
    pub(super) fn commits(&mut self, id: TransactionId, part: &Part, at: Timestamp, index: u64) {
        self.clock.recover(at);
        if part.flushes() {
            self.locks.make_firm(id);
        } else {
            self.unapplied.add_part(id, part, index);
            self.locks.release(id);
        }
    }

    /// Locking: true if everything that was observed is still protected, and what was not observed is locked now;
    /// `None` if it waits for a lock.
    pub(super) fn lock_part(
        &mut self,
        asker: Asker,
        part: &Part,
        trusting: bool,
    ) -> Option<Result<(), Box<[u8]>>> {
        let id = asker.id;
        let seen_type = |invoked: &&Invoked| saw_type_only(invoked) && self.locks.holds_any(id, &invoked.key);
        let to_judge: Vec<&Invoked> = part.invocations.iter().filter(|invoked| !seen_type(invoked)).collect();
        for invoked in to_judge.iter().filter(|invoked| invoked.observed.is_some()) {
            let claim = claim(invoked);
            if !trusting && !claim.is_none_or(|it| self.locks.protects(id, &invoked.key, it.mode)) {
                return Some(Err((*invoked.key).into()));
            }
        }
        let mut granted = true;
        for invoked in to_judge {
            if let Some(claim) = claim(invoked) {
                granted &= self.locks.lock(asker, &invoked.key, &claim);
            }
        }
        granted.then_some(Ok(()))
    }

    /// Optimistic: what stands in the way of a part, by the rules that TAPIR's replicas judge by; rather what has changed
    /// than what is undecided.
    pub(super) fn validate_part(
        &self,
        id: TransactionId,
        part: &Part,
        machine: &Machine,
    ) -> Result<(), VoteConflict> {
        let mut judged = Ok(());
        for invoked in &part.invocations {
            let verdict = invoked.access().map_or(Verdict::Abort, |access| {
                let version = machine.version(&invoked.key);
                // Of what changed since, only that it did is known.
                let newest = (version != 0).then_some((stamp_of(version), Effect::DELETE));
                let gone = access.observed.is_some_and(|seen| version == 0 && seen.newest() > Stamp::ZERO);
                if gone {
                    return Verdict::Abort;
                }
                let above = Stamp { at: Timestamp::MAX, transaction: id };
                let prepared = self.voted_on(&invoked.key, id);
                validate(above, &access, newest.into_iter(), prepared, &ModeStamps::default())
            });
            match verdict {
                Verdict::Ok => {}
                Verdict::Abstain => judged = judged.and(Err(VoteConflict::undecided(&invoked.key))),
                _ => return Err(VoteConflict::from(Box::from(&*invoked.key))),
            }
        }
        judged
    }

    /// Optimistic: the key whose lock somebody has taken whom a vote for this part would disturb.
    pub(super) fn reserved_key(&self, id: TransactionId, part: &Part) -> Option<VoteConflict> {
        let reserved = |invoked: &&Invoked| {
            claim(invoked).is_some_and(|claim| self.locks.is_taken(id, &invoked.key, &claim))
        };
        part.invocations.iter().find(reserved).map(|invoked| VoteConflict::undecided(&invoked.key))
    }

    /// Optimistic: notes whom a vote met on the key that it was refused for.
    pub(super) fn note_refusal(&mut self, id: TransactionId, part: &Part, key: &[u8]) {
        let Some(invoked) = part.on_key(key).next() else { return };
        let (Ok(access), Some(wanted)) = (invoked.access(), claim(invoked)) else { return };
        let met = self.voted_on(key, id).find(|other| other.is_in_the_way_of(&access));
        let met = met.and_then(|other| other.access.invocation.claim()).map(|met| met.mode);
        self.locks.contention.note(key, Pair { wanted: wanted.mode, met }, Contention::Conflict);
    }

    /// Optimistic: true if what was voted for stands in the way of an operation that holds its lock: of one that is
    /// evaluated whatever changes the key, since its vote compares versions.
    pub(super) fn is_contested(
        &self,
        id: TransactionId,
        key: &[u8],
        operation: &Operation<'_>,
        blind: bool,
    ) -> bool {
        let observation = if blind { Observation::NOTHING } else { operation.observation() };
        let invocation = Invocation { observation, effect: operation.blind_effect() };
        self.is_flushing(id)
            || self.voted_on(key, id).any(|other| {
                !blind && other.changes || !datatypes::commutes(&invocation, &other.access.invocation, None)
            })
    }

    /// True while a step without a lock waits for the transactions that had votes when the leader first received it.
    /// It waits for no transaction that arrives later, so that later ones cannot starve it.
    pub(super) fn is_behind(
        &mut self,
        asker: (TransactionId, u32),
        coordinator: Address,
        others: BTreeSet<TransactionId>,
        now: Instant,
    ) -> bool {
        let (id, step) = asker;
        let known = self.open.get(&id).and_then(|open| open.behind.get(&step));
        let waits = known.map_or(!others.is_empty(), |behind| !behind.is_disjoint(&others));
        if waits {
            self.open(id, coordinator, now).behind.entry(step).or_insert(others);
        } else if let Some(open) = self.open.get_mut(&id) {
            let has_waited = open.behind.remove(&step).is_some();
            let is_needed = !open.behind.is_empty() || !open.votes.is_empty() || !open.blocked.is_empty();
            if has_waited && !is_needed && self.locks.is_stranger(id) {
                // Nothing is held for it.
                self.forget(id);
            }
        }
        waits
    }

    /// The others that were voted for, or are about to be, and change a key.
    pub(super) fn changing(&self, key: &[u8], except: TransactionId) -> BTreeSet<TransactionId> {
        let changing = self.voted_on(key, except).filter(|other| other.changes);
        changing.map(|other| other.stamp.transaction).chain(self.flushing(except)).collect()
    }

    /// The question waits for the end of what was voted for before.
    pub(super) fn wait_for_ends(&mut self, id: TransactionId, message: Message) {
        if let Some(open) = self.open.get_mut(&id) {
            open.keep(message);
            self.waiting.insert(id);
        }
    }

    /// What others that were voted for, or are about to be, do to a key.
    fn voted_on<'l>(&'l self, key: &'l [u8], except: TransactionId) -> impl Iterator<Item = Undecided<'l>> {
        let ids = self.by_key.get(key).into_iter().flatten().filter(move |id| **id != except);
        ids.filter_map(|id| Some((*id, self.open.get(id)?.stage.part()?)))
            .flat_map(move |(id, part)| part.undecided_on(key, Stamp { at: Timestamp::MAX, transaction: id }))
    }

    /// Locking: true if a read that is a whole transaction needs no lock: all that may be decided on its key, or
    /// flushes, has been applied here. No node can have announced the end of a transaction that only executes, or that
    /// this leader commits by itself through the log; a transaction with a vote here may have been decided elsewhere.
    pub(super) fn reads_past(&self, id: TransactionId, key: &[u8], options: &Options) -> bool {
        let decided = |other: &TransactionId| {
            let open = self.open.get(other).filter(|_| *other != id);
            open.map(|open| &open.stage)
                .filter(|stage| !matches!(stage, Stage::Executing | Stage::Proposed { .. }))
        };
        let changes = |part: &Arc<Part>| part.on_key(key).any(|invoked| invoked.effect.is_some());
        let mut on_key = self.by_key.get(key).into_iter().flatten().filter_map(decided);
        let may_miss = on_key.any(|stage| stage.part().is_some_and(changes))
            || self.flushing(id).any(|other| decided(&other).is_some());
        let may_miss = may_miss && !options.mutants.has(Mutant::ReadsPastVotes);
        // The baseline of readers and writers locks for every read.
        !options.locks.readers_and_writers && !may_miss
    }

    /// Optimistic: true if an operation that reads would miss what was voted for and may be known already.
    pub(super) fn is_undecided(&self, id: TransactionId, key: &[u8], operation: &Operation<'_>) -> bool {
        let read = Invocation::observed(operation, None);
        self.is_flushing(id)
            || self.voted_on(key, id).any(|other| !datatypes::commutes(&read, &other.access.invocation, None))
    }
}

/// What stands in the way of a vote.
#[derive(Debug)]
pub(super) struct VoteConflict {
    /// The key; none where it is the set of the shard's keys.
    pub key: Option<Box<[u8]>>,
    /// Who it is has not ended: nothing that was seen has changed.
    pub undecided: bool,
}

impl VoteConflict {
    pub(super) fn undecided(key: &[u8]) -> Self {
        VoteConflict { key: Some(key.into()), undecided: true }
    }
}

impl From<Box<[u8]>> for VoteConflict {
    fn from(key: Box<[u8]>) -> Self {
        VoteConflict { key: Some(key), undecided: false }
    }
}

/// True if the operation was evaluated, saw only the key's type, and changes nothing. No other transaction changes that
/// while one holds the key's lock, in whatever mode.
fn saw_type_only(invoked: &Invoked) -> bool {
    let aspect =
        |invoked: &Invoked| invoked.access().map(|access| access.invocation.observation.aspect.is_some());
    invoked.observed.is_some() && invoked.effect.is_none() && !aspect(invoked).unwrap_or(true)
}

/// The locks that an evaluated operation needs, if it needs any.
pub(super) fn claim(invoked: &Invoked) -> Option<Claim<'_>> {
    invoked.access().map_or(Some(Mode::Write.into()), |access| access.invocation.claim())
}

/// The locks that an operation needs before it is evaluated: no less than the vote will need for what it came to.
/// A blind one that is evaluated (for the key's deadline) observes as much as any.
pub(super) fn claim_of<'o>(operation: &Operation<'o>, expired: bool) -> Claim<'o> {
    if expired { Mode::Write.into() } else { operation.claim() }
}

/// The locks of a write that needs no evaluation.
pub(super) fn claim_of_unread<'o>(operation: &Operation<'o>) -> Claim<'o> {
    operation.blind_effect().map_or(Mode::Write.into(), |effect| effect.claim())
}

/// A version as the stamps of observations have it.
pub(super) fn stamp_of(version: u64) -> Stamp {
    Stamp { at: Timestamp(version), ..Stamp::ZERO }
}

/// What an evaluation at this version observed.
pub(super) fn observed(version: u64) -> Observed {
    Observed::new(stamp_of(version), [])
}
