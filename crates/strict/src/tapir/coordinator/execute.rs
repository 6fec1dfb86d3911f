//! The execution period: steps are evaluated at the closest replica, or at none if they observe nothing.

use super::super::message::{Evaluation, Message, Reading};
use super::transaction::{OneReplicaRead, Phase, QuorumRead, Transaction, are_many};
use super::{Coordinator, Step, Tapir};
use crate::Mutant;
use crate::coordinator::{CommitProtocol, KeysetRead, Progress, Purpose};
use crate::ir::quorum;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Error, ErrorCode, Instant};

impl Coordinator {
    /// Begins to evaluate a transaction: a single read at all replicas, anything else once its turn has come.
    pub(super) fn begin(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if self.is_quorum_read(&transaction) {
            let (shard, key) =
                (transaction.steps.list()[0].call.shard, &transaction.steps.list()[0].call.key);
            let disputed = self.protocol.hot.is_hot(key, step.now.instant);
            let queried = self.first_queried(shard, None, disputed, step.now.instant);
            let read =
                QuorumRead { since: step.now.instant, queried: queried.clone(), answers: Default::default() };
            transaction.phase = Phase::QuorumRead(read);
            queried.iter().for_each(|member| self.read(&transaction, &[0], *member, step));
            return self.keep(transaction, step);
        }
        if self.take_hot_keys(&transaction, step) {
            self.advance(transaction, step)
        } else {
            transaction.phase = Phase::InLine;
            self.keep(transaction, step)
        }
    }

    /// Runs a transaction whose turn at its hot keys has come.
    pub(super) fn begin_in_turn(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        transaction.phase = Phase::Executing;
        transaction.now_millis = Tapir::time(self, step.now).as_millis();
        transaction.began = step.now.instant;
        self.advance(transaction, step);
    }

    /// A single operation that only reads, and for which the short way has not failed yet.
    fn is_quorum_read(&self, transaction: &Transaction) -> bool {
        let [only] = transaction.steps.list() else { return false };
        self.options.reads_without_stamps()
            && transaction.purpose == Purpose::Auto
            && transaction.retries == 0
            && transaction.watches.is_empty()
            && only.call.is_read()
    }

    /// Asks for the evaluation of steps for the first time: each shard's in one message to the closest replica.
    pub(super) fn read_first(
        &mut self,
        transaction: &Transaction,
        indices: &[usize],
        step: &mut Step<'_, '_>,
    ) {
        let mut rest: SmallVec<[usize; 16]> = indices.into();
        while let Some(first) = rest.first() {
            let shard = transaction.steps.list()[*first].call.shard;
            let of_shard = |index: &usize| transaction.steps.list()[*index].call.shard == shard;
            let together: SmallVec<[usize; 16]> = rest.iter().copied().filter(of_shard).collect();
            rest.retain(|index| !of_shard(index));
            if let Some(member) = self.replica_for(shard, 0, step.now.instant) {
                self.read(transaction, &together, member, step);
            }
        }
    }

    /// Asks a replica to evaluate steps of its shard.
    pub(super) fn read(
        &mut self,
        transaction: &Transaction,
        indices: &[usize],
        member: usize,
        step: &mut Step<'_, '_>,
    ) {
        let Some(first) = indices.first() else { return };
        let shard = transaction.steps.list()[*first].call.shard;
        self.protocol.replicas.queried(shard, member, step.now.instant);
        let replica = self.topology.replicas(shard)[member];
        let mut readings = Vec::with_capacity(indices.len());
        for index in indices {
            if let Some(question) = transaction.steps.look_question(*index) {
                let (transaction, step_index) = (transaction.id, *index as u32);
                step.out.send(replica, Message::KeysetRead { transaction, step: step_index, question });
                continue;
            }
            let call = &transaction.steps.list()[*index].call;
            let own = transaction.steps.own_effects(&call.key, shard, *index);
            let (key, operation) = (call.key.clone(), call.operation.clone());
            let then = transaction.steps.chain(*index).map(|(step, call)| (step, call.operation.clone()));
            readings.push(Reading { step: *index as u32, own, key, operation, then: then.collect() });
        }
        if readings.is_empty() {
            return;
        }
        // A quorum read goes on to others sooner than it is worth waiting.
        let evaluated = matches!(transaction.phase, Phase::Executing);
        let longest = if evaluated { self.options.read_timeout / 2 } else { Duration::ZERO };
        let patience_micros = self.protocol.replicas.decided_within(shard, longest).as_micros() as u32;
        let (transaction, now_millis) = (transaction.id, transaction.now_millis);
        let message = Message::Read { transaction, now_millis, patience_micros, readings };
        step.out.send(replica, message);
    }

    /// The earliest moment at which a question is taken for lost.
    pub(super) fn next_read_timeout(&self, transaction: &Transaction) -> Option<Instant> {
        let requested = transaction.steps.list().iter().filter_map(|step| match step.progress {
            Progress::Requested { at, .. } => Some(at),
            _ => None,
        });
        requested.min().map(|at| at + self.options.read_timeout)
    }

    /// Asks the next replica where one has not answered in time.
    pub(super) fn ask_again(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        for index in 0..transaction.steps.list().len() {
            let Progress::Requested { at, .. } = transaction.steps.list()[index].progress else { continue };
            if at + self.options.read_timeout <= step.now.instant {
                self.ask(&mut transaction, index, step);
            }
        }
        self.keep(transaction, step);
    }

    pub(super) fn on_read_reply(
        &mut self,
        (shard, member): (u16, usize),
        number: u64,
        view: u64,
        answers: Vec<(u32, Evaluation)>,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take(number) else { return };
        if let Phase::QuorumRead(read) = &mut transaction.phase {
            read.answers.extend(answers.into_iter().map(|(_, evaluation)| (member, (view, evaluation))));
            return self.count_answers(transaction, step);
        }
        let (mut taken, mut clear) = (0, true);
        for (index, evaluation) in answers {
            let executing = matches!(transaction.phase, Phase::Executing);
            if executing && transaction.steps.is_requested(index as usize, shard) {
                clear &= !evaluation.pending && evaluation.expiry.is_none();
                transaction.steps.take(index as usize, evaluation.into());
                taken += 1;
            }
        }
        if taken == 0 {
            return self.keep(transaction, step);
        }
        let at_once = clear && taken == transaction.steps.list().len();
        transaction.own.one_replica_read =
            at_once.then_some(OneReplicaRead { shard, member, view, steps: taken });
        self.advance(transaction, step)
    }

    pub(super) fn on_look_reply(
        &mut self,
        shard: u16,
        number: u64,
        index: u32,
        look: KeysetRead,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take(number) else { return };
        let expected = matches!(transaction.phase, Phase::Executing)
            && transaction.steps.is_requested(index as usize, shard);
        if !expected {
            return self.keep(transaction, step);
        }
        transaction.steps.take_look(index as usize, look, self.topology.shards.len() as u16);
        self.advance(transaction, step);
    }

    /// A quorum read is answered when f+1 replicas of one view hold the same effects and none of them has anything
    /// undecided against it: whatever was decided before the first of them read is then among those effects, so
    /// the read takes place at that moment. Anything else falls back to a validated transaction.
    fn count_answers(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::QuorumRead(read) = &transaction.phase else { return self.keep(transaction, step) };
        let members = self.topology.replicas(transaction.steps.list()[0].call.shard).len();
        let needed = if self.options.mutants.has(Mutant::SingleReplicaReads) { 1 } else { quorum(members) };
        let good = |(_, answer): &&(u64, Evaluation)| !answer.pending && answer.expiry.is_none();
        let good: Vec<&(u64, Evaluation)> = read.answers.values().filter(good).collect();
        let alike = |a: &&&(u64, Evaluation)| {
            let same = |b: &&&(u64, Evaluation)| {
                a.0 == b.0 && a.1.observed == b.1.observed && a.1.result == b.1.result
            };
            good.iter().filter(same).count() >= needed
        };
        if let Some((_, answer)) = good.iter().find(alike) {
            if are_many(&answer.observed) {
                return self.fall_back(transaction, step);
            }
            let result = answer.result.clone();
            if let Some(request) = transaction.request.take() {
                transaction.steps.list()[0].call.reply(&result, step.out.reply(request));
            }
            return self.forget(&transaction, step);
        }
        if read.answers.len() == members {
            self.fall_back(transaction, step)
        } else if read.answers.len() >= needed || good.len() < read.answers.len() {
            self.read_of_others(transaction, step)
        } else {
            self.keep(transaction, step)
        }
    }

    /// The replicas of a quorum read answered differently, or too late: the coordinator asks the other replicas, or
    /// falls back to single reads.
    pub(super) fn read_of_others(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::QuorumRead(read) = &mut transaction.phase else { return self.keep(transaction, step) };
        let Some(shard) = transaction.steps.list().first().map(|step| step.call.shard) else {
            return self.keep(transaction, step);
        };
        let members = 0..self.topology.replicas(shard).len();
        let others: SmallVec<[usize; 8]> = members.filter(|member| !read.queried.contains(member)).collect();
        read.queried.extend(others.iter().copied());
        if !others.is_empty() {
            read.since = step.now.instant;
        }
        others.iter().for_each(|member| self.read(&transaction, &[0], *member, step));
        self.keep(transaction, step)
    }

    /// When a quorum read goes on to others, or is given up: as soon as no other answer is expected. Without f+1 of
    /// them it is given up late.
    pub(super) fn quorum_read_until(&self, transaction: &Transaction, read: &QuorumRead) -> Instant {
        let latest = read.since + self.options.read_timeout;
        let Some(shard) = transaction.steps.list().first().map(|step| step.call.shard) else { return latest };
        let members = self.topology.replicas(shard).len();
        if read.answers.len() < quorum(members) && read.queried.len() == members {
            return latest;
        }
        let missing = read.queried.iter().filter(|member| !read.answers.contains_key(member));
        let longest = self.options.fast_timeout;
        let expected =
            missing.map(|member| self.protocol.replicas.expected_until(shard, *member, read.since, longest));
        expected.max().map_or(latest, |until| until.min(latest))
    }

    /// No further answer to a quorum read is expected.
    pub(super) fn on_quorum_read_timer(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::QuorumRead(read) = &transaction.phase else { return self.keep(transaction, step) };
        let shard = transaction.steps.list().first().map_or(0, |step| step.call.shard);
        if read.queried.len() < self.topology.replicas(shard).len() {
            self.read_of_others(transaction, step)
        } else {
            self.fall_back(transaction, step)
        }
    }

    /// Runs a quorum read as a validated transaction, with what the closest replica that answered said.
    pub(super) fn fall_back(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let phase = std::mem::replace(&mut transaction.phase, Phase::Executing);
        let Phase::QuorumRead(read) = phase else { return self.keep(transaction, step) };
        // The answer that saw most: what others lack they may still learn, what it lacks would only abort.
        let newest = read.answers.into_values().map(|(_, evaluation)| evaluation);
        if let Some(evaluation) = newest.max_by_key(|evaluation| evaluation.observed.newest()) {
            transaction.steps.take(0, evaluation.into());
        }
        self.advance(transaction, step);
    }

    /// Gives a request up at its deadline, with the error that says what is known. One that is prepared somewhere goes on
    /// for as long again, since others wait for its end; what it leaves then is for backup coordinators.
    pub(super) fn give_up(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if transaction.is_unheard() {
            return self.forget(&transaction, step);
        }
        let (silent, error) = (self.silent(&transaction), self.why_given_up(&transaction));
        self.divide_turn(&mut transaction, &silent, error.code == ErrorCode::UnknownOutcome, step);
        if matches!(transaction.phase, Phase::Preparing(_)) {
            let until = step.now.instant + self.options.request_timeout;
            return self.end_unheard(transaction, &error, until, step);
        }
        self.fail(transaction, &error, step);
    }

    /// What is known at a transaction's deadline.
    fn why_given_up(&mut self, transaction: &Transaction) -> Error {
        match &transaction.phase {
            Phase::Preparing(preparing) => {
                let (shard, votes) = preparing
                    .shards
                    .iter()
                    .min_by_key(|(_, votes)| votes.tally.replied())
                    .map_or((0, 0), |(shard, votes)| (*shard, votes.tally.replied()));
                let members = self.topology.replicas(shard).len();
                let answered = format!("shard {shard}: {votes} of {members} replicas answered Prepare");
                if transaction.steps.is_read_only() {
                    if self.options.claims {
                        self.claim(transaction, None);
                    }
                    Error::new(ErrorCode::Unavailable, format!("{answered}; nothing happened, retry later"))
                } else {
                    let message =
                        format!("{answered}; the transaction may or may not commit, look before you retry");
                    Error::new(ErrorCode::UnknownOutcome, message)
                }
            }
            Phase::BackingOff { .. } | Phase::InLine => transaction.conflict(),
            Phase::Executing | Phase::QuorumRead(_) | Phase::Checking(_) => self.unavailable(transaction),
        }
    }

    /// The shards of a transaction that have not answered as far as it is: of which not enough replicas have.
    fn silent(&self, transaction: &Transaction) -> BTreeSet<u16> {
        let lacks = |shard: u16, answers: usize| answers < quorum(self.topology.replicas(shard).len());
        match &transaction.phase {
            Phase::Preparing(preparing) => {
                let shards = preparing.shards.iter().map(|(shard, votes)| (*shard, votes.tally.replied()));
                shards.filter(|(shard, votes)| lacks(*shard, *votes)).map(|(shard, _)| shard).collect()
            }
            Phase::Checking(check) => check.lacking(lacks).collect(),
            Phase::Executing | Phase::QuorumRead(_) => {
                let steps = transaction.steps.list().iter();
                let waiting = steps.filter(|step| !matches!(step.progress, Progress::Done(_)));
                waiting.map(|step| step.call.shard).collect()
            }
            Phase::BackingOff { .. } | Phase::InLine => BTreeSet::new(),
        }
    }

    fn unavailable(&self, transaction: &Transaction) -> Error {
        let waiting =
            transaction.steps.list().iter().find(|step| !matches!(step.progress, Progress::Done(_)));
        let shard = waiting.map_or(0, |step| step.call.shard);
        let (shard, answered) = match &transaction.phase {
            Phase::QuorumRead(read) => (shard, read.answers.len()),
            Phase::Checking(check) => check.behind(),
            _ => (shard, 0),
        };
        let members = self.topology.replicas(shard).len();
        let message = format!(
            "shard {shard}: {answered} of {members} replicas answered a read; nothing happened, retry later"
        );
        Error::new(ErrorCode::Unavailable, message)
    }
}
