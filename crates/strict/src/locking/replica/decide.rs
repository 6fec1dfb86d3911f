//! The leader votes, decides, and asks for decisions that are overdue. What others rely on is an entry of the log
//! first.

use super::{Replica, Step};
use crate::locking::leader::{Leader, Stage, VOTE, VoteConflict};
use crate::locking::locks::Asker;
use crate::locking::machine::Entry;
use crate::locking::message::{CommitWindow, Message};
use crate::locking::options::Concurrency;
use crate::validation::Stamp;
use crate::{Mutant, Part};
use std::sync::Arc;
use types::{Address, Instant, Timestamp, TransactionId, Wire};

/// A request for a vote.
pub(super) struct VoteRequest {
    pub transaction: TransactionId,
    pub age: Stamp,
    pub floor: u64,
    pub term: u64,
    pub read_only: bool,
    /// Which replica of the first participant collects the votes.
    pub collector: Option<usize>,
    /// All others have voted, not before this: this vote is the decision.
    pub voted: Option<Timestamp>,
    pub span: CommitWindow,
    pub part: Part,
}

impl From<VoteRequest> for Message {
    fn from(vote_request: VoteRequest) -> Self {
        let VoteRequest { transaction, age, floor, term, read_only, collector, voted, span, part } =
            vote_request;
        Message::Prepare { transaction, age, floor, term, read_only, collector, voted, span, part }
    }
}

impl Replica {
    pub(super) fn on_prepare(&mut self, from: Address, vote_request: VoteRequest, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let id = vote_request.transaction;
        leader.raise_floor(id, vote_request.floor);
        if vote_request.term > leader.term || vote_request.term == 0 {
            return self.redirect(from, id, step);
        }
        if let Some(at) = self.machine.prepared().get(&id).map(|prepared| prepared.at) {
            return self.repeat_vote(from, &vote_request, at, step);
        }
        let in_progress = leader.open.get(&id).is_some_and(|open| !matches!(open.stage, Stage::Executing));
        if in_progress {
            return;
        }
        if vote_request.term == leader.term && leader.has_read(id) {
            let answer = Message::Prepared { transaction: id, at: Timestamp::ZERO };
            let behind = last_read(leader, &vote_request.part);
            return self.answer_confirmed(from, answer, behind, step);
        }
        if vote_request.term < leader.term {
            // The next run is to name this term: of one that reads nothing here the coordinator hears of it nowhere else.
            self.refuse_ballot(from, &vote_request, None, step);
            return self.redirect(from, id, step);
        }
        let trusting = self.options.mutants.has(Mutant::UnprotectedReads);
        if leader.is_closed(id) && !trusting {
            return self.refuse_ballot(from, &vote_request, None, step);
        }
        let judged = match self.options.concurrency {
            Concurrency::Locking => {
                leader.open(id, from, step.now.instant);
                let votes = vote_request.part.participants.len() > 1;
                let asker = Asker { id, age: vote_request.age, votes, passes: false, now: step.now.instant };
                let locked = leader.lock_part(asker, &vote_request.part, trusting);
                let locked = if locked.is_none() && votes {
                    self.lock_now(asker, &vote_request, trusting, step)
                } else {
                    locked
                };
                locked.map(|judged| judged.map_err(VoteConflict::from))
            }
            // Nobody asks for votes.
            Concurrency::Unlocked => return,
            Concurrency::Optimistic if self.options.mutants.has(Mutant::SkipValidation) => Some(Ok(())),
            Concurrency::Optimistic => {
                Some(leader.validate_part(id, &vote_request.part, &self.machine).and_then(|()| {
                    // What only reads is over with its vote, and disturbs nobody.
                    let part = Some(&vote_request.part).filter(|_| !vote_request.read_only);
                    part.and_then(|part| leader.reserved_key(id, part)).map_or(Ok(()), Err)
                }))
            }
        };
        let judged = match judged {
            Some(Ok(())) => self.judge_keyset(from, &vote_request, step),
            other => other,
        };
        let Some(leader) = &mut self.leader else { return };
        let ignored = self.machine.ignored_deadline(&vote_request.part, &mut leader.unapplied).map(Box::from);
        match judged {
            Some(Ok(())) if ignored.is_some() => {
                let refusal =
                    Message::Refused { transaction: id, key: ignored, expires: true, undecided: false };
                self.tell_refusal(&vote_request, &refusal, step);
                self.refuse_with(from, refusal, step);
            }
            Some(Ok(())) => self.vote(from, vote_request, step),
            Some(Err(VoteConflict { key, undecided })) => {
                if let (Concurrency::Optimistic, Some(leader), Some(key)) =
                    (self.options.concurrency, &mut self.leader, &key)
                {
                    leader.note_refusal(id, &vote_request.part, key);
                }
                let refusal = Message::Refused { transaction: id, key, expires: false, undecided };
                self.tell_refusal(&vote_request, &refusal, step);
                self.refuse_with(from, refusal, step);
            }
            None => {
                self.block(id, vote_request.into(), step);
            }
        }
    }

    /// What stands in the way of a part as far as the shard's keys as a whole are concerned; `None` if the vote waits.
    pub(super) fn judge_keyset(
        &mut self,
        from: Address,
        vote_request: &VoteRequest,
        step: &mut Step<'_, '_>,
    ) -> Option<Result<(), VoteConflict>> {
        let Some(leader) = &mut self.leader else { return Some(Ok(())) };
        if vote_request.part.keyset.is_none() && leader.keyset.is_idle() {
            return Some(Ok(()));
        }
        let VoteRequest { transaction: id, age, read_only, part, .. } = vote_request;
        let asker = Asker {
            id: *id,
            age: *age,
            votes: part.participants.len() > 1,
            passes: false,
            now: step.now.instant,
        };
        let mut judged = leader.judge_keyset(asker, (part, *read_only), &self.machine, &self.options);
        let with_locks = self.options.concurrency == Concurrency::Locking;
        if with_locks && judged.is_ok() && part.flushes() && !leader.locks.take_from_younger(asker) {
            judged = Err(VoteConflict { key: None, undecided: true });
        } else if with_locks
            && self.options.patient
            && part.keyset.is_some()
            && judged.as_ref().is_err_and(|conflict| conflict.undecided)
        {
            let others = leader.in_conflict_with_keyset_access(*id, part, &self.machine);
            if leader.is_behind((*id, VOTE), from, others, step.now.instant) {
                leader.waiting.insert(*id);
                return None;
            }
        }
        if part.keyset.is_some() {
            match judged {
                Ok(()) => leader.keyset.come(*age),
                Err(_) => leader.keyset.keep(*age, part, step.now.instant, &self.options),
            }
        }
        Some(judged)
    }

    /// Locks what a part needs once those that had to give way have. With other voting shards the vote waits for
    /// nothing else: another shard's vote is final, and transactions that wait for it rely on its waiting for no other
    /// transaction.
    fn lock_now(
        &mut self,
        asker: Asker,
        vote_request: &VoteRequest,
        trusting: bool,
        step: &mut Step<'_, '_>,
    ) -> Option<Result<(), Box<[u8]>>> {
        self.tell_wounded(step);
        let leader = self.leader.as_mut()?;
        let locked = leader.lock_part(asker, &vote_request.part, trusting);
        let key = leader.locks.waited_for(vote_request.transaction).map(Box::from);
        locked.or_else(|| Some(Err(key.unwrap_or_default())))
    }

    /// Nothing stands in the way: the vote goes into the log, or with it the decision where nobody else votes.
    pub(super) fn vote(&mut self, from: Address, vote_request: VoteRequest, step: &mut Step<'_, '_>) {
        let collector = self.collector(&vote_request);
        if vote_request.collector.is_some() && vote_request.part.participants.first() == Some(&self.shard) {
            return self.collect(from, vote_request, step);
        }
        let Some(leader) = &mut self.leader else { return };
        if vote_request.read_only {
            // Everything was read before this question was sent, and is unchanged now: it was all true at once.
            leader.close_read(vote_request.transaction);
            let answer = Message::Prepared { transaction: vote_request.transaction, at: Timestamp::ZERO };
            let behind = last_read(leader, &vote_request.part);
            return self.answer_confirmed(from, answer, behind, step);
        }
        let voted = vote_request.voted.unwrap_or(Timestamp::ZERO);
        let at =
            leader.timestamp(self.machine.latest().max(vote_request.span.from()).max(voted), step.now.wall);
        if vote_request.span.is_over(at) {
            return self.refuse_ballot(from, &vote_request, None, step);
        }
        let VoteRequest { transaction, floor, part, voted, .. } = vote_request;
        let decides = voted.is_some() || part.participants.len() == 1;
        let held = Arc::new(part.clone());
        let entry = if decides {
            Entry::Commit { transaction, floor, at, part: Some(part) }
        } else {
            Entry::Prepare { transaction, floor, at, part }
        };
        let Some(index) = self.propose(&entry) else { return self.redirect(from, transaction, step) };
        let Some(leader) = &mut self.leader else { return };
        leader.open(transaction, from, step.now.instant).collector = collector;
        leader.advance(transaction, Stage::Proposed { part: held.clone() }, step.now.instant);
        match decides && self.options.concurrency == Concurrency::Locking {
            true => leader.commits(transaction, &held, at, index),
            false => leader.locks.make_firm(transaction),
        }
        if self.options.mutants.has(Mutant::VoteBeforeLog) {
            match decides {
                true => step.out.send(from, Message::Ended { transaction, at: Some(at) }),
                false => self.tell_vote(transaction, at, from, collector, step),
            }
        }
    }

    /// Puts an entry into the log, at this index; `None` if this replica leads no more.
    pub(in crate::locking) fn propose(&mut self, entry: &Entry) -> Option<u64> {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        self.log.propose(bytes)
    }

    /// A no that stands: a repetition of the question gets it too.
    pub(super) fn refuse(
        &mut self,
        to: Address,
        id: TransactionId,
        key: Option<Box<[u8]>>,
        step: &mut Step<'_, '_>,
    ) {
        self.refuse_with(to, Message::refused(id, key), step);
    }

    /// Sends the same to the node that asked for a vote and to the node that collects the votes.
    fn refuse_ballot(
        &mut self,
        to: Address,
        vote_request: &VoteRequest,
        key: Option<Box<[u8]>>,
        step: &mut Step<'_, '_>,
    ) {
        let refusal = Message::refused(vote_request.transaction, key);
        self.tell_refusal(vote_request, &refusal, step);
        self.refuse_with(to, refusal, step);
    }

    pub(super) fn refuse_with(&mut self, to: Address, refusal: Message, step: &mut Step<'_, '_>) {
        if let (Some(leader), Message::Refused { transaction, .. }) = (&mut self.leader, &refusal) {
            leader.close(*transaction);
        }
        step.out.send(to, refusal);
    }

    pub(super) fn on_decide(
        &mut self,
        from: Address,
        id: TransactionId,
        floor: u64,
        at: Option<Timestamp>,
        step: &mut Step<'_, '_>,
    ) {
        let Some(leader) = &mut self.leader else { return self.redirect(from, id, step) };
        leader.raise_floor(id, floor);
        if let Some(known) = self.known(id) {
            return step.out.send(from, known);
        }
        let Some(leader) = &mut self.leader else { return };
        let Some(prepared) = self.machine.prepared().get(&id) else {
            if at.is_some() {
                return;
            }
            if let Some(open) = leader.open.get_mut(&id)
                && !matches!(open.stage, Stage::Executing | Stage::Collecting { .. })
            {
                // Others would wait for the coordinator to say it again.
                open.given_up = true;
                return;
            }
            // It has not been voted for: nothing to undo, and a late question must not succeed.
            leader.close(id);
            return step.out.send(from, Message::Ended { transaction: id, at: None });
        };
        let deciding = leader.open.get(&id).is_some_and(|open| matches!(open.stage, Stage::Deciding { .. }));
        if deciding {
            return;
        }
        let part = prepared.part.clone();
        if self.topology.find(from).is_none() {
            leader.open(id, from, step.now.instant);
        }
        let entry = match at {
            Some(at) => Entry::Commit { transaction: id, floor, at, part: None },
            None => Entry::Abort { transaction: id, floor },
        };
        if let Some(index) = self.propose(&entry)
            && let Some(leader) = &mut self.leader
        {
            leader.advance(id, Stage::Deciding { part: part.clone() }, step.now.instant);
            if let (Some(at), Concurrency::Locking) = (at, self.options.concurrency) {
                leader.commits(id, &part, at, index);
            }
        }
    }

    /// Another participant wants to know how a transaction ended of which this shard is the first participant.
    pub(super) fn on_inquire(&mut self, from: Address, id: TransactionId, step: &mut Step<'_, '_>) {
        let decision = |at| Message::Decide { transaction: id, floor: 0, at };
        if let Some(outcome) = self.machine.outcomes().get(&id) {
            step.out.send(from, decision(outcome.at()));
        } else if self.machine.is_over(id) {
            // Its coordinator has gone on without a decision, or everybody knows it.
            step.out.send(from, decision(None));
        } else if let Some(leader) = &self.leader {
            let deciding =
                leader.open.get(&id).is_some_and(|open| matches!(open.stage, Stage::Deciding { .. }));
            if !deciding {
                self.abort(id, step.now.instant);
            }
        } else if let Some(leader) = self.log.leader()
            && self.topology.find(from).is_some_and(|(shard, _)| shard != self.shard)
        {
            // The asker may not reach it. Its decision comes back through the log, and answers the next question.
            let leader = self.topology.replicas(self.shard)[leader];
            step.out.send(leader, Message::OutcomeQuery { transaction: id });
        }
    }

    /// Ends a transaction that this shard, its first participant, has no order to commit.
    pub(super) fn abort(&mut self, id: TransactionId, now: Instant) {
        let voted = self.machine.prepared().get(&id).map(|prepared| prepared.part.clone());
        let part = voted.or_else(|| self.collected(id));
        if self.propose(&Entry::Abort { transaction: id, floor: 0 }).is_none() {
            return;
        }
        let Some(leader) = &mut self.leader else { return };
        match part {
            Some(part) => leader.advance(id, Stage::Deciding { part }, now),
            // A request for its commit arrives too late now: the transaction has ended.
            None if leader.is_executing(id) => drop(leader.close(id)),
            None => {}
        }
    }

    /// The leader queries overdue decisions, and releases the locks of transactions whose coordinators are silent.
    pub(super) fn on_suspicion(&mut self, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let now = step.now.instant;
        leader.locks.end_overdue_phases(now);
        let (mut overdue, mut silent) = (Vec::new(), Vec::new());
        for (id, open) in &mut leader.open {
            match &open.stage {
                Stage::Prepared { part } if now - open.since >= self.options.prepared_timeout => {
                    open.since = now;
                    overdue.push((*id, part.participants.first().copied()));
                }
                Stage::Executing | Stage::Collecting { .. }
                    if now - open.since >= self.options.lock_timeout =>
                {
                    silent.push((*id, open.coordinator));
                }
                _ => {}
            }
        }
        for (id, coordinator) in silent {
            self.refuse(coordinator, id, None, step);
        }
        for (id, first) in overdue {
            match first {
                Some(first) if first != self.shard => {
                    for replica in self.topology.replicas(first) {
                        step.out.send(*replica, Message::OutcomeQuery { transaction: id });
                    }
                }
                _ => self.abort(id, now),
            }
        }
        self.wake(step);
    }
}

/// Of those that have changed what a part has read, and are not applied, the one that will be applied last.
fn last_read(leader: &Leader, part: &Part) -> Option<TransactionId> {
    leader.unapplied.last_on(part.invocations.iter().map(|invoked| &*invoked.key))
}
