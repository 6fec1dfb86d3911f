//! Sessions that go on while a region is cut off on which they depend (HA-POCC: the thesis, section 3.7; Corrections 43).
//!
//! ```text
//!   optimistic --- a request has waited for too long: DEGRADED, `seen` becomes `abandoned` ---> pessimistic
//!              <-- every partition has received what was abandoned: it joins `seen` ------------
//! ```
//!
//! A pessimistic session reads the region's stable snapshot: entry by entry the least that all partitions have received (the
//! GSS of Cure), joined with what it has seen since, which is no more than that and what its own region has placed. So it
//! waits for nobody; what depends on more is hidden, and its own writes depend on stable things only.
//!
//! The coordinator hears what every partition has received anyway, so there is no protocol for that.

use super::Coordinator;
use super::ask::PlannedStep;
use super::optimistic::partitions_of;
use super::rerun::FailureReason;
use super::running::{Kind, Obstacle, Phase, Running};
use crate::stable::{Node, Times};
use protocol::{Now, Outputs};
use std::collections::BTreeSet;
use types::{Error, ErrorCode, RegionId, SessionId, Timestamp};

/// Partitions, each with a region of which it lacks something.
pub(super) type Missing = BTreeSet<(u16, RegionId)>;

impl<S: Times> Coordinator<S> {
    /// How many sessions are pessimistic, and how often one became so.
    pub fn pessimistic_sessions(&self) -> (u64, u64) {
        let shown = self.shown_here();
        let abandoned = self.threads.values().filter_map(|thread| thread.abandoned);
        let now = abandoned.filter(|abandoned| abandoned.lacks(shown)).count();
        (now as u64, self.degraded)
    }

    /// True if a session may become optimistic again.
    pub(super) fn has_abandoned(&self) -> bool {
        self.degraded > 0 && self.threads.values().any(|thread| thread.abandoned.is_some())
    }

    pub(super) fn is_pessimistic(&self, session: SessionId) -> bool {
        self.threads.get(&self.thread_key(session)).is_some_and(|thread| thread.abandoned.is_some())
    }

    /// What the region can show without waiting for another one.
    fn stable_here(&self) -> S {
        self.received_by(&BTreeSet::new()).newest(self.without_lost(self.stable))
    }

    /// The same, with everything of the region itself.
    fn shown_here(&self) -> S {
        self.stable_here().reaching(self.region, Timestamp::MAX)
    }

    /// Up to where a partition has received a region.
    fn received_of(&self, (partition, region): (u16, RegionId)) -> Timestamp {
        let received = self.received.get(&partition).map_or(S::default(), |(received, _)| *received);
        received.by_region(self.topology.regions.len())[usize::from(region.0)]
    }

    /// What a transaction waits for of other regions.
    pub(super) fn missing_for(&self, now: Now, running: &Running<S>) -> Missing {
        let mut missing = Missing::new();
        if !S::OPTIMISTIC || !matches!(running.phase, Phase::Slices { .. } | Phase::Backoff { .. }) {
            return missing;
        }
        // Blind writes wait for nothing.
        let observed = |step: &&PlannedStep| !step.is_write() || step.is_observing();
        let partitions = match &running.kind {
            Kind::OneShot if running.watches.is_empty() => {
                partitions_of(running.steps.iter().filter(observed))
            }
            // What it only read was there.
            Kind::Commit(open) => Some(open.observed(&running.watches)),
            _ => None,
        };
        let waits_for = |partition: &u16| match &running.phase {
            Phase::Slices { awaited, .. } => awaited.contains_key(partition),
            Phase::Backoff { obstacle: Obstacle::Lacking(lacking, _), .. } => lacking == partition,
            _ => partitions.as_ref().is_none_or(|partitions| partitions.contains(partition)),
        };
        let needed = running.snapshot.newest(running.seen);
        for (partition, (received, heard_at)) in &self.received {
            // Of one that is silent itself nobody knows what it has received.
            if waits_for(partition) && now.instant - *heard_at < self.options.suspect_after {
                let regions = needed.missing(*received).into_iter().filter(|region| *region != self.region);
                missing.extend(regions.map(|region| (*partition, region)));
            }
        }
        missing
    }

    /// True if a transaction waits for a region that counts as cut off: it has waited for long enough itself, or another one
    /// has, and nothing has come since.
    pub(super) fn is_cut_off(&self, now: Now, running: &Running<S>) -> bool {
        let missing = self.missing_for(now, running);
        let is_declared = |of| self.declared.get(of).is_some_and(|at| *at == self.received_of(*of));
        let has_waited =
            now.instant + self.options.give_up_after >= running.deadline + self.options.declare_after;
        (has_waited && !missing.is_empty()) || missing.iter().any(is_declared)
    }

    /// Ends a transaction that waits for a region that is cut off: nothing happened. The session loses its dependencies
    /// and gets an error.
    pub(super) fn degrade(
        &mut self,
        now: Now,
        number: u64,
        missing: &Missing,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(session) = self.running.get(&number).map(|running| running.session) else { return };
        for of in missing {
            self.declared.insert(*of, self.received_of(*of));
        }
        let (stable, abandoned) = (self.stable_here(), self.seen_in_all(session));
        let thread = self.thread(session);
        (thread.seen, thread.abandoned) = (stable, Some(abandoned));
        self.degraded += 1;
        let error = self.degradation(missing);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.refuse_unheard(&error, out);
        }
        self.fail(now, number, FailureReason::Degraded, error, out);
    }

    fn degradation(&self, missing: &Missing) -> Error {
        let (partitions, regions): (BTreeSet<u16>, BTreeSet<RegionId>) = missing.iter().copied().unzip();
        let names: Vec<&str> = regions.into_iter().map(|region| self.topology.name(region)).collect();
        let partitions: Vec<String> = partitions.iter().map(u16::to_string).collect();
        let text = format!(
            "this session depends on writes of region {} that partition {} of this region has not received; nothing was \
             done; from now on the session sees what is stable in this region, and maybe not what it has read or written \
             before, until the regions are connected again",
            names.join(", "),
            partitions.join(", ")
        );
        Error::new(ErrorCode::Degraded, text)
    }

    /// Everything that a session has ever seen.
    pub(super) fn seen_in_all(&mut self, session: SessionId) -> S {
        let thread = self.thread(session);
        thread.abandoned.map_or(thread.seen, |abandoned| thread.seen.newest(abandoned))
    }

    /// The session is optimistic, and depends on everything that it has ever seen.
    pub(super) fn promote(&mut self, session: SessionId) {
        let seen = self.seen_in_all(session);
        let thread = self.thread(session);
        (thread.seen, thread.abandoned) = (seen, None);
    }

    /// Once every partition has received what was abandoned, the session has lost nothing.
    pub(super) fn promote_if_shown(&mut self, session: SessionId) {
        let Some(abandoned) = self.thread(session).abandoned else { return };
        if !abandoned.lacks(self.shown_here()) {
            self.promote(session);
        }
    }
}
