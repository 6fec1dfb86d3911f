//! What the nodes of a keyspace say to one another.

use super::Times;
use super::stamp::Stamp;
use mvcc::CompactKey;
use replication::transfer::{Ask, Piece};
use types::{
    Address, Error, Incarnation, RegionId, RegionSet, ReplyBuf, Timestamp, TransactionId, wire_enum,
    wire_struct,
};

/// The one message type. Coordinators and participants exchange datagrams and repeat them; what replicas tell one
/// another about time and effects goes through the one stream to the peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<S: Times> {
    /// Coordinator to one partition of its region, regularly: "which snapshot may I read?" In the paper each
    /// transaction asks; here a coordinator asks for all that it will start until the next answer. It also leases the
    /// oldest snapshot that the coordinator still reads, and subscribes to the stable times.
    StartTx {
        /// The greatest stable times that the coordinator knows.
        stable: S,
        /// The oldest snapshot of its running transactions, or what it would give to a new one.
        oldest: S,
        /// The lost regions of which it has given up what all survivors have.
        gone: RegionSet,
        /// True if the partition shall tell it the stable times as they rise, until it is silent for `suspect_after`.
        subscribes: bool,
    },
    /// The answer to `StartTx`; also without a question, to subscribers, when the stable times have risen.
    StartTxResp {
        /// The stable times.
        stable: S,
        /// What the partition has received, where snapshots show that.
        received: Option<S>,
    },
    /// Coordinator to partition: evaluate this on the snapshot.
    SliceReq {
        /// The transaction.
        id: TransactionId,
        /// Which question of the transaction it is.
        round: u32,
        /// What it sees.
        snapshot: S,
        /// It sees at least that, and whatever else the partition has.
        fresh: bool,
        /// The time that deadlines compare with (Corrections 69).
        now_millis: u64,
        /// Work on keys of this partition.
        parts: Vec<Part<S>>,
        /// Work on all its keys.
        keyspace_work: Vec<KeyspaceWork>,
    },
    /// The answer to `SliceReq`.
    SliceResp {
        /// The transaction.
        id: TransactionId,
        /// The round of the question.
        round: u32,
        /// The results, or why there are none.
        outcome: Outcome<S::Depends>,
        /// As in `StartTxResp`, unless the coordinator may not know of a lost region.
        received: Option<S>,
    },
    /// Coordinator to participant: propose a commit timestamp for these effects.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// All of the coordinator's transactions with lower numbers that the receiver had a part in have ended everywhere
        /// (Corrections 34).
        settled: u64,
        /// What it saw.
        snapshot: S,
        /// The greatest timestamp its session knows: the paper's `ht`.
        highest: Timestamp,
        /// The time that deadlines compare with.
        now_millis: u64,
        /// The participant that records the decision: the first one written (Corrections 73).
        decider: Address,
        /// The regions of all participants, where there may be some in several; else empty.
        regions: RegionSet,
        /// True when there is no other participant: the proposal is the decision.
        alone: bool,
        /// Its session is shown only what is stable in its region: what depends on more is not there for it, also if it is
        /// of the own region.
        pessimistic: bool,
        /// Work on keys of this partition.
        parts: Vec<Part<S>>,
        /// Work on all its keys.
        keyspace_work: Vec<KeyspaceWork>,
    },
    /// The answer to `Prepare`.
    PrepareResp {
        /// The transaction.
        id: TransactionId,
        /// The proposal, the decision or the refusal.
        vote: Vote<S::Depends>,
    },
    /// Coordinator to participant, decider first; and a decider's answer to `Query`.
    Commit {
        /// The transaction.
        id: TransactionId,
        /// The commit timestamp.
        at: Timestamp,
    },
    /// The participant's answer to `Commit` and `Abort`: what stands in its log.
    CommitResp {
        /// The transaction.
        id: TransactionId,
        /// The commit timestamp; `None` if it was aborted.
        at: Option<Timestamp>,
    },
    /// Coordinator to participant: it has no effect; and a decider's answer to `Query`.
    Abort {
        /// The transaction.
        id: TransactionId,
    },
    /// A participant in doubt to the decider: a transaction without a decision is aborted by this.
    Query {
        /// The transaction.
        id: TransactionId,
    },
    /// Replica to its peers in the other regions: a transaction's effects on this partition, in order of place.
    Replicate {
        /// Where it committed; the receiver does not take its own region for it (Corrections 25).
        origin: RegionId,
        /// The transaction.
        id: TransactionId,
        /// Its place.
        at: Timestamp,
        /// What it depends on of the other regions: Wren's remote dependency time.
        depends_on: S::Depends,
        /// Keys and effects.
        effects: Vec<KeyEffects>,
    },
    /// Replica to its peers in the other regions, also after every batch of effects (Corrections 32).
    Heartbeat {
        /// Whose time it is.
        origin: RegionId,
        /// Everything of `origin` up to here has been sent.
        at: Timestamp,
        /// Everything of the receiver up to here is held durably.
        received: Timestamp,
        /// Whatever of `origin` follows has observed everything up to here (Corrections 75); zero says nothing.
        observed: Timestamp,
    },
    /// The greeting of a replica to a peer in another region: everything of the receiver up to here is held durably,
    /// go on from there.
    Received {
        /// Up to where.
        up_to: Timestamp,
    },
    /// Partition to the one above it in its region's stabilization tree; and the root to the roots of the other regions.
    StableReport {
        /// What it and all below it have applied of their own region, and received of the others: the minimum, time by
        /// time. The default before all below it have reported to this life of it.
        installed: S,
        /// The oldest snapshot that one of their coordinators reads.
        oldest: S,
        /// Its clock, which follows those below it.
        fastest: Timestamp,
    },
    /// The root to the partitions below it, which pass it on.
    StableTime {
        /// The minimum over `installed`, time by time.
        stable: S,
        /// The minimum over `oldest`, time by time.
        oldest: S,
        /// The sender's clock, which follows the fastest of the region's: slow ones follow it, so that one of them does
        /// not hold everybody's snapshots back.
        fastest: Timestamp,
    },
    /// A partition that lost records, to its peers and to the partitions of its region; and a peer that was cut off for
    /// too long, to the sender of `TransferRequired`: "what do you hold, and what have you heard of me?" (Corrections
    /// 67).
    HoldingsQuery,
    /// The answer to `HoldingsQuery`. What it names stays to be given for a while.
    HoldingsReply {
        /// Up to here everything of every region is in the cells.
        horizon: Timestamp,
        /// Up to where it holds the transactions of each region.
        held: Vec<(RegionId, Timestamp)>,
        /// The greatest time that the sender ever heard of the asker.
        highest: Timestamp,
        /// The greatest `observed` that was heard of the asker.
        observed: Timestamp,
    },
    /// "Give me the state that you hold."
    Ask {
        /// Which piece of it.
        ask: Ask,
        /// Only effects placed above; `None` for everything.
        above: Option<Timestamp>,
    },
    /// The answer to `Ask`.
    Piece {
        /// The piece.
        piece: Piece,
        /// Its giver's horizon. If it has moved, the transfer begins again.
        horizon: Timestamp,
    },
    /// Replica to a peer: I no longer retain the transactions that you lack; take my state.
    TransferRequired,
    /// A decider that lost records to the other partitions of its region: "do you know what became of it?" Whoever
    /// has only prepared it takes no decision from anybody else any more.
    OutcomeQuery {
        /// The transaction.
        id: TransactionId,
    },
    /// The answer to `OutcomeQuery`.
    OutcomeReply {
        /// The transaction.
        id: TransactionId,
        /// Its place if it committed.
        at: Option<Timestamp>,
    },
    /// An operator to a replica, or a replica to one of an evicted region: these regions are gone for good (Corrections
    /// 36).
    Evict {
        /// The regions.
        regions: Vec<RegionId>,
    },
    /// A survivor to the root of its region, and one root to another: how far it is with going on without lost regions.
    Standing {
        /// The regions that are gone for good.
        lost: Vec<RegionId>,
        /// How far the sender's partition is, or its region.
        standing: Standing,
        /// False if it answers one.
        asks: bool,
    },
    /// The answer: a root to the partitions of its region.
    Agreement {
        /// The regions that are gone for good.
        lost: Vec<RegionId>,
        /// What a snapshot may have shown, and what the receiver has said that it holds; once that is known.
        shown: Option<Timestamp>,
        /// What is above is given up; once that is known.
        cuts: Option<Vec<(RegionId, Timestamp)>>,
        /// True if nobody holds anything above any more: in the region, or in any where transactions have parts in several.
        over: bool,
    },
    /// Where transactions have parts in several regions: what became of these, in which a lost region took part? Nothing is
    /// answered before all that stays of it is there.
    SurvivorOutcomeQuery {
        /// The regions that are gone for good.
        lost: Vec<RegionId>,
        /// The transactions.
        ids: Vec<TransactionId>,
    },
    /// The answer to `SurvivorOutcomeQuery`.
    SurvivorOutcomeReply {
        /// The regions that are gone for good.
        lost: Vec<RegionId>,
        /// Each with its place if it has an effect here.
        outcomes: Vec<(TransactionId, Option<Timestamp>)>,
    },
    /// There, too: a partition to a coordinator that does not know it: these regions are gone for good.
    Lost {
        /// With each, once all survivors have done so: above which place what it took part in is given up.
        gone: Vec<(RegionId, Option<Timestamp>)>,
    },
}
wire_enum!(Message<S: Times> {
    0 => StartTx { stable, oldest, gone, subscribes },
    1 => StartTxResp { stable, received },
    2 => SliceReq { id, round, snapshot, fresh, now_millis, parts, keyspace_work },
    3 => SliceResp { id, round, outcome, received },
    4 => Prepare { id, settled, snapshot, highest, now_millis, decider, regions, alone, pessimistic, parts, keyspace_work },
    5 => PrepareResp { id, vote },
    6 => Commit { id, at },
    7 => CommitResp { id, at },
    8 => Abort { id },
    9 => Query { id },
    10 => Replicate { origin, id, at, depends_on, effects },
    11 => Heartbeat { origin, at, received, observed },
    12 => Received { up_to },
    13 => StableReport { installed, oldest, fastest },
    14 => StableTime { stable, oldest, fastest },
    15 => HoldingsQuery,
    16 => HoldingsReply { horizon, held, highest, observed },
    17 => Ask { ask, above },
    18 => Piece { piece, horizon },
    19 => TransferRequired,
    20 => OutcomeQuery { id },
    21 => OutcomeReply { id, at },
    22 => Evict { regions },
    23 => Standing { lost, standing, asks },
    24 => Agreement { lost, shown, cuts, over },
    25 => SurvivorOutcomeQuery { lost, ids },
    26 => SurvivorOutcomeReply { lost, outcomes },
    27 => Lost { gone },
});

/// How far a partition, or a region, is with going on without lost ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// The latest snapshot that is known to have been shown, once all of the sender's are fenced.
    pub shown: Option<Timestamp>,
    /// The sender's life, by a time that no other one of it has.
    pub born: Timestamp,
    /// From one root to another: the life of the receiver that the sender hears, and the time up to which that life or
    /// an earlier one has reported that the receiver's region holds everything.
    pub heard: Option<(Timestamp, Timestamp)>,
    /// From a partition to its root: of each child in the region's tree the life that the sender hears, and the time up
    /// to which that life or an earlier one has reported that its subtree holds everything.
    pub below: Vec<(u16, Incarnation, Timestamp)>,
    /// By partition what is held of each lost region, once that stands.
    pub held: Vec<(u16, Vec<(RegionId, Timestamp)>)>,
    /// True if nothing above the cuts is held, and nothing undecided that a lost region took part in.
    pub clean: bool,
}
wire_struct!(Standing { shown, born, heard, below, held, clean });

/// A transaction's work on one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<S: Times> {
    /// The key.
    pub key: CompactKey,
    /// In a slice: the effects of the session that the snapshot does not show, in order of place (Corrections 37).
    pub cached: Vec<CachedEffect<S::Depends>>,
    /// In a slice: the effects of the transaction so far; the work is done on top.
    pub overlay: Vec<Box<[u8]>>,
    /// The session's own transactions among what the snapshot does not show.
    pub own: Vec<TransactionId>,
    /// What to do, in order.
    pub work: Vec<Work<S>>,
}
wire_struct!(Part<S: Times> { key, cached, overlay, own, work });

/// An effect of the session with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedEffect<D = Timestamp> {
    /// Its place, and what it observed.
    pub stamp: Stamp<D>,
    /// The binary form of the effect.
    pub effect: Box<[u8]>,
}
wire_struct!(CachedEffect<D> { stamp, effect });

/// One thing to do to a key. Operations and effects are in their binary forms.
#[derive(Clone, Debug, PartialEq)]
pub enum Work<S> {
    /// Evaluate the operation: in a slice on the snapshot, in a prepare on the primary's newest state.
    Evaluate {
        /// The step of the transaction that gets the result.
        step: u32,
        /// The operation.
        operation: CompactKey,
        /// True when the client does not want the result.
        blind: bool,
    },
    /// Commit the effect, which depends on no state.
    Effect {
        /// The effect.
        effect: Box<[u8]>,
    },
    /// Commit effects that were chosen on the snapshot, unless something of this region came since that matters to
    /// the operation that chose them (Corrections 70).
    Observed {
        /// The operation.
        operation: CompactKey,
        /// The effects.
        effects: Vec<Box<[u8]>>,
    },
    /// In a slice: if the key is there, it may be drawn by a `Draw` of the same question.
    Candidate,
    /// Do nothing, but only if nothing of this region changed the key since the snapshot at which it was watched, and it has
    /// not expired since.
    Watched {
        /// That snapshot.
        since: S,
        /// When it was watched, in milliseconds since 1970.
        at_millis: u64,
    },
}
wire_enum!(Work<S> {
    0 => Evaluate { step, operation, blind },
    1 => Effect { effect },
    2 => Observed { operation, effects },
    3 => Watched { since, at_millis },
    4 => Candidate,
});

/// Work on all keys of a partition; weak, as nothing locks them (Corrections 78).
#[derive(Clone, Debug, PartialEq)]
pub enum KeyspaceWork {
    /// How many keys there are.
    Count {
        /// The step that gets the number.
        step: u32,
    },
    /// A piece of the keys.
    Scan {
        /// The step that gets the piece.
        step: u32,
        /// The partition's own cursor.
        cursor: u64,
        /// About how many keys.
        count: u32,
    },
    /// Draw a key at random of those that the snapshot shows. The only one that is not weak: that there is none is exact.
    Draw {
        /// The step that gets the key: of how many, a random number, and the key or nil.
        step: u32,
    },
    /// Delete every key but these, to which the transaction itself does something.
    Flush {
        /// The step that flushes.
        step: u32,
        /// The keys left to the transaction's own work.
        except: Vec<Box<[u8]>>,
    },
    /// How many writes are known to be lost to concurrent ones, in a piece of their list.
    CountLosses {
        /// The step that gets the number.
        step: u32,
        /// The partition's own cursor.
        cursor: u64,
    },
    /// A piece of their list.
    Losses {
        /// The step that gets the piece.
        step: u32,
        /// The partition's own cursor.
        cursor: u64,
        /// About how many.
        count: u32,
    },
}
wire_enum!(KeyspaceWork {
    0 => Count { step },
    1 => Scan { step, cursor, count },
    2 => Flush { step, except },
    3 => CountLosses { step, cursor },
    4 => Losses { step, cursor, count },
    5 => Draw { step },
});

/// The effects of a transaction on a key, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyEffects {
    /// The key.
    pub key: Box<[u8]>,
    /// The binary forms of the effects.
    pub effects: Vec<Box<[u8]>>,
}
wire_struct!(KeyEffects { key, effects });

/// The result of a step at one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The step.
    pub step: u32,
    /// The result.
    pub reply: ReplyBuf,
    /// What the evaluation wants to commit.
    pub effects: Vec<Box<[u8]>>,
    /// The partition's cursor after a piece of a scan.
    pub cursor: u64,
    /// The keys that a flush deletes.
    pub flushed: Vec<Box<[u8]>>,
}
wire_struct!(Answer { step, reply, effects, cursor, flushed });

impl Answer {
    /// A result.
    pub(crate) fn new(step: u32, reply: ReplyBuf) -> Self {
        Answer { step, reply, effects: Vec::new(), cursor: 0, flushed: Vec::new() }
    }
}

/// What came of a slice.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<D = Timestamp> {
    /// The results.
    Done {
        /// One for each step that was evaluated here.
        answers: Vec<Answer>,
        /// What who reads them depends on from now on, where sessions know that.
        seen: Option<D>,
    },
    /// The snapshot is below the horizon (Corrections 33).
    TooOld,
    /// The partition cannot serve.
    Refused {
        /// Why.
        error: Error,
    },
}
wire_enum!(Outcome<D> { 0 => Done { answers, seen }, 1 => TooOld, 2 => Refused { error } });

/// What a participant says to a `Prepare`.
#[derive(Clone, Debug, PartialEq)]
pub enum Vote<D = Timestamp> {
    /// The transaction may commit at `at` or later.
    Prepared {
        /// The proposal: the paper's `pt`.
        at: Timestamp,
        /// What the evaluation gave.
        results: EvaluationResults,
    },
    /// The transaction has committed, as the only participant decided.
    Committed {
        /// The commit timestamp.
        at: Timestamp,
        /// What the evaluation gave.
        results: EvaluationResults,
    },
    /// A concurrent transaction of the region is in the way: nothing happened, try again.
    Conflict {
        /// The key.
        key: Box<[u8]>,
        /// What the next attempt must have observed at least.
        raise: D,
    },
    /// The participant, or another partition of the region, has not received something that the transaction must observe before it
    /// writes the key: nothing happened, try again when that has arrived.
    Lacking {
        /// The key.
        key: Box<[u8]>,
        /// What the next attempt must have observed at least.
        raise: D,
    },
    /// What the transaction observed on its snapshot has changed: nothing happened, and trying again is the client's
    /// choice.
    Changed {
        /// The key.
        key: Box<[u8]>,
    },
    /// A watched key has changed: nothing happened.
    Touched,
    /// The snapshot is below the horizon: nothing happened.
    TooOld,
    /// It was aborted here before, because it was in doubt for too long or because its coordinator gave it up.
    Aborted,
    /// The participant cannot take part: nothing happened.
    Refused {
        /// Why.
        error: Error,
    },
}
wire_enum!(Vote<D> {
    0 => Prepared { at, results },
    1 => Committed { at, results },
    2 => Conflict { key, raise },
    3 => Changed { key },
    4 => Touched,
    5 => TooOld,
    6 => Aborted,
    7 => Refused { error },
    8 => Lacking { key, raise },
});

/// What evaluating a transaction at a participant gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvaluationResults {
    /// One result for each step that was evaluated here.
    pub answers: Vec<Answer>,
    /// Keys whose effects the coordinator does not know, with all of them.
    pub effects: Vec<KeyEffects>,
    /// Places of transactions of this region that were observed although the snapshot does not show them.
    pub observed: Vec<(Timestamp, TransactionId)>,
}
wire_struct!(EvaluationResults { answers, effects, observed });
