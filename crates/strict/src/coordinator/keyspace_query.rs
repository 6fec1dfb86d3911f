//! DBSIZE, SCAN and FLUSHDB outside transactions, and draws of keys: weak reads of one replica per shard (Corrections
//! 78), and for FLUSHDB a transaction of deletions for every piece of keys that such reads find.

use super::draw::{Draw, Own};
use super::keyset::{CURSOR_BITS, next_cursor};
use super::{Call, CommitProtocol, Coordinator, Purpose, Step, Wake};
use datatypes::{Operation, key};
use protocol::KeyedOperation;
use std::collections::BTreeMap;
use types::{Error, ErrorCode, Instant, KeyHash, ReplySink, RequestId, SessionId, TransactionId};

/// How many keys one transaction of FLUSHDB deletes.
const FLUSH_KEYS: u32 = 256;

/// A question to a replica about its keys. Weak: no transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// How many keys are there?
    Count {
        /// Names the answer.
        transaction: TransactionId,
    },
    /// Visit a piece of the keys.
    Scan {
        /// Names the answer.
        transaction: TransactionId,
        /// Where to begin in the replica's index.
        cursor: u64,
        /// About how many keys.
        count: u32,
        /// Keys whose deadline is not later are left out; milliseconds since 1970.
        now_millis: u64,
    },
    /// Draw a key at random, and say of how many.
    Draw {
        /// Names the answer.
        transaction: TransactionId,
        /// None of these.
        except: Vec<Box<[u8]>>,
        /// Keys whose deadline is not later are left out; milliseconds since 1970.
        now_millis: u64,
    },
}

#[derive(Clone, Debug)]
enum Kind {
    Count,
    Scan { count: u32 },
    Flush,
    Draw(Draw),
}

/// A question about the whole keyspace in progress.
#[derive(Debug)]
pub struct KeyspaceQuery {
    kind: Kind,
    shards: u16,
    /// Where a scan is.
    shard: u16,
    cursor: u64,
    /// By shard: the keys counted.
    counts: BTreeMap<u16, u64>,
    /// A transaction of deletions is in progress; no question is open.
    deleting: bool,
    id: TransactionId,
    session: SessionId,
    request: RequestId,
    tries: u32,
    deadline: Instant,
}

/// A piece of the keys has arrived.
#[derive(Debug, PartialEq)]
enum Piece {
    /// SCAN is done: the client goes on at this cursor.
    Reply { cursor: u64 },
    /// FLUSHDB deletes it, and then goes on.
    Delete,
}

impl KeyspaceQuery {
    /// The kind of a question, and the shard and the place where it begins.
    fn begin(what: &protocol::Step<'_>) -> (Kind, u16, u64) {
        match what {
            protocol::Step::Count
            | protocol::Step::Keys
            | protocol::Step::Random
            | protocol::Step::Key(_)
            | protocol::Step::Losses(_) => (Kind::Count, 0, 0),
            protocol::Step::Flush => (Kind::Flush, 0, 0),
            protocol::Step::Scan { cursor, count } => {
                let place = cursor & ((1 << CURSOR_BITS) - 1);
                (Kind::Scan { count: *count }, (cursor >> CURSOR_BITS) as u16, place)
            }
        }
    }

    /// True when every shard has been visited.
    fn is_over(&self) -> bool {
        self.shard >= self.shards
    }

    /// What is not answered yet, by shard.
    fn questions(&self, now_millis: u64) -> Vec<(u16, Question)> {
        let (transaction, cursor) = (self.id, self.cursor);
        let scan = |count, now_millis| Question::Scan { transaction, cursor, count, now_millis };
        match &self.kind {
            Kind::Count => {
                let missing = (0..self.shards).filter(|shard| !self.counts.contains_key(shard));
                missing.map(|shard| (shard, Question::Count { transaction })).collect()
            }
            Kind::Scan { count } => vec![(self.shard, scan(*count, now_millis))],
            Kind::Flush => vec![(self.shard, scan(FLUSH_KEYS, 0))],
            Kind::Draw(draw) => {
                let missing = (0..self.shards).filter(|shard| !self.counts.contains_key(shard));
                let question = |shard| Question::Draw { transaction, except: draw.except(shard), now_millis };
                missing.map(|shard| (shard, question(shard))).collect()
            }
        }
    }

    /// A shard has so many keys; the sum when all have answered.
    fn on_count(&mut self, shard: u16, keys: u64) -> Option<u64> {
        self.counts.insert(shard, keys);
        (self.counts.len() == usize::from(self.shards)).then(|| self.counts.values().sum())
    }

    /// A shard has sent a piece, and goes on at this cursor; `None` if the coordinator did not request this piece.
    fn on_piece(&mut self, shard: u16, cursor: u64) -> Option<Piece> {
        let in_pieces = matches!(self.kind, Kind::Scan { .. } | Kind::Flush);
        if shard != self.shard || self.deleting || !in_pieces {
            return None;
        }
        (self.shard, self.cursor) = if cursor == 0 { (shard + 1, 0) } else { (shard, cursor) };
        self.tries = 0;
        if let Kind::Scan { .. } = self.kind {
            return Some(Piece::Reply { cursor: next_cursor(shard, cursor, self.shards) });
        }
        self.deleting = true;
        Some(Piece::Delete)
    }
}

impl<P: CommitProtocol> Coordinator<P> {
    pub(super) fn keyspace_query(
        &mut self,
        session: SessionId,
        request: RequestId,
        what: &protocol::Step<'_>,
        step: &mut Step<'_, '_, P>,
    ) {
        let begun = KeyspaceQuery::begin(what);
        self.begin_browse(session, request, begun, step);
    }

    /// Draws a key.
    pub(super) fn draw(
        &mut self,
        session: SessionId,
        request: RequestId,
        own: Own,
        step: &mut Step<'_, '_, P>,
    ) {
        match Draw::new(own, step.random) {
            Ok(draw) => self.begin_browse(session, request, (Kind::Draw(draw), 0, 0), step),
            Err(drawn) => drawn.reply(step.out.reply(request)),
        }
    }

    fn begin_browse(
        &mut self,
        session: SessionId,
        request: RequestId,
        (kind, shard, cursor): (Kind, u16, u64),
        step: &mut Step<'_, '_, P>,
    ) {
        let keyspace_query = KeyspaceQuery {
            kind,
            shards: self.topology.shards.len() as u16,
            shard,
            cursor,
            counts: BTreeMap::new(),
            deleting: false,
            id: self.next_id(),
            session,
            request,
            tries: 0,
            deadline: step.now.instant + self.settings.request_timeout,
        };
        if keyspace_query.is_over() {
            return step.out.reply(request).error(&Error::err("invalid cursor"));
        }
        self.ask_browse(keyspace_query, step);
    }

    /// Sends what is not answered, and waits.
    fn ask_browse(&mut self, mut keyspace_query: KeyspaceQuery, step: &mut Step<'_, '_, P>) {
        keyspace_query.deleting = false;
        for (shard, question) in keyspace_query.questions(step.now.wall.as_millis()) {
            let Some(member) = P::replica_for(self, shard, keyspace_query.tries, step.now.instant) else {
                continue;
            };
            step.out.send(self.topology.replicas(shard)[member], question.into());
        }
        keyspace_query.tries += 1;
        let number = keyspace_query.id.number;
        step.out.arm(Wake::KeyspaceQuery { number }.into(), step.now.instant + self.settings.ask_again);
        self.browses.insert(number, keyspace_query);
    }

    pub(crate) fn on_browse_timer(&mut self, number: u64, step: &mut Step<'_, '_, P>) {
        let Some(keyspace_query) = self.browses.remove(&number) else { return };
        if step.now.instant < keyspace_query.deadline {
            return self.ask_browse(keyspace_query, step);
        }
        let (shard, members) = (keyspace_query.shard, self.topology.replicas(keyspace_query.shard).len());
        let message = format!("shard {shard}: none of {members} replicas answered; retry later");
        step.out.reply(keyspace_query.request).error(&Error::new(ErrorCode::Unavailable, message));
    }

    pub(crate) fn on_count_reply(&mut self, number: u64, shard: u16, keys: u64, step: &mut Step<'_, '_, P>) {
        let Some(keyspace_query) = self.browses.get_mut(&number) else { return };
        if let Some(keys) = keyspace_query.on_count(shard, keys) {
            step.out.reply(keyspace_query.request).integer(i64::try_from(keys).unwrap_or(i64::MAX));
            self.browses.remove(&number);
            step.out.disarm(Wake::KeyspaceQuery { number }.into());
        }
    }

    pub(crate) fn on_draw_reply(
        &mut self,
        number: u64,
        shard: u16,
        (keys, key): (u64, Option<Box<[u8]>>),
        step: &mut Step<'_, '_, P>,
    ) {
        let Some(keyspace_query) = self.browses.get_mut(&number) else { return };
        let Kind::Draw(draw) = &mut keyspace_query.kind else { return };
        if !keyspace_query.counts.contains_key(&shard) {
            draw.take(keys, key, step.random);
        }
        if keyspace_query.on_count(shard, keys).is_some() {
            self.end_draw(number, step);
        }
    }

    fn end_draw(&mut self, number: u64, step: &mut Step<'_, '_, P>) {
        let Some(KeyspaceQuery { kind: Kind::Draw(draw), request, .. }) = self.browses.remove(&number) else {
            return;
        };
        draw.drawn().reply(step.out.reply(request));
        step.out.disarm(Wake::KeyspaceQuery { number }.into());
    }

    pub(crate) fn on_scan_reply(
        &mut self,
        number: u64,
        shard: u16,
        cursor: u64,
        keys: &[Box<[u8]>],
        step: &mut Step<'_, '_, P>,
    ) {
        let Some(keyspace_query) = self.browses.get_mut(&number) else { return };
        let Some(piece) = keyspace_query.on_piece(shard, cursor) else { return };
        step.out.disarm(Wake::KeyspaceQuery { number }.into());
        match piece {
            Piece::Reply { cursor } => {
                reply_scan(cursor, keys, step.out.reply(keyspace_query.request));
                self.browses.remove(&number);
            }
            Piece::Delete => {
                keyspace_query.deadline = step.now.instant + self.settings.request_timeout;
                let (session, purpose) = (keyspace_query.session, Purpose::Flush { keyspace_query: number });
                let calls = keys.iter().map(|key| self.deletion(key)).collect();
                let transaction = self.transaction(session, purpose, Vec::new(), calls, step);
                self.run(transaction, step);
            }
        }
    }

    fn deletion(&self, key: &[u8]) -> Call {
        let hash: KeyHash = self.topology.seed.hash(key);
        let operation = Operation::Key(key::Operation::Delete);
        Call::new(&self.topology, &KeyedOperation { key, hash, operation, blind: true })
    }

    /// A piece was deleted: on to the next, or done.
    pub(super) fn flush_on(&mut self, number: u64, step: &mut Step<'_, '_, P>) {
        let Some(keyspace_query) = self.browses.remove(&number) else { return };
        if keyspace_query.is_over() {
            step.out.reply(keyspace_query.request).simple("OK");
        } else {
            self.ask_browse(keyspace_query, step);
        }
    }

    /// The transaction of a piece did not commit.
    pub(super) fn fail_browse(&mut self, number: u64, step: &mut Step<'_, '_, P>) {
        if let Some(keyspace_query) = self.browses.remove(&number) {
            let message = "not every key was deleted: some transactions did not commit; run it again";
            step.out.reply(keyspace_query.request).error(&Error::new(ErrorCode::UnknownOutcome, message));
        }
    }
}

fn reply_scan(cursor: u64, keys: &[Box<[u8]>], sink: &mut dyn ReplySink) {
    sink.array(2);
    sink.integer(cursor as i64);
    sink.array(keys.len());
    keys.iter().for_each(|key| sink.bulk(key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, ProcessId};

    const ID: TransactionId = TransactionId { process: ProcessId(1), incarnation: Incarnation(1), number: 9 };

    fn keyspace_query(what: &protocol::Step<'_>) -> KeyspaceQuery {
        let (kind, shard, cursor) = KeyspaceQuery::begin(what);
        KeyspaceQuery {
            kind,
            shards: 3,
            shard,
            cursor,
            counts: BTreeMap::new(),
            deleting: false,
            id: ID,
            session: SessionId(1),
            request: RequestId(1),
            tries: 0,
            deadline: Instant(0),
        }
    }

    fn shards(keyspace_query: &KeyspaceQuery) -> Vec<u16> {
        keyspace_query.questions(0).into_iter().map(|(shard, _)| shard).collect()
    }

    #[test]
    fn a_count_is_the_sum_of_all_shards_each_counted_once() {
        let mut count = keyspace_query(&protocol::Step::Count);
        assert_eq!(shards(&count), [0, 1, 2]);
        assert_eq!(count.on_count(1, 10), None);
        assert_eq!(count.on_count(1, 10), None, "a repeated answer");
        assert_eq!(shards(&count), [0, 2], "only what is missing is asked again");
        assert_eq!(count.on_count(0, 1), None);
        assert_eq!(count.on_count(2, 100), Some(111));
    }

    #[test]
    fn the_cursor_of_a_scan_leads_through_every_shard() {
        let mut cursor = 0;
        let mut visited = Vec::new();
        loop {
            let mut scan = keyspace_query(&protocol::Step::Scan { cursor, count: 10 });
            let questions = scan.questions(5);
            let [(shard, Question::Scan { cursor: place, count: 10, now_millis: 5, .. })] = questions[..]
            else {
                panic!("{questions:?}");
            };
            visited.push((shard, place));
            // Every shard has two pieces; the second begins at place 7.
            let Some(Piece::Reply { cursor: next }) = scan.on_piece(shard, if place == 0 { 7 } else { 0 })
            else {
                panic!("not the piece that was asked for");
            };
            if next == 0 {
                break;
            }
            cursor = next;
        }
        assert_eq!(visited, [(0, 0), (0, 7), (1, 0), (1, 7), (2, 0), (2, 7)]);
        assert!(
            keyspace_query(&protocol::Step::Scan { cursor: 3 << CURSOR_BITS, count: 1 }).is_over(),
            "no such shard"
        );
    }

    #[test]
    fn a_flush_takes_no_second_piece_while_it_deletes_one() {
        let mut flush = keyspace_query(&protocol::Step::Flush);
        assert_eq!(flush.on_piece(1, 0), None, "another shard");
        assert_eq!(flush.on_piece(0, 0), Some(Piece::Delete));
        assert_eq!(flush.on_piece(1, 0), None, "the piece is still being deleted");
        flush.deleting = false;
        assert_eq!(flush.on_piece(1, 0), Some(Piece::Delete));
        flush.deleting = false;
        assert!(!flush.is_over());
        assert_eq!(flush.on_piece(2, 0), Some(Piece::Delete));
        assert!(flush.is_over());
    }
}
