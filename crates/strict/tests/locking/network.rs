//! Replicas and coordinators in virtual time; every message arrives, in order, after [`DELAY`], or later where the
//! test says so.

use anabranch_strict::Topology;
use anabranch_strict::locking::{Node, Options};
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Replica, Replies, Request, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{
    Address, HashSeed, Incarnation, Instant, KeyHash, KeyspaceId, NodeId, PartitionId, ProcessId, Reply,
    ReplyBuf, ReplySink, RequestId, Rng, SessionId, Slot, WallTime,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// How long every message takes.
pub const DELAY: Duration = Duration::from_millis(1);
const LIFE: Incarnation = Incarnation(1);

#[derive(Default)]
struct RecordedReplies(BTreeMap<RequestId, ReplyBuf>);

impl Replies for RecordedReplies {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

pub struct Network {
    topology: Topology,
    hosts: BTreeMap<Address, (Replica<Node>, u64)>,
    /// Those that do not run.
    pub down: BTreeSet<Address>,
    /// A process that no message leaves or reaches.
    pub cut_off: Option<u16>,
    /// Two processes that hear nothing of each other.
    pub cut_pair: Option<[u16; 2]>,
    /// A process that messages take three times as long from and to.
    pub far: Option<u16>,
    /// A process whose clock is ahead, and by how much.
    pub ahead: Option<(u16, Duration)>,
    under_way: BTreeMap<(Instant, u64), (NodeId, Address, Packet<Node>)>,
    sent: u64,
    pub now: Instant,
    random: Rng,
    replies: RecordedReplies,
    requests: u64,
}

impl Network {
    /// Two shards of three replicas each on processes 1 to 3, each with a coordinator; both have leaders.
    pub fn new(options: &Options) -> Self {
        let at = |process, partition: Option<u16>| Address {
            process: ProcessId(process),
            slot: Slot { keyspace: KEYSPACE, partition: partition.map(PartitionId) },
        };
        let shard = |shard| (1..=3).map(|process| at(process, Some(shard))).collect();
        let topology = Topology {
            shards: (0..2).map(shard).collect(),
            epochs: Default::default(),
            keyspace: KEYSPACE,
            seed: HashSeed(7),
        };
        let mut network = Network {
            topology: topology.clone(),
            hosts: BTreeMap::new(),
            down: BTreeSet::new(),
            cut_off: None,
            cut_pair: None,
            far: None,
            ahead: None,
            under_way: BTreeMap::new(),
            sent: 0,
            now: Instant(0),
            random: Rng::with_seed(1),
            replies: RecordedReplies::default(),
            requests: 0,
        };
        for process in 1..=3 {
            for partition in [Some(0), Some(1), None] {
                let (topology, options) = (topology.clone(), options.clone());
                let node = match partition {
                    Some(shard) => Node::replica(topology, shard, usize::from(process) - 1, LIFE, options),
                    None => Node::coordinator(topology, ProcessId(process), LIFE, options),
                };
                let address = at(process, partition);
                network.hosts.insert(address, (Replica::new(address.at(LIFE), node), 0));
                network.input(address, Input::Recovered { complete: true });
            }
        }
        // Leaders are elected, and coordinators learn of them.
        for process in 1..=3 {
            let [a, b] = network.keys();
            assert_eq!(network.text(process, 0, &[network.get(a), network.get(b)]), "null null");
        }
        network
    }

    /// What the processes' clocks say.
    pub fn wall(&self) -> WallTime {
        WallTime(1_700_000_000_000_000 + self.now.0)
    }

    fn time(&self, at: Address) -> Now {
        let ahead = self.ahead.filter(|(process, _)| *process == at.process.0);
        let micros = ahead.map_or(0, |(_, by)| by.as_micros() as u64);
        Now { wall: WallTime(self.wall().0 + micros), instant: self.now }
    }

    pub fn coordinator(&self, process: u16) -> Address {
        self.topology.coordinator(ProcessId(process))
    }

    /// A shard's replica on a process.
    pub fn replica(&self, process: u16, shard: u16) -> Address {
        self.topology.replicas(shard)[usize::from(process) - 1]
    }

    /// Stops the replicas of a shard.
    pub fn stop(&mut self, shard: u16) {
        self.down.extend(self.topology.replicas(shard));
    }

    /// The process that leads a shard.
    pub fn leader(&self, shard: u16) -> u16 {
        let leads = |process: &u16| {
            let host = self.hosts.get(&self.replica(*process, shard));
            host.is_some_and(|(host, _)| match host.protocol() {
                Node::Replica(replica) => replica.is_leader(),
                Node::Coordinator(_) => false,
            })
        };
        (1..=3).find(leads).expect("a shard has a leader")
    }

    /// Stops a shard's replicas, all but the leader's, or lets them go on.
    pub fn stop_followers(&mut self, shard: u16, stop: bool) {
        let leader = self.leader(shard);
        for follower in (1..=3).filter(|process| *process != leader) {
            let follower = self.replica(follower, shard);
            if stop {
                self.down.insert(follower)
            } else {
                self.down.remove(&follower)
            };
        }
    }

    /// Lets another process lead a shard, if this one does.
    pub fn depose(&mut self, process: u16, shard: u16) {
        let replica = self.replica(process, shard);
        self.down.insert(replica);
        self.run_for(Duration::from_secs(5));
        self.down.remove(&replica);
    }

    /// Lets a process, cut off, stand still, or go on.
    pub fn stand_still(&mut self, process: u16, still: bool) {
        self.cut_off = Some(process);
        let of_process = self.hosts.keys().filter(|at| at.process.0 == process);
        self.down = of_process.copied().filter(|_| still).collect();
    }

    fn input(&mut self, at: Address, input: Input<'_, Node>) {
        let now = self.time(at);
        if let Some((replica, _)) = self.hosts.get_mut(&at) {
            replica.step(now, &mut vec![input], &mut self.random, &mut self.replies);
        }
        self.flush(at);
    }

    /// What a step persisted is durable at once; what it sent leaves.
    fn flush(&mut self, at: Address) {
        let Some((replica, groups)) = self.hosts.get_mut(&at) else { return };
        *groups += 1;
        replica.appended(*groups);
        replica.release(self.now, Durable { written: *groups, synced: *groups });
        let from = replica.node();
        let cut_off = |address: Address| Some(address.process.0) == self.cut_off;
        for (to, packet) in replica.packets() {
            let ends = [from.process.0, to.process.0];
            let is_cut = ends[0] != ends[1]
                && self.cut_pair.is_some_and(|pair| ends.iter().all(|end| pair.contains(end)));
            if is_cut || cut_off(to) != cut_off(from.address()) {
                continue;
            }
            let is_far = ends[0] != ends[1] && self.far.is_some_and(|far| ends.contains(&far));
            let arrives = self.now + if is_far { DELAY * 3 } else { DELAY };
            self.sent += 1;
            self.under_way.insert((arrives, self.sent), (from, to, packet));
        }
    }

    /// Takes the next event; false when there is none before `limit`.
    fn tick(&mut self, limit: Instant) -> bool {
        let running = self.hosts.iter().filter(|(at, _)| !self.down.contains(at));
        let timer = running.filter_map(|(at, (replica, _))| Some((replica.deadline()?, *at))).min();
        let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
        match timer {
            Some((due, at)) if due <= limit && arrival.is_none_or(|arrival| due <= arrival) => {
                self.now = self.now.max(due);
                let now = self.time(at);
                if let Some((replica, _)) = self.hosts.get_mut(&at) {
                    replica.fire(now, &mut self.random, &mut self.replies);
                }
                self.flush(at);
                true
            }
            _ if arrival.is_some_and(|arrival| arrival <= limit) => {
                let Some(((due, _), (from, to, packet))) = self.under_way.pop_first() else { return false };
                self.now = self.now.max(due);
                if !self.down.contains(&to) {
                    let now = self.time(to);
                    if let Some((replica, _)) = self.hosts.get_mut(&to) {
                        let received =
                            replica.receive(now, from, packet, &mut self.random, &mut self.replies);
                        received.expect("well-formed");
                    }
                    self.flush(to);
                }
                true
            }
            _ => false,
        }
    }

    pub fn run_for(&mut self, duration: Duration) {
        let limit = self.now + duration;
        while self.tick(limit) {}
        self.now = limit;
    }

    pub fn request(&mut self, process: u16, request: Request<'_>) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.input(self.coordinator(process), Input::Request { id, request });
        id
    }

    /// Takes the next event; returns whether there was one before `limit`.
    pub fn go_on(&mut self, limit: Instant) -> bool {
        self.tick(limit)
    }

    /// How many messages have left so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// What the request was answered, if it was.
    pub fn answered(&self, id: RequestId) -> Option<String> {
        self.replies.0.get(&id).map(text)
    }

    /// Runs until the request is answered; panics after ten seconds of virtual time.
    pub fn answer(&mut self, id: RequestId) -> String {
        let limit = self.now + Duration::from_secs(10);
        while !self.replies.0.contains_key(&id) {
            assert!(self.tick(limit), "request {id} was not answered");
        }
        text(&self.replies.0[&id])
    }

    /// Runs a transaction and returns what it replied.
    pub fn text(&mut self, process: u16, session: u64, steps: &[Step<'_>]) -> String {
        let session = SessionId(session);
        let id = self.request(process, Request::Many { session, steps, watched: false, multi: true });
        self.answer(id)
    }

    fn step<'a>(&self, key: &'a str, operation: register::Operation<'a>) -> Step<'a> {
        self.any(key, Operation::Register(operation), false)
    }

    /// Any operation.
    pub fn any<'a>(&self, key: &'a str, operation: Operation<'a>, blind: bool) -> Step<'a> {
        let hash = self.topology.seed.hash(key.as_bytes());
        Step::Key(KeyedOperation { key: key.as_bytes(), hash, operation, blind })
    }

    pub fn get(&self, key: &'static str) -> Step<'static> {
        self.step(key, register::Operation::Get)
    }

    pub fn increment(&self, key: &'static str) -> Step<'static> {
        self.step(key, register::Operation::Increment { by: 1 })
    }

    /// Reads a key and deletes it.
    pub fn take(&self, key: &'static str) -> Step<'static> {
        self.step(key, register::Operation::GetDelete)
    }

    /// A key as WATCH names it.
    pub fn watched(&self, key: &'static str) -> (&'static [u8], KeyHash) {
        (key.as_bytes(), self.topology.seed.hash(key.as_bytes()))
    }

    /// Four keys, of the first shard or of both in turn.
    pub fn four_keys(&self, shards: u16) -> [&'static str; 4] {
        let of = |shard, nth: usize| self.of_shard(shard)[nth];
        [0, 1, 2, 3].map(|number| of(number as u16 % shards, number / usize::from(shards)))
    }

    /// Keys of a shard, other ones than those of [`Network::keys`].
    pub fn of_shard(&self, shard: u16) -> Vec<&'static str> {
        let all =
            ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "l0", "l1", "l2", "l3", "l4", "l5"];
        all.into_iter().filter(|key| self.topology.shard_of(key.as_bytes()) == shard).collect()
    }

    /// A key of each shard.
    pub fn keys(&self) -> [&'static str; 2] {
        let of = |shard| {
            ["a", "b", "c", "d", "e", "f"]
                .into_iter()
                .find(move |key| self.topology.shard_of(key.as_bytes()) == shard)
        };
        [of(0), of(1)].map(|key| key.expect("six keys meet both shards"))
    }
}

/// A reply as text: elements in order.
fn text(reply: &ReplyBuf) -> String {
    let elements = reply.elements().map(|element| match element {
        Reply::Simple(text) => text.to_owned(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Integer(value) => value.to_string(),
        Reply::Error(error) => error.to_string(),
        Reply::Null => "null".to_owned(),
        Reply::Array(elements) => format!("[{elements}]"),
        other => format!("{other:?}"),
    });
    elements.collect::<Vec<_>>().join(" ")
}
