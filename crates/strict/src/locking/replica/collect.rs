//! The leader of the first participant collects the votes of the others, and decides (Spanner, 4.2.1).
//!
//! ```text
//!  coordinator -- Prepare(collector) --> leaders of all participants
//!  others:   vote -> entry -> Vote --> first participant's leader
//!  first:    its own vote is not written: once all votes are here, one entry commits with its part
//!            -> Ended to the coordinator, Decide to the others, each of which tells the coordinator when it has ended
//! ```
//!
//! The tally is the leader's, for its term. A later leader refuses the question of an earlier term, and what others
//! ask for ([`Message::OutcomeQuery`]) becomes an abort: so whoever forgets votes has not decided, and will not.

use super::decide::VoteRequest;
use super::{Replica, Step};
use crate::locking::leader::Stage;
use crate::locking::machine::Entry;
use crate::locking::message::Message;
use crate::locking::options::Concurrency;
use crate::{Mutant, Part};
use std::sync::Arc;
use types::{Address, Timestamp, TransactionId};

impl Replica {
    /// Who collects the votes, if that is another shard's leader.
    pub(super) fn collector(&self, vote_request: &VoteRequest) -> Option<Address> {
        let first = vote_request.part.participants.first().filter(|first| **first != self.shard)?;
        self.topology.replicas(*first).get(vote_request.collector?).copied()
    }

    /// Says yes, to whoever collects the votes.
    pub(super) fn tell_vote(
        &self,
        transaction: TransactionId,
        at: Timestamp,
        coordinator: Address,
        collector: Option<Address>,
        step: &mut Step<'_, '_>,
    ) {
        let Some(collector) = collector else {
            return step.out.send(coordinator, Message::Prepared { transaction, at });
        };
        let voter = self.topology.replicas(self.shard)[self.index];
        step.out.send(collector, Message::Vote { transaction, at, voter });
    }

    /// The coordinator has retried: it learns which shards have voted, although another node collects the votes.
    pub(super) fn repeat_vote(
        &mut self,
        from: Address,
        vote_request: &VoteRequest,
        at: Timestamp,
        step: &mut Step<'_, '_>,
    ) {
        let (id, collector) = (vote_request.transaction, self.collector(vote_request));
        if collector.is_some() {
            step.out.send(from, Message::Prepared { transaction: id, at });
        }
        self.tell_vote(id, at, from, collector, step);
    }

    /// Sends a refusal to the node that collects the votes.
    pub(super) fn tell_refusal(
        &self,
        vote_request: &VoteRequest,
        refusal: &Message,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(collector) = self.collector(vote_request) {
            step.out.send(collector, refusal.clone());
        }
    }

    /// Nothing stands in the way here; the others are waited for.
    pub(super) fn collect(&mut self, from: Address, vote_request: VoteRequest, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let VoteRequest { transaction, floor, span, part, .. } = vote_request;
        leader.open(transaction, from, step.now.instant);
        leader.locks.make_firm(transaction);
        let stage = Stage::Collecting { part: Arc::new(part), floor, span };
        leader.advance(transaction, stage, step.now.instant);
        self.decide_collected(transaction, step);
    }

    /// Another participant's leader votes yes.
    pub(super) fn on_vote(
        &mut self,
        from: Address,
        id: TransactionId,
        (at, voter): (Timestamp, Address),
        step: &mut Step<'_, '_>,
    ) {
        let Some((shard, _)) = self.topology.find(voter) else { return };
        if let Some(outcome) = self.machine.outcomes().get(&id) {
            return step.out.send(voter, Message::Decide { transaction: id, floor: 0, at: outcome.at() });
        }
        let Some(leader) = &mut self.leader else {
            let passed_on = self.topology.find(from).is_some_and(|(of, _)| of == self.shard);
            if let Some(leader) = self.log.leader().filter(|_| !passed_on) {
                let leader = self.topology.replicas(self.shard)[leader];
                step.out.send(leader, Message::Vote { transaction: id, at, voter });
            }
            return;
        };
        if leader.is_closed(id) || self.machine.is_over(id) {
            return step.out.send(voter, Message::Decide { transaction: id, floor: 0, at: None });
        }
        let coordinator = self.topology.coordinator(id.process);
        let open = leader.open(id, coordinator, step.now.instant);
        open.votes.insert(shard, (at, voter));
        if open.blocked.is_empty() {
            self.decide_collected(id, step);
        } else {
            // What is left of it to this shard may have waited for that.
            self.ask_again([id], step);
        }
    }

    /// Another participant's leader has refused for good.
    pub(super) fn on_refusal(&mut self, from: Address, id: TransactionId) {
        let Some(leader) = self.leader.as_mut().filter(|_| self.topology.find(from).is_some()) else {
            return;
        };
        let decided = |stage: &Stage| !matches!(stage, Stage::Executing | Stage::Collecting { .. });
        if !leader.open.get(&id).is_some_and(|open| decided(&open.stage)) {
            leader.close(id);
        }
    }

    /// The part of a transaction whose votes are collected here.
    pub(super) fn collected(&self, id: TransactionId) -> Option<Arc<Part>> {
        let stage = &self.leader.as_ref()?.open.get(&id)?.stage;
        stage.part().filter(|_| matches!(stage, Stage::Collecting { .. })).cloned()
    }

    /// Puts the decision into the log once every vote is here.
    fn decide_collected(&mut self, id: TransactionId, step: &mut Step<'_, '_>) {
        let Some(leader) = &mut self.leader else { return };
        let Some(open) = leader.open.get(&id) else { return };
        let Stage::Collecting { part, floor, span } = &open.stage else { return };
        let mut others = part.participants.iter().filter(|other| **other != self.shard);
        if !others.all(|other| open.votes.contains_key(other)) {
            return;
        }
        let (part, floor, span, coordinator) = (part.clone(), *floor, *span, open.coordinator);
        let voted = open.votes.values().map(|(at, _)| *at).max().unwrap_or(Timestamp::ZERO);
        let at = leader.timestamp(self.machine.latest().max(span.from()).max(voted), step.now.wall);
        if span.is_over(at) {
            // A key that was found alive has expired at the commit timestamp.
            return self.refuse(coordinator, id, None, step);
        }
        let entry = Entry::Commit { transaction: id, floor, at, part: Some((*part).clone()) };
        let Some(index) = self.propose(&entry) else { return self.redirect(coordinator, id, step) };
        if let Some(leader) = &mut self.leader {
            leader.advance(id, Stage::Proposed { part: part.clone() }, step.now.instant);
            if self.options.concurrency == Concurrency::Locking {
                leader.commits(id, &part, at, index);
            }
        }
        if self.options.mutants.has(Mutant::VoteBeforeLog) {
            step.out.send(coordinator, Message::Ended { transaction: id, at: Some(at) });
        }
    }
}
