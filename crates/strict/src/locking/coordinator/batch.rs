//! Batching: the coordinator sends single commands of one key that arrive while others of it are in flight together.
//!
//! ```text
//!   two messages of the key are under way      one comes back, or a millisecond is over
//!      command:  comes, waits ------------------^ all that wait: one message
//! ```
//!
//! A command by itself is a message, a lock, an entry of the log and an answer. In a batch, where many clients change
//! one key, it is an operation and a result more of those. Without contention no command waits.
//!
//! # Invariants
//! - A waiting command has sent no request: it holds no lock, and nothing has happened if the coordinator gives it up.
//! - No command waits longer than [`Combining::hold`](crate::locking::Combining), whatever becomes of the batches in
//!   flight.
//! - A batch is one transaction, and each member gets the results of its steps. As with [combined](super::combine)
//!   transactions, the first command's number is the batch's, and all members share its outcome.

use super::transaction::{Phase, Transaction};
use super::{Coordinator, Step};
use crate::locking::message::Timer;
use crate::locking::options::Combining;
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of operations in a batch, or one command.
pub(super) const BYTES: usize = 64 << 10;

/// The single commands of a key.
#[derive(Debug, Default)]
struct KeyBatches {
    /// The first command of every batch that is under way.
    under_way: Vec<u64>,
    /// Those that wait, and others that do not any more.
    waiting: Vec<u64>,
}

/// Which single commands are under way, and which wait for them.
#[derive(Debug, Default)]
pub(super) struct Batches {
    by_key: BTreeMap<CompactKey, KeyBatches>,
    /// A batch of these has come back.
    due: BTreeSet<CompactKey>,
}

impl Batches {
    /// A command of this key is to wait.
    fn is_full(&self, key: &CompactKey, limits: Combining) -> bool {
        self.by_key.get(key).is_some_and(|key_batches| key_batches.under_way.len() >= limits.under_way)
    }

    /// A batch that this command is the first of has been sent.
    fn sent(&mut self, key: &CompactKey, first: u64) {
        self.by_key.entry(key.clone()).or_default().under_way.push(first);
    }

    /// The command is under way no more.
    pub(super) fn came_back(&mut self, key: &CompactKey, number: u64) {
        let Some(key_batches) = self.by_key.get_mut(key) else { return };
        let before = key_batches.under_way.len();
        key_batches.under_way.retain(|first| *first != number);
        match (key_batches.under_way.len() < before, key_batches.waiting.is_empty()) {
            (true, false) => drop(self.due.insert(key.clone())),
            (true, true) if key_batches.under_way.is_empty() => drop(self.by_key.remove(key)),
            _ => {}
        }
    }

    /// Takes those that wait.
    fn take(&mut self, key: &CompactKey) -> Vec<u64> {
        let Some(key_batches) = self.by_key.get_mut(key) else { return Vec::new() };
        let taken = std::mem::take(&mut key_batches.waiting);
        if key_batches.under_way.is_empty() {
            self.by_key.remove(key);
        }
        taken
    }
}

impl Coordinator {
    /// A single command is sent, or waits to be sent with others.
    pub(super) fn send_or_wait(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let key = &transaction.steps.list()[0].call.key;
        match self.options.combining {
            Some(limits) if transaction.retries == 0 && self.protocol.batches.is_full(key, limits) => {
                if let Some(key_batches) = self.protocol.batches.by_key.get_mut(key) {
                    key_batches.waiting.push(transaction.id.number);
                }
                transaction.phase = Phase::Queued { until: step.now.instant + limits.hold };
                self.keep(transaction, step);
            }
            Some(_) => {
                let key = key.clone();
                self.send_first(&key, transaction, step);
            }
            None => self.send_single(transaction, step),
        }
    }

    /// It has waited for as long as it may.
    pub(super) fn wait_no_longer(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let key = transaction.steps.list()[0].call.key.clone();
        self.keep(transaction, step);
        self.send_batch(&key, step);
    }

    /// A transaction is under way no more, or not under this number.
    pub(super) fn came_back(&mut self, transaction: &Transaction) {
        if let Some(first) = transaction.steps.list().first() {
            self.protocol.batches.came_back(&first.call.key, transaction.id.number);
        }
    }

    /// Sends what waits for batches that have come back; false if nothing does.
    pub(super) fn send_due(&mut self, step: &mut Step<'_, '_>) -> bool {
        let due = std::mem::take(&mut self.protocol.batches.due);
        due.iter().for_each(|key| self.send_batch(key, step));
        !due.is_empty()
    }

    fn take_queued(&mut self, number: u64) -> Option<Transaction> {
        let waits = |run: &Transaction| matches!(run.phase, Phase::Queued { .. });
        self.transactions.get(&number).filter(|run| waits(run))?;
        self.take(number)
    }

    /// Sends what waits for a key.
    pub(super) fn send_batch(&mut self, key: &CompactKey, step: &mut Step<'_, '_>) {
        let Some(limits) = self.options.combining else { return };
        let mut batch: Option<Transaction> = None;
        for number in self.protocol.batches.take(key) {
            let Some(transaction) = self.take_queued(number) else { continue };
            match batch.as_mut().filter(|host| has_room(host, &transaction, limits)) {
                Some(host) => add(host, transaction, step),
                None => {
                    let full = batch.replace(transaction);
                    full.into_iter().for_each(|host| self.send_first(key, host, step));
                }
            }
        }
        batch.into_iter().for_each(|host| self.send_first(key, host, step));
    }

    /// Sends a batch, or the only command of one.
    fn send_first(&mut self, key: &CompactKey, host: Transaction, step: &mut Step<'_, '_>) {
        self.protocol.batches.sent(key, host.id.number);
        self.send_single(host, step);
    }
}

/// True if a command may be a part of a batch.
fn has_room(host: &Transaction, command: &Transaction, limits: Combining) -> bool {
    let all = host.steps.list().iter().chain(command.steps.list());
    let bytes: usize = all.map(|step| step.call.operation.len()).sum();
    host.own.members.len() + 1 < limits.members && bytes <= BYTES
}

/// A command becomes a part of a batch.
fn add(host: &mut Transaction, mut command: Transaction, step: &mut Step<'_, '_>) {
    step.out.disarm(Timer::Transaction { number: command.id.number });
    host.steps.push(command.steps.list().iter().map(|step| step.call.clone()));
    command.phase = Phase::Executing;
    host.own.members.push(command);
}
