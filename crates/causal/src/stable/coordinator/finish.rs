//! Ends: replies, claims, and what a session takes along into its next transaction (Wren, Algorithm 4, lines 26 to
//! 32; Corrections 34 and 72).

use super::Coordinator;
use super::rerun::FailureReason;
use super::running::{Kind, Obstacle, Phase, Preparing, Running};
use crate::stable::message::KeyEffects;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Timer, Times};
use protocol::{Claim, CommitStamp, Now, Outputs, SnapshotClaim, ThreadClaim, VectorClaim};
use std::collections::BTreeSet;
use types::{Error, ErrorCode, Timestamp, TransactionId};

impl<S: Times> Coordinator<S> {
    /// The transaction has committed at `at`. What it observed of others beyond its snapshot must be stable before
    /// the session goes on, so that the session's next snapshot shows it.
    pub(super) fn on_committed(
        &mut self,
        now: Now,
        number: u64,
        at: Timestamp,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(mut running) = self.running.remove(&number) else { return };
        let (Phase::Preparing(prepared) | Phase::Deciding { prepared, .. }) = &running.phase else { return };
        let effects = prepared.all_effects();
        let floor = self.floor(&running, prepared);
        running.beyond = self.beyond(&running, prepared);
        running.phase = Phase::Holding { floor, at, effects };
        self.running.insert(number, running);
        out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
        self.release(now, number, out);
    }

    /// The latest place that the transaction observed and its session could not read afterwards.
    fn floor(&self, running: &Running<S>, prepared: &Preparing<S>) -> Timestamp {
        let thread = self.threads.get(&self.thread_key(running.session));
        let mine = |place| thread.is_some_and(|thread| thread.holds(place));
        let foreign = prepared.results.observed.iter().filter(|place| !mine(**place));
        foreign.map(|(at, _)| *at).max().unwrap_or(Timestamp::ZERO)
    }

    /// What it observed of its thread that had not been taken up when it began, for its claim.
    fn beyond(&self, running: &Running<S>, prepared: &Preparing<S>) -> Vec<TransactionId> {
        let thread = self.threads.get(&self.thread_key(running.session)).filter(|_| self.options.claims);
        let mine = |(at, id): &(Timestamp, TransactionId)| {
            thread.is_some_and(|thread| thread.holds((*at, *id))).then_some(*id)
        };
        prepared.results.observed.iter().filter_map(mine).collect()
    }

    /// The stable time has risen: what waits for it may go on.
    pub(super) fn release_held(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let stable = self.stable.reach();
        let due = self.running.iter().filter(|(_, running)| match running.phase {
            Phase::Holding { floor, .. } => floor <= stable,
            _ => false,
        });
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.into_iter().for_each(|number| self.release(now, number, out));
    }

    fn release(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node<S>>) {
        let ready = |running: &Running<S>| match running.phase {
            Phase::Holding { floor, .. } => S::OPTIMISTIC || floor <= self.stable.reach(),
            _ => false,
        };
        if !self.running.get(&number).is_some_and(ready) {
            return;
        }
        let Some(mut running) = self.running.remove(&number) else { return };
        let phase =
            std::mem::replace(&mut running.phase, Phase::Slices { round: 0, awaited: Default::default() });
        let Phase::Holding { floor, at, effects } = phase else { return };
        running.snapshot = running.snapshot.reaching(self.region, floor);
        self.track(running.session, running.snapshot.reaching(self.region, at));
        if !effects.is_empty() {
            let id = self.id(number);
            let stamp = Stamp {
                at,
                transaction: id,
                region: self.region,
                depends_on: S::with_parts(running.snapshot.depends_on(self.region), running.regions),
            };
            if let Some(error) = self.given_up(&stamp) {
                return self.end_given_up(now, number, running, (at, &effects), &error, out);
            }
            self.thread(running.session).insert(running.session, stamp, &effects);
        }
        self.claim(number, &running, Some(at), &effects);
        self.answer(now, number, running, out);
    }

    /// Claims what a decided transaction saw and did. One without effects takes no place; one with effects is the last that its
    /// thread has taken up.
    pub(super) fn claim(
        &mut self,
        number: u64,
        running: &Running<S>,
        at: Option<Timestamp>,
        effects: &[KeyEffects],
    ) {
        if !self.options.claims {
            return;
        }
        // What was read, and nothing else, is what a session depends on.
        let only_read = S::OPTIMISTIC && at.is_none() && !matches!(running.kind, Kind::Commit(_));
        let snapshot = if only_read { running.seen } else { running.snapshot };
        let regions = self.topology.regions.len();
        let depends_on = snapshot.depends_on(self.region);
        let place = at.filter(|_| !effects.is_empty());
        let (region, parts) = (self.region, running.regions);
        let commit = place.map(|at| CommitStamp { at, depends_on: S::observed(depends_on), region, parts });
        let effects = effects
            .iter()
            .flat_map(|of_key| of_key.effects.iter().map(|effect| (of_key.key.clone(), effect.clone())));
        self.claims.push(Claim {
            session: running.session,
            transaction: self.id(number),
            commit,
            snapshot: Some(SnapshotClaim {
                region: self.region,
                local: snapshot.reach(),
                remote: snapshot.whole(),
            }),
            thread: self.shared_thread(running, commit.is_some()),
            vector: VectorClaim::of(
                snapshot.by_region(regions),
                S::depends_by_region(depends_on, regions),
                S::MERGES,
            ),
            effects: effects.collect(),
            requests: if running.request.is_some() {
                running.requests().collect()
            } else {
                running.in_doubt.clone()
            },
            branch: None,
        });
    }

    /// What a transaction claims of the thread of the process; nothing if its session is a thread of its own.
    fn shared_thread(&self, running: &Running<S>, is_last: bool) -> Option<ThreadClaim> {
        let key = self.thread_key(running.session);
        if key.is_some() {
            return None;
        }
        let place = self.threads.get(&key).map(|thread| thread.epoch).filter(|_| is_last);
        Some(ThreadClaim { seen: running.epoch, place, beyond: running.beyond.clone() })
    }

    /// Writes the replies and goes on with the session.
    pub(super) fn answer(
        &mut self,
        now: Now,
        number: u64,
        running: Running<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if !running.riders.is_empty() {
            for (request, reply) in running.requests().zip(&running.replies) {
                reply.replay(out.reply(request));
            }
        } else if let Some(request) = running.request {
            let sink = out.reply(request);
            match running.kind {
                Kind::Commit(_) | Kind::Watch => sink.simple("OK"),
                Kind::OneShot | Kind::Operate => running.replies.iter().for_each(|reply| reply.replay(sink)),
            }
        }
        self.end(now, number, &running, out);
    }

    /// Replies an error: nothing happened. Commands of a pipeline that ran as one may still run by themselves.
    pub(super) fn fail(
        &mut self,
        now: Now,
        number: u64,
        reason: FailureReason,
        error: Error,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(mut running) = self.running.remove(&number) else { return };
        self.spare_queue(now, running.session, &reason, &error, out);
        if running.request.is_some() && !running.riders.is_empty() {
            self.run_separately(now, &mut running, &reason, &error, out);
            return self.end(now, number, &running, out);
        }
        running.requests().for_each(|request| out.reply(request).error(&error));
        match running.kind {
            // Without this step the rest must not commit.
            Kind::Operate => {
                if let Some(state) = self.sessions.get_mut(&running.session) {
                    state.fail_open(error);
                }
            }
            Kind::OneShot | Kind::Commit(_) => self.claim(number, &running, None, &[]),
            Kind::Watch => {}
        }
        self.end(now, number, &running, out);
    }

    /// A watched key was touched: nothing happened.
    pub(super) fn end_touched(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node<S>>) {
        let Some(running) = self.running.remove(&number) else { return };
        if let Some(request) = running.request {
            out.reply(request).null_array();
        }
        self.claim(number, &running, None, &[]);
        self.end(now, number, &running, out);
    }

    /// The outcome of a transaction whose client got "unknown": it had no effect.
    pub(super) fn end_unanswered(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node<S>>) {
        if let Some(running) = self.running.remove(&number) {
            self.claim(number, &running, None, &[]);
            self.end(now, number, &running, out);
        }
    }

    /// No process knows its outcome any more, or only the replicas that lack it will learn it (Corrections 67).
    pub(super) fn end_in_doubt(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node<S>>) {
        let Some(mut running) = self.running.remove(&number) else { return };
        let (Phase::Preparing(prepared) | Phase::Deciding { prepared, .. }) = &running.phase else { return };
        let text = format!(
            "{} lost its memory before it said whether the transaction took effect; read before you repeat it",
            self.whereabouts(prepared.decider)
        );
        let error = Error::new(ErrorCode::UnknownOutcome, text);
        self.leave_in_doubt(number, &mut running, &error, out);
        self.end(now, number, &running, out);
    }

    pub(super) fn end(
        &mut self,
        now: Now,
        number: u64,
        running: &Running<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.unconfirmed.contains_key(&number) {
            out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
        } else {
            self.unsettled.remove(&number);
            out.disarm(Timer::Retry(number));
        }
        if let Some(state) = self.sessions.get_mut(&running.session) {
            state.running = state.running.filter(|other| *other != number);
        }
        self.free.push_back(running.session);
    }

    /// The request's time is over. What may have happened is sought on, without the client.
    pub(super) fn give_up(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node<S>>) {
        let Some(running) = self.running.get(&number) else { return };
        let missing = self.missing_for(now, running);
        if !missing.is_empty() {
            return self.degrade(now, number, &missing, out);
        }
        let (reason, error) = match &running.phase {
            Phase::Slices { awaited, .. } => self.unavailable(self.silent_of(awaited)),
            Phase::Preparing(preparing) if !preparing.is_alone() => {
                self.unavailable(preparing.votes.missing().collect())
            }
            Phase::Backoff { obstacle, .. } => self.why_in_vain(obstacle),
            Phase::Preparing(preparing) => (FailureReason::Refused, self.unknown(preparing.decider)),
            Phase::Deciding { prepared, .. } => (FailureReason::Refused, self.unknown(prepared.decider)),
            Phase::Holding { .. } => {
                let text =
                    "the transaction took effect, but what it observed is not stable in the region yet";
                (FailureReason::Refused, Error::new(ErrorCode::UnknownOutcome, text))
            }
        };
        if error.code != ErrorCode::UnknownOutcome {
            self.abort_all(number, out);
            return self.fail(now, number, reason, error, out);
        }
        if let Some(mut running) = self.running.remove(&number) {
            self.leave_in_doubt(number, &mut running, &error, out);
            if self.options.mutants.has(Mutant::UnknownNotAwaited)
                && let Some(state) = self.sessions.get_mut(&running.session)
            {
                state.running = None;
                self.free.push_back(running.session);
            }
            self.running.insert(number, running);
        }
        out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
    }

    /// Every attempt had this in its way.
    fn why_in_vain(&self, obstacle: &Obstacle) -> (FailureReason, Error) {
        let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let (key, error) = match obstacle {
            Obstacle::Busy(key) => {
                let text =
                    format!("concurrent transactions kept key '{}' busy; retry the transaction", name(key));
                (key.clone(), Error::new(ErrorCode::Conflict, text))
            }
            Obstacle::Lacking(partition, key) => {
                let text = format!(
                    "{}, or another one, has not received all that must be there before key '{}' is written; nothing was \
                     done; retry the transaction",
                    self.whereabouts(*partition),
                    name(key)
                );
                (key.clone(), Error::new(ErrorCode::Unavailable, text))
            }
            Obstacle::Aborted => {
                let text = "participants aborted every attempt; nothing was done; retry the transaction";
                (Box::default(), Error::new(ErrorCode::Conflict, text))
            }
        };
        (FailureReason::Key(key), error)
    }

    fn unavailable(&self, partitions: BTreeSet<u16>) -> (FailureReason, Error) {
        let silent: Vec<String> = partitions.iter().map(|partition| self.whereabouts(*partition)).collect();
        let text = format!("{} did not answer in time; nothing was done", silent.join(", "));
        (FailureReason::Silent(partitions), Error::new(ErrorCode::Unavailable, text))
    }

    fn unknown(&self, decider: u16) -> Error {
        let text = format!("{} did not say whether the transaction took effect", self.whereabouts(decider));
        Error::new(ErrorCode::UnknownOutcome, text)
    }
}
