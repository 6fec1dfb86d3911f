//! Coordinator recovery: a backup coordinator ends a transaction whose coordinator does not come back.
//!
//! It polls every replica of every participant shard under a new coordinator view, chooses a result per shard,
//! finalizes each choice in IR, and only then decides: a raw poll never decides (Corrections 13). It waits for no
//! other transaction, so recoveries cannot deadlock.

use super::operation::{Decision, Prepare, Transactions, Vote};
use crate::ir::{self, CoordinatorView, Entry, fast_quorum, quorum};
use crate::{Mutant, Mutants, Topology};
use std::collections::{BTreeMap, BTreeSet};
use types::{Instant, Timestamp, TransactionId};

/// What to do next.
pub(super) enum Verdict {
    /// Nothing yet.
    Wait,
    /// Finalize a result at each shard.
    Finalize(Vec<(u16, ir::Message<Transactions>)>),
    /// It is decided: execute this at each shard.
    Decided(Vec<(u16, Decision)>),
}

/// The result chosen for a shard.
#[derive(Clone, Debug)]
struct Choice {
    view: u64,
    attempt: u32,
    operation: Option<Prepare>,
    result: Vote,
}

/// What a shard's replicas have said.
#[derive(Debug)]
struct Poll {
    members: usize,
    promises: BTreeMap<usize, (u64, Entry<Transactions>)>,
    outcome: Option<Decision>,
    choice: Option<Choice>,
    confirmed: BTreeSet<usize>,
    /// The first view of the epoch that the shard's replicas are known to be of.
    first_view: u64,
}

/// One recovery of one transaction under one coordinator view.
#[derive(Debug)]
pub(super) struct Recovery {
    transaction: TransactionId,
    born: Timestamp,
    ballot: CoordinatorView,
    started: Instant,
    shards: BTreeMap<u16, Poll>,
}

impl Poll {
    /// The promises of the highest view: only those count together.
    fn counted(&self) -> impl Iterator<Item = &Entry<Transactions>> {
        let view = self.view();
        self.promises.values().filter(move |(of, _)| *of == view).map(|(_, entry)| entry)
    }

    fn view(&self) -> u64 {
        self.promises.values().map(|(view, _)| *view).max().unwrap_or(0)
    }

    fn polled(&self) -> bool {
        self.counted().count() >= quorum(self.members)
    }

    fn is_confirmed(&self) -> bool {
        self.confirmed.len() >= quorum(self.members)
    }

    /// Chooses a result for the highest attempt of the transaction; `None` until more replicas have answered.
    fn choose(&self, highest: u32) -> Option<Choice> {
        let view = self.view();
        let finalized = self.counted().filter(|entry| entry.finalized).max_by_key(|entry| entry.ballot());
        if let Some(entry) = finalized.filter(|entry| entry.ballot.round > 0 || entry.attempt == highest) {
            let (attempt, result) = (entry.attempt, entry.result);
            let operation = entry.operation.clone().or_else(|| self.operation(attempt));
            return Some(Choice { view, attempt, operation, result });
        }
        let of_highest = |entry: &&Entry<Transactions>| entry.attempt == highest;
        let ok = self.counted().filter(of_highest).filter(|entry| entry.result == Vote::PrepareOk).count();
        let unheard = self.members - self.counted().count();
        let operation = self.operation(highest);
        if ok >= quorum(self.members) {
            Some(Choice { view, attempt: highest, operation, result: Vote::PrepareOk })
        } else if ok + unheard < fast_quorum(self.members) {
            Some(Choice { view, attempt: highest, operation, result: Vote::NoVote })
        } else {
            None
        }
    }

    fn operation(&self, attempt: u32) -> Option<Prepare> {
        let of_attempt = self.promises.values().filter(|(_, entry)| entry.attempt == attempt);
        of_attempt.map(|(_, entry)| entry).find_map(|entry| entry.operation.clone())
    }
}

impl Recovery {
    pub(super) fn new(
        (transaction, born): (TransactionId, Timestamp),
        ballot: CoordinatorView,
        participants: &[u16],
        topology: &Topology,
        started: Instant,
    ) -> Self {
        let poll = |shard: &u16| Poll {
            members: topology.replicas(*shard).len(),
            promises: BTreeMap::new(),
            outcome: None,
            choice: None,
            confirmed: BTreeSet::new(),
            first_view: ir::first_view(topology.epoch(*shard)),
        };
        let shards = participants.iter().map(|shard| (*shard, poll(shard))).collect();
        Recovery { transaction, born, ballot, started, shards }
    }

    /// What is to be said until it is answered: the poll, then the choices that f+1 replicas have not confirmed.
    pub(super) fn unanswered(&self) -> Vec<(u16, ir::Message<Transactions>)> {
        if self.shards.values().any(|poll| poll.choice.is_none()) {
            let (group, born, ballot) = (self.transaction, self.born, self.ballot);
            let ask = |(shard, poll): (&u16, &Poll)| {
                (*shard, ir::Message::CoordinatorChange { group, born, ballot, view: poll.first_view })
            };
            return self.shards.iter().map(ask).collect();
        }
        let confirmed = |shard: &u16| self.shards.get(shard).is_some_and(Poll::is_confirmed);
        self.finalizations().into_iter().filter(|(shard, _)| !confirmed(shard)).collect()
    }

    pub(super) fn ballot(&self) -> CoordinatorView {
        self.ballot
    }

    /// True if the recovery queries replicas of this shard.
    pub(super) fn asks(&self, shard: u16) -> bool {
        self.shards.contains_key(&shard)
    }

    pub(super) fn born(&self) -> Timestamp {
        self.born
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// A replica has promised.
    pub(super) fn promise(
        &mut self,
        shard: u16,
        member: usize,
        ballot: CoordinatorView,
        view: u64,
        entry: Entry<Transactions>,
    ) {
        let Some(poll) = self.shards.get_mut(&shard).filter(|_| ballot == self.ballot) else { return };
        if poll.promises.get(&member).is_none_or(|(known, _)| *known <= view) {
            poll.promises.insert(member, (view, entry));
        }
    }

    /// A replica has recorded a choice.
    pub(super) fn confirm(
        &mut self,
        shard: u16,
        member: usize,
        ballot: CoordinatorView,
        view: u64,
        attempt: u32,
        result: Vote,
    ) {
        let Some(poll) = self.shards.get_mut(&shard) else { return };
        let Some(choice) = &poll.choice else { return };
        if ballot == self.ballot && (view, attempt, result) == (choice.view, choice.attempt, choice.result) {
            poll.confirmed.insert(member);
        }
    }

    /// A replica knows how the transaction ended: nothing is left to choose.
    pub(super) fn outcome(&mut self, shard: u16, decision: Decision) {
        if let Some(poll) = self.shards.get_mut(&shard) {
            poll.outcome = Some(decision);
        }
    }

    /// What follows from all that was said.
    pub(super) fn next(&mut self, mutants: Mutants) -> Verdict {
        let raw = mutants.has(Mutant::RawPollDecides);
        if let Some(known) = self.shards.values().find_map(|poll| poll.outcome.clone()) {
            return self.follow(&known);
        }
        if self.shards.values().all(|poll| poll.choice.is_some()) {
            return self.decide(raw);
        }
        if !self.shards.values().all(Poll::polled) {
            return Verdict::Wait;
        }
        let attempts = self.shards.values().flat_map(|poll| poll.counted().map(|entry| entry.attempt));
        let highest = attempts.max().unwrap_or(0);
        let choices: Vec<Option<Choice>> = self.shards.values().map(|poll| poll.choose(highest)).collect();
        if choices.iter().any(Option::is_none) {
            return Verdict::Wait;
        }
        for (poll, choice) in self.shards.values_mut().zip(choices) {
            poll.choice = choice;
        }
        if raw { self.decide(raw) } else { Verdict::Finalize(self.finalizations()) }
    }

    fn finalizations(&self) -> Vec<(u16, ir::Message<Transactions>)> {
        let message = |choice: &Choice| ir::Message::Finalize {
            group: self.transaction,
            born: self.born,
            attempt: choice.attempt,
            view: choice.view,
            ballot: self.ballot,
            operation: choice.operation.clone(),
            result: choice.result,
        };
        self.shards
            .iter()
            .filter_map(|(shard, poll)| Some((*shard, message(poll.choice.as_ref()?))))
            .collect()
    }

    /// Commit needs every shard's confirmed PREPARE-OK at one attempt; one confirmed refusal is enough to abort.
    fn decide(&self, raw: bool) -> Verdict {
        let succeeded = |poll: &&Poll| raw || poll.is_confirmed();
        let choices: Vec<&Choice> =
            self.shards.values().filter(succeeded).filter_map(|poll| poll.choice.as_ref()).collect();
        if choices.iter().any(|choice| choice.result != Vote::PrepareOk) {
            return self.follow(&Decision::Abort);
        }
        if choices.len() < self.shards.len() {
            return Verdict::Wait;
        }
        let Some(first) = choices.first() else { return Verdict::Wait };
        if choices.iter().any(|choice| choice.attempt != first.attempt) {
            return self.follow(&Decision::Abort);
        }
        let commit = |choice: &Choice| {
            let Prepare { at, part, .. } = choice.operation.clone()?;
            Some(Decision::Commit { at, part })
        };
        let decisions = self.shards.keys().copied().zip(choices.into_iter().map(commit));
        let decisions: Option<Vec<_>> = decisions.map(|(shard, decision)| Some((shard, decision?))).collect();
        decisions.map_or(Verdict::Wait, Verdict::Decided)
    }

    /// Brings a known outcome to every shard; a commit waits until some replica has reported each shard's part.
    fn follow(&self, known: &Decision) -> Verdict {
        let Decision::Commit { at, .. } = known else {
            return Verdict::Decided(self.shards.keys().map(|shard| (*shard, Decision::Abort)).collect());
        };
        let part = |poll: &Poll| match &poll.outcome {
            Some(decision) => Some(decision.clone()),
            None => {
                let mut operations = poll.promises.values().filter_map(|(_, entry)| entry.operation.clone());
                let Prepare { at, part, .. } = operations.find(|operation| operation.at == *at)?;
                Some(Decision::Commit { at, part })
            }
        };
        let decisions: Option<Vec<_>> =
            self.shards.iter().map(|(shard, poll)| Some((*shard, part(poll)?))).collect();
        decisions.map_or(Verdict::Wait, Verdict::Decided)
    }
}
