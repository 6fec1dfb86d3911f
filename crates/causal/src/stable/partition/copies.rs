//! A partition with copies in several processes of its region (`replication::copies`; Corrections 22; decision 0032).
//!
//! One copy leads; the others apply its records, as a recovery does. What no record says, because it is learnt again
//! after a restart, the leader tells them now and then, so that they keep no more than it does.
//!
//! A leader may have been deposed without knowing it. Its messages without a record are right nevertheless: its
//! installed time is at or below what the log promises, and below every proposal that the log has; the next leader
//! places everything above, and decides those proposals above. Before it answers a query that another copy may know
//! more about, it writes a record, which the log accepts from the present leader only. So it does before it shows a
//! snapshot beyond what it has installed and received itself.

use super::{Partition, Status, long_before};
use crate::stable::message::Message;
use crate::stable::record::{Progress, Record};
use crate::stable::stamp::Stamp;
use crate::stable::{Node, Times};
use protocol::Outputs;
use std::borrow::Cow;
use types::{RegionId, TransactionId};

/// How many histories that nobody needs any more are folded with each record that is applied.
const FOLDED: usize = 8;

impl<S: Times> Partition<S> {
    /// One like this before its recovery.
    pub(in crate::stable) fn fresh(&self) -> Self {
        Partition::new(self.topology.clone(), self.region, self.index, self.options)
    }

    /// It leads no more: what lasted for its life is forgotten.
    pub(in crate::stable) fn demote(&mut self) {
        let fresh = self.fresh();
        let led = std::mem::replace(self, fresh);
        self.clock = led.clock;
        self.store = led.store;
        self.participant = led.participant;
        self.held = led.held;
        self.decisions = led.decisions;
        self.origins = led.origins;
        self.outbox = led.outbox;
        (self.installed, self.promised) = (led.installed, led.promised);
        (self.stable, self.horizon) = (led.stable, led.horizon);
        (self.promised_dependencies, self.stability_frontier) =
            (led.promised_dependencies, led.stability_frontier);
        (self.checkpointing, self.lent) = (led.checkpointing, led.lent);
        (self.gaps, self.forgetful, self.fence) = (led.gaps, led.forgetful, led.fence);
        self.evictions = led.evictions;
        self.restart_evictions();
        self.deferred_drop = led.deferred_drop;
        // What led has taken beyond its records counts: what they say of gaps is made good here.
        self.gaps &= led.status != Status::Serving;
    }

    /// The next piece of everything, for another copy.
    pub(in crate::stable) fn piece(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        self.tell(cursor, chunk)
    }

    /// While another copy takes the state, the horizon stays.
    pub(in crate::stable) fn lend(&mut self, lent: bool) {
        self.lent = lent;
    }

    /// The leader took something from its peers that is in no record.
    pub(in crate::stable) fn is_outdated(&self) -> bool {
        self.status == Status::Recovering && self.gaps
    }

    /// Tells the copies that follow how far this one is.
    pub(super) fn tell_progress(&mut self, out: &mut Outputs<'_, Node<S>>) {
        if !self.options.copied {
            return;
        }
        let held = self.links.keys().map(|peer| (*peer, self.outbox.held_by(*peer)));
        let progress = Progress {
            installed: self.installed,
            horizon: self.horizon.whole(),
            stability_frontier: self.stability_frontier,
            received: self.origins.iter().map(|(origin, received)| (*origin, received.up_to)).collect(),
            held: held.collect(),
            settled: self.decisions.settled().collect(),
        };
        self.persist(&Record::Progress(Cow::Owned(progress)), out);
    }

    /// All transactions of these coordinators below these have ended.
    pub(super) fn recover_settled(&mut self, known: &[TransactionId]) {
        for settled in known {
            let _: bool = self.decisions.admit(*settled, settled.number, |decided| decided.outlives);
        }
    }

    /// The progress that the leader reported.
    pub(super) fn follow_progress(&mut self, progress: &Progress) {
        self.installed = self.installed.max(progress.installed);
        for (at, id, outgoing) in self.participant.apply_through(self.installed) {
            self.outbox.push(at, id, outgoing.bytes(), outgoing);
        }
        for (region, at) in &progress.received {
            if let Some(origin) = self.origins.get_mut(region) {
                origin.up_to = origin.up_to.max(*at);
                let up_to = origin.up_to;
                origin.above.retain(|(at, _)| *at > up_to);
            }
        }
        progress.held.iter().for_each(|(region, at): &(RegionId, _)| self.outbox.received(*region, *at));
        self.recover_settled(&progress.settled);
        if self.evictions.is_searching() {
            // The leader has given up what is above a cut: of what is still to be given up here, nothing may be folded.
            return;
        }
        if !self.checkpointing && !self.lent {
            self.raise_horizon(S::at(progress.horizon));
        }
        self.stability_frontier = self.stability_frontier.max(progress.stability_frontier);
        self.store.set_stability_frontier(Stamp::last_at(self.stability_frontier));
    }

    /// Frees some of what is behind the horizon, and gives up some of what is above a cut, with each record that a following
    /// copy applies.
    pub(super) fn fold_behind(&mut self) {
        if self.options.copied {
            self.store.fold_some(FOLDED);
            self.store.pass_time(self.installed.wall().as_millis());
            self.store.pack_some(FOLDED, Stamp::last_at(long_before(self.installed.wall())));
            self.give_up_some();
        }
    }

    /// A copy that no longer leads may answer with stale times: so the log confirms its leadership first.
    pub(super) fn confirm(&mut self, message: &Message<S>, out: &mut Outputs<'_, Node<S>>) {
        use Message::{Agreement, Ask, HoldingsQuery, OutcomeQuery, Query, Standing};
        let asks = matches!(
            message,
            HoldingsQuery
                | Ask { .. }
                | OutcomeQuery { .. }
                | Query { .. }
                | Standing { .. }
                | Agreement { .. }
        );
        if asks && self.options.copied && self.status != Status::Recovering {
            self.write_promise(out);
        }
    }

    /// The log has everything that the copy may have announced of this snapshot; the copy asks the log again for what
    /// is beyond it.
    pub(super) fn vouch(&mut self, snapshot: S, out: &mut Outputs<'_, Node<S>>) {
        // An optimistic snapshot waits for what it shows, and for a promise in the log.
        if !self.options.copied || S::OPTIMISTIC {
            return;
        }
        let known = snapshot.reach() <= self.installed
            && snapshot.whole() <= crate::stable::oldest_of(self.received());
        if !known && self.vouched.newest(snapshot) != self.vouched {
            self.vouched = self.vouched.newest(snapshot);
            self.write_promise(out);
        }
    }

    /// Says nothing new: that the log takes it is what counts.
    fn write_promise(&mut self, out: &mut Outputs<'_, Node<S>>) {
        let promise = Record::Promise { until: self.promised, observed: self.promised_dependencies };
        self.persist(&promise, out);
    }
}
