//! One instance of the protocol as the model sees it: it is driven by events, and built again by repeating them.

use crate::model::setup::{Act, Setup};
use anabranch_causal::wren::{Message, Node, Snapshot, Timer};
use datatypes::{Operation, register};
use protocol::{
    Durable, Frame, Input, KeyedOperation, Now, Packet, Protocol, Replica, Replies, Request, Step,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{
    Incarnation, Instant, NodeId, Reader, Reply, ReplyBuf, ReplySink, RequestId, Rng, SessionId, Timestamp,
    TransactionId, WallTime, Wire,
};

/// Microseconds since 1970 while a model runs.
const EPOCH: u64 = 1_700_000_000_000_000;

/// Something that happens to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It starts.
    Start,
    /// It receives the message with this number.
    Deliver(u32),
    /// A client asks the request with this index.
    Request(u8),
    /// A partition applies what is committed, tells the other regions, and reports what it has installed, or tells what is stable.
    Apply,
    /// A partition looks for transactions in doubt.
    Doubt,
    /// A coordinator asks what is stable.
    StartTx,
    /// Its wall clock goes on.
    Clock,
    /// Its process dies and comes back with its log.
    Restart,
    /// Another instance is in this life of its from now on.
    Peer(usize, u32),
}

/// Keeps every reply.
#[derive(Default)]
struct RecordedReplies(BTreeMap<RequestId, ReplyBuf>);

impl Replies for RecordedReplies {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

/// What an instance sent.
pub struct Out {
    pub to: types::Address,
    pub message: Message,
    /// By the one stream, in order.
    pub in_order: bool,
}

/// What is known of an instance beside its state.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// How often its clock has gone on.
    pub wall: usize,
    /// Its life.
    pub life: u32,
    /// How many new lives of others it has met.
    pub met: u32,
    /// The greatest time that it said it has installed.
    pub published: Timestamp,
    /// The greatest time that it said all below it in the stabilization tree have installed too.
    pub vouched: Timestamp,
    /// Transactions that have committed here, with their places.
    pub committed: BTreeMap<TransactionId, Timestamp>,
    /// Two places of one transaction were heard of.
    pub moved: bool,
    /// Transactions of other regions that have arrived.
    pub arrived: BTreeSet<TransactionId>,
    /// The replies to clients, by request.
    pub replies: BTreeMap<u8, Vec<String>>,
    /// The requests sent so far, a bit each.
    pub requested: u8,
    /// Stable times that it knows.
    pub stable: Snapshot,
    /// What has arrived of each other region.
    pub received: Vec<Timestamp>,
    /// Transactions that wait for their decision.
    pub undecided: usize,
}

/// A running instance.
pub struct Host {
    replica: Replica<Node>,
    index: usize,
    log: Vec<Vec<u8>>,
    groups: u64,
    replies: RecordedReplies,
    pub known: Known,
    outbox: Vec<Out>,
}

impl Host {
    /// Starts an instance for the first time. It knows all others.
    pub fn start(setup: &Setup, index: usize) -> Self {
        let id = setup.address(index).at(Incarnation(1));
        let mut host = Host {
            replica: Replica::new(id, setup.node(index, id.incarnation)),
            index,
            log: Vec::new(),
            groups: 0,
            replies: RecordedReplies::default(),
            known: Known { life: 1, ..Known::default() },
            outbox: Vec::new(),
        };
        host.input(setup, Input::Recovered { complete: true });
        host.meet_all(setup);
        host
    }

    fn meet_all(&mut self, setup: &Setup) {
        let own = self.index;
        let peers = (0..setup.replicas()).filter(|peer| *peer != own && own < setup.replicas());
        peers.for_each(|peer| self.meet(setup, setup.address(peer).at(Incarnation(1))));
    }

    fn meet(&mut self, setup: &Setup, peer: NodeId) {
        let now = self.time(setup);
        let random = &mut Rng::with_seed(0);
        self.replica
            .receive(now, peer, Packet::Frame(Frame::Welcome), random, &mut self.replies)
            .expect("a greeting is well formed");
        self.flush(now);
    }

    /// Its address and life.
    pub fn id(&self) -> NodeId {
        self.replica.node()
    }

    fn time(&self, setup: &Setup) -> Now {
        let wall = setup.walls.get(self.index).map_or(0, |walls| walls[self.known.wall]);
        Now { wall: WallTime(EPOCH + wall), instant: Instant(0) }
    }

    fn input(&mut self, setup: &Setup, input: Input<'_, Node>) {
        let now = self.time(setup);
        self.replica.step(now, &mut vec![input], &mut Rng::with_seed(0), &mut self.replies);
        self.flush(now);
    }

    /// What was persisted is durable at once; what was sent is in the outbox.
    fn flush(&mut self, now: Now) {
        let mut records = self.replica.records();
        while let Some((len, rest)) = records.split_first_chunk::<4>() {
            let (record, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            self.log.push(record.to_vec());
            records = rest;
        }
        self.groups += 1;
        self.replica.appended(self.groups);
        self.replica.release(now.instant, Durable { written: self.groups, synced: self.groups });
        for (to, packet) in self.replica.packets() {
            match packet {
                Packet::Datagram(message) => self.outbox.push(Out { to, message, in_order: false }),
                Packet::Frame(Frame::Data { message, .. }) => {
                    let message =
                        Message::decode(&mut Reader::new(&message)).expect("what was encoded decodes");
                    self.outbox.push(Out { to, message, in_order: true });
                }
                Packet::Frame(_) => {}
            }
        }
    }

    /// Something happens to it. Returns what it sent.
    pub fn perform(&mut self, setup: &Setup, event: &Event, message: Option<(NodeId, Message)>) -> Vec<Out> {
        match event {
            Event::Start => {}
            Event::Deliver(_) => {
                let (from, message) = message.expect("the message that is delivered");
                if let Message::Replicate { id, .. } = &message {
                    self.known.arrived.insert(*id);
                }
                // What streams deliver in order looks the same to the protocol.
                self.input(setup, Input::Message { from, message });
            }
            Event::Request(index) => self.ask(setup, *index),
            Event::Apply => self.input(setup, Input::Timer(Timer::Apply)),
            Event::Doubt => self.input(setup, Input::Timer(Timer::Doubt)),
            Event::StartTx => self.input(setup, Input::Timer(Timer::StartTx)),
            Event::Clock => self.known.wall += 1,
            Event::Restart => self.restart(setup),
            Event::Peer(peer, life) => {
                self.known.met += 1;
                self.meet(setup, setup.address(*peer).at(Incarnation(*life)));
            }
        }
        self.look(setup);
        std::mem::take(&mut self.outbox)
    }

    /// A client asks.
    fn ask(&mut self, setup: &Setup, index: u8) {
        self.known.requested |= 1 << index;
        let request = &setup.requests[usize::from(index)];
        let keys: Vec<String> = request.keys.iter().map(|partition| setup.key_of(*partition)).collect();
        let value = match request.act {
            Act::Write(value) => value.to_string(),
            Act::Read => String::new(),
        };
        let step = |key| {
            let operation = match request.act {
                Act::Read => register::Operation::Get,
                Act::Write(_) => {
                    let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
                    let deadline = register::Deadline::Clear;
                    register::Operation::Set { value: value.as_bytes(), deadline, condition, reply }
                }
            };
            let hash = Setup::hash(key);
            let key = str::as_bytes(key);
            Step::Key(KeyedOperation { key, hash, operation: Operation::Register(operation), blind: false })
        };
        let steps: Vec<Step<'_>> = keys.iter().map(|key| step(key)).collect();
        let request = Request::Many { session: SessionId(1), steps: &steps, watched: false, multi: false };
        self.input(setup, Input::Request { id: RequestId(u64::from(index)), request });
    }

    /// The process dies and comes back.
    fn restart(&mut self, setup: &Setup) {
        self.known.life += 1;
        let life = Incarnation(self.known.life);
        self.replica = Replica::new(self.id().address().at(life), setup.node(self.index, life));
        self.groups = 0;
        for record in std::mem::take(&mut self.log) {
            self.input(setup, Input::Recover(&record));
            self.log.push(record);
        }
        self.input(setup, Input::Recovered { complete: true });
        // Nobody else has restarted: a model has one restart at most.
        self.meet_all(setup);
    }

    fn look(&mut self, setup: &Setup) {
        for out in &self.outbox {
            let said = match &out.message {
                Message::StableReport { installed, .. } => installed.local,
                Message::Heartbeat { at, .. } => *at,
                Message::StableTime { stable, .. } => stable.local,
                _ => continue,
            };
            if self.index < setup.replicas() {
                self.known.published = self.known.published.max(said);
                if !matches!(out.message, Message::Heartbeat { .. }) {
                    self.known.vouched = self.known.vouched.max(said);
                }
            }
        }
        for (stamp, _) in self.replica.protocol_mut().take_decided() {
            let known = *self.known.committed.entry(stamp.transaction).or_insert(stamp.at);
            self.known.moved |= known != stamp.at;
        }
        self.replica.protocol_mut().take_claims();
        let replies = self.replies.0.iter();
        self.known.replies.extend(replies.map(|(id, reply)| (id.0 as u8, text(reply))));
        match self.replica.protocol() {
            Node::Partition(partition) => {
                self.known.stable = partition.stable();
                self.known.received = partition.received_of_regions().map(|(_, at)| at).collect();
                self.known.undecided = partition.undecided();
            }
            Node::Coordinator(coordinator) => self.known.stable = coordinator.stable(),
        }
    }

    /// All that what it does from now on depends on. The host is of no use afterwards: it has taken a checkpoint.
    pub fn portrait(&mut self, setup: &Setup) -> (String, Vec<u8>) {
        let (text, mut bytes) = (format!("{:?} {:?}", self.known, self.replica.protocol()), Vec::new());
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            cursor = self.replica.protocol_mut().checkpoint(at, &mut bytes);
        }
        if setup.restarts > 0 {
            self.log.iter().for_each(|record| bytes.extend(record));
        }
        (text, bytes)
    }
}

fn text(reply: &ReplyBuf) -> Vec<String> {
    let elements = reply.elements().map(|element| match element {
        Reply::Simple(text) => text.to_owned(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Error(error) => error.to_string(),
        Reply::Null => "null".to_owned(),
        other => format!("{other:?}"),
    });
    elements.collect()
}
