//! A transaction under way.

use super::ask::PlannedStep;
use super::session::{Open, Watch};
use crate::stable::Times;
use crate::stable::commit::Votes;
use crate::stable::message::{EvaluationResults, KeyEffects, Message};
use std::collections::{BTreeMap, BTreeSet};
use types::{
    Address, Incarnation, Instant, RegionSet, ReplyBuf, RequestId, SessionId, Timestamp, TransactionId,
};

/// A transaction, or a step of an interactive one, from its request to its reply.
#[derive(Debug)]
pub(super) struct Running<S: Times> {
    pub(super) session: SessionId,
    /// To whom the reply goes; `None` once it had to be answered with UNKNOWNOUTCOME: its outcome is still sought,
    /// because the session's next transaction must know it (Corrections 34).
    pub(super) request: Option<RequestId>,
    /// Of commands of a pipeline that run as one: the requests of its further steps.
    pub(super) riders: Vec<RequestId>,
    /// The requests that were answered with UNKNOWNOUTCOME.
    pub(super) in_doubt: Vec<RequestId>,
    pub(super) kind: Kind<S>,
    pub(super) deadline: Instant,
    pub(super) snapshot: S,
    /// What it depends on so far, where sessions know that.
    pub(super) seen: S,
    pub(super) epoch: u64,
    /// What it observed of its thread's transactions beyond that, if claims are wanted.
    pub(super) beyond: Vec<TransactionId>,
    pub(super) now_millis: u64,
    pub(super) steps: Vec<PlannedStep>,
    pub(super) watches: BTreeMap<Box<[u8]>, Watch<S>>,
    /// One for each step.
    pub(super) replies: Vec<ReplyBuf>,
    /// Sums of counts and cursors of scans, by step.
    pub(super) numbers: BTreeMap<u32, u64>,
    /// The effects of the steps that were evaluated on the snapshot.
    pub(super) chosen: BTreeMap<u32, Vec<Box<[u8]>>>,
    /// How often it had to begin again.
    pub(super) attempts: u32,
    /// The regions of its participants, where they may be in several.
    pub(super) regions: RegionSet,
    pub(super) phase: Phase<S>,
}

impl<S: Times> Running<S> {
    /// Everybody who waits for a reply.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.request.into_iter().chain(self.riders.iter().copied().filter(|_| self.request.is_some()))
    }
}

/// What is under way.
#[derive(Debug)]
pub(super) enum Kind<S> {
    /// A transaction known in advance.
    OneShot,
    /// Steps of an interactive transaction.
    Operate,
    /// The end of an interactive transaction.
    Commit(Open<S>),
    /// The watching of the keys that its steps read, where snapshots show what may still be placed: their partitions must have
    /// decided on that.
    Watch,
}

/// How far it is.
#[derive(Debug)]
pub(super) enum Phase<S: Times> {
    /// Reads are out.
    Slices {
        /// Which question it is.
        round: u32,
        /// By partition: the queried replica that has not answered.
        awaited: BTreeMap<u16, Address>,
    },
    /// Votes are out.
    Preparing(Preparing<S>),
    /// The decider has the commit request.
    Deciding {
        /// The commit timestamp.
        at: Timestamp,
        /// What the votes gave.
        prepared: Preparing<S>,
    },
    /// Committed. What it observed of others is not yet stable, so the reply waits: the session's next snapshot must
    /// show it.
    Holding {
        /// What the local stable time must reach.
        floor: Timestamp,
        /// The commit timestamp.
        at: Timestamp,
        /// What it committed.
        effects: Vec<KeyEffects>,
    },
    /// It had no effect and begins again.
    Backoff {
        /// When.
        until: Instant,
        /// What was last in its way.
        obstacle: Obstacle,
    },
}

/// Why an attempt had no effect.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// A concurrent transaction on this key.
    Busy(Box<[u8]>),
    /// The partition lacks what the transaction must observe before it writes this key.
    Lacking(u16, Box<[u8]>),
    /// A participant aborted it, forgot its snapshot or is silent.
    Aborted,
}

/// A two-phase commit.
#[derive(Debug)]
pub(super) struct Preparing<S: Times> {
    pub(super) votes: Votes<u16>,
    /// By partition, ascending.
    pub(super) messages: Vec<(u16, Message<S>)>,
    /// The chosen replica of each partition: the decision goes to the same one (Corrections 30).
    pub(super) participants: BTreeMap<u16, Address>,
    pub(super) decider: u16,
    /// The decider's life that the coordinator knew at its request.
    pub(super) life: Option<Incarnation>,
    /// Keys and effects that the coordinator chose, in order; evaluated ones are added from `results`.
    pub(super) effects: Vec<KeyEffects>,
    pub(super) results: EvaluationResults,
}

impl<S: Times> Preparing<S> {
    /// The only participant decides by itself.
    pub(super) fn is_alone(&self) -> bool {
        self.participants.len() == 1
    }

    /// Where the decider is.
    pub(super) fn decider(&self) -> Address {
        self.participants[&self.decider]
    }

    /// Everything that the transaction commits. What a participant said about a key stands.
    pub(super) fn all_effects(&self) -> Vec<KeyEffects> {
        let reported: BTreeSet<&[u8]> = self.results.effects.iter().map(|of_key| &*of_key.key).collect();
        let mine = self.effects.iter().filter(|of_key| !reported.contains(&*of_key.key));
        let flushed = self.results.answers.iter().flat_map(|answer| &answer.flushed);
        let deleted =
            flushed.map(|key| KeyEffects { key: key.clone(), effects: vec![super::ask::deletion()] });
        let all = mine.chain(&self.results.effects).cloned().chain(deleted);
        all.filter(|of_key| !of_key.effects.is_empty()).collect()
    }
}

/// A decision that some participants have not confirmed.
#[derive(Debug)]
pub(super) struct UnconfirmedDecision {
    pub(super) at: Timestamp,
    /// As [`Running::regions`].
    pub(super) regions: RegionSet,
    pub(super) missing: BTreeMap<u16, Address>,
}
