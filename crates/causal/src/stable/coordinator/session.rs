//! What the coordinator keeps of a client: requests that wait, an open transaction, watches.

use super::ask::Ask;
use crate::stable::Times;
use crate::stable::message::Work;
use mvcc::CompactKey;
use protocol::{Outputs, Protocol};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{Error, Instant, RequestId, TransactionId};

/// A client's session. Its requests run one after another.
#[derive(Debug, Default)]
pub(super) struct Session<S> {
    pub(super) queue: VecDeque<Waiting>,
    /// The number of the transaction that is under way.
    pub(super) running: Option<u64>,
    pub(super) open: Option<Open<S>>,
    /// Why its open transaction has ended, until the session ends it too.
    pub(super) failed: Option<Error>,
    pub(super) watches: BTreeMap<Box<[u8]>, Watch<S>>,
    /// It was closed while its last transaction was under way.
    pub(super) closed: bool,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) ask: Ask,
    pub(super) since: Instant,
    /// It ran as one with others in vain, and runs by itself now.
    pub(super) alone: bool,
}

impl Waiting {
    /// True if it waits for a snapshot that shows a context.
    pub(super) fn restores(&self) -> bool {
        matches!(self.ask, Ask::Restore { .. })
    }
}

/// An interactive transaction.
#[derive(Debug)]
pub(super) struct Open<S> {
    pub(super) snapshot: S,
    /// How much of the thread's cache it sees.
    pub(super) epoch: u64,
    pub(super) now_millis: u64,
    pub(super) read_only: bool,
    pub(super) watched: bool,
    pub(super) deadline: Instant,
    /// Its writes so far, in order.
    pub(super) done: Vec<Done<S>>,
}

impl<S> Open<S> {
    /// The partitions that evaluate anew, when it commits, what it or these watches have observed.
    pub(super) fn observed(&self, watches: &BTreeMap<Box<[u8]>, Watch<S>>) -> BTreeSet<u16> {
        let observed = self.done.iter().filter(|done| !matches!(done.work, Work::Effect { .. }));
        let watched = watches.values().map(|watch| watch.partition);
        observed.map(|done| done.partition).chain(watched).collect()
    }
}

/// A write of an interactive transaction.
#[derive(Clone, Debug)]
pub(super) struct Done<S> {
    pub(super) key: CompactKey,
    pub(super) partition: u16,
    pub(super) work: Work<S>,
}

impl<S: Times> Done<S> {
    /// Its effects, in order.
    pub(super) fn effects(&self) -> &[Box<[u8]>] {
        match &self.work {
            Work::Effect { effect } => std::slice::from_ref(effect),
            Work::Observed { effects, .. } => effects,
            Work::Evaluate { .. } | Work::Watched { .. } | Work::Candidate => &[],
        }
    }
}

/// A watched key: any change that `since` does not show touches it, except the session's own earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Watch<S> {
    pub(super) partition: u16,
    pub(super) since: S,
    /// When the key was watched, in milliseconds since 1970.
    pub(super) at_millis: u64,
    pub(super) own: Vec<TransactionId>,
    pub(super) deadline: Instant,
}

impl<S: Times> Session<S> {
    /// The session gets an error after which it may see less than before. If it is being closed, nobody hears that: then
    /// what waits before its end must not run either, since others would see it without what came before.
    pub(super) fn refuse_unheard<P: Protocol>(&mut self, error: &Error, out: &mut Outputs<'_, P>) {
        let is_end = |waiting: &Waiting| matches!(waiting.ask, Ask::Close);
        if self.queue.iter().any(is_end) {
            self.queue.iter().filter(|it| !is_end(it)).for_each(|it| out.reply(it.id).error(error));
            self.queue.retain(is_end);
        }
    }

    /// Single commands that wait behind this one run as one transaction with it: their steps are added to its own. Returns
    /// their requests.
    pub(super) fn join_riders(&mut self, first: &mut Ask, at_primaries: bool, most: usize) -> Vec<RequestId> {
        let mut riders = Vec::new();
        let Some(mut batching) = first.batching(at_primaries) else { return riders };
        let Ask::Steps { steps, .. } = first else { return riders };
        while steps.len() < most
            && let Some(next) = self.queue.front().filter(|next| !next.alone)
            && let Some(joined) = next.ask.batching(at_primaries).and_then(|other| batching.join(other))
            && let Some(Waiting { id, ask: Ask::Steps { steps: more, .. }, .. }) = self.queue.pop_front()
        {
            batching = joined;
            steps.extend(more);
            riders.push(id);
        }
        riders
    }

    /// Its open transaction, if there is one, has ended: nothing of it may commit.
    pub(super) fn fail_open(&mut self, error: Error) {
        if self.open.take().is_some() {
            self.failed = Some(error);
        }
    }

    /// True when no state is left of it.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.running.is_none()
            && self.open.is_none()
            && self.watches.is_empty()
            && self.failed.is_none()
    }
}
