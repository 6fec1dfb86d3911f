//! What a site remembers of its clients' sessions.

use super::bootstrap::Asker;
use super::message::Thread;
use super::{SHARED, Site};
use crate::{Begin, End, StateId, Transaction};
use mvcc::CompactKey;
use std::collections::BTreeMap;
use types::{Error, ErrorCode, Instant, ProcessId, SessionId};

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
    /// The session is such a one, and its last commit before the site's restart has joined an unknown state since.
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

impl Site {
    /// The session has chosen a branch: from now on it is a thread of its own, which begins where the site's stands.
    pub(super) fn own_thread(&mut self, session: SessionId) {
        let client = self.clients.of(session);
        if !client.is_own {
            client.is_own = true;
            self.keyspace.stand_with(session, SHARED);
        }
    }

    /// Where the session of another process's request stands, if the session is a thread of its own.
    pub(super) fn thread_of(&self, asker: Asker, request: &[u8]) -> Option<Thread> {
        let session = session_at(Some(asker.process()?), crate::request_codec::session(request).ok()?);
        let own = self.clients.get(session).is_some_and(|client| client.is_own).then_some(session)?;
        Some(Thread { committed: self.keyspace.committed(own), read: self.keyspace.last_read(own) })
    }

    /// A session that had chosen a branch before the site restarted goes on where it stood.
    pub(super) fn go_on(&mut self, asker: Asker, thread: Option<Thread>, request: &[u8]) {
        let (Some(process), Some(thread)) = (asker.process(), thread) else { return };
        let Ok(session) = crate::request_codec::session(request) else { return };
        let session = session_at(Some(process), session);
        let client = self.clients.of(session);
        if client.went_on {
            return;
        }
        (client.is_own, client.went_on) = (true, true);
        if let Some(committed) = thread.committed {
            client.is_astray = !self.keyspace.has_committed(session, committed);
        }
        if let Some(read) = thread.read {
            self.keyspace.has_read(session, read);
        }
    }

    /// A session that does not know where it stood goes on where everything is seen that it could have seen.
    ///
    /// # Errors
    /// Nowhere, yet.
    pub(super) fn find_way(&mut self, session: SessionId) -> Result<(), Error> {
        if !self.clients.get(session).is_some_and(|client| client.is_astray) {
            return Ok(());
        }
        let [head] = self.keyspace.heads()[..] else {
            let text = "this region's site restarted and does not know any more which branch this connection had \
                        chosen: retry when the branches are merged, or reconnect";
            return Err(Error::new(ErrorCode::Unavailable, text));
        };
        self.clients.of(session).is_astray = false;
        self.keyspace.has_read(session, head);
        Ok(())
    }
}
