//! Requests, and what sessions keep between them: watches and an open transaction.

use super::super::operation::Invoked;
use super::execute::observe_whole;
use super::transaction::{Call, CallStep, Phase, Progress, Purpose, Transaction, Watched};
use super::turns::Queued;
use super::{Coordinator, Step};
use protocol::{KeyedOperation, Request};
use std::collections::VecDeque;
use types::{Error, KeyHash, RequestId, SessionId};

/// What a session keeps.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub watches: Vec<Watched>,
    /// The number of its open interactive transaction.
    pub open: Option<u64>,
    /// Operations of the pipeline are in progress, or about to be.
    pub in_turn: bool,
    /// The operations behind them.
    pub queue: VecDeque<Queued>,
}

impl Coordinator {
    pub(super) fn on_request(&mut self, id: RequestId, request: &Request<'_>, step: &mut Step<'_, '_>) {
        match request {
            Request::One { session, operation } => {
                self.on_one(*session, id, operation, step);
            }
            Request::Many { session, steps, watched } => self.on_many(*session, id, steps, *watched, step),
            Request::Watch { session, keys } => self.on_watch(*session, id, keys, step),
            Request::Unwatch { session } => {
                self.take_watches(*session);
                step.out.reply(id).simple("OK");
            }
            Request::Begin { session, read_only, watched } => {
                self.on_begin(*session, id, *read_only, *watched, step);
            }
            Request::Operate { session, steps } => self.on_operate(*session, id, steps, step),
            Request::Commit { session } => self.on_commit(*session, id, step),
            Request::Abort { session } => {
                self.drop_open(*session, step);
                step.out.reply(id).simple("OK");
            }
            Request::Close { session } => {
                self.drop_open(*session, step);
                self.sessions.remove(session);
            }
        }
    }

    /// A transaction whose steps are known.
    pub(super) fn start(
        &mut self,
        session: SessionId,
        request: RequestId,
        calls: Vec<Call>,
        purpose: Purpose,
        watched: bool,
        step: &mut Step<'_, '_>,
    ) {
        let mut transaction = self.transaction(session, calls, purpose, step);
        transaction.request = Some(request);
        transaction.watched = watched;
        if watched {
            transaction.watches = self.take_watches(session);
        }
        self.run(transaction, step);
    }

    /// A transaction that nobody waits for yet.
    pub(super) fn transaction(
        &mut self,
        session: SessionId,
        calls: Vec<Call>,
        purpose: Purpose,
        step: &Step<'_, '_>,
    ) -> Transaction {
        let steps = calls.into_iter().map(|call| CallStep { call, progress: Progress::Waiting }).collect();
        let id = self.next_id();
        Transaction {
            id,
            age: id.number,
            session,
            request: None,
            purpose,
            steps,
            replied: 0,
            expiries: Default::default(),
            watches: Vec::new(),
            watched: false,
            now_millis: step.now.wall.as_millis(),
            began: step.now.instant,
            phase: Phase::Executing,
            deadline: step.now.instant + self.options.request_timeout,
            retries: 0,
            turn: Vec::new(),
            conflicted: None,
        }
    }

    fn take_watches(&mut self, session: SessionId) -> Vec<Watched> {
        self.sessions
            .get_mut(&session)
            .map(|session| std::mem::take(&mut session.watches))
            .unwrap_or_default()
    }

    fn on_many(
        &mut self,
        session: SessionId,
        id: RequestId,
        steps: &[protocol::Step<'_>],
        watched: bool,
        step: &mut Step<'_, '_>,
    ) {
        if let [only @ (protocol::Step::Count | protocol::Step::Flush | protocol::Step::Scan { .. })] = steps
        {
            if watched {
                self.take_watches(session);
            }
            return self.browse(session, id, only, step);
        }
        match self.calls(steps) {
            Ok(calls) => self.start(session, id, calls, Purpose::Auto, watched, step),
            Err(error) => step.out.reply(id).error(&error),
        }
    }

    fn calls(&self, steps: &[protocol::Step<'_>]) -> Result<Vec<Call>, Error> {
        let call = |step: &protocol::Step<'_>| match step {
            protocol::Step::Key(keyed) => Ok(Call::new(&self.topology, keyed)),
            _ => Err(Error::err(
                "commands on the whole keyspace cannot take part in a transaction of a replicated strict keyspace; \
                 run them by themselves",
            )),
        };
        steps.iter().map(call).collect()
    }

    fn on_watch(
        &mut self,
        session: SessionId,
        id: RequestId,
        keys: &[(&[u8], KeyHash)],
        step: &mut Step<'_, '_>,
    ) {
        let calls = keys.iter().map(|(key, hash)| {
            let operation = datatypes::Operation::Key(datatypes::key::Operation::Deadline(
                datatypes::key::TimeFormat::MillisAt,
            ));
            Call::new(&self.topology, &KeyedOperation { key, hash: *hash, operation, blind: false })
        });
        let calls = calls.collect();
        self.start(session, id, calls, Purpose::Watch, false, step);
    }

    /// Every watched key was read: what was seen is kept for the session.
    pub(super) fn watch_evaluated(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        let seen = transaction.done().filter_map(|(known, done)| {
            let observed = done.invoked.as_ref()?.observed.clone();
            let operation = Some(observe_whole());
            let invoked = Invoked { key: known.call.key.clone(), operation, effect: None, observed };
            Some(Watched { shard: known.call.shard, invoked, expires_at: done.expires_at })
        });
        let seen: Vec<Watched> = seen.collect();
        self.sessions.entry(transaction.session).or_default().watches.extend(seen);
        if let Some(request) = transaction.request.take() {
            step.out.reply(request).simple("OK");
        }
        self.forget(&transaction, step);
    }

    fn on_begin(
        &mut self,
        session: SessionId,
        id: RequestId,
        read_only: bool,
        watched: bool,
        step: &mut Step<'_, '_>,
    ) {
        self.drop_open(session, step);
        let mut transaction = self.transaction(session, Vec::new(), Purpose::Interactive { read_only }, step);
        if watched {
            transaction.watches = self.take_watches(session);
            transaction.watched = true;
        }
        self.sessions.entry(session).or_default().open = Some(transaction.id.number);
        self.keep(transaction, step);
        step.out.reply(id).simple("OK");
    }

    /// Takes the session's open transaction out, if it is not waiting for something already.
    fn take_open(&mut self, session: SessionId) -> Result<Transaction, Error> {
        let open = self.sessions.get(&session).and_then(|session| session.open);
        let number = open.ok_or_else(|| Error::err("no transaction is open: begin one first"))?;
        let idle = self.transactions.get(&number).is_some_and(|transaction| transaction.request.is_none());
        let transaction = if idle { self.transactions.remove(&number) } else { None };
        transaction.ok_or_else(|| Error::err("the transaction is busy with an earlier request"))
    }

    fn on_operate(
        &mut self,
        session: SessionId,
        id: RequestId,
        steps: &[protocol::Step<'_>],
        step: &mut Step<'_, '_>,
    ) {
        let mut transaction = match self.take_open(session) {
            Ok(transaction) => transaction,
            Err(error) => return step.out.reply(id).error(&error),
        };
        let writes = |step: &protocol::Step<'_>| matches!(step, protocol::Step::Key(keyed) if !keyed.operation.is_read());
        let read_only = transaction.purpose == Purpose::Interactive { read_only: true };
        let calls = if read_only && steps.iter().any(writes) {
            Err(Error::err("the transaction is read-only"))
        } else {
            self.calls(steps)
        };
        match calls {
            Ok(calls) => {
                let fresh = calls.into_iter().map(|call| CallStep { call, progress: Progress::Waiting });
                transaction.steps.extend(fresh);
                transaction.request = Some(id);
                transaction.deadline = step.now.instant + self.options.request_timeout;
                self.advance(transaction, step);
            }
            Err(error) => {
                step.out.reply(id).error(&error);
                self.keep(transaction, step);
            }
        }
    }

    fn on_commit(&mut self, session: SessionId, id: RequestId, step: &mut Step<'_, '_>) {
        match self.take_open(session) {
            Ok(mut transaction) => {
                transaction.request = Some(id);
                transaction.deadline = step.now.instant + self.options.request_timeout;
                self.conclude(transaction, step);
            }
            Err(error) => step.out.reply(id).error(&error),
        }
    }

    /// Gives the open transaction up. One whose Prepare is out goes on by itself, and nobody hears of it.
    fn drop_open(&mut self, session: SessionId, step: &mut Step<'_, '_>) {
        let Some(number) = self.sessions.get_mut(&session).and_then(|session| session.open.take()) else {
            return;
        };
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        transaction.request = None;
        if matches!(transaction.phase, Phase::Preparing(_)) {
            self.keep(transaction, step);
        } else {
            self.forget(&transaction, step);
        }
    }
}
