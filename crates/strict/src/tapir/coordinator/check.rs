//! Read-only transactions end without Prepare: a check that what they observed is still current, by f+1 replicas of
//! each shard, in one round trip, without a lock or a record (Corrections 16). The coordinator queries the f+1
//! closest; the others only where one of these objects, is in another view or does not answer in its usual time, or a
//! key is hot.
//!
//! Let s be the moment at which the check is sent. What was observed was decided before it was read, hence before s.
//! Conversely an effect that matters to an observation and was decided before s was held or executed by f+1 replicas
//! of its shard, or is in the record that a later view started with; the f+1 replicas that answer in one view include
//! one that knows of it, and that one would object. So at s everything observed was exactly what was decided, on
//! every key: the transaction takes place at s, in the order of decisions, with which the stamps of conflicting
//! transactions agree.
//!
//! For a transaction of one shard whose reads were all answered by one replica in one step, the coordinator queries f
//! others only, for that step is the replica's own answer: let s be its moment. What the replica had executed was
//! decided by then, it reported everything that it held prepared, and the others answer later than s.

use super::super::message::Message;
use super::super::operation::{Part, Vote};
use super::transaction::{Conflict, OneReplicaRead, Phase, Transaction, names_many, parts};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::coordinator::Purpose;
use crate::ir::{epoch_of, quorum};
use crate::small_map::SmallMap;
use smallvec::SmallVec;
use std::sync::Arc;
use types::Instant;

/// A transaction that was refused so often prepares, so that writers wait for it in turn.
const CHECKS: u32 = 2;

/// A check in progress.
#[derive(Debug)]
pub struct Check {
    /// When the coordinator last queried replicas.
    since: Instant,
    /// By shard: what is to be checked.
    parts: SmallMap<u16, Arc<Part>, 1>,
    /// By shard: the replicas that the coordinator has queried.
    queried: SmallMap<u16, SmallVec<[usize; 8]>, 1>,
    /// By shard and replica: its view, and whether it objects.
    answers: SmallMap<u16, SmallMap<usize, (u64, bool), 3>, 1>,
}

impl Check {
    /// The shard that fewest replicas have answered for, and how many have.
    pub(super) fn behind(&self) -> (u16, usize) {
        let answered = self.answers.iter().map(|(shard, answers)| (*shard, answers.len()));
        answered.min_by_key(|(_, answered)| *answered).unwrap_or_default()
    }

    /// The shards of which this says that too few replicas have answered.
    pub(super) fn lacking(&self, lacks: impl Fn(u16, usize) -> bool) -> impl Iterator<Item = u16> {
        let answered = |shard: &u16| self.answers.get(shard).map_or(0, |answers| answers.len());
        self.parts.iter().map(|(shard, _)| *shard).filter(move |shard| lacks(*shard, answered(shard)))
    }
}

impl Coordinator {
    /// An evaluated transaction commits: by a check if it changes nothing, else by Prepare. A single read that a
    /// quorum could not answer was as good as checked already.
    pub(super) fn conclude(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let single = transaction.purpose == Purpose::Auto && transaction.steps.list().len() == 1;
        let checks = self.options.reads_without_stamps()
            && !single
            && transaction.retries < CHECKS
            && transaction.watches.is_empty()
            && transaction.steps.is_read_only()
            && !transaction.steps.invocations().any(|(_, invoked)| names_many(invoked));
        let parts = if checks { parts(&transaction) } else { SmallMap::default() };
        if parts.is_empty() {
            return self.prepare(transaction, step);
        }
        let whole = |seen: &OneReplicaRead| {
            let present = epoch_of(seen.view) == self.topology.epoch(seen.shard);
            present && seen.steps == transaction.steps.list().len() && parts.len() == 1
        };
        let seen = transaction.own.one_replica_read.filter(whole);
        let answer = |seen: OneReplicaRead| (seen.member, (seen.view, false));
        let answers = parts.keys().map(|shard| (*shard, seen.map(answer).into_iter().collect())).collect();
        let shared = |(shard, (part, _))| (shard, Arc::new(part));
        let parts: SmallMap<u16, Arc<Part>, 1> = parts.into_entries().map(shared).collect();
        let hot = |part: &Part| {
            part.invocations.iter().any(|invoked| self.protocol.hot.is_hot(&invoked.key, step.now.instant))
        };
        let first = |(shard, part): (&u16, &Arc<Part>)| {
            let answered = seen.map(|seen| seen.member);
            (*shard, self.first_queried(*shard, answered, hot(part), step.now.instant))
        };
        let queried = parts.iter().map(first).collect();
        let check = Check { since: step.now.instant, parts, queried, answers };
        for (shard, members) in check.queried.iter() {
            // A replica that has seen all of it comes first.
            let members = &members[usize::from(seen.is_some())..];
            self.ask_check(&transaction, &check.parts[shard], *shard, members, step);
        }
        transaction.phase = Phase::Checking(check);
        self.count_checks(transaction, step);
    }

    fn ask_check(
        &mut self,
        transaction: &Transaction,
        part: &Arc<Part>,
        shard: u16,
        members: &[usize],
        step: &mut Step<'_, '_>,
    ) {
        for member in members {
            self.protocol.replicas.queried(shard, *member, step.now.instant);
            let message = Message::Check { transaction: transaction.id, part: part.clone() };
            step.out.send(self.topology.replicas(shard)[*member], message);
        }
    }

    /// Sends the check to the remaining replicas; false if there are none.
    fn ask_others(&mut self, transaction: &mut Transaction, step: &mut Step<'_, '_>) -> bool {
        let phase = std::mem::take(&mut transaction.phase);
        let Phase::Checking(mut check) = phase else { return false };
        let mut any = false;
        for (shard, queried) in check.queried.iter_mut() {
            let members = 0..self.topology.replicas(*shard).len();
            let others: SmallVec<[usize; 8]> = members.filter(|member| !queried.contains(member)).collect();
            self.ask_check(transaction, &check.parts[shard], *shard, &others, step);
            any |= !others.is_empty();
            queried.extend(others);
        }
        if any {
            check.since = step.now.instant;
        }
        transaction.phase = Phase::Checking(check);
        any
    }

    /// A shard has other replicas: the coordinator queries them, for the same moment.
    pub(super) fn check_anew(&mut self, transaction: &mut Transaction, shard: u16, step: &mut Step<'_, '_>) {
        let Phase::Checking(check) = &mut transaction.phase else { return };
        let Some(part) = check.parts.get(&shard).cloned() else { return };
        check.since = step.now.instant;
        check.answers.insert(shard, SmallMap::default());
        let members: SmallVec<[usize; 8]> = (0..self.topology.replicas(shard).len()).collect();
        check.queried.insert(shard, members.clone());
        self.ask_check(transaction, &part, shard, &members, step);
    }

    pub(super) fn on_check_reply(
        &mut self,
        (shard, member): (u16, usize),
        number: u64,
        view: u64,
        (vote, hint): (Vote, Option<u32>),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take(number) else { return };
        let Phase::Checking(check) = &mut transaction.phase else { return self.keep(transaction, step) };
        if let Some(answers) = check.answers.get_mut(&shard) {
            answers.insert(member, (view, vote != Vote::PrepareOk));
        }
        if vote == Vote::Abort {
            // Something was missed for good: Prepare would be refused too.
            let part = check.parts.get(&shard);
            let missed = hint.and_then(|index| part?.invocations.get(index as usize));
            let conflict = Conflict { key: missed.map(|invoked| (*invoked.key).into()), watch: false };
            self.prefer(shard, member, step.now.instant);
            return self.refuse(transaction, &conflict, step);
        }
        self.count_checks(transaction, step);
    }

    fn count_checks(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::Checking(check) = &transaction.phase else { return self.keep(transaction, step) };
        let believing = self.options.mutants.has(Mutant::SingleReplicaReads);
        let (mut current, mut disputed, mut hopeless) = (true, false, false);
        for (shard, answers) in check.answers.iter() {
            let members = self.topology.replicas(*shard).len();
            let needed = if believing { 1 } else { quorum(members) };
            let agree = |of: u64| answers.values().filter(|(view, objects)| *view == of && !objects).count();
            let agreed = answers.values().any(|(view, _)| agree(*view) >= needed);
            current &= agreed;
            disputed |= !agreed && (answers.len() >= needed || answers.values().any(|(_, objects)| *objects));
            hopeless |= answers.values().filter(|(_, objects)| *objects).count() > members - needed;
        }
        if current {
            return self.reply_results(transaction, step);
        }
        if hopeless {
            transaction.phase = Phase::Executing;
            return self.prepare(transaction, step);
        }
        if disputed {
            self.ask_others(&mut transaction, step);
        }
        self.keep(transaction, step);
    }

    /// No more answers are expected: the coordinator queries the other replicas, or else the transaction prepares.
    pub(super) fn on_check_timer(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if self.ask_others(&mut transaction, step) {
            return self.keep(transaction, step);
        }
        transaction.phase = Phase::Executing;
        self.prepare(transaction, step);
    }

    /// When a check goes on to others, or is given up: as soon as no other answer is expected. Without f+1 answers of
    /// each shard it is given up late.
    pub(super) fn check_until(&self, check: &Check) -> Instant {
        let latest = check.since + self.options.read_timeout;
        let mut expected = check.since;
        for (shard, answers) in check.answers.iter() {
            let (members, queried) = (self.topology.replicas(*shard).len(), &check.queried[shard]);
            if answers.len() < quorum(members) && queried.len() == members {
                return latest;
            }
            for member in queried.iter().filter(|member| !answers.contains_key(member)) {
                let longest = self.options.fast_timeout;
                let until = self.protocol.replicas.expected_until(*shard, *member, check.since, longest);
                expected = expected.max(until);
            }
        }
        expected.min(latest)
    }
}
