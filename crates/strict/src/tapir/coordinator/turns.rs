//! The pipelines of sessions. A later operation must not take effect, or read, before an earlier one has; what waits
//! runs as one transaction, which keeps that order and takes as long as a single operation. Gateways send nothing
//! else of a session while one of its requests is in progress.

use super::transaction::{Call, Purpose, Transaction};
use super::{Coordinator, Step};
use protocol::KeyedOperation;
use types::{Error, ErrorCode, Instant, RequestId, SessionId};

/// How many operations of a pipeline become one transaction. More would save little and conflict with more.
const TURN: usize = 64;

/// An operation whose turn has not come.
#[derive(Debug)]
pub(super) struct Queued {
    id: RequestId,
    call: Call,
    deadline: Instant,
}

impl Coordinator {
    /// Queues the operation behind the session's earlier ones.
    pub(super) fn on_one(
        &mut self,
        session: SessionId,
        id: RequestId,
        operation: &KeyedOperation<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let call = Call::new(&self.topology, operation);
        let deadline = step.now.instant + self.options.request_timeout;
        let state = self.sessions.entry(session).or_default();
        state.queue.push_back(Queued { id, call, deadline });
        if !std::mem::replace(&mut state.in_turn, true) {
            self.turns.push(session);
        }
    }

    /// Lets the next operations of every session run whose last ones have ended. What has waited for as long as a
    /// request may take is given up: it has not begun.
    pub(super) fn take_turns(&mut self, step: &mut Step<'_, '_>) {
        while let Some(session) = self.turns.pop() {
            let Some(state) = self.sessions.get_mut(&session) else { continue };
            while let Some(late) = state.queue.pop_front_if(|queued| queued.deadline <= step.now.instant) {
                let text = "an earlier command of the pipeline took too long; this one was not begun";
                step.out.reply(late.id).error(&Error::new(ErrorCode::Unavailable, text));
            }
            let count = state.queue.len().min(TURN);
            let (turn, calls): (Vec<_>, Vec<_>) =
                state.queue.drain(..count).map(|queued| (queued.id, queued.call)).unzip();
            let Some(first) = turn.first().copied() else {
                state.in_turn = false;
                continue;
            };
            let mut transaction = self.transaction(session, calls, Purpose::Auto, step);
            (transaction.request, transaction.turn) = (Some(first), turn);
            self.run(transaction, step);
        }
    }

    /// After a conflict the later half of a turn goes back to its queue: the fewer operations, the fewer conflicts.
    pub(super) fn shorten_turn(&mut self, transaction: &mut Transaction) {
        if transaction.turn.len() < 2 {
            return;
        }
        let kept = transaction.turn.len() / 2;
        let calls = transaction.steps.split_off(kept).into_iter().map(|step| step.call);
        let deadline = transaction.deadline;
        let rest = transaction.turn.split_off(kept).into_iter().zip(calls);
        // Of a session that is closed nobody waits for the rest.
        let Some(state) = self.sessions.get_mut(&transaction.session) else { return };
        for (id, call) in rest.rev() {
            state.queue.push_front(Queued { id, call, deadline });
        }
    }
}
