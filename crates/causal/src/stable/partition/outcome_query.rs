//! A decider that lost records cannot take "unknown" for "aborted" (Corrections 23 and 67): it may have decided,
//! announced the decision, and forgotten it. It asks the other partitions of its region, or of all regions where
//! transactions have parts in several. If one of them knows the decision, that stands. If none does, no process has
//! acted on a decision, and prepared participants accept none from any other process any more: the decider aborts. Only
//! a reply to the client may then have said otherwise; that decision was in what the log lost.
//!
//! Participants that wait for the answer retry, so the decider retains nothing about them.

use super::{Decided, Partition};
use crate::stable::message::{EvaluationResults, Message};
use crate::stable::record::Record;
use crate::stable::{Node, Times};
use protocol::Outputs;
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::{Address, RegionId, Timestamp, TransactionId};

/// A question about a transaction that may have been forgotten.
#[derive(Debug)]
pub(super) struct PendingOutcomeQuery {
    unanswered: BTreeSet<Address>,
}

impl<S: Times> Partition<S> {
    /// Begins to find out what became of a transaction, unless that is under way.
    pub(super) fn query_outcome(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.outcome_queries.contains_key(&id) {
            return;
        }
        let unanswered = self.possible_participants();
        unanswered.iter().for_each(|address| out.send(*address, Message::OutcomeQuery { id }));
        self.outcome_queries.insert(id, PendingOutcomeQuery { unanswered });
        self.end_outcome_query(id, out);
    }

    /// Who may have a part in a transaction that has one here.
    fn possible_participants(&self) -> BTreeSet<Address> {
        let regions = 0..self.topology.regions.len() as u16;
        let regions = regions.map(RegionId).filter(|region| S::UNIVERSAL || *region == self.region);
        let regions = regions.filter(|region| !self.evictions.has(*region));
        let replicas = regions.flat_map(|region| self.topology.held(region));
        replicas.filter(|(index, _)| *index != self.index).map(|(_, address)| address).collect()
    }

    /// Retries the query at those that have not answered.
    pub(super) fn query_outcomes_again(&mut self, out: &mut Outputs<'_, Node<S>>) {
        let ids: Vec<TransactionId> = self.outcome_queries.keys().copied().collect();
        for id in ids {
            if self.is_left_to_survivors(id) {
                self.outcome_queries.remove(&id);
                continue;
            }
            for address in self.outcome_queries.get(&id).into_iter().flat_map(|query| &query.unanswered) {
                out.send(*address, Message::OutcomeQuery { id });
            }
            self.end_outcome_query(id, out);
        }
    }

    pub(super) fn on_outcome_query(
        &mut self,
        from: Address,
        id: TransactionId,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        if self.is_filling() {
            return;
        }
        let at = self.decisions.get(id).and_then(|decided| decided.at).or(self.found(id));
        if at.is_none()
            && let Some(pending) = self.participant.prepared_mut(id)
        {
            pending.fenced = true;
        }
        out.send(from, Message::OutcomeReply { id, at });
    }

    pub(super) fn on_outcome_reply(
        &mut self,
        from: Address,
        id: TransactionId,
        at: Option<Timestamp>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(query) = self.outcome_queries.get_mut(&id) else { return };
        query.unanswered.remove(&from);
        if self.is_left_to_survivors(id) {
            self.outcome_queries.remove(&id);
            return;
        }
        let Some(at) = at else { return self.end_outcome_query(id, out) };
        self.outcome_queries.remove(&id);
        self.commit_prepared(id, at, out);
        if self.decisions.get(id).is_none() {
            let results = Cow::Owned(EvaluationResults::default());
            self.persist(&Record::Decided { id, at: Some(at), outlives: true, results }, out);
            self.decisions
                .decide(id, Decided { at: Some(at), outlives: true, results: EvaluationResults::default() });
        }
    }

    /// A lost region answers nothing more.
    pub(super) fn inquire_without(&mut self, region: RegionId) {
        let topology = &self.topology;
        let is_of_it = |address: &Address| topology.locate(*address).is_some_and(|(of, _)| of == region);
        for query in self.outcome_queries.values_mut() {
            query.unanswered.retain(|address| !is_of_it(address));
        }
    }

    /// Everybody has answered, and nobody knows of a decision.
    fn end_outcome_query(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.outcome_queries.get(&id).is_some_and(|query| query.unanswered.is_empty()) {
            self.outcome_queries.remove(&id);
            self.on_abort(id, out);
        }
    }
}
