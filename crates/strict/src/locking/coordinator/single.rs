//! Single commands, and transactions of one request and one shard (decision 0031): one message to a leader, which evaluates
//! them, commits them and answers (`replica::single`).
//!
//! From its request on, such a transaction is in doubt, like a transaction of one shard after its Prepare.

use super::super::machine::Evaluation;
use super::super::message::Message;
use super::super::options::Concurrency;
use super::batch::BYTES;
use super::transaction::{Phase, Preparing, Tally, Transaction, asks_first};
use super::unlocked::in_doubt;
use super::{Coordinator, Step};
use crate::Part;
use crate::coordinator::{CallStep, Purpose};
use std::collections::BTreeMap;
use types::{Instant, Timestamp};

/// A transaction of more steps is not carried out in one step of a leader.
pub(super) const STEPS: usize = 64;

impl Coordinator {
    /// True of a command that may write, has to be evaluated and is a whole transaction, in the types' lock modes, and of several
    /// on one key that are sent together. (With readers and writers only, a baseline, they take locks like any other
    /// transaction.)
    pub(super) fn is_single(&self, transaction: &Transaction) -> bool {
        let steps = &transaction.steps;
        let [first, ..] = steps.list() else { return false };
        let evaluated = |(index, step): (usize, &CallStep)| {
            let is_plain = step.call.keyset.is_none() && !step.call.is_read();
            is_plain && step.call.key == first.call.key && !steps.is_unread(index, &self.expiring)
        };
        self.carries_out(transaction)
            && steps.list().len() == transaction.own.members.len() + 1
            && steps.list().iter().enumerate().all(evaluated)
    }

    /// True of a transaction of several steps that one leader can carry out, as it does a single command: all of its keys are on one
    /// shard, it is not large, and something has to be evaluated.
    fn is_local(&self, transaction: &Transaction) -> bool {
        let list = &transaction.steps.list();
        let bytes = |step: &CallStep| step.call.key.len() + step.call.operation.len();
        self.carries_out(transaction)
            && is_several(transaction)
            && !asks_first(transaction)
            && list.len() <= STEPS
            && list.iter().map(bytes).sum::<usize>() <= BYTES
            && list.iter().all(|step| step.call.keyset.is_none() && step.call.shard == list[0].call.shard)
            && !(0..list.len()).all(|index| transaction.steps.is_unread(index, &self.expiring))
    }

    /// True if leaders carry out what one of them can.
    pub(super) fn carries_out(&self, transaction: &Transaction) -> bool {
        self.leaders_carry_out() && transaction.purpose == Purpose::Auto && transaction.watches.is_empty()
    }

    /// The same of what nobody watches for and no session leads along.
    pub(super) fn leaders_carry_out(&self) -> bool {
        self.options.concurrency == Concurrency::Locking
            && !self.options.locks.readers_and_writers
            && self.options.clock.is_none()
    }

    /// True of what one message to a leader does.
    pub(super) fn is_one_message(&self, transaction: &Transaction) -> bool {
        self.is_single(transaction) || self.is_local(transaction)
    }

    /// A transaction that no other one is to join sends its requests.
    pub(super) fn set_out(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if self.is_single(&transaction) {
            self.send_or_wait(transaction, step);
        } else if self.is_local(&transaction) {
            self.send_single(transaction, step);
        } else {
            self.leave_last(&mut transaction);
            self.advance(transaction, step);
        }
    }

    /// Asks the leader for a single command.
    pub(super) fn send_single(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let shard = transaction.steps.list()[0].call.shard;
        let part = Part { participants: vec![shard], ..Part::default() };
        let term = self.protocol.leads.get(&shard).map_or(0, |lead| lead.term);
        transaction.phase = Phase::Preparing(Preparing {
            parts: BTreeMap::from([(shard, part)]),
            terms: BTreeMap::from([(shard, term)]),
            votes: BTreeMap::new(),
            read_only: false,
            tally: Tally::Here,
            single: true,
        });
        transaction.moved_at = step.now.instant;
        self.propose(&transaction, step);
        self.keep(transaction, step);
    }

    /// Asks a leader to carry it out, or not to, if it has been taken back.
    pub(super) fn run_single(
        &self,
        transaction: &Transaction,
        (shard, term): (u16, u64),
        step: &mut Step<'_, '_>,
    ) {
        if is_several(transaction) && asks_first(transaction) {
            return self.decide(shard, transaction.id, None, step);
        }
        let calls = transaction.steps.list().iter().map(|step| &step.call);
        let message = Message::Run {
            transaction: transaction.id,
            age: transaction.age,
            floor: self.floor(transaction.id),
            term,
            step: 0,
            calls: calls.map(|call| ((*call.key).into(), (*call.operation).into())).collect(),
            last: None,
        };
        self.send_leader(shard, message, step);
    }

    /// A transaction that a leader was to carry out has waited there for others' locks for long: it is taken back, unless it has been
    /// carried out, and asks for its locks step by step. Then it is not in doubt, should they not be free in time.
    pub(super) fn take_back(&self, transaction: &mut Transaction, now: Instant) {
        let Phase::Preparing(preparing) = &transaction.phase else { return };
        let is_local = preparing.single && is_several(transaction);
        transaction.own.locks_first |= is_local && now >= transaction.began + self.options.lock_timeout;
    }

    /// A leader has carried single commands out.
    pub(super) fn on_done(
        &mut self,
        shard: u16,
        number: u64,
        (at, evaluations): (Option<Timestamp>, Vec<Evaluation>),
        step: &mut Step<'_, '_>,
    ) {
        self.acknowledged(shard, number, step);
        let Some(mut transaction) = self.take(number) else { return };
        let expected = match &transaction.phase {
            Phase::Preparing(preparing) => preparing.single || transaction.own.last == Some(shard),
            Phase::Deciding { first, .. } => *first == shard,
            _ => false,
        };
        if !expected {
            return self.keep(transaction, step);
        }
        if let (Some(_), Some(at)) = (transaction.own.last, at) {
            return self.committed_last(transaction, shard, (at, evaluations), step);
        }
        for (index, evaluation) in evaluations.into_iter().enumerate() {
            transaction.steps.take(index, evaluation.into());
        }
        match at {
            Some(at) => self.committed(transaction, shard, at, step),
            None => self.reply_all(transaction, step),
        }
    }

    /// They have committed, and nobody knows their results any more.
    pub(super) fn lost_results(&mut self, mut transaction: Transaction, shard: u16, step: &mut Step<'_, '_>) {
        let why = format!("shard {shard}: the command has been carried out, and its reply is lost");
        for member in self.part_with(&mut transaction) {
            self.fail(member, &in_doubt(&why), step);
        }
        self.fail(transaction, &in_doubt(&why), step);
    }
}

/// True of a transaction of several steps, and not of several that are sent together.
pub(super) fn is_several(transaction: &Transaction) -> bool {
    transaction.own.members.is_empty() && transaction.steps.list().len() > 1
}
