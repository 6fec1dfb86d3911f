//! Synchronization (the paper's section 6.2): the leader of a NORMAL view closes intervals of births, so that what was
//! born in them needs no record any more.
//!
//! ```text
//!  leader                          replicas
//!    |-- Sync(at, digests) ---------->|  durable: nothing new is born at or below `at`; fetches what it lacks
//!    |<------- Synced(clear, digests)-|  f have: so it is here from now on, durably
//!    |                                |  the leader fetches what it lacks, and asks again until they are equal
//!    |-- FinishSync(at) ------------->|  to those that are equal and hold no locks: durable `accepted`
//!    |<--------------- SyncFinished --|  f+1: `at` is the stable base, told with the next Sync
//! ```
//!
//! # Why nothing is missed
//! A group born at or below the base can only have committed if f+1 replicas voted to hold its locks. One of them is
//! among the f+1 that were equal and clear in one view, and it voted before it raised its floor, as afterwards it
//! refuses. So it held the locks when it answered, or knew the end; and not being clear, or having an outcome that the
//! others lack, stops the round. Hence whatever is still undecided below the base can never commit (its entries are
//! dropped), and nothing that is unknown above what is trimmed has committed. The leader raises its own floor last:
//! with a clock that is hours ahead it would be alone, as the others do not listen (`tapir/replica.rs`), and for hours
//! refuse whatever is proposed to it. It, too, is looked at only once its floor is there.
//!
//! The second exchange makes that survive view changes. One replica alone may not use the base: another leader, which
//! does not hear from it, might validate a tentative vote from outside the f+1 anew and let it commit. After f+1 have
//! accepted, every merge meets one of them, and takes the greatest `accepted` of the records that count as its base.

use super::log::{Digest, aligned, bucket, end_of};
use super::replica::{Change, Port, Replica, Status};
use super::{Application, Message, Operations, Points, Summary};
use crate::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use types::{Address, NodeId, Timestamp};

/// About how many outcomes one round closes.
const ROUND_GROUPS: u32 = 16384;
/// About how many outcomes one step forgets.
const TRIMMED_GROUPS: u32 = 2048;
/// So often a follower looks for its leader at least before it calls for the next one.
const SILENT_CALLS: u32 = 16;

/// An interval that the leader is closing.
#[derive(Debug)]
struct Round {
    view: u64,
    at: Timestamp,
    /// The leader's outcomes in the interval, when it was last compared.
    digests: BTreeMap<u64, Digest>,
    /// Whose floor is there.
    agreed: BTreeSet<usize>,
    /// Who had just these, and no locks.
    equal: BTreeSet<usize>,
    /// To which of them the leader has sent FinishSync since its last repetition.
    requested: BTreeSet<usize>,
    /// Who has accepted.
    finished: BTreeSet<usize>,
}

/// A replica's synchronization state, except for its points.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    round: Option<Round>,
    /// As leader: how many rounds got no answer since every replica was equal.
    waited: u32,
    /// As leader: the base of each other replica, as it last reported.
    bases: BTreeMap<usize, Timestamp>,
    /// As follower: how many times it was called, with something to close, since the leader has said Sync.
    silent: u32,
    /// As follower that looks for its leader: who has answered.
    heard: Option<BTreeSet<usize>>,
    /// As follower: the leader's base, which counts here once what is being fetched has come.
    learning: Option<Timestamp>,
}

impl<O: Operations> Replica<O> {
    /// What this replica tells of itself, with its outcomes born in an interval.
    pub(super) fn summary(&self, above: Timestamp, up_to: Timestamp) -> Summary {
        Summary { points: self.points, digests: self.log.digests(above, up_to) }
    }

    fn persist_points(&self, port: &mut impl Port<O>) {
        port.persist(&Change::Points(self.points));
    }

    fn set_points(&mut self, change: impl FnOnce(&mut Points), port: &mut impl Port<O>) {
        let before = self.points;
        change(&mut self.points);
        if self.points != before {
            self.persist_points(port);
        }
    }

    /// The end of the interval with the youngest group that is not trimmed.
    pub fn youngest(&self) -> Timestamp {
        self.log.youngest().map_or(Timestamp::ZERO, |born| end_of(bucket(born)))
    }

    /// Called now and then; `limit` is the end of what may be closed. A leader begins a round, or says again what was
    /// not answered. After `patience` calls it does without replicas that are not equal, if f+1 are. True if a round
    /// above the base has begun. A follower whose leader has long said nothing calls for the next one.
    pub fn on_sync_timer(
        &mut self,
        limit: Timestamp,
        patience: u32,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) -> bool {
        if self.status != Status::Normal || !self.leads() {
            self.sync.round = None;
            self.look_for_leader(limit, patience, port);
            return false;
        }
        let mut begun = false;
        if self.sync.round.as_ref().is_none_or(|round| round.view != self.view) {
            let at = aligned(self.log.cut(self.points.base, limit, ROUND_GROUPS));
            let at = at.max(self.points.base);
            begun = at > self.points.base;
            let (digests, agreed, equal, requested, finished) = Default::default();
            self.sync.round =
                Some(Round { view: self.view, at, digests, agreed, equal, requested, finished });
            self.agree(port);
        }
        if let Some(round) = self.sync.round.as_mut().filter(|round| round.at > self.points.base) {
            self.sync.waited = self.sync.waited.saturating_add(1);
            round.requested.clear();
        }
        self.say_sync(port);
        self.finish(patience, app, port);
        begun
    }

    /// Gives a round up that ends above what is believed by now, and to which too few have agreed: the clock was wrong when
    /// it began.
    pub fn give_up_round(&mut self, latest: Timestamp) {
        let needed = self.quorum();
        self.sync.round.take_if(|round| round.at > latest && round.agreed.len() + 1 < needed);
    }

    /// Raises the leader's own floor, once those of f others are there.
    fn agree(&mut self, port: &mut impl Port<O>) {
        let needed = self.quorum();
        let Some(Round { at, .. }) =
            self.sync.round.as_ref().filter(|round| round.agreed.len() + 1 >= needed)
        else {
            return;
        };
        let at = *at;
        self.set_points(|points| points.floor = points.floor.max(at), port);
    }

    /// Transactions need no leader, but without one nothing is closed, and records grow as long as it is away. A
    /// follower that hears from others, f+1 with itself, calls for the next view; an isolated one would only disturb
    /// them.
    fn look_for_leader(&mut self, limit: Timestamp, patience: u32, port: &mut impl Port<O>) {
        let (base, status) = (self.points.base, self.status);
        if status != Status::Normal || aligned(self.log.cut(base, limit, ROUND_GROUPS)) <= base {
            return;
        }
        self.sync.silent += 1;
        if self.sync.silent > SILENT_CALLS.max(patience.saturating_mul(2)) {
            self.sync.heard.get_or_insert_default();
            for to in self.others() {
                port.send(to, Message::WhichView { incarnation: self.incarnation });
            }
        }
    }

    /// Another replica answers one that looks for its leader.
    pub(super) fn on_neighbour(
        &mut self,
        member: usize,
        (view, serving): (u64, bool),
        port: &mut impl Port<O>,
    ) {
        if view > self.view {
            return self.enter_view(view, port);
        }
        let (needed, follows) = (self.quorum(), serving && view == self.view && self.leader(view) != member);
        if let Some(heard) = self.sync.heard.as_mut().filter(|_| follows) {
            heard.insert(member);
            if heard.len() + 1 >= needed {
                self.enter_view(view + 1, port);
            }
        }
    }

    fn say_sync(&self, port: &mut impl Port<O>) {
        let Some(Round { view, at, .. }) = self.sync.round else { return };
        for (member, to) in self.members().iter().enumerate().filter(|(member, _)| Some(*member) != self.me) {
            let known = self.sync.bases.get(&member).copied().unwrap_or_default();
            let above = known.min(self.points.base).max(self.points.trimmed);
            let (forgettable, summary) = (self.vote_retention.forgettable(), self.summary(above, at));
            port.send(*to, Message::Sync { view, at, above, forgettable, summary });
        }
    }

    pub(super) fn on_sync_message(
        &mut self,
        from: NodeId,
        message: Message<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        // Outcomes are facts, so these messages are handled in any view.
        match message {
            Message::Lacking { question, known } => return self.on_lacking(from, question, &known, port),
            Message::Ended { question, groups, complete } => {
                return self.on_ended(from, question, groups, complete, app, port);
            }
            _ => {}
        }
        let Some(member) = self.member(from) else { return };
        let current = |view: u64| self.status == Status::Normal && view == self.view;
        match message {
            Message::Sync { view, at, above, forgettable, summary }
                if current(view) && self.leader(view) == member =>
            {
                self.vote_retention.learn(forgettable);
                self.on_sync(from, at, above, &summary, app, port);
            }
            Message::Synced { view, at, clear, forgettable, summary } if current(view) => {
                self.vote_retention.reported(member, forgettable);
                self.on_synced((from, member), at, clear, &summary, app, port);
            }
            Message::FinishSync { view, at } if current(view) && self.leader(view) == member => {
                self.on_finish_sync(from, view, at, port);
            }
            Message::SyncFinished { view, at } if current(view) => {
                let Some(round) = self.sync.round.as_mut().filter(|round| round.at == at) else { return };
                round.finished.insert(member);
                self.conclude(app, port);
            }
            _ => {}
        }
    }

    fn on_finish_sync(&mut self, from: NodeId, view: u64, at: Timestamp, port: &mut impl Port<O>) {
        if at <= self.points.floor && self.is_clear(at) {
            self.set_points(|points| points.accepted = points.accepted.max(at), port);
            port.send(from.address(), Message::SyncFinished { view, at });
        }
    }

    /// True if no group born at or below `at` can still commit because of this replica.
    fn is_clear(&self, at: Timestamp) -> bool {
        self.mutants.has(Mutant::CloseUndecided)
            || !self.log.undecided().any(|(_, group)| group.born <= at && group.is_held())
    }

    fn on_sync(
        &mut self,
        from: NodeId,
        at: Timestamp,
        above: Timestamp,
        summary: &Summary,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        (self.sync.silent, self.sync.heard) = Default::default();
        self.set_points(|points| points.floor = points.floor.max(at), port);
        let base = summary.points.base;
        if summary.points.trimmed > self.points.base {
            self.behind = Some(from.address());
        } else if above <= self.points.base {
            if self.has_all(from, summary, self.points.base, port) {
                self.raise_base(base, app);
            } else {
                self.sync.learning = Some(base);
            }
        }
        let (view, clear) = (self.view, self.is_clear(at));
        let (forgettable, summary) = (self.vote_retention.own(), self.summary(self.points.base, at));
        port.send(from.address(), Message::Synced { view, at, clear, forgettable, summary });
    }

    fn on_synced(
        &mut self,
        (from, member): (NodeId, usize),
        at: Timestamp,
        clear: bool,
        summary: &Summary,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        self.sync.bases.insert(member, summary.points.base);
        self.has_all(from, summary, self.points.base, port);
        self.compare_anew();
        let base = self.points.base;
        let Some(round) = self.sync.round.as_mut().filter(|round| round.at == at) else { return };
        round.agreed.insert(member);
        if clear && summary.points.base == base && summary.digests == round.digests {
            round.equal.insert(member);
        } else {
            round.equal.remove(&member);
        }
        self.agree(port);
        self.finish(u32::MAX, app, port);
    }

    /// Whoever was equal to what the leader had before it learned more is not known to be so any longer.
    fn compare_anew(&mut self) {
        let Some(round) = &mut self.sync.round else { return };
        let digests = self.log.digests(self.points.base, round.at);
        if digests != round.digests {
            round.digests = digests;
            round.equal.clear();
            round.requested.clear();
        }
    }

    /// Asks those that are equal to accept, once they are enough.
    fn finish(&mut self, patience: u32, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        self.compare_anew();
        let Some(Round { view, at, equal, requested, .. }) = &self.sync.round else { return };
        let (view, at) = (*view, *at);
        if equal.len() + 1 == self.members().len() {
            self.sync.waited = 0;
        }
        let needed = if self.sync.waited > patience { self.quorum() } else { self.members().len() };
        let idle = at <= self.points.base;
        if idle || equal.len() + 1 < needed || !self.is_clear(at) {
            self.sync.round.take_if(|_| idle);
            return;
        }
        debug_assert!(at <= self.points.floor, "whoever is equal has agreed");
        let to: Vec<usize> = equal.difference(requested).copied().collect();
        self.set_points(|points| points.accepted = points.accepted.max(at), port);
        for member in &to {
            port.send(self.members()[*member], Message::FinishSync { view, at });
        }
        if let Some(round) = &mut self.sync.round {
            round.requested.extend(to);
        }
        self.conclude(app, port);
    }

    /// The interval is closed for good when f+1 have accepted; the next Sync tells.
    fn conclude(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let Some(round) = &self.sync.round else { return };
        let at = round.at;
        if round.finished.len() + 1 < self.quorum() || self.points.accepted < at {
            return;
        }
        self.raise_base(at, app);
        self.say_sync(port);
        self.sync.round = None;
    }

    /// What was fetched from a replica of the same NORMAL view is here.
    pub(super) fn learn_base(&mut self, source: Address, app: &mut impl Application<O>) {
        if self.members().get(self.leader(self.view)) == Some(&source)
            && let Some(base) = self.sync.learning.take()
        {
            self.raise_base(base, app);
        }
    }

    /// All that was born at or below `base` and will ever commit is executed here. That is a fact, whichever replica
    /// remembers it: the next point's record contains it, and a replica that forgets it learns it again.
    fn raise_base(&mut self, base: Timestamp, app: &mut impl Application<O>) {
        if base <= self.points.base {
            return;
        }
        self.drop_undecided(base, app);
        app.close(base);
        self.points.raise_base(base);
    }

    /// Drops the groups at or below a base that have not ended: they never will.
    pub(super) fn drop_undecided(&mut self, base: Timestamp, app: &mut impl Application<O>) {
        let below = self.log.undecided().filter(|(_, group)| group.born <= base).map(|(id, _)| id);
        for id in below.collect::<Vec<_>>() {
            app.release(id);
            self.log.remove(id);
        }
    }

    /// Forgets outcomes of groups born at or below `limit` and the base, some of them, as far as no vote may need them
    /// (see `ir/vote_retention.rs`). Says whether some are left.
    pub fn trim(&mut self, limit: Timestamp, app: &mut impl Application<O>, port: &mut impl Port<O>) -> bool {
        self.vote_retention.closed(self.points.base);
        let own = self.vote_retention.let_go(limit.min(self.points.base), self.mutants);
        app.let_go(own);
        if self.leads() {
            self.vote_retention.conclude(self.quorum());
        }
        let shared = if self.mutants.has(Mutant::ForgetBelowOthersVotes) {
            own
        } else {
            self.vote_retention.forgettable()
        };
        let limit = aligned(own.min(shared));
        let mut trimmed = self.log.cut(self.points.trimmed, limit, TRIMMED_GROUPS);
        loop {
            let lower = aligned(app.forgettable(trimmed));
            if lower >= trimmed {
                break;
            }
            trimmed = lower;
        }
        if trimmed <= self.points.trimmed {
            return false;
        }
        self.forget(trimmed, app);
        self.set_points(|points| points.trimmed = trimmed, port);
        trimmed < limit
    }

    pub(super) fn forget(&mut self, trimmed: Timestamp, app: &mut impl Application<O>) {
        for id in self.log.born_up_to(trimmed).collect::<Vec<_>>() {
            self.log.remove(id);
        }
        app.trim(trimmed);
    }

    /// From whom the application's state must come, as the record is not enough.
    pub fn behind(&self) -> Option<Address> {
        self.behind
    }

    /// The state does not come: what to do about that is left to the next message that shows it.
    pub fn not_behind(&mut self) {
        self.behind = None;
    }

    /// The application's state is now another replica's, as it was when that one had trimmed up to `base`, perhaps with
    /// later effects. What this replica knows beyond is executed again.
    pub fn state_arrived(&mut self, base: Timestamp, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        self.behind = None;
        self.take_state(base, app);
        self.persist_points(port);
        for (id, group) in self.log.undecided() {
            if let Some(held) = &group.held {
                app.hold(id, &held.operation);
            }
        }
        self.look_again(app, port);
    }

    /// See `state_arrived`; during recovery nothing is held yet.
    pub(super) fn take_state(&mut self, base: Timestamp, app: &mut impl Application<O>) {
        for id in self.log.born_up_to(base).collect::<Vec<_>>() {
            self.log.remove(id);
        }
        self.points.raise_base(base);
        self.points.trimmed = self.points.trimmed.max(base);
        app.close(self.points.base);
        app.trim(self.points.trimmed);
        let again = !self.mutants.has(Mutant::StateWithoutRecord);
        for (id, group) in self.log.since(0).filter(|_| again) {
            if let Some(outcome) = &group.outcome {
                app.execute_inconsistent(id, outcome);
            }
        }
    }
}

impl Points {
    pub(super) fn raise_base(&mut self, base: Timestamp) {
        self.base = self.base.max(base);
        self.accepted = self.accepted.max(self.base);
        self.floor = self.floor.max(self.accepted);
    }
}
