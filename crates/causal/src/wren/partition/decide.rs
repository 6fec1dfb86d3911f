//! Decisions and doubt (Wren, Algorithm 6, lines 20 to 24; Corrections 23, 34 and 73).
//!
//! The decider's log decides: its `Committed` record is the decision, and a transaction of which it knows nothing is
//! aborted. It says so only after a record that keeps it from committing later.

use super::{Decided, Partition, Pending, effects_of};
use crate::wren::message::{Gained, Message};
use crate::wren::record::Record;
use crate::wren::{Node, Timer};
use protocol::{Now, Outputs};
use types::{Address, Timestamp, TransactionId};

impl Partition {
    pub(super) fn on_commit(
        &mut self,
        from: Address,
        id: TransactionId,
        at: Timestamp,
        out: &mut Outputs<'_, Node>,
    ) {
        if let Some(pending) = self.participant.take(id) {
            self.persist(&Record::Committed { id, at }, out);
            self.commit_pending(id, at, pending);
        }
        // Without a trace of it the transaction has ended everywhere, and this is a late repetition.
        if let Some(decided) = self.decisions.get(id) {
            out.send(from, Message::CommitResp { id, at: decided.at });
        }
    }

    /// The effects of a transaction that was prepared here take their place.
    pub(super) fn commit_pending(&mut self, id: TransactionId, at: Timestamp, pending: Pending) {
        self.clock.recover(at);
        self.let_go(id, &pending.pledges);
        self.commit_effects(self.stamp(id, at, pending.depends_on), effects_of(&pending.pledges));
        let outlives = pending.decider == self.index;
        self.decisions.decide(id, Decided { at: Some(at), outlives, gained: Gained::default() });
    }

    /// The first decision stands: what has committed stays committed.
    pub(super) fn on_abort(&mut self, id: TransactionId, out: &mut Outputs<'_, Node>) {
        if self.decisions.get(id).is_none() {
            self.persist(&Record::Aborted { id }, out);
            self.abort(id);
        }
    }

    pub(super) fn abort(&mut self, id: TransactionId) {
        if let Some(pending) = self.participant.take(id) {
            self.let_go(id, &pending.pledges);
        }
        self.decisions.decide(id, Decided { at: None, outlives: false, gained: Gained::default() });
    }

    pub(super) fn on_query(&mut self, from: Address, id: TransactionId, out: &mut Outputs<'_, Node>) {
        if self.decisions.get(id).is_none() {
            self.on_abort(id, out);
        }
        let answer = match self.decisions.get(id).and_then(|decided| decided.at) {
            Some(at) => Message::Commit { id, at },
            None => Message::Abort { id },
        };
        out.send(from, answer);
    }

    /// Asks about what has waited too long, and aborts it where the decision is this partition's own.
    pub(super) fn on_doubt(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let limit = self.options.doubt_after;
        let overdue = |pending: &Pending| now.instant - pending.since >= limit;
        let doubtful: Vec<(TransactionId, u16)> = (self.participant.undecided())
            .filter(|(_, _, pending)| overdue(pending))
            .map(|(id, _, pending)| (id, pending.decider))
            .collect();
        for (id, decider) in doubtful {
            if decider == self.index {
                self.on_abort(id, out);
            } else {
                out.send(self.address_of(decider), Message::Query { id });
            }
        }
        out.arm(Timer::Doubt, now.instant + limit / 4);
    }
}
