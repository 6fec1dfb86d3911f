//! A partition with copies in several processes of its region (`replication::copies`), which stand for the paper's
//! chains (COPS, section 5.2; Corrections 42 and 67).
//!
//! One copy leads; the others apply its records, as a recovery does. What no record says, because it is learnt again after a
//! restart, the leader tells them with each promise, so that they keep no more than it does.
//!
//! A leader may have been deposed without knowing it. Reads, and who asks for its state, come to it when a quorum has confirmed
//! that it leads; what it answers to a put is in the log, refusals too. All else that it says stays true: versions that it
//! tells of are in the log, and a time that it tells is below a promise in the log.

use super::{Equivalent, Node, Partition, Status};
use crate::cops::Stamp;
use crate::cops::record::Record;
use crate::stable::record::Progress;
use crate::stable::{self, long_before};
use protocol::Outputs;
use std::borrow::Cow;
use types::TransactionId;

/// How many histories that nobody needs any more are folded with each record that is applied.
const FOLDED: usize = 8;

impl Partition {
    /// One like this before its recovery.
    pub(in crate::cops) fn fresh(&self) -> Self {
        let fresh = Partition::new(self.topology.clone(), self.region, self.index, self.options);
        Partition { handler: self.handler.clone(), ..fresh }
    }

    /// It leads no more: what lasted for its life is forgotten.
    pub(in crate::cops) fn demote(&mut self) {
        // What it has taken beyond its records counts: what they say of gaps is made good here.
        self.gaps &= self.status != Status::Serving;
        self.status = Status::Recovering;
        self.state_transfer = None;
        self.catch_up_wait = Default::default();
        self.equivalents.values_mut().for_each(|equivalent| *equivalent = Equivalent::default());
        self.checks = Default::default();
        self.lag = Default::default();
        self.giver = Default::default();
        self.expiry = Default::default();
    }

    /// While another copy takes the state, the horizon stays.
    pub(in crate::cops) fn lend(&mut self, lent: bool) {
        self.lent = lent;
    }

    /// The leader took something from its equivalents that is in no record.
    pub(in crate::cops) fn is_outdated(&self) -> bool {
        self.status == Status::Recovering && self.gaps
    }

    /// Logs what no other record says: the times received from other regions, and for followers the progress of this
    /// copy.
    pub(super) fn tell_progress(&mut self, out: &mut Outputs<'_, Node>) {
        let regions = || self.equivalents.keys().copied();
        let mut progress = Progress {
            received: regions().map(|region| (region, self.written.of(region))).collect(),
            held: regions().map(|region| (region, self.outbox.held_by(region))).collect(),
            ..Progress::default()
        };
        if self.options.copied {
            progress.installed = self.written.of(self.region);
            (progress.horizon, progress.stability_frontier) = (self.horizon, self.stable);
            progress.settled = self.answered.settled().collect();
        }
        self.persist(&Record::Common(stable::Record::Progress(Cow::Owned(progress))), out);
    }

    /// All puts of these coordinators below these have ended.
    pub(super) fn recover_settled(&mut self, known: &[TransactionId]) {
        for settled in known {
            let _: bool = self.answered.admit(*settled, settled.number, |_| false);
        }
    }

    /// What the log says of that.
    pub(super) fn follow_progress(&mut self, progress: &Progress) {
        progress.received.iter().for_each(|(origin, up_to)| self.recover_received(*origin, *up_to));
        progress.held.iter().for_each(|(peer, up_to)| self.outbox.received(*peer, *up_to));
        self.recover_settled(&progress.settled);
        self.raise_stable(progress.stability_frontier);
        if !self.checkpointing && !self.lent {
            self.raise_horizon(progress.horizon);
        }
    }

    /// Frees some of what is behind the horizon with each record that a following copy applies.
    pub(super) fn fold_behind(&mut self) {
        if self.options.copied {
            self.store.fold_some(FOLDED);
            let now = self.clock.last().wall();
            self.store.pass_time(now.as_millis());
            self.store.pack_some(FOLDED, Stamp::last_at(long_before(now)));
        }
    }
}
