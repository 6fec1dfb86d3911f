//! Pipelined operations of one session, one after the other: a later one must not take effect, or read, before an
//! earlier one has. Gateways send nothing else of a session while one of its requests is in progress.

use super::transaction::{Call, Purpose};
use super::{Coordinator, Step};
use protocol::KeyedOperation;
use types::{Error, ErrorCode, Instant, RequestId, SessionId};

/// An operation whose turn has not come.
#[derive(Debug)]
pub(super) struct Queued {
    id: RequestId,
    call: Call,
    since: Instant,
}

impl Coordinator {
    /// Runs the operation, or queues it behind the session's earlier ones.
    pub(super) fn on_one(
        &mut self,
        session: SessionId,
        id: RequestId,
        operation: &KeyedOperation<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let call = Call::new(&self.topology, operation);
        let state = self.sessions.entry(session).or_default();
        if state.in_turn {
            return state.queue.push_back(Queued { id, call, since: step.now.instant });
        }
        state.in_turn = true;
        self.run_in_turn(session, id, call, step);
    }

    fn run_in_turn(&mut self, session: SessionId, id: RequestId, call: Call, step: &mut Step<'_, '_>) {
        let mut transaction = self.transaction(session, vec![call], Purpose::Auto, step);
        transaction.request = Some(id);
        transaction.in_turn = true;
        self.run(transaction, step);
    }

    /// Lets the next operation of every session run whose last one has ended. What has waited for as long as a
    /// request may take is given up: it has not begun.
    pub(super) fn take_turns(&mut self, step: &mut Step<'_, '_>) {
        while let Some(session) = self.turns.pop() {
            let Some(state) = self.sessions.get_mut(&session) else { continue };
            let Some(Queued { id, call, since }) = state.queue.pop_front() else {
                state.in_turn = false;
                continue;
            };
            if step.now.instant - since < self.options.request_timeout {
                self.run_in_turn(session, id, call, step);
                continue;
            }
            let text = "an earlier command of the pipeline took too long; this one was not begun";
            step.out.reply(id).error(&Error::new(ErrorCode::Unavailable, text));
            self.turns.push(session);
        }
    }
}
