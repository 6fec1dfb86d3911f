//! The execution period: steps are evaluated at the leaders, or nowhere if they observe nothing.

use super::super::machine::Evaluation;
use super::super::message::Message;
use super::super::options::{Concurrency, Reads};
use super::transaction::{Phase, Transaction, asks_first, is_alone, touched};
use super::unlocked::in_doubt;
use super::{Coordinator, Step};
use crate::coordinator::{KeysetRead, Progress, Purpose};
use types::{Address, Error, ErrorCode, Instant};

impl Coordinator {
    /// Asks a leader to evaluate a step.
    pub(super) fn execute(&self, transaction: &Transaction, index: usize, step: &mut Step<'_, '_>) {
        if self.is_unlocked() {
            return self.ask_single(transaction, index, step);
        }
        let call = &transaction.steps.list()[index].call;
        if let Some(question) = transaction.steps.look_question(index) {
            let message = Message::KeysetRead { transaction: transaction.id, step: index as u32, question };
            return self.send_leader(call.shard, message, step);
        }
        let anywhere = self.reads_closest(transaction);
        let then = transaction.steps.chain(index).map(|(step, call)| (step, (*call.operation).into()));
        let message = Message::Execute {
            transaction: transaction.id,
            age: transaction.age,
            step: index as u32,
            key: (*call.key).into(),
            operation: (*call.operation).into(),
            only_lock: transaction.own.locked.contains_key(&index)
                || asks_first(transaction) && transaction.steps.is_unread(index, &self.expiring),
            reserve: asks_first(transaction) && self.options.concurrency == Concurrency::Optimistic,
            write: transaction.own.plan.writes(&call.key)
                || transaction.steps.observes_whole(index, &self.expiring),
            anywhere,
            alone: is_alone(transaction),
            shown: matches!(transaction.purpose, Purpose::Interactive { .. } | Purpose::Watch),
            patient: self.is_patient(transaction),
            own: transaction.steps.own_effects(&call.key, call.shard, index),
            then: then.collect(),
            now_millis: transaction.now_millis,
        };
        match anywhere {
            true => self.send_to(call.shard, self.closest(call.shard), message, step),
            false => self.send_leader(call.shard, message, step),
        }
    }

    /// True if the transaction rather waits than being refused, since its session would have to begin it again, or what it watches.
    pub(super) fn is_patient(&self, transaction: &Transaction) -> bool {
        let begun_anew = matches!(transaction.purpose, Purpose::Interactive { .. } | Purpose::Watch);
        self.options.patient && self.options.concurrency == Concurrency::Optimistic && begun_anew
    }

    /// True if the closest replicas evaluate the steps. A refused transaction may have read stale values.
    pub(super) fn reads_closest(&self, transaction: &Transaction) -> bool {
        (self.options.reads, self.options.concurrency) == (Reads::Closest, Concurrency::Optimistic)
            && !transaction.own.at_leaders
            && transaction.losses() == 0
            && !asks_first(transaction)
            && !is_alone(transaction)
            // What is watched is compared with what is seen later: both times it is to be the newest.
            && transaction.purpose != Purpose::Watch
            && transaction.watches.is_empty()
    }

    /// The closest replica of a shard: the one on the process that is near; or, where that has none, the one in the same place
    /// among them.
    pub(super) fn closest(&self, shard: u16) -> usize {
        let process = self.options.near.unwrap_or(self.process);
        let place = |shard: &[Address]| shard.iter().position(|replica| replica.process == process);
        let own = place(self.topology.replicas(shard));
        own.or_else(|| self.topology.shards.iter().find_map(|shard| place(shard))).unwrap_or(0)
    }

    pub(super) fn on_executed(
        &mut self,
        shard: u16,
        number: u64,
        index: u32,
        (term, evaluation, then): (u64, Evaluation, Vec<(u32, Evaluation)>),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take_requested(shard, number, index, term, step) else { return };
        let over = is_alone(&transaction) && evaluation.expiry.is_none() && evaluation.effect.is_none();
        transaction.steps.take(index as usize, evaluation.into());
        for (behind, evaluation) in then {
            if transaction.steps.is_requested(behind as usize, shard) {
                transaction.steps.take(behind as usize, evaluation.into());
            }
        }
        self.unblock(&mut transaction, shard, step);
        if over {
            return self.reply_results(transaction, step);
        }
        self.advance(transaction, step);
    }

    /// A leader has looked at which keys there are.
    pub(super) fn on_looked(
        &mut self,
        shard: u16,
        number: u64,
        index: u32,
        (term, look): (u64, KeysetRead),
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take_requested(shard, number, index, term, step) else { return };
        transaction.steps.take_look(index as usize, look, self.topology.shards.len() as u16);
        self.unblock(&mut transaction, shard, step);
        self.advance(transaction, step);
    }

    /// A leader holds the lock that a step needs, which is evaluated here.
    pub(super) fn on_locked(
        &mut self,
        shard: u16,
        number: u64,
        index: u32,
        term: u64,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut transaction) = self.take_requested(shard, number, index, term, step) else { return };
        let (index, now_millis) = (index as usize, transaction.now_millis);
        if let Some(done) = transaction.own.locked.get(&index) {
            transaction.steps.set(index, Progress::Done(done.clone()));
        } else if !transaction.steps.evaluate_here(index, now_millis, &self.expiring, step.random) {
            // The key has turned out to have a deadline since.
            self.ask(&mut transaction, index, step);
        }
        self.unblock(&mut transaction, shard, step);
        self.advance(transaction, step);
    }

    /// The transaction, if it waits for this answer of a leader in this term.
    fn take_requested(
        &mut self,
        shard: u16,
        number: u64,
        index: u32,
        term: u64,
        step: &mut Step<'_, '_>,
    ) -> Option<Transaction> {
        let mut transaction = self.take(number)?;
        let expected = matches!(transaction.phase, Phase::Executing)
            && transaction.steps.is_requested(index as usize, shard);
        if !expected {
            self.keep(transaction, step);
            return None;
        }
        if term != 0 && *transaction.own.terms.entry(shard).or_insert(term) != term {
            // The locks of the earlier term are gone, and with them what was read under them.
            let key = transaction.steps.key_of(index as usize);
            self.refused(transaction, key, step);
            return None;
        }
        if let Progress::Requested { at, .. } = transaction.steps.list()[index as usize].progress {
            let took = (step.now.instant - at, shard);
            transaction.own.slowest = transaction.own.slowest.max(Some(took));
        }
        Some(transaction)
    }

    /// An operation waits for its lock: the coordinator notifies the other shards that hold something for the
    /// transaction.
    pub(super) fn on_blocked(&mut self, shard: u16, number: u64, step: &mut Step<'_, '_>) {
        let Some(mut transaction) = self.take(number) else { return };
        if transaction.own.last == Some(shard) && matches!(transaction.phase, Phase::Preparing(_)) {
            transaction.own.last_blocked.get_or_insert(step.now.instant);
            return self.keep(transaction, step);
        }
        let waits = matches!(transaction.phase, Phase::Executing)
            && transaction.steps.requested().any(|(_, call)| call.shard == shard);
        if waits {
            if !transaction.own.blocked_at.insert(shard) {
                // The notifications may have been lost: sends them again.
                transaction.own.notified.clear();
            }
            self.tell_waits(&mut transaction, step);
        }
        self.keep(transaction, step);
    }

    /// A shard has answered.
    fn unblock(&self, transaction: &mut Transaction, shard: u16, step: &mut Step<'_, '_>) {
        let waits = || transaction.steps.requested().any(|(_, call)| call.shard == shard);
        if transaction.own.blocked_at.contains(&shard) && !waits() {
            transaction.own.blocked_at.remove(&shard);
            self.tell_waits(transaction, step);
        }
    }

    /// Tells the shards whether the transaction waits elsewhere, where that is news.
    fn tell_waits(&self, transaction: &mut Transaction, step: &mut Step<'_, '_>) {
        for shard in touched(transaction) {
            let waits = transaction.own.blocked_at.iter().any(|blocked| *blocked != shard);
            let notified = &mut transaction.own.notified;
            let news = if waits { notified.insert(shard) } else { notified.remove(&shard) };
            if news {
                self.send_leader(shard, Message::Waits { transaction: transaction.id, waits }, step);
            }
        }
    }

    /// Gives a request up at its deadline, with the error that says what is known.
    pub(super) fn give_up(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let shard = self.unanswered(&transaction).first().copied().unwrap_or(0);
        let silent = format!(
            "shard {shard}: no leader among its {} replicas answered",
            self.topology.replicas(shard).len()
        );
        let error = match &transaction.phase {
            Phase::Preparing(preparing) if preparing.is_in_vain() => {
                Error::new(ErrorCode::Unavailable, format!("{silent}; nothing happened, retry later"))
            }
            Phase::Preparing(_) | Phase::Deciding { .. } => {
                let message =
                    format!("{silent}; the transaction may or may not commit, look before you retry");
                Error::new(ErrorCode::UnknownOutcome, message)
            }
            Phase::BackingOff { .. } => transaction.conflict(),
            Phase::Executing if self.is_unlocked() => in_doubt(&silent),
            Phase::Executing if transaction.own.stamping => {
                let message = "the timestamp server did not answer; nothing happened, retry later";
                Error::new(ErrorCode::Unavailable, message)
            }
            Phase::Executing | Phase::Visiting { .. } | Phase::Gathering { .. } | Phase::Queued { .. } => {
                let reason = match transaction.own.blocked_at.first() {
                    Some(blocked) => format!("shard {blocked}: locks were not free in time"),
                    // With phasing, a leader tells of every operation that waits for a lock.
                    None if self.options.locks.phasing.is_some() => format!("{silent} in time"),
                    None => format!("{silent} in time, or locks were not free"),
                };
                Error::new(ErrorCode::Unavailable, format!("{reason}; nothing happened, retry later"))
            }
        };
        self.end_collection(&mut transaction, step);
        let decides = matches!(transaction.phase, Phase::Deciding { .. });
        if !decides {
            self.let_go(&transaction, step);
        }
        for member in self.part_with(&mut transaction) {
            self.fail(member, &error, step);
        }
        if !decides {
            return self.fail(transaction, &error, step);
        }
        // The first participant may have written the decision: the coordinator asks until that participant answers, and
        // no client waits.
        self.end_unheard(transaction, &error, Instant(u64::MAX), step);
    }
}
