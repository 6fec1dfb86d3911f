//! Regions that are gone for good where transactions have parts in several regions (Corrections 36 and 44): see
//! `partition::agreement`, which tells a coordinator in the answers to `StartTx`.
//!
//! At once nothing goes to the region any more. What only it could decide is in doubt, as when a partition loses its memory;
//! every other request goes to the next replica. When all survivors have given up what is above the cut, so does the
//! cache: **the next request of a session that wrote some of it fails without effect**, and the session sees those
//! writes no more. What the session wrote afterwards in regions that are left stays. An open transaction of anybody
//! who reads that cache has ended, and watches count as touched.

use super::Coordinator;
use super::rerun::FailureReason;
use super::running::{Obstacle, Phase, Running, UnconfirmedDecision};
use crate::stable::message::KeyEffects;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Node, Times};
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet};
use types::{Error, ErrorCode, RegionId, RegionSet, Rng, SessionId, Timestamp, TransactionId};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LostRegions {
    /// Each with the cut, once what is above has been given up here.
    regions: BTreeMap<RegionId, Option<Timestamp>>,
    /// Transactions in doubt that participants may still ask one another about.
    in_doubt: BTreeSet<u64>,
    /// Sessions that lost writes; the coordinator reports it with their next request.
    pub(super) losing_sessions: BTreeMap<SessionId, Error>,
}

impl<S: Times> Coordinator<S> {
    /// The lost regions of which it has given up what all survivors have.
    pub(super) fn gone(&self) -> RegionSet {
        self.losses.regions.iter().filter(|(_, cut)| cut.is_some()).map(|(region, _)| *region).collect()
    }

    pub(super) fn on_lost(
        &mut self,
        now: Now,
        gone: &[(RegionId, Option<Timestamp>)],
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        for (region, cut) in gone {
            self.lose(now, *region, out);
            if let (false, Some(cut)) = (self.is_evicted, cut) {
                self.give_up_of_lost(now, *region, *cut, random, out);
            }
        }
    }

    /// A region is gone for good: no request goes there any more.
    pub(super) fn lose(&mut self, now: Now, region: RegionId, out: &mut Outputs<'_, Node<S>>) {
        if region == self.region {
            self.is_evicted = true;
            return self.free.extend(self.sessions.keys());
        }
        if usize::from(region.0) >= self.topology.regions.len() || self.losses.regions.contains_key(&region) {
            return;
        }
        self.losses.regions.insert(region, None);
        self.routes.lose(region);
        let topology = &self.topology;
        let is_there = |address| topology.locate(address).is_some_and(|(of, _)| of == region);
        self.homes.retain(|home| !is_there(*home));
        (self.home, self.unanswered) = (0, 0);
        for unconfirmed in self.unconfirmed.values_mut() {
            unconfirmed.missing.retain(|_, participant| !is_there(*participant));
        }
        let decided_there = |running: &Running<S>| match &running.phase {
            Phase::Preparing(prepared) => prepared.is_alone() && is_there(prepared.decider()),
            Phase::Deciding { prepared, .. } => is_there(prepared.decider()),
            _ => false,
        };
        let running = self.running.iter().filter(|(_, running)| decided_there(running));
        let in_doubt: Vec<u64> = running.map(|(number, _)| *number).collect();
        let spread: Vec<u64> = self.unconfirmed.keys().copied().collect();
        spread.into_iter().for_each(|number| self.end_spreading(number, out));
        in_doubt.into_iter().for_each(|number| self.end_with_lost(now, number, region, out));
    }

    /// Whether it took effect only the lost region could say.
    fn end_with_lost(&mut self, now: Now, number: u64, region: RegionId, out: &mut Outputs<'_, Node<S>>) {
        let Some(mut running) = self.running.remove(&number) else { return };
        let text = format!(
            "region {} was evicted before it said whether the transaction took effect; read before you repeat it",
            self.topology.name(region)
        );
        self.leave_in_doubt(number, &mut running, &Error::new(ErrorCode::UnknownOutcome, text), out);
        self.end(now, number, &running, out);
        self.losses.in_doubt.insert(number);
        self.unsettled.insert(number);
    }

    /// Why nothing is left of a transaction, if nothing is.
    pub(super) fn given_up(&self, stamp: &Stamp<S::Depends>) -> Option<Error> {
        let parts = S::parts(stamp.depends_on, self.region);
        let above = |cut: &Option<Timestamp>| cut.is_some_and(|cut| stamp.at > cut);
        let bereft = self.bereaves(stamp.depends_on);
        let mut lost = self.losses.regions.iter().filter(|(_, cut)| S::UNIVERSAL && above(cut));
        let lost = lost.find(|(region, _)| parts.contains(**region)).map(|(region, _)| region);
        if let Some(region) = bereft {
            let text = format!(
                "the transaction depended on writes of region {}, which was evicted, and was given up with them: it has no \
                 effect; read before you repeat it",
                self.topology.name(region)
            );
            return Some(Error::new(ErrorCode::UnknownOutcome, text));
        }
        let region = lost?;
        let text = format!(
            "the transaction took effect in part in region {}, which was evicted, and was given up as a whole: it has no \
             effect; read before you repeat it",
            self.topology.name(*region)
        );
        Some(Error::new(ErrorCode::UnknownOutcome, text))
    }

    /// The lost region of which something was given up that whoever says this of itself depends on.
    pub(super) fn bereaves(&self, depends_on: S::Depends) -> Option<RegionId> {
        let is_above =
            |region, cut: Option<Timestamp>| cut.is_some_and(|cut| S::depended_on(depends_on, region) > cut);
        let mut lost = self.losses.regions.iter().filter(|_| !self.options.keeps_dependants);
        lost.find(|(region, cut)| is_above(**region, **cut)).map(|(region, _)| *region)
    }

    /// What a partition has received, without what was given up: it may have said so before it was.
    pub(super) fn without_lost(&self, received: S) -> S {
        let lost = self.losses.regions.iter().filter_map(|(region, cut)| Some((*region, (*cut)?)));
        lost.fold(received, |received, (region, cut)| received.without_lost(region, cut))
    }

    /// A session has seen what was given up, whose partition said so before it was: its open transaction has ended.
    pub(super) fn bereave(&mut self, session: SessionId, region: RegionId) {
        let error = Error::new(ErrorCode::Unavailable, self.topology.why_bereft(region));
        if let Some(state) = self.sessions.get_mut(&session) {
            state.fail_open(error.clone());
        }
        self.losses.losing_sessions.insert(session, error);
    }

    /// Sessions that depend on writes given up restart, and get an error.
    fn end_dependants(
        &mut self,
        now: Now,
        region: RegionId,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let received = std::mem::take(&mut self.received);
        let left = received
            .into_iter()
            .map(|(of, (received, heard_at))| (of, (self.without_lost(received), heard_at)));
        self.received = left.collect();
        let here = self.region;
        let is_bereft = |seen: S| self.bereaves(seen.depends_on(here)).is_some();
        let threads = self.threads.iter();
        let bereft = threads.filter(|(_, of)| is_bereft(of.seen) || of.abandoned.is_some_and(is_bereft));
        let touched: BTreeSet<Option<SessionId>> = bereft.map(|(key, _)| *key).collect();
        let running = self.running.iter();
        let reads = running.filter(|(_, running)| is_bereft(running.snapshot.newest(running.seen)));
        let reads: Vec<(u64, SessionId)> =
            reads.map(|(number, running)| (*number, running.session)).collect();
        // Each has a thread of its own.
        let mut losing_sessions: BTreeSet<SessionId> = touched.iter().copied().flatten().collect();
        for key in &touched {
            let thread = self.threads.entry(*key).or_default();
            (thread.seen, thread.abandoned) = (S::default(), None);
        }
        let error = Error::new(ErrorCode::Unavailable, self.topology.why_bereft(region));
        for (number, session) in reads {
            let Some(running) = self.running.get_mut(&number) else { continue };
            let (waits, reads) = (
                matches!(running.phase, Phase::Backoff { .. }),
                matches!(running.phase, Phase::Slices { .. }),
            );
            if waits && losing_sessions.remove(&session) {
                self.fail(now, number, FailureReason::Refused, error.clone(), out);
            } else if !losing_sessions.contains(&session) {
                running.seen = S::default();
                if reads {
                    self.begin_again(now, number, Obstacle::Aborted, random, out);
                }
            }
        }
        self.report_losses_to_sessions(now, error, &touched, losing_sessions, random, out);
    }

    /// The transaction had committed, and was given up before the client got its reply.
    pub(super) fn end_given_up(
        &mut self,
        now: Now,
        number: u64,
        mut running: Running<S>,
        (at, effects): (Timestamp, &[KeyEffects]),
        error: &Error,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let requests: Vec<_> = running.requests().collect();
        requests.iter().for_each(|request| out.reply(*request).error(error));
        if running.request.take().is_some() {
            running.in_doubt = requests;
        }
        self.claim(number, &running, Some(at), effects);
        self.end(now, number, &running, out);
    }

    /// All survivors have given up what the region took part in above the cut.
    fn give_up_of_lost(
        &mut self,
        now: Now,
        region: RegionId,
        cut: Timestamp,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let ends = |unconfirmed: &UnconfirmedDecision| unconfirmed.regions.contains(region);
        if self.unconfirmed.values().any(ends) {
            // Survivors may have ended it without an effect, and are about to say so.
            return;
        }
        match self.losses.regions.get_mut(&region) {
            Some(known @ None) => *known = Some(cut),
            _ => return,
        }
        if self.losses.regions.values().all(Option::is_some) {
            for number in std::mem::take(&mut self.losses.in_doubt) {
                self.unsettled.remove(&number);
            }
        }
        if S::OPTIMISTIC {
            return self.end_dependants(now, region, random, out);
        }
        if self.options.mutants.has(Mutant::GivenUpCached) {
            return;
        }
        let is_given_up = |stamp: &Stamp<S::Depends>| {
            stamp.at > cut && S::parts(stamp.depends_on, stamp.region).contains(region)
        };
        self.drop_cached(now, region, is_given_up, random, out);
    }

    /// A participant says that a transaction which has committed has no effect: only a lost region had acted on it.
    pub(super) fn take_back(
        &mut self,
        now: Now,
        id: TransactionId,
        regions: RegionSet,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let lost = self.losses.regions.keys().copied().find(|region| regions.contains(*region));
        if let Some(region) = lost.filter(|_| !self.options.mutants.has(Mutant::GivenUpCached)) {
            self.drop_cached(now, region, |stamp| stamp.transaction == id, random, out);
        }
    }

    fn drop_cached(
        &mut self,
        now: Now,
        region: RegionId,
        is_given_up: impl Fn(&Stamp<S::Depends>) -> bool,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let mut touched = BTreeSet::new();
        let mut losing_sessions = BTreeSet::new();
        for (key, thread) in &mut self.threads {
            let writers = thread.give_up(&is_given_up);
            if !writers.is_empty() {
                touched.insert(*key);
                losing_sessions.extend(writers);
            }
        }
        if !touched.is_empty() {
            let text = format!(
                "region {} was evicted, and what this session had written there, or together with there, is given up: it \
                 has no effect any more; nothing was done now; read what you rely on",
                self.topology.name(region)
            );
            let error = Error::new(ErrorCode::Unavailable, text);
            self.report_losses_to_sessions(now, error, &touched, losing_sessions, random, out);
        }
    }

    /// What was read of these threads' caches is not there any more.
    fn report_losses_to_sessions(
        &mut self,
        now: Now,
        error: Error,
        touched: &BTreeSet<Option<SessionId>>,
        mut losing_sessions: BTreeSet<SessionId>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let reads: BTreeSet<SessionId> = self
            .sessions
            .keys()
            .copied()
            .filter(|session| touched.contains(&self.thread_key(*session)))
            .collect();
        for session in &reads {
            let Some(state) = self.sessions.get_mut(session) else { continue };
            state.fail_open(error.clone());
            state.watches.values_mut().for_each(|watch| watch.deadline = now.instant);
        }
        let reading = self.running.iter().filter(|(_, running)| {
            matches!(running.phase, Phase::Slices { .. }) && reads.contains(&running.session)
        });
        let reading: Vec<(u64, SessionId)> =
            reading.map(|(number, running)| (*number, running.session)).collect();
        for (number, session) in reading {
            let is_open = self.sessions.get(&session).is_some_and(|state| state.failed.is_some());
            match losing_sessions.remove(&session) || is_open {
                true => self.fail(now, number, FailureReason::Refused, error.clone(), out),
                false => self.begin_again(now, number, Obstacle::Aborted, random, out),
            }
        }
        self.losses
            .losing_sessions
            .extend(losing_sessions.into_iter().map(|session| (session, error.clone())));
    }
}
