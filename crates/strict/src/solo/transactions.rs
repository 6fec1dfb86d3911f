//! Interactive transactions over the partitions of one process: who has one open, and which snapshots are leased.

use super::Group;
use super::open::{OpenTransaction, Refused};
use super::requests::{reply_keys, reply_scan};
use protocol::{Losses, Now, Replies, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Error, ErrorCode, Instant, ReplyBuf, ReplySink, RequestId, Rng, SessionId, Timestamp};

/// How long a transaction may stay open: its snapshot is a lease (Corrections 86).
const LEASE: Duration = Duration::from_secs(60);
/// The open transactions of a keyspace, by session. Every call holds all partitions ([`Group`]).
#[derive(Debug, Default)]
pub struct Transactions {
    open: BTreeMap<SessionId, OpenTransaction>,
    /// Sessions whose lease ended before their transaction did.
    expired: BTreeSet<SessionId>,
    /// The snapshot of a checkpoint under way.
    pinned: Option<Timestamp>,
}

impl Transactions {
    /// None open.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True when none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Serves [`protocol::Request::Begin`].
    pub fn begin(
        &mut self,
        now: Now,
        session: SessionId,
        read_only: bool,
        watched: bool,
        group: &mut Group<'_, '_>,
        sink: &mut dyn ReplySink,
    ) {
        self.expired.remove(&session);
        if self.open.contains_key(&session) {
            return sink.error(&Error::err(
                "a transaction is already open in this session; commit or abort it first",
            ));
        }
        let snapshot = present(now, group);
        self.open.insert(
            session,
            OpenTransaction::new(now, snapshot, read_only, watched, now.instant + LEASE, group),
        );
        self.lease(group);
        sink.simple("OK");
    }

    /// Serves [`protocol::Request::Operate`].
    pub fn operate(
        &mut self,
        id: RequestId,
        session: SessionId,
        steps: &[Step<'_>],
        group: &mut Group<'_, '_>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        let open = match self.find(session, group) {
            Ok(open) => open,
            Err(error) => return replies.reply(id).error(&error),
        };
        for step in steps {
            match step {
                Step::Key(keyed) => open.evaluate(id, keyed, group, random, replies),
                Step::Losses(_) => replies.reply(id).error(&Losses::none()),
                Step::Count => replies.reply(id).integer(open.count(group)),
                Step::Random => open.draw(group, random, replies.reply(id)),
                Step::Flush => open.flush(replies.reply(id)),
                Step::Keys => {
                    let mut keys = ReplyBuf::new();
                    let found = open.keys(group, &mut keys);
                    reply_keys(found, &keys, replies.reply(id));
                }
                Step::Scan { cursor, count } => {
                    let mut keys = ReplyBuf::new();
                    let (next, found) = open.scan(*cursor, *count, group, &mut keys);
                    reply_scan(next, found, &keys, replies.reply(id));
                }
            }
        }
    }

    /// Serves [`protocol::Request::Commit`].
    pub fn commit(
        &mut self,
        now: Now,
        id: RequestId,
        session: SessionId,
        group: &mut Group<'_, '_>,
        replies: &mut dyn Replies,
    ) {
        if let Err(error) = self.find(session, group) {
            return replies.reply(id).error(&error);
        }
        let Some(open) = self.open.remove(&session) else { return };
        let outcome = open.commit(now, session, group, replies);
        self.lease(group);
        match outcome {
            Ok(()) => replies.reply(id).simple("OK"),
            Err(Refused::Watched) => replies.reply(id).null_array(),
            Err(Refused::With(error)) => replies.reply(id).error(&error),
        }
    }

    /// Serves [`protocol::Request::Abort`] and the end of a session; harmless when nothing is open.
    pub fn abort(&mut self, session: SessionId, group: &mut Group<'_, '_>) {
        self.expired.remove(&session);
        if self.open.remove(&session).is_some() {
            self.lease(group);
        }
    }

    /// Ends the leases whose time is over.
    pub fn expire(&mut self, now: Now, group: &mut Group<'_, '_>) {
        let over = self.open.iter().filter(|(_, open)| open.deadline <= now.instant);
        let over: Vec<SessionId> = over.map(|(session, _)| *session).collect();
        for session in over {
            self.open.remove(&session);
            self.expired.insert(session);
        }
        self.lease(group);
    }

    /// When `expire` is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.open.values().map(|open| open.deadline).min()
    }

    /// Leases the present snapshot to a checkpoint, one at a time, until `unpin`.
    pub fn pin(&mut self, now: Now, group: &mut Group<'_, '_>) {
        let snapshot = Some(present(now, group));
        group.all().for_each(|partition| partition.protocol_mut().set_checkpoint_snapshot(snapshot));
        self.pinned = snapshot;
        self.lease(group);
    }

    /// Ends the checkpoint's lease.
    pub fn unpin(&mut self, group: &mut Group<'_, '_>) {
        self.pinned = None;
        group.all().for_each(|partition| partition.protocol_mut().set_checkpoint_snapshot(None));
        self.lease(group);
    }

    /// The session's transaction, unless it has none or its snapshot is gone.
    fn find(&mut self, session: SessionId, group: &Group<'_, '_>) -> Result<&mut OpenTransaction, Error> {
        if self.open.get(&session).is_some_and(|open| open.saw_what_was_refused(group)) {
            self.open.remove(&session);
            return Err(Error::new(
                ErrorCode::Conflict,
                "the log refused writes that the transaction may have read; it had no effect; retry it",
            ));
        }
        if self.expired.contains(&session) {
            return Err(Error::new(
                ErrorCode::SnapshotTooOld,
                "the transaction was open for more than 60 seconds and was given up; begin it again",
            ));
        }
        self.open.get_mut(&session).ok_or_else(|| Error::refused("no transaction is open in this session"))
    }

    /// Tells the partitions how far back snapshots reach.
    fn lease(&self, group: &mut Group<'_, '_>) {
        let oldest = self.open.values().map(|open| open.snapshot).chain(self.pinned).min();
        group.all().for_each(|partition| partition.protocol_mut().set_lease(oldest));
    }
}

/// The snapshot of everything so far: what comes, on any partition, is stamped above it.
fn present(now: Now, group: &mut Group<'_, '_>) -> Timestamp {
    let newest = group.all().map(|partition| partition.protocol_mut().now(now)).max().unwrap_or_default();
    group.all().for_each(|partition| partition.protocol_mut().advance(newest));
    newest
}
