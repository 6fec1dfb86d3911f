//! What clients ask: commands, transactions, watches.

use super::clients::{Open, Watch, session_at};
use super::{Local, SHARED, Site};
use crate::instance::Instance;
use crate::{Begin, End, StateId, Transaction};
use datatypes::Context;
use mvcc::CompactKey;
use protocol::{ContextRequest, KeyedOperation, Now, Outputs, Request, Step};
use types::{Error, ErrorCode, Instant, ProcessId, ReplyBuf, ReplySink, Rng, SessionId};

/// A scan of the whole keyspace in one piece.
const ALL: usize = usize::MAX;

impl Site {
    /// Answers a request of a client of this process, or of another one of the region.
    pub(crate) fn on_request(
        &mut self,
        process: Option<ProcessId>,
        request: &Request<'_>,
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
        out: &mut Outputs<'_, Instance>,
    ) {
        self.claims.asking = request.session();
        let session = session_at(process, request.session());
        let is_over = matches!(request, Request::Close { .. });
        if self.options.local == Local::Branch && !is_over {
            self.own_thread(session);
        }
        let way = if is_over { Ok(()) } else { self.find_way(session) };
        if let Err(refusal) = way.and_then(|()| request.refuse_user_types("branch")) {
            return reply.error(&refusal);
        }
        self.note_requested(request.step_count());
        let mut scratch = ReplyBuf::new();
        let done = match request {
            Request::One { operation, .. } => {
                let step = [Step::Key(operation.clone())];
                self.transact(session, &step, false, (now, random), &mut scratch, out)
            }
            Request::Many { steps, watched, .. } => {
                let done = self.transact(session, steps, *watched, (now, random), &mut scratch, out);
                if *watched {
                    // Also where it was refused before they were looked at.
                    self.forget_watches(session);
                }
                done
            }
            Request::Watch { keys, .. } => self.watch(session, keys, now).map(|()| scratch.simple("OK")),
            Request::Unwatch { .. } => {
                self.forget_watches(session);
                scratch.simple("OK");
                Ok(())
            }
            Request::Begin { read_only, watched, .. } => {
                self.begin(session, None, (*read_only, *watched), now.instant).map(|_| scratch.simple("OK"))
            }
            Request::Operate { steps, .. } => self.operate(session, steps, (now, random), &mut scratch),
            Request::Commit { .. } => match self.commit(session, None, now, out) {
                Ok(Committed::Stopped) => {
                    scratch.null_array();
                    Ok(())
                }
                Ok(_) => {
                    scratch.simple("OK");
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Request::Abort { .. } => {
                self.abort(session);
                scratch.simple("OK");
                Ok(())
            }
            Request::Own { words, steps, .. } => {
                self.on_words(session, (words, steps), (now, random), &mut scratch, out)
            }
            Request::Context { .. } => Err(ContextRequest::refusal()),
            Request::Close { .. } => return self.close(session),
        };
        self.note_standing(out);
        match done {
            Ok(()) => scratch.replay(reply),
            Err(error) => reply.error(&error),
        }
    }

    /// Steps as a transaction of their own. It begins at a leaf, in the same step, so that it never meets another one of
    /// this site.
    fn transact(
        &mut self,
        session: SessionId,
        steps: &[Step<'_>],
        watched: bool,
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<(), Error> {
        let (begin, end) = self.constraints(session);
        let mut transaction = self.start(self.clients.thread(session), &begin)?;
        if watched && self.take_touched(session, &transaction, now) {
            self.keyspace.abort(transaction);
            reply.null_array();
            return Ok(());
        }
        for step in steps {
            self.perform(&mut transaction, step, (now, random), reply);
        }
        self.finish(transaction, &end, now, out).map(|_| ())
    }

    /// What a session's transactions demand if they do not say.
    fn constraints(&self, session: SessionId) -> (Begin, End) {
        let client = self.clients.get(session);
        let begin = client.and_then(|client| client.begin.clone());
        let end = client.and_then(|client| client.end.clone());
        let is_own = client.is_some_and(|client| client.is_own);
        let usual = if is_own { End::Serializability } else { self.options.local.end() };
        let begin = begin.or_else(|| self.logged_standing(self.clients.thread(session)));
        (begin.unwrap_or_default(), end.unwrap_or(usual))
    }

    /// Evaluates a step; its reply, or its error, goes to `reply`.
    pub(super) fn perform(
        &mut self,
        transaction: &mut Transaction,
        step: &Step<'_>,
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
    ) {
        let now_millis = now.wall.as_millis();
        if let Some(error) = self.unlogged(transaction, step) {
            return reply.error(&error);
        }
        if self.keyspace.is_parted() && !matches!(step, Step::Key(_)) {
            return reply.error(&Error::err(
                "KEYS, SCAN, DBSIZE, RANDOMKEY and FLUSHDB are not for branch keyspaces with record partitions yet; KEYSPACE DROP drops everything",
            ));
        }
        match step {
            Step::Key(keyed) => self.perform_on_key(transaction, keyed, (now_millis, random), reply),
            Step::Losses(_) => reply.error(&protocol::Losses::none()),
            Step::Count => {
                let mut keys = 0;
                self.keyspace.visit(transaction, 0, ALL, now_millis, |_| keys += 1);
                reply.integer(keys);
            }
            Step::Keys => {
                let mut keys = Vec::new();
                self.keyspace.visit(transaction, 0, ALL, now_millis, |key| keys.push(key.clone()));
                put_keys(&keys, reply);
            }
            Step::Random => match self.keyspace.draw(transaction, now_millis, random) {
                Some(key) => reply.bulk(&key),
                None => reply.null(),
            },
            Step::Scan { cursor, count } => {
                let (mut keys, count) = (Vec::new(), (*count).max(1) as usize);
                let next = self
                    .keyspace
                    .visit(transaction, *cursor, count, now_millis, |key| keys.push(key.clone()));
                reply.array(2);
                reply.integer(next as i64);
                put_keys(&keys, reply);
            }
            Step::Flush => {
                let mut keys = Vec::new();
                self.keyspace.visit(transaction, 0, ALL, now_millis, |key| keys.push(key.clone()));
                let delete = datatypes::Operation::Key(datatypes::key::Operation::Delete);
                let mut ignored = ReplyBuf::new();
                for key in &keys {
                    let context = &mut Context { now_millis, random, site: None };
                    let outcome =
                        self.keyspace.operate(transaction, key, (&delete, true), context, &mut ignored);
                    debug_assert!(outcome.is_ok(), "a conflicting key may be deleted");
                }
                reply.simple("OK");
            }
        }
    }

    fn perform_on_key(
        &mut self,
        transaction: &mut Transaction,
        keyed: &KeyedOperation<'_>,
        (now_millis, random): (u64, &mut Rng),
        reply: &mut ReplyBuf,
    ) {
        let context = &mut Context { now_millis, random, site: None };
        let mut result = ReplyBuf::new();
        let key = CompactKey::new(keyed.key);
        let operation = (&keyed.operation, keyed.blind);
        match self.keyspace.operate(transaction, &key, operation, context, &mut result) {
            Err(refusal) => reply.error(&refusal.into()),
            Ok(()) if keyed.blind && result.as_error().is_none() => reply.simple("OK"),
            Ok(()) => result.replay(reply),
        }
    }

    /// Opens a transaction; the state that it reads from. Without a constraint it takes the session's, or the keyspace's.
    pub(super) fn begin(
        &mut self,
        session: SessionId,
        begin: Option<Begin>,
        (read_only, watched): (bool, bool),
        now: Instant,
    ) -> Result<StateId, Error> {
        if self.is_refusing() && !read_only {
            return Err(protocol::misconf());
        }
        let (usual, end) = self.constraints(session);
        let (thread, begin) = (self.clients.thread(session), begin.unwrap_or(usual));
        let transaction = if read_only {
            self.keyspace.begin_reading(thread, &begin)?
        } else {
            self.keyspace.begin(thread, &begin)?
        };
        if self.clients.thread(session) == SHARED {
            // Its other sessions must not take the thread to another branch while this one looks at its own.
            self.keyspace.note_standing(&transaction);
        }
        let state = self.keyspace.read_states(&transaction).first().copied().unwrap_or(StateId::ROOT);
        self.open(session, transaction, (end, read_only, watched), now);
        Ok(state)
    }

    /// From now on the session works on this transaction. One that is open is given up.
    pub(super) fn open(
        &mut self,
        session: SessionId,
        transaction: Transaction,
        (end, read_only, is_watched): (End, bool, bool),
        now: Instant,
    ) {
        self.abort(session);
        let until = now + self.options.open_for;
        self.clients.of(session).open =
            Some(Open { transaction, end, read_only, on: None, is_watched, until });
    }

    /// Steps in the session's transaction.
    fn operate(
        &mut self,
        session: SessionId,
        steps: &[Step<'_>],
        (now, random): (Now, &mut Rng),
        reply: &mut ReplyBuf,
    ) -> Result<(), Error> {
        let mut open = self.take_open(session)?;
        open.until = now.instant + self.options.open_for;
        let mut refused = None;
        for step in steps {
            if open.read_only && is_write(step) {
                refused = Some(Error::err("the transaction was begun READONLY; writes are refused"));
                break;
            }
            self.perform(&mut open.transaction, step, (now, random), reply);
        }
        self.clients.of(session).open = Some(open);
        refused.map_or(Ok(()), Err)
    }

    /// The session's transaction, taken out.
    pub(super) fn take_open(&mut self, session: SessionId) -> Result<Open, Error> {
        let open = self.clients.get_mut(session).and_then(|client| client.open.take());
        open.ok_or_else(|| {
            let text = "no transaction is open: it was never begun, or was open for too long; begin it again";
            Error::new(ErrorCode::SnapshotTooOld, text)
        })
    }

    /// Commits the session's transaction. A merge that is refused goes on, so that nothing of it
    /// is lost.
    pub(super) fn commit(
        &mut self,
        session: SessionId,
        end: Option<End>,
        now: Now,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<Committed, Error> {
        let mut open = self.take_open(session)?;
        let end = end.unwrap_or_else(|| open.end.clone());
        let check = match open.transaction.is_merge() && self.is_refusing() {
            true => Err(protocol::misconf()),
            false => self.keyspace.check_merge(&open.transaction, &end).map_err(Error::from),
        };
        if let Err(refusal) = check {
            self.clients.of(session).open = Some(open);
            return Err(refusal);
        }
        if open.is_watched {
            // What comes between its read state and its commit counts too.
            for watch in self.clients.of(session).watches.clone() {
                self.keyspace.note_read(&mut open.transaction, &watch.key);
            }
            if self.take_touched(session, &open.transaction, now) {
                self.keyspace.abort(open.transaction);
                return Ok(Committed::Stopped);
            }
        }
        let committed = self.finish(open.transaction, &end, now, out)?;
        if let (Some(name), Committed::State(state)) = (open.on, committed) {
            self.name(&name, state, out)?;
        }
        Ok(committed)
    }

    fn finish(
        &mut self,
        transaction: Transaction,
        end: &End,
        now: Now,
        out: &mut Outputs<'_, Instance>,
    ) -> Result<Committed, Error> {
        let is_shared = transaction.session == SHARED;
        if transaction.written().next().is_some() && self.is_refusing() {
            self.claims.ended(&self.keyspace.read_states(&transaction), None, &mut self.keyspace);
            self.keyspace.abort(transaction);
            return Err(protocol::misconf());
        }
        let lacked = self.keyspace.retained().lacked_bytes();
        if transaction.written().next().is_some()
            && let Some(error) = (self.gossip.is_full(lacked, self.options.queue, now.instant))
                .or_else(|| self.partitions_are_full())
        {
            self.claims.ended(&self.keyspace.read_states(&transaction), None, &mut self.keyspace);
            self.keyspace.abort(transaction);
            return Err(error);
        }
        let read = if self.options.claims { self.keyspace.read_states(&transaction) } else { Vec::new() };
        let outcome = self.keyspace.commit(transaction, end);
        let made = outcome.as_ref().ok().and_then(Option::as_ref);
        self.claims.ended(&read, made, &mut self.keyspace);
        let Some(commit) = outcome? else { return Ok(Committed::Nothing) };
        self.written = Some(commit.id);
        self.first_written = self.first_written.or(Some((commit.id, now.instant)));
        self.made(&commit, is_shared, now, out);
        self.rebase_onto_merge(commit.id, now, out);
        Ok(Committed::State(commit.id))
    }

    /// Gives the session's transaction up, if one is open.
    pub(super) fn abort(&mut self, session: SessionId) {
        if let Some(open) = self.clients.get_mut(session).and_then(|client| client.open.take()) {
            self.keyspace.abort(open.transaction);
        }
    }

    fn close(&mut self, session: SessionId) {
        self.abort(session);
        if self.clients.remove(session).is_some_and(|client| client.is_own) {
            self.keyspace.close(session);
        }
    }

    /// A process of the region has gone: so have its sessions.
    pub(super) fn close_all_of(&mut self, process: ProcessId) {
        self.partitions.forget_process(process);
        for session in self.clients.of_process(process) {
            self.close(session);
        }
    }

    pub(super) fn give_up_old(&mut self, now: Instant) {
        for session in self.clients.overdue(now) {
            self.abort(session);
        }
    }

    fn watch(&mut self, session: SessionId, keys: &[(&[u8], types::KeyHash)], now: Now) -> Result<(), Error> {
        let (begin, _) = self.constraints(session);
        let transaction = self.start(self.clients.thread(session), &begin)?;
        for (key, _) in keys {
            let key = CompactKey::new(key);
            let watch = self.look(&transaction, key, now);
            let watches = &mut self.clients.of(session).watches;
            if !watches.iter().any(|known| known.key == watch.key) {
                watches.push(watch);
            }
        }
        self.keyspace.abort(transaction);
        Ok(())
    }

    fn look(&mut self, transaction: &Transaction, key: CompactKey, now: Now) -> Watch {
        let now_millis = now.wall.as_millis();
        let newest = self.keyspace.newest(transaction, &key);
        let is_there = |cell: &datatypes::Cell| cell.value.is_some() && !cell.is_expired(now_millis);
        let is_there = self.keyspace.peek(transaction, &key, is_there);
        Watch { key, newest, is_there }
    }

    /// True if a watched key is not, at the transaction's states, what it was. The watches are gone.
    fn take_touched(&mut self, session: SessionId, transaction: &Transaction, now: Now) -> bool {
        let watches = self.clients.get_mut(session).map(|client| std::mem::take(&mut client.watches));
        let is_touched = |watch: &Watch| self.look(transaction, watch.key.clone(), now) != *watch;
        watches.unwrap_or_default().iter().any(is_touched)
    }

    pub(super) fn forget_watches(&mut self, session: SessionId) {
        if let Some(client) = self.clients.get_mut(session) {
            client.watches = Vec::new();
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// It made this state.
    State(StateId),
    /// It wrote nothing.
    Nothing,
    /// A watched key had changed: nothing happened.
    Stopped,
}

pub(super) fn is_write(step: &Step<'_>) -> bool {
    match step {
        Step::Key(keyed) => !keyed.operation.is_read(),
        Step::Flush => true,
        Step::Count | Step::Keys | Step::Random | Step::Scan { .. } | Step::Losses(_) => false,
    }
}

fn put_keys(keys: &[CompactKey], reply: &mut ReplyBuf) {
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
}
