//! The network: virtual time, and packets that are delayed, lost, repeated and reordered from a seed.

use anabranch_strict::ir;
use anabranch_strict::tapir::{Decided, Message, Node, Options, Topology};
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Protocol, Replica, Replies, Request, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, ReplyBuf,
    ReplySink, RequestId, Rng, SessionId, Slot, TransactionId, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// Microseconds since 1970 at the start of every run.
const EPOCH: u64 = 1_700_000_000_000_000;

/// Keeps every reply.
#[derive(Default)]
pub struct RecordedReplies(pub BTreeMap<RequestId, ReplyBuf>);

impl Replies for RecordedReplies {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

struct Host {
    replica: Replica<Node>,
    /// Every record persisted, in order: the log.
    log: Vec<Vec<u8>>,
    groups: u64,
    /// The wall clock's error, in microseconds.
    skew: i64,
    options: Options,
}

/// Decides which packets never arrive: from, to, message.
pub type Filter = Box<dyn FnMut(Address, Address, &Message) -> bool>;

pub struct Network {
    pub topology: Topology,
    hosts: BTreeMap<Address, Host>,
    /// Those that are not running.
    pub down: BTreeSet<Address>,
    queue: BTreeMap<(Instant, u64), (NodeId, Address, Vec<u8>)>,
    sent: u64,
    pub now: Instant,
    pub rng: Rng,
    pub replies: RecordedReplies,
    /// When each reply was complete.
    pub replied_at: BTreeMap<RequestId, Instant>,
    requests: u64,
    /// One message in so many is lost; 0 for none.
    pub loss: u64,
    /// One message in so many is delivered twice; 0 for none.
    pub duplication: u64,
    /// The longest delay of a message.
    pub delay: Duration,
    /// A process that every message to and from it takes this much longer.
    pub far: Option<(ProcessId, Duration)>,
    pub filter: Option<Filter>,
    /// How every transaction ended in every shard, as replicas reported before they forgot it.
    pub decided: BTreeMap<(TransactionId, u16), Decided>,
    /// Two replicas reported different outcomes.
    pub contradiction: Option<String>,
    look_every: Duration,
    look_at: Instant,
}

pub fn address(process: u16, shard: Option<u16>) -> Address {
    Address {
        process: ProcessId(process),
        slot: Slot { keyspace: KEYSPACE, partition: shard.map(PartitionId) },
    }
}

impl Network {
    /// `shards` shards with `members` replicas each, on processes 1 to `members`; coordinators on 1 to
    /// `coordinators`.
    pub fn new(seed: u64, shards: u16, members: u16, coordinators: u16, options: &Options) -> Self {
        let replicas = |shard| (1..=members).map(|process| address(process, Some(shard))).collect();
        let topology = Topology {
            shards: (0..shards).map(replicas).collect(),
            epochs: Default::default(),
            keyspace: KEYSPACE,
            seed: HashSeed(7),
        };
        let mut network = Network {
            topology,
            hosts: BTreeMap::new(),
            down: BTreeSet::new(),
            queue: BTreeMap::new(),
            sent: 0,
            now: Instant(0),
            rng: Rng::with_seed(seed),
            replies: RecordedReplies::default(),
            replied_at: BTreeMap::new(),
            requests: 0,
            loss: 0,
            duplication: 0,
            delay: Duration::from_millis(5),
            far: None,
            filter: None,
            decided: BTreeMap::new(),
            contradiction: None,
            look_every: options.sync_lag / 4,
            look_at: Instant(0),
        };
        let options = Options { claims: true, ..options.clone() };
        for shard in 0..shards {
            (1..=members).for_each(|p| network.add(address(p, Some(shard)), Incarnation(1), &options));
        }
        (1..=coordinators).for_each(|process| network.add(address(process, None), Incarnation(1), &options));
        network
    }

    /// One more coordinator, on a process of its own.
    pub fn add_coordinator(&mut self, process: u16, options: &Options) {
        self.add(address(process, None), Incarnation(1), options);
    }

    /// A replica that is of no epoch yet, on a process of its own.
    pub fn add_spare(&mut self, process: u16, shard: u16, options: &Options) {
        self.add(address(process, Some(shard)), Incarnation(1), options);
    }

    fn node(&self, at: Address, incarnation: Incarnation, options: &Options) -> Node {
        let topology = self.topology.clone();
        match at.slot.partition {
            Some(shard) => Node::replica_at(topology, shard.0, at.process, incarnation, options.clone()),
            None => Node::coordinator(topology, at.process, incarnation, options.clone()),
        }
    }

    fn add(&mut self, at: Address, incarnation: Incarnation, options: &Options) {
        let node = self.node(at, incarnation, options);
        let replica = Replica::new(at.at(incarnation), node);
        let host = Host { replica, log: Vec::new(), groups: 0, skew: 0, options: options.clone() };
        self.hosts.insert(at, host);
        self.input(at, Input::Recovered { complete: true });
    }

    /// Starts a process again in a new life with the first `records` records of its log.
    pub fn restart(&mut self, at: Address, records: usize, complete: bool) {
        let Some(old) = self.hosts.remove(&at) else { return };
        self.down.remove(&at);
        let incarnation = Incarnation(old.replica.node().incarnation.0 + 1);
        let node = self.node(at, incarnation, &old.options);
        let replica = Replica::new(at.at(incarnation), node);
        let log: Vec<Vec<u8>> = old.log.into_iter().take(records).collect();
        self.hosts.insert(at, Host { replica, log: log.clone(), groups: 0, ..old });
        for record in &log {
            self.input(at, Input::Recover(record));
        }
        self.input(at, Input::Recovered { complete });
    }

    /// The pieces of a replica's checkpoint, taken now.
    pub fn checkpoint(&mut self, at: Address) -> Vec<Vec<u8>> {
        let Some(host) = self.hosts.get_mut(&at) else { return Vec::new() };
        let (mut chunks, mut cursor) = (Vec::new(), 0);
        loop {
            let mut chunk = Vec::new();
            let next = host.replica.protocol_mut().checkpoint(cursor, &mut chunk);
            chunks.push(chunk);
            match next {
                Some(next) => cursor = next,
                None => return chunks,
            }
        }
    }

    /// Starts a replica again from a checkpoint taken now and the whole of its log.
    pub fn restart_from_checkpoint(&mut self, at: Address) {
        let chunks = self.checkpoint(at);
        self.restart_with(at, &chunks, 0, true);
    }

    /// Starts a replica again from a checkpoint and its log from a record on.
    pub fn restart_with(&mut self, at: Address, chunks: &[Vec<u8>], from: usize, complete: bool) {
        let Some(old) = self.hosts.remove(&at) else { return };
        let incarnation = Incarnation(old.replica.node().incarnation.0 + 1);
        let node = self.node(at, incarnation, &old.options);
        let log = old.log.clone();
        self.hosts.insert(at, Host { replica: Replica::new(at.at(incarnation), node), ..old });
        for chunk in chunks {
            self.input(at, Input::Snapshot(chunk));
        }
        for record in log.iter().skip(from) {
            self.input(at, Input::Recover(record));
        }
        self.input(at, Input::Recovered { complete });
    }

    /// The time of a clock without error, so long ago.
    pub fn wall(&self, ago: Duration) -> WallTime {
        WallTime(EPOCH + self.now.0 - ago.as_micros() as u64)
    }

    pub fn log_len(&self, at: Address) -> usize {
        self.hosts.get(&at).map_or(0, |host| host.log.len())
    }

    pub fn node_mut(&mut self, at: Address) -> &mut Node {
        self.hosts.get_mut(&at).expect("a host").replica.protocol_mut()
    }

    pub fn replicas(&self) -> impl Iterator<Item = (Address, &anabranch_strict::tapir::Replica)> {
        self.hosts.iter().filter_map(|(at, host)| match host.replica.protocol() {
            Node::Replica(replica) => Some((*at, &**replica)),
            Node::Coordinator(_) => None,
        })
    }

    pub fn set_skew(&mut self, at: Address, micros: i64) {
        if let Some(host) = self.hosts.get_mut(&at) {
            host.skew = micros;
        }
    }

    fn time(&self, at: Address) -> Now {
        let skew = self.hosts.get(&at).map_or(0, |host| host.skew);
        Now { wall: WallTime((EPOCH + self.now.0).saturating_add_signed(skew)), instant: self.now }
    }

    /// Delivers a message once more, or late.
    pub fn hand(&mut self, from: Address, to: Address, message: Message) {
        let from = self.hosts[&from].replica.node();
        self.input(to, Input::Message { from, message });
    }

    /// An operator asks a process to see to it that a shard moves.
    pub fn place(&mut self, process: u16, shard: u16, processes: &[u16], accept_loss: bool) {
        let processes = processes.iter().map(|process| ProcessId(*process)).collect();
        let at = address(process, None);
        self.hand(at, at, Message::Place { shard, processes, accept_loss });
    }

    /// A replica, dead or alive.
    pub fn replica(&self, process: u16, shard: u16) -> &anabranch_strict::tapir::Replica {
        let at = address(process, Some(shard));
        self.replicas().find(|(of, _)| *of == at).expect("a replica").1
    }

    fn input(&mut self, at: Address, input: Input<'_, Node>) {
        let now = self.time(at);
        if let Some(host) = self.hosts.get_mut(&at) {
            let mut batch = vec![input];
            host.replica.step(now, &mut batch, &mut self.rng, &mut self.replies);
            self.flush(at);
        }
    }

    /// What a step persisted is durable at once; what it sent leaves.
    fn flush(&mut self, at: Address) {
        let Some(host) = self.hosts.get_mut(&at) else { return };
        let mut records = host.replica.records();
        while let Some((len, rest)) = records.split_first_chunk::<4>() {
            let (record, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            host.log.push(record.to_vec());
            records = rest;
        }
        host.groups += 1;
        host.replica.appended(host.groups);
        host.replica.release(self.now, Durable { written: host.groups, synced: host.groups });
        let from = host.replica.node();
        let packets: Vec<(Address, Packet<Node>)> = host.replica.packets().collect();
        for (to, packet) in packets {
            if let (Some(filter), Packet::Datagram(message)) = (&mut self.filter, &packet)
                && filter(from.address(), to, message)
            {
                continue;
            }
            self.post(from, to, &packet);
        }
        for id in self.replies.0.keys() {
            self.replied_at.entry(*id).or_insert(self.now);
        }
    }

    fn post(&mut self, from: NodeId, to: Address, packet: &Packet<Node>) {
        let mut bytes = Vec::new();
        packet.encode(&mut bytes);
        let copies = if self.duplication > 0 && self.rng.u64(0..self.duplication) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if self.loss > 0 && self.rng.u64(0..self.loss) == 0 {
                continue;
            }
            let delay = Duration::from_micros(self.rng.u64(100..=self.delay.as_micros() as u64));
            let away =
                |(process, _): &(ProcessId, Duration)| (from.process == *process) != (to.process == *process);
            let delay = delay + self.far.filter(away).map_or(Duration::ZERO, |(_, longer)| longer);
            self.sent += 1;
            self.queue.insert((self.now + delay, self.sent), (from, to, bytes.clone()));
        }
    }

    /// Notes how transactions ended, before replicas forget it.
    pub fn look(&mut self) {
        let mut ends: BTreeMap<TransactionId, bool> = BTreeMap::new();
        for host in self.hosts.values() {
            let Node::Replica(replica) = host.replica.protocol() else { continue };
            for (id, decided) in replica.decided() {
                let committed = matches!(decided, Decided::Committed { .. });
                if *ends.entry(id).or_insert(committed) != committed {
                    self.contradiction = Some(format!("{id} both committed and aborted"));
                }
                let known = self.decided.entry((id, replica.shard())).or_insert_with(|| decided.clone());
                if *known != decided {
                    let shard = replica.shard();
                    self.contradiction = Some(format!("{id} ended in two ways on shard {shard}"));
                }
            }
        }
    }

    /// Takes the next event; false when there is none before `limit`.
    fn tick(&mut self, limit: Instant) -> bool {
        if self.now >= self.look_at {
            self.look_at = self.now + self.look_every;
            self.look();
        }
        let running = self.hosts.iter().filter(|(at, _)| !self.down.contains(at));
        let timer = running.filter_map(|(at, host)| Some((host.replica.deadline()?, *at))).min();
        let packet = self.queue.first_key_value().map(|((at, _), _)| *at);
        match (timer, packet) {
            (Some((due, at)), next) if next.is_none_or(|next| due <= next) && due <= limit => {
                self.now = self.now.max(due);
                let now = self.time(at);
                if let Some(host) = self.hosts.get_mut(&at) {
                    host.replica.fire(now, &mut self.rng, &mut self.replies);
                }
                self.flush(at);
                true
            }
            (_, Some(due)) if due <= limit => {
                self.now = self.now.max(due);
                if let Some((_, (from, to, bytes))) = self.queue.pop_first() {
                    self.deliver(from, to, &bytes);
                }
                true
            }
            _ => false,
        }
    }

    fn deliver(&mut self, from: NodeId, to: Address, bytes: &[u8]) {
        if self.down.contains(&to) {
            return;
        }
        let packet = Packet::decode(&mut Reader::new(bytes)).expect("packets survive their binary form");
        let now = self.time(to);
        if let Some(host) = self.hosts.get_mut(&to) {
            host.replica.receive(now, from, packet, &mut self.rng, &mut self.replies).expect("well-formed");
            self.flush(to);
        }
    }

    pub fn run_for(&mut self, duration: Duration) {
        let limit = self.now + duration;
        while self.tick(limit) {}
        self.now = limit;
    }

    /// Runs until the request is answered; panics after ten seconds of virtual time.
    pub fn answer(&mut self, id: RequestId) -> ReplyBuf {
        let limit = self.now + Duration::from_secs(10);
        while !self.replies.0.contains_key(&id) {
            assert!(self.tick(limit), "request {id} was not answered");
        }
        self.replies.0[&id].clone()
    }

    pub fn is_answered(&self, id: RequestId) -> bool {
        self.replies.0.contains_key(&id)
    }

    pub fn request(&mut self, process: u16, request: Request<'_>) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(address(process, None), Input::Request { id, request });
        id
    }

    /// Hands over the commands of a pipeline at once.
    pub fn pipeline(&mut self, process: u16, session: u64, steps: Vec<Step<'_>>) -> Vec<RequestId> {
        let at = address(process, None);
        let mut batch = Vec::new();
        let mut ids = Vec::new();
        for step in steps {
            let Step::Key(operation) = step else { panic!("an operation on a key") };
            self.requests += 1;
            ids.push(RequestId(self.requests));
            let request = Request::One { session: SessionId(session), operation };
            batch.push(Input::Request { id: RequestId(self.requests), request });
        }
        let now = self.time(at);
        if let Some(host) = self.hosts.get_mut(&at) {
            host.replica.step(now, &mut batch, &mut self.rng, &mut self.replies);
            self.flush(at);
        }
        ids
    }

    pub fn many(&mut self, process: u16, session: u64, steps: &[Step<'_>]) -> RequestId {
        let session = SessionId(session);
        self.request(process, Request::Many { session, steps, watched: false, multi: true })
    }

    /// Runs one operation as a transaction, or asks about the whole keyspace outside of one, and returns what it
    /// replied.
    pub fn one(&mut self, process: u16, step: &Step<'_>) -> ReplyBuf {
        let (session, steps) = (SessionId(1), std::slice::from_ref(step));
        let id = self.request(process, Request::Many { session, steps, watched: false, multi: false });
        self.answer(id)
    }

    pub fn get(&self, key: &'static str) -> Step<'static> {
        self.step(key, register::Operation::Get, false)
    }

    pub fn set<'a>(&self, key: &'static str, value: &'a str) -> Step<'a> {
        let operation = register::Operation::Set {
            value: value.as_bytes(),
            deadline: register::Deadline::Clear,
            condition: register::Condition::Always,
            reply: register::SetReply::Status,
        };
        self.step(key, operation, false)
    }

    pub fn increment(&self, key: &'static str, blind: bool) -> Step<'static> {
        self.step(key, register::Operation::Increment { by: 1 }, blind)
    }

    pub fn step<'a>(&self, key: &'a str, operation: register::Operation<'a>, blind: bool) -> Step<'a> {
        self.on(key, Operation::Register(operation), blind)
    }

    pub fn on<'a>(&self, key: &'a str, operation: Operation<'a>, blind: bool) -> Step<'a> {
        let key = key.as_bytes();
        let hash = self.topology.seed.hash(key);
        Step::Key(KeyedOperation { key, hash, operation, blind })
    }

    /// A key of the given shard.
    pub fn key_of(&self, shard: u16) -> &'static str {
        const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        KEYS.into_iter()
            .find(|key| self.topology.shard_of(key.as_bytes()) == shard)
            .expect("a key of the shard")
    }

    /// Two keys, of shard 0 and of shard 1.
    pub fn two_keys(&self) -> (&'static str, &'static str) {
        (self.key_of(0), self.key_of(1))
    }
}

/// The IR message inside, if there is one.
pub fn ir_of(message: &Message) -> Option<&ir::Message<anabranch_strict::tapir::Transactions>> {
    match message {
        Message::Ir { message } => Some(message),
        _ => None,
    }
}

/// A reply as text: elements in order.
pub fn text(reply: &ReplyBuf) -> String {
    let elements = reply.elements().map(|element| match element {
        types::Reply::Simple(text) => text.to_owned(),
        types::Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        types::Reply::Integer(value) => value.to_string(),
        types::Reply::Error(error) => error.to_string(),
        types::Reply::NullArray => "null array".to_owned(),
        types::Reply::Null => "null".to_owned(),
        types::Reply::Array(len) => format!("[{len}]"),
        other => format!("{other:?}"),
    });
    elements.collect::<Vec<_>>().join(" ")
}
