//! The execution period: steps are evaluated at the leaders, or nowhere if they observe nothing.

use super::super::machine::{Evaluation, encoded};
use super::super::message::Message;
use super::transaction::{Call, Done, Phase, Progress, Purpose, Transaction};
use super::{Coordinator, Step};
use datatypes::{Cell, Context, Operation, prepare};
use types::{Error, ErrorCode, Instant, Reader, ReplyBuf, ReplySink};

impl Coordinator {
    /// Begins to evaluate a transaction, or begins again.
    pub(super) fn run(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        transaction.id = self.next_id();
        transaction.now_millis = step.now.wall.as_millis();
        transaction.phase = Phase::Executing;
        transaction.expiries.clear();
        transaction.terms.clear();
        transaction.steps.iter_mut().for_each(|step| step.progress = Progress::Waiting);
        self.advance(transaction, step);
    }

    /// Evaluates what can be evaluated; when everything is, goes on to what the transaction is for.
    pub(super) fn advance(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        transaction.resend_at = step.now.instant + self.options.resend_every;
        for index in 0..transaction.steps.len() {
            if !matches!(transaction.steps[index].progress, Progress::Waiting) {
                continue;
            }
            let key = &transaction.steps[index].call.key;
            let free = |other: &super::transaction::CallStep| {
                other.call.key != *key || matches!(other.progress, Progress::Done(_))
            };
            if !transaction.steps[..index].iter().all(free) {
                continue;
            }
            match without_reading(&transaction.steps[index].call, transaction.now_millis, step) {
                Some(done) => transaction.steps[index].progress = Progress::Done(done),
                None => {
                    transaction.steps[index].progress = Progress::Asked;
                    self.ask(&transaction, index, step);
                }
            }
        }
        if transaction.is_evaluated() {
            self.evaluated(transaction, step)
        } else {
            self.keep(transaction, step)
        }
    }

    pub(super) fn ask(&self, transaction: &Transaction, index: usize, step: &mut Step<'_, '_>) {
        let call = &transaction.steps[index].call;
        let message = Message::Execute {
            transaction: transaction.id,
            age: transaction.age,
            step: index as u32,
            key: call.key.clone(),
            operation: call.operation.clone(),
            blind: call.blind,
            alone: is_alone(transaction),
            own: transaction.own_effects(&call.key),
            now_millis: transaction.now_millis,
        };
        self.send_leader(call.shard, message, step);
    }

    pub(super) fn on_executed(
        &mut self,
        shard: u16,
        number: u64,
        index: u32,
        (term, evaluation): (u64, Evaluation),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        let asked = matches!(transaction.phase, Phase::Executing)
            && transaction
                .steps
                .get(index as usize)
                .is_some_and(|known| known.call.shard == shard && matches!(known.progress, Progress::Asked));
        if !asked {
            return self.keep(transaction, step);
        }
        let call = transaction.steps[index as usize].call.clone();
        if *transaction.terms.entry(shard).or_insert(term) != term {
            // The locks of the earlier term are gone, and with them what was read under them.
            return self.refused(transaction, Some(call.key), step);
        }
        let over = is_alone(&transaction) && !evaluation.expired && evaluation.effect.is_none();
        if evaluation.expired {
            transaction.expiries.entry(call.key).or_insert((shard, evaluation.version));
        }
        let Evaluation { result, effect, version, expires_at, .. } = evaluation;
        let done = Done { result, effect, expires_at, version: Some(version) };
        transaction.steps[index as usize].progress = Progress::Done(done);
        if over {
            return self.reply_results(transaction, step);
        }
        self.advance(transaction, step);
    }

    fn evaluated(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let waits = matches!(transaction.purpose, Purpose::Interactive { .. }) && !transaction.committing;
        match transaction.purpose {
            _ if !waits && transaction.is_watch_touched() => self.watch_touched(transaction, step),
            Purpose::Interactive { .. } if !waits => self.prepare(transaction, step),
            Purpose::Auto | Purpose::Flush { .. } => self.prepare(transaction, step),
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

    /// A watched key has changed: nothing happens.
    fn watch_touched(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        self.let_go(&transaction, step);
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).null_array();
        }
        self.forget(&transaction, step);
    }

    /// Gives a request up at its deadline, with the error that says what is known.
    pub(super) fn give_up(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let shard = self.unanswered(&transaction).first().copied().unwrap_or(0);
        let silent = format!(
            "shard {shard}: no leader among its {} replicas answered",
            self.topology.replicas(shard).len()
        );
        let error = match &transaction.phase {
            Phase::Preparing(preparing) if preparing.parts.len() > 1 || preparing.read_only => {
                Error::new(ErrorCode::Unavailable, format!("{silent}; nothing happened, retry later"))
            }
            Phase::Preparing(_) | Phase::Deciding { .. } => {
                let message =
                    format!("{silent}; the transaction may or may not commit, look before you retry");
                Error::new(ErrorCode::UnknownOutcome, message)
            }
            Phase::BackingOff { .. } | Phase::Doomed => {
                super::commit::conflict(transaction.conflicted.as_deref())
            }
            Phase::Executing => {
                let message =
                    format!("{silent} in time, or locks were not free; nothing happened, retry later");
                Error::new(ErrorCode::Unavailable, message)
            }
        };
        if !matches!(transaction.phase, Phase::Deciding { .. }) {
            self.let_go(&transaction, step);
            return self.fail(transaction, &error, step);
        }
        // The first participant may have written the decision: it is asked until it says so, and nobody waits.
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).error(&error);
        }
        self.forget(&transaction, step);
        (transaction.in_turn, transaction.purpose) = (false, Purpose::Auto);
        transaction.deadline = Instant(u64::MAX);
        self.keep(transaction, step);
    }
}

/// A read that is a whole transaction: it needs no vote, only the confirmation that its leader leads.
fn is_alone(transaction: &Transaction) -> bool {
    let [only] = transaction.steps.as_slice() else { return false };
    matches!(transaction.purpose, Purpose::Auto)
        && only.call.watch.is_none()
        && Operation::decode(&mut Reader::new(&only.call.operation)).is_ok_and(|o| o.is_read())
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
    Some(Done { result, effect: Some(encoded(&effect)), expires_at: 0, version: None })
}

/// Writes a step's result: a blind one shows an error or `OK`.
pub(super) fn reply_step(call: &Call, result: &ReplyBuf, sink: &mut dyn ReplySink) {
    match (call.blind, result.as_error()) {
        (true, None) => sink.simple("OK"),
        _ => result.replay(sink),
    }
}
