//! Timestamps from a server, for measurements only: what Txn-OCC of TAPIR's paper (section 7.3) waits for before it asks for votes.
//!
//! The server is a coordinator without clients: any of them hands out timestamps, each above the last one. Nothing rests
//! on them, as nothing rests on any clock here; a transaction commits not before its own, and has paid a round trip.

use super::super::message::Message;
use super::transaction::Transaction;
use super::{Coordinator, Step};
use std::time::Duration;
use types::{Address, Timestamp};

/// The server observes no timestamp of others.
pub(super) const SERVER_BOUND: Duration = Duration::ZERO;

impl Coordinator {
    /// Asks for the timestamp of a transaction that is evaluated.
    pub(super) fn ask_time(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        transaction.own.stamping = true;
        transaction.moved_at = step.now.instant;
        self.send_clock(&transaction, step);
        self.keep(transaction, step);
    }

    pub(super) fn send_clock(&self, transaction: &Transaction, step: &mut Step<'_, '_>) {
        if let Some(server) = self.options.clock {
            step.out.send(server, Message::Stamp { transaction: transaction.id });
        }
    }

    /// A message of the timestamp service: a request for the time, or the answer.
    pub(super) fn on_clock_message(&mut self, from: Address, message: Message, step: &mut Step<'_, '_>) {
        match message {
            Message::Stamp { transaction } => {
                let at = self.protocol.server.tick(step.now.wall);
                step.out.send(from, Message::Stamped { transaction, at });
            }
            Message::Stamped { transaction, at } if self.is_mine(transaction) => {
                self.on_stamped(transaction.number, at, step);
            }
            _ => {}
        }
    }

    fn on_stamped(&mut self, number: u64, at: Timestamp, step: &mut Step<'_, '_>) {
        let Some(mut transaction) = self.take(number) else { return };
        if !transaction.own.stamping {
            return self.keep(transaction, step);
        }
        transaction.own.stamping = false;
        transaction.own.stamp = Some(at);
        self.prepare(transaction, step);
    }
}
