//! What a site remembers of its clients' sessions.

use super::SHARED;
use crate::{Begin, End, StateId, Transaction};
use mvcc::CompactKey;
use std::collections::BTreeMap;
use types::{Instant, ProcessId, SessionId};

/// A transaction that a client works on.
#[derive(Debug)]
pub(super) struct Open {
    pub transaction: Transaction,
    /// What its commit demands unless it says otherwise.
    pub end: End,
    pub read_only: bool,
    /// The name that its commit moves.
    pub on: Option<Box<[u8]>>,
    /// A change to a key that the session watches stops it.
    pub is_watched: bool,
    pub until: Instant,
}

/// A watched key: who wrote it, and whether it was there, when the watch began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Watch {
    pub key: CompactKey,
    pub newest: Option<StateId>,
    pub is_there: bool,
}

/// What is remembered of a session.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub open: Option<Open>,
    pub watches: Vec<Watch>,
    /// It chose a branch: it is a thread of its own.
    pub is_own: bool,
    /// It is one since before the site restarted, and stands where it stood then.
    pub went_on: bool,
    /// It is one, and what it had committed before the site restarted has joined another state since, nobody knows which.
    pub is_astray: bool,
    /// What its transactions demand if they do not say; `None` as the keyspace has it.
    pub begin: Option<Begin>,
    pub end: Option<End>,
}

/// All sessions of which anything is to be remembered.
#[derive(Debug, Default)]
pub(super) struct Clients {
    by_session: BTreeMap<SessionId, Client>,
}

/// A session of this process, or of another process of the region, whose numbers would be mistaken for others.
pub(super) fn session_at(process: Option<ProcessId>, session: SessionId) -> SessionId {
    SessionId(process.map_or(0, |process| u64::from(process.0) + 1) << 44 | session.0 & ((1 << 44) - 1))
}

impl Clients {
    pub fn get(&self, session: SessionId) -> Option<&Client> {
        self.by_session.get(&session)
    }

    pub fn get_mut(&mut self, session: SessionId) -> Option<&mut Client> {
        self.by_session.get_mut(&session)
    }

    pub fn of(&mut self, session: SessionId) -> &mut Client {
        self.by_session.entry(session).or_default()
    }

    pub fn remove(&mut self, session: SessionId) -> Option<Client> {
        self.by_session.remove(&session)
    }

    /// The causal thread of a session.
    pub fn thread(&self, session: SessionId) -> SessionId {
        if self.get(session).is_some_and(|client| client.is_own) { session } else { SHARED }
    }

    /// The sessions of a process.
    pub fn of_process(&self, process: ProcessId) -> Vec<SessionId> {
        let (first, last) =
            (session_at(Some(process), SessionId(0)), session_at(Some(process), SessionId(u64::MAX)));
        self.by_session.range(first..=last).map(|(session, _)| *session).collect()
    }

    /// The sessions whose transaction has been open for too long.
    pub fn overdue(&self, now: Instant) -> Vec<SessionId> {
        let is_overdue = |client: &Client| client.open.as_ref().is_some_and(|open| open.until <= now);
        self.by_session.iter().filter(|(_, client)| is_overdue(client)).map(|(session, _)| *session).collect()
    }
}
