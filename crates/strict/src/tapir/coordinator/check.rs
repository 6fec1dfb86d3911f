//! Read-only transactions end without Prepare: a check that what they observed is still current, by f+1 replicas of
//! each shard, in one round trip, without a lock or a record (Corrections 16).
//!
//! Let s be the moment at which the check is sent. What was observed was decided before it was read, hence before s.
//! Conversely an effect that matters to an observation and was decided before s was held or executed by f+1 replicas
//! of its shard, or is in the record that a later view started with; the f+1 replicas that answer in one view include
//! one that knows of it, and that one would object. So at s everything observed was exactly what was decided, on
//! every key: the transaction takes place at s, in the order of decisions, with which the stamps of conflicting
//! transactions agree.

use super::super::message::Message;
use super::super::operation::{Part, Vote};
use super::transaction::{Conflict, Phase, Transaction, parts};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::coordinator::Purpose;
use crate::ir::quorum;
use std::collections::BTreeMap;
use types::Instant;

/// A transaction that was refused so often prepares, so that writers wait for it in turn.
const CHECKS: u32 = 2;

/// A check in progress.
#[derive(Debug)]
pub struct Check {
    since: Instant,
    /// By shard: what is to be checked.
    parts: BTreeMap<u16, Part>,
    /// By shard and replica: its view, and whether it objects.
    answers: BTreeMap<u16, BTreeMap<usize, (u64, bool)>>,
}

impl Check {
    /// The shard that fewest replicas have answered for, and how many have.
    pub(super) fn behind(&self) -> (u16, usize) {
        let answered = self.answers.iter().map(|(shard, answers)| (*shard, answers.len()));
        answered.min_by_key(|(_, answered)| *answered).unwrap_or_default()
    }
}

impl Coordinator {
    /// An evaluated transaction commits: by a check if it changes nothing, else by Prepare. A single read that a
    /// quorum could not answer was as good as checked already.
    pub(super) fn conclude(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let single = transaction.purpose == Purpose::Auto && transaction.steps.list.len() == 1;
        let checks = self.options.reads_without_stamps()
            && !single
            && transaction.retries < CHECKS
            && transaction.watches.is_empty()
            && transaction.steps.is_read_only();
        let parts = if checks { parts(&transaction) } else { BTreeMap::new() };
        if parts.is_empty() {
            return self.prepare(transaction, step);
        }
        let answers = parts.keys().map(|shard| (*shard, BTreeMap::new())).collect();
        let parts: BTreeMap<u16, Part> = parts.into_iter().map(|(shard, (part, _))| (shard, part)).collect();
        for (shard, part) in &parts {
            for (member, replica) in self.topology.replicas(*shard).iter().enumerate() {
                self.protocol.replicas.asked(*shard, member, step.now.instant);
                step.out.send(*replica, Message::Check { transaction: transaction.id, part: part.clone() });
            }
        }
        transaction.phase = Phase::Checking(Check { since: step.now.instant, parts, answers });
        self.keep(transaction, step);
    }

    pub(super) fn on_check_reply(
        &mut self,
        (shard, member): (u16, usize),
        number: u64,
        view: u64,
        (vote, hint): (Vote, Option<u32>),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        let Phase::Checking(check) = &mut transaction.phase else { return self.keep(transaction, step) };
        if let Some(answers) = check.answers.get_mut(&shard) {
            answers.insert(member, (view, vote != Vote::PrepareOk));
        }
        if vote == Vote::Abort {
            // Something was missed for good: Prepare would be refused too.
            let part = check.parts.get(&shard);
            let missed = hint.and_then(|index| part?.invocations.get(index as usize));
            let conflict = Conflict { key: missed.map(|invoked| invoked.key.clone()), watch: false };
            self.prefer(shard, member, step.now.instant);
            return self.refuse(transaction, &conflict, step);
        }
        self.count_checks(transaction, step);
    }

    fn count_checks(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::Checking(check) = &transaction.phase else { return self.keep(transaction, step) };
        let believing = self.options.mutants.has(Mutant::SingleReplicaReads);
        let (mut current, mut hopeless) = (true, false);
        for (shard, answers) in &check.answers {
            let members = self.topology.replicas(*shard).len();
            let needed = if believing { 1 } else { quorum(members) };
            let agree = |of: u64| answers.values().filter(|(view, objects)| *view == of && !objects).count();
            current &= answers.values().any(|(view, _)| agree(*view) >= needed);
            hopeless |= answers.values().filter(|(_, objects)| *objects).count() > members - needed;
        }
        if current {
            return self.reply_results(transaction, step);
        }
        if hopeless {
            transaction.phase = Phase::Executing;
            return self.prepare(transaction, step);
        }
        self.keep(transaction, step);
    }

    /// Nothing more is expected: the transaction prepares.
    pub(super) fn on_check_timer(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        transaction.phase = Phase::Executing;
        self.prepare(transaction, step);
    }

    /// When a check is given up: with f+1 answers of each shard, as soon as no other is expected.
    pub(super) fn check_until(&self, check: &Check) -> Instant {
        let latest = check.since + self.options.read_timeout;
        let mut expected = check.since;
        for (shard, answers) in &check.answers {
            let members = self.topology.replicas(*shard).len();
            if answers.len() < quorum(members) {
                return latest;
            }
            for member in (0..members).filter(|member| !answers.contains_key(member)) {
                let longest = self.options.fast_timeout;
                let until = self.protocol.replicas.expected_until(*shard, member, check.since, longest);
                expected = expected.max(until);
            }
        }
        expected.min(latest)
    }
}
