//! The partitions of a keyspace with their log, driven as a process drives them.

use datatypes::{Cell, Operation, key, register};
use protocol::{Durability, Input, KeyedOperation, Now, Protocol, Replica, Replies, Request, Step};
use std::collections::BTreeMap;
use std::time::Duration;
use strict::solo::{Group, Lent, Options, Record, Solo, Transactions};
use types::{
    HashSeed, Incarnation, Instant, KeyHash, KeyspaceId, NodeId, PartitionId, ProcessId, Reply, ReplyBuf,
    ReplySink, RequestId, Rng, SessionId, Slot, WallTime,
};

pub const SEED: HashSeed = HashSeed(11);
/// The wall time at which a world begins, in milliseconds since 1970.
pub const START_MILLIS: u64 = 1000;

/// The reply of the one request under way.
#[derive(Default)]
pub struct Inbox(pub ReplyBuf);

impl Replies for Inbox {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        &mut self.0
    }
}

pub struct World {
    pub replicas: Vec<Replica<Solo>>,
    pub transactions: Transactions,
    pub now: Now,
    /// What the log has taken: records in order.
    pub log: Vec<Vec<u8>>,
    /// Records that the log has not taken yet.
    pub pending: Vec<Vec<u8>>,
    /// True while every group is written at once.
    pub writes_through: bool,
    group: u64,
    /// The last group that the log has taken.
    written: u64,
    random: Rng,
}

impl World {
    pub fn new(partitions: usize, durability: Durability) -> Self {
        let mut world = World::blank(partitions, durability);
        world.each(|_| Input::Recovered { complete: true });
        world
    }

    /// Before recovery.
    fn blank(partitions: usize, durability: Durability) -> Self {
        let replica = |partition| {
            let slot = Slot::replica(KeyspaceId(0), PartitionId(partition as u16));
            let node = NodeId { process: ProcessId(1), incarnation: Incarnation(1), slot };
            Replica::new(node, Solo::new(Options { durability, seed: SEED }))
        };
        World {
            replicas: (0..partitions).map(replica).collect(),
            transactions: Transactions::new(),
            now: Now { wall: WallTime(START_MILLIS * 1000), instant: Instant(0) },
            log: Vec::new(),
            pending: Vec::new(),
            writes_through: true,
            group: 0,
            written: 0,
            random: Rng::with_seed(5),
        }
    }

    /// What a process finds: pieces of a checkpoint, then records of a log, on perhaps other partitions.
    pub fn recovered(partitions: usize, pieces: &[Vec<u8>], log: &[Vec<u8>]) -> Self {
        let mut world = World::blank(partitions, Durability::Written);
        if partitions == 1 {
            pieces.iter().for_each(|piece| drop(world.input(0, Input::Snapshot(piece))));
            log.iter().for_each(|record| drop(world.input(0, Input::Recover(record))));
        } else {
            world.distribute(pieces, log);
        }
        world.each(|_| Input::Recovered { complete: true });
        world
    }

    /// Gives every record to the partition that its key belongs to now.
    fn distribute(&mut self, pieces: &[Vec<u8>], log: &[Vec<u8>]) {
        let records =
            pieces.iter().flat_map(|piece| Record::split(piece).map(|record| record.expect("whole")));
        for record in records.chain(log.iter().map(Vec::as_slice)) {
            let home = Record::key_of(record).expect("a record").map(|key| self.index_of(key));
            for index in 0..self.replicas.len() {
                if home.is_none_or(|home| home == index) {
                    self.input(index, Input::Recover(record));
                }
            }
        }
    }

    fn each<'a>(&mut self, input: impl Fn(usize) -> Input<'a, Solo>) {
        (0..self.replicas.len()).for_each(|index| drop(self.input(index, input(index))));
    }

    fn input(&mut self, index: usize, input: Input<'_, Solo>) -> ReplyBuf {
        let mut inbox = Inbox::default();
        self.replicas[index].step(self.now, &mut vec![input], &mut self.random, &mut inbox);
        self.append();
        inbox.0
    }

    pub fn index_of(&self, key: &[u8]) -> usize {
        Group::index_of(SEED.hash(key), self.replicas.len())
    }

    /// Puts what was persisted into one group of the log.
    fn append(&mut self) {
        self.group += 1;
        for replica in &mut self.replicas {
            let records = Record::split(replica.records());
            self.pending.extend(records.map(|record| record.expect("whole").to_vec()));
            replica.appended(self.group);
        }
        if self.writes_through {
            self.write_out();
        }
    }

    /// The log takes everything so far.
    pub fn write_out(&mut self) {
        self.log.append(&mut self.pending);
        self.written = self.group;
        self.replicas.iter_mut().for_each(|replica| replica.logged(self.group));
    }

    /// The log refuses everything that it has not taken.
    pub fn refuse(&mut self) {
        self.pending.clear();
        for replica in &mut self.replicas {
            assert!(replica.refused(self.written), "everything can be taken back");
        }
    }

    pub fn heal(&mut self) {
        self.replicas.iter_mut().for_each(|replica| replica.protocol_mut().log_healed());
    }

    pub fn advance(&mut self, duration: Duration) {
        self.now.wall.0 += duration.as_micros() as u64;
        self.now.instant = self.now.instant + duration;
    }

    pub fn advance_millis(&mut self, millis: u64) {
        self.advance(Duration::from_millis(millis));
    }

    /// Fires what is due, again and again, for a while.
    pub fn idle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.advance_millis(100);
            let mut inbox = Inbox::default();
            for replica in &mut self.replicas {
                replica.fire(self.now, &mut self.random, &mut inbox);
            }
            self.append();
        }
    }

    /// Serves a request as a process does: single operations by their partition, the rest by all together.
    pub fn ask(&mut self, request: Request<'_>) -> ReplyBuf {
        if let Request::One { operation, .. } = &request {
            let index = Group::index_of(operation.hash, self.replicas.len());
            return self.input(index, Input::Request { id: RequestId(1), request });
        }
        let mut inbox = Inbox::default();
        let (id, now, transactions) = (RequestId(1), self.now, &mut self.transactions);
        let mut replicas: Vec<&mut Replica<Solo>> = self.replicas.iter_mut().collect();
        let mut group = Group::new(&mut replicas);
        match request {
            Request::One { .. } => unreachable!("served above"),
            Request::Many { session, steps, watched, .. } => {
                group.many(now, id, session, steps, watched, &mut self.random, &mut inbox);
            }
            Request::Watch { session, keys } => group.watch(now, id, session, keys, &mut inbox),
            Request::Unwatch { session } => {
                group.unwatch(session);
                inbox.0.simple("OK");
            }
            Request::Begin { session, read_only, watched } => {
                transactions.begin(now, session, read_only, watched, &mut group, inbox.reply(id));
            }
            Request::Operate { session, steps } => {
                transactions.operate(id, session, steps, &mut group, &mut self.random, &mut inbox);
            }
            Request::Commit { session } => transactions.commit(now, id, session, &mut group, &mut inbox),
            Request::Abort { session } => {
                transactions.abort(session, &mut group);
                inbox.0.simple("OK");
            }
            Request::Context { .. } => inbox.0.error(&protocol::ContextRequest::refusal()),
            Request::Own { words, .. } => inbox.0.error(&Request::refused(words, "strict")),
            Request::Close { session } => {
                transactions.abort(session, &mut group);
                group.unwatch(session);
            }
        }
        self.append();
        inbox.0
    }

    /// Works on all partitions together.
    pub fn with_group<R>(&mut self, work: impl FnOnce(Now, &mut Transactions, &mut Group<'_, '_>) -> R) -> R {
        let mut replicas: Vec<&mut Replica<Solo>> = self.replicas.iter_mut().collect();
        work(self.now, &mut self.transactions, &mut Group::new(&mut replicas))
    }

    /// Ends the leases that are over.
    pub fn expire_leases(&mut self) {
        self.with_group(|now, transactions, group| transactions.expire(now, group));
    }

    /// One operation as a transaction of its own; its reply as text.
    pub fn one(&mut self, keyed: KeyedOperation<'_>) -> String {
        shown(&self.ask(Request::One { session: SessionId(0), operation: keyed }))
    }

    pub fn many(&mut self, session: u64, watched: bool, steps: &[Step<'_>]) -> String {
        shown(&self.ask(Request::Many { session: SessionId(session), steps, watched, multi: true }))
    }

    /// A transaction on lent partitions: the replies, if what it did stays or not.
    pub fn lent(&mut self, operations: &[KeyedOperation<'_>], stays: bool) -> String {
        let (mut inbox, mut lent) = (Inbox::default(), BTreeMap::new());
        for operation in operations {
            let index = self.index_of(operation.key);
            let replica = &mut self.replicas[index];
            lent.entry(index).or_insert_with(|| Lent::begin(replica));
            Lent::operate(replica, self.now, RequestId(1), operation, &mut self.random, &mut inbox);
        }
        for (index, lent) in lent {
            let replica = &mut self.replicas[index];
            if stays { lent.keep(replica) } else { lent.take_back(replica) }
        }
        self.append();
        shown(&inbox.0)
    }

    /// How many records there are, taken by the log or not.
    pub fn records(&self) -> usize {
        self.log.len() + self.pending.len()
    }

    pub fn watch(&mut self, session: u64, keys: &[&[u8]]) -> String {
        let keys: Vec<(&[u8], KeyHash)> = keys.iter().map(|key| (*key, SEED.hash(key))).collect();
        shown(&self.ask(Request::Watch { session: SessionId(session), keys: &keys }))
    }

    pub fn begin(&mut self, session: u64) {
        let request = Request::Begin { session: SessionId(session), read_only: false, watched: false };
        assert_eq!(shown(&self.ask(request)), "OK");
    }

    /// One operation inside the session's transaction.
    pub fn within(&mut self, session: u64, keyed: KeyedOperation<'_>) -> String {
        self.operate(session, &[Step::Key(keyed)])
    }

    /// Steps inside the session's transaction.
    pub fn operate(&mut self, session: u64, steps: &[Step<'_>]) -> String {
        shown(&self.ask(Request::Operate { session: SessionId(session), steps }))
    }

    pub fn commit(&mut self, session: u64) -> String {
        shown(&self.ask(Request::Commit { session: SessionId(session) }))
    }

    pub fn abort(&mut self, session: u64) {
        self.ask(Request::Abort { session: SessionId(session) });
    }

    /// The newest value of a register, `nil` if there is none.
    pub fn value(&mut self, name: &[u8]) -> String {
        self.one(get(name))
    }

    /// Every key with its cell, in order of the keys.
    pub fn state(&self) -> Vec<(Vec<u8>, Cell)> {
        let mut state = Vec::new();
        for replica in &self.replicas {
            let store = replica.protocol().store();
            store.assert_consistent();
            let before = state.len();
            let mut cursor = 0;
            loop {
                cursor = store.scan(cursor, |key, record| state.push((key.to_vec(), record.cell().clone())));
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(state.len() - before, store.len());
        }
        state.sort_by(|(a, _), (b, _)| a.cmp(b));
        state
    }

    pub fn retains(&self) -> bool {
        self.replicas.iter().any(|replica| replica.protocol().store().retains())
    }

    /// The next piece of a partition's checkpoint, and where to go on.
    pub fn piece(&mut self, index: usize, cursor: u64) -> (Vec<u8>, Option<u64>) {
        let mut piece = Vec::new();
        let next = self.replicas[index].protocol_mut().checkpoint(cursor, &mut piece);
        (piece, next)
    }

    /// A checkpoint of all partitions with nothing in between.
    pub fn checkpoint(&mut self) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        for index in 0..self.replicas.len() {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let (piece, next) = self.piece(index, from);
                pieces.push(piece);
                cursor = next;
            }
        }
        pieces
    }
}

/// A reply as text: `OK`, `3`, `nil`, `[a b]`, `CODE message`.
pub fn shown(reply: &ReplyBuf) -> String {
    let mut elements = reply.elements();
    let mut values = Vec::new();
    while let Some(element) = elements.next() {
        values.push(value(element, &mut elements));
    }
    values.join(" ")
}

fn value<'r>(element: Reply<'r>, rest: &mut impl Iterator<Item = Reply<'r>>) -> String {
    let children = element.children();
    match element {
        Reply::Simple(text) => text.to_owned(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Integer(number) => number.to_string(),
        Reply::Double(number) => number.to_string(),
        Reply::Null => "nil".to_owned(),
        Reply::NullArray => "stopped".to_owned(),
        Reply::Error(error) => error.to_string(),
        _ => {
            let values: Vec<String> = (0..children)
                .map(|_| rest.next().map_or("?".to_owned(), |element| value(element, rest)))
                .collect();
            format!("[{}]", values.join(" "))
        }
    }
}

pub fn keyed<'a>(name: &'a [u8], operation: Operation<'a>) -> KeyedOperation<'a> {
    KeyedOperation { key: name, hash: SEED.hash(name), operation, blind: false }
}

pub fn blind(operation: KeyedOperation<'_>) -> KeyedOperation<'_> {
    KeyedOperation { blind: true, ..operation }
}

pub fn get(name: &[u8]) -> KeyedOperation<'_> {
    keyed(name, Operation::Register(register::Operation::Get))
}

pub fn set<'a>(name: &'a [u8], value: &'a [u8]) -> KeyedOperation<'a> {
    set_until(name, value, register::Deadline::Clear)
}

pub fn set_until<'a>(name: &'a [u8], value: &'a [u8], deadline: register::Deadline) -> KeyedOperation<'a> {
    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
    keyed(name, Operation::Register(register::Operation::Set { value, deadline, condition, reply }))
}

pub fn increment(name: &[u8], by: i64) -> KeyedOperation<'_> {
    keyed(name, Operation::Register(register::Operation::Increment { by }))
}

pub fn delete(name: &[u8]) -> KeyedOperation<'_> {
    keyed(name, Operation::Key(key::Operation::Delete))
}

/// EXPIREAT, in milliseconds since 1970.
pub fn expire_at(name: &[u8], at_millis: u64) -> KeyedOperation<'_> {
    let condition = key::ExpireCondition::default();
    keyed(name, Operation::Key(key::Operation::ExpireAt { at_millis, condition }))
}
