//! What is yet to happen in a world of virtual time, and what was replied.

use protocol::Replies;
use std::collections::BTreeMap;
use types::{ReplyBuf, ReplySink, RequestId};

/// Events by the time at which they happen; those of one time in the order in which they were scheduled.
pub(crate) struct Agenda<E> {
    scheduled: u64,
    queue: BTreeMap<(u64, u64), E>,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Agenda { scheduled: 0, queue: BTreeMap::new() }
    }
}

impl<E> Agenda<E> {
    /// Has an event happen at a time.
    pub fn schedule(&mut self, at: u64, event: E) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), event);
    }

    /// Takes the next event, if it happens by `end`, and its time.
    pub fn next(&mut self, end: u64) -> Option<(u64, E)> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= end)?;
        let at = entry.key().0;
        Some((at, entry.remove()))
    }
}

/// Replies by request.
#[derive(Default)]
pub(crate) struct Answers(pub BTreeMap<RequestId, ReplyBuf>);

impl Replies for Answers {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}
