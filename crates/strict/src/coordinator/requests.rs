//! What sessions ask for.

use super::draw::Own;
use super::sessions::Queued;
use super::{Call, CommitProtocol, Coordinator, Purpose, Step, Transaction, keyset, observe_whole};
use protocol::{ContextRequest, KeyedOperation, Request};
use std::collections::BTreeSet;
use types::{Error, ErrorCode, KeyHash, RequestId, SessionId};

impl<P: CommitProtocol> Coordinator<P> {
    pub(super) fn on_request(&mut self, id: RequestId, request: &Request<'_>, step: &mut Step<'_, '_, P>) {
        match request {
            Request::Many { session, .. }
            | Request::Watch { session, .. }
            | Request::Begin { session, .. }
            | Request::Operate { session, .. }
            | Request::Commit { session } => self.sessions.on_request(*session, step.now.instant),
            // One is queued; the others have to do with no transaction.
            _ => {}
        }
        match request {
            Request::One { session, operation } => self.on_one(*session, id, operation, step),
            Request::Many { session, steps, watched, multi } => {
                self.on_many(*session, id, steps, (*watched, *multi), step);
            }
            Request::Watch { session, keys } => self.on_watch(*session, id, keys, step),
            Request::Unwatch { session } => {
                self.sessions.take_watches(*session);
                step.out.reply(id).simple("OK");
            }
            Request::Begin { session, read_only, watched } => {
                self.on_begin(*session, id, *read_only, *watched, step);
            }
            Request::Operate { session, steps } => self.on_operate(*session, id, steps, step),
            Request::Commit { session } => self.on_commit(*session, id, step),
            Request::Abort { session } => {
                let open = self.sessions.opened(*session).and_then(|number| self.transactions.get(&number));
                let watches = open.map(|transaction| transaction.watches.clone()).unwrap_or_default();
                self.drop_open(*session, step);
                watches.into_iter().for_each(|watched| self.sessions.watch(*session, watched));
                step.out.reply(id).simple("OK");
            }
            Request::Context { .. } => step.out.reply(id).error(&ContextRequest::refusal()),
            Request::Own { words, .. } => step.out.reply(id).error(&Request::refused(words, "strict")),
            Request::Close { session } => {
                self.drop_open(*session, step);
                self.sessions.remove(*session);
            }
        }
    }

    fn on_one(
        &mut self,
        session: SessionId,
        id: RequestId,
        operation: &KeyedOperation<'_>,
        step: &mut Step<'_, '_, P>,
    ) {
        let call = Call::new(&self.topology, operation);
        let now = step.now.instant;
        let deadline = now + self.settings.request_timeout;
        self.sessions.queue(session, Queued { id, call, deadline }, now);
    }

    /// Lets the next operations of every session run whose last ones have ended.
    pub(super) fn take_turns(&mut self, step: &mut Step<'_, '_, P>) {
        while let Some(turn) = self.sessions.next_turn(step.now.instant, P::TURN) {
            for late in turn.late {
                let text = "an earlier command of the pipeline took too long; this one was not begun";
                step.out.reply(late).error(&Error::new(ErrorCode::Unavailable, text));
            }
            let (requests, calls): (Vec<_>, Vec<_>) =
                turn.operations.into_iter().map(|queued| (queued.id, queued.call)).unzip();
            let Some(first) = requests.first().copied() else { continue };
            let mut transaction = self.transaction(turn.session, Purpose::Auto, Vec::new(), calls, step);
            (transaction.request, transaction.turn) = (Some(first), requests);
            self.run(transaction, step);
        }
    }

    /// After a conflict the later half of a turn goes back to its queue: the fewer operations, the fewer conflicts.
    pub(crate) fn shorten_turn(&mut self, transaction: &mut Transaction<P>) {
        if transaction.turn.len() < 2 {
            return;
        }
        let half = transaction.turn.len() / 2;
        let calls = transaction.steps.split_off(half).into_iter().map(|step| step.call);
        let deadline = transaction.deadline;
        let rest = transaction.turn.split_off(half).into_iter().zip(calls);
        let queued = rest.map(|(id, call)| Queued { id, call, deadline });
        self.sessions.put_back(transaction.session, queued);
    }

    /// Commands of a pipeline ran as one transaction, and shards did not answer. Only some of the commands fail with
    /// the transaction: those on the silent shards, or, where it is `in_doubt` whether the transaction took effect,
    /// those that write. The coordinator queues the other commands again, with a new deadline for queued commands of
    /// other shards.
    pub(crate) fn divide_turn(
        &mut self,
        transaction: &mut Transaction<P>,
        silent: &BTreeSet<u16>,
        in_doubt: bool,
        step: &mut Step<'_, '_, P>,
    ) {
        let is_answered = |call: &Call| if in_doubt { !call.is_read() } else { silent.contains(&call.shard) };
        let calls = transaction.steps.list().iter().map(|step| &step.call);
        if transaction.request.is_none()
            || !transaction.turn.iter().zip(calls.clone()).any(|(_, call)| is_answered(call))
        {
            return;
        }
        let deadline = step.now.instant + self.settings.request_timeout;
        let (mut answered, mut again) = (Vec::new(), Vec::new());
        for (id, call) in transaction.turn.iter().copied().zip(calls) {
            match is_answered(call) {
                true => answered.push(id),
                false => again.push(Queued { id, call: call.clone(), deadline }),
            }
        }
        for queued in self.sessions.take_queue(transaction.session) {
            if silent.contains(&queued.call.shard) {
                let shard = queued.call.shard;
                let text = format!(
                    "shard {shard} did not answer an earlier command of the pipeline; nothing happened"
                );
                step.out.reply(queued.id).error(&Error::new(ErrorCode::Unavailable, text));
            } else {
                again.push(Queued { deadline, ..queued });
            }
        }
        self.sessions.put_back(transaction.session, again.into_iter());
        (transaction.request, transaction.turn) = (answered.first().copied(), answered);
    }

    fn on_many(
        &mut self,
        session: SessionId,
        id: RequestId,
        steps: &[protocol::Step<'_>],
        (watched, multi): (bool, bool),
        step: &mut Step<'_, '_, P>,
    ) {
        if let [protocol::Step::Random] = steps {
            return self.draw(session, id, Own::default(), step);
        }
        let whole = P::refuses_transactions(&self.options).is_none();
        let exact = whole && (multi || matches!(steps, [protocol::Step::Flush]));
        if let (
            false,
            [only @ (protocol::Step::Count | protocol::Step::Flush | protocol::Step::Scan { .. })],
        ) = (exact, steps)
        {
            if watched {
                self.sessions.take_watches(session);
            }
            return self.keyspace_query(session, id, only, step);
        }
        let calls = match self.calls(steps) {
            Ok(calls) => calls,
            Err(error) => return step.out.reply(id).error(&error),
        };
        let watches = if watched { self.sessions.take_watches(session) } else { Vec::new() };
        let mut transaction = self.transaction(session, Purpose::Auto, watches, calls, step);
        transaction.request = Some(id);
        self.run(transaction, step);
    }

    fn calls(&self, steps: &[protocol::Step<'_>]) -> Result<Vec<Call>, Error> {
        let mut calls = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                protocol::Step::Key(keyed) => calls.push(Call::new(&self.topology, keyed)),
                protocol::Step::Losses(_) => return Err(protocol::Losses::none()),
                protocol::Step::Random => {
                    return Err(Error::refused("a key is drawn by a request of its own"));
                }
                _ if P::refuses_transactions(&self.options).is_some() => {
                    return Err(Error::refused(
                        "commands on the whole keyspace cannot be among others in a keyspace with LOCKS none, a \
                         baseline without transactions; run them by themselves",
                    ));
                }
                _ => {
                    let keyset = keyset::calls(&self.topology, step);
                    calls.extend(keyset.ok_or_else(|| Error::err("invalid cursor"))?);
                }
            }
        }
        Ok(calls)
    }

    fn on_watch(
        &mut self,
        session: SessionId,
        id: RequestId,
        keys: &[(&[u8], KeyHash)],
        step: &mut Step<'_, '_, P>,
    ) {
        if let Some(reason) = P::refuses_transactions(&self.options) {
            return step.out.reply(id).error(&Error::refused(reason));
        }
        let call = |(key, hash): &(&[u8], KeyHash)| {
            let keyed = KeyedOperation { key, hash: *hash, operation: observe_whole(), blind: false };
            Call::new(&self.topology, &keyed)
        };
        let calls = keys.iter().map(call).collect();
        let mut transaction = self.transaction(session, Purpose::Watch, Vec::new(), calls, step);
        transaction.request = Some(id);
        self.run(transaction, step);
    }

    fn on_begin(
        &mut self,
        session: SessionId,
        id: RequestId,
        read_only: bool,
        watched: bool,
        step: &mut Step<'_, '_, P>,
    ) {
        if let Some(reason) = P::refuses_transactions(&self.options) {
            return step.out.reply(id).error(&Error::refused(reason));
        }
        self.drop_open(session, step);
        let watches = if watched { self.sessions.take_watches(session) } else { Vec::new() };
        let purpose = Purpose::Interactive { read_only };
        let transaction = self.transaction(session, purpose, watches, Vec::new(), step);
        self.sessions.open(session, transaction.id.number);
        // Watches that are read again are so with the first operations, or at the commit.
        self.keep(transaction, step);
        step.out.reply(id).simple("OK");
    }

    /// Takes the session's open transaction out, if it has not failed and is not waiting for something already.
    fn take_open(&mut self, session: SessionId) -> Result<Transaction<P>, Error> {
        if let Some(error) = self.sessions.failure(session) {
            return Err(error);
        }
        let open = self.sessions.opened(session);
        let number = open.ok_or_else(|| Error::refused("no transaction is open: begin one first"))?;
        let idle = self.transactions.get(&number).is_some_and(|transaction| transaction.request.is_none());
        let transaction = if idle { self.take(number) } else { None };
        transaction.ok_or_else(|| Error::refused("the transaction is busy with an earlier request"))
    }

    /// Takes the open transaction out for a request.
    fn resume(
        &mut self,
        session: SessionId,
        id: RequestId,
        step: &mut Step<'_, '_, P>,
    ) -> Option<Transaction<P>> {
        match self.take_open(session) {
            Ok(mut transaction) => {
                transaction.idle_since = step.now.instant;
                transaction.deadline = step.now.instant + self.settings.request_timeout;
                transaction.request = Some(id);
                Some(transaction)
            }
            Err(error) => {
                step.out.reply(id).error(&error);
                None
            }
        }
    }

    fn on_operate(
        &mut self,
        session: SessionId,
        id: RequestId,
        steps: &[protocol::Step<'_>],
        step: &mut Step<'_, '_, P>,
    ) {
        let Some(mut transaction) = self.resume(session, id, step) else { return };
        if let [protocol::Step::Random] = steps {
            let own = Own::of(&transaction.steps);
            transaction.request = None;
            self.keep(transaction, step);
            return self.draw(session, id, own, step);
        }
        let writes = |step: &protocol::Step<'_>| match step {
            protocol::Step::Key(keyed) => !keyed.operation.is_read(),
            protocol::Step::Flush => true,
            protocol::Step::Count
            | protocol::Step::Keys
            | protocol::Step::Random
            | protocol::Step::Scan { .. }
            | protocol::Step::Losses(_) => false,
        };
        let read_only = transaction.purpose == Purpose::Interactive { read_only: true };
        let calls = if read_only && steps.iter().any(writes) {
            Err(Error::err("the transaction is read-only"))
        } else {
            self.calls(steps)
        };
        match calls {
            Ok(calls) => {
                transaction.steps.push(calls);
                self.advance(transaction, step);
            }
            Err(error) => {
                step.out.reply(id).error(&error);
                transaction.request = None;
                self.keep(transaction, step);
            }
        }
    }

    fn on_commit(&mut self, session: SessionId, id: RequestId, step: &mut Step<'_, '_, P>) {
        let open = self.resume(session, id, step);
        self.sessions.end_failed(session);
        if let Some(mut transaction) = open {
            transaction.committing = true;
            self.advance(transaction, step);
        }
    }

    fn drop_open(&mut self, session: SessionId, step: &mut Step<'_, '_, P>) {
        self.sessions.end_failed(session);
        if let Some(number) = self.sessions.opened(session) {
            self.sessions.close(session, number);
            self.drop_transaction(number, step);
        }
    }
}
