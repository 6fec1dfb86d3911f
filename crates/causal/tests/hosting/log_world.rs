//! A hosted keyspace of one process, with a log that may refuse records.

use datatypes::{Operation, register};
use protocol::hosted::{Environment, Hosted, Life, Place, Turn};
use protocol::model::{ClusterShape, RegionShape};
use protocol::{
    Durability, Durable, Encode, Gate, KeyedOperation, Now, Replies, Request, SpoolRequest, Step,
};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{
    HashSeed, Incarnation, Instant, KeyspaceId, Malformed, NodeId, PartitionId, ProcessId, RegionId,
    ReplyBuf, ReplySink, RequestId, Rng, SessionId, Slot, WallTime,
};

const SEED: HashSeed = HashSeed(7);
/// When the wall clock starts.
const EPOCH: u64 = 1_000_000_000;

/// What was appended is written when the turn is over, unless the log refuses it.
#[derive(Default)]
struct Log {
    group: u64,
    written: u64,
    is_suspended: bool,
}

impl Environment for Log {
    fn append(&mut self, _: KeyspaceId, _: PartitionId, _: &[u8]) -> u64 {
        self.group += 1;
        self.group
    }

    fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    fn durable(&self) -> Durable {
        Durable { written: self.written, synced: self.written }
    }

    fn send(&mut self, _: ProcessId, _: NodeId, _: Slot, _: &dyn Encode, _: Option<Instant>) {}

    fn spool(&mut self, _: KeyspaceId, _: PartitionId, _: SpoolRequest) -> Option<(u64, Option<Vec<u8>>)> {
        None
    }

    fn malformed(&mut self, error: Malformed) {
        panic!("{error}");
    }
}

#[derive(Default)]
struct Inbox(BTreeMap<u64, (ReplyBuf, Option<Gate>)>);

impl Replies for Inbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        &mut self.0.entry(id.0).or_default().0
    }
}

impl Inbox {
    /// What came since the last call waits for this.
    fn gate(&mut self, gate: Gate) {
        self.0.values_mut().for_each(|(_, waits)| *waits = waits.or(Some(gate)));
    }
}

pub struct World {
    hosted: Box<dyn Hosted>,
    log: Log,
    now: Instant,
    random: Rng,
    inbox: Inbox,
    request_count: u64,
    /// The log is about to refuse what comes.
    refuses: bool,
}

impl World {
    pub fn new(host: impl FnOnce(&Place<'_>) -> Box<dyn Hosted>) -> Self {
        let regions = vec![RegionShape { name: "a".to_owned(), processes: vec![1] }];
        let cluster = ClusterShape { seed: SEED, regions };
        let life = Life {
            process: ProcessId(1),
            region: RegionId(0),
            incarnation: Incarnation(1),
            durability: Durability::Written,
            accept_loss: false,
            region_queue_bytes: 1 << 20,
            region_spill_bytes: 0,
        };
        let place = Place { cluster: &cluster, keyspace: KeyspaceId(1), life };
        let mut world = World {
            hosted: host(&place),
            log: Log::default(),
            now: Instant(1),
            random: Rng::with_seed(1),
            inbox: Inbox::default(),
            request_count: 0,
            refuses: false,
        };
        world.turn(|hosted, _, turn| {
            hosted.recovered(true, turn);
            Gate::OPEN
        });
        world
    }

    fn turn(&mut self, act: impl FnOnce(&dyn Hosted, &mut Log, &mut Turn<'_>) -> Gate) {
        let now = Now { wall: WallTime(EPOCH + self.now.0), instant: self.now };
        let mut turn = Turn { now, random: &mut self.random, replies: &mut self.inbox };
        let gate = act(&*self.hosted, &mut self.log, &mut turn);
        self.inbox.gate(gate);
    }

    /// A turn of the process, as often as the log's news bring another one.
    fn pump(&mut self) {
        loop {
            self.turn(|hosted, log, turn| hosted.pump(false, log, turn));
            if self.refuses || self.log.written == self.log.group {
                return;
            }
            self.log.written = self.log.group;
        }
    }

    /// Lets so many milliseconds pass.
    pub fn pass(&mut self, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        self.pump();
        while let Some(due) = self.hosted.pending().deadline.filter(|due| *due <= until) {
            self.now = due.max(self.now + Duration::from_micros(1));
            self.pump();
        }
        self.now = until;
    }

    /// The log refuses what this brings, and all that follows.
    pub fn refuse_next<R>(&mut self, act: impl FnOnce(&mut World) -> R) -> R {
        self.refuses = true;
        let done = act(self);
        self.pump();
        assert!(self.log.group > self.log.written, "something is refused");
        self.log.is_suspended = true;
        done
    }

    pub fn heal(&mut self) {
        (self.refuses, self.log.is_suspended, self.log.written) = (false, false, self.log.group);
    }

    pub fn ask(&mut self, request: Request<'_>) -> u64 {
        self.request_count += 1;
        let id = self.request_count;
        self.turn(|hosted, log, turn| hosted.submit(&mut vec![(RequestId(id), request)], log, turn));
        id
    }

    /// The reply, once it may leave.
    pub fn reply(&self, id: u64) -> Option<&ReplyBuf> {
        let (reply, gate) = self.inbox.0.get(&id)?;
        gate.is_some_and(|gate| gate.is_open(self.log.durable())).then_some(reply)
    }

    pub fn set(&mut self, session: u64, key: &[u8]) -> u64 {
        self.ask(Request::One { session: SessionId(session), operation: set(key) })
    }

    pub fn get(&mut self, session: u64, key: &[u8]) -> u64 {
        self.ask(Request::One { session: SessionId(session), operation: get(key) })
    }

    pub fn get_all(&mut self, session: u64, keys: &[&[u8]]) -> u64 {
        let steps: Vec<Step<'_>> = keys.iter().map(|key| Step::Key(get(key))).collect();
        self.ask(Request::Many { session: SessionId(session), steps: &steps, watched: false, multi: false })
    }
}

pub fn set(key: &[u8]) -> KeyedOperation<'_> {
    let operation = register::Operation::Set {
        value: b"v",
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    KeyedOperation { key, hash: SEED.hash(key), operation: Operation::Register(operation), blind: false }
}

fn get(key: &[u8]) -> KeyedOperation<'_> {
    let operation = Operation::Register(register::Operation::Get);
    KeyedOperation { key, hash: SEED.hash(key), operation, blind: false }
}
