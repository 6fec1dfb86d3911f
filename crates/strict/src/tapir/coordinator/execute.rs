//! The execution period: steps are evaluated at the closest replica, or at none if they observe nothing.

use super::super::message::{Evaluation, Message};
use super::super::operation::Invoked;
use super::super::shard::encoded;
use super::transaction::{Call, Done, Phase, Progress, Purpose, QuorumRead, Transaction};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::ir::quorum;
use datatypes::{Cell, Context, Effect, Operation, key, prepare};
use types::{Error, ErrorCode, Instant, Reader, ReplyBuf, ReplySink};

impl Coordinator {
    /// Begins to evaluate a transaction, or begins again.
    pub(super) fn run(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let id = self.next_id();
        transaction.restart(id, step.now);
        if self.is_quorum_read(&transaction) {
            transaction.phase =
                Phase::QuorumRead(QuorumRead { since: step.now.instant, answers: Default::default() });
            let call = transaction.steps[0].call.clone();
            for member in 0..self.topology.replicas(call.shard).len() {
                self.ask(&transaction, 0, member, step);
            }
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
    pub(super) fn begin(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        transaction.phase = Phase::Executing;
        transaction.now_millis = step.now.wall.as_millis();
        transaction.began = step.now.instant;
        self.advance(transaction, step);
    }

    /// A single operation that only reads, and for which the short way has not failed yet.
    fn is_quorum_read(&self, transaction: &Transaction) -> bool {
        let [only] = transaction.steps.as_slice() else { return false };
        self.options.quorum_reads
            && transaction.purpose == Purpose::Auto
            && transaction.retries == 0
            && transaction.watches.is_empty()
            && Operation::decode(&mut Reader::new(&only.call.operation)).is_ok_and(|o| o.is_read())
    }

    /// Evaluates what can be evaluated; when everything is, goes on to what the transaction is for.
    pub(super) fn advance(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        for index in 0..transaction.steps.len() {
            if !matches!(transaction.steps[index].progress, Progress::Waiting) {
                continue;
            }
            let key = &transaction.steps[index].call.key;
            let earlier = &transaction.steps[..index];
            let free = |other: &super::transaction::CallStep| {
                other.call.key != *key || matches!(other.progress, Progress::Done(_))
            };
            if !earlier.iter().all(free) {
                continue;
            }
            match without_reading(&transaction.steps[index].call, transaction.now_millis, step) {
                Some(done) => transaction.steps[index].progress = Progress::Done(done),
                None => {
                    let shard = transaction.steps[index].call.shard;
                    if let Some(member) = self.replica_for(shard, 0, step.now.instant) {
                        self.ask(&transaction, index, member, step);
                    }
                    transaction.steps[index].progress = Progress::Asked { tries: 1, at: step.now.instant };
                }
            }
        }
        if transaction.is_evaluated() {
            self.evaluated(transaction, step)
        } else {
            self.keep(transaction, step)
        }
    }

    fn ask(&mut self, transaction: &Transaction, index: usize, member: usize, step: &mut Step<'_, '_>) {
        let call = &transaction.steps[index].call;
        self.replicas.asked(call.shard, member, step.now.instant);
        let message = Message::Read {
            transaction: transaction.id,
            step: index as u32,
            key: call.key.clone(),
            operation: call.operation.clone(),
            own: transaction.own_effects(&call.key),
            now_millis: transaction.now_millis,
        };
        step.out.send(self.topology.replicas(call.shard)[member], message);
    }

    /// The earliest moment at which a question is taken for lost.
    pub(super) fn next_read_timeout(&self, transaction: &Transaction) -> Option<Instant> {
        let asked = transaction.steps.iter().filter_map(|step| match step.progress {
            Progress::Asked { at, .. } => Some(at),
            _ => None,
        });
        asked.min().map(|at| at + self.options.read_timeout)
    }

    /// Asks the next replica where one has not answered in time.
    pub(super) fn ask_again(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        for index in 0..transaction.steps.len() {
            let Progress::Asked { tries, at } = transaction.steps[index].progress else { continue };
            if at + self.options.read_timeout > step.now.instant {
                continue;
            }
            let shard = transaction.steps[index].call.shard;
            if let Some(member) = self.replica_for(shard, tries, step.now.instant) {
                self.ask(&transaction, index, member, step);
            }
            transaction.steps[index].progress = Progress::Asked { tries: tries + 1, at: step.now.instant };
        }
        self.keep(transaction, step);
    }

    pub(super) fn on_read_reply(
        &mut self,
        (shard, member): (u16, usize),
        number: u64,
        index: u32,
        (view, evaluation): (u64, Evaluation),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        if let Phase::QuorumRead(read) = &mut transaction.phase {
            read.answers.insert(member, (view, evaluation));
            return self.count_answers(transaction, step);
        }
        let asked = matches!(transaction.phase, Phase::Executing)
            && transaction.steps.get(index as usize).is_some_and(|known| {
                known.call.shard == shard && matches!(known.progress, Progress::Asked { .. })
            });
        if !asked {
            return self.keep(transaction, step);
        }
        take(&mut transaction, index as usize, evaluation);
        self.advance(transaction, step);
    }

    /// A quorum read is answered when f+1 replicas of one view hold the same effects and none of them has anything
    /// undecided against it: whatever was decided before the first of them read is then among those effects, so
    /// the read takes place at that moment. Anything else falls back to a validated transaction.
    fn count_answers(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let Phase::QuorumRead(read) = &transaction.phase else { return self.keep(transaction, step) };
        let members = self.topology.replicas(transaction.steps[0].call.shard).len();
        let needed = if self.options.mutants.has(Mutant::SingleReplicaReads) { 1 } else { quorum(members) };
        let good = |(_, answer): &&(u64, Evaluation)| !answer.pending && !answer.expired;
        let good: Vec<&(u64, Evaluation)> = read.answers.values().filter(good).collect();
        let alike = |a: &&&(u64, Evaluation)| {
            let same = |b: &&&(u64, Evaluation)| {
                a.0 == b.0 && a.1.observed == b.1.observed && a.1.result == b.1.result
            };
            good.iter().filter(same).count() >= needed
        };
        if let Some((_, answer)) = good.iter().find(alike) {
            let result = answer.result.clone();
            if let Some(request) = transaction.request.take() {
                reply_step(&transaction.steps[0].call, &result, step.out.reply(request));
            }
            return self.forget(&transaction, step);
        }
        if read.answers.len() == members {
            self.fall_back(transaction, step)
        } else {
            self.keep(transaction, step)
        }
    }

    /// When a quorum read is given up: with f+1 answers, as soon as no other is expected.
    pub(super) fn quorum_read_until(&self, transaction: &Transaction, read: &QuorumRead) -> Instant {
        let latest = read.since + self.options.read_timeout;
        let Some(shard) = transaction.steps.first().map(|step| step.call.shard) else { return latest };
        let members = self.topology.replicas(shard).len();
        if read.answers.len() < quorum(members) {
            return latest;
        }
        let missing = (0..members).filter(|member| !read.answers.contains_key(member));
        let longest = self.options.fast_timeout;
        let expected = missing.map(|member| self.replicas.expected_until(shard, member, read.since, longest));
        expected.max().map_or(latest, |until| until.min(latest))
    }

    /// Runs a quorum read as a validated transaction, with what the closest replica that answered said.
    pub(super) fn fall_back(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let phase = std::mem::replace(&mut transaction.phase, Phase::Executing);
        let Phase::QuorumRead(read) = phase else { return self.keep(transaction, step) };
        // The answer that saw most: what others lack they may still learn, what it lacks would only abort.
        let newest = read.answers.into_values().map(|(_, evaluation)| evaluation);
        if let Some(evaluation) = newest.max_by_key(|evaluation| evaluation.observed.newest()) {
            transaction.steps[0].progress = Progress::Asked { tries: 0, at: step.now.instant };
            take(&mut transaction, 0, evaluation);
        }
        self.advance(transaction, step);
    }

    fn evaluated(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        match transaction.purpose {
            Purpose::Auto | Purpose::Flush { .. } => self.conclude(transaction, step),
            Purpose::Watch => self.watch_evaluated(transaction, step),
            Purpose::Interactive { .. } => {
                if let Some(request) = transaction.request.take() {
                    for known in &transaction.steps[transaction.replied..] {
                        if let Progress::Done(done) = &known.progress {
                            reply_step(&known.call, &done.result, step.out.reply(request));
                        }
                    }
                    transaction.replied = transaction.steps.len();
                }
                self.keep(transaction, step);
            }
        }
    }

    /// Gives a request up at its deadline, with the error that says what is known.
    pub(super) fn give_up(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let error = match &transaction.phase {
            Phase::Preparing(preparing) => {
                let (shard, votes) = preparing
                    .shards
                    .iter()
                    .min_by_key(|(_, votes)| votes.tally.replied())
                    .map_or((0, 0), |(shard, votes)| (*shard, votes.tally.replied()));
                let members = self.topology.replicas(shard).len();
                let answered = format!("shard {shard}: {votes} of {members} replicas answered Prepare");
                if transaction.is_read_only() {
                    if self.options.claims {
                        self.claim_nothing(&transaction);
                    }
                    Error::new(ErrorCode::Unavailable, format!("{answered}; nothing happened, retry later"))
                } else {
                    let message =
                        format!("{answered}; the transaction may or may not commit, look before you retry");
                    Error::new(ErrorCode::UnknownOutcome, message)
                }
            }
            Phase::BackingOff { .. } | Phase::InLine => {
                super::prepare::conflict(transaction.conflicted.as_deref())
            }
            Phase::Executing | Phase::QuorumRead(_) | Phase::Checking(_) => self.unavailable(&transaction),
        };
        self.fail(transaction, &error, step);
    }

    fn unavailable(&self, transaction: &Transaction) -> Error {
        let waiting = transaction.steps.iter().find(|step| !matches!(step.progress, Progress::Done(_)));
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

/// Takes a replica's evaluation of a step.
fn take(transaction: &mut Transaction, index: usize, evaluation: Evaluation) {
    let call = &transaction.steps[index].call;
    if evaluation.expired && !transaction.expiries.contains_key(&call.key) {
        let deletion = Invoked {
            key: call.key.clone(),
            operation: Some(observe_whole()),
            effect: Some(encoded(&Effect::DELETE)),
            observed: Some(evaluation.observed.clone()),
        };
        transaction.expiries.insert(call.key.clone(), (call.shard, deletion));
    }
    let invoked = Invoked {
        key: call.key.clone(),
        operation: Some(call.operation.clone()),
        effect: evaluation.effect,
        observed: Some(evaluation.observed),
    };
    transaction.steps[index].progress = Progress::Done(Done {
        result: evaluation.result,
        invoked: Some(invoked),
        expires_at: evaluation.expires_at,
    });
}

/// An operation that observes everything of a key and returns little.
pub(super) fn observe_whole() -> Box<[u8]> {
    let mut bytes = Vec::new();
    Operation::Key(key::Operation::Deadline(key::TimeFormat::MillisAt)).encode(&mut bytes);
    bytes.into()
}

/// Evaluates an operation that needs no state: its result is not asked for, or reveals nothing.
fn without_reading(call: &Call, now_millis: u64, step: &mut Step<'_, '_>) -> Option<Done> {
    let operation = Operation::decode(&mut Reader::new(&call.operation)).ok()?;
    if !call.blind && !operation.observation().is_nothing() {
        return None;
    }
    let effect = operation.blind_effect()?;
    let mut result = ReplyBuf::new();
    if call.blind {
        result.simple("OK");
    } else {
        let mut context = Context { now_millis, random: step.random };
        prepare(&Cell::ABSENT, &operation, &mut context, &mut result);
    }
    let effect = Some(encoded(&effect));
    let invoked = Some(Invoked { key: call.key.clone(), operation: None, effect, observed: None });
    Some(Done { result, invoked, expires_at: 0 })
}

/// Writes a step's result: a blind one shows an error or `OK`.
pub(super) fn reply_step(call: &Call, result: &ReplyBuf, sink: &mut dyn ReplySink) {
    match (call.blind, result.as_error()) {
        (true, None) => sink.simple("OK"),
        _ => result.replay(sink),
    }
}
