//! A keyspace of reference: sequential, in memory, on the types' own `prepare` and `apply`.

use datatypes::{Cell, Context, apply, prepare};
use protocol::{ContextRequest, KeyedOperation, Request, Step};
use std::collections::{BTreeMap, BTreeSet};
use types::{Error, ErrorCode, ReplyBuf, ReplySink, Rng, SessionId};

/// A key's cell, and how often it has changed.
#[derive(Clone, Debug, Default)]
struct Entry {
    cell: Cell,
    changes: u64,
}

/// An open transaction: what it saw when it first touched a key, and what it made of it.
#[derive(Clone, Debug, Default)]
struct Transaction {
    read_only: bool,
    watched: bool,
    seen: BTreeMap<Vec<u8>, u64>,
    written: BTreeMap<Vec<u8>, Cell>,
}

/// Executes requests one after the other.
#[derive(Clone, Debug)]
pub struct Memory {
    entries: BTreeMap<Vec<u8>, Entry>,
    watches: BTreeMap<SessionId, BTreeMap<Vec<u8>, u64>>,
    transactions: BTreeMap<SessionId, Transaction>,
    random: Rng,
    /// What the next draws of a key come to, the next one last: a key that need not be there, or nothing.
    pub draws: Vec<Option<Vec<u8>>>,
}

impl Default for Memory {
    fn default() -> Self {
        let (entries, watches, transactions) = Default::default();
        Memory { entries, watches, transactions, random: Rng::with_seed(1), draws: Vec::new() }
    }
}

impl Memory {
    /// Executes one request; the reply is empty for one that has none.
    pub fn execute(&mut self, request: &Request<'_>, now_millis: u64) -> ReplyBuf {
        self.expire(now_millis);
        let mut reply = ReplyBuf::new();
        match request {
            Request::One { operation, .. } => self.plain(now_millis, operation, &mut reply),
            Request::Many { session, steps, watched, .. } => {
                let touched = self.is_touched(*session);
                if *watched {
                    self.watches.remove(session);
                }
                if *watched && touched {
                    reply.null_array();
                } else {
                    steps.iter().for_each(|step| self.step(now_millis, None, step, &mut reply));
                }
            }
            Request::Watch { session, keys } => {
                for (key, _) in *keys {
                    let changes = self.changes(key);
                    self.watches.entry(*session).or_default().entry(key.to_vec()).or_insert(changes);
                }
                reply.simple("OK");
            }
            Request::Unwatch { session } => {
                self.watches.remove(session);
                reply.simple("OK");
            }
            Request::Begin { session, read_only, watched } => {
                let transaction =
                    Transaction { read_only: *read_only, watched: *watched, ..Transaction::default() };
                self.transactions.insert(*session, transaction);
                reply.simple("OK");
            }
            Request::Operate { session, steps } => {
                steps.iter().for_each(|step| self.step(now_millis, Some(*session), step, &mut reply));
            }
            Request::Commit { session } => self.commit(*session, &mut reply),
            Request::Abort { session } => {
                self.transactions.remove(session);
                reply.simple("OK");
            }
            Request::Context { .. } => reply.error(&ContextRequest::refusal()),
            Request::Own { words, .. } => reply.error(&Request::refused(words, "strict")),
            Request::Close { session } => {
                self.transactions.remove(session);
                self.watches.remove(session);
            }
        }
        reply
    }

    fn changes(&self, key: &[u8]) -> u64 {
        self.entries.get(key).map_or(0, |entry| entry.changes)
    }

    fn is_touched(&self, session: SessionId) -> bool {
        let watches = self.watches.get(&session).into_iter().flatten();
        watches.into_iter().any(|(key, changes)| self.changes(key) != *changes)
    }

    fn expire(&mut self, now_millis: u64) {
        for entry in self.entries.values_mut().filter(|entry| entry.cell.expiry(now_millis).is_some()) {
            entry.cell = entry.cell.living(now_millis).into_owned();
            entry.changes += 1;
        }
    }

    fn write(&mut self, key: &[u8], cell: Cell) {
        let entry = self.entries.entry(key.to_vec()).or_default();
        entry.cell = cell;
        entry.changes += 1;
    }

    fn plain(&mut self, now_millis: u64, operation: &KeyedOperation<'_>, reply: &mut ReplyBuf) {
        let mut cell = self.entries.get(operation.key).map_or(Cell::ABSENT, |entry| entry.cell.clone());
        if evaluate(&mut cell, operation, now_millis, &mut self.random, reply) {
            self.write(operation.key, cell);
        }
    }

    fn step(&mut self, now_millis: u64, session: Option<SessionId>, step: &Step<'_>, reply: &mut ReplyBuf) {
        match (step, session) {
            (Step::Key(operation), None) => self.plain(now_millis, operation, reply),
            (Step::Key(operation), Some(session)) => self.operate(now_millis, session, operation, reply),
            (Step::Losses(_), _) => reply.error(&protocol::Losses::none()),
            (Step::Count, _) => reply.integer(self.visible(session).len() as i64),
            (Step::Random, _) => {
                let keys: Vec<Vec<u8>> = self.visible(session).into_iter().collect();
                match self.draws.pop() {
                    Some(Some(missed)) => reply.bulk(&missed),
                    Some(None) => reply.integer(0),
                    None if keys.is_empty() => reply.null(),
                    None => reply.bulk(&keys[self.random.usize(0..keys.len())]),
                }
            }
            (Step::Flush, _) => {
                for key in self.visible(session) {
                    match session.and_then(|session| self.transactions.get_mut(&session)) {
                        Some(transaction) => {
                            transaction.written.insert(key, Cell::ABSENT);
                        }
                        None => self.write(&key, Cell::ABSENT),
                    }
                }
                reply.simple("OK");
            }
            (Step::Keys, _) => {
                let keys = self.visible(session);
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
            (Step::Scan { cursor, count }, _) => {
                let keys: Vec<Vec<u8>> =
                    self.visible(session).into_iter().skip(*cursor as usize).take(*count as usize).collect();
                let next = *cursor + keys.len() as u64;
                let at_end = next as usize >= self.visible(session).len();
                reply.array(2);
                reply.integer(if at_end { 0 } else { next as i64 });
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
        }
    }

    fn visible(&self, session: Option<SessionId>) -> BTreeSet<Vec<u8>> {
        let mut keys: BTreeSet<Vec<u8>> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.cell != Cell::ABSENT)
            .map(|(key, _)| key.clone())
            .collect();
        let transaction = session.and_then(|session| self.transactions.get(&session));
        for (key, cell) in transaction.into_iter().flat_map(|transaction| &transaction.written) {
            match *cell == Cell::ABSENT {
                true => keys.remove(key),
                false => keys.insert(key.clone()),
            };
        }
        keys
    }

    fn operate(
        &mut self,
        now_millis: u64,
        session: SessionId,
        operation: &KeyedOperation<'_>,
        reply: &mut ReplyBuf,
    ) {
        let key = operation.key;
        let (stored, changes) =
            self.entries.get(key).map_or((Cell::ABSENT, 0), |entry| (entry.cell.clone(), entry.changes));
        let Some(transaction) = self.transactions.get_mut(&session) else {
            return reply.error(&Error::err("no open transaction"));
        };
        transaction.seen.entry(key.to_vec()).or_insert(changes);
        let mut cell = transaction.written.get(key).cloned().unwrap_or(stored);
        if evaluate(&mut cell, operation, now_millis, &mut self.random, reply) {
            assert!(!transaction.read_only, "the gateway refuses writes in a read-only transaction");
            transaction.written.insert(key.to_vec(), cell);
        }
    }

    fn commit(&mut self, session: SessionId, reply: &mut ReplyBuf) {
        let Some(transaction) = self.transactions.remove(&session) else {
            return reply.error(&Error::err("no open transaction"));
        };
        if transaction.watched {
            let touched = self.is_touched(session);
            self.watches.remove(&session);
            if touched {
                return reply.null_array();
            }
        }
        if let Some((key, _)) = transaction.seen.iter().find(|(key, changes)| self.changes(key) != **changes)
        {
            let key = String::from_utf8_lossy(key);
            let text = format!("key '{key}' was changed by a concurrent transaction; retry the transaction");
            return reply.error(&Error::new(ErrorCode::Conflict, text));
        }
        for (key, cell) in transaction.written {
            self.write(&key, cell);
        }
        reply.simple("OK");
    }
}

/// Evaluates the operation, writes its result, changes the cell. True if it changed.
fn evaluate(
    cell: &mut Cell,
    operation: &KeyedOperation<'_>,
    now_millis: u64,
    random: &mut Rng,
    reply: &mut ReplyBuf,
) -> bool {
    let mut context = Context { now_millis, random, site: None };
    let mut result = ReplyBuf::new();
    let effect = prepare(cell, &operation.operation, &mut context, &mut result);
    match operation.blind && result.as_error().is_none() {
        true => reply.simple("OK"),
        false => result.replay(reply),
    }
    let Some(effect) = effect else { return false };
    apply::<false>(cell, &effect);
    true
}
