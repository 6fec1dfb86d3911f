//! Requests, and what sessions keep between them: watches and an open transaction.

use super::transaction::{Call, CallStep, Phase, Progress, Purpose, Transaction, observe_whole};
use super::turns::Queued;
use super::{Coordinator, Step};
use commit::Stamp;
use protocol::Request;
use std::collections::{BTreeMap, VecDeque};
use types::{Error, KeyHash, RequestId, SessionId, Timestamp};

/// What a session keeps.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Watched keys, as steps that observe them.
    pub watches: Vec<Call>,
    /// The number of its open interactive transaction.
    pub open: Option<u64>,
    /// An operation of the pipeline is in progress.
    pub in_turn: bool,
    /// The operations behind it.
    pub queue: VecDeque<Queued>,
}

impl Coordinator {
    pub(super) fn on_request(&mut self, id: RequestId, request: &Request<'_>, step: &mut Step<'_, '_>) {
        match request {
            Request::One { session, operation } => self.on_one(*session, id, operation, step),
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

    /// A transaction whose steps are known, behind those that look at what its session watches.
    pub(super) fn start(
        &mut self,
        session: SessionId,
        request: RequestId,
        calls: Vec<Call>,
        purpose: Purpose,
        watched: bool,
        step: &mut Step<'_, '_>,
    ) {
        let mut watches = if watched { self.take_watches(session) } else { Vec::new() };
        let silent = watches.len();
        watches.extend(calls);
        let mut transaction = self.transaction(session, watches, purpose, step);
        transaction.replied = silent;
        transaction.request = Some(request);
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
        let id = self.next_id();
        Transaction {
            id,
            age: Stamp { at: Timestamp::from_wall(step.now.wall), transaction: id },
            session,
            request: None,
            purpose,
            steps: calls.into_iter().map(waiting).collect(),
            replied: 0,
            expiries: BTreeMap::new(),
            terms: BTreeMap::new(),
            now_millis: step.now.wall.as_millis(),
            phase: Phase::Executing,
            resend_at: step.now.instant + self.options.resend_every,
            deadline: step.now.instant + self.options.request_timeout,
            hops: 0,
            retries: 0,
            in_turn: false,
            committing: false,
            conflicted: None,
        }
    }

    fn take_watches(&mut self, session: SessionId) -> Vec<Call> {
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
        let shards = self.topology.shards.len() as u16;
        let call = |(key, hash): &(&[u8], KeyHash)| Call {
            key: (*key).into(),
            shard: hash.share(shards),
            operation: observe_whole(),
            blind: false,
            watch: None,
        };
        let calls = keys.iter().map(call).collect();
        self.start(session, id, calls, Purpose::Watch, false, step);
    }

    /// Every watched key was looked at: the versions are kept for the session. Whether they were all true at once
    /// does not matter, since each is compared again; nothing stays locked.
    pub(super) fn watch_evaluated(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        self.let_go(&transaction, step);
        let seen = transaction.done().map(|(known, done)| Call { watch: done.version, ..known.call.clone() });
        let seen: Vec<Call> = seen.collect();
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
        let watches = if watched { self.take_watches(session) } else { Vec::new() };
        let mut transaction = self.transaction(session, watches, Purpose::Interactive { read_only }, step);
        transaction.replied = transaction.steps.len();
        self.sessions.entry(session).or_default().open = Some(transaction.id.number);
        // What is watched is looked at with the first operations, or at the commit.
        self.park(transaction, step);
        step.out.reply(id).simple("OK");
    }

    /// Keeps a transaction that waits for its session.
    fn park(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let number = transaction.id.number;
        step.out.disarm(super::Timer::Transaction { number });
        self.transactions.insert(number, transaction);
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
        let Some(mut transaction) = self.resume(session, id, step) else { return };
        let writes = |step: &protocol::Step<'_>| matches!(step, protocol::Step::Key(keyed) if !keyed.operation.is_read());
        let read_only = transaction.purpose == Purpose::Interactive { read_only: true };
        let calls = if read_only && steps.iter().any(writes) {
            Err(Error::err("the transaction is read-only"))
        } else {
            self.calls(steps)
        };
        match calls {
            Ok(calls) => {
                transaction.steps.extend(calls.into_iter().map(waiting));
                transaction.request = Some(id);
                self.advance(transaction, step);
            }
            Err(error) => {
                step.out.reply(id).error(&error);
                self.park(transaction, step);
            }
        }
    }

    /// Takes the open transaction out for a request; one that has lost a lock meanwhile ends with the reply.
    fn resume(&mut self, session: SessionId, id: RequestId, step: &mut Step<'_, '_>) -> Option<Transaction> {
        match self.take_open(session) {
            Ok(mut transaction) if matches!(transaction.phase, Phase::Doomed) => {
                transaction.request = Some(id);
                let error = super::commit::conflict(transaction.conflicted.as_deref());
                self.fail(transaction, &error, step);
                None
            }
            Ok(mut transaction) => {
                transaction.deadline = step.now.instant + self.options.request_timeout;
                Some(transaction)
            }
            Err(error) => {
                step.out.reply(id).error(&error);
                None
            }
        }
    }

    fn on_commit(&mut self, session: SessionId, id: RequestId, step: &mut Step<'_, '_>) {
        let Some(mut transaction) = self.resume(session, id, step) else { return };
        transaction.request = Some(id);
        transaction.committing = true;
        self.advance(transaction, step);
    }

    /// Gives the open transaction up. One whose Prepare is out goes on by itself, and nobody hears of it.
    fn drop_open(&mut self, session: SessionId, step: &mut Step<'_, '_>) {
        let Some(number) = self.sessions.get_mut(&session).and_then(|session| session.open.take()) else {
            return;
        };
        let Some(mut transaction) = self.transactions.remove(&number) else { return };
        transaction.request = None;
        if matches!(transaction.phase, Phase::Preparing(_) | Phase::Deciding { .. }) {
            return self.keep(transaction, step);
        }
        self.let_go(&transaction, step);
        self.forget(&transaction, step);
    }
}

fn waiting(call: Call) -> CallStep {
    CallStep { call, progress: Progress::Waiting }
}
