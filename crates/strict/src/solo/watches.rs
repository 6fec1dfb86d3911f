//! WATCH: which sessions watch which keys, and which of them have been touched.

use std::collections::{BTreeMap, BTreeSet};
use types::SessionId;

/// The watches on one partition's keys.
#[derive(Debug, Default)]
pub(super) struct Watches {
    by_key: BTreeMap<Box<[u8]>, BTreeSet<SessionId>>,
    by_session: BTreeMap<SessionId, Vec<Box<[u8]>>>,
    touched: BTreeSet<SessionId>,
}

impl Watches {
    pub(super) fn add(&mut self, session: SessionId, key: &[u8]) {
        if self.by_key.entry(key.into()).or_default().insert(session) {
            self.by_session.entry(session).or_default().push(key.into());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// A key has changed.
    pub(super) fn touch(&mut self, key: &[u8]) {
        if let Some(sessions) = self.by_key.get(key) {
            self.touched.extend(sessions);
        }
    }

    /// The keys for which `changed` holds have changed.
    pub(super) fn touch_where(&mut self, changed: impl Fn(&[u8]) -> bool) {
        for (key, sessions) in &self.by_key {
            if changed(key) {
                self.touched.extend(sessions);
            }
        }
    }

    /// Every key has changed.
    pub(super) fn touch_all(&mut self) {
        self.touched.extend(self.by_session.keys());
    }

    /// The sessions that watch a key which has changed.
    pub(super) fn touched(&self) -> &BTreeSet<SessionId> {
        &self.touched
    }

    /// Only these sessions watch a key which has changed: the other changes were taken back.
    pub(super) fn set_touched(&mut self, touched: BTreeSet<SessionId>) {
        self.touched = touched;
    }

    pub(super) fn is_touched(&self, session: SessionId) -> bool {
        self.touched.contains(&session)
    }

    /// The keys that a session watches, each once.
    pub(super) fn keys(&self, session: SessionId) -> &[Box<[u8]>] {
        self.by_session.get(&session).map_or(&[], Vec::as_slice)
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        for key in self.by_session.remove(&session).unwrap_or_default() {
            if let Some(sessions) = self.by_key.get_mut(&key) {
                sessions.remove(&session);
                if sessions.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
        self.touched.remove(&session);
    }
}
