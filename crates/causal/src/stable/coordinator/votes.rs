//! The two-phase commit (Wren, Algorithm 5, lines 17 to 28; Corrections 23, 34, 70 and 73).
//!
//! Only participants vote whose keys are written, observed or watched. With one participant its vote is the decision.
//! With several participants, the first written one is the decider. When all have proposed, the coordinator sends it
//! the commit timestamp; when the decider has logged that, the coordinator answers the client and tells the others, and
//! retries until all have confirmed.

use super::ask::PlannedStep;
use super::rerun::FailureReason;
use super::running::{Kind, Obstacle, Phase, Preparing, Running, UnconfirmedDecision};
use super::slices::{Gathering, Parts, work_of};
use super::{Coordinator, backoff, retry_in};
use crate::stable::commit::Votes;
use crate::stable::message::{EvaluationResults, KeyEffects, KeyspaceWork, Message, Part, Vote, Work};
use crate::stable::{Mutant, Node, Timer, Times};
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet};
use types::{
    Address, Error, ErrorCode, NodeId, RegionSet, RequestId, Rng, SessionId, Timestamp, TransactionId,
};

impl<S: Times> Coordinator<S> {
    pub(super) fn commit(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(open) = self.sessions.get_mut(&session).and_then(|state| state.open.take()) else {
            out.reply(id).error(&self.missing(session));
            self.sessions.entry(session).or_default().failed = None;
            return;
        };
        let mut running = Running::of_commit(session, id, open);
        running.deadline = now.instant + self.options.give_up_after;
        if matches!(&running.kind, Kind::Commit(open) if open.watched) {
            running.watches = std::mem::take(&mut self.sessions.entry(session).or_default().watches);
        }
        if running.watches.values().any(|watch| watch.deadline <= now.instant) {
            return out.reply(id).null_array();
        }
        self.attempt(now, running, out);
    }

    /// Asks for votes; a transaction that neither writes nor watches has ended.
    pub(super) fn prepare(
        &mut self,
        now: Now,
        number: u64,
        mut running: Running<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let parts = self.parts_to_prepare(&running);
        let flush = running.steps.iter().rposition(|step| matches!(step, PlannedStep::Flush));
        let mut partitions: BTreeSet<u16> = parts.keys().copied().collect();
        if flush.is_some() {
            partitions.extend(0..self.topology.partitions());
        }
        let writes = |part: &Part<S>| part.work.iter().any(|work| !matches!(work, Work::Watched { .. }));
        let written =
            parts.iter().find(|(_, parts)| parts.iter().any(writes)).map(|(partition, _)| *partition);
        let Some(decider) = written.or(partitions.first().copied()) else {
            self.claim(number, &running, None, &[]);
            return self.answer(now, number, running, out);
        };
        let participants = match self.targets(partitions.iter()) {
            Ok(participants) => participants,
            Err(silent) => return self.fail_early(now, number, running, silent, out),
        };
        running.regions = self.regions_of(&participants);
        if S::OPTIMISTIC {
            running.snapshot = self.snapshot_to_write(now, &running);
        }
        let preparing = self.preparing(number, &running, parts, participants, decider, flush);
        for (partition, message) in &preparing.messages {
            out.send(preparing.participants[partition], message.clone());
        }
        running.phase = Phase::Preparing(preparing);
        self.running.insert(number, running);
    }

    /// The regions that take part in a transaction, where it may have parts in several.
    fn regions_of(&self, participants: &BTreeMap<u16, Address>) -> RegionSet {
        let located = participants.values().filter_map(|participant| self.topology.locate(*participant));
        located.map(|(region, _)| region).filter(|_| S::UNIVERSAL && S::EVICTS).collect()
    }

    fn preparing(
        &mut self,
        number: u64,
        running: &Running<S>,
        mut parts: BTreeMap<u16, Vec<Part<S>>>,
        participants: BTreeMap<u16, Address>,
        decider: u16,
        flush: Option<usize>,
    ) -> Preparing<S> {
        let (id, alone) = (self.id(number), participants.len() == 1);
        let (snapshot, pessimistic) = (running.snapshot, self.is_pessimistic(running.session));
        let highest = self.thread(running.session).highest.max(snapshot.reach());
        let effects = parts.values().flatten().map(chosen_effects).collect();
        let except = || parts.values().flatten().map(|part| Box::from(&*part.key)).collect();
        let keyspace_work = flush.map(|step| KeyspaceWork::Flush { step: step as u32, except: except() });
        let keyspace_work: Vec<KeyspaceWork> = keyspace_work.into_iter().collect();
        let mut messages = Vec::new();
        for partition in participants.keys() {
            let message = Message::Prepare {
                id,
                settled: self.settled(participants[partition]),
                snapshot,
                highest,
                now_millis: running.now_millis,
                decider: participants[&decider],
                regions: running.regions,
                alone,
                pessimistic,
                parts: parts.remove(partition).unwrap_or_default(),
                keyspace_work: keyspace_work.clone(),
            };
            messages.push((*partition, message));
        }
        let votes = Votes::new(participants.keys().copied());
        let life = self.lives.get(&participants[&decider]).copied();
        Preparing { votes, messages, participants, decider, life, effects, results: Default::default() }
    }

    fn parts_to_prepare(&mut self, running: &Running<S>) -> Parts<S> {
        let mut parts = match &running.kind {
            Kind::Commit(open) => {
                let mut gathering = Gathering::of(Parts::new());
                for done in &open.done {
                    gathering.part(done.partition, &done.key).work.push(done.work.clone());
                }
                gathering.parts
            }
            Kind::OneShot if !S::OBSERVES && running.steps.iter().any(PlannedStep::is_observing) => {
                running.chosen_parts()
            }
            Kind::OneShot | Kind::Operate | Kind::Watch => {
                let mut parts = work_of(&running.steps);
                if !running.steps.iter().any(PlannedStep::is_observing) {
                    // What is only read has been read.
                    for of_partition in parts.values_mut() {
                        of_partition.iter_mut().for_each(|part| {
                            part.work.retain(|work| !matches!(work, Work::Evaluate { .. }));
                        });
                        of_partition.retain(|part| !part.work.is_empty());
                    }
                    parts.retain(|_, of_partition| !of_partition.is_empty());
                }
                parts
            }
        };
        let thread = self.thread(running.session);
        for part in parts.values_mut().flatten() {
            (_, part.own) = thread.overlay(&part.key, running.snapshot.reach(), running.epoch);
        }
        let mut gathering = Gathering::of(parts);
        for (key, watch) in &running.watches {
            let part = gathering.part(watch.partition, key);
            part.own.clone_from(&watch.own);
            part.work.insert(0, Work::Watched { since: watch.since, at_millis: watch.at_millis });
        }
        gathering.parts
    }

    pub(super) fn on_prepare_resp(
        &mut self,
        now: Now,
        from: NodeId,
        id: TransactionId,
        vote: Vote<S::Depends>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some((number, partition)) = self.number(id).zip(self.partition_at(from.address())) else {
            return;
        };
        let Some(running) = self.running.get_mut(&number) else { return };
        let Phase::Preparing(preparing) = &mut running.phase else { return };
        if preparing.participants.get(&partition) != Some(&from.address()) {
            return;
        }
        if preparing.is_alone()
            && preparing.life != Some(from.incarnation)
            && matches!(vote, Vote::Refused { .. } | Vote::TooOld)
        {
            // The request went to an earlier life, which may have executed it and lost that.
            return self.end_in_doubt(now, number, out);
        }
        match vote {
            Vote::Prepared { at, results } | Vote::Committed { at, results } => {
                self.on_yes(now, number, partition, (at, results), out);
            }
            Vote::Conflict { key, raise } => {
                self.begin_again_above(now, number, raise, Obstacle::Busy(key), random, out);
            }
            Vote::Lacking { key, raise }
                if matches!(running.kind, Kind::OneShot) || raise == S::Depends::default() =>
            {
                self.begin_again_above(now, number, raise, Obstacle::Lacking(partition, key), random, out);
            }
            Vote::Aborted => {
                self.abort_all(number, out);
                self.begin_again(now, number, Obstacle::Aborted, random, out);
            }
            Vote::TooOld if matches!(running.kind, Kind::OneShot) => {
                self.abort_all(number, out);
                self.begin_again(now, number, Obstacle::Aborted, random, out);
            }
            Vote::TooOld => {
                let text = "the transaction's snapshot is no longer kept; begin it again";
                self.refuse(now, number, Error::new(ErrorCode::SnapshotTooOld, text), out);
            }
            Vote::Changed { key } if matches!(running.kind, Kind::OneShot) => {
                // It was validated, because it read its snapshot: the next attempt's shows more.
                self.abort_all(number, out);
                self.begin_again(now, number, Obstacle::Busy(key), random, out);
            }
            // What is open keeps its snapshot, which never shows what it lacks.
            Vote::Changed { key } | Vote::Lacking { key, .. } => {
                let key = String::from_utf8_lossy(&key).into_owned();
                let text =
                    format!("key '{key}' was changed by a concurrent transaction; retry the transaction");
                self.refuse(now, number, Error::new(ErrorCode::Conflict, text), out);
            }
            Vote::Touched => {
                self.abort_all(number, out);
                self.end_touched(now, number, out);
            }
            Vote::Refused { error } => self.refuse(now, number, error, out),
        }
    }

    /// A participant can commit at this time, or as the only one has committed.
    fn on_yes(
        &mut self,
        now: Now,
        number: u64,
        partition: u16,
        (at, results): (Timestamp, EvaluationResults),
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(running) = self.running.get_mut(&number) else { return };
        let Phase::Preparing(preparing) = &mut running.phase else { return };
        let alone = preparing.is_alone();
        if preparing.votes.missing().all(|missing| missing != partition) {
            return;
        }
        preparing.results.answers.extend(results.answers.iter().cloned());
        preparing.results.effects.extend(results.effects);
        preparing.results.observed.extend(results.observed);
        let decided = preparing.votes.vote(partition, at);
        results.answers.into_iter().for_each(|answer| running.take_answer(partition, answer));
        match decided {
            Some(at) if alone => self.on_committed(now, number, at, out),
            Some(at) => self.decide(now, number, at, out),
            None => {}
        }
    }

    fn refuse(&mut self, now: Now, number: u64, error: Error, out: &mut Outputs<'_, Node<S>>) {
        self.abort_all(number, out);
        self.fail(now, number, FailureReason::Refused, error, out);
    }

    /// Tells the participants that the transaction aborted. A participant that misses the message will query the
    /// decider.
    pub(super) fn abort_all(&mut self, number: u64, out: &mut Outputs<'_, Node<S>>) {
        let Some(Running { phase: Phase::Preparing(prepared) | Phase::Deciding { prepared, .. }, .. }) =
            self.running.get(&number)
        else {
            return;
        };
        if !prepared.is_alone() {
            for participant in prepared.participants.values() {
                out.send(*participant, Message::Abort { id: self.id(number) });
            }
        }
    }

    /// The next attempt must have observed at least `raise`.
    fn begin_again_above(
        &mut self,
        now: Now,
        number: u64,
        raise: S::Depends,
        obstacle: Obstacle,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        // What is open goes on with its snapshot, and has observed no more than that.
        if let Some(running) =
            self.running.get_mut(&number).filter(|running| matches!(running.kind, Kind::OneShot))
        {
            running.seen = running.seen.with(raise);
        }
        let raise = S::observed(raise);
        if raise > Timestamp::ZERO && !S::UNIVERSAL && !S::OPTIMISTIC {
            // It was the remote snapshot time of a transaction of this region, so it is stable here.
            self.stable = self.stable.newest(S::from_whole(raise));
        }
        self.abort_all(number, out);
        self.begin_again(now, number, obstacle, random, out);
    }

    /// Ends this attempt, which had no effect, and starts another one soon; unless the client has been answered.
    pub(super) fn begin_again(
        &mut self,
        now: Now,
        number: u64,
        obstacle: Obstacle,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(running) = self.running.get_mut(&number) else { return };
        if running.request.is_none() {
            return self.end_unanswered(now, number, out);
        }
        let until = now.instant + backoff(running.attempts, random);
        running.attempts += 1;
        running.phase = Phase::Backoff { until, obstacle };
        out.arm(Timer::Retry(number), until);
    }

    fn decide(&mut self, now: Now, number: u64, at: Timestamp, out: &mut Outputs<'_, Node<S>>) {
        let Some(mut running) = self.running.remove(&number) else { return };
        if let Phase::Preparing(prepared) = running.phase {
            if self.options.mutants.has(Mutant::AnsweredBeforeDecision) {
                let missing = prepared.participants.clone();
                running.phase = Phase::Deciding { at, prepared };
                self.running.insert(number, running);
                return self.spread(now, number, at, missing, out);
            }
            out.send(prepared.decider(), Message::Commit { id: self.id(number), at });
            out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
            running.phase = Phase::Deciding { at, prepared };
            self.running.insert(number, running);
        }
    }

    pub(super) fn on_commit_resp(
        &mut self,
        now: Now,
        from: Address,
        id: TransactionId,
        at: Option<Timestamp>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some((number, partition)) = self.number(id).zip(self.partition_at(from)) else { return };
        if let Some(unconfirmed) = self.unconfirmed.get_mut(&number) {
            unconfirmed.missing.remove(&partition);
            let regions = unconfirmed.regions;
            if at.is_none() {
                self.take_back(now, id, regions, random, out);
            }
            return self.end_spreading(number, out);
        }
        let Some(running) = self.running.get_mut(&number) else { return };
        let Phase::Deciding { prepared, .. } = &mut running.phase else { return };
        if prepared.decider != partition {
            return;
        }
        let Some(at) = at else {
            // It was in doubt for too long and has no effect.
            self.abort_all(number, out);
            return self.begin_again(now, number, Obstacle::Aborted, random, out);
        };
        let mut missing = prepared.participants.clone();
        missing.remove(&partition);
        if self.options.mutants.has(Mutant::TargetChosenTwice) {
            missing.iter_mut().for_each(|(other, place)| *place = self.routes.next(*other, *place));
        }
        self.spread(now, number, at, missing, out);
    }

    /// The transaction has committed: the coordinator tells the participants that do not know it, until they have
    /// confirmed it.
    fn spread(
        &mut self,
        now: Now,
        number: u64,
        at: Timestamp,
        missing: BTreeMap<u16, Address>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        for other in missing.values() {
            out.send(*other, Message::Commit { id: self.id(number), at });
        }
        let regions = self.running.get(&number).map_or(RegionSet::default(), |running| running.regions);
        self.unconfirmed.insert(number, UnconfirmedDecision { at, regions, missing });
        self.on_committed(now, number, at, out);
    }

    /// Asks again for the votes that are missing; false if it is better to ask others, because who is to vote is
    /// silent. A single participant may have decided.
    fn ask_for_votes(&self, preparing: &Preparing<S>, out: &mut Outputs<'_, Node<S>>) -> bool {
        let silent = |partition| self.routes.is_silent(preparing.participants[&partition]);
        if !preparing.is_alone() && preparing.votes.missing().any(silent) {
            return false;
        }
        for partition in preparing.votes.missing() {
            let message = preparing.messages.iter().find(|(of, _)| *of == partition);
            if let Some((_, message)) = message {
                out.send(preparing.participants[&partition], message.clone());
            }
        }
        true
    }

    pub(super) fn end_spreading(&mut self, number: u64, out: &mut Outputs<'_, Node<S>>) {
        if self.unconfirmed.get(&number).is_some_and(|unconfirmed| unconfirmed.missing.is_empty()) {
            self.unconfirmed.remove(&number);
            if !self.running.contains_key(&number) {
                self.unsettled.remove(&number);
                out.disarm(Timer::Retry(number));
            }
        }
    }

    /// Asks again, begins again or gives up.
    pub(super) fn on_retry(
        &mut self,
        now: Now,
        number: u64,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if let Some(unconfirmed) = self.unconfirmed.get(&number) {
            for participant in unconfirmed.missing.values() {
                out.send(*participant, Message::Commit { id: self.id(number), at: unconfirmed.at });
            }
        }
        let Some(running) = self.running.get(&number) else {
            if self.unconfirmed.contains_key(&number) {
                out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
            }
            return;
        };
        if running.request.is_some() && (now.instant >= running.deadline || self.is_cut_off(now, running)) {
            return self.give_up(now, number, out);
        }
        let deadline = running.deadline;
        match &running.phase {
            Phase::Backoff { until, .. } => {
                if now.instant < *until {
                    out.arm(Timer::Retry(number), *until);
                } else if let Some(error) = self.losses.losing_sessions.remove(&running.session) {
                    // Another attempt would read without what the session wrote, before it was told.
                    self.fail(now, number, FailureReason::Refused, error, out);
                } else if matches!(running.kind, Kind::OneShot | Kind::Commit(_))
                    && !self.missing_for(now, running).is_empty()
                {
                    // Another attempt would be refused, too.
                    out.arm(Timer::Retry(number), now.instant + self.options.tick_every);
                } else if let Some(running) = self.running.remove(&number) {
                    self.unsettled.remove(&number);
                    self.attempt(now, running, out);
                }
                return;
            }
            Phase::Slices { .. } => {
                if !self.ask_again(number, out) {
                    return self.give_up(now, number, out);
                }
            }
            Phase::Preparing(preparing) => {
                if !self.ask_for_votes(preparing, out) {
                    // Nothing is decided: another attempt asks the next replica.
                    self.abort_all(number, out);
                    return self.begin_again(now, number, Obstacle::Aborted, random, out);
                }
            }
            Phase::Deciding { at, prepared } => {
                out.send(prepared.decider(), Message::Commit { id: self.id(number), at: *at });
            }
            Phase::Holding { .. } => {}
        }
        let after = retry_in(self.options.retry_after, now.instant - deadline);
        out.arm(Timer::Retry(number), now.instant + after);
    }
}

/// The effects that the coordinator chose or knows.
fn chosen_effects<S: Times>(part: &Part<S>) -> KeyEffects {
    let effects = part.work.iter().flat_map(|work| match work {
        Work::Effect { effect } => std::slice::from_ref(effect),
        Work::Observed { effects, .. } => effects.as_slice(),
        Work::Evaluate { .. } | Work::Watched { .. } | Work::Candidate => &[],
    });
    KeyEffects { key: (*part.key).into(), effects: effects.cloned().collect() }
}
