//! Sessions that know what they depend on (POCC, Algorithm 1), and the snapshots made of that and of what partitions have
//! received (Algorithm 2, lines 14 to 19).
//!
//! A single partition returns the freshest state that shows what the session depends on. Several partitions read one
//! snapshot: what all of them had received by their latest reports, joined with what the session depends on. A read
//! waits only for the latter, never because one partition is ahead of another one.

use super::ask::{KeyAction, PlannedStep};
use super::running::{Kind, Running};
use super::session::Watch;
use super::{Coordinator, millis};
use crate::stable::{Mutant, Node, Times};
use datatypes::{Operation, key};
use protocol::{Now, Outputs};
use std::collections::BTreeSet;
use types::{RequestId, SessionId, Timestamp};

impl<S: Times> Coordinator<S> {
    /// What a session depends on. Everything that is stable in every region may count as a part of it, as no region
    /// lacks it; not what was given up, which may have been stable before survivors lost it.
    fn dependencies(&mut self, session: SessionId) -> S {
        let stable = self.without_lost(self.stable);
        self.thread(session).seen.newest(stable)
    }

    /// What these partitions have received, all of the region's if none is named, and what the session depends on.
    fn freshest_of(&mut self, now: Now, session: SessionId, partitions: &BTreeSet<u16>) -> S {
        let newest = self.dependencies(session).newest(self.received_by(partitions));
        self.begun(now, session, newest)
    }

    /// The least that these partitions have received, or all of the region's if none is named.
    pub(super) fn received_by(&self, partitions: &BTreeSet<u16>) -> S {
        let all = 0..self.topology.partitions();
        let involved = all.filter(|partition| partitions.is_empty() || partitions.contains(partition));
        let received = involved
            .map(|partition| self.received.get(&partition).map_or(S::default(), |(received, _)| *received));
        received.reduce(S::oldest).unwrap_or_default()
    }

    pub(in crate::stable) fn set_refusing(&mut self, is_refusing: bool) {
        self.is_refusing = is_refusing;
    }

    /// A snapshot whose entry of the own region is the coordinator's time, or the session's if that is later. What other sessions
    /// were given does not count: one of them may depend on a time that is far ahead.
    fn begun(&mut self, now: Now, session: SessionId, snapshot: S) -> S {
        let highest = self.thread(session).highest;
        // While the log refuses records, partitions vouch for no time that it has not promised.
        let clock = if self.is_refusing { Timestamp::ZERO } else { Timestamp::from_wall(now.wall) };
        snapshot.begin(self.region, clock.max(highest))
    }

    /// The snapshot of an interactive transaction, whose reads are not known yet.
    pub(super) fn open_snapshot(&mut self, now: Now, session: SessionId) -> S {
        self.promote_if_shown(session);
        let snapshot = self.freshest_of(now, session, &BTreeSet::new());
        let thread = self.thread(session);
        thread.seen = thread.seen.newest(snapshot);
        snapshot
    }

    /// Watches keys, as soon as their partitions have decided on all that is placed up to the snapshot: what changes them later is
    /// above. The snapshot shows what the session wrote.
    pub(super) fn watch_decided(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        keys: Vec<(Box<[u8]>, u16)>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let mut exists = Vec::new();
        Operation::Key(key::Operation::Exists).encode(&mut exists);
        let reads = |(key, partition): (Box<[u8]>, u16)| {
            let what = KeyAction::Read { operation: exists.as_slice().into(), blind: false };
            PlannedStep::Key { key: (*key).into(), partition, what }
        };
        let steps = keys.into_iter().map(reads).collect();
        let mut running = Running::new(session, id, Kind::Watch, steps);
        running.snapshot = self.open_snapshot(now, session);
        running.deadline = now.instant + self.options.give_up_after;
        self.attempt(now, running, out);
    }

    pub(super) fn add_watches(&mut self, now: Now, running: &Running<S>) {
        let (since, deadline) = (running.snapshot, now.instant + self.options.open_for);
        let at_millis = millis(now, self.thread(running.session).highest);
        let watches = &mut self.sessions.entry(running.session).or_default().watches;
        for step in &running.steps {
            let PlannedStep::Key { key, partition, .. } = step else { continue };
            let watch = Watch { partition: *partition, since, at_millis, own: Vec::new(), deadline };
            watches.entry((**key).into()).or_insert(watch);
        }
    }

    /// The snapshot of a transaction known in advance.
    pub(super) fn snapshot_for(&mut self, now: Now, running: &mut Running<S>) -> S {
        let session = running.session;
        self.promote_if_shown(session);
        running.seen = running.seen.newest(self.dependencies(session));
        let seen = running.seen;
        if self.is_fresh(running) {
            return seen;
        }
        let writes_blindly = |step: &PlannedStep| step.is_write() && !step.is_observing();
        if running.watches.is_empty() && running.steps.iter().all(writes_blindly) {
            return self.begun(now, session, seen);
        }
        let partitions = match running.watches.is_empty() && !self.is_pessimistic(session) {
            true => partitions_of(&running.steps).unwrap_or_default(),
            false => BTreeSet::new(),
        };
        self.freshest_of(now, session, &partitions).newest(seen)
    }

    /// What a transaction's writes say that they depend on. One that only read what it has read depends on that; what was
    /// evaluated where it is written, or on an open snapshot, on all of the snapshot.
    pub(super) fn snapshot_to_write(&mut self, now: Now, running: &Running<S>) -> S {
        let depends_on_all = matches!(running.kind, Kind::Commit(_))
            || !running.watches.is_empty()
            || running.steps.iter().any(PlannedStep::is_observing);
        let reads = running.steps.iter().any(|step| !step.is_write());
        match (depends_on_all, reads) {
            (true, _) => running.snapshot.newest(running.seen),
            // What it has read is what that shows, and nothing later.
            (false, true) => running.seen,
            (false, false) => self.begun(now, running.session, running.seen),
        }
    }

    /// The session has read or written something.
    pub(super) fn track(&mut self, session: SessionId, seen: S) {
        if S::OPTIMISTIC && !self.options.mutants.has(Mutant::ReadsNotTracked) {
            if let Some(region) = self.bereaves(seen.depends_on(self.region)) {
                return self.bereave(session, region);
            }
            let thread = self.thread(session);
            thread.seen = thread.seen.newest(seen);
        }
    }

    /// True if one partition chooses the snapshot of what is read: the freshest that it has.
    pub(super) fn is_fresh(&self, running: &Running<S>) -> bool {
        S::OPTIMISTIC
            && !self.is_pessimistic(running.session)
            && matches!(running.kind, Kind::OneShot)
            && running.watches.is_empty()
            && !running.steps.iter().any(PlannedStep::is_observing)
            && partitions_of(&running.steps).is_some_and(|partitions| partitions.len() == 1)
    }
}

/// The partitions that have the keys of these steps; `None` if some are on the whole keyspace.
pub(super) fn partitions_of<'s>(steps: impl IntoIterator<Item = &'s PlannedStep>) -> Option<BTreeSet<u16>> {
    let place = |step: &PlannedStep| match step {
        PlannedStep::Key { partition, .. } => Some(*partition),
        _ => None,
    };
    steps.into_iter().map(place).collect()
}
