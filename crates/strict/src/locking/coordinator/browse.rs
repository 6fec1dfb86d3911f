//! DBSIZE, SCAN and FLUSHDB outside transactions: weak reads of one replica per shard (Corrections 78), and for
//! FLUSHDB a transaction of deletions for every piece of keys that such reads find.

use super::transaction::{Call, Purpose};
use super::{Coordinator, Step};
use crate::locking::message::{Message, Timer};
use datatypes::{Operation, key};
use protocol::KeyedOperation;
use std::collections::BTreeMap;
use types::{Error, ErrorCode, Instant, KeyHash, ReplySink, RequestId, SessionId, TransactionId};

/// A scan cursor: the shard in the top bits, the place in the replica's index below.
const CURSOR_BITS: u32 = 48;
/// How many keys one transaction of FLUSHDB deletes.
const FLUSH_KEYS: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Count,
    Scan { count: u32 },
    Flush,
}

/// A question about the whole keyspace in progress.
#[derive(Debug)]
pub(super) struct Browse {
    id: TransactionId,
    session: SessionId,
    request: RequestId,
    kind: Kind,
    /// Where a scan is.
    shard: u16,
    cursor: u64,
    /// By shard: the keys counted.
    counts: BTreeMap<u16, u64>,
    /// A transaction of deletions is in progress; no question is open.
    deleting: bool,
    tries: u32,
    deadline: Instant,
}

impl Coordinator {
    pub(super) fn browse(
        &mut self,
        session: SessionId,
        request: RequestId,
        what: &protocol::Step<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let (kind, shard, cursor) = match what {
            protocol::Step::Count | protocol::Step::Keys | protocol::Step::Key(_) => (Kind::Count, 0, 0),
            protocol::Step::Flush => (Kind::Flush, 0, 0),
            protocol::Step::Scan { cursor, count } => {
                let place = cursor & ((1 << CURSOR_BITS) - 1);
                (Kind::Scan { count: *count }, (cursor >> CURSOR_BITS) as u16, place)
            }
        };
        if usize::from(shard) >= self.topology.shards.len() {
            step.out.reply(request).error(&Error::err("invalid cursor"));
            return;
        }
        let deadline = step.now.instant + self.options.request_timeout;
        let browse = Browse {
            id: self.next_id(),
            session,
            request,
            kind,
            shard,
            cursor,
            counts: BTreeMap::new(),
            deleting: false,
            tries: 0,
            deadline,
        };
        self.ask_browse(browse, step);
    }

    /// Sends what is not answered, and waits.
    fn ask_browse(&mut self, mut browse: Browse, step: &mut Step<'_, '_>) {
        browse.deleting = false;
        let now_millis = step.now.wall.as_millis();
        let shards = match browse.kind {
            Kind::Count => (0..self.topology.shards.len() as u16)
                .filter(|shard| !browse.counts.contains_key(shard))
                .collect::<Vec<_>>(),
            Kind::Scan { .. } | Kind::Flush => vec![browse.shard],
        };
        for shard in shards {
            let Some(member) = self.replica_for(shard, browse.tries, step.now.instant) else { continue };
            let (transaction, cursor) = (browse.id, browse.cursor);
            let message = match browse.kind {
                Kind::Count => Message::Count { transaction },
                Kind::Scan { count } => Message::Scan { transaction, cursor, count, now_millis },
                Kind::Flush => Message::Scan { transaction, cursor, count: FLUSH_KEYS, now_millis: 0 },
            };
            step.out.send(self.topology.replicas(shard)[member], message);
        }
        browse.tries += 1;
        let number = browse.id.number;
        step.out.arm(Timer::Browse { number }, step.now.instant + self.options.resend_every);
        self.browses.insert(number, browse);
    }

    pub(super) fn on_browse_timer(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(browse) = self.browses.remove(&number) else { return };
        if step.now.instant < browse.deadline {
            return self.ask_browse(browse, step);
        }
        let (shard, members) = (browse.shard, self.topology.replicas(browse.shard).len());
        let message = format!("shard {shard}: none of {members} replicas answered; retry later");
        step.out.reply(browse.request).error(&Error::new(ErrorCode::Unavailable, message));
    }

    pub(super) fn on_count_reply(&mut self, number: u64, shard: u16, keys: u64, step: &mut Step<'_, '_>) {
        let Some(browse) = self.browses.get_mut(&number) else { return };
        browse.counts.insert(shard, keys);
        if browse.counts.len() == self.topology.shards.len() {
            let keys: u64 = browse.counts.values().sum();
            step.out.reply(browse.request).integer(i64::try_from(keys).unwrap_or(i64::MAX));
            self.browses.remove(&number);
            step.out.disarm(Timer::Browse { number });
        }
    }

    pub(super) fn on_scan_reply(
        &mut self,
        number: u64,
        shard: u16,
        cursor: u64,
        keys: Vec<Box<[u8]>>,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut browse) = self.browses.remove(&number) else { return };
        if shard != browse.shard || browse.deleting {
            self.browses.insert(number, browse);
            return;
        }
        step.out.disarm(Timer::Browse { number });
        (browse.shard, browse.cursor) = if cursor == 0 { (shard + 1, 0) } else { (shard, cursor) };
        browse.tries = 0;
        if let Kind::Scan { .. } = browse.kind {
            let over = usize::from(browse.shard) >= self.topology.shards.len();
            let next = if over { 0 } else { u64::from(browse.shard) << CURSOR_BITS | browse.cursor };
            return reply_scan(next, &keys, step.out.reply(browse.request));
        }
        browse.deadline = step.now.instant + self.options.request_timeout;
        let session = browse.session;
        browse.deleting = true;
        self.browses.insert(number, browse);
        let calls: Vec<Call> = keys.iter().map(|key| self.deletion(key)).collect();
        let transaction = self.transaction(session, calls, Purpose::Flush { browse: number }, step);
        self.run(transaction, step);
    }

    fn deletion(&self, key: &[u8]) -> Call {
        let hash: KeyHash = self.topology.seed.hash(key);
        let operation = Operation::Key(key::Operation::Delete);
        Call::new(&self.topology, &KeyedOperation { key, hash, operation, blind: true })
    }

    /// A piece was deleted: on to the next, or done.
    pub(super) fn flush_on(&mut self, number: u64, step: &mut Step<'_, '_>) {
        let Some(browse) = self.browses.remove(&number) else { return };
        if usize::from(browse.shard) < self.topology.shards.len() {
            return self.ask_browse(browse, step);
        }
        step.out.reply(browse.request).simple("OK");
    }

    /// The transaction of a piece did not commit.
    pub(super) fn fail_browse(&mut self, number: u64, step: &mut Step<'_, '_>) {
        if let Some(browse) = self.browses.remove(&number) {
            let message = "not every key was deleted: some transactions did not commit; run it again";
            step.out.reply(browse.request).error(&Error::new(ErrorCode::UnknownOutcome, message));
        }
    }
}

fn reply_scan(cursor: u64, keys: &[Box<[u8]>], sink: &mut dyn ReplySink) {
    sink.array(2);
    sink.integer(cursor as i64);
    sink.array(keys.len());
    keys.iter().for_each(|key| sink.bulk(key));
}
