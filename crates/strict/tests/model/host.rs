//! One instance of the protocol as the model sees it: it is driven by events, and built again by repeating them.

use crate::model::setup::{Act, ClientRequest, Setup};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Node};
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Replica, Replies, Request, Step};
use std::collections::BTreeMap;
use types::{
    Address, Incarnation, Instant, NodeId, Reply, ReplyBuf, ReplySink, RequestId, Rng, SessionId,
    TransactionId, WallTime,
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
    /// Its next timer fires.
    Timer,
    /// The instance suspects this transaction's coordinator.
    Suspect(TransactionId, Vec<u16>),
    /// Its process dies and comes back, with its log or without.
    Restart { complete: bool },
}

/// Keeps every reply, as text.
#[derive(Default)]
struct RecordedReplies(BTreeMap<RequestId, ReplyBuf>);

impl Replies for RecordedReplies {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

/// A running instance.
pub struct Host {
    at: Address,
    replica: Replica<Node>,
    log: Vec<Vec<u8>>,
    groups: u64,
    skew: i64,
    /// Its own time; in the model only its own timers advance it.
    pub now: Instant,
    replies: RecordedReplies,
    /// What the last event made it send.
    pub outbox: Vec<(Address, Message)>,
}

impl Host {
    /// Starts an instance for the first time.
    pub fn start(setup: &Setup, index: usize) -> Self {
        let at = setup.address(index);
        let node = setup.node(index, Incarnation(1));
        let mut host = Host {
            at,
            replica: Replica::new(at.at(Incarnation(1)), node),
            log: Vec::new(),
            groups: 0,
            skew: setup.skew(index),
            now: Instant(0),
            replies: RecordedReplies::default(),
            outbox: Vec::new(),
        };
        host.input(Input::Recovered { complete: true });
        host
    }

    /// Its address and life.
    pub fn id(&self) -> NodeId {
        self.replica.node()
    }

    /// The instance itself.
    pub fn node(&self) -> &Node {
        self.replica.protocol()
    }

    /// When its next timer is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.replica.deadline()
    }

    fn time(&self) -> Now {
        Now { wall: WallTime((EPOCH + self.now.0).saturating_add_signed(self.skew)), instant: self.now }
    }

    fn input(&mut self, input: Input<'_, Node>) {
        let now = self.time();
        self.replica.step(now, &mut vec![input], &mut Rng::with_seed(0), &mut self.replies);
        self.flush();
    }

    /// What was persisted is durable at once, what was sent is in the outbox.
    fn flush(&mut self) {
        let mut records = self.replica.records();
        while let Some((len, rest)) = records.split_first_chunk::<4>() {
            let (record, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            self.log.push(record.to_vec());
            records = rest;
        }
        self.groups += 1;
        self.replica.appended(self.groups);
        self.replica.release(self.now, Durable { written: self.groups, synced: self.groups });
        for (to, packet) in self.replica.packets() {
            if let Packet::Datagram(message) = packet {
                self.outbox.push((to, message));
            }
        }
    }

    /// Receives a message.
    pub fn deliver(&mut self, from: NodeId, message: Message) {
        let now = self.time();
        let packet = Packet::Datagram(message);
        self.replica
            .receive(now, from, packet, &mut Rng::with_seed(0), &mut self.replies)
            .expect("a datagram is never malformed");
        self.flush();
    }

    /// Fires the next timer, and lets the time pass that it takes.
    pub fn fire(&mut self) {
        if let Some(due) = self.deadline() {
            self.now = self.now.max(due);
            let now = self.time();
            self.replica.fire(now, &mut Rng::with_seed(0), &mut self.replies);
            self.flush();
        }
    }

    /// A client asks.
    pub fn ask(&mut self, setup: &Setup, wanted: &ClientRequest, index: u8) {
        let values: Vec<String> = wanted.acts.iter().map(|(_, act)| act.value()).collect();
        let steps: Vec<Step<'_>> = wanted
            .acts
            .iter()
            .zip(&values)
            .map(|((key, act), value)| step(setup, key, *act, value))
            .collect();
        let session = SessionId(u64::from(index) + 1);
        let request = match steps.as_slice() {
            [Step::Key(only)] => Request::One { session, operation: only.clone() },
            steps => Request::Many { session, steps, watched: false, multi: false },
        };
        self.input(Input::Request { id: RequestId(u64::from(index)), request });
    }

    /// The process dies and comes back.
    pub fn restart(&mut self, setup: &Setup, index: usize, complete: bool) {
        let life = Incarnation(self.id().incarnation.0 + 1);
        self.replica = Replica::new(self.at.at(life), setup.node(index, life));
        self.groups = 0;
        let log = std::mem::take(&mut self.log);
        for record in log.iter().filter(|_| complete) {
            self.input(Input::Recover(record));
            self.log.push(record.clone());
        }
        self.input(Input::Recovered { complete });
    }

    /// The replies to its clients, by request.
    pub fn replies(&self) -> impl Iterator<Item = (u8, String)> + '_ {
        self.replies.0.iter().map(|(id, reply)| (id.0 as u8, text(reply)))
    }
}

fn step<'a>(setup: &Setup, key: &'a str, act: Act, value: &'a str) -> Step<'a> {
    let (operation, blind) = match act {
        Act::Get => (register::Operation::Get, false),
        Act::Set(_) => {
            let deadline = register::Deadline::Clear;
            let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
            (register::Operation::Set { value: value.as_bytes(), deadline, condition, reply }, false)
        }
        Act::Increment => (register::Operation::Increment { by: 1 }, false),
        Act::Blind => (register::Operation::Increment { by: 1 }, true),
    };
    let hash = setup.topology.seed.hash(key.as_bytes());
    Step::Key(KeyedOperation { key: key.as_bytes(), hash, operation: Operation::Register(operation), blind })
}

fn text(reply: &ReplyBuf) -> String {
    let elements = reply.elements().map(|element| match element {
        Reply::Simple(text) => text.to_owned(),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Integer(value) => value.to_string(),
        Reply::Error(error) => error.to_string(),
        Reply::Null => "null".to_owned(),
        other => format!("{other:?}"),
    });
    elements.collect::<Vec<_>>().join(" ")
}

/// What two messages may differ in without anybody acting differently: revisions count one replica's own changes,
/// hints only name a key in an error.
pub fn normalize(message: &mut Message) {
    match message {
        Message::Ir {
            message: Ir::DoViewChange { part, groups, .. } | Ir::StartView { part, groups, .. },
        } => {
            // All there is fits one part.
            part.revision = 0;
            groups.values_mut().for_each(|group| group.revision = 0);
        }
        Message::Ir { message: Ir::Reply { hint, .. } } => *hint = None,
        _ => {}
    }
}

/// The state of an instance as text, without the revisions of its record: those only tell copies of one replica's
/// log apart.
pub fn portrait(node: &Node) -> String {
    let text = format!("{node:?}");
    let mut rest_of = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("revision: ") {
        let after = &rest[at + "revision: ".len()..];
        rest_of.push_str(&rest[..at]);
        let len = if after.starts_with('{') {
            balanced(after)
        } else {
            after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len())
        };
        rest = &after[len..];
    }
    rest_of.push_str(rest);
    rest_of
}

/// The length of the braces that the text begins with.
fn balanced(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// True for what nobody needs to receive: acknowledgements, which only stop repetitions. Messages of the model are
/// repeated anyway.
pub fn is_acknowledgement(message: &Message, to_coordinator: bool) -> bool {
    match message {
        Message::Ir { message: Ir::Executed { .. } | Ir::ViewStarted { .. } } => true,
        Message::Ir { message: Ir::Superseded { .. } } => to_coordinator,
        _ => false,
    }
}
