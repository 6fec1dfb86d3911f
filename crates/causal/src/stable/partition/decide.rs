//! Decisions and doubt (Wren, Algorithm 6, lines 20 to 24; Corrections 23, 34 and 73).
//!
//! The decider's log decides: its `Committed` record is the decision, and a transaction of which it knows nothing is
//! aborted. It says so only after a record that keeps it from committing later.

use super::{Decided, Partition, Pending, Status, effects_of};
use crate::stable::message::{EvaluationResults, Message};
use crate::stable::record::Record;
use crate::stable::{Node, Timer, Times};
use protocol::{Now, Outputs};
use types::{Address, Timestamp, TransactionId};

impl<S: Times> Partition<S> {
    pub(super) fn on_commit(
        &mut self,
        from: Address,
        id: TransactionId,
        at: Timestamp,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let awaits = |pending: &Pending<S::Depends>| !pending.fenced || from == pending.decider;
        if self.participant.prepared(id).is_some_and(|(_, pending)| !awaits(pending))
            || self.is_left_to_survivors(id)
        {
            return;
        }
        self.commit_prepared(id, at, out);
        // Without a trace of it the transaction has ended everywhere, and this is a late repetition; unless there may
        // have been a trace.
        match self.decisions.get(id) {
            Some(decided) => out.send(from, Message::CommitResp { id, at: decided.at }),
            None if self.forgetful && self.status == Status::Serving => self.query_outcome(id, out),
            None => {}
        }
    }

    /// A transaction that is prepared here commits.
    pub(super) fn commit_prepared(
        &mut self,
        id: TransactionId,
        at: Timestamp,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if let Some(pending) = self.participant.take(id) {
            self.persist(&Record::Committed { id, at }, out);
            self.commit_pending(id, at, pending);
        }
    }

    /// The effects of a transaction that was prepared here take their place.
    pub(super) fn commit_pending(&mut self, id: TransactionId, at: Timestamp, pending: Pending<S::Depends>) {
        if S::FOLLOWS {
            self.clock.recover(at);
        }
        self.let_go(id, &pending.intents);
        self.commit_effects(self.stamp(id, at, pending.depends_on), effects_of(&pending.intents));
        let outlives = pending.decider == self.address();
        self.decisions.decide(id, Decided { at: Some(at), outlives, results: EvaluationResults::default() });
    }

    /// The first decision stands: what has committed stays committed.
    pub(super) fn on_abort(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.decisions.get(id).is_none() {
            self.persist(&Record::Aborted { id }, out);
            self.abort(id);
        }
    }

    pub(super) fn abort(&mut self, id: TransactionId) {
        if let Some(pending) = self.participant.take(id) {
            self.let_go(id, &pending.intents);
        }
        self.decisions
            .decide(id, Decided { at: None, outlives: false, results: EvaluationResults::default() });
    }

    pub(super) fn on_query(&mut self, from: Address, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.is_left_to_survivors(id) {
            return;
        }
        if self.decisions.get(id).is_none() {
            self.end_undecided(id, out);
        }
        if self.decisions.get(id).is_none() {
            return;
        }
        let answer = match self.decisions.get(id).and_then(|decided| decided.at) {
            Some(at) => Message::Commit { id, at },
            None => Message::Abort { id },
        };
        out.send(from, answer);
    }

    /// Asks about what has waited too long, and aborts it where the decision is this partition's own.
    pub(super) fn on_doubt(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let limit = self.options.doubt_after;
        let overdue = |pending: &Pending<S::Depends>| now.instant - pending.since >= limit;
        let doubtful: Vec<(TransactionId, Address)> = (self.participant.undecided())
            .filter(|(_, _, pending)| overdue(pending) && !self.has_lost_part(pending.depends_on))
            .map(|(id, _, pending)| (id, pending.decider))
            .collect();
        for (id, decider) in doubtful {
            if decider == self.address() {
                self.end_undecided(id, out);
            } else {
                out.send(decider, Message::Query { id });
            }
        }
        self.query_outcomes_again(out);
        self.drop_waiting(now);
        self.tend_evictions(now, out);
        out.arm(Timer::Doubt, now.instant + limit / 4);
    }

    /// The decider ends a transaction that it knows no decision of: unknown means aborted, unless it may have
    /// forgotten (Corrections 23 and 67).
    fn end_undecided(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        match self.forgetful {
            true => self.query_outcome(id, out),
            false => self.on_abort(id, out),
        }
    }
}
