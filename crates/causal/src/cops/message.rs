//! What the nodes of a keyspace say to one another.

use super::record::Written;
use super::{Cut, Dependencies, Entries};
use crate::stable::{Answer, KeyEffects, KeyspaceWork};
use replication::transfer::{Ask, Piece};
use types::{Error, Incarnation, RegionId, Timestamp, TransactionId, wire_enum, wire_struct};

/// Work on one key: operations to evaluate, and effects that depend on no state.
pub type Part = crate::stable::Part<Cut>;

/// The one message type. Partitions of different regions communicate through the one stream to the peer; all else goes
/// by datagrams, and is repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Coordinator to partition: read these keys (the paper's `get_by_version`, section 4.5).
    Get {
        /// The request.
        id: TransactionId,
        /// Which question of the request it is.
        round: u32,
        /// The state to read: what a get transaction asks for in its second round. Without, the latest one.
        version: Option<Entries>,
        /// The time that deadlines compare with (Corrections 69).
        now_millis: u64,
        /// Work on keys of this partition, which only reads.
        parts: Vec<Part>,
        /// Work on all its keys.
        keyspace_work: Vec<KeyspaceWork>,
    },
    /// The answer to `Get`.
    GetResp {
        /// The request.
        id: TransactionId,
        /// The round of the question.
        round: u32,
        /// What was read, or why nothing was.
        outcome: GetOutcome,
    },
    /// Coordinator to partition: write this (section 4.4). Only one partition's keys are written by a request.
    PutAfter {
        /// The request: a repetition is not written again (Corrections 49).
        id: TransactionId,
        /// All of the coordinator's puts at this partition with lower numbers have ended.
        settled: u64,
        /// The partition's life that the coordinator knew at its first request (Corrections 67).
        life: Incarnation,
        /// What other regions check before they write it.
        nearest: Dependencies,
        /// In COPS-GT everything that it depends on.
        all: Dependencies,
        /// At least the Lamport time of everything that its session has seen.
        latest: Timestamp,
        /// The time that deadlines compare with.
        now_millis: u64,
        /// Work on keys of this partition.
        parts: Vec<Part>,
    },
    /// The answer to `PutAfter`.
    PutResp {
        /// The request.
        id: TransactionId,
        /// What was written, or why nothing was.
        outcome: PutOutcome,
    },
    /// Partition to its equivalents in the other regions: a write, in order of place. The paper's `put_after` with a version.
    Replicate {
        /// Where it was written.
        origin: RegionId,
        /// The request.
        id: TransactionId,
        /// Its place.
        at: Timestamp,
        /// What of each region its effects have observed.
        observed: Entries,
        /// What must be written before it.
        nearest: Dependencies,
        /// In COPS-GT what it depends on, beyond what the ones before it do.
        dependencies: Dependencies,
        /// Keys and effects.
        effects: Vec<KeyEffects>,
    },
    /// Partition to its equivalents, also after every batch of writes.
    Heartbeat {
        /// Whose time it is.
        origin: RegionId,
        /// Every write of `origin` up to here has been sent.
        at: Timestamp,
        /// Every write of the receiver up to here is written durably.
        received: Timestamp,
        /// Everything of each region up to here is written, also before every write of `origin` that follows; nothing is said
        /// while some are still to be sent.
        written: Option<Entries>,
    },
    /// The greeting of a partition to an equivalent: every write of the receiver up to here is written durably, go on from there.
    Received {
        /// Up to where.
        up_to: Timestamp,
    },
    /// Partition to partition of the region, and a coordinator for a context that it is given: tell when these versions of yours
    /// are written (the paper's `dep_check`, section 4.4).
    DepCheck {
        /// Of each region the version.
        versions: Vec<(RegionId, Timestamp)>,
    },
    /// The answer to `DepCheck`, once they are, or never will be.
    DepChecked {
        /// Everything of each region up to here is written.
        written: Entries,
        /// Of lost regions: nobody has anything above.
        ends: Vec<(RegionId, Timestamp)>,
    },
    /// Partition that lost records to its equivalents and to the partitions of its region: what do you have, and what have you heard of
    /// me (Corrections 67)? Then to the partitions of the regions that have given: what must my region have, too?
    HoldingsQuery {
        /// Names the state transfer; drawn anew for each.
        state_transfer: u64,
    },
    /// The answer to `HoldingsQuery`. What an equivalent names stays to be given for a while.
    HoldingsReply {
        /// the state transfer that requested it: an answer to an earlier one, also of an earlier life, may hold less.
        state_transfer: u64,
        /// Everything of each region up to here is written.
        written: Entries,
        /// Up to here everything is in the cells.
        horizon: Timestamp,
        /// No time of the asker was ever heard that is above.
        highest: Timestamp,
        /// Of each region the last version that is visible, if some region may lack it.
        shown: Entries,
    },
    /// To an equivalent: give me your state.
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
    /// To an equivalent that has less than it had acknowledged: take my state, the writes are no longer queued.
    TransferRequired {
        /// What was placed up to here.
        up_to: Timestamp,
    },
    /// An operator, or somebody who knows, to a partition: these regions are gone for good (Corrections 36).
    Evict {
        /// The regions.
        regions: Vec<RegionId>,
    },
    /// Partition to its equivalents that are left: what it has of the lost regions, of each.
    Held {
        /// That.
        lost: Vec<Holding>,
        /// The receiver answers with the same, even after it has gone on.
        asks: bool,
    },
    /// To an equivalent: give me what you have of a lost region (Corrections 48).
    Forward {
        /// The region.
        region: RegionId,
        /// Everything up to here is here.
        above: Timestamp,
    },
    /// The answer to `Forward`, piece by piece.
    Forwarded {
        /// The region.
        region: RegionId,
        /// The question.
        above: Timestamp,
        /// What follows it in the region's stream.
        writes: Vec<Written>,
        /// These are all up to here.
        up_to: Timestamp,
    },
}
wire_enum!(Message {
    0 => Get { id, round, version, now_millis, parts, keyspace_work },
    1 => GetResp { id, round, outcome },
    2 => PutAfter { id, settled, life, nearest, all, latest, now_millis, parts },
    3 => PutResp { id, outcome },
    4 => Replicate { origin, id, at, observed, nearest, dependencies, effects },
    5 => Heartbeat { origin, at, received, written },
    6 => Received { up_to },
    7 => DepCheck { versions },
    8 => DepChecked { written, ends },
    9 => HoldingsQuery { state_transfer },
    10 => HoldingsReply { state_transfer, written, horizon, highest, shown },
    11 => Ask { ask, above },
    12 => Piece { piece, horizon },
    13 => TransferRequired { up_to },
    14 => Evict { regions },
    15 => Held { lost, asks },
    16 => Forward { region, above },
    17 => Forwarded { region, above, writes, up_to },
});

/// What a partition has of a lost region's stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holding {
    /// The region.
    pub region: RegionId,
    /// Everything up to here is here, and will be after a crash.
    pub held: Timestamp,
    /// Everything up to here is shown.
    pub shown: Timestamp,
    /// The stream ends here, once that is known.
    pub end: Option<Timestamp>,
}
wire_struct!(Holding { region, held, shown, end });

/// What came of a `Get`.
#[derive(Clone, Debug, PartialEq)]
pub enum GetOutcome {
    /// The results.
    Done {
        /// What was read.
        got: Got,
    },
    /// The requested state has been collected: the request begins again (Corrections 46).
    VersionGone,
    /// The partition cannot serve.
    Refused {
        /// Why.
        error: Error,
    },
}
wire_enum!(GetOutcome { 0 => Done { got }, 1 => VersionGone, 2 => Refused { error } });

/// What a partition answers to a read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Got {
    /// One result for each step that was evaluated here.
    pub answers: Vec<Answer>,
    /// The state that was read: everything of each region up to here.
    pub written: Entries,
    /// The versions that were read, but for those that every region has.
    pub seen: Dependencies,
    /// In COPS-GT what these depend on.
    pub dependencies: Dependencies,
    /// Nobody need depend on the partition's versions up to here.
    pub stable: Timestamp,
}
wire_struct!(Got { answers, written, seen, dependencies, stable });

/// What came of a `PutAfter`.
#[derive(Clone, Debug, PartialEq)]
pub enum PutOutcome {
    /// It was written, or, if it changed nothing, evaluated.
    Done {
        /// What was written.
        put: Box<Put>,
    },
    /// It was not written.
    Refused {
        /// Why.
        error: Error,
    },
    /// The partition lost records since the coordinator's first request: it does not know what it did before.
    Forgotten {
        /// If it was written, its version is at most this; `None` while that is not known.
        up_to: Option<Timestamp>,
    },
}
wire_enum!(PutOutcome { 0 => Done { put }, 1 => Refused { error }, 2 => Forgotten { up_to } });

/// What a partition answers to a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Put {
    /// Its version; `None` if it changed nothing.
    pub at: Option<Timestamp>,
    /// What was read: the results, and what the reader depends on from now on.
    pub got: Got,
    /// What the effects have observed of each region.
    pub observed: Entries,
    /// The effects, if claims are wanted: coordinators do not know those of operations that were evaluated.
    pub effects: Vec<KeyEffects>,
}
wire_struct!(Put { at, got, observed, effects });
