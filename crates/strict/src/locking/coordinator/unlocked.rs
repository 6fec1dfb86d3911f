//! Without locks: the coordinator sends every step of a request by itself, and the step is over with its answer.

use super::super::message::Message;
use super::super::options::Concurrency;
use super::transaction::{Phase, Transaction};
use super::{Coordinator, Step};
use types::{Error, ErrorCode, TransactionId};

/// The reply where some operations may have been carried out.
pub(super) fn in_doubt(why: &str) -> Error {
    let message =
        format!("{why}; the commands may have taken effect, or some of them: read before you retry");
    Error::new(ErrorCode::UnknownOutcome, message)
}

impl Coordinator {
    pub(super) fn is_unlocked(&self) -> bool {
        self.options.concurrency == Concurrency::Unlocked
    }

    /// Asks a leader to carry out a step.
    pub(super) fn ask_single(&self, transaction: &Transaction, index: usize, step: &mut Step<'_, '_>) {
        let call = &transaction.steps.list()[index].call;
        let message = Message::Run {
            transaction: TransactionId { number: transaction.id.number + index as u64, ..transaction.id },
            age: transaction.age,
            floor: self.floor(transaction.id),
            // Any leader will do.
            term: 0,
            step: index as u32,
            calls: vec![((*call.key).into(), (*call.operation).into())],
            last: None,
        };
        self.send_leader(call.shard, message, step);
    }

    /// The request that has a step with this number.
    fn request_of(&self, id: TransactionId) -> Option<u64> {
        let (number, transaction) = self.transactions.range(..=id.number).next_back()?;
        (id.number - number < transaction.steps.list().len().max(1) as u64).then_some(*number)
    }

    /// Takes an answer to a step; any other message is given back, named by its request.
    pub(super) fn take_unlocked(
        &mut self,
        (shard, member): (u16, usize),
        message: Message,
        step: &mut Step<'_, '_>,
    ) -> Option<Message> {
        if !self.is_unlocked() {
            return Some(message);
        }
        match message {
            Message::Executed { transaction: id, step: index, term, evaluation, .. } if self.is_mine(id) => {
                self.learn_leader(shard, member, term);
                let mut transaction = self.take(self.request_of(id)?)?;
                if !transaction.steps.is_requested(index as usize, shard) {
                    self.keep(transaction, step);
                    return None;
                }
                transaction.own.hops = 0;
                transaction.steps.take(index as usize, evaluation.into());
                self.advance(transaction, step);
                None
            }
            Message::Ended { transaction: id, .. } if self.is_mine(id) => {
                let transaction = self.take(self.request_of(id)?)?;
                let index = (id.number - transaction.id.number) as usize;
                match transaction.phase {
                    Phase::Executing if transaction.steps.is_requested(index, shard) => {
                        let why = format!(
                            "shard {shard}: the leader that has carried the operation out is gone with its reply"
                        );
                        self.fail(transaction, &in_doubt(&why), step);
                    }
                    _ => self.keep(transaction, step),
                }
                None
            }
            Message::Redirect { transaction: id, leader, term } if self.is_mine(id) => {
                let number = self.request_of(id).unwrap_or(id.number);
                Some(Message::Redirect { transaction: TransactionId { number, ..id }, leader, term })
            }
            other => Some(other),
        }
    }
}
